/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels behind the signatures of the CPU's. */
#include "cuda_table.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_queue.h"
#include "fpmode.h"

static gw_cuda_queue_t *queue;
static gw_cuda_result_t result;
static const gw_kernels_t *ref;

/* A device has a mode of its own: nothing of the caller's reaches it. A launch must not fail. */
#define LAUNCH(call)                                                                               \
    do {                                                                                           \
        uint64_t mode = gw__fpmode_enter();                                                        \
        result = (gw_cuda_result_t){0};                                                         \
        if ((call) != GW_OK)                                                                       \
            abort();                                                                               \
        gw__fpmode_leave(mode);                                                                    \
    } while (0)

/* A payload that ref found valid and the device does not: no body expects this word. */
static void must_be_valid(void)
{
    if (result.invalid)
        abort();
}

/* ---- quant --------------------------------------------------------------------------------------
 */

static size_t quant_encode(const gw_quant_spec_t *spec, const float *src, float *residual,
                           size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    LAUNCH(gw__cuda_quant.encode(queue, spec, src, residual, count, first, key, dst, &result));
    return result.poisoned;
}

static void quant_store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst)
{
    LAUNCH(gw__cuda_quant.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void quant_add(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_quant.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static size_t quant_reduce(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, float *residual,
                           size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                           size_t *refused)
{
    bool valid = true;
    for (size_t k = 0; k < sum->payloads; k++)
        valid &= ref->quant.valid(spec, sum->payload[k] + sum->skip, count);
    if (!valid)
        return ref->quant.reduce(spec, sum, residual, count, first, key, dst, refused);
    LAUNCH(gw__cuda_quant.reduce(queue, spec, sum, residual, count, first, key, dst, &result));
    must_be_valid();
    *refused = sum->payloads;
    return result.poisoned;
}

/* ---- The others
 * ----------------------------------------------------------------------------
 */

static size_t sign_encode(const gw_sign_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst)
{
    LAUNCH(gw__cuda_sign.encode(queue, spec, src, residual, count, dst, &result));
    return result.poisoned;
}

static void sign_store(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_sign.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void sign_add(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_sign.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static size_t fp8_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                         size_t count, uint8_t *dst)
{
    LAUNCH(gw__cuda_fp8.encode(queue, spec, src, residual, count, dst, &result));
    return result.poisoned;
}

static void fp8_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_fp8.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void fp8_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_fp8.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static size_t fp4_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                         size_t count, uint8_t *dst)
{
    LAUNCH(gw__cuda_fp4.encode(queue, spec, src, residual, count, dst, &result));
    return result.poisoned;
}

static void fp4_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_fp4.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void fp4_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_fp4.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static size_t rotate_encode(const gw_rotate_spec_t *spec, const float *src, float *residual,
                            size_t count, uint8_t *dst)
{
    LAUNCH(gw__cuda_rotate.encode(queue, spec, src, residual, count, dst, &result));
    return result.poisoned;
}

static void rotate_store(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                         float *dst)
{
    LAUNCH(gw__cuda_rotate.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void rotate_add(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst)
{
    LAUNCH(gw__cuda_rotate.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static size_t natural_encode(const gw_natural_spec_t *spec, const float *src, float *residual,
                             size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    LAUNCH(gw__cuda_natural.encode(queue, spec, src, residual, count, first, key, dst, &result));
    return result.poisoned;
}

static void natural_store(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                          float *dst)
{
    LAUNCH(gw__cuda_natural.store(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void natural_add(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst)
{
    LAUNCH(gw__cuda_natural.add(queue, spec, payload, count, dst, &result));
    must_be_valid();
}

static void lowrank_project(const gw_lowrank_panel_t *panel, const float *src,
                            const float *residual, float scale, const float *q, float *p)
{
    LAUNCH(gw__cuda_lowrank.project(queue, panel, src, residual, scale, q, p));
}

static void lowrank_collect(const gw_lowrank_panel_t *panel, const float *src,
                            const float *residual, float scale, const float *p, float *q)
{
    LAUNCH(gw__cuda_lowrank.collect(queue, panel, src, residual, scale, p, q));
}

static void lowrank_store(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                          float factor, float *dst)
{
    LAUNCH(gw__cuda_lowrank.store(queue, panel, p, q, factor, dst));
}

static void lowrank_add(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                        float factor, float *dst)
{
    LAUNCH(gw__cuda_lowrank.add(queue, panel, p, q, factor, dst));
}

static void lowrank_keep(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                         float factor, const float *src, float *residual)
{
    LAUNCH(gw__cuda_lowrank.keep(queue, panel, p, q, factor, src, residual));
}

#define CAST(name)                                                                                 \
    static void cast_##name(const void *src, void *dst, size_t count)                              \
    {                                                                                              \
        LAUNCH(gw__cuda_cast.name(queue, src, dst, count));                                        \
    }
CAST(f16_to_f32)
CAST(f32_to_f16)
CAST(bf16_to_f32)
CAST(f32_to_bf16)

static void cast_bf16_stochastic(const float *src, void *dst, size_t count, uint64_t first,
                                 uint64_t key)
{
    LAUNCH(gw__cuda_cast.bf16_stochastic(queue, src, dst, count, first, key));
}

static size_t cast_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst)
{
    LAUNCH(gw__cuda_cast.encode(queue, spec, src, residual, count, dst, &result));
    return result.poisoned;
}

static void cast_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    LAUNCH(gw__cuda_cast.add(queue, spec, payload, count, dst));
}

static void sum_add(float *dst, const void *src, size_t count)
{
    LAUNCH(gw__cuda_sum.add(queue, dst, src, count));
}

static void sum_scale(float *dst, float factor, size_t count)
{
    LAUNCH(gw__cuda_sum.scale(queue, dst, factor, count));
}

/* ---- The table ----------------------------------------------------------------------------------
 */

const gw_kernels_t *cuda_table(gw_cuda_queue_t *to)
{
    static gw_kernels_t table;
    ref = gw__kernels_of("ref");
    queue = to;
    table = *ref;
    table.tier = "cuda";
    table.quant =
        (gw_quant_kernels_t){quant_encode, ref->quant.valid, quant_store, quant_add, quant_reduce};
    table.cast =
        (gw_cast_kernels_t){cast_f16_to_f32, cast_f32_to_f16, cast_bf16_to_f32,    cast_f32_to_bf16,
                            cast_encode,     cast_add,        cast_bf16_stochastic};
    table.sum = (gw_sum_kernels_t){sum_add, sum_scale};
    table.sign = (gw_sign_kernels_t){sign_encode, ref->sign.valid, sign_store, sign_add};
    table.fp8 = (gw_float_kernels_t){fp8_encode, ref->fp8.valid, fp8_store, fp8_add};
    table.fp4 = (gw_float_kernels_t){fp4_encode, ref->fp4.valid, fp4_store, fp4_add};
    table.rotate =
        (gw_rotate_kernels_t){rotate_encode, ref->rotate.valid, rotate_store, rotate_add};
    table.natural =
        (gw_natural_kernels_t){natural_encode, ref->natural.valid, natural_store, natural_add};
    table.lowrank = (gw_lowrank_kernels_t){lowrank_project, lowrank_collect, lowrank_store,
                                           lowrank_add, lowrank_keep};
    return &table;
}

bool cuda_table_has(const char *body)
{
    static const char *const families[] = {"quant.", "cast.", "sum.",    "sign.",    "fp8.",
                                           "fp4.",   "raw.",  "rotate.", "natural.", "lowrank."};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strncmp(body, families[i], strlen(families[i])))
            return true;
    return false;
}

/* The double of the CUDA driver, where it is linked, has the real one. */
__attribute__((weak)) gw_cuda_queue_t *cuda_queue(void)
{
    return NULL;
}
