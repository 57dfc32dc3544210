// Which instruction sets this CPU (and its system) runs. SONDE_ISA in the environment can lower the answer, never
// raise it; other values of it are ignored. And what the machine is.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // _SC_PHYS_PAGES
#endif
#include "base/base.h"
#include "base/machine.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

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

bool snd_cpu_is_amd(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

// ---- instructions on bf16 -------------------------------------------------------------------------------------------

#if defined(__x86_64__)

static bool has_avx512_bf16(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
}

// The registers that the system keeps for a thread.
static uint64_t kept_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

// Linux wants to be asked before a process uses the tiles, 8 KiB a thread; it refuses where a signal's stack is too small.
static bool has_amx_bf16(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, asm/prctl.h of Linux 5.16
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false; // xgetbv
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
    return (kept_registers() >> 17 & 3) == 3 && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

#else

static bool has_avx512_bf16(void) {
    return false;
}
static bool has_amx_bf16(void) {
    return false;
}

#endif

// Asked once: 0 not yet, 1 no, 2 yes.
static bool asked_once(_Atomic int *known, bool (*ask)(void)) {
    int v = atomic_load_explicit(known, memory_order_relaxed);
    if (!v) {
        v = ask() ? 2 : 1;
        atomic_store_explicit(known, v, memory_order_relaxed);
    }
    return v == 2;
}

bool snd_cpu_avx512_bf16(void) {
    static _Atomic int known;
    return asked_once(&known, has_avx512_bf16);
}

// SONDE_ISA=avx512 leaves the tiles alone.
static bool may_use_amx_bf16(void) {
    const char *wish = getenv("SONDE_ISA");
    return !(wish && strcmp(wish, "avx512") == 0) && has_amx_bf16();
}

bool snd_cpu_amx_bf16(void) {
    static _Atomic int known;
    return snd_cpu_avx512_bf16() && asked_once(&known, may_use_amx_bf16);
}

size_t snd_memory_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

// The value behind "key:" in one of the system's lists of keys.
static bool look_up(const char *path, const char *key, char *out, size_t size) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        const size_t n = strlen(key);
        if (strncmp(line, key, n) != 0) continue;
        const char *v = line + n + strspn(line + n, " \t");
        if (*v++ != ':') continue;
        v += strspn(v, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(v, "\n"), v);
        found = *out != 0;
    }
    if (f) fclose(f);
    return found;
}

void snd_cpu_name(char out[64]) {
    if (!look_up("/proc/cpuinfo", "model name", out, 64)) snprintf(out, 64, "unknown");
}

double snd_machine_load(void) {
    double load;
    return getloadavg(&load, 1) == 1 ? load : NAN;
}

void snd_memory_peak_start(void) {
    snd_heap_give_back();
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    (void)fputs("5", f); // sets the peak to what is in memory now (man 5 proc)
    fclose(f);
}

double snd_memory_peak(void) {
    char text[64];
    const char *end;
    double kib;
    if (!look_up("/proc/self/status", "VmHWM", text, sizeof text) || !snd_parse_num(text, &kib, &end)) return NAN;
    return 1024 * kib;
}
