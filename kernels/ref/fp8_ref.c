/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with a scale a block, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "minifloat.h"

/* Reads p = src + residual; returns the bits of the greatest magnitude. */
static uint32_t load_block(const float *src, const float *residual, size_t n, float *p)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        p[i] = residual ? src[i] + residual[i] : src[i];
        uint32_t magnitude = gw__float_bits(p[i]) & 0x7FFFFFFFu;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

static void code_block(const gw_float_spec_t *spec, float scale, const float *p, float *residual,
                       size_t n, uint8_t *code)
{
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < n; i++) {
        code[i] = (uint8_t)gw__fp8_code(spec->format, p[i] * inverse);
        if (residual)
            residual[i] = p[i] - scale * gw__fp8_value(spec->format, code[i]);
    }
}

/* Returns whether all values were finite. */
static bool encode_block(const gw_float_spec_t *spec, const float *src, float *residual, size_t n,
                         uint8_t *dst)
{
    float p[GW_FLOAT_BLOCK_MAX];
    uint32_t most = load_block(src, residual, n, p);
    if (most >= 0x7F800000u) {
        gw__store16(dst, GW_NAN_BITS >> 16);
        memset(dst + GW_FP8_META_BYTES, 0, n);
        return false;
    }
    float scale = gw__fp8_scale(spec->format, gw__float_of(most));
    gw__store16(dst, (uint16_t)(gw__float_bits(scale) >> 16));
    code_block(spec, scale, p, residual, n, dst + GW_FP8_META_BYTES);
    return true;
}

static GW_KERNEL_BODY size_t encode(const gw_float_spec_t *spec, const float *src, float *residual,
                                    size_t count, uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i += spec->block) {
        size_t n = count - i < spec->block ? count - i : spec->block;
        poisoned += !encode_block(spec, src + i, residual ? residual + i : NULL, n, dst);
        dst += gw__float_bytes(spec, n);
    }
    return poisoned;
}

size_t gw__fp8_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

/* Blocks. Scales lie too far apart for the processor to see the pattern in time. */
#define VALID_AHEAD 32

bool gw__fp8_ref_valid(const gw_float_spec_t *spec, const uint8_t *payload, size_t count)
{
    size_t stride = gw__float_bytes(spec, spec->block);
    size_t blocks = (count + spec->block - 1) / spec->block;
    bool valid = true;
    for (size_t i = 0; i < blocks; i++) {
        __builtin_prefetch(payload + (i + VALID_AHEAD) * stride);
        valid &= gw__fp8_scale_valid(spec->format, gw__load16(payload + i * stride));
    }
    return valid;
}

/* Whatever is NaN gets the one pattern. */
static void decode_block(const gw_float_spec_t *spec, const uint8_t *src, size_t n, bool add,
                         float *dst)
{
    float scale = gw__float_of((uint32_t)gw__load16(src) << 16);
    for (size_t i = 0; i < n; i++) {
        float value = scale * gw__fp8_value(spec->format, src[GW_FP8_META_BYTES + i]);
        if (add)
            value = dst[i] + value;
        dst[i] = value != value ? gw__float_of(GW_NAN_BITS) : value;
    }
}

static GW_KERNEL_BODY void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                                  bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->block) {
        size_t n = count - i < spec->block ? count - i : spec->block;
        decode_block(spec, payload, n, add, dst + i);
        payload += gw__float_bytes(spec, n);
    }
}

void gw__fp8_ref_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__fp8_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}
