/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: threads of a kernel that take turns on one thread of the host. */
#ifndef GW_DOUBLE_FIBERS_H
#define GW_DOUBLE_FIBERS_H

#include <stddef.h>

typedef struct fiber {
    char *stack; /* the lowest byte that it may use; below it is a guard page */
    size_t size;
    void *at; /* its stack pointer while it does not run */
} fiber_t;

/* Prepares stacks for n fibers, which stay; false: no memory. */
bool fibers_reserve(unsigned n);
fiber_t *fiber_of(unsigned i);

/* From now on fiber i begins with run(), which must end with fiber_leave(true). */
void fiber_reset(fiber_t *fiber, void (*run)(void));
/* Runs it until it leaves. */
void fiber_enter(fiber_t *fiber);
/* Back to whoever entered; `ends`: this fiber does not run again. */
void fiber_leave(bool ends);

#endif
