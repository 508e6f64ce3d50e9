/* SPDX-License-Identifier: Apache-2.0 */
/* The codec contract: what one codec family tells about itself and how it encodes and decodes. */
#ifndef GRADWIRE_CODEC_H
#define GRADWIRE_CODEC_H

#include <gradwire/types.h>

#define GW_CODEC_ABI           4
#define GW_CODEC_MAX_PARAMS    12
#define GW_CODEC_SPEC_MAX      128 /* bytes of a canonical spec, with its final NUL */
#define GW_CODEC_HEADER_PARAMS 8   /* bytes of parameters in a frame's header */

typedef struct gw_codec gw_codec_t;

/*
 * A codec family with its parameters set: what "q4:bucket=512" parses to. A plain value: copy it
 * freely; it owns nothing. value[i] belongs to family->params[i]; what a value means (a number, 0/1
 * for a switch, an index into `choices`) is in that table.
 */
typedef struct gw_coder {
    const gw_codec_t *family;
    double value[GW_CODEC_MAX_PARAMS];
    char spec[GW_CODEC_SPEC_MAX]; /* canonical text: name, then parameters that differ from default
                                   */
} gw_coder_t;

typedef enum gw_param_type {
    GW_PARAM_INT,
    GW_PARAM_REAL,
    GW_PARAM_SWITCH,
    GW_PARAM_CHOICE
} gw_param_type_t;

/* One parameter of a codec family. The table of a family ends with name == NULL. */
typedef struct gw_codec_param {
    const char *name;
    gw_param_type_t type;
    const char *def;     /* default as text */
    double min, max;     /* inclusive; GW_PARAM_INT and GW_PARAM_REAL */
    const char *choices; /* "nearest|stochastic"; GW_PARAM_CHOICE */
    const char *help;
} gw_codec_param_t;

enum {
    GW_CODEC_LOSSY = 1 << 0,    /* decode(encode(x)) may differ from x */
    GW_CODEC_FIXED = 1 << 1,    /* payload size follows from the count: bound() is exact */
    GW_CODEC_LINEAR = 1 << 2,   /* payloads can be summed without decoding: merge() is there */
    GW_CODEC_FEEDBACK = 1 << 3, /* encode() can keep a residual */
    GW_CODEC_MATRIX = 1 << 4, /* works on matrices: each tensor that a layout gives it is a call of
                                 its own, whose rows are known (gw_call_t) */
    GW_CODEC_FACTORS = 1 << 5 /* an all-reduce sums two factors: `factors` is there */
};

/* What encode() reads. */
typedef struct gw_encode {
    const void *src;      /* count elements of src_dtype; never written */
    gw_dtype_t src_dtype; /* GW_F32, GW_F16 or GW_BF16 */
    gw_dtype_t
        wire_dtype; /* element type of the collective: what codecs that carry elements send */
    float
        *residual; /* count floats, added to src and replaced by what was lost; NULL: no feedback */
    size_t count;  /* elements */
    uint64_t first;      /* index of src[0] in the whole call: a multiple of the grain */
    uint64_t key;        /* of all randomness of this call, rank and stage */
    float *momentum;     /* count floats beside the residual, kept like it, for coders that
                            keeps_momentum() names; NULL: none */
    uint64_t shared_key; /* of what all ranks must choose alike: the same on every rank and in every
                            stage of this call, another one in the next */
    size_t poisoned;     /* out: buckets that hold a NaN or an Inf */
} gw_encode_t;

typedef enum gw_decode_mode {
    GW_DECODE_STORE, /* dst = decoded, narrowed once to dst_dtype */
    GW_DECODE_ADD    /* dst = dst + decoded; dst_dtype must be GW_F32 */
} gw_decode_mode_t;

/* What decode() reads and writes. */
typedef struct gw_decode {
    const uint8_t *payload;
    size_t length; /* bytes of payload, as received: trust nothing in it */
    gw_dtype_t wire_dtype;
    size_t count;   /* elements to write */
    uint64_t first; /* index of dst[0] in the whole call */
    gw_decode_mode_t mode;
    void *dst;
    gw_dtype_t dst_dtype;
} gw_decode_t;

