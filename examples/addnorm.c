// A residual block's end in a program of one's own: x + y and its LayerNorm in one pass, backward with the stream's own
// gradient joining, and a check of one derivative by differences.
// (In mixed precision: SONDE_TYPE_BF16, rows of uint16_t; gain, bias and their gradients are float.)
//   cc addnorm.c $(pkg-config --cflags --libs sonde) -o addnorm && ./addnorm
#include <math.h>
#include <sonde/kernels.h>
#include <stdio.h>

enum { ROWS = 4, D = 8, N = ROWS * D };

static const double gain[D] = {1, 0.5, 2, 1, 1, -1, 0.25, 1}, bias[D] = {0, 0.1, 0, 0, -0.2, 0, 0, 0.3};
static const sonde_norm norm = {
    .kind = SONDE_NORM_LAYER, .type = SONDE_TYPE_F64, .features = D, .eps = 1e-5, .gain = gain, .bias = bias};

static double some(int i, int pace) {
    return (i * pace + 5) % 23 / 11.0 - 1;
}

// What stands for the rest of a network: half of it reads the norm's result, half the stream.
static double objective(const double *s, const double *z) {
    double total = 0;
    for (int i = 0; i < N; i++) total += some(i, 7) * z[i] + some(i, 13) * s[i];
    return total;
}

static int forward(const double *x, const double *y, double *s, double *z, double *mean, double *rstd) {
    if (sonde_addnorm_forward(&norm, ROWS, 1, x, 1, y, s, z, mean, rstd) == SONDE_OK) return 1;
    fprintf(stderr, "addnorm: %s\n", sonde_error_message());
    return 0;
}

int main(void) {
    double x[N], y[N], s[N], z[N], dz[N], plus[N], ds[N], dg[D], db[D], mean[ROWS], rstd[ROWS];
    for (int i = 0; i < N; i++) {
        x[i] = some(i, 3), y[i] = some(i, 17);
        dz[i] = some(i, 7), plus[i] = some(i, 13); // gradients of the objective
    }
    if (!forward(x, y, s, z, mean, rstd)) return 1;
    if (sonde_norm_backward(&norm, ROWS, dz, s, mean, rstd, plus, ds, dg, db, NULL) != SONDE_OK) {
        fprintf(stderr, "addnorm: %s\n", sonde_error_message());
        return 1;
    }
    for (int r = 0; r < ROWS; r++)
        printf("row %d: mean %8.5f, 1/sd %7.5f, result %8.5f %8.5f %8.5f ..., gradient %8.5f %8.5f %8.5f ...\n", r,
               mean[r], rstd[r], z[r * D], z[r * D + 1], z[r * D + 2], ds[r * D], ds[r * D + 1], ds[r * D + 2]);

    const int at = 2 * D + 3;
    const double h = 1e-5, keep = x[at];
    double side[2];
    for (int k = 0; k < 2; k++) {
        x[at] = keep + (k ? h : -h);
        if (!forward(x, y, s, z, mean, rstd)) return 1;
        side[k] = objective(s, z);
    }
    const double slope = (side[1] - side[0]) / (2 * h);
    printf("derivative by x[2][3]: %.6f, by differences %.6f\n", ds[at], slope);
    return fabs(slope - ds[at]) <= 1e-6 ? 0 : 1;
}
