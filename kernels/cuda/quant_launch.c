/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of quant. */
#include "launch.h"

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                          gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, bucket = spec->bucket;
    unsigned stochastic = spec->stochastic, zero = spec->zero;
    uint64_t elements = count;
    void *args[] = {&bits,     &bucket, &stochastic, &zero, &src,   &residual,
                    &elements, &first,  &key,        &dst,  &result};
    return gw__cuda_by_warp(queue, "gw_cuda_quant_encode", count, bucket,
                            gw__cuda_quant_encode_room(bits, bucket, 0), args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, bucket = spec->bucket;
    uint64_t elements = count;
    void *args[] = {&bits, &bucket, &add, &payload, &elements, &dst, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_quant_decode", count, bucket,
                            gw__cuda_quant_payload_room(bits, bucket), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, result);
}

/* How many payloads a warp holds at a time: more loads are under way at once, but fewer warps fit.
 */
static unsigned batch_of(unsigned bits, unsigned bucket, size_t payloads)
{
    enum { MOST = 8, WARPS = 4 };
    unsigned batch = payloads < MOST ? (unsigned)payloads : MOST;
    while (batch > 1 &&
           WARPS * gw__cuda_quant_encode_room(bits, bucket, batch) > GW_CUDA_SHARED_MOST)
        batch--;
    return batch ? batch : 1;
}

static gw_status_t reduce(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec,
                          const gw_quant_sum_t *sum, float *residual, size_t count, uint64_t first,
                          uint64_t key, uint8_t *dst, gw_cuda_result_t *result)
{
    unsigned bits = spec->bits, bucket = spec->bucket;
    unsigned stochastic = spec->stochastic, zero = spec->zero;
    unsigned payloads = (unsigned)sum->payloads, own_at = (unsigned)sum->own_at;
    unsigned batch = batch_of(bits, bucket, sum->payloads);
    uint64_t elements = count, skip = sum->skip;
    const float *own = sum->own;
    float scale = sum->scale;
    gw_cuda_list_t list = {{0}};
    if (sum->payloads > GW_CUDA_PAYLOADS)
        return GW_ERR_UNSUPPORTED;
    for (unsigned k = 0; k < payloads; k++)
        list.payload[k] = sum->payload[k];
    void *args[] = {&bits,     &bucket, &stochastic, &zero, &list,  &payloads,
                    &own_at,   &batch,  &skip,       &own,  &scale, &residual,
                    &elements, &first,  &key,        &dst,  &result};
    return gw__cuda_by_warp(queue, "gw_cuda_quant_reduce", count, bucket,
                            gw__cuda_quant_encode_room(bits, bucket, batch), args);
}

const gw_cuda_quant_kernels_t gw__cuda_quant = {encode, store, add, reduce};
