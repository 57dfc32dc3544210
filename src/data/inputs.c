// Rows for the input of a measurement: Gaussian with a wished cosine, or distinct rows of a data set chosen by the seed.
// A data set stays in memory in the file's own type; only the rows asked for are converted.
#include "data/inner.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct snd_dataset {
    const snd_set *set; // whose split the rows are; NULL: x and labels have them
    snd_split split;
    snd_array x, labels; // labels.t.data NULL: none; else I64
    int64_t rows, features, classes;
    const char *name;
    double *shift, *scale; // per feature: (x - shift) * scale; NULL: the two numbers below for all
    double shift1, scale1;
};

// Fashion-MNIST's pixels in 0..1 over the 60 000 training images (Xiao, Rasul, Vollgraf 2017; the usual normalisation).
static const double FASHION_MEAN = 0.2860, FASHION_SD = 0.3530;

// ---- drawn --------------------------------------------------------------------------------------------------------------------

void snd_data_gauss(uint64_t seed, const char *name, int64_t rows, int64_t features, double c, double *x) {
    assert(c >= 0 && c <= 1);
    char mu_name[160];
    snprintf(mu_name, sizeof mu_name, "%s.mu", name);
    const snd_key key = snd_key_make(seed, name), mu_key = snd_key_make(seed, mu_name);
    const double own = sqrt(1 - c), shared = sqrt(c);
    for (int64_t i = 0; i < rows * features; i++) x[i] = own * snd_normal_at(key, (uint64_t)i);
    for (int64_t f = 0; f < features && c > 0; f++) {
        const double mu = shared * snd_normal_at(mu_key, (uint64_t)f);
        for (int64_t r = 0; r < rows; r++) x[r * features + f] += mu;
    }
}

void snd_data_targets(uint64_t seed, const char *name, int64_t n, int64_t classes, int64_t *out) {
    const snd_key key = snd_key_make(seed, name);
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = (int64_t)(snd_uniform_at(key, (uint64_t)i) * (double)classes);
        out[i] = t < classes ? t : classes - 1;
    }
}

// ---- data sets ------------------------------------------------------------------------------------------------------------------

// The element type may be any; one row as doubles.
static void row_at(const snd_dataset *d, int64_t r, double *out) {
    const char *base = d->x.t.data;
    snd_convert(base + (size_t)(r * d->features) * snd_dtype_size(d->x.t.dtype), d->x.t.dtype, out, SND_F64,
                d->features);
}

static sonde_status find_shape(snd_dataset *d) {
    const snd_shape s = d->x.t.shape;
    char text[160];
    SND_FAIL_IF(s.nd < 1 || snd_shape_size(s) == 0, SONDE_ESHAPE, "%s: shape %s has no rows of features", d->name,
                snd_shape_text(s, text));
    d->rows = s.dim[0];
    d->features = snd_shape_size(s) / s.dim[0];
    return SONDE_OK;
}

// Labels as I64, checked to be class numbers, one per row.
static sonde_status load_labels(snd_dataset *d, const char *path) {
    SND_TRY(snd_data_load(path, &d->labels));
    snd_tensor *t = &d->labels.t;
    const int64_t n = snd_shape_size(t->shape);
    SND_FAIL_IF(n != d->rows, SONDE_ESHAPE, "%s: %lld labels for the %lld rows of %s", path, (long long)n,
                (long long)d->rows, d->name);
    double *v = snd_malloc((size_t)n * sizeof *v);
    int64_t *whole = snd_malloc((size_t)n * sizeof *whole);
    sonde_status s = v && whole ? SONDE_OK : SONDE_ENOMEM;
    if (s == SONDE_OK) snd_convert(t->data, t->dtype, v, SND_F64, n);
    for (int64_t i = 0; s == SONDE_OK && i < n; i++) {
        if (!(v[i] >= 0 && v[i] <= 1e9 && v[i] == floor(v[i]))) {
            char num[40];
            s = snd_fail(SONDE_EINPUT, __FILE__, __LINE__, "%s: label %lld is %s; a class number from 0 is needed",
                         path, (long long)i, snd_format_num(num, v[i], 6));
        } else {
            whole[i] = (int64_t)v[i];
            if (whole[i] >= d->classes) d->classes = whole[i] + 1;
        }
    }
    snd_free(v);
    if (s != SONDE_OK) {
        snd_free(whole);
        return s;
    }
    snd_free(t->data);
    t->data = whole;
    t->dtype = SND_I64;
    return SONDE_OK;
}

