/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 that does next to nothing: it counts what is alive, and any of its calls can fail.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdbool.h>

#include "driver_api.h"

enum { FAKE_DEVICES = 2, FAKE_DEPTH = 16, FAKE_NAMES = 64 };

/* What is alive. */
typedef enum fake_thing {
    FAKE_RETAINED,
    FAKE_LIBRARIES,
    FAKE_MODULES,
    FAKE_DEVICE_MEMORY,
    FAKE_PINNED_MEMORY,
    FAKE_STREAMS,
    FAKE_EVENTS,
    FAKE_THINGS
} fake_thing_t;

typedef struct fake_driver {
    /* Set by tests. */
    int fail_at; /* this call, counted from 1, fails; 0: none */
    CUresult fail_with;
    int devices;
    bool no_operations;  /* streams cannot wait for memory */
    bool busy;           /* no event is done */
    bool inactive;       /* nobody uses a primary context */
    bool keep_host;      /* host functions are kept, not called */
    int spilled;         /* what kernels say of their local memory */
    int threads;         /* and of the threads of a block; 0: 1,024 */
    CUcontext of_stream; /* NULL: the current one */
    unsigned type, managed;
    int ordinal;
    CUcontext of_memory;
    /* What happened. */
    int calls, waits, launches, queries, relaxed;
    const char *failed;            /* the call that did */
    const char *names[FAKE_NAMES]; /* of all calls, each once */
    int alive[FAKE_THINGS];
    CUcontext stack[FAKE_DEPTH];
    int depth;
    CUhostFn host;
    void *argument;
    const char *kernel;
    unsigned grid, block;
    CUstream stream;
} fake_driver_t;

/* Exported by the fake. */
typedef fake_driver_t *(*fake_driver_fn)(void);

#endif
