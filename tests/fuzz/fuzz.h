// Frame of the fuzz targets. A target is one function that takes bytes; whatever they are, the library must return a
// status with a message, keep its promises (MUST) and give all memory back.
// Under clang's preset "fuzz" libFuzzer drives the target; in all other builds driver.c runs it over its seeds and
// over simple damage of them, as a test.
#ifndef SND_TESTS_FUZZ_H
#define SND_TESTS_FUZZ_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: must hold: %s; last message: %s\n", __FILE__, __LINE__, #condition,               \
                    sonde_error_message());                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

// A failure must say something and must not be our own fault.
static inline bool fuzz_fine(sonde_status s) {
    if (s == SONDE_OK) return true;
    MUST(s != SONDE_EINTERNAL && strlen(sonde_error_message()) > 0);
    return false;
}

// The bytes as text: a NUL ends it. Caller frees.
static inline char *fuzz_text(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1);
    MUST(text);
    if (n) memcpy(text, data, n);
    text[n] = 0;
    return text;
}

// Reads every byte, so that sanitizers see a range that is not there.
static inline unsigned fuzz_touch(const void *p, size_t n) {
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum = sum * 31 + ((const volatile uint8_t *)p)[i];
    return sum;
}

#endif
