// safetensors: any bytes; every tensor that is reported lies in the file and has the size of its shape.
#include "fuzz.h"

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t before = snd_alloc_bytes();
    snd_stfile *f = NULL;
    if (fuzz_fine(snd_st_parse("bytes", data, n, &f))) {
        for (int64_t i = 0; i < snd_st_count(f); i++) {
            const snd_tensor *t = snd_st_at(f, i);
            MUST(snd_st_find(f, t->name) == t);
            fuzz_touch(t->data, (size_t)snd_shape_size(t->shape) * snd_dtype_size(t->dtype));
        }
        MUST(!snd_st_find(f, "no such tensor \x01"));
        snd_st_close(f);
    }
    MUST(snd_alloc_bytes() == before);
    return 0;
}