/* What reduce() reads: all contributions to the same elements, in order of rank. */
typedef struct gw_reduce {
    const void *own; /* this rank's elements, not encoded */
    gw_dtype_t own_dtype;
    size_t own_at;                 /* how many payloads come before `own`: 0 to `payloads` */
    const uint8_t *const *payload; /* of the other ranks, as received: trust nothing in them */
    const size_t *length;          /* bytes of each, `skip` included */
    size_t payloads;
    size_t skip; /* bytes in front of each payload that are not part of it, such as a header */
    float scale; /* of the sum before it is encoded; 1: none */
    gw_dtype_t wire_dtype;
    float *residual;     /* as in gw_encode_t: of the sum */
    size_t count;        /* elements */
    uint64_t first;      /* index of own[0] in the whole call: a multiple of the grain */
    uint64_t key;        /* of the encoding of the sum */
    uint64_t shared_key; /* as in gw_encode_t */
    size_t poisoned;     /* out: buckets of the sum that hold a NaN or an Inf */
    size_t refused;      /* out, after GW_ERR_FRAME_*: index of the payload at fault */
} gw_reduce_t;

/* What merge() adds: two payloads of the same elements, neither of which is trusted. */
typedef struct gw_merge {
    const uint8_t *from;
    size_t from_length;
    uint8_t *into; /* in and out; it may not overlap `from` */
    size_t into_length;
    gw_dtype_t wire_dtype;
    size_t count;      /* elements */
    uint64_t first;    /* index of the first element in the whole call: a multiple of the grain */
    bool refused_from; /* out, after GW_ERR_FRAME_*: `from` is at fault, not `into` */
} gw_merge_t;

/* What the factors of a call need; a function of the coder, the count and the rows. */
typedef struct gw_factor_sizes {
    size_t rows, cols;    /* of the matrix that the elements are: rows * cols >= count */
    size_t first, second; /* floats of the two sums */
    size_t warm;          /* floats that are kept from call to call beside the residual */
    size_t scratch;       /* floats of working memory */
} gw_factor_sizes_t;

/* One rank's part in an all-reduce of factors. All of it stays in place from project() to expand().
 */
typedef struct gw_factors {
    const void *src; /* count elements of `dtype`: the rank's own; never written but through dst */
    void *dst;       /* count elements of `dtype`; may be src */
    gw_dtype_t dtype;
    size_t count;
    size_t rows;         /* of the matrix, where it is known; 0: a fold that follows from count */
    int ranks;           /* whose contributions are summed */
    float scale;         /* of the sum before it is narrowed; 1: none */
    float *residual;     /* count floats, as in gw_encode_t; NULL: no feedback */
    float *warm;         /* zero at first; NULL: none is kept. Ranks need not have the same. */
    uint64_t shared_key; /* as in gw_encode_t */
    float *first, *second, *scratch; /* as many floats as sizes() says */
    size_t poisoned;                 /* out: 1 when a rank's elements were not all finite */
} gw_factors_t;

/*
 * For codecs whose sum takes two exchanges, such as PowerSGD: project(), the sum of `first` over
 * all ranks, factor(), the sum of `second`, expand(). Sums are in binary32, of every number by
 * itself, and the same bits on all ranks. All that decides on the result has to follow from the
 * summed bytes, so that ranks end with the same bits whatever their own residuals and warm state
 * are. The statuses of a rank cannot differ: nothing here fails.
 */
typedef struct gw_factor_ops {
    /* False: factors would take more than half of the bytes of the elements. Such a call goes
     * without this codec. */
    bool (*sizes)(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, size_t rows,
                  gw_factor_sizes_t *out);
    void (*project)(const gw_coder_t *coder, gw_factors_t *io); /* own part of `first` */
    /* From the sum in `first` the own part of `second`. False when a rank's elements were not all
     * finite: there is no second sum then, and expand() comes next. */
    bool (*factor)(const gw_coder_t *coder, gw_factors_t *io);
    /* From both sums the result, NaN throughout when poisoned; the residual becomes what the rank's
     * own elements lost. Poisoned calls leave residual and warm as they were. */
    void (*expand)(const gw_coder_t *coder, gw_factors_t *io);
    /* As error_bound() of the family, of a whole call on one rank. The bound of a sum is the sum of
     * the ranks' bounds. */
    void (*error_bound)(const gw_coder_t *coder, const float *x, size_t count, size_t rows,
                        float *bound);
} gw_factor_ops_t;

/*
 * One codec family. All functions may be called from any thread at once; they keep no state,
 * allocate nothing and log nothing.
 */
