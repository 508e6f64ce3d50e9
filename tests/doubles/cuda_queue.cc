// SPDX-License-Identifier: Apache-2.0
// The queue on which the library's kernels run on the CPU: each launch in another order of blocks
// and threads.
#include "cuda_queue.h"

#include <stdio.h>

#include "gw_double.h"

// Ascending and descending have a turn each; two launches of four get an order of their own.
static uint64_t next_seed(void)
{
    static uint64_t launches;
    uint64_t turn = launches++;
    return turn % 4 < 2 ? turn % 4 : turn;
}

static gw_status_t launch(gw_cuda_queue_t *queue, const char *name, unsigned grid, unsigned block,
                          unsigned shared, void **args)
{
    char why[512] = "there is no such kernel";
    const gw_double_kernel_t *kernel = gw_double_find(name);
    if (kernel && gw_double_launch(kernel, grid, block, shared, next_seed(), args, why, sizeof why))
        return GW_OK;
    fprintf(stderr, "%s: %s\n", name, why);
    return GW_ERR_INTERNAL;
}

gw_cuda_queue_t *cuda_queue(void)
{
    static gw_cuda_queue_t queue = {launch, 0, 0, NULL};
    return &queue;
}
