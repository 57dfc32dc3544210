// stub
#include "report/report.h"
sonde_status snd_report_html(const snd_record *const *records, int n, snd_buf *b) { (void)records; (void)n; (void)b; return SONDE_OK; }
sonde_status snd_report_write(const snd_record *const *records, int n, const char *path) { (void)records; (void)n; (void)path; return SONDE_OK; }
