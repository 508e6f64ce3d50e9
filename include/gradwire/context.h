/* SPDX-License-Identifier: Apache-2.0 */
/* The context: settings, log and statistics that the communicators of one rank share. */
#ifndef GRADWIRE_CONTEXT_H
#define GRADWIRE_CONTEXT_H

#include <stdio.h>

#include <gradwire/types.h>

/* Library version, and the revision of everything that ranks exchange: ranks of different wire
 * revisions do not compress together. */
#define GW_VERSION       "0.1.0"
#define GW_WIRE_REVISION 2
GW_API const char *gw_version(void);

typedef struct gw_context gw_context_t;

/* One setting and its value as text: { "GRADWIRE_CODEC", "q4" }. */
typedef struct gw_setting {
    const char *name;
    const char *value;
} gw_setting_t;

/*
 * Reads the settings (defaults, then GRADWIRE_* of the environment, then `overrides`), opens the
 * log and chooses the kernels. The environment is read here and never again.
 *
 * GW_ERR_BAD_SETTING: a value cannot be used; a sentence that names the setting, the value and what
 * would be allowed is in `why` (may be NULL). Unknown GRADWIRE_* names of the environment only
 * warn. Any thread. Free with gw_context_free after the last communicator is gone.
 */
GW_API gw_status_t gw_context_create(const gw_setting_t *overrides, size_t count,
                                     gw_context_t **out, char *why, size_t why_size);

/* Writes the stats file a last time and frees. NULL is fine. */
GW_API void gw_context_free(gw_context_t *context);

/* Whether GRADWIRE_DISABLE=1. */
GW_API bool gw_context_disabled(const gw_context_t *context);

/* A log line at this context's level and destination. Any thread. */
GW_API void gw_context_log(gw_context_t *context, gw_log_level_t level, const char *format, ...)
    GW_PRINTF(3, 4);

/* A setting as it is in effect, for `gradwire info`. `origin` is "default", "environment" or
 * "override". */
typedef struct gw_setting_info {
    const char *name, *value, *def, *type, *help, *origin;
} gw_setting_info_t;

/* The i-th setting; GW_ERR_NOT_FOUND behind the last one. With context NULL: value = default. */
GW_API gw_status_t gw_setting_at(const gw_context_t *context, size_t i, gw_setting_info_t *out);

/*
 * The i-th rule of GRADWIRE_CONFIG, in the order in which they are tried: its line in the file, and
 * its canonical text ("bytes=1M.. -> q8"), of at most GW_RULE_TEXT_MAX bytes with its NUL.
 * GW_ERR_NOT_FOUND behind the last one.
 */
#define GW_RULE_TEXT_MAX 1024
GW_API gw_status_t gw_rule_at(const gw_context_t *context, size_t i, int *line, char *out,
                              size_t size);

/* What the rules ask for beyond the call itself: facts that cost something to find out. */
enum {
    GW_RULE_COMM = 1 << 0, /* order or name of the communicator */
    GW_RULE_SLOT = 1 << 1  /* place of the call */
};
GW_API unsigned gw_rule_facts(const gw_context_t *context);

/*
 * The settings that all ranks of a communicator must share, as one line of text:
 * "version=0.1.0;wire=2;codec=q4;min_bytes=65536;...". Equal texts compress together. At most
 * `size` bytes with the final NUL; GW_ERR_NO_SPACE when it does not fit (GW_AGREEMENT_MAX always
 * does).
 */
#define GW_AGREEMENT_MAX 512
GW_API gw_status_t gw_context_agreement(const gw_context_t *context, char *out, size_t size);

/*
 * Compares the agreement texts of all ranks (`size` texts, an empty one: that rank runs without
 * Gradwire). GW_ERR_SETTINGS_DIFFER writes one sentence into `why` that names the ranks and
 * settings that differ. The result is the same on every rank.
 *
 * Versions need not be equal: ranks compress together when the wire revision and the first two
 * numbers of the version are, and all settings. Whatever changes what ranks exchange, or adds a
 * setting that they must share, changes one of the two.
 */
GW_API gw_status_t gw_agreement_compare(const char *const *texts, int size, char *why,
                                        size_t why_size);

/* The CPU tier of the kernels in use ("avx2"), and the i-th tier that Gradwire knows (NULL behind
 * the last one) with whether this machine can run it. Static. */
GW_API const char *gw_kernel_tier(void);
GW_API const char *gw_kernel_tier_at(size_t i, bool *available);

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* A GPU as the CUDA driver of this machine describes it. */
typedef struct gw_device_info {
    int ordinal;
    char name[96];
    int major, minor; /* compute capability */
    int multiprocessors;
    uint64_t bytes; /* of its memory */
} gw_device_info_t;

/*
 * How many GPUs there are, and the CUDA version of the driver (13000 is 13.0). The first call loads
 * libcuda.so.1 and calls cuInit, which makes the process one that must not fork and go on with
 * CUDA: for tools. GW_ERR_NO_MODULE: no library, one that is too old, or no device; `why` (may be
 * NULL) has a sentence. GW_ERR_DEVICE: the driver failed. Any thread.
 */
GW_API gw_status_t gw_device_count(int *count, int *version, char *why, size_t why_size);

/* The GPU with this ordinal; statuses as above, and GW_ERR_INVALID. Makes no context. */
GW_API gw_status_t gw_device_at(int ordinal, gw_device_info_t *out, char *why, size_t why_size);

/* What this build's GPU kernels were compiled for ("sm_80 compute_75"), "" without any. Static. */
GW_API const char *gw_device_kernels(void);

