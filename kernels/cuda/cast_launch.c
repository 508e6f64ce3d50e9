/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of cast and sum. */
#include "launch.h"

/* ---- cast ---------------------------------------------------------------------------------------
 */

static gw_status_t cast(gw_cuda_queue_t *queue, const char *kernel, unsigned bf16, const void *src,
                        void *dst, size_t count)
{
    uint64_t elements = count;
    void *args[] = {&bf16, &src, &dst, &elements};
    return gw__cuda_by_thread(queue, kernel, count, args);
}

static gw_status_t f16_to_f32(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count)
{
    return cast(queue, "gw_cuda_cast_widen", 0, src, dst, count);
}

static gw_status_t f32_to_f16(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count)
{
    return cast(queue, "gw_cuda_cast_narrow", 0, src, dst, count);
}

static gw_status_t bf16_to_f32(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count)
{
    return cast(queue, "gw_cuda_cast_widen", 1, src, dst, count);
}

static gw_status_t f32_to_bf16(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count)
{
    return cast(queue, "gw_cuda_cast_narrow", 1, src, dst, count);
}

static gw_status_t stochastic(gw_cuda_queue_t *queue, const float *src, void *dst, size_t count,
                              uint64_t first, uint64_t key)
{
    uint64_t elements = count;
    void *args[] = {&src, &dst, &elements, &first, &key};
    return gw__cuda_by_thread(queue, "gw_cuda_cast_stochastic", count, args);
}

static gw_status_t cast_encode(gw_cuda_queue_t *queue, const gw_float_spec_t *spec,
                               const float *src, float *residual, size_t count, uint8_t *dst,
                               gw_cuda_result_t *result)
{
    unsigned bf16 = spec->format == GW_FLOAT_BF16;
    uint64_t elements = count;
    void *args[] = {&bf16, &src, &residual, &elements, &dst, &result};
    return gw__cuda_by_thread(queue, "gw_cuda_cast_encode", count, args);
}

static gw_status_t cast_add(gw_cuda_queue_t *queue, const gw_float_spec_t *spec,
                            const uint8_t *payload, size_t count, float *dst)
{
    unsigned bf16 = spec->format == GW_FLOAT_BF16;
    uint64_t elements = count;
    void *args[] = {&bf16, &payload, &elements, &dst};
    return gw__cuda_by_thread(queue, "gw_cuda_cast_add", count, args);
}

const gw_cuda_cast_kernels_t gw__cuda_cast = {f16_to_f32,  f32_to_f16, bf16_to_f32, f32_to_bf16,
                                              cast_encode, cast_add,   stochastic};

/* ---- sum ----------------------------------------------------------------------------------------
 */

static gw_status_t add(gw_cuda_queue_t *queue, float *dst, const void *src, size_t count)
{
    uint64_t elements = count;
    void *args[] = {&dst, &src, &elements};
    return gw__cuda_by_thread(queue, "gw_cuda_sum_add", count, args);
}

static gw_status_t scale(gw_cuda_queue_t *queue, float *dst, float factor, size_t count)
{
    uint64_t elements = count;
    void *args[] = {&dst, &factor, &elements};
    return gw__cuda_by_thread(queue, "gw_cuda_sum_scale", count, args);
}

static gw_status_t copy(gw_cuda_queue_t *queue, void *dst, const void *src, size_t bytes)
{
    uint64_t length = bytes;
    void *args[] = {&dst, &src, &length};
    return gw__cuda_by_thread(queue, "gw_cuda_sum_copy", (bytes + 3) / 4, args);
}

static gw_status_t zero(gw_cuda_queue_t *queue, void *dst, size_t bytes)
{
    uint64_t length = bytes;
    void *args[] = {&dst, &length};
    return gw__cuda_by_thread(queue, "gw_cuda_sum_zero", (bytes + 3) / 4, args);
}

static gw_status_t offsets(gw_cuda_queue_t *queue, uint32_t *words, size_t count, uint32_t *total)
{
    unsigned block = queue->block ? queue->block : GW_CUDA_OFFSETS_THREADS;
    uint64_t number = count;
    void *args[] = {&words, &number, &total};
    return count ? queue->launch(queue, "gw_cuda_sum_offsets", 1, block,
                                 block / GW_CUDA_WARP * (unsigned)sizeof *words, args)
                 : GW_OK;
}

const gw_cuda_sum_kernels_t gw__cuda_sum = {add, scale, copy, zero, offsets};
