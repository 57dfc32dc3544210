// Look-up in the table of embedded files, which the build generates.
#include "base/embed.h"

#include <string.h>

const char *snd_embedded(const char *name, size_t *n) {
    for (int i = 0; i < snd_embed_count; i++) {
        if (strcmp(snd_embed_rows[i].name, name) != 0) continue;
        if (n) *n = snd_embed_rows[i].n;
        return (const char *)snd_embed_rows[i].data;
    }
    return NULL;
}

const char *snd_embedded_name(const char *prefix, int i) {
    const size_t len = strlen(prefix);
    for (int k = 0; k < snd_embed_count; k++) {
        if (strncmp(snd_embed_rows[k].name, prefix, len) == 0 && i-- == 0) return snd_embed_rows[k].name;
    }
    return NULL;
}
