// sonde version: which build this is. Scripts read --json.
#include "cli/inner.h"

static const char *compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

static const char *isa_name(void) {
    switch (snd_isa_best()) {
    case SND_ISA_AVX512: return "avx512";
    case SND_ISA_AVX2: return "avx2";
    default: return "base";
    }
}

sonde_status snd_verb_version(snd_cli *c) {
    if (!c->json) {
        snd_print(c, "sonde %s\nkernels %s, %d threads, %s\n", sonde_version(), isa_name(), snd_cpu_count(),
                  compiler());
        return SONDE_OK;
    }
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.version/1");
    snd_json_str(&j, "version", sonde_version());
    snd_json_str(&j, "kernels", isa_name());
    snd_json_int(&j, "threads", snd_cpu_count());
    snd_json_str(&j, "compiler", compiler());
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
    return SONDE_OK;
}
