// Products of bf16 operands in one way; the compiler flags come with this file's name.
#define SND_WAY amx
#include "kernels/bf16.inc"
