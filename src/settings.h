/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: one table of names, defaults, types and help; read once, kept parsed. */
#ifndef GW_SETTINGS_H
#define GW_SETTINGS_H

#include <gradwire/codec.h>
#include <gradwire/context.h>

#include "log.h"

enum { GW__SETTING_TEXT_MAX = 1024 };

typedef enum gw__origin { GW__FROM_DEFAULT, GW__FROM_ENVIRONMENT, GW__FROM_OVERRIDE } gw__origin_t;

typedef enum gw__plan_setting {
    GW__PLAN_AUTO,
    GW__PLAN_ONLY_DIRECT,
    GW__PLAN_ONLY_GATHER,
    GW__PLAN_ONLY_RING,
    GW__PLAN_ONLY_TREE
} gw__plan_setting_t;

/* The table: enumerator, name, default, type as people read it, help. The README's manual is
 * printed from it (`gradwire info`). */
#define GW__SETTINGS_TABLE(X)                                                                      \
    X(CODEC, "GRADWIRE_CODEC", "q4", "codec spec", "codec of eligible calls")                      \
    X(MIN_BYTES, "GRADWIRE_MIN_BYTES", "65536", "bytes", "smaller calls pass through")             \
    X(CONFIG, "GRADWIRE_CONFIG", "", "file",                                                       \
      "rules: which calls get another codec or are left alone")                                    \
    X(LAYOUT, "GRADWIRE_LAYOUT", "", "file",                                                       \
      "which parts of a buffer are which tensors: those of one dimension stay exact")              \
    X(GATE, "GRADWIRE_GATE", "always", "always", "every eligible call is compressed")              \
    X(PLAN, "GRADWIRE_PLAN", "auto", "auto|direct|gather|ring|tree",                               \
      "how a call is split: direct (owner sums a shard), gather (everybody sums all), auto; for "  \
      "codecs that are summed without decoding ring (sums go from rank to rank) and tree")         \
    X(STATS, "GRADWIRE_STATS", "", "file", "figures as JSON; %r becomes the rank")                 \
    X(LOG, "GRADWIRE_LOG", "warn", "off|warn|info|debug", "what is logged")                        \
    X(LOG_FILE, "GRADWIRE_LOG_FILE", "", "file", "log there instead of stderr")                    \
    X(SEED, "GRADWIRE_SEED", "0", "number", "seed of all randomness")                              \
    X(KERNELS, "GRADWIRE_KERNELS", "best", "best|ref|avx2|avx512", "CPU tier of the kernels")      \
    X(THREADS, "GRADWIRE_THREADS", "auto", "auto|number",                                          \
      "threads beside the caller's that compute; auto: the CPUs that the rank may use, shared "    \
      "among the ranks of the node, less the caller's, at most 3")                                 \
    X(CHECKSUM, "GRADWIRE_CHECKSUM", "off", "off|on",                                              \
      "CRC32C on every frame that this rank sends")                                                \
    X(TRANSPORT, "GRADWIRE_TRANSPORT", "auto", "auto|ucx|mpi|fault",                               \
      "what carries compressed buffers; auto: ucx, under MPI mpi where ucx cannot; fault: a tool " \
      "for testing, see GRADWIRE_FAULT")                                                           \
    X(FAULT, "GRADWIRE_FAULT", "", "list",                                                         \
      "transport fault: what goes wrong, like over=ucx,drop=0.01,kill=2@100")                      \
    X(INTERFACES, "GRADWIRE_INTERFACES", "", "list",                                               \
      "network interfaces or CIDR ranges to use, comma separated; after ^ to avoid")               \
    X(GUARD, "GRADWIRE_GUARD", "on", "off|on",                                                     \
      "listening ports take connections from the job's hosts only, and only while communicators "  \
      "are made")                                                                                  \
    X(PORTS, "GRADWIRE_PORTS", "", "MIN-MAX", "TCP ports to listen on; empty: any")                \
    X(TIMEOUT, "GRADWIRE_TIMEOUT", "60", "seconds",                                                \
      "silence of a peer that has entered a call, connect, close")                                 \
    X(RESIDUAL_BYTES, "GRADWIRE_RESIDUAL_BYTES", "", "bytes",                                      \
      "bound of the error-feedback store of a process; empty: a quarter of the memory")            \
    X(RESIDUALS, "GRADWIRE_RESIDUALS", "fp32", "fp32|bf16|pinned",                                 \
      "how residuals are kept: bf16 takes half the memory (stochastic rounding; codecs of fixed "  \
      "size); pinned keeps those of device memory on the host")                                    \
    X(DEVICE, "GRADWIRE_DEVICE", "auto", "auto|off",                                               \
      "off: all-reduces of device memory are refused")                                             \
    X(DISABLE, "GRADWIRE_DISABLE", "0", "0|1", "1: do nothing at all")

typedef enum gw__residuals {
    GW__RESIDUALS_FP32,
    GW__RESIDUALS_BF16,
    GW__RESIDUALS_PINNED
} gw__residuals_t;

typedef enum gw__setting_id {
#define GW__SETTING_ENUM(id, name, def, type, help) GW__SETTING_##id,
    GW__SETTINGS_TABLE(GW__SETTING_ENUM)
#undef GW__SETTING_ENUM
        GW__SETTING_COUNT
} gw__setting_id_t;

enum { GW__THREADS_MAX = 64 };

/* All settings, as text and parsed. A plain value apart from nothing it owns. */
typedef struct gw__settings {
    char text[GW__SETTING_COUNT][GW__SETTING_TEXT_MAX];
    gw__origin_t origin[GW__SETTING_COUNT];
    gw_coder_t coder;
    size_t min_bytes, residual_bytes;
    gw__plan_setting_t plan;
    gw_log_level_t log_level;
    uint64_t seed;
    double timeout;
    bool disabled;
    bool checksum;
    bool guard;
    bool device;
    gw__residuals_t residuals;
    int threads;            /* -1: auto */
    int port_min, port_max; /* 0, 0: any */
    char unknown[256]; /* GRADWIRE_* names of the environment that no setting has, with suggestions
                        */
} gw__settings_t;

/* Defaults, environment, overrides; parses all. GW_ERR_BAD_SETTING with a sentence in `why`. */
gw_status_t gw__settings_read(gw__settings_t *out, const gw_setting_t *overrides, size_t count,
                              char *why, size_t why_size);

/*
 * Whether the plan that is set can serve a codec. GW_ERR_BAD_SETTING with the reason and what would
 * be allowed in `why`.
 */
gw_status_t gw__settings_allow(const gw__settings_t *settings, const gw_coder_t *coder, char *why,
                               size_t why_size);

/* "4096", "64K", "2M", "1G" to bytes. GW_ERR_BAD_SETTING. */
gw_status_t gw__parse_bytes(const char *text, size_t *out);

#endif
