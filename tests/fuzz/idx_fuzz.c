// idx: any bytes; what is read has the size of its shape.
#include "fuzz.h"

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t before = snd_alloc_bytes();
    snd_array a = {0};
    if (fuzz_fine(snd_idx_parse("bytes", data, n, &a))) {
        fuzz_touch(a.t.data, (size_t)snd_shape_size(a.t.shape) * snd_dtype_size(a.t.dtype));
    }
    snd_array_free(&a);
    MUST(snd_alloc_bytes() == before);
    return 0;
}
