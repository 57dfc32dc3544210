// Files that the build puts into the library (cmake/embed.cmake): the catalogue, the presets, the report's assets,
// the beginning of a text to train on ("data/austen.txt").
// Names are those in the source tree: "catalog/wirings.txt", "catalog/models/gpt2.yaml", "report/assets/report.css";
// dygraphs' two files are "dygraphs/dygraph.min.js" and "dygraphs/dygraph.min.css". Rows are sorted by name.
#ifndef SND_EMBED_H
#define SND_EMBED_H

#include <stddef.h>

/// Contents of an embedded file with a NUL after them; *n (may be NULL) their length. NULL: no such file.
const char *snd_embedded(const char *name, size_t *n);

/// Listing: the i-th name (from 0) that begins with `prefix`, in order of names; NULL after the last.
const char *snd_embedded_name(const char *prefix, int i);

/// One row of the generated table.
typedef struct snd_embed_row {
    const char *name;
    const unsigned char *data;
    size_t n;  // without the NUL
} snd_embed_row;
extern const snd_embed_row snd_embed_rows[];
extern const int snd_embed_count;

#endif
