// Tokens one after the other: a causal stack that goes on where it stopped, with the keys and values of the tokens before at
// hand. The graphs are those of the spec, built for a number of new tokens; so every wiring and sublayer decodes, and the
// logits are those of the whole sequence in one pass (in f64 to rounding).
#ifndef SND_LAB_DECODE_H
#define SND_LAB_DECODE_H

#include "lab/weights.h"

typedef struct snd_decoder_opts {
    int64_t rows;                      // sequences side by side, all equally long
    int64_t capacity;                  // tokens that a sequence may have
    int64_t src_tokens;                // encoder-decoders: tokens of the encoder's sequences
    int64_t src_rows;                  // how many of these there are; rows is a multiple. 0: rows
    bool every;                        // logits of all tokens, not of the last alone
    const snd_stop *stop;
} snd_decoder_opts;

typedef struct snd_decoder snd_decoder;

/// Is this a model from which text comes?
/// errors  SONDE_EUNSUPPORTED: no decoder, or no vocab
sonde_status snd_decodes(const snd_spec *s) SONDE_MUST_CHECK;
/// The net stays the caller's and serves one decoder at a time in each call. Empty sequences.
/// memory  keys and values of `capacity` tokens (snd_decoder_bytes); graphs for 1, 2, 4 .. 256 new tokens as they are needed
/// errors  SONDE_EUNSUPPORTED: a model that is no decoder; one that reads c.  SONDE_EINPUT: a capacity beyond the learned
///         positions
sonde_status snd_decoder_open(snd_weights *net, const snd_decoder_opts *o, snd_decoder **out) SONDE_MUST_CHECK;
void snd_decoder_close(snd_decoder *d);            // NULL is fine
size_t snd_decoder_bytes(const snd_decoder *d);    // of keys and values
int64_t snd_decoder_length(const snd_decoder *d);  // tokens so far
/// Encoder-decoders, before the first push: tokens [src_rows, src_tokens] through the encoder, and cross-attention's keys and
/// values once. Sequence i of the decoder reads sequence i / (rows / src_rows).
sonde_status snd_decoder_encode(snd_decoder *d, const int64_t *tokens) SONDE_MUST_CHECK;
/// Appends tokens [rows, n] and gives the logits after the last one, [rows, vocab] (`every`: [rows, n, vocab]); logits may
/// be NULL.
/// errors  SONDE_ERANGE: more tokens than the capacity, a token outside the vocabulary;  SONDE_EINTERRUPTED
sonde_status snd_decoder_push(snd_decoder *d, const int64_t *tokens, int64_t n, double *logits) SONDE_MUST_CHECK;
/// Sequence i goes on as a copy of what sequence from[i] was (beams). Those of one encoder's sequence must stay together.
sonde_status snd_decoder_select(snd_decoder *d, const int64_t *from) SONDE_MUST_CHECK;
/// Forgets all but the first n tokens.
void snd_decoder_cut(snd_decoder *d, int64_t n);

#endif
