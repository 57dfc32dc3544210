// The loops of rows.inc for one instruction set; the compiler flags come with this file's name.
#define SND_ISA base
#include "kernels/rows.inc"
