/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
#ifndef GW_CLOCK_H
#define GW_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t gw__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
