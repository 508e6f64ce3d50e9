/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of block. */
#include "launch.h"

static size_t units_of(size_t count, unsigned log2)
{
    return (count + ((size_t)1 << log2) - 1) >> log2;
}

static gw_status_t choose(gw_cuda_queue_t *queue, const gw_block_layout_t *layout, gw_dtype_t from,
                          const void *src, float *residual, size_t count, uint32_t *maps,
                          uint32_t *lengths, gw_cuda_result_t *result)
{
    unsigned threads = queue->block ? queue->block : GW_CUDA_BLOCK;
    unsigned log2_size = layout->log2_size, log2_domain = layout->log2_domain;
    unsigned wire = layout->wire, type = from;
    unsigned shared = GW_CUDA_BLOCK_SHARED + (4u << (log2_domain - log2_size));
    uint32_t ratio = layout->ratio;
    uint64_t elements = count;
    void *args[] = {&log2_size, &log2_domain, &ratio, &wire,    &type,  &src,
                    &residual,  &elements,    &maps,  &lengths, &result};
    return gw__cuda_put(queue, "gw_cuda_block_choose", units_of(count, log2_domain), threads,
                        shared, args);
}

static gw_status_t put_blocks(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                              gw_dtype_t from, const void *src, float *residual, size_t count,
                              const uint32_t *maps, const uint32_t *starts, uint8_t *dst)
{
    unsigned log2_size = layout->log2_size, log2_domain = layout->log2_domain;
    unsigned wire = layout->wire, type = from;
    uint64_t elements = count;
    void *args[] = {&log2_size, &log2_domain, &wire, &type,   &src,
                    &residual,  &elements,    &maps, &starts, &dst};
    return gw__cuda_by_warp(queue, "gw_cuda_block_write", count, (size_t)1 << log2_size,
                            gw__cuda_block_room(), args);
}

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_block_layout_t *layout, gw_dtype_t from,
                          const void *src, float *residual, size_t count, uint8_t *dst,
                          uint32_t *work, gw_cuda_result_t *result)
{
    size_t domains = units_of(count, layout->log2_domain);
    uint32_t *lengths =
        work + domains * gw__cuda_block_words(layout->log2_size, layout->log2_domain);
    if (!count)
        return GW_OK;
    gw_status_t status = choose(queue, layout, from, src, residual, count, work, lengths, result);
    if (status == GW_OK)
        status = gw__cuda_sum.offsets(queue, lengths, domains, &result->length);
    return status == GW_OK
               ? put_blocks(queue, layout, from, src, residual, count, work, lengths, dst)
               : status;
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                          const uint8_t *payload, const uint32_t *starts, size_t count,
                          gw_dtype_t to, unsigned add, void *dst)
{
    unsigned log2_size = layout->log2_size, log2_domain = layout->log2_domain;
    unsigned wire = layout->wire, type = to;
    uint64_t elements = count;
    void *args[] = {&log2_size, &log2_domain, &wire,     &type, &add,
                    &payload,   &starts,      &elements, &dst};
    return gw__cuda_by_warp(queue, "gw_cuda_block_decode", count, (size_t)1 << log2_size,
                            gw__cuda_block_room(), args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                         const uint8_t *payload, const uint32_t *starts, size_t count,
                         gw_dtype_t to, void *dst)
{
    return decode(queue, layout, payload, starts, count, to, 0, dst);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                       const uint8_t *payload, const uint32_t *starts, size_t count, float *dst)
{
    return decode(queue, layout, payload, starts, count, GW_F32, 1, dst);
}

const gw_cuda_block_kernels_t gw__cuda_block = {encode, store, add};
