/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench codec`: what its data, its measuring, its checking and its printing share. */
#ifndef GW_BENCH_CODEC_H
#define GW_BENCH_CODEC_H

#include "bench_codec_file.h"
#include "bench_codec_library.h"
#include "cli.h"

/* ---- Data ------------------------------------------------------------------------------------ */

typedef enum gw_bench_kind { GW_BENCH_NORMAL, GW_BENCH_GRADIENT, GW_BENCH_FILE } gw_bench_kind_t;

/* Where the elements come from: a law, or a file of recorded gradients. */
typedef struct gw_bench_source {
    gw_bench_kind_t kind;
    const char *name; /* as the user wrote it */
    gw_bench_file_t file;
} gw_bench_source_t;

/* `name` is "normal", "gradient" or a file's name. False writes one sentence into `why`. */
bool gw_bench_source_open(const char *name, gw_bench_source_t *out, char *why, size_t size);
void gw_bench_source_close(gw_bench_source_t *source);

/* One line for people: the law, or what the file holds and how `count` elements are made of it. */
void gw_bench_source_describe(const gw_bench_source_t *source, size_t count, char *out,
                              size_t size);

/* Fills dst with `count` elements of `dtype`, narrowed once; a file is begun anew where it ends.
 * False writes a sentence: the file holds a NaN or an Inf or cannot be read, or `dtype` cannot
 * hold a value of it. */
bool gw_bench_source_fill(const gw_bench_source_t *source, gw_dtype_t dtype, size_t count,
                          void *dst, char *why, size_t size);

/* Exact: elements of binary16 or bfloat16 as binary32; GW_F32 is copied. */
void gw_bench_widen(gw_dtype_t dtype, const void *src, size_t count, float *dst);

/* ---- Measuring ------------------------------------------------------------------------------- */

typedef enum gw_bench_op {
    GW_BENCH_ENCODE,
    GW_BENCH_ENCODE_EF,
    GW_BENCH_DECODE,
    GW_BENCH_DECODE_ADD,
    GW_BENCH_REDUCE, /* own elements and the payloads of GW_BENCH_PEERS, summed and encoded */
    GW_BENCH_OPS
} gw_bench_op_t;

enum { GW_BENCH_PEERS = 7 };

/* One codec's work: buffers of `count` elements that all codecs of a run share. */
typedef struct gw_bench_codec {
    const gw_coder_t *coder;
    const gw_bench_library_t *library; /* not NULL: it is at work, and not the codec */
    gw_dtype_t dtype;
    size_t count, bytes;
    void *src;       /* count elements of dtype */
    float *out;      /* room for count floats: what is decoded, and where memcpy copies to */
    float *residual; /* count floats */
    uint8_t *frame;
    size_t capacity, length;       /* of the frame; length: as it was written last */
    uint8_t *peers;                /* GW_BENCH_PEERS + 1 payloads, of peer_room bytes each */
    size_t peer_room, peer_length; /* peer_room 0: no memory for them */
    uint64_t key;                  /* of randomness: another one for each encoding */
    size_t poisoned;               /* buckets of the last encoding */
} gw_bench_codec_t;

/* What an all-reduce of a codec that sums factors computes on one rank: project, factor, expand. */
enum { GW_BENCH_FACTOR_OPS = 3 };
typedef struct gw_bench_factors {
    size_t rows, cols; /* of the matrix; 0: the codec has no factors, or they would not gain */
    size_t sum_bytes;  /* of both sums */
    double gbps[GW_BENCH_FACTOR_OPS], times_memcpy[GW_BENCH_FACTOR_OPS]; /* without a residual */
    double rel_l2_first, rel_l2_warm; /* of a call, and of one after some with the same input */
} gw_bench_factors_t;

/* What a codec's row says. Rates are GB/s (1e9 bytes) of input, NAN where the codec has no such
 * operation. */
typedef struct gw_bench_row {
    double gbps[GW_BENCH_OPS];
    double times_memcpy[GW_BENCH_OPS]; /* medians of pairs: not the quotient of the medians */
    double memcpy_gbps;
    size_t wire_bytes, poisoned;
    uint64_t frame_hash; /* of the bytes: the same on every tier and machine */
    double rel_l2, max_err;
    double cosine;     /* of the angle between source and decoded; NAN where one is all 0 */
    double rel_l2_ef8; /* of the mean of 8 steps with feedback; NAN without */
    bool within;       /* every element is inside the codec's declared bound; of a library: a
                          lossless one gives back the same bytes, a lossy one finite numbers */
    bool reduce_same;  /* one pass of reduce writes the bytes that its steps do */
    gw_bench_factors_t factors;
} gw_bench_row_t;

/* Whether the codec has the operation: feedback may be missing or switched off, and few families
 * reduce in one pass, for which there may be no room. */
bool gw_bench_codec_has(const gw_bench_codec_t *bench, gw_bench_op_t op);

/* Runs an operation once. Decoding reads the frame that was written last. */
gw_status_t gw_bench_codec_run(gw_bench_codec_t *bench, gw_bench_op_t op);

/* Rates: medians over `repeats` pairs, fewer (at least 3) where an operation is slow. */
gw_status_t gw_bench_codec_time(gw_bench_codec_t *bench, int repeats, gw_bench_row_t *row);

/* The factors of a codec that has them; clobbers out and residual. GW_ERR_NO_MEMORY. */
gw_status_t gw_bench_codec_factors(const gw_bench_codec_t *bench, int repeats,
                                   gw_bench_factors_t *out);

/* Size and errors, in binary64 against the source. GW_ERR_NO_MEMORY, or what the codec returned. */
gw_status_t gw_bench_codec_check(gw_bench_codec_t *bench, gw_bench_row_t *row);

/* GW_BENCH_REDUCE once, and whether it gives the bytes of its steps; the latter writes the peers'
 * payloads first. */
gw_status_t gw_bench_codec_reduce(gw_bench_codec_t *bench);
gw_status_t gw_bench_codec_check_reduce(gw_bench_codec_t *bench, bool *same);

#endif
