// Products of f32 operands taken apart in three bf16 numbers; the compiler flags come with this file's name.
#define SND_WAY   x3_amx
#define SND_PARTS 3
#include "kernels/bf16.inc"
