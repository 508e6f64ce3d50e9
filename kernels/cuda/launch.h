/* SPDX-License-Identifier: Apache-2.0 */
/* How the families compute the shape of a launch. */
#ifndef GW_CUDA_LAUNCH_H
#define GW_CUDA_LAUNCH_H

#include "cuda_kernels.h"

enum {
    GW_CUDA_WARP = 32,
    GW_CUDA_ELEMENTS = 4,          /* a thread of an elementwise kernel takes */
    GW_CUDA_OFFSETS_THREADS = 1024 /* of a single block */
};

static inline gw_status_t gw__cuda_put(gw_cuda_queue_t *queue, const char *kernel, uint64_t blocks,
                                       unsigned block, unsigned shared, void **args)
{
    uint64_t most = queue->blocks ? queue->blocks : INT32_MAX;
    unsigned grid = (unsigned)(blocks < most ? blocks : most);
    return queue->launch(queue, kernel, grid, block, shared, args);
}

/* One warp for each unit of `size` elements, with `room` bytes of shared memory. */
static inline gw_status_t gw__cuda_by_warp(gw_cuda_queue_t *queue, const char *kernel, size_t count,
                                           size_t size, unsigned room, void **args)
{
    unsigned warps = (queue->block ? queue->block : GW_CUDA_BLOCK) / GW_CUDA_WARP;
    unsigned fit = room ? GW_CUDA_SHARED_MOST / room : warps;
    size_t units = (count + size - 1) / size;
    warps = warps < fit ? warps : fit;
    if (!count)
        return GW_OK;
    return gw__cuda_put(queue, kernel, (units + warps - 1) / warps, GW_CUDA_WARP * warps,
                        warps * room, args);
}

static inline gw_status_t gw__cuda_by_thread(gw_cuda_queue_t *queue, const char *kernel,
                                             size_t count, void **args)
{
    unsigned block = queue->block ? queue->block : GW_CUDA_BLOCK;
    size_t each = (size_t)block * GW_CUDA_ELEMENTS;
    return count ? gw__cuda_put(queue, kernel, (count + each - 1) / each, block, 0, args) : GW_OK;
}

#endif
