// Front header of models/: what stands around a stack in each family: stem and embedding before, head and loss after.
#ifndef SND_MODELS_H
#define SND_MODELS_H

#include "nn/nn.h"

/// mlp: input [rows, inputs or width]; the stem (when `inputs` is given) is a linear map without bias.
sonde_status snd_mlp_begin(const snd_nn *m, int64_t rows, snd_id *input, snd_id *x) SONDE_MUST_CHECK;
/// mlp: logits when `outputs` is given (head.weight [outputs, width], no bias), else 0.
sonde_status snd_mlp_head(const snd_nn *m, snd_id out_x, snd_id *logits) SONDE_MUST_CHECK;

#endif
