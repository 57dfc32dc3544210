// Part of data's front: text to token numbers and back. A tokenizer is immutable once made and may be shared by threads.
// What it reads is bytes; only `chars` asks for UTF-8.
#ifndef SND_DATA_TOKENIZER_H
#define SND_DATA_TOKENIZER_H

#include "io/io.h"

typedef struct snd_tokenizer snd_tokenizer;

/// bytes  256 tokens, a byte is its own number
/// chars  the Unicode code points of the text it was made from, in ascending order, and <unk> for all others
/// bpe    byte-level byte pair encoding (Sennrich, Haddow, Birch 2016; on bytes as in Radford et al. 2019): 256 bytes and
///        merges learned from a text. Merges stay inside pieces; a piece is one optional blank and then the longest run of
///        letters (bytes from 128 on count as letters), of digits, of white space, or of anything else. A run of white space
///        that a word follows leaves its last blank to the word.
typedef enum snd_tokenizer_kind { SND_TOK_INVALID, SND_TOK_BYTES, SND_TOK_CHARS, SND_TOK_BPE } snd_tokenizer_kind;

/// Special tokens stand behind all others, in this order, those that were asked for. Text never encodes to them (chars:
/// <unk> apart), and they decode to nothing (<unk> to U+FFFD).
typedef enum snd_special {
    SND_SPECIAL_UNK, SND_SPECIAL_PAD, SND_SPECIAL_BOS, SND_SPECIAL_EOS, SND_SPECIAL_MASK, SND_SPECIAL_COUNT
} snd_special;

/// text [n]: what chars takes its set from and bpe learns from (bytes: unused). vocab: tokens of a bpe in all, specials
/// counted; fewer come out when no pair of tokens occurs twice any more. specials: bits 1 << SND_SPECIAL_.
/// errors  SONDE_ERANGE: a vocab below 256 and the specials, or above 65536;  SONDE_EINPUT: chars of a text that is not UTF-8
sonde_status snd_tokenizer_make(snd_tokenizer_kind kind, const char *name, const uint8_t *text, size_t n, int64_t vocab,
                                unsigned specials, snd_tokenizer **out) SONDE_MUST_CHECK;
void snd_tokenizer_destroy(snd_tokenizer *t);  // NULL is fine
/// The same tokens with other specials behind them.
sonde_status snd_tokenizer_with(const snd_tokenizer *t, unsigned specials, snd_tokenizer **out) SONDE_MUST_CHECK;

/// JSON with a version; what was saved loads to the same tokenizer. Caller frees the text of `write` with snd_buf_free.
sonde_status snd_tokenizer_write(const snd_tokenizer *t, snd_buf *json) SONDE_MUST_CHECK;
sonde_status snd_tokenizer_save(const snd_tokenizer *t, const char *path) SONDE_MUST_CHECK;
sonde_status snd_tokenizer_parse(const char *name, const char *json, size_t n, snd_tokenizer **out) SONDE_MUST_CHECK;
sonde_status snd_tokenizer_load(const char *path, snd_tokenizer **out) SONDE_MUST_CHECK;

snd_tokenizer_kind snd_tokenizer_kind_of(const snd_tokenizer *t);
const char *snd_tokenizer_kind_name(snd_tokenizer_kind k);  // "bytes", "chars", "bpe"
int64_t snd_tokenizer_vocab(const snd_tokenizer *t);        // specials counted
int64_t snd_tokenizer_plain(const snd_tokenizer *t);        // tokens that text consists of: 0 .. n-1, specials behind
int64_t snd_tokenizer_special(const snd_tokenizer *t, snd_special s);  // its number, -1: none

typedef struct snd_ids { int32_t *v; int64_t n, cap; } snd_ids;  // growable; snd_free(v)

/// Appends the tokens of text [n]. `name` stands in front of errors.
/// errors  SONDE_EINPUT: chars of a text that is not UTF-8 (names the byte)
sonde_status snd_tokenizer_encode(const snd_tokenizer *t, const char *name, const uint8_t *text, size_t n,
                                  snd_ids *out) SONDE_MUST_CHECK;
/// Appends the bytes that the tokens stand for. decode(encode(text)) = text, where chars knows all characters.
/// errors  SONDE_ERANGE: a number outside 0 .. vocab-1
sonde_status snd_tokenizer_decode(const snd_tokenizer *t, const int64_t *ids, int64_t n, snd_buf *out) SONDE_MUST_CHECK;
/// What one token stands for, borrowed; specials: their name ("<eos>").
const char *snd_tokenizer_token(const snd_tokenizer *t, int64_t id, size_t *n);

/// Characters that chars does not know, each once. Begin with zeros.
enum { SND_UNKNOWN_SHOWN = 8 };
typedef struct snd_unknown {
    int32_t first[SND_UNKNOWN_SHOWN];  // code points, as they were met
    int64_t n;                         // all of them
    uint8_t *seen;                     // a bit for every code point
} snd_unknown;
/// Adds those of text [n], UTF-8 that has been encoded; none where every byte is a token.
sonde_status snd_tokenizer_unknown(const snd_tokenizer *t, const uint8_t *text, size_t n, snd_unknown *u) SONDE_MUST_CHECK;
/// "'Ω' (U+03A9), U+0007 and 3 more"
void snd_unknown_put(const snd_unknown *u, snd_buf *b);
void snd_unknown_free(snd_unknown *u);

#endif
