/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for tests of the codecs, and buffers with red zones round them. */
#ifndef TEST_QUANT_DATA_H
#define TEST_QUANT_DATA_H

#include <string.h>

#include "gw_test.h"
#include "quant_fill.h"

/* ---- Memory with red zones ----------------------------------------------------------------------
 */

#define RED_ZONE 64

/* Under AddressSanitizer the zones may not even be read. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* `bytes` bytes at an offset from the alignment of malloc, poisoned, with red zones on both sides.
 */
typedef struct test_guarded {
    uint8_t *block, *at;
    size_t bytes;
} test_guarded_t;

static inline test_guarded_t test_guard(size_t bytes, size_t offset)
{
    test_guarded_t g = {malloc(bytes + 2 * RED_ZONE + offset), NULL, bytes};
    if (!g.block)
        ck_abort_msg("no memory");
    memset(g.block, 0xA5, bytes + 2 * RED_ZONE + offset);
    g.at = g.block + RED_ZONE + offset;
    ASAN_POISON_MEMORY_REGION(g.block, RED_ZONE + offset);
    ASAN_POISON_MEMORY_REGION(g.at + bytes, RED_ZONE);
    return g;
}

/* Check writes to a file at each assertion: one per buffer, not one per byte. */
static inline void test_release(test_guarded_t g)
{
    int before = 0, behind = 0;
    ASAN_UNPOISON_MEMORY_REGION(g.block, (size_t)(g.at - g.block) + g.bytes + RED_ZONE);
    for (int i = 0; i < RED_ZONE; i++) {
        before += g.at[-1 - i] != 0xA5;
        behind += g.at[g.bytes + i] != 0xA5;
    }
    if (before || behind)
        ck_abort_msg("%d bytes written before the buffer, %d behind it", before, behind);
    free(g.block);
}

#endif
