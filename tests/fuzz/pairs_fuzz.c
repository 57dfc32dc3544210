// pairs: any bytes as tab-separated text, under each way of naming the columns; what is read lies inside the bytes.
#include "fuzz.h"

#include "data/inner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const columns[] = {NULL, "1,2", "2,1", "3,1"};
    const size_t before = snd_alloc_bytes();
    for (int k = 0; k < 4; k++) {
        snd_set d = {.settings = {.valid = 0.2, .test = 0.1}};
        if (fuzz_fine(snd_pairs_parse(&d, "bytes", data, n, columns[k], SND_SPLIT_TRAIN))) {
            MUST(d.n_pairs > 0);
            for (int64_t i = 0; i < d.n_pairs; i++) {
                const snd_text both[] = {d.pairs[i].source, d.pairs[i].target};
                for (int s = 0; s < 2; s++) {
                    MUST(both[s].n > 0 && (const uint8_t *)both[s].s >= data);
                    MUST((const uint8_t *)both[s].s + both[s].n <= data + n);
                    MUST(!memchr(both[s].s, '\t', both[s].n) && !memchr(both[s].s, '\n', both[s].n));
                }
                MUST(d.pairs[i].split >= SND_SPLIT_TRAIN && d.pairs[i].split < SND_SPLIT_COUNT);
            }
        }
        snd_free(d.pairs);
    }
    MUST(snd_alloc_bytes() == before);
    return 0;
}
