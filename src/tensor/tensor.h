// Front header of tensor/: element types, shapes, comparison, conversion. No arithmetic lives here.
#ifndef SND_TENSOR_H
#define SND_TENSOR_H

#include "base/base.h"

typedef enum snd_dtype {
    SND_DT_NONE, SND_F64, SND_F32, SND_BF16, SND_F16, SND_I64, SND_I32, SND_I16, SND_I8, SND_U8, SND_BOOL, SND_DT_COUNT
} snd_dtype;
size_t snd_dtype_size(snd_dtype t);
const char *snd_dtype_name(snd_dtype t);          // "f64", "bf16"
snd_dtype snd_dtype_find(const char *name);       // accepts both cases: "F32"

/// Row-major, dim[0] slowest. nd = 0: a scalar of one element.
enum { SND_MAX_DIMS = 6 };
typedef struct snd_shape { int nd; int64_t dim[SND_MAX_DIMS]; } snd_shape;
snd_shape snd_shape_make(int nd, const int64_t *dim);
#define SND_SHAPE(...)                                                                                                 \
    snd_shape_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
int64_t snd_shape_size(snd_shape s);
bool snd_shape_same(snd_shape a, snd_shape b);
bool snd_shape_broadcast(snd_shape a, snd_shape b, snd_shape *out);   // aligned at the last dimension, as numpy does
const char *snd_shape_text(snd_shape s, char out[160]);               // "[4, 64, 256]"

/// A named tensor in memory. data is owned by whoever made it; views borrow.
typedef struct snd_tensor { const char *name; snd_dtype dtype; snd_shape shape; void *data; } snd_tensor;

float snd_bf16_to_f32(uint16_t v);
uint16_t snd_f32_to_bf16(float v);                // round to nearest even; NaN stays NaN
float snd_f16_to_f32(uint16_t v);
uint16_t snd_f32_to_f16(float v);
/// n elements from one type to another; float to integer truncates; integers are exact where they fit.
void snd_convert(const void *src, snd_dtype st, void *dst, snd_dtype dt, int64_t n);

typedef struct snd_diff { double max_abs, rms_ref, score; int64_t at; double got, want; int64_t nonfinite; } snd_diff;
/// Largest difference of two f64 arrays over the reference's RMS. NaN or Inf in different places: score = INFINITY.
snd_diff snd_compare(const double *got, const double *want, int64_t n);

#endif
