/* SPDX-License-Identifier: Apache-2.0 */
/* What a collective call is made of: element types, operations, reasons. */
#ifndef GRADWIRE_TYPES_H
#define GRADWIRE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradwire/status.h>

/* Element types. The numbers travel in frames and never change. */
typedef enum gw_dtype {
    GW_F32 = 0,
    GW_F16 = 1,  /* IEEE binary16 */
    GW_BF16 = 2, /* bfloat16: the upper half of a binary32 */
    GW_F64 = 3,
    GW_DTYPE_OTHER = 254, /* a built-in type that is never compressed (integers, complex, ...) */
    GW_DTYPE_USER = 255   /* a type the application defined */
} gw_dtype_t;

/* Bytes per element; 0 for GW_DTYPE_OTHER and GW_DTYPE_USER. */
GW_API size_t gw_dtype_size(gw_dtype_t dtype);

/* "f32", "f16", "bf16", "f64", "other", "user". */
GW_API const char *gw_dtype_name(gw_dtype_t dtype);

/* The inverse of gw_dtype_name for the four float types; GW_ERR_NOT_FOUND otherwise. */
GW_API gw_status_t gw_dtype_parse(const char *name, gw_dtype_t *out);

typedef enum gw_op {
    GW_SUM = 0,
    GW_AVG = 1,        /* sum divided by the number of ranks, divided before narrowing */
    GW_OP_OTHER = 254, /* a built-in operation that is never compressed */
    GW_OP_USER = 255   /* an operation the application defined */
} gw_op_t;

typedef enum gw_collective { GW_ALLREDUCE = 0 } gw_collective_t;

/* Why a call was not compressed. The names are those of the stats file. */
#define GW_REASON_TABLE(X)                                                                         \
    X(GW_REASON_NONE, "none", "compressed")                                                        \
    X(GW_REASON_TOO_SMALL, "too_small", "fewer bytes than GRADWIRE_MIN_BYTES")                     \
    X(GW_REASON_DTYPE, "dtype", "element type is not compressed")                                  \
    X(GW_REASON_OP, "op", "operation is not a sum")                                                \
    X(GW_REASON_DATATYPE_USER, "datatype_user", "element type defined by the application")         \
    X(GW_REASON_OP_USER, "op_user", "operation defined by the application")                        \
    X(GW_REASON_INTERCOMM, "intercomm", "inter-communicator")                                      \
    X(GW_REASON_SINGLE_RANK, "single_rank", "communicator of one rank")                            \
    X(GW_REASON_DISABLED, "disabled", "switched off, or set-up or an earlier call failed")         \
    X(GW_REASON_EXCLUDED, "excluded", "excluded by a rule or by codec raw")                        \
    X(GW_REASON_GATE, "gate", "compression would not pay")                                         \
    X(GW_REASON_MISMATCH, "mismatch", "ranks run with different settings or without Gradwire")     \
    X(GW_REASON_CAPTURE, "capture", "stream is being captured")                                    \
    X(GW_REASON_DEVICE_MEMORY, "device_memory", "memory that this build cannot read")              \
    X(GW_REASON_UNSUPPORTED_CALL, "unsupported_call", "form of the call is not supported")         \
    X(GW_REASON_ZERO_COUNT, "zero_count", "no elements")

typedef enum gw_reason {
#define GW_REASON_ENUM(id, name, text) id,
    GW_REASON_TABLE(GW_REASON_ENUM)
#undef GW_REASON_ENUM
        GW_REASON_COUNT
} gw_reason_t;

/* The name of a reason as the stats file has it ("too_small"); static. */
GW_API const char *gw_reason_name(gw_reason_t reason);

/* Log levels, in the order of GRADWIRE_LOG. */
typedef enum gw_log_level { GW_LOG_OFF, GW_LOG_WARN, GW_LOG_INFO, GW_LOG_DEBUG } gw_log_level_t;

/*
 * A sink for log lines, as modules get it. `format` is printf-like, without a newline. Any thread
 * may call it; it takes no lock of the caller.
 */
typedef void (*gw_log_fn)(void *arg, gw_log_level_t level, const char *format, ...) GW_PRINTF(3, 4);

#endif
