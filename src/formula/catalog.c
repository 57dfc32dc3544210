// The catalogue: catalog/wirings.txt, embedded at build time, split into entries once. The text is copied into one
// static buffer and cut there, so looking things up never allocates. Nothing here knows what a wiring means.
#include "base/embed.h"
#include "formula/inner.h"

#include <pthread.h>
#include <string.h>

enum { MAX_WIRINGS = 128, MAX_TEXT = 64 * 1024 };

static char text[MAX_TEXT];           // written once, by read_catalogue
static snd_wiring table[MAX_WIRINGS]; // written once
static int n_wirings;                 // written once

static char *trim(char *s) {
    while (*s == ' ' || *s == '\t') s++;
    char *end = s + strlen(s);
    while (end > s && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == '\r')) *--end = '\0';
    return s;
}

static void set_field(snd_wiring *w, char *line) {
    const struct {
        const char *name;
        const char **to;
    } fields[] = {{"title:", &w->title},
                  {"source:", &w->source},
                  {"notes:", &w->notes},
                  {"family:", &w->family},
                  {"norm:", &w->norm}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const size_t n = strlen(fields[i].name);
        if (!strncmp(line, fields[i].name, n)) *fields[i].to = trim(line + n);
    }
}

// One entry: its lines up to "formula:", whose text runs to the end.
static void read_entry(char *entry) {
    if (n_wirings == MAX_WIRINGS) return;
    snd_wiring *w = &table[n_wirings];
    *w = (snd_wiring){.title = "", .source = "", .notes = "", .family = "any"};
    char *line = strchr(entry, '\n');
    if (!line) return;
    *line++ = '\0';
    w->key = trim(entry);
    while (line) {
        if (!strncmp(line, "formula:", 8)) {
            w->formula = trim(line + 8);
            n_wirings++;
            return;
        }
        char *next = strchr(line, '\n');
        if (next) *next++ = '\0';
        set_field(w, line);
        line = next;
    }
}

static void read_catalogue(void) {
    size_t n = 0;
    const char *src = snd_embedded("catalog/wirings.txt", &n);
    if (!src || n >= MAX_TEXT) return;
    memcpy(text, src, n);
    text[n] = '\0';
    char *entry = strstr(text, "\n== ");
    while (entry) {
        char *next = strstr(entry + 4, "\n== ");
        if (next) *next = '\0';
        read_entry(entry + 4);
        entry = next;
    }
}

static void load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, read_catalogue);
}

int snd_wiring_count(void) {
    load();
    return n_wirings;
}

const snd_wiring *snd_wiring_at(int i) {
    load();
    return &table[i];
}

const snd_wiring *snd_wiring_find(const char *key) {
    load();
    for (int i = 0; i < n_wirings; i++)
        if (!strcmp(table[i].key, key)) return &table[i];
    return NULL;
}

const char *snd_wiring_nearest(const char *key) {
    load();
    const char *keys[MAX_WIRINGS];
    for (int i = 0; i < n_wirings; i++) keys[i] = table[i].key;
    return snd_nearest(key, keys, n_wirings);
}
