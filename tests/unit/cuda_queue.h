/* SPDX-License-Identifier: Apache-2.0 */
/* A queue on which the CUDA kernels run on the CPU, each launch done when it returns. */
#ifndef CUDA_QUEUE_H
#define CUDA_QUEUE_H

#include "cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The queue; block and blocks may be set, memory is the host's. NULL where nothing is linked that
 * can run CUDA source: tests skip then. Not for two threads. */
gw_cuda_queue_t *cuda_queue(void);

#ifdef __cplusplus
}
#endif
#endif
