/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of natural. */
#include "launch.h"

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                          gw_cuda_result_t *result)
{
    unsigned rule = spec->rule, bits = spec->bits, bucket = spec->bucket;
    unsigned stochastic = spec->stochastic;
    float clip = spec->clip;
    uint64_t elements = count;
    void *args[] = {&rule,     &bits,     &bucket, &stochastic, &clip, &src,
                    &residual, &elements, &first,  &key,        &dst,  &result};
    return gw__cuda_by_warp(queue, "gw_cuda_natural_encode", count, bucket,
                            gw__cuda_natural_encode_room(spec), args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned rule = spec->rule, bits = spec->bits, bucket = spec->bucket;
    uint64_t elements = count;
    void *args[] = {&rule, &bits, &bucket, &add, &payload, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_natural_decode", count, bucket,
                            gw__cuda_natural_payload_room(spec), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec,
                       const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, result);
}

const gw_cuda_natural_kernels_t gw__cuda_natural = {encode, store, add};
