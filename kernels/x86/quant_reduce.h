/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode, bucket by bucket: what the x86 tiers share, and what each of them supplies. */
#ifndef GW_QUANT_REDUCE_H
#define GW_QUANT_REDUCE_H

#include "quant_grid.h"

/* All of one call. */
typedef struct gw_quant_task {
    const gw_quant_spec_t *spec;
    const gw_quant_sum_t *sum;
    float *residual; /* may be NULL */
    size_t stride;   /* bytes of a whole bucket */
} gw_quant_task_t;

/* How a bucket is done. */
typedef enum gw_quant_kind {
    GW_QUANT_QUICK,
    GW_QUANT_POISONED,
    GW_QUANT_BY_REF,
    GW_QUANT_REFUSED
} gw_quant_kind_t;

/* A whole bucket between its sum and its codes. */
typedef struct gw_quant_work {
    gw_quant_kind_t kind;
    gw_quant_noise_t noise;
    float *p;        /* the sum, residual added; on a cache line */
    float *residual; /* of this bucket */
    gw_quant_grid_t grid;
} gw_quant_work_t;

/*
 * A tier's part, by bits - 1, stochastic, and whether what was lost is kept. `sum` makes p and the
 * grid of bucket k, whose payloads all have a unit that is 0 or short (gw__quant_short_unit) and
 * within its limits, and a minimum below 2^126; `code`
 * writes the codes to dst, which is behind the metadata, and the residual.
 */
typedef struct gw_quant_reducer {
    void (*sum[8])(const gw_quant_task_t *t, size_t k, gw_quant_work_t *w);
    void (*code[8][2][2])(const gw_quant_task_t *t, const gw_quant_work_t *w, uint8_t *dst);
} gw_quant_reducer_t;

size_t gw__quant_reduce_by(const gw_quant_reducer_t *tier, const gw_quant_spec_t *spec,
                           const gw_quant_sum_t *sum, float *residual, size_t count, uint64_t first,
                           uint64_t key, uint8_t *dst, size_t *refused);

/* The functions of one width, out of the tier's sum_bucket(t, k, w, bits) and code_bucket(t, w,
 * dst, bits, stochastic, keeps), and their places in the table. */
#define GW_QUANT_REDUCER_FUNCTIONS(bits)                                                           \
    static GW_KERNEL_BODY void sum_##bits(const gw_quant_task_t *t, size_t k, gw_quant_work_t *w)  \
    {                                                                                              \
        sum_bucket(t, k, w, bits);                                                                 \
    }                                                                                              \
    GW_QUANT_REDUCER_CODER(bits, 0, 0)                                                             \
    GW_QUANT_REDUCER_CODER(bits, 0, 1)                                                             \
    GW_QUANT_REDUCER_CODER(bits, 1, 0)                                                             \
    GW_QUANT_REDUCER_CODER(bits, 1, 1)
#define GW_QUANT_REDUCER_CODER(bits, stochastic, keeps)                                            \
    static GW_KERNEL_BODY void code_##bits##_##stochastic##_##keeps(                               \
        const gw_quant_task_t *t, const gw_quant_work_t *w, uint8_t *dst)                          \
    {                                                                                              \
        code_bucket(t, w, dst, bits, stochastic, keeps);                                           \
    }
#define GW_QUANT_REDUCER_ROW(bits)                                                                 \
    {                                                                                              \
        {code_##bits##_0_0, code_##bits##_0_1},                                                    \
        {                                                                                          \
            code_##bits##_1_0, code_##bits##_1_1                                                   \
        }                                                                                          \
    }
#define GW_QUANT_REDUCER                                                                           \
    {                                                                                              \
        {sum_1, sum_2, sum_3, sum_4, sum_5, sum_6, sum_7, sum_8},                                  \
        {                                                                                          \
            GW_QUANT_REDUCER_ROW(1), GW_QUANT_REDUCER_ROW(2), GW_QUANT_REDUCER_ROW(3),             \
                GW_QUANT_REDUCER_ROW(4), GW_QUANT_REDUCER_ROW(5), GW_QUANT_REDUCER_ROW(6),         \
                GW_QUANT_REDUCER_ROW(7), GW_QUANT_REDUCER_ROW(8)                                   \
        }                                                                                          \
    }

#endif
