// Front header of kernels/: loops on raw pointers. They never allocate, never fail and never see a graph.
//   api.h       what there is              NAME.c     cuts a shape into tasks, always in the same way
//   kernels.def the families of loops      NAME.inc   the loops themselves, compiled per type and instruction set by
//   rows.h      their signatures                      rows_base.c, rows_avx2.c, rows_avx512.c; table.c picks
//   maths.h     elementary functions       gemm.c     the matrix product's grid and the libraries behind it
//                                          half.c     rounding to f16 in place
//                                          bf16.c     products by bf16 numbers: of operands rounded, or taken apart in three
//                                          narrow.c   losses on rows stored as bf16; attention_bf16.c likewise. Norms: rowtype.inc
// Reductions use fixed trees over fixed blocks: the same bits for any number of threads.
#ifndef SND_KERNELS_H
#define SND_KERNELS_H

#include "tensor/tensor.h"

#include "kernels/api.h"

#endif
