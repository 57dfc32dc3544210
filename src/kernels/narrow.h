// Private to the losses on rows stored as bf16 (narrow.c, rowwise.c).
#ifndef SND_KERNELS_NARROW_H
#define SND_KERNELS_NARROW_H

#include "kernels/rows.h"
#include "kernels/slots.h"

/// What a job on rows of D needs; it may have as many threads as there are slots.
typedef struct snd_narrow {
    int64_t D, rows; // of a block
    int threads;
    snd_slots slots;
} snd_narrow;
snd_narrow snd_narrow_make(int th, int64_t D, void *scratch);

// A task's share of a job: its rows go through `f` block by block. Arguments as of f, logits and dx [rows, D] in bf16.
double snd_narrow_xent(snd_narrow *n, snd_kt_xent *f, int64_t rows, double s, double smooth, const uint16_t *logits,
                       const int64_t *target, int64_t ignore, double *lse, int64_t *used);
void snd_narrow_xent_bwd(snd_narrow *n, snd_kt_xent_bwd *f, int64_t rows, double s, double smooth, const uint16_t *logits,
                         const int64_t *target, int64_t ignore, const double *lse, double scale, uint16_t *dx);

#endif
