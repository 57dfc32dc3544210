// The presets, YAML files of catalog/models/ that the build embeds. Their names are the file names without ".yaml".
#include "spec/inner.h"

#include "base/embed.h"

#include <string.h>

static const char FOLDER[] = "catalog/models/";

static size_t stem_length(const char *path) {
    const char *name = path + sizeof FOLDER - 1;
    const char *dot = strstr(name, ".yaml");
    return dot && dot[5] == 0 ? (size_t)(dot - name) : 0;
}

int snd_preset_count(void) {
    int n = 0;
    while (snd_embedded_name(FOLDER, n)) n++;
    return n;
}

// Borrowed text needs a place to live; names are few and short, so the calling thread keeps the last ones.
const char *snd_preset_name(int i) {
    enum { SLOTS = 64, SIZE = 48 };
    static _Thread_local char names[SLOTS][SIZE];
    const char *path = i >= 0 ? snd_embedded_name(FOLDER, i) : NULL;
    const size_t n = path ? stem_length(path) : 0;
    if (n == 0 || n >= SIZE) return NULL;
    char *out = names[i % SLOTS];
    memcpy(out, path + sizeof FOLDER - 1, n);
    out[n] = 0;
    return out;
}

const char *snd_preset_text(int i) {
    const char *path = i >= 0 ? snd_embedded_name(FOLDER, i) : NULL;
    return path ? snd_embedded(path, NULL) : NULL;
}

const char *snd_preset_find(const char *name) {
    const size_t n = strlen(name);
    for (int i = 0;; i++) {
        const char *path = snd_embedded_name(FOLDER, i);
        if (!path) return NULL;
        if (stem_length(path) == n && memcmp(path + sizeof FOLDER - 1, name, n) == 0) return snd_embedded(path, NULL);
    }
}
