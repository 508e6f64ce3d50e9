/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks at Lloyd-Max levels, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "rotate_block.h"

/* A block on its way: n elements of the call, m of them with the zeros behind. */
typedef struct block {
    const gw_rotate_spec_t *spec;
    size_t n, m;
} block_t;

static block_t block_of(const gw_rotate_spec_t *spec, size_t n)
{
    return (block_t){spec, n, gw__rotate_padded(n)};
}

static void turn_signs(const block_t *b, float *x)
{
    uint64_t start = gw__rotate_start(b->spec->seed), word = 0;
    for (size_t i = 0; i < b->m; i++, word >>= 1) {
        if (i % 64 == 0)
            word = gw__rotate_signs(start, i / 64);
        x[i] = gw__float_of(gw__float_bits(x[i]) ^ (uint32_t)(word & 1) << 31);
    }
}

static void hadamard(float *z, size_t m)
{
    for (size_t h = 1; h < m; h *= 2)
        for (size_t i = 0; i < m; i += 2 * h)
            for (size_t j = i; j < i + h; j++) {
                float a = z[j], b = z[j + h];
                z[j] = a + b;
                z[j + h] = a - b;
            }
}

static float sum_of_products(const float *a, const float *b, size_t m)
{
    float lane[GW_ROTATE_LANES] = {0};
    for (size_t i = 0; i < m; i++) {
        float product = a[i] * b[i];
        lane[i % GW_ROTATE_LANES] += product;
    }
    return gw__rotate_fold(lane);
}

/* ---- Bits ---------------------------------------------------------------------------------------
 */

/* One little-endian bit stream: code j at bit j * bits. m * bits is a multiple of 8. */
static void pack(const uint8_t *code, size_t m, unsigned bits, uint8_t *dst)
{
    uint32_t word = 0;
    unsigned held = 0;
    for (size_t i = 0; i < m; i++) {
        word |= (uint32_t)code[i] << held;
        for (held += bits; held >= 8; held -= 8, word >>= 8)
            *dst++ = (uint8_t)word;
    }
}

static void unpack(const uint8_t *src, size_t m, unsigned bits, uint8_t *code)
{
    uint32_t word = 0, mask = (1u << bits) - 1;
    unsigned held = 0;
    for (size_t i = 0; i < m; i++) {
        if (held < bits) {
            word |= (uint32_t)*src++ << held;
            held += 8;
        }
        code[i] = (uint8_t)(word & mask);
        word >>= bits;
        held -= bits;
    }
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* The values of a block with a scale above 0. */
static void decode_values(const block_t *b, const uint8_t *src, float *x)
{
    uint8_t code[GW_ROTATE_BLOCK_MAX];
    unsigned bits = b->spec->bits;
    gw_rotate_decoding_t d = gw__rotate_decoding(gw__load_float(src), b->m);
    unpack(src + GW_ROTATE_META_BYTES, b->m, bits, code);
    for (size_t i = 0; i < b->m; i++)
        x[i] = gw__rotate_value(gw__rotate_level[bits - 1], d.factor, bits, code[i]);
    hadamard(x, b->m);
    turn_signs(b, x);
    for (size_t i = 0; d.back != 1.0f && i < b->m; i++)
        x[i] = gw__rotate_limited(x[i] * d.back);
}

void gw__rotate_ref_decode_block(const gw_rotate_spec_t *spec, const uint8_t *src, size_t n,
                                 bool add, float *dst)
{
    float x[GW_ROTATE_BLOCK_MAX] = {0};
    block_t b = block_of(spec, n);
    float scale = gw__load_float(src);
    if (scale > 0.0f)
        decode_values(&b, src, x);
    for (size_t i = 0; i < n; i++) {
        float value = add ? dst[i] + x[i] : x[i];
        dst[i] = value != value || scale != scale ? gw__float_of(GW_NAN_BITS) : value;
    }
}

static GW_KERNEL_BODY void decode(const gw_rotate_spec_t *spec, const uint8_t *payload,
                                  size_t count, bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->block) {
        size_t n = count - i < spec->block ? count - i : spec->block;
        gw__rotate_ref_decode_block(spec, payload, n, add, dst + i);
        payload += gw__rotate_bytes(spec->bits, n);
    }
}

