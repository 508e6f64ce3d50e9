/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents in four bits, normative scalar tier: the distance from the greatest exponent of a
 * block, with an escape. */
#include "ref.h"

#include "bytes.h"
#include "lossless_walk.h"

/* An element's exponent, and the other bits as its type keeps them apart. */
static unsigned exponent_of(gw_dtype_t dtype, uint32_t x)
{
    if (dtype == GW_F32)
        return x >> 23 & 0xFF;
    return dtype == GW_F16 ? x >> 10 & 0x1F : x >> 7 & 0xFF;
}

static uint32_t load(gw_dtype_t dtype, const uint8_t *src, size_t i)
{
    return dtype == GW_F32 ? gw__load32(src + 4 * i) : gw__load16(src + 2 * i);
}

static void store(gw_dtype_t dtype, uint8_t *dst, size_t i, uint32_t x)
{
    if (dtype == GW_F32)
        gw__store32(dst + 4 * i, x);
    else
        gw__store16(dst + 2 * i, (uint16_t)x);
}

static unsigned code_of(unsigned base, unsigned exponent)
{
    unsigned distance = base - exponent;
    if (exponent == 0)
        return GW_LOSSLESS_ZERO;
    return distance < GW_LOSSLESS_ZERO ? distance : GW_LOSSLESS_FAR;
}

/* Everything but the exponent of element i. */
static void put_rest(gw_dtype_t dtype, uint32_t x, size_t i, size_t n, uint8_t *block)
{
    gw_lossless_at_t at = gw__lossless_at(dtype, n);
    if (dtype == GW_F16) {
        size_t plane = (n + 7) / 8, bit = i % 8;
        block[at.bytes + i] = (uint8_t)x;
        uint8_t *bits = block + at.bits + i / 8;
        bits[0] |= (uint8_t)((x >> 15 & 1) << bit);
        bits[plane] |= (uint8_t)((x >> 9 & 1) << bit);
        bits[2 * plane] |= (uint8_t)((x >> 8 & 1) << bit);
        return;
    }
    uint32_t top = x;
    if (dtype == GW_F32) {
        gw__store16(block + at.low + 2 * i, (uint16_t)x);
        top = x >> 16;
    }
    block[at.bytes + i] = (uint8_t)((top >> 8 & 0x80) | (top & 0x7F));
}

static uint32_t get_rest(gw_dtype_t dtype, size_t i, size_t n, const uint8_t *block)
{
    gw_lossless_at_t at = gw__lossless_at(dtype, n);
    uint32_t byte = block[at.bytes + i];
    if (dtype == GW_F16) {
        size_t plane = (n + 7) / 8, bit = i % 8;
        const uint8_t *bits = block + at.bits + i / 8;
        return byte | (bits[0] >> bit & 1u) << 15 | (bits[plane] >> bit & 1u) << 9 |
               (bits[2 * plane] >> bit & 1u) << 8;
    }
    uint32_t top = (byte & 0x80) << 8 | (byte & 0x7F);
    return dtype == GW_F32 ? top << 16 | gw__load16(block + at.low + 2 * i) : top;
}

size_t gw__lossless_ref_encode_block(gw_dtype_t dtype, const uint8_t *src, size_t n, uint8_t *dst)
{
    gw_lossless_at_t at = gw__lossless_at(dtype, n);
    uint32_t any = 0;
    unsigned base = 0;
    size_t far = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned e = exponent_of(dtype, load(dtype, src, i));
        any |= load(dtype, src, i);
        base = e > base ? e : base;
    }
    for (size_t i = 0; i < n; i++)
        far += code_of(base, exponent_of(dtype, load(dtype, src, i))) == GW_LOSSLESS_FAR;
    if (!any)
        return gw__lossless_put_zeros(dst);
    if (!gw__lossless_pays(dtype, n, far))
        return gw__lossless_put_raw(dtype, src, n, dst);
    dst[0] = (uint8_t)base;
    dst[1] = (uint8_t)far;
    memset(dst + at.codes, 0, at.low - at.codes);
    memset(dst + at.bits, 0, at.far - at.bits);
    uint8_t *out = dst + at.far;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = load(dtype, src, i);
        unsigned e = exponent_of(dtype, x), code = code_of(base, e);
        dst[at.codes + i / 2] |= (uint8_t)(code << i % 2 * 4);
        if (code == GW_LOSSLESS_FAR)
            *out++ = (uint8_t)e;
        put_rest(dtype, x, i, n, dst);
    }
    return at.far + far;
}

/* Exponents wrap within their bits: every payload with the right counts has one meaning. */
size_t gw__lossless_ref_decode_block(gw_dtype_t dtype, const uint8_t *block, size_t n, uint8_t *dst)
{
    gw_lossless_at_t at = gw__lossless_at(dtype, n);
    unsigned mask = dtype == GW_F16 ? 0x1F : 0xFF;
    unsigned shift = dtype == GW_F32 ? 23 : dtype == GW_F16 ? 10 : 7;
    const uint8_t *far = block + at.far;
    if (gw__lossless_get_plain(dtype, block, n, dst))
        return gw__lossless_bytes(dtype, n, block);
    for (size_t i = 0; i < n; i++) {
        unsigned code = block[at.codes + i / 2] >> i % 2 * 4 & 0xF;
        unsigned e = block[0] - code;
        if (code == GW_LOSSLESS_ZERO)
            e = 0;
        else if (code == GW_LOSSLESS_FAR)
            e = *far++;
        store(dtype, dst, i, get_rest(dtype, i, n, block) | (e & mask) << shift);
    }
    return gw__lossless_bytes(dtype, n, block);
}

size_t gw__lossless_ref_encode(gw_dtype_t dtype, const void *src, size_t count, uint8_t *dst)
{
    const uint8_t *from = src;
    size_t used = 0;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK)
        used += gw__lossless_ref_encode_block(dtype, from + i * gw__lossless_wide(dtype),
                                              gw__lossless_elements(i, count), dst + used);
    return used;
}

static size_t count_far(const uint8_t *codes)
{
    size_t far = 0;
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK / 2; i++)
        far += (codes[i] >= 0xF0) + ((codes[i] & 0xF) == 0xF);
    return far;
}

bool gw__lossless_ref_valid(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count)
{
    return gw__lossless_walk(dtype, blocks, length, count, count_far);
}

size_t gw__lossless_ref_decode(gw_dtype_t dtype, const uint8_t *blocks, size_t count, void *dst)
{
    uint8_t *to = dst;
    size_t used = 0;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK)
        used += gw__lossless_ref_decode_block(dtype, blocks + used, gw__lossless_elements(i, count),
                                              to + i * gw__lossless_wide(dtype));
    return used;
}
