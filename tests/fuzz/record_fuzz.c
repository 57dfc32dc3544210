// result.json: any bytes; what is read can be written, and that reads to the same.
#include "fuzz.h"

#include "record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t before = snd_alloc_bytes();
    snd_arena *a = snd_arena_create();
    snd_record *r, *again;
    if (fuzz_fine(snd_record_parse(a, (const char *)data, n, "bytes", &r))) {
        snd_buf one = {0}, two = {0};
        snd_record_json(r, &one);
        MUST(one.s && snd_record_parse(a, one.s, one.len, "again", &again) == SONDE_OK);
        snd_record_json(again, &two);
        MUST(two.s && strcmp(one.s, two.s) == 0);
        snd_buf_free(&one);
        snd_buf_free(&two);
    }
    snd_arena_destroy(a);
    MUST(snd_alloc_bytes() == before);
    return 0;
}
