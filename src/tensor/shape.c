// Shapes: size, equality, broadcasting, text; and the comparison of two arrays.
// Invariant: dimensions beyond nd are 1 in every shape made here, so shapes can be compared whole.
#include "tensor/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

snd_shape snd_shape_make(int nd, const int64_t *dim) {
    assert(nd >= 0 && nd <= SND_MAX_DIMS);
    snd_shape s = {.nd = nd};
    for (int i = 0; i < SND_MAX_DIMS; i++) s.dim[i] = i < nd ? dim[i] : 1;
    return s;
}

// INT64_MAX when the product does not fit: any allocation of it then fails.
int64_t snd_shape_size(snd_shape s) {
    int64_t n = 1;
    for (int i = 0; i < s.nd; i++) {
        assert(s.dim[i] >= 0);
        if (s.dim[i] == 0) return 0;
        n = n > INT64_MAX / s.dim[i] ? INT64_MAX : n * s.dim[i];
    }
    return n;
}

bool snd_shape_same(snd_shape a, snd_shape b) {
    if (a.nd != b.nd) return false;
    for (int i = 0; i < a.nd; i++) {
        if (a.dim[i] != b.dim[i]) return false;
    }
    return true;
}

bool snd_shape_broadcast(snd_shape a, snd_shape b, snd_shape *out) {
    const int nd = a.nd > b.nd ? a.nd : b.nd;
    int64_t dim[SND_MAX_DIMS] = {0};
    for (int i = 0; i < nd; i++) {
        const int ia = i - (nd - a.nd), ib = i - (nd - b.nd);
        const int64_t da = ia < 0 ? 1 : a.dim[ia], db = ib < 0 ? 1 : b.dim[ib];
        if (da != db && da != 1 && db != 1) return false;
        dim[i] = da == 1 ? db : da;
    }
    *out = snd_shape_make(nd, dim);
    return true;
}

const char *snd_shape_text(snd_shape s, char out[160]) {
    int n = snprintf(out, 160, "[");
    for (int i = 0; i < s.nd; i++) n += snprintf(out + n, 160 - (size_t)n, "%s%" PRId64, i ? ", " : "", s.dim[i]);
    snprintf(out + n, 160 - (size_t)n, "]");
    return out;
}

// Root mean square of the finite entries, without overflow: relative to the largest.
static double rms_of(const double *x, int64_t n) {
    double largest = 0, sum = 0;
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i]) && fabs(x[i]) > largest) largest = fabs(x[i]);
    }
    if (largest == 0) return 0;
    int e;
    frexp(largest, &e);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        const double v = ldexp(x[i], -e);
        sum += v * v;
        used++;
    }
    return ldexp(sqrt(sum / (double)used), e);
}

static bool same_nonfinite(double a, double b) {
    return (isnan(a) && isnan(b)) || a == b;
}

// nonfinite counts the places where either array is not finite; at, got and want are of the worst place.
snd_diff snd_compare(const double *got, const double *want, int64_t n) {
    snd_diff d = {.rms_ref = rms_of(want, n), .at = -1};
    for (int64_t i = 0; i < n; i++) {
        double diff = fabs(got[i] - want[i]);
        if (!isfinite(got[i]) || !isfinite(want[i])) {
            d.nonfinite++;
            diff = same_nonfinite(got[i], want[i]) ? 0 : INFINITY;
        }
        if (d.at >= 0 && !(diff > d.max_abs)) continue;
        d.max_abs = diff;
        d.at = i;
        d.got = got[i];
        d.want = want[i];
    }
    d.score = d.max_abs == 0 ? 0 : d.max_abs / d.rms_ref; // x/0 = Inf: nothing is small next to zero
    return d;
}
