/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of rotate. */
#include "launch.h"

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, block = spec->block, unbiased = spec->unbiased;
    uint32_t seed = spec->seed;
    uint64_t elements = count;
    void *args[] = {&bits, &block, &seed, &unbiased, &src, &residual, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_rotate_encode", count, block,
                            gw__cuda_rotate_room(bits, block, residual ? 2 : 1), args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, block = spec->block;
    uint32_t seed = spec->seed;
    uint64_t elements = count;
    void *args[] = {&bits, &block, &seed, &add, &payload, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_rotate_decode", count, block,
                            gw__cuda_rotate_room(bits, block, 1), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, result);
}

static gw_status_t reduce(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec,
                          const gw_quant_sum_t *sum, float *residual, size_t count, uint8_t *dst,
                          gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, block = spec->block, unbiased = spec->unbiased;
    unsigned payloads = (unsigned)sum->payloads, own_at = (unsigned)sum->own_at;
    uint32_t seed = spec->seed;
    uint64_t elements = count, skip = sum->skip;
    const float *own = sum->own;
    float scale = sum->scale;
    gw_cuda_list_t list = {{0}};
    if (sum->payloads > GW_CUDA_PAYLOADS)
        return GW_ERR_UNSUPPORTED;
    for (unsigned k = 0; k < payloads; k++)
        list.payload[k] = sum->payload[k];
    void *args[] = {&bits, &block, &seed,  &unbiased, &list,     &payloads, &own_at,
                    &skip, &own,   &scale, &residual, &elements, &dst,      &result};
    return gw__cuda_by_warp(queue, "gw_cuda_rotate_reduce", count, block,
                            gw__cuda_rotate_room(bits, block, 2), args);
}

const gw_cuda_rotate_kernels_t gw__cuda_rotate = {encode, store, add, reduce};