struct gw_codec {
    int abi;             /* GW_CODEC_ABI */
    uint8_t id;          /* in frames: 0 raw, 1-63 built in, 128-191 external, 192-255 private */
    const char *family;  /* "quant" */
    const char *names;   /* for people: "q1 ... q8" */
    const char *summary; /* one line for people */
    unsigned flags;
    const gw_codec_param_t *params;

    /* True when `name` (without parameters) belongs to this family; sets the values the name
     * implies (all others hold their defaults already). */
    bool (*match)(const char *name, gw_coder_t *coder);

    /* Writes the name that implies the coder's values ("q4"), at most `size` bytes with its NUL. */
    void (*name)(const gw_coder_t *coder, char *out, size_t size);

    /* Checks combinations of values. GW_ERR_BAD_SETTING writes the reason into `why`. May be NULL.
     */
    gw_status_t (*check)(const gw_coder_t *coder, char *why, size_t size);

    /* Chunks and shards are multiples of this many elements (the last one excepted). At least 1. */
    size_t (*grain)(const gw_coder_t *coder);

    /* Bytes of payload for `count` elements: exact for GW_CODEC_FIXED, else an upper limit.
     * Additive over parts that are multiples of the grain. */
    size_t (*bound)(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count);

    /* Encodes in->count elements to dst. GW_ERR_NO_SPACE when `capacity` is less than bound(),
     * GW_ERR_UNSUPPORTED for a dtype that is not served; nothing is written then. The same input
     * gives the same bytes on every tier and device, for every split into multiples of the grain.
     */
    gw_status_t (*encode)(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length);

    /* Checks the whole payload, then writes every one of the count elements exactly once. Any bytes
     * give GW_OK or GW_ERR_FRAME_*; dst is untouched after an error. */
    gw_status_t (*decode)(const gw_coder_t *coder, const gw_decode_t *in);

    /* bound[i] >= |decode(encode(x))[i] - x[i]| for finite x, as the family declares it; `count`
     * floats each, x[0] at the start of a grain. Lossy codecs only, otherwise NULL. */
    void (*error_bound)(const gw_coder_t *coder, const float *x, size_t count, float *bound);

    /* The parameters that a decoder needs, in a frame's header. get() refuses what put() cannot
     * write. */
    void (*put_params)(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS]);
    gw_status_t (*get_params)(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder);

    /* Adds own elements and payloads in order of rank and encodes the sum to dst: the bytes and the
     * residual that decode() with STORE for the first and ADD for the rest, scaling and encode()
     * would give, in one pass. dst may not overlap what is read. Statuses of both, GW_ERR_INVALID
     * for own_at > payloads; nothing is written then, except that after GW_ERR_FRAME_PAYLOAD, which
     * may show itself on the way, dst and the residual can hold part of the work. May be NULL: the
     * engine then decodes, adds and encodes, slice by slice for families with GW_CODEC_FIXED. */
    gw_status_t (*reduce)(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst, size_t capacity,
                          size_t *length);

    /*
     * Adds the payload `from` into `into` without decoding; its length stays. Each number becomes
     * into + from, one addition in binary32: payloads that are merged one after the other give the
     * bits that decode() with STORE for the first and ADD for the others would, in the order of the
     * calls. Another order rounds otherwise. GW_ERR_UNSUPPORTED where the numbers in the payload
     * are narrower than binary32, since each call would round once more; GW_ERR_FRAME_* for a
     * payload that no encoder writes, GW_ERR_FRAME_MISMATCH for two that chose other elements.
     * Nothing is written after an error. Families with GW_CODEC_LINEAR, which are also
     * GW_CODEC_FIXED; otherwise NULL.
     */
    gw_status_t (*merge)(const gw_coder_t *coder, gw_merge_t *io);

    /* The coder in force in call number `call` of a communicator, for families whose values follow
     * a schedule: *out is *coder with other values. NULL: it is always *coder. */
    void (*at_call)(const gw_coder_t *coder, uint64_t call, gw_coder_t *out);

    /* Whether encode() of this coder wants a momentum beside the residual (gw_encode_t). Families
     * that never do have NULL in both. */
    bool (*keeps_momentum)(const gw_coder_t *coder);

    /* Takes in->count elements into in->momentum as encode() does, and writes what it would send of
     * them if it sent all, in binary32: for the owner of a shard, who does not encode its own
     * elements. What is not finite goes itself. Any part of a call gives what the whole would;
     * in->residual is not looked at. GW_ERR_UNSUPPORTED for a dtype that is not served. */
    gw_status_t (*correct)(const gw_coder_t *coder, const gw_encode_t *in, float *out);

    /* Families with GW_CODEC_FACTORS: how an all-reduce goes. Their encode() and decode() serve
     * frames by themselves. Otherwise NULL. */
    const gw_factor_ops_t *factors;
};

