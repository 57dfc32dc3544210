// Front header of formula/: the wiring language. Text -> syntax tree -> one walker that evaluates sections, scopes,
// sites and names, and asks a reader (a table of operations) what each operation means. The catalogue of wirings.
// The contract is docs/formulas.md (sections 2, 3 and 7 for syntax, functions, names).
#ifndef SND_FORMULA_H
#define SND_FORMULA_H

#include "base/base.h"

// ---- syntax tree ------------------------------------------------------------------------------------------------------

typedef enum snd_expr_kind {
    SND_X_NONE, SND_X_NUM, SND_X_NAME, SND_X_CALL, SND_X_NEG, SND_X_BIN, SND_X_COND
} snd_expr_kind;

typedef struct snd_expr snd_expr;
typedef struct snd_arg { const char *name; snd_expr *x; int line, col; } snd_arg;  // name NULL: positional
struct snd_expr {
    snd_expr_kind kind;
    int line, col;       // from 1, in the formula's own text
    double num;          // NUM
    const char *name;    // NAME, CALL
    char op;             // BIN: + - * / % ^ < > and l (<=) g (>=) e (==) n (!=)
    snd_expr *a, *b, *c; // NEG a; BIN a b; COND a ? b : c
    snd_arg *args;       // CALL
    int n_args, n_pos;   // positional ones come first
    int end_line, end_col; // CALL: the closing parenthesis
    int height;            // of the tree below: bounded by the parser, since readers recurse
};

typedef struct snd_stmt { const char *name; snd_expr *x; int line, col; struct snd_stmt *next; } snd_stmt;

typedef enum snd_section { SND_SEC_NONE, SND_SEC_IN, SND_SEC_LAYER, SND_SEC_EACH, SND_SEC_LAYER2, SND_SEC_OUT, SND_SEC_COUNT } snd_section;

// One rule of an init text: "normal(0.02)", "o,down *= expr", "embed = one", "profile".
typedef struct snd_init_rule {
    const char *kind;        // NULL for a *= rule
    snd_expr *args[2];
    int n_args;
    const char *const *roles; int n_roles;   // 0: a base kind
    snd_expr *factor;        // *=
    int line, col;
    struct snd_init_rule *next;
} snd_init_rule;

typedef struct snd_formula {
    const char *text;                        // as given
    snd_stmt *sec[SND_SEC_COUNT];
    bool has[SND_SEC_COUNT];
    snd_init_rule *init;                     // NULL: none
} snd_formula;

sonde_status snd_formula_parse(snd_arena *a, const char *text, snd_formula **out) SONDE_MUST_CHECK;
sonde_status snd_expr_parse(snd_arena *a, const char *text, snd_expr **out) SONDE_MUST_CHECK;      // a bare expression
sonde_status snd_init_parse(snd_arena *a, const char *text, snd_init_rule **out) SONDE_MUST_CHECK; // the init key
/// True when the text can only be a formula (holds '=').
bool snd_is_formula(const char *text);
/// Does the formula call a function of this name, or mention this constant, anywhere?
bool snd_formula_calls(const snd_formula *f, const char *fn);
bool snd_formula_mentions(const snd_formula *f, const char *name);
bool snd_expr_mentions(const snd_expr *x, const char *name);      // x NULL: false
/// Prints the tree back as text, one section a line, minimal parentheses.
void snd_formula_print(const snd_formula *f, snd_buf *b);
void snd_expr_print(const snd_expr *x, snd_buf *b);

/// Constant expression over name=value pairs plus pi, e and the pure functions. Used by specs ("window", numbers).
typedef struct snd_const { const char *name; double v; } snd_const;
sonde_status snd_expr_const(const snd_expr *x, const snd_const *env, int n_env, double *out) SONDE_MUST_CHECK;

// ---- catalogue ----------------------------------------------------------------------------------------------------------

