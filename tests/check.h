// What cmocka lacks: comparison of doubles. Written so that NaN fails, and both values are printed in full.
#ifndef SND_TESTS_CHECK_H
#define SND_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <sonde/status.h>

// |got - want| <= tol * max(1, |want|); equal infinities are close, NaN never is.
#define CHECK_CLOSE(got, want, tol) check_close((got), (want), (tol), 1.0, #got, __FILE__, __LINE__)
// |got - want| <= tol * |want|: purely relative.
#define CHECK_REL(got, want, tol) check_close((got), (want), (tol), 0.0, #got, __FILE__, __LINE__)
// Value by value equal, except that all NaNs are equal.
#define CHECK_SAME(got, want) check_same((got), (want), #got, __FILE__, __LINE__)
// A call that must succeed; prints the library's message when it does not.
#define CHECK_OK(call) check_status((call), SONDE_OK, #call, __FILE__, __LINE__)
#define CHECK_STATUS(call, want) check_status((call), (want), #call, __FILE__, __LINE__)

static inline void check_close(double got, double want, double tol, double floor, const char *what, const char *file,
                               int line) {
    if (got == want) return;
    const double scale = fabs(want) > floor ? fabs(want) : floor;
    if (fabs(got - want) <= tol * scale) return;
    print_error("%s: got %.17g, want %.17g, off by %.3g, allowed %.3g\n", what, got, want, got - want, tol * scale);
    _fail(file, line);
}

static inline void check_same(double got, double want, const char *what, const char *file, int line) {
    if (got == want || (isnan(got) && isnan(want))) return;
    print_error("%s: got %.17g, want %.17g exactly\n", what, got, want);
    _fail(file, line);
}

static inline void check_status(sonde_status got, sonde_status want, const char *what, const char *file, int line) {
    if (got == want) return;
    print_error("%s: status %s, want %s; last message: %s\n", what, sonde_status_name(got), sonde_status_name(want),
                sonde_error_message());
    _fail(file, line);
}

#endif
