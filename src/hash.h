/* SPDX-License-Identifier: Apache-2.0 */
/* Two small hashes for keys: not for anything that must resist an attacker. */
#ifndef GW_HASH_H
#define GW_HASH_H

#include <stdint.h>

#include "splitmix.h"

/* The number that SplitMix64 gives for a state. */
static inline uint64_t gw__mix64(uint64_t z)
{
    return gw__splitmix(z + GW_SPLITMIX_STEP);
}

/* FNV-1a of a text. */
static inline uint64_t gw__hash_text(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    return h;
}

#endif
