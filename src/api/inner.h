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

/// kind INVALID: a handle whose record is still to come.
sonde_status snd_api_record(snd_record_kind kind, sonde_record **out) SONDE_MUST_CHECK;

#endif
