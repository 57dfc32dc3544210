// Front header of report/: records to one self-contained HTML page. It works offline (no reference to any other file or
// host), in light and dark, on a phone and on paper. It renders records and knows nothing else.
#ifndef SND_REPORT_H
#define SND_REPORT_H

#include "record/record.h"

/// n records as one page: their runs overlaid, their panels and verdicts one after the other.
sonde_status snd_report_html(const snd_record *const *records, int n, snd_buf *b) SONDE_MUST_CHECK;
/// The same into a file, written under a temporary name and renamed.
sonde_status snd_report_write(const snd_record *const *records, int n, const char *path) SONDE_MUST_CHECK;
/// A record's files and report.html, all or none.
sonde_status snd_report_folder(const snd_record *r, const char *dir) SONDE_MUST_CHECK;

#endif
