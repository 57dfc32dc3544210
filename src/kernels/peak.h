// Private to the fronts: the roof that is outside the table, since no row of it has bf16.
#ifndef SND_KERNELS_PEAK_H
#define SND_KERNELS_PEAK_H

#include "kernels/rows.h"

/// For snd_k_peak of SND_BF16: dot products of pairs, summed in f32, by AVX512_BF16, which the caller has asked for; 0 where
/// this build has none.
snd_kt_peak snd_k_peak_bf16_avx512bf16;

#endif
