// Stands in for libFuzzer: runs a target over every file of the folders given, and over each file cut short, with bytes
// replaced, doubled and with its middle repeated. Deterministic; a second or two.
#include "fuzz.h"

#include <dirent.h>

static long runs;

// A copy of its own length, so that reading past the end is seen.
static void run(const uint8_t *data, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    MUST(copy);
    if (n) memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    runs++;
}

static uint32_t next(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

static void damage(const uint8_t *data, size_t n) {
    static const uint8_t words[] = {0,   1,   9,   10,  32,  '"', '(', ')', '-', '0',
                                    ':', '=', '[', ']', '{', '}', 127, 128, 255};
    uint32_t state = (uint32_t)n;
    uint8_t *work = malloc(2 * n + 1);
    MUST(work);
    const size_t step = n / 40 + 1;
    for (size_t cut = 0; cut <= n; cut += step) run(data, cut);
    for (int i = 0; i < 150 && n; i++) {
        memcpy(work, data, n);
        for (int k = 0; k <= i % 3; k++) work[next(&state) % n] = words[(next(&state) >> 8) % sizeof words];
        run(work, n);
        work[next(&state) % n] ^= (uint8_t)(1u << (next(&state) >> 29));
        run(work, n);
    }
    for (int i = 0; i < 20 && n > 2; i++) {
        const size_t at = next(&state) % n, len = 1 + next(&state) % (n - at);
        memcpy(work, data, at + len);
        memcpy(work + at + len, data + at, n - at);
        run(work, n + len);
    }
    free(work);
}

static void run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    uint8_t *data = malloc(1 << 20);
    MUST(data);
    const size_t n = fread(data, 1, 1 << 20, f);
    fclose(f);
    run(data, n);
    damage(data, n);
    free(data);
}

int main(int argc, char **argv) {
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            run_file(argv[i]);
            files++;
            continue;
        }
        for (struct dirent *e; (e = readdir(d));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            run_file(path);
            files++;
        }
        closedir(d);
    }
    printf("%d seeds, %ld runs\n", files, runs);
    return files ? 0 : 1;
}
