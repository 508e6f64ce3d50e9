/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks that live long: pages of their own instead of the application's heap. */
#ifndef GW_MEMORY_H
#define GW_MEMORY_H

#include <stddef.h>

/*
 * `bytes` > 0 zeroed bytes at a page boundary, or NULL. A long-lived block in the heap can lie
 * where the application's own large buffers come and go, so that glibc moves the heap's end up and
 * down in every step and each page is faulted in anew (measured: 600,000 page faults in 60 steps of
 * a trainer). Give it back with its size.
 */
void *gw__memory_map(size_t bytes);
void gw__memory_unmap(void *block, size_t bytes);

#endif
