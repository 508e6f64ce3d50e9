/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of sign. */
#include "launch.h"

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result)
{
    unsigned bucket = spec->bucket;
    uint64_t elements = count;
    void *args[] = {&bucket, &src, &residual, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_sign_encode", count, bucket,
                            gw__cuda_sign_encode_room(bucket), args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned bucket = spec->bucket;
    uint64_t elements = count;
    void *args[] = {&bucket, &add, &payload, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_sign_decode", count, bucket,
                            gw__cuda_sign_payload_room(bucket), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const uint8_t *payload,
                         size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, result);
}

const gw_cuda_sign_kernels_t gw__cuda_sign = {encode, store, add};
