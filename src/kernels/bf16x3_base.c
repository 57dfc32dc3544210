// Products of f32 operands taken apart in three bf16 numbers; for tests, where there are no tiles.
#define SND_WAY   x3_base
#define SND_PARTS 3
#include "kernels/bf16.inc"