/* ---- The decision on one call
 * ------------------------------------------------------------------------ */

/* A call as the application made it. */
typedef struct gw_call {
    gw_collective_t collective;
    gw_dtype_t dtype;
    gw_op_t op;
    size_t count;     /* elements */
    const void *send; /* NULL: in place */
    void *recv;
    size_t rows; /* of the matrix that the elements are, row by row; 0: not known */
} gw_call_t;

/* What is known of the communicator of a call; equal on all its ranks. */
typedef struct gw_comm_facts {
    int size;
    bool intercomm;   /* not a communicator with one group */
    bool mismatch;    /* its ranks do not agree on the settings */
    unsigned order;   /* how many communicators were made before it: equal on all its ranks */
    const char *name; /* "" or NULL: none */
    long slot;        /* place of the call in the communicator's repeating sequence, from 1; 0: not
                         known (yet) */
} gw_comm_facts_t;

/* How a call is split. RING and TREE sum frames without decoding: for codecs with GW_CODEC_LINEAR,
 * where the numbers in a payload have 32 bits. */
typedef enum gw_plan_kind {
    GW_PLAN_DIRECT, /* everybody sends each shard to its owner, which sums it and sends it to all */
    GW_PLAN_GATHER, /* everybody sends all to everybody, and sums */
    GW_PLAN_RING,   /* a shard's sum grows from rank to rank, and goes round once more */
    GW_PLAN_TREE    /* the sum grows towards rank 0, and goes back down */
} gw_plan_kind_t;

/* "direct", "gather", "ring", "tree". */
GW_API const char *gw_plan_name(gw_plan_kind_t kind);

struct gw_coder;

/* compress: run it with `coder` and `plan`. Otherwise the call goes to the original library. */
typedef struct gw_decision {
    bool compress;
    gw_reason_t reason; /* GW_REASON_NONE when compress */
    gw_plan_kind_t plan;
    const struct gw_coder *coder;   /* when compress: owned by the context */
    const struct gw_layout *layout; /* the call goes tensor by tensor (layout.h), each with a codec
                                       of its own, of which `coder` is one; NULL: as a whole */
} gw_decision_t;

/* A pure function of the call's type, operation and count, the facts and the settings: never of an
 * address, the kind of memory or a clock. Any thread. */
GW_API gw_decision_t gw_decide(const gw_context_t *context, const gw_call_t *call,
                               const gw_comm_facts_t *facts);

/* The decision as one line for people: "allreduce f32 sum 1048576 x 2 ranks: q4 direct", with "
 * (line 3 of GRADWIRE_CONFIG)" behind it when a rule made it. */
GW_API void gw_decision_print(const gw_context_t *context, const gw_call_t *call,
                              const gw_comm_facts_t *facts, const gw_decision_t *decision,
                              char *out, size_t size);

/*
 * The order of calls: numbers the calls of one communicator within the sequence that repeats, for
 * gw_comm_facts_t.slot. The shortest sequence of at most 1024 calls that was seen three times in a
 * row, and in which not all calls are alike, gets the numbers 1, 2, ... from the call with which
 * the repetition began; 1024 calls that are all alike get 1. Calls are alike that have the same
 * collective, operation, type and count. Before that, and for calls that are not in the sequence,
 * the answer is 0. The numbers stay: extra calls, left out calls and pauses do not shift them (a
 * call whose kind occurs several times in the sequence gets 0 after a disturbance until the place
 * is certain again, at latest after one whole sequence). Only a new sequence that was seen three
 * times, during which no call belonged to the old one, takes its place.
 *
 * All ranks get the same numbers, for they depend on nothing but the kinds of calls: ask for every
 * call of the communicator, in order. One thread at a time.
 */
typedef struct gw_call_order gw_call_order_t;
GW_API gw_status_t gw_call_order_create(gw_call_order_t **out); /* GW_ERR_NO_MEMORY */
GW_API long gw_call_order_next(gw_call_order_t *order, const gw_call_t *call); /* NULL: 0 */
GW_API void gw_call_order_free(gw_call_order_t *order);                        /* NULL is fine */

/* Counts a call that was handed to the original library. Any thread. */
GW_API void gw_context_count_passed(gw_context_t *context, gw_reason_t reason);

/* ---- Statistics
 * -------------------------------------------------------------------------------------- */

/* Counters of one context or communicator; bytes and times are of compressed calls. */
typedef struct gw_stats {
    uint64_t calls, compressed, passed;
    uint64_t reasons[GW_REASON_COUNT];
    uint64_t raw_bytes; /* count x element size */
    uint64_t
        plain_bytes; /* 2 (P-1)/P x raw: what a bandwidth-optimal uncompressed all-reduce sends */
    uint64_t wire_bytes; /* bytes this rank sent, headers included */
    uint64_t encode_us, wire_us, decode_us, wait_us;
    uint64_t errors, residual_resets, poisoned_buckets;
} gw_stats_t;

GW_API void gw_context_stats(const gw_context_t *context, gw_stats_t *out);

/* The rank that names this process in the stats file and the log; set once it is known. */
GW_API void gw_context_set_rank(gw_context_t *context, int rank, int size);

/* Writes the stats file now (write and rename); does nothing when GRADWIRE_STATS is not set. */
GW_API gw_status_t gw_context_write_stats(gw_context_t *context);

/* Writes `text` as a JSON string literal; bytes that are not UTF-8 become U+FFFD. For tools that
 * print figures beside those of the stats file. */
GW_API void gw_json_string(FILE *out, const char *text);

#endif
