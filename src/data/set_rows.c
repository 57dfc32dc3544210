// Images and tables: rows with a class each. Pixels stay in the file's type until a batch takes them; what is taken off and
// multiplied comes from the rows trained on alone, per channel of an image, per feature of a table.
// Rows are numbered over the files: those of `path` first, then those of valid_path and test_path (images: t10k's).
#include "data/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t row_size(const snd_set *d) {
    return d->shape[0] * d->shape[1] * d->shape[2];
}

static int64_t all_rows(const snd_set *d) {
    return d->rows[0] + d->rows[1] + d->rows[2];
}

// Row r of all, as it lies in its file.
static const void *raw_row(const snd_set *d, int64_t r, snd_dtype *t) {
    int f = 0;
    while (r >= d->rows[f]) r -= d->rows[f++];
    *t = d->x[f].t.dtype;
    return (const char *)d->x[f].t.data + (size_t)(r * row_size(d)) * snd_dtype_size(*t);
}

// ---- images ---------------------------------------------------------------------------------------------------------------

static sonde_status find_file(const char *folder, const char *name, bool needed, char out[4200]) {
    static const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        snprintf(out, 4200, "%s/%s%s", folder, name, ends[i]);
        FILE *f = fopen(out, "rb");
        if (!f) continue;
        fclose(f);
        return SONDE_OK;
    }
    out[0] = 0;
    SND_FAIL_IF(needed, SONDE_EIO, "%s: no %s or %s.gz in it, which a folder of images needs", folder, name, name);
    return SONDE_OK;
}

bool snd_set_is_images(const char *path) {
    char found[4200];
    if (strcmp(path, "fashion-mnist") == 0) return true;
    return snd_is_folder(path) && find_file(path, "train-images-idx3-ubyte", false, found) == SONDE_OK && found[0];
}

bool snd_set_brings_test(const snd_set *d) {
    return d->kind == SND_DATA_IMAGES && d->rows[SND_SPLIT_TEST] > 0;
}

static sonde_status take_shape(snd_set *d, const char *path, const snd_array *a, int f) {
    const snd_shape s = a->t.shape;
    char text[160];
    SND_FAIL_IF(s.nd < 2 || s.nd > 4 || snd_shape_size(s) == 0, SONDE_ESHAPE,
                "%s: shape %s; images are [rows, height, width] or [rows, channels, height, width]", path,
                snd_shape_text(s, text));
    int64_t shape[3] = {1, 1, 1};
    for (int i = 1; i < s.nd; i++) shape[s.nd == 2 ? 0 : 3 - s.nd + i] = s.dim[i];
    SND_FAIL_IF(f && memcmp(shape, d->shape, sizeof shape) != 0, SONDE_ESHAPE,
                "%s: rows of %lld x %lld x %lld, those of %s are %lld x %lld x %lld", path, (long long)shape[0],
                (long long)shape[1], (long long)shape[2], d->name, (long long)d->shape[0], (long long)d->shape[1],
                (long long)d->shape[2]);
    memcpy(d->shape, shape, sizeof shape);
    d->rows[f] = s.dim[0];
    return SONDE_OK;
}

// Room for the labels of the rows known so far.
static sonde_status grow_labels(snd_set *d) {
    int64_t *labels = snd_realloc(d->labels, (size_t)(all_rows(d) + 1) * sizeof *labels);
    if (!labels) return SONDE_ENOMEM;
    d->labels = labels;
    return SONDE_OK;
}

static sonde_status take_label(snd_set *d, const char *path, int64_t at, int64_t line, double v) {
    char num[40];
    SND_FAIL_IF(!(v >= 0 && v <= 1e6 && v == floor(v)), SONDE_EINPUT,
                "%s: row %lld: the class is %s; whole numbers from 0 are needed", path, (long long)line,
                snd_format_num(num, v, 6));
    d->labels[at] = (int64_t)v;
    if (d->labels[at] >= d->classes) d->classes = d->labels[at] + 1;
    return SONDE_OK;
}

