/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of topk: a CUDA block for each block of the codec. */
#include "launch.h"

static gw_status_t put(gw_cuda_queue_t *queue, const char *kernel, const gw_topk_layout_t *layout,
                       size_t count, unsigned shared, void **args)
{
    unsigned threads = queue->block ? queue->block : GW_CUDA_TOPK_THREADS;
    uint64_t blocks = (count + ((uint64_t)1 << layout->log2_block) - 1) >> layout->log2_block;
    return count ? gw__cuda_put(queue, kernel, blocks, threads, shared, args) : GW_OK;
}

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout, const float *src,
                          float *residual, size_t count, uint8_t *dst, uint32_t *picked,
                          gw_cuda_result_t *result)
{
    unsigned log2_block = layout->log2_block, values = layout->values;
    uint32_t ratio = layout->ratio;
    uint64_t elements = count;
    void *args[] = {&log2_block, &ratio, &values, &src,   &residual,
                    &elements,   &dst,   &picked, &result};
    return put(queue, "gw_cuda_topk_encode", layout, count, GW_CUDA_TOPK_ROOM, args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          gw_cuda_result_t *result)
{
    unsigned log2_block = layout->log2_block, values = layout->values;
    uint32_t ratio = layout->ratio;
    uint64_t elements = count;
    void *args[] = {&log2_block, &ratio, &values, &add, &payload, &elements, &dst, &result};
    return put(queue, "gw_cuda_topk_decode", layout, count, 0, args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout,
                         const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, layout, payload, count, 0, dst, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout,
                       const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result)
{
    return decode(queue, layout, payload, count, 1, dst, result);
}

const gw_cuda_topk_kernels_t gw__cuda_topk = {encode, store, add};