typedef struct snd_wiring {
    const char *key, *title, *formula, *source, *notes;
    const char *family;     // "any", "transformer" (calls A, C, M by name), "convnet"
    const char *norm;       // NULL or the norm the entry wants (resnets: batch)
} snd_wiring;
int snd_wiring_count(void);
const snd_wiring *snd_wiring_at(int i);
const snd_wiring *snd_wiring_find(const char *key);      // NULL: none
const char *snd_wiring_nearest(const char *key);         // NULL: none close

// ---- values, sites, readers -------------------------------------------------------------------------------------------

typedef enum snd_vkind {
    SND_V_NONE,
    SND_V_CONST,   // a number known now
    SND_V_SCALAR,  // [1]: learned number or function of such
    SND_V_VECTOR,  // [cols] over tokens
    SND_V_TOKEN,   // [rows, 1]: a number per row
    SND_V_EXAMPLE, // [examples, cols]: from c, broadcast over tokens
    SND_V_STREAM,  // [rows, cols]
    SND_V_MAP      // convnet: [examples, channels, h, w]; cols = channels
} snd_vkind;

typedef struct snd_val {
    snd_vkind kind;
    double num;      // CONST
    bool uses_S;     // CONST that depends on S (tainted while calls are being counted)
    int64_t cols, h, w;
    int32_t id;      // the reader's handle, > 0
} snd_val;

typedef enum snd_fn {   // elementwise functions of one argument
    SND_FN_NONE, SND_FN_RELU, SND_FN_GELU, SND_FN_GELU_TANH, SND_FN_SILU, SND_FN_TANH, SND_FN_SIGMOID, SND_FN_ERF,
    SND_FN_EXP, SND_FN_SOFTPLUS, SND_FN_SQRT, SND_FN_LOG, SND_FN_ABS, SND_FN_NEG, SND_FN_COUNT
} snd_fn;
const char *snd_fn_name(snd_fn f);
snd_fn snd_fn_find(const char *name, size_t n);
double snd_fn_apply(snd_fn f, double x);                         // of one number

typedef enum snd_bin { SND_BIN_NONE, SND_BIN_ADD, SND_BIN_SUB, SND_BIN_MUL, SND_BIN_DIV, SND_BIN_MIN, SND_BIN_MAX } snd_bin;

typedef enum snd_norm_kind {
    SND_NORM_INVALID, SND_NORM_LAYER, SND_NORM_RMS, SND_NORM_BATCH, SND_NORM_SCALE, SND_NORM_DYT, SND_NORM_DERF, SND_NORM_NONE
} snd_norm_kind;
const char *snd_norm_name(snd_norm_kind k);
snd_norm_kind snd_norm_find(const char *name);

// Where an operation stands; `name` is the full site name (formulas.md section 7), e.g. "layers.3.F.N1". The same
// prefix rules give parameter names: name + ".weight" and so on.
typedef struct snd_site {
    const char *name;      // arena-owned
    const snd_expr *x;     // for error places
    int layer;             // from 0; -1 outside layers
} snd_site;

typedef struct snd_norm_args {
    snd_norm_kind kind;
    double eps;
    double gain;             // initial gain; has_gain false: the kind's own (1; scale: sqrt(d))
    bool has_gain, plus1, affine /* false: N0 */, bias;
} snd_norm_args;
typedef struct snd_linear_args {
    int64_t out;
    double gain;
    bool has_gain, bias, zero;
    const char *role;        // "W"
    const char *alt;         // inside the mlp's block also "up" or, for the outermost of several, "down"; else NULL
} snd_linear_args;
typedef struct snd_sub_args { char which; /* 'A' 'C' 'M' */ bool inner, headgain, vnorm; double v1; bool has_v1; } snd_sub_args;

