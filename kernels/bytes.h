/* SPDX-License-Identifier: Apache-2.0 */
/* Unaligned access and bit views of floats. Hosts are little endian. */
#ifndef GW_BYTES_H
#define GW_BYTES_H

#include <stdint.h>
#include <string.h>

#include "inline.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Gradwire writes frames from memory order and needs a little-endian host"
#endif

static GW_INLINE uint32_t gw__float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static GW_INLINE float gw__float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static GW_INLINE uint16_t gw__load16(const void *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static GW_INLINE uint32_t gw__load32(const void *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static GW_INLINE uint64_t gw__load64(const void *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static GW_INLINE float gw__load_float(const void *p)
{
    return gw__float_of(gw__load32(p));
}

static GW_INLINE void gw__store16(void *p, uint16_t x)
{
    memcpy(p, &x, sizeof x);
}

static GW_INLINE void gw__store32(void *p, uint32_t x)
{
    memcpy(p, &x, sizeof x);
}

static GW_INLINE void gw__store64(void *p, uint64_t x)
{
    memcpy(p, &x, sizeof x);
}

static GW_INLINE void gw__store_float(void *p, float x)
{
    gw__store32(p, gw__float_bits(x));
}

#endif
