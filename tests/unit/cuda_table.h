/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels as a table like that of any tier, for the kernel checker. */
#ifndef CUDA_TABLE_H
#define CUDA_TABLE_H

#include "cuda/cuda_kernels.h"

/*
 * Calls go to this queue, whose launches are done when they return and whose memory is the host's.
 * What has no CUDA kernel is that of ref: the table's other families, and `valid`. `reduce` with a
 * payload that is not valid is ref's too, since the device does not end at it. Not for two threads.
 */
const gw_kernels_t *cuda_table(gw_cuda_queue_t *queue);

/* Families that have CUDA kernels: whether a body of the checker named "family.verb" tests one. */
bool cuda_table_has(const char *body);

#endif
