// Part of lab's front: another program that does a bench's work when it is told to. It is started once and asked by lines on
// its stdin; it answers each with a line of JSON. So both sides are measured in one session, turn by turn, each by a clock of
// its own that sees the work alone.
//
//   it starts with     {"name": "PyTorch 1.13.1", "setting": "...", "cpu": ...}     or {"error": "a sentence"}
//   case NAME SIZES..  makes the operands, does the work once or more     -> {}     or {"error": "a sentence"}
//   round SECONDS      as often as fits into so many seconds, at least once  -> {"seconds": of one, "mib": most memory}
//   round SECONDS cpu  the same by the process's own time
// It ends when its stdin does.
#ifndef SND_LAB_RIVAL_H
#define SND_LAB_RIVAL_H

#include "base/base.h"

typedef struct snd_rival snd_rival;

/// Starts argv (argv[0] is looked for in PATH) and waits for its first line.
/// errors  SONDE_EUSAGE: it cannot be started, or says why it cannot take part;  SONDE_EIO: it says something else
sonde_status snd_rival_open(const char *const *argv, const snd_stop *stop, snd_rival **out) SONDE_MUST_CHECK;
/// Lets it end. NULL is fine.
void snd_rival_close(snd_rival *r);
const char *snd_rival_name(const snd_rival *r), *snd_rival_setting(const snd_rival *r);
/// errors  SONDE_EIO: it is gone, says no JSON, or cannot do this;  SONDE_EINTERRUPTED
sonde_status snd_rival_case(snd_rival *r, const char *what) SONDE_MUST_CHECK;
/// Seconds of one call, cpu_time: of processor time. NaN where it said none: no number is made up.
sonde_status snd_rival_round(snd_rival *r, double least, bool cpu_time, double *seconds) SONDE_MUST_CHECK;
double snd_rival_mib(const snd_rival *r);      // of its last round; NaN: it did not say

#endif