static sonde_status take_labels(snd_set *d, const char *path, const snd_array *a, int f) {
    const int64_t n = snd_shape_size(a->t.shape), first = all_rows(d) - d->rows[f];
    SND_FAIL_IF(n != d->rows[f], SONDE_ESHAPE, "%s: %lld labels for %lld images", path, (long long)n,
                (long long)d->rows[f]);
    SND_TRY(grow_labels(d));
    for (int64_t i = 0; i < n; i++) {
        double v;
        snd_convert((const char *)a->t.data + (size_t)i * snd_dtype_size(a->t.dtype), a->t.dtype, &v, SND_F64, 1);
        SND_TRY(take_label(d, path, first + i, i, v));
    }
    return SONDE_OK;
}

static sonde_status read_images(snd_set *d, const char *folder, const char *prefix, bool needed, int f) {
    char path[4200], name[64];
    snd_array labels;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    SND_TRY(find_file(folder, name, needed, path));
    if (!path[0]) return SONDE_OK;
    SND_TRY(snd_data_load(path, &d->x[f]));
    SND_TRY(take_shape(d, path, &d->x[f], f));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    SND_TRY(find_file(folder, name, true, path));
    SND_TRY(snd_data_load(path, &labels));
    const sonde_status s = take_labels(d, path, &labels, f);
    snd_array_free(&labels);
    return s;
}

static sonde_status read_image_folder(snd_set *d) {
    const char *folder = d->settings.path;
    if (strcmp(folder, "fashion-mnist") == 0) {
        folder = snd_fashion_mnist_dir();
        SND_FAIL_IF(!folder, SONDE_EIO,
                    "fashion-mnist is not installed: the Debian package is dataset-fashion-mnist, or set "
                    "SONDE_FASHION_MNIST to the folder of train-images-idx3-ubyte.gz");
    }
    SND_FAIL_IF(!snd_is_folder(folder), SONDE_EIO,
                "%s: no folder; images are read from one with train-images-idx3-ubyte and train-labels-idx1-ubyte",
                folder);
    const char *own = d->settings.valid_path ? d->settings.valid_path : d->settings.test_path;
    SND_FAIL_IF(own, SONDE_EUNSUPPORTED,
                "%s: images have no validation or test file of their own; the test is t10k-* of their folder, %s", own,
                folder);
    SND_TRY(read_images(d, folder, "train", true, SND_SPLIT_TRAIN));
    return read_images(d, folder, "t10k", false, SND_SPLIT_TEST);
}

// ---- tables ---------------------------------------------------------------------------------------------------------------

