// What the files of io/ share among themselves.
#ifndef SND_IO_INNER_H
#define SND_IO_INNER_H

#include "io/io.h"

// A file's bytes: mapped when it is a plain file, else read whole.
typedef struct snd_map {
    const uint8_t *bytes;
    size_t n;
    void *mapped, *heap;
} snd_map;
sonde_status snd_map_open(const char *path, snd_map *m) SONDE_MUST_CHECK;
void snd_map_close(snd_map *m);

/// Product of nd sizes, and of those that are not 0; false when a size is negative or the second leaves int64 once
/// multiplied by `size` bytes. So no later product of some of the dimensions can overflow either.
bool snd_checked_size(const int64_t *dim, int nd, size_t size, int64_t *elements);

/// Fills in an array that owns `data` (heap) and a copy of `name`; on failure data is freed.
sonde_status snd_array_make(snd_array *out, const char *name, snd_dtype t, snd_shape s, void *data) SONDE_MUST_CHECK;

#endif
