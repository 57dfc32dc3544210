// Which instruction sets this CPU (and its system) runs. SONDE_ISA in the environment can lower the answer, never
// raise it; other values of it are ignored.
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

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
