/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks that live long: pages of their own instead of the application's heap. */
#define _GNU_SOURCE
#include "memory.h"

#include <sys/mman.h>

void *gw__memory_map(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

void gw__memory_unmap(void *block, size_t bytes)
{
    if (block)
        munmap(block, bytes);
}