// A reader: what operations mean. Every function gets the reader's self; values' shapes are filled in by the walker
// before the call (out->kind, cols set; the reader sets out->id). Constants never reach a reader except as operands
// of `binary` together with a non-constant, and in `list`s. NULL entries: the operation is refused with a message.
typedef struct snd_reader {
    void *self;
    sonde_status (*unary)(void *self, snd_fn fn, snd_val a, snd_val *out);
    sonde_status (*binary)(void *self, snd_bin op, snd_val a, snd_val b, snd_val *out);
    sonde_status (*norm)(void *self, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *out);
    sonde_status (*linear)(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out);
    sonde_status (*scalar)(void *self, const snd_site *site, double init, snd_val *out);   // [1]
    sonde_status (*vector)(void *self, const snd_site *site, double init, snd_val *out);   // [d]
    sonde_status (*unit)(void *self, snd_val a, snd_val *out);
    sonde_status (*dot)(void *self, snd_val a, snd_val b, snd_val *out);
    sonde_status (*rms)(void *self, snd_val a, snd_val *out);
    sonde_status (*stop)(void *self, snd_val a, snd_val *out);
    sonde_status (*drop)(void *self, bool path, snd_val a, snd_val *out);                  // NULL: identity; also after each sublayer
    sonde_status (*cond)(void *self, snd_val *out);                                         // c
    sonde_status (*depthmix)(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out);
    sonde_status (*depthattn)(void *self, const snd_site *site, const snd_val *list, int n, double eps, snd_val *out);
    sonde_status (*sublayer)(void *self, const snd_site *site, const snd_sub_args *s, snd_val a, snd_val *out);
    sonde_status (*conv)(void *self, const snd_site *site, snd_val a, int64_t channels, int64_t k, int64_t stride, snd_val *out);
    sonde_status (*shortcut)(void *self, const snd_site *site, snd_val x, snd_val u, int64_t channels, int64_t stride, snd_val *out);
    sonde_status (*pool)(void *self, snd_val a, snd_val *out);
    /// A fresh alias of a value: same numbers, a gradient of its own (uses through the alias only).
    sonde_status (*alias)(void *self, snd_val a, snd_val *out);
    /// Names a value as soon as it exists ("in.x", "layers.3.F.in", "layers.3.F.N1.out"). May be NULL.
    sonde_status (*tap)(void *self, const char *name, snd_val v);
    /// Called around sections and statements; may be NULL. layer = -1 outside layers; rep = 0, 'A', 'C', 'M' or 'F'.
    sonde_status (*enter)(void *self, snd_section sec, int layer, char rep);
    sonde_status (*leave)(void *self, snd_section sec, int layer, char rep);
    /// Before a statement runs; x is the stream at this moment (for `write`).
    sonde_status (*stmt)(void *self, const snd_stmt *s, snd_section sec, int layer, snd_val x);
} snd_reader;

// One stack (a decoder, an encoder, an mlp) as the walker needs to know it.
typedef struct snd_stack {
    const char *prefix;        // "", "encoder.", "decoder."
    const snd_formula *f;
    const snd_expr *block;     // mlp: expression over u; NULL otherwise
    bool mlp, convnet;         // family
    int L, Le, Ld; bool cross; // constants
    int64_t d, n;              // width, hidden
    int64_t cond;              // 0: c does not exist
    snd_norm_args norm;        // the model's N
} snd_stack;

/// Runs the whole stack through a reader: in:, every layer, out:. `x` is the stream on entry; *out is out.x.
/// exits (may be NULL): after layer exits[i] (0..L, ascending), out: is also evaluated and handed to on_exit; so one
/// forward serves several depths when the formula mentions neither L nor S.
typedef struct snd_walk {
    snd_arena *arena;          // names and scratch
    const snd_stack *stack;
    const snd_reader *reader;
    const int *exits; int n_exits;
    sonde_status (*on_exit)(void *self, int layers, snd_val out_x);
    int n_sublayers;           // result: S
} snd_walk;
sonde_status snd_walk_stack(snd_walk *w, snd_val x, snd_val *out) SONDE_MUST_CHECK;
/// Names, sections, constants and shapes alone, without a reader: is the formula right for this stack? Sets n_sublayers.
sonde_status snd_walk_check(snd_walk *w, snd_val x) SONDE_MUST_CHECK;

#endif
