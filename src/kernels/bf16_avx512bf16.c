// Products of bf16 operands in one way; the compiler flags come with this file's name.
#define SND_WAY avx512bf16
#include "kernels/bf16.inc"
