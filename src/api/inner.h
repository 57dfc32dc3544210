// What the files of api/ share: the handles of <sonde/...>, each of which owns one arena.
#ifndef SND_API_INNER_H
#define SND_API_INNER_H

#include "lab/lab.h"

#include <sonde/sonde.h>

struct sonde_spec {
    snd_arena *arena;
    snd_spec *spec;
};

struct sonde_record {
    snd_arena *arena;
    snd_record *rec;
};

/// open: for snd_lab_complete.
sonde_status snd_api_spec(const char *spec, bool open, const char *const *overrides, int n, sonde_spec **out) SONDE_MUST_CHECK;
/// kind INVALID: a handle whose record is still to come.
sonde_status snd_api_record(snd_record_kind kind, sonde_record **out) SONDE_MUST_CHECK;

#endif
