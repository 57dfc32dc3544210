// What an operation is to the graph: a row of functions, found through snd_op_info_at, which ops/ defines (graph/ never
// includes ops/). Also what a running op may use. Included by graph.h.
#ifndef SND_GRAPH_OP_H
#define SND_GRAPH_OP_H

// A value while the graph runs: the number is buffer * 2^e.
typedef struct snd_rv {
    void *p;
    int32_t e;
    double amax;                 // largest absolute value of the buffer; < 0: not known yet
} snd_rv;

typedef struct snd_oprun {         // one execution of one node
    const snd_graph *g;
    const snd_node *n;
    int32_t index;               // of the node: part of the key of ops that draw
    snd_rv *v;                   // by value id
    snd_dtype t;                 // the graph's type
    int threads;
    uint64_t seed;
    int64_t first_example;       // of the batch that this run holds a part of: its first one's number in the whole
    const snd_source *src;       // for parameters that are read in pieces
    void *scratch;               // as many bytes as the op's scratch() asked for, 64-byte aligned
} snd_oprun;

// A test case of an op: the shapes of its inputs, how they are drawn, its attributes. Tables of these stand beside the
// ops; the suites run every case of every op.
enum { SND_CASE_IN = 8 };
typedef struct snd_op_case {
    const char *label;
    int n_in;
    snd_shape in[SND_CASE_IN];
    snd_attr attr;
    double lo, hi;               // inputs are uniform in [lo, hi); both 0: normal
    unsigned absent;             // bit k: input k is left out
    unsigned target;             // bit k: input k holds class indices (I64) below `classes`, some of them -100
    int64_t classes;
    bool all_count;              // no index is -100
} snd_op_case;

typedef struct snd_op_info {
    const char *name;
    /// Shapes and types of the outputs from op, in, attr; sets n->n_out. Fails with a message that names what differs.
    sonde_status (*shape)(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype);
    void (*run)(snd_oprun *r);
    /// Emits nodes: dout[k] is the gradient of output k (0: none); sets din[j] (0: none) for the inputs j with need[j].
    /// NULL: has no derivative; stop: grad sets nothing.
    void (*grad)(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din);
    /// Inputs (bit mask) on whose buffer output 0 may be placed; NULL: none.
    unsigned (*inplace)(const snd_graph *g, const snd_node *n);
    size_t (*scratch)(const snd_graph *g, const snd_node *n);       // bytes; NULL: none
    void (*cost)(const snd_graph *g, const snd_node *n, double *flops, double *bytes);
    /// Inputs (bit mask) that the op reads in pieces by snd_param_read when they are parameters; NULL: none.
    unsigned (*pieces)(const snd_graph *g, const snd_node *n);
    bool cheap;                  // its results are sooner made again than kept, where their operands are there: norms, activations,
                                 // dropout, products of gates
    bool view;                   // output 0 is input 0's buffer
    unsigned exact;              // outputs (bit mask) that training in f16 keeps in f32: running averages
    bool fills;                  // a view that runs all the same: it writes to input 0, a buffer (SND_R_BUFFER), and says so
                                 // in the snd_rv of its output
    const snd_op_case *cases;
    int n_cases;
} snd_op_info;

/// Defined in ops/. NULL for an op that does not exist.
const snd_op_info *snd_op_info_at(int op);
/// Defined in ops/: a + b, two values of one shape. What a gradient with several uses is made of.
snd_id snd_g_sum_values(snd_graph *g, snd_id a, snd_id b);

// A rewrite of two nodes, `first` feeding `second`, into one. Rows: ops/fusions.def; driver: fuse.c.
typedef struct snd_fusion {
    const char *name;
    int first, second, fused;    // ops
    int out;                     // the output of `first` that `second` reads: the middle value
    /// Does the pattern fit (given that the ops match and second->in[port] is first's output `out`)?
    bool (*fits)(const snd_graph *g, const snd_node *first, const snd_node *second, int port);
    /// Fills inputs (room for 8), attributes and outputs of the fused node. Output ids are those of the two nodes.
    void (*merge)(const snd_graph *g, const snd_node *first, const snd_node *second, int port, snd_node *fused);
    bool keeps_middle;           // first's output stays a value: allowed even when others use it
    bool late;                   // stands where the second stood, so its other inputs may come from nodes; not with keeps_middle
} snd_fusion;
const snd_fusion *snd_fusion_at(int i);          // defined in ops/; NULL after the last

// ---- for ops: values of a running node ------------------------------------------------------------------------------
static inline snd_rv *snd_in(const snd_oprun *r, int k) { return r->n->in[k] ? &r->v[r->n->in[k]] : NULL; }
static inline snd_rv *snd_out(const snd_oprun *r, int k) { return &r->v[r->n->out[k]]; }
snd_shape snd_in_shape(const snd_oprun *r, int k);
snd_shape snd_out_shape(const snd_oprun *r, int k);
/// Elements first .. first+n-1 of input k, a parameter that may or may not be in memory: where they are, or a copy in tmp.
const void *snd_param_read(const snd_oprun *r, int k, int64_t first, int64_t n, void *tmp);
/// Largest absolute value of input k's buffer, computed once per run.
double snd_in_amax(const snd_oprun *r, int k);
double snd_rv_amax(const snd_oprun *r, snd_rv *v, int64_t n);
/// For a x + b y: the common exponent; folds the operands' own ones into a and b.
int64_t snd_align(const snd_oprun *r, snd_rv *x, int64_t nx, snd_rv *y, int64_t ny, double *a, double *b);
/// dst = src * 2^s; dst may be src.
void snd_scale_into(const snd_oprun *r, const void *src, int64_t n, int64_t s, void *dst);
/// Ends the computation of output k: its exponent is e, its largest absolute value amax (< 0: look). Renormalises the
/// buffer by an exact power of two when it left the safe range, and folds an exponent back that is no longer needed.
void snd_out_done(const snd_oprun *r, int k, int64_t e, double amax);
/// The same for an output whose numbers are true doubles: stores them with a fitting exponent.
void snd_out_store(const snd_oprun *r, int k, const double *x, int64_t n);
/// Input k with its exponent folded in: its buffer when e = 0, else a copy in tmp.
const void *snd_in_plain(const snd_oprun *r, int k, void *tmp);
/// The exponent under which numbers up to amax (finite) belong into a buffer; 0 when they fit as they are.
int64_t snd_fit_exponent(snd_dtype t, double amax);
/// Half width of the safe range, in bits: 48 (f32), 200 (f64).
int snd_safe_bits(snd_dtype t);
/// 2^e as a double, kept finite and non-zero.
double snd_pow2(int64_t e);
int64_t snd_clamp_e(int64_t e);

// ---- for ops: building ----------------------------------------------------------------------------------------------
snd_shape snd_shape_of(const snd_graph *g, snd_id v);
/// Rows (all dimensions but the last) and features; a scalar is 1 x 1.
void snd_rows(snd_shape s, int64_t *rows, int64_t *cols);

#endif