static sonde_status add_name(snd_set *d, const char *name, size_t n) {
    char **names = snd_realloc(d->class_names, (size_t)(d->n_names + 1) * sizeof *names);
    if (!names) return SONDE_ENOMEM;
    d->class_names = names;
    names[d->n_names] = snd_malloc(n + 1);
    if (!names[d->n_names]) return SONDE_ENOMEM;
    memcpy(names[d->n_names], name, n);
    names[d->n_names++][n] = 0;
    return SONDE_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Classes that are words: as the settings list them, else the first file's in the order of their bytes, so that its rows may
// stand in any.
static sonde_status name_classes(snd_set *d, const snd_array *a) {
    for (const char *s = d->settings.classes; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        SND_TRY(add_name(d, s, strcspn(s, ",")));
    if (d->n_names) return SONDE_OK;
    for (int64_t i = 0; i < a->n_words; i++) {
        char shown[72];
        SND_FAIL_IF(strchr(a->words[i], ','), SONDE_EINPUT,
                    "%s: the class '%s' has a comma in it, which lists of classes need", d->name,
                    snd_shown(shown, a->words[i]));
        SND_TRY(add_name(d, a->words[i], strlen(a->words[i])));
    }
    qsort(d->class_names, (size_t)d->n_names, sizeof *d->class_names, by_text);
    return SONDE_OK;
}

// The numbers that the reader gave the words become those of the classes.
static sonde_status number_classes(snd_set *d, const char *path, snd_array *a, int64_t column) {
    if (a->n_words == 0) return SONDE_OK;
    if (d->n_names == 0) SND_TRY(name_classes(d, a));
    double *v = a->t.data, *number = snd_malloc((size_t)a->n_words * sizeof *number);
    if (!number) return SONDE_ENOMEM;
    sonde_status s = SONDE_OK;
    for (int64_t i = 0; i < a->n_words && s == SONDE_OK; i++) {
        char shown[72];
        int64_t c = 0;
        while (c < d->n_names && strcmp(d->class_names[c], a->words[i]) != 0) c++;
        number[i] = (double)c;
        if (c == d->n_names)
            s = snd_fail(SONDE_EINPUT, __FILE__, __LINE__, "%s: '%s' is none of the %lld classes (%s%s)", path,
                         snd_shown(shown, a->words[i]), (long long)d->n_names, d->class_names[0],
                         d->n_names > 1 ? ", ..." : "");
    }
    for (int64_t r = 0; r < a->t.shape.dim[0] && s == SONDE_OK; r++) {
        double *at = &v[r * a->t.shape.dim[1] + column];
        *at = number[(int64_t)*at];
    }
    if (d->n_names > d->classes) d->classes = d->n_names;
    snd_free(number);
    return s;
}

static sonde_status find_label(const snd_set *d, const char *path, const snd_array *a, int64_t *column) {
    const char *word = d->settings.label;
    const int64_t n = a->t.shape.dim[1];
    char shown[72];
    *column = n - 1;
    if (!word) return SONDE_OK;
    for (int i = 0; i < a->n_columns; i++) {
        *column = i;
        if (strcmp(word, a->columns[i]) == 0) return SONDE_OK;
    }
    int64_t number = 0;
    const bool is_number = snd_parse_int(word, &number, NULL);
    SND_FAIL_IF(!is_number || number < 1 || number > n, SONDE_ENAME,
                "%s: no column '%s' among its %lld; the class is asked for there", path, snd_shown(shown, word),
                (long long)n);
    *column = number - 1;
    return SONDE_OK;
}

// Takes the class column out, in place: rows become one shorter.
static sonde_status split_columns(snd_set *d, const char *path, snd_array *a, int64_t column, int f) {
    const int64_t n = a->t.shape.dim[1], rows = a->t.shape.dim[0], first = all_rows(d) - d->rows[f];
    double *v = a->t.data;
    char num[40];
    SND_TRY(grow_labels(d));
    for (int64_t r = 0, to = 0; r < rows; r++) {
        SND_TRY(take_label(d, path, first + r, r + 1, v[r * n + column]));
        for (int64_t c = 0; c < n; c++) {
            if (c == column) continue;
            const double x = v[r * n + c];
            SND_FAIL_IF(!isfinite(x), SONDE_EINPUT, "%s: row %lld, column %lld: %s; a finite number is needed", path,
                        (long long)r + 1, (long long)c + 1, snd_format_num(num, x, 6));
            v[to++] = x;
        }
    }
    return SONDE_OK;
}

static sonde_status read_table(snd_set *d, snd_split f) {
    const char *path = snd_set_path(d, f);
    int64_t column;
    if (!path) return SONDE_OK;
    SND_TRY(snd_table_load(path, d->settings.label, d->settings.classes || d->n_names > 0, &d->x[f]));
    const snd_array *a = &d->x[f];
    char text[160];
    SND_FAIL_IF(a->t.dtype != SND_F64 || a->t.shape.nd != 2 || a->t.shape.dim[1] < 2 || a->t.shape.dim[0] < 1,
                SONDE_ESHAPE, "%s: shape %s; a table has rows of features and a class", path,
                snd_shape_text(a->t.shape, text));
    SND_TRY(find_label(d, path, a, &column));
    const int64_t features = a->t.shape.dim[1] - 1;
    SND_FAIL_IF(f && features != d->shape[0], SONDE_ESHAPE, "%s: %lld features, %s has %lld", path, (long long)features,
                d->name, (long long)d->shape[0]);
    d->shape[0] = features;
    d->shape[1] = d->shape[2] = 1;
    d->rows[f] = a->t.shape.dim[0];
    SND_TRY(number_classes(d, path, &d->x[f], column));
    return split_columns(d, path, &d->x[f], column, f);
}

// ---- splits and normalisation ---------------------------------------------------------------------------------------------

static sonde_status list_rows(snd_set *d, snd_split s, int64_t first, int64_t n, bool permuted) {
    const snd_key key = snd_key_make(0, "data.split");
    d->of[s] = snd_malloc((size_t)(n + 1) * sizeof *d->of[s]);
    if (!d->of[s]) return SONDE_ENOMEM;
    d->n_of[s] = n;
    for (int64_t i = 0; i < n; i++)
        d->of[s][i] = (int32_t)(permuted ? snd_permuted(key, 0, d->rows[0], first + i) : first + i);
    return SONDE_OK;
}

// Files of their own are taken whole; shares come from the first file, the same rows whatever the seed.
static sonde_status list_splits(snd_set *d) {
    const int64_t n = d->rows[0];
    SND_FAIL_IF(all_rows(d) > INT32_MAX, SONDE_EUNSUPPORTED, "%s: %lld rows; at most %d are possible", d->name,
                (long long)all_rows(d), INT32_MAX);
    const int64_t valid = d->rows[1] ? 0 : (int64_t)((double)n * d->settings.valid);
    const int64_t test = d->rows[2] ? 0 : (int64_t)((double)n * d->settings.test);
    SND_TRY(d->rows[1] ? list_rows(d, SND_SPLIT_VALID, n, d->rows[1], false)
                       : list_rows(d, SND_SPLIT_VALID, 0, valid, true));
    SND_TRY(d->rows[2] ? list_rows(d, SND_SPLIT_TEST, n + d->rows[1], d->rows[2], false)
                       : list_rows(d, SND_SPLIT_TEST, valid, test, true));
    return list_rows(d, SND_SPLIT_TRAIN, valid + test, n - valid - test, true);
}

// Pixels of a byte: how often each value occurs gives both moments, exactly.
static void byte_moments(const snd_set *d, double *mean, double *square) {
    const int64_t groups = d->shape[0], each = d->shape[1] * d->shape[2], rows = d->n_of[SND_SPLIT_TRAIN];
    for (int64_t g = 0; g < groups; g++) {
        int64_t times[256] = {0};
        snd_dtype t;
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t *v = (const uint8_t *)raw_row(d, d->of[SND_SPLIT_TRAIN][r], &t) + g * each;
            for (int64_t i = 0; i < each; i++) times[v[i]]++;
        }
        for (int v = 0; v < 256; v++) mean[g] += (double)times[v] * v / (double)(rows * each);
        for (int v = 0; v < 256; v++) square[g] += (double)times[v] * (v - mean[g]) * (v - mean[g]);
    }
}

// Two passes over the rows trained on: means, then mean squares about them.
static void any_moments(const snd_set *d, double *row, double *mean, double *square) {
    const int64_t groups = d->shape[0], each = d->shape[1] * d->shape[2], rows = d->n_of[SND_SPLIT_TRAIN];
    for (int pass = 0; pass < 2; pass++)
        for (int64_t r = 0; r < rows; r++) {
            snd_dtype t;
            const void *raw = raw_row(d, d->of[SND_SPLIT_TRAIN][r], &t);
            snd_convert(raw, t, row, SND_F64, groups * each);
            for (int64_t g = 0; g < groups; g++)
                for (const double *v = row + g * each; v < row + (g + 1) * each; v++) {
                    if (pass == 0)
                        mean[g] += *v / (double)(rows * each);
                    else
                        square[g] += (*v - mean[g]) * (*v - mean[g]);
                }
        }
}

static bool all_bytes(const snd_set *d) {
    for (int f = 0; f < SND_SPLIT_COUNT; f++)
        if (d->rows[f] && d->x[f].t.dtype != SND_U8) return false;
    return true;
}

// What never changes becomes 0.
static sonde_status normalise(snd_set *d) {
    const size_t groups = (size_t)d->shape[0];
    const double count = (double)(d->n_of[SND_SPLIT_TRAIN] * d->shape[1] * d->shape[2]);
    double *row = snd_malloc((size_t)row_size(d) * sizeof *row), *mean = snd_calloc(groups, 2 * sizeof *mean);
    d->shift = snd_calloc(groups, sizeof *d->shift);
    d->scale = snd_calloc(groups, sizeof *d->scale);
    const bool ok = row && mean && d->shift && d->scale, as_is = d->memory && d->memory->as_is;
    if (ok && !as_is && all_bytes(d))
        byte_moments(d, mean, mean + groups);
    else if (ok && !as_is)
        any_moments(d, row, mean, mean + groups);
    for (size_t g = 0; ok && as_is && g < groups; g++) d->scale[g] = 1;
    for (size_t g = 0; ok && !as_is && g < groups; g++) {
        const double var = mean[groups + g] / count;
        d->shift[g] = mean[g];
        d->scale[g] = var > 0 ? 1 / sqrt(var) : 0;
    }
    snd_free(row);
    snd_free(mean);
    return ok ? SONDE_OK : SONDE_ENOMEM;
}

// A program's rows stay as wide as they are.
static sonde_status copy_rows(snd_set *d) {
    const snd_memory *m = d->memory;
    char num[40];
    SND_FAIL_IF(m->rows < 1 || m->row[0] < 1 || m->row[1] < 1 || m->row[2] < 1 || !m->labels, SONDE_EUSAGE,
                "%s: %lld rows of %lld x %lld x %lld%s; at least 1 of each are needed", d->name, (long long)m->rows,
                (long long)m->row[0], (long long)m->row[1], (long long)m->row[2], m->labels ? "" : " without labels");
    memcpy(d->shape, m->row, sizeof d->shape);
    const int64_t n = m->rows * row_size(d);
    float *x = snd_malloc((size_t)n * sizeof *x);
    if (!x) return SONDE_ENOMEM;
    memcpy(x, m->x, (size_t)n * sizeof *x);
    d->x[0].t = (snd_tensor){.dtype = SND_F32, .shape = SND_SHAPE(m->rows, m->row[0], m->row[1], m->row[2]), .data = x};
    d->rows[0] = m->rows;
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF(!isfinite(x[i]), SONDE_EINPUT, "%s: row %lld, feature %lld: %s; a finite number is needed", d->name,
                    (long long)(i / row_size(d)), (long long)(i % row_size(d)), snd_format_num(num, (double)x[i], 6));
    SND_TRY(grow_labels(d));
    for (int64_t i = 0; i < m->rows; i++) SND_TRY(take_label(d, d->name, i, i, (double)m->labels[i]));
    return SONDE_OK;
}

sonde_status snd_set_read_rows(snd_set *d) {
    if (d->memory) SND_TRY(copy_rows(d));
    if (d->kind == SND_DATA_IMAGES && !d->memory) SND_TRY(read_image_folder(d));
    for (int s = d->memory ? 1 : 0; s < SND_SPLIT_COUNT && d->kind == SND_DATA_TABLE; s++)
        SND_TRY(read_table(d, (snd_split)s));
    for (int f = 0; f < SND_SPLIT_COUNT; f++)
        if (d->rows[f])
            snd_set_mix(d, d->x[f].t.data, (size_t)(d->rows[f] * row_size(d)) * snd_dtype_size(d->x[f].t.dtype));
    snd_set_mix(d, d->labels, (size_t)all_rows(d) * sizeof *d->labels);
    SND_TRY(list_splits(d));
    SND_FAIL_IF(d->n_of[SND_SPLIT_TRAIN] == 0, SONDE_EINPUT, "%s: no row is left to train on", d->name);
    return normalise(d);
}

void snd_set_row(const snd_set *d, snd_split s, int64_t r, float *out, int64_t *label) {
    const int64_t at = d->of[s][r], each = d->shape[1] * d->shape[2];
    snd_dtype t;
    const char *raw = raw_row(d, at, &t);
    *label = d->labels[at];
    if (t != SND_U8 && t != SND_F64) snd_convert(raw, t, out, SND_F32, row_size(d));
    for (int64_t g = 0; g < d->shape[0]; g++) {
        const double shift = d->shift[g], scale = d->scale[g];
        float *o = out + g * each;
        const uint8_t *bytes = (const uint8_t *)raw + g * each;
        const double *wide =
            (const double *)(const void *)raw + g * each; // a table: the difference before the rounding
        for (int64_t i = 0; i < each; i++) {
            const double v = t == SND_U8 ? bytes[i] : t == SND_F64 ? wide[i] : (double)o[i];
            o[i] = (float)((v - shift) * scale);
        }
    }
}

void snd_set_normalise(const snd_set *d, int64_t n, float *x) {
    const int64_t each = d->shape[1] * d->shape[2], size = row_size(d);
    for (int64_t i = 0; d->scale && i < n * size; i++) {
        const int64_t g = i % size / each;
        x[i] = (float)(((double)x[i] - d->shift[g]) * d->scale[g]);
    }
}
