// Front header of models/: what stands around a stack in each family: stem and embedding before, head and loss after.
#ifndef SND_MODELS_H
#define SND_MODELS_H

#include "nn/nn.h"

/// mlp: input [rows, inputs or width] -> x [rows, width]; the stem (when `inputs` is given) is a linear map without bias.
sonde_status snd_mlp_begin(const snd_nn *m, snd_id input, snd_id *x) SONDE_MUST_CHECK;
/// mlp: logits when `outputs` is given (head.weight [outputs, width], no bias), else 0.
sonde_status snd_mlp_head(const snd_nn *m, snd_id out_x, snd_id *logits) SONDE_MUST_CHECK;

// ---- convnet: streams are images [B, H, W, channels], after pool [B, 1, 1, channels] ---------------------------------------

/// input [B, inputs or width, H, W] -> x [B, H, W, inputs or width].
sonde_status snd_convnet_begin(const snd_nn *m, snd_id input, snd_id *x) SONDE_MUST_CHECK;
/// logits [B, outputs] when `outputs` is given (head.weight [outputs, channels of out.x], no bias), else 0.
/// SONDE_ESHAPE: out.x is still a map.
sonde_status snd_convnet_head(const snd_nn *m, snd_id out_x, snd_id *logits) SONDE_MUST_CHECK;

// ---- transformer: streams are [B, T, d], tokens I64 [B, T] -----------------------------------------------------------------

// What is learned around the stacks. One token table serves all stacks; the others belong to a stack and carry its prefix.
typedef enum snd_outer { SND_OUTER_NONE, SND_OUTER_TOKEN, SND_OUTER_POSITION, SND_OUTER_RELATIVE, SND_OUTER_HEAD } snd_outer;

/// Its name (without prefix), role and shape: "embed.token" [vocab, d], "embed.position" [context, d] (learned positions with
/// a vocab), "embed.relative" [t5_buckets, heads], "head" [vocab, d] (not tied). False: this spec has none.
bool snd_transformer_part(const snd_spec *s, snd_outer which, snd_subpart *out);
/// Its parameter for the stack m->stack, made on first use; *out = 0 where there is none.
sonde_status snd_transformer_table(const snd_nn *m, snd_outer which, snd_id *out) SONDE_MUST_CHECK;
/// embed_scale * token + position (learned or sinusoidal; the other kinds act in attention). tokens [B, T] -> [B, T, d].
/// SONDE_EINPUT when T exceeds the context of learned positions.
sonde_status snd_transformer_embed(const snd_nn *m, snd_id tokens, snd_id *x) SONDE_MUST_CHECK;
/// logit_scale * x Wᵀ with the token table, or head.weight where the head is not tied: [B, T, d] -> [B, T, vocab].
sonde_status snd_transformer_head(const snd_nn *m, snd_id out_x, snd_id *logits) SONDE_MUST_CHECK;

#endif
