/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of fp4. */
#include "launch.h"

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result)
{
    unsigned nv = spec->format == GW_FLOAT_NVFP4, block = spec->block;
    uint64_t elements = count;
    void *args[] = {&nv, &block, &src, &residual, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_fp4_encode", count, block,
                            gw__cuda_fp4_encode_room(nv, block), args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_float_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned nv = spec->format == GW_FLOAT_NVFP4, block = spec->block;
    uint64_t elements = count;
    void *args[] = {&nv, &block, &add, &payload, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_fp4_decode", count, block,
                            gw__cuda_fp4_payload_room(nv, block), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_float_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, result);
}

const gw_cuda_float_kernels_t gw__cuda_fp4 = {encode, store, add};
