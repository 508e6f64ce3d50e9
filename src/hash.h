/* SPDX-License-Identifier: Apache-2.0 */
/* Two small hashes for keys: not for anything that must resist an attacker. */
#ifndef GW_HASH_H
#define GW_HASH_H

#include <stdint.h>

/* The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
 * 2014). */
static inline uint64_t gw__mix64(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
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