// Two passes over all rows: means, then mean squares about them.
static sonde_status standardize_features(snd_dataset *d) {
    const size_t n = (size_t)d->features;
    d->shift = snd_calloc(n, sizeof *d->shift);
    d->scale = snd_calloc(n, sizeof *d->scale);
    double *row = snd_calloc(n, sizeof *row);
    const bool ok = d->shift && d->scale && row;
    for (int pass = 0; ok && pass < 2; pass++) {
        for (int64_t r = 0; r < d->rows; r++) {
            row_at(d, r, row);
            for (int64_t f = 0; f < d->features; f++) {
                const double dev = row[f] - d->shift[f];
                if (pass == 0)
                    d->scale[f] += row[f];
                else
                    d->scale[f] += dev * dev;
            }
        }
        for (int64_t f = 0; f < d->features; f++) {
            const double mean = d->scale[f] / (double)d->rows;
            if (pass == 0) d->shift[f] = mean;
            d->scale[f] = pass == 0 ? 0 : mean > 0 ? 1 / sqrt(mean) : 0;
        }
    }
    snd_free(row);
    return ok ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status open_fashion(snd_dataset *d) {
    const char *dir = snd_fashion_mnist_dir();
    SND_FAIL_IF(!dir, SONDE_EIO,
                "fashion-mnist is not installed: the Debian package is dataset-fashion-mnist, or set "
                "SONDE_FASHION_MNIST to the folder of train-images-idx3-ubyte.gz");
    char path[4200];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", dir);
    SND_TRY(snd_data_load(path, &d->x));
    SND_TRY(find_shape(d));
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte.gz", dir);
    SND_TRY(load_labels(d, path));
    d->shift1 = 255 * FASHION_MEAN;
    d->scale1 = 1 / (255 * FASHION_SD);
    return SONDE_OK;
}

static sonde_status open_file(snd_dataset *d, const char *what, const char *labels, bool standardize) {
    SND_TRY(snd_data_load(what, &d->x));
    d->name = d->x.t.name;
    SND_TRY(find_shape(d));
    if (labels) SND_TRY(load_labels(d, labels));
    return standardize ? standardize_features(d) : SONDE_OK;
}

sonde_status snd_dataset_open(const char *what, const char *labels, bool standardize, snd_dataset **out) {
    *out = NULL;
    snd_dataset *d = snd_calloc(1, sizeof *d);
    if (!d) return SONDE_ENOMEM;
    d->scale1 = 1;
    d->name = "fashion-mnist";
    const sonde_status s =
        strcmp(what, "fashion-mnist") == 0 ? open_fashion(d) : open_file(d, what, labels, standardize);
    if (s != SONDE_OK) {
        snd_dataset_close(d);
        return s;
    }
    *out = d;
    return SONDE_OK;
}

sonde_status snd_dataset_of(const snd_set *set, snd_split split, snd_dataset **out) {
    int64_t row[3];
    *out = NULL;
    snd_dataset *d = snd_calloc(1, sizeof *d);
    if (!d) return SONDE_ENOMEM;
    snd_set_row_shape(set, row);
    const int64_t rows = snd_set_row_count(set, split);
    d->set = set;
    d->split = split;
    d->name = snd_set_name(set);
    d->rows = rows;
    d->features = row[0] * row[1] * row[2];
    d->classes = snd_set_classes(set);
    d->x.t.shape = (snd_shape){.nd = 4, .dim = {rows, row[0], row[1], row[2]}};
    *out = d;
    return SONDE_OK;
}

void snd_dataset_close(snd_dataset *d) {
    if (!d) return;
    snd_array_free(&d->x);
    snd_array_free(&d->labels);
    snd_free(d->shift);
    snd_free(d->scale);
    snd_free(d);
}

const char *snd_dataset_name(const snd_dataset *d) {
    return d->name;
}
int64_t snd_dataset_rows(const snd_dataset *d) {
    return d->rows;
}
int64_t snd_dataset_features(const snd_dataset *d) {
    return d->features;
}
sonde_status snd_dataset_images(const snd_dataset *d, int64_t channels, int64_t *height, int64_t *width) {
    const snd_shape s = d->x.t.shape;
    const int64_t side = channels > 0 ? (int64_t)floor(sqrt((double)d->features / (double)channels) + 0.5) : 0;
    char text[160];
    *height = s.nd == 2 ? side : s.dim[s.nd > 1 ? s.nd - 2 : 0];
    *width = s.nd == 2 ? side : s.dim[s.nd > 1 ? s.nd - 1 : 0];
    const bool images = s.nd == 2 || (s.nd == 3 && channels == 1) || (s.nd == 4 && s.dim[1] == channels);
    SND_FAIL_IF(!images || channels * *height * *width != d->features, SONDE_ESHAPE,
                "%s: shape %s holds no images of %lld channels; [rows, %lld, H, W] is needed%s", d->name,
                snd_shape_text(s, text), (long long)channels, (long long)channels,
                channels == 1 ? ", or [rows, H, W]" : "");
    return SONDE_OK;
}
int64_t snd_dataset_classes(const snd_dataset *d) {
    return d->classes;
}

// ---- rows for a measurement -------------------------------------------------------------------------------------------------------

// narrow: room for a row of a set.
static void take_row(const snd_dataset *d, int64_t r, float *narrow, double *x, int64_t *label) {
    if (d->set) {
        int64_t own;
        snd_set_row(d->set, d->split, r, narrow, &own);
        snd_convert(narrow, SND_F32, x, SND_F64, d->features);
        if (label) *label = own;
        return;
    }
    if (label && d->labels.t.data) *label = ((const int64_t *)d->labels.t.data)[r];
    row_at(d, r, x);
    for (int64_t f = 0; f < d->features; f++) {
        const double shift = d->shift ? d->shift[f] : d->shift1, scale = d->scale ? d->scale[f] : d->scale1;
        x[f] = (x[f] - shift) * scale;
    }
}

// The first `rows` steps of a Fisher-Yates shuffle of all rows, so the rows are distinct.
static sonde_status take_rows(const snd_dataset *d, uint64_t seed, int64_t rows, double *x, int64_t *labels) {
    int64_t *order = snd_malloc((size_t)d->rows * sizeof *order);
    float *narrow = snd_malloc((size_t)d->features * sizeof *narrow);
    if (!order || !narrow) {
        snd_free(order);
        snd_free(narrow);
        return SONDE_ENOMEM;
    }
    for (int64_t i = 0; i < d->rows; i++) order[i] = i;
    const snd_key key = snd_key_make(seed, "data.rows");
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = i + (int64_t)(snd_uniform_at(key, (uint64_t)i) * (double)(d->rows - i));
        if (j >= d->rows) j = d->rows - 1;
        const int64_t r = order[j];
        order[j] = order[i];
        take_row(d, r, narrow, x + i * d->features, labels ? labels + i : NULL);
    }
    snd_free(order);
    snd_free(narrow);
    return SONDE_OK;
}

sonde_status snd_data_inputs(const snd_dataset *d, uint64_t seed, int64_t rows, int64_t features, double c, double *x,
                             int64_t *labels) {
    char num[40];
    SND_FAIL_IF(!(c >= 0 && c <= 1), SONDE_ERANGE, "cosine between examples: %s is outside 0 to 1",
                snd_format_num(num, c, 6));
    if (!d) {
        snd_data_gauss(seed, "input", rows, features, c, x);
        return SONDE_OK;
    }
    SND_FAIL_IF(features != d->features, SONDE_ESHAPE,
                "%s: rows have %lld features, the model reads %lld; give inputs=%lld", d->name, (long long)d->features,
                (long long)features, (long long)d->features);
    SND_FAIL_IF(rows > d->rows, SONDE_ESHAPE, "%s: %lld rows, but %lld are asked for", d->name, (long long)d->rows,
                (long long)rows);
    return take_rows(d, seed, rows, x, labels);
}
