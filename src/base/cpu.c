// Which instruction sets this CPU (and its system) runs. SONDE_ISA in the environment can lower the answer, never
// raise it; other values of it are ignored. And how much memory the machine has.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // _SC_PHYS_PAGES
#endif
#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static snd_isa detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    // Every CPU with AVX2 and FMA has F16C too (Haswell, Excavator and later).
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return SND_ISA_BASE;
    const bool z = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return z ? SND_ISA_AVX512 : SND_ISA_AVX2;
#else
    return SND_ISA_BASE;
#endif
}

snd_isa snd_isa_best(void) {
    const snd_isa cpu = detect();
    const char *wish = getenv("SONDE_ISA");
    if (!wish) return cpu;
    const snd_isa cap = strcmp(wish, "base") == 0   ? SND_ISA_BASE
                        : strcmp(wish, "avx2") == 0 ? SND_ISA_AVX2
                                                    : SND_ISA_AVX512;
    return cpu < cap ? cpu : cap;
}

size_t snd_memory_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}