/*
 * Parses a codec specification, `name[:key=value[,key=value]...]`. On error writes a sentence that
 * names the offending part and what would be allowed into `why` (may be NULL). GW_ERR_NOT_FOUND: no
 * such codec; GW_ERR_BAD_SETTING: no such parameter, or a bad value or combination.
 * `auto:bits=N` is the default codec of the largest budget that is not above N bits an element
 * (gw_codec_budget_at); `out` is that codec, and nothing remembers how it was asked for.
 */
GW_API gw_status_t gw_coder_parse(const char *spec, gw_coder_t *out, char *why, size_t why_size);

/* The value of a parameter by name, or `otherwise` when the family has none of that name. */
GW_API double gw_coder_get(const gw_coder_t *coder, const char *param, double otherwise);

/* The i-th default by budget, by rising bits: its spec, and the bits an element that it is for;
 * NULL behind the last one. */
GW_API const char *gw_codec_budget_at(size_t i, double *bits);

/* The i-th codec family in order of id, or NULL behind the last one. */
GW_API const gw_codec_t *gw_codec_at(size_t i);

/* The family with this id, or NULL. */
GW_API const gw_codec_t *gw_codec_by_id(uint8_t id);

/*
 * Adds a codec family with an id of 128 to 255; it must stay valid until the process ends. Not safe
 * beside other calls: register before the first context. GW_ERR_INVALID: the id is taken, or
 * gw_codec_check() has an objection. GW_ERR_NO_SPACE: table full. codecs/README.md has an example.
 */
GW_API gw_status_t gw_codec_register(const gw_codec_t *family);

/*
 * Whether a family from outside is whole. GW_ERR_INVALID: wrong abi, an id of the library's own, a
 * function or a text missing, too many parameters; the first of them is named in `why`, of `size`
 * bytes (may be NULL, and 0). Any thread.
 */
GW_API gw_status_t gw_codec_check(const gw_codec_t *family, char *why, size_t size);

/*
 * Frames: an encoded piece with a header that describes it (layout in codecs/README.md).
 * gw_frame_bound: bytes that gw_frame_encode needs at most. gw_frame_encode fails as encode() does.
 * gw_frame_decode accepts only frames of this very coder, wire_dtype, count and first
 * (GW_ERR_FRAME_MISMATCH otherwise); set payload and length of `io` to the frame. gw_frame_reduce
 * is reduce() from frames to a frame: payloads and lengths are those of whole frames (behind `skip`
 * bytes, usually 0). All headers, lengths and checksums are checked before anything is written;
 * GW_ERR_UNSUPPORTED when the family cannot reduce. gw_frame_merge
 * is merge() of one whole frame into another, both of this very coder, wire_dtype, count and first;
 * `into` keeps its header, and its checksum is renewed where it has one. Both are checked before
 * anything is written; GW_ERR_UNSUPPORTED when the family cannot merge.
 */
GW_API size_t gw_frame_bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count);
GW_API gw_status_t gw_frame_encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst,
                                   size_t capacity, size_t *length);
GW_API gw_status_t gw_frame_decode(const gw_coder_t *coder, const gw_decode_t *io);
GW_API gw_status_t gw_frame_reduce(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst,
                                   size_t capacity, size_t *length);
GW_API gw_status_t gw_frame_merge(const gw_coder_t *coder, gw_merge_t *io);

/* What a frame says about itself; `coder` is complete. Checks the header and the length, not the
 * payload. */
typedef struct gw_frame_info {
    gw_coder_t coder;
    gw_dtype_t wire_dtype;
    uint64_t count, first;
    size_t header_bytes, payload_bytes;
    bool has_checksum;
} gw_frame_info_t;
GW_API gw_status_t gw_frame_inspect(const uint8_t *frame, size_t length, gw_frame_info_t *out);

#endif
