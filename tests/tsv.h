// Tables of test cases: a header line, then cells between tabs.
#ifndef SND_TESTS_TSV_H
#define SND_TESTS_TSV_H

#include "check.h"

#include "base/base.h"

#include <string.h>

enum { TSV_CELLS = 9 };

static inline int tsv_split(char *text, char sep, char **parts, int most) {
    int n = 0;
    while (text && n < most) {
        parts[n++] = text;
        text = strchr(text, sep);
        if (text) *text++ = '\0';
    }
    return n;
}

typedef void tsv_row(char **cells, int n);

// Calls fn for every line of tests/golden/FILE after the first; returns their number.
static inline int tsv_each(const char *file, tsv_row *fn) {
    char path[512], *text, *cells[TSV_CELLS];
    size_t n;
    int rows = 0;
    snprintf(path, sizeof path, SONDE_SOURCE_DIR "/tests/golden/%s", file);
    assert_int_equal(snd_read_file(path, 1 << 20, &text, &n), SONDE_OK);
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        const int k = tsv_split(line, '\t', cells, TSV_CELLS);
        if (rows++ == 0 || k < 4) continue; // the header
        fn(cells, k);
    }
    snd_free(text);
    return rows - 1;
}

#endif
