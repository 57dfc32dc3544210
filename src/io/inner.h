// What the files of io/ share among themselves.
#ifndef SND_IO_INNER_H
#define SND_IO_INNER_H

#include "io/io.h"

/// Product of nd sizes, and of those that are not 0; false when a size is negative or the second leaves int64 once
/// multiplied by `size` bytes. So no later product of some of the dimensions can overflow either.
bool snd_checked_size(const int64_t *dim, int nd, size_t size, int64_t *elements);

/// Fills in an array that owns `data` (heap) and a copy of `name`; on failure data is freed.
sonde_status snd_array_make(snd_array *out, const char *name, snd_dtype t, snd_shape s, void *data) SONDE_MUST_CHECK;

#endif
