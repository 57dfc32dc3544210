// Part of data's front: BLEU of translations against references.
#ifndef SND_DATA_BLEU_H
#define SND_DATA_BLEU_H

#include "data/set.h"

typedef struct snd_bleu {
    double score;                  // 0 to 100
    double precision[4];           // percent, after smoothing
    double brevity;                // penalty, 1 when the output is as long as the references
    int64_t correct[4], total[4];  // n-grams
    int64_t sys_len, ref_len;      // tokens
} snd_bleu;

/// Corpus BLEU as sacreBLEU defines it: n-grams to 4, tokenizer 13a (mteval-v13a), case kept, exponential smoothing of
/// precisions without a match (1/2^k of one, k counting them), one reference each.
///   score = bp * exp(mean of ln precision),  bp = min(1, e^(1 - ref/sys))
/// hyp, ref: n segments. n = 0 gives 0.
/// source  Papineni et al. 2002; Post 2018 (sacreBLEU), Chen, Cherry 2014 (smoothing 3)
sonde_status snd_bleu_corpus(const snd_text *hyp, const snd_text *ref, int64_t n, snd_bleu *out) SONDE_MUST_CHECK;
/// What must stand beside the score: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp".
const char *snd_bleu_signature(void);
/// "BLEU = 26.17 57.4/32.1/20.3/13.2 (BP = 0.980 ratio = 0.980 hyp_len = 1234 ref_len = 1259)"
void snd_bleu_text(const snd_bleu *b, snd_buf *out);
/// The tokens of a segment, blanks between them.
sonde_status snd_bleu_tokens(snd_text segment, snd_buf *out) SONDE_MUST_CHECK;

#endif
