// Spec files: YAML or JSON to a resolved spec. What loads prints as YAML, and that loads to the same.
#include "fuzz.h"

#include "spec/spec.h"

#include <sys/mman.h>
#include <unistd.h>

// A file in memory; its name under /proc goes to `path`.
static int memory_file(const void *data, size_t n, char path[64]) {
    const int fd = memfd_create("spec", MFD_CLOEXEC);
    MUST(fd >= 0);
    MUST(write(fd, data, n) == (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static bool load(snd_arena *a, const void *data, size_t n, snd_spec **spec) {
    char path[64];
    const int fd = memory_file(data, n, path);
    const bool ok = fuzz_fine(snd_spec_load(a, path, NULL, 0, spec));
    close(fd);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 1 << 16) return 0;
    const size_t before = snd_alloc_bytes();
    snd_arena *a = snd_arena_create();
    snd_spec *spec, *again;
    if (load(a, data, n, &spec)) {
        snd_buf one = {0}, two = {0};
        snd_spec_print_yaml(spec, &one);
        MUST(one.s && load(a, one.s, one.len, &again));
        snd_spec_print_yaml(again, &two);
        MUST(two.s && strcmp(one.s, two.s) == 0);
        snd_buf_free(&one);
        snd_buf_free(&two);
    }
    snd_arena_destroy(a);
    MUST(snd_alloc_bytes() == before);
    return 0;
}
