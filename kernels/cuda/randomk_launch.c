/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of randomk. */
#include "launch.h"

/* Slots of all blocks. */
static size_t slots_of(const gw_randomk_spec_t *spec, size_t count)
{
    size_t tail = count % spec->block;
    return count / spec->block * gw__ratio_of(spec->ratio, spec->block) +
           (tail ? gw__ratio_of(spec->ratio, tail) : 0);
}

static gw_status_t encode(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t shared_key,
                          uint8_t *dst, uint32_t *marks, gw_cuda_result_t *result)
{
    unsigned block = spec->block, values = spec->values, scale = spec->scale;
    uint32_t ratio = spec->ratio, seed = spec->seed;
    uint64_t elements = count;
    void *scan[] = {&src, &elements, &block, &marks};
    void *fold[] = {&src, &residual, &elements, &block, &marks};
    void *send[] = {&block,    &ratio, &values,     &seed, &scale, &src,   &residual,
                    &elements, &first, &shared_key, &dst,  &marks, &result};
    gw_status_t status = gw__cuda_by_thread(queue, "gw_cuda_randomk_scan", count, scan);
    if (status == GW_OK && residual)
        status = gw__cuda_by_thread(queue, "gw_cuda_randomk_fold", count, fold);
    if (status == GW_OK)
        status = gw__cuda_by_thread(queue, "gw_cuda_randomk_send",
                                    count ? slots_of(spec, count) : 0, send);
    return status;
}

static gw_status_t mark(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                        const uint8_t *payload, const uint8_t *other, size_t count, uint32_t *marks,
                        gw_cuda_result_t *result)
{
    unsigned block = spec->block, values = spec->values;
    uint32_t ratio = spec->ratio;
    uint64_t elements = count;
    void *args[] = {&block, &ratio, &values, &payload, &other, &elements, &marks, &result};
    return gw__cuda_by_warp(queue, "gw_cuda_randomk_mark", count, block, 0, args);
}

static gw_status_t decode(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                          const uint8_t *payload, size_t count, unsigned add, float *dst,
                          uint32_t *marks, gw_cuda_result_t *result)
{
    unsigned block = spec->block, values = spec->values;
    uint32_t ratio = spec->ratio;
    uint64_t elements = count;
    void *fill[] = {&block, &add, &elements, &marks, &dst};
    void *scatter[] = {&block, &ratio, &values, &add, &payload, &elements, &marks, &dst};
    gw_status_t status = mark(queue, spec, payload, NULL, count, marks, result);
    if (status == GW_OK)
        status = gw__cuda_by_thread(queue, "gw_cuda_randomk_fill", count, fill);
    if (status == GW_OK)
        status = gw__cuda_by_thread(queue, "gw_cuda_randomk_scatter",
                                    count ? slots_of(spec, count) : 0, scatter);
    return status;
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, uint32_t *marks,
                         gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 0, dst, marks, result);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                       const uint8_t *payload, size_t count, float *dst, uint32_t *marks,
                       gw_cuda_result_t *result)
{
    return decode(queue, spec, payload, count, 1, dst, marks, result);
}

static gw_status_t merge(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec, const uint8_t *from,
                         size_t count, uint8_t *into, uint32_t *marks, gw_cuda_result_t *result)
{
    unsigned block = spec->block;
    uint32_t ratio = spec->ratio;
    uint64_t elements = count;
    void *args[] = {&block, &ratio, &from, &into, &elements, &marks};
    if (spec->values != GW_F32)
        return GW_ERR_UNSUPPORTED;
    gw_status_t status = mark(queue, spec, from, into, count, marks, result);
    if (status == GW_OK)
        status = gw__cuda_by_thread(queue, "gw_cuda_randomk_merge",
                                    count ? slots_of(spec, count) : 0, args);
    return status;
}

const gw_cuda_randomk_kernels_t gw__cuda_randomk = {encode, store, add, merge};
