// Text from a decoder: drawn token by token, or searched for with beams.
#ifndef SND_LAB_GENERATE_H
#define SND_LAB_GENERATE_H

#include "lab/decode.h"

typedef struct snd_sampling {
    double temperature;                // 0: the most likely token, the first of equals
    int64_t top_k;                     // only the k most likely; 0: all
    double top_p;                      // only the fewest most likely ones that together reach p; 1: all
} snd_sampling;

/// The token that a number u, uniform in [0, 1), picks from softmax(logits / temperature), cut to top_k and then to top_p.
/// Tokens stand in order of their probability, equal ones by number. work: V entries.
/// errors  SONDE_ERANGE: logits that are NaN, or none above -Inf
/// source  top-k: Fan et al. 2018; top-p: Holtzman et al. 2020
typedef struct snd_choice { double p; int64_t token; } snd_choice;
sonde_status snd_sample(const snd_sampling *s, const double *logits, int64_t V, double u, snd_choice *work,
                        int64_t *token) SONDE_MUST_CHECK;

enum { SND_GENERATE_WINDOW = 4096 };  // tokens looked back on where neither training nor a context says how many

typedef struct snd_generate_opts {
    snd_sampling sampling;
    int64_t samples, tokens;           // sequences, and new tokens of each at most
    int64_t capacity;                  // tokens that the model sees; when they are full, the last half is read again
    int64_t end;                       // a token that ends its sequence; -1: none
    int64_t limit;                     // tokens from this number on are never drawn, the end apart: they stand for no text; 0: all may be
    uint64_t seed;                     // sample r's t-th token: uniform number t of the key (seed, "sample.r")
    const snd_stop *stop;
    /// Every new token as it comes; `done`: the sequence's last one (or its end, which is not given). May be NULL.
    void (*token)(void *ctx, int64_t sample, int64_t token, bool done); void *ctx;
} snd_generate_opts;

typedef struct snd_generated {
    double prompt_seconds, seconds;    // of reading the prompt; of all tokens after it
    int64_t tokens;                    // made, over all samples
    int64_t reread;                    // times that the context was full
} snd_generated;

/// prompt [n], n >= 1. Sample r does not depend on how many others there are, but for the rounding of their common products.
sonde_status snd_generate(snd_weights *net, const snd_generate_opts *o, const int64_t *prompt, int64_t n,
                          snd_generated *out) SONDE_MUST_CHECK;

// ---- beams ------------------------------------------------------------------------------------------------------------------

typedef struct snd_beam_opts {
    int64_t beams, tokens;             // alive at a time; longest output, its end counted
    double length_penalty;             // a: score = log p / ((5 + length) / 6)^a, the end counted; 0: log p
    int64_t begin, end, limit;         // tokens; limit as above
    const snd_stop *stop;
} snd_beam_opts;

typedef struct snd_hypothesis {
    int64_t *tokens, n;                // without begin and end; in the arena
    double score, logp;
    bool ended;                        // false: cut at the longest length
} snd_hypothesis;

/// The best output for each of n sources of S tokens each ([n, S], encoder-decoders). One beam is greedy decoding. The
/// search of a source ends when none of its beams can still beat its best outputs.
/// source  Wu et al. 2016, section 7 (length penalty); Vaswani et al. 2017, section 6.1
sonde_status snd_beam_search(snd_arena *a, snd_weights *net, const snd_beam_opts *o, const int64_t *src, int64_t n, int64_t S,
                             snd_hypothesis *out) SONDE_MUST_CHECK;

#endif