void gw__rotate_ref_store(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                          float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__rotate_ref_add(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}

/* Blocks. Scales lie too far apart for the processor to see the pattern in time. */
#define VALID_AHEAD 32

bool gw__rotate_ref_valid(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count)
{
    size_t stride = gw__rotate_bytes(spec->bits, spec->block);
    bool valid = true;
    for (size_t i = 0; i < count; i += spec->block, payload += stride) {
        __builtin_prefetch(payload + VALID_AHEAD * stride);
        valid &= gw__rotate_scale_valid(gw__load32(payload));
    }
    return valid;
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* Reads p = src + residual, zeros behind; returns the greatest magnitude, as bits. */
static uint32_t load_block(const block_t *b, const float *src, const float *residual, float *p)
{
    uint32_t top = 0;
    for (size_t i = 0; i < b->m; i++) {
        p[i] = i >= b->n ? 0.0f : residual ? src[i] + residual[i] : src[i];
        uint32_t magnitude = gw__float_bits(p[i]) & 0x7FFFFFFFu;
        top = magnitude > top ? magnitude : top;
    }
    return top;
}

/* How many thresholds are not above the magnitude. */
static uint32_t find_level(unsigned bits, float magnitude)
{
    uint32_t low = 0, high = 1u << (bits - 1);
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (gw__float_bits(magnitude) >= gw__rotate_threshold[bits - 1][middle])
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Rotates x, codes it to dst and returns its scale. x is spoilt. */
static float code_block(const block_t *b, float squares, float *x, uint8_t *dst)
{
    float level[GW_ROTATE_BLOCK_MAX];
    uint8_t code[GW_ROTATE_BLOCK_MAX];
    unsigned bits = b->spec->bits;
    float r = sqrtf(squares), inverse = 1.0f / r;
    turn_signs(b, x);
    hadamard(x, b->m);
    for (size_t i = 0; i < b->m; i++) {
        float t = x[i] * inverse;
        x[i] = fabsf(t);
        uint32_t q = find_level(bits, x[i]);
        level[i] = gw__rotate_level[bits - 1][q];
        code[i] = (uint8_t)(q | gw__float_bits(t) >> 31 << (bits - 1));
    }
    pack(code, b->m, bits, dst);
    return gw__rotate_scale(r, sum_of_products(level, x, b->m), sum_of_products(level, level, b->m),
                            b->m, b->spec->unbiased);
}

/* As code_block for finite values of any magnitude, not all of them 0: makes the greatest one 1 to
 * 2 by a power of two first. */
static float code_any(const block_t *b, uint32_t top, float *x, uint8_t *dst)
{
    int exponent = gw__rotate_exponent(top);
    for (size_t i = 0; i < b->m; i++)
        x[i] = (float)((double)x[i] * gw__rotate_wide_power(-exponent));
    return gw__rotate_scale_times(code_block(b, sum_of_products(x, x, b->m), x, dst), exponent);
}

/* What was lost stays finite also where it exceeds FLT_MAX. */
static void keep_loss(const block_t *b, const float *src, const uint8_t *payload, float *residual)
{
    float x[GW_ROTATE_BLOCK_MAX] = {0};
    if (gw__load_float(payload) > 0.0f)
        decode_values(b, payload, x);
    for (size_t i = 0; i < b->n; i++) {
        float p = src[i] + residual[i];
        residual[i] = gw__rotate_limited(p - x[i]);
    }
}

bool gw__rotate_ref_block(const gw_rotate_spec_t *spec, const float *src, float *residual, size_t n,
                          uint8_t *dst)
{
    float x[GW_ROTATE_BLOCK_MAX], scale = 0.0f;
    block_t b = block_of(spec, n);
    uint32_t top = load_block(&b, src, residual, x);
    uint8_t *codes = dst + GW_ROTATE_META_BYTES;
    float squares = sum_of_products(x, x, b.m);
    if (top >= 0x7F800000u || top == 0)
        memset(codes, 0, b.m * spec->bits / 8);
    else if (gw__rotate_is_ordinary(squares))
        scale = code_block(&b, squares, x, codes);
    else
        scale = code_any(&b, top, x, codes);
    gw__store_float(dst, top >= 0x7F800000u ? gw__float_of(GW_NAN_BITS) : scale);
    if (residual && top < 0x7F800000u)
        keep_loss(&b, src, dst, residual);
    return top < 0x7F800000u;
}

static GW_KERNEL_BODY size_t encode(const gw_rotate_spec_t *spec, const float *src, float *residual,
                                    size_t count, uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i += spec->block) {
        size_t n = count - i < spec->block ? count - i : spec->block;
        poisoned += !gw__rotate_ref_block(spec, src + i, residual ? residual + i : NULL, n, dst);
        dst += gw__rotate_bytes(spec->bits, n);
    }
    return poisoned;
}

size_t gw__rotate_ref_encode(const gw_rotate_spec_t *spec, const float *src, float *residual,
                             size_t count, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}
