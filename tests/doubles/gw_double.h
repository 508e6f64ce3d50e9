/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels of CUDA source on the CPU, block by block: what tests call without a driver. */
#ifndef GW_DOUBLE_H
#define GW_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_DOUBLE_THREADS_MOST 1024
#define GW_DOUBLE_SHARED_MOST  (227 * 1024) /* dynamic, of a block: what sm_90 has */

typedef struct gw_double_param {
    size_t bytes;
    bool pointer;
} gw_double_param_t;

typedef struct gw_double_kernel {
    const char *name;
    void (*call)(void *const *args);
    const gw_double_param_t *params;
    unsigned count; /* of params */
    struct gw_double_kernel *next;
} gw_double_kernel_t;

/* The kernel of that name among those that are linked; NULL: there is none. */
const gw_double_kernel_t *gw_double_find(const char *name);

/*
 * Runs all blocks before it returns, with the default floating-point mode. args[i] points to the
 * value of parameter i. `seed` orders the blocks, and the threads between two rendezvous: 0 is
 * ascending, 1 descending, every other value an order of its own, new at each turn. Shared memory
 * is 0xFF at the start of each block; behind the dynamic part lies a guard page.
 * False: a shape that no device takes, or threads that wait for one that does not come; `why` says
 * it in a sentence, and what the kernel wrote until then stays. Any thread; one launch at a time.
 */
bool gw_double_launch(const gw_double_kernel_t *kernel, unsigned grid, unsigned block,
                      size_t shared_bytes, uint64_t seed, void *const *args, char *why,
                      size_t why_size);

/* Plants a bug: from now on no thread waits at the barrier in this line of the file whose path has
 * `file` in it (kept, not copied). NULL: all barriers are there again. */
void gw_double_leave_out(const char *file, int line);

/* What cuda_host.h makes of the name of a kernel; called before main. */
void gw_double_register(gw_double_kernel_t *kernel);

/* ---- For cuda_host.h: called by the threads of a kernel
 * ------------------------------------------
 */

typedef enum gw_double_meet {
    GW_DOUBLE_BLOCK,   /* gives how many threads had a value that is not 0 */
    GW_DOUBLE_WARP,    /* gives nothing */
    GW_DOUBLE_SHUFFLE, /* gives the value of lane `source` */
    GW_DOUBLE_BALLOT,  /* gives a bit for each lane of the mask whose value is not 0 */
} gw_double_meet_t;

/* Waits for all threads of the block, or for the lanes of `mask`, at this line of the source. */
uint64_t gw_double_meet(gw_double_meet_t kind, uint32_t mask, uint64_t value, unsigned source,
                        const char *file, int line);
void *gw_double_shared(void);
unsigned gw_double_lane(void);

#ifdef __cplusplus
}
#endif
#endif
