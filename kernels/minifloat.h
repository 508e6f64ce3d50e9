/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of numbers of 4 and 8 bits and of the scales of their blocks. */
#ifndef GW_MINIFLOAT_H
#define GW_MINIFLOAT_H

#include <float.h>
#include <math.h>

#include "bytes.h"
#include "inline.h"
#include "kernels.h"

/*
 * Formats: E4M3 and E5M2 of the OCP 8-bit Floating Point Specification 1.0, E2M1 and the scale E8M0
 * of the OCP Microscaling Formats Specification 1.0; NVFP4 as NVIDIA describes it ("Pretraining
 * Large Language Models with NVFP4", 2025). All are laid out as binary32 is: sign, exponent,
 * mantissa, with denormals.
 */
typedef struct gw_minifloat {
    int mantissa, bias; /* bits of mantissa, bias of the exponent */
} gw_minifloat_t;

static GW_INLINE gw_minifloat_t gw__e4m3(void)
{
    gw_minifloat_t f = {3, 7};
    return f;
}

static GW_INLINE gw_minifloat_t gw__e5m2(void)
{
    gw_minifloat_t f = {2, 15};
    return f;
}

static GW_INLINE gw_minifloat_t gw__e2m1(void)
{
    gw_minifloat_t f = {1, 1};
    return f;
}

/* The code of the number nearest to a >= 0, ties to the even code. The caller sees to it that a is
 * within half a step of the greatest number. */
static GW_INLINE uint32_t gw__mini_code(gw_minifloat_t f, float a)
{
    int exponent = (int)(gw__float_bits(a) >> 23) - 127;
    exponent = exponent < 1 - f.bias ? 1 - f.bias : exponent;
    float steps = a * gw__float_of((uint32_t)(127 + f.mantissa - exponent) << 23); /* exact */
    int code = ((exponent + f.bias) << f.mantissa) + (int)lrintf(steps) - (1 << f.mantissa);
    return (uint32_t)code;
}

/* The number of a code without sign that is no Inf and no NaN. */
static GW_INLINE float gw__mini_value(gw_minifloat_t f, uint32_t code)
{
    int exponent = (int)(code >> f.mantissa);
    int steps = (int)code & ((1 << f.mantissa) - 1);
    if (exponent)
        steps += 1 << f.mantissa;
    else
        exponent = 1;
    return (float)steps * gw__float_of((uint32_t)(127 + exponent - f.bias - f.mantissa) << 23);
}

/* ---- fp8: one bfloat16 scale a block ------------------------------------------------------------
 */

/*
 * The scale is greatest magnitude / greatest code, rounded up to bfloat16. With its 8 bits of
 * mantissa and the 4 of a code every product is exact unless it is a denormal, so that decoding
 * rounds nothing. No magnitude comes out above 449 (57344 * 449 / 448), so that no code saturates.
 */
#define GW_FP8_SCALE_LEAST FLT_MIN     /* its reciprocal is finite */
#define GW_E4M3_SCALE_MOST 0x1.24p119f /* times 448 is finite */
#define GW_E5M2_SCALE_MOST 0x1.24p112f /* times 57344 is finite */

static GW_INLINE float gw__fp8_scale(gw_float_format_t format, float most)
{
    bool wide = format == GW_FLOAT_E5M2;
    if (most == 0.0f)
        return 0.0f;
    float limit = wide ? GW_E5M2_SCALE_MOST : GW_E4M3_SCALE_MOST;
    uint32_t bits = gw__float_bits(most / (wide ? 57344.0f : 448.0f));
    float scale = gw__float_of((bits + 0xFFFFu) & 0xFFFF0000u);
    scale = scale < GW_FP8_SCALE_LEAST ? GW_FP8_SCALE_LEAST : scale;
    return scale > limit ? limit : scale;
}

/* Whether an encoder can have written this scale. The NaN marks a poisoned block. */
static GW_INLINE bool gw__fp8_scale_valid(gw_float_format_t format, uint32_t bits16)
{
    float limit = format == GW_FLOAT_E5M2 ? GW_E5M2_SCALE_MOST : GW_E4M3_SCALE_MOST;
    bool normal = bits16 >= 0x0080u && bits16 <= gw__float_bits(limit) >> 16;
    return bits16 == 0 || normal || bits16 == GW_NAN_BITS >> 16;
}

static GW_INLINE gw_minifloat_t gw__fp8_format(gw_float_format_t format)
{
    return format == GW_FLOAT_E5M2 ? gw__e5m2() : gw__e4m3();
}

/* Of a value in units of the scale. */
static GW_INLINE uint32_t gw__fp8_code(gw_float_format_t format, float t)
{
    uint32_t sign = gw__float_bits(t) >> 31;
    return sign << 7 | gw__mini_code(gw__fp8_format(format), fabsf(t));
}

/* The value of a code, whatever it is: E4M3 has one NaN, E5M2 has Inf and NaN as binary32 has. */
static GW_INLINE float gw__fp8_value(gw_float_format_t format, uint32_t code)
{
    uint32_t magnitude = code & 0x7F, special = format == GW_FLOAT_E5M2 ? 0x7C : 0x7F;
    bool infinite = format == GW_FLOAT_E5M2 && magnitude == special;
    float value = magnitude < special ? gw__mini_value(gw__fp8_format(format), magnitude)
                                      : gw__float_of(infinite ? 0x7F800000u : GW_NAN_BITS);
    return code & 0x80 ? -value : value;
}

/* ---- fp4: one byte of scale a block, and for NVFP4 one binary32 a group -------------------------
 */

#define GW_FP4_POISON_MX    0xFFu
#define GW_FP4_POISON_NV    0x7Fu
#define GW_MXFP4_SCALE_MOST 252u /* 2^125: times 6 is finite */
/* Scales of groups: the least block scale has a finite reciprocal, and 448 * 6 times the greatest
 * is finite. */
#define GW_NVFP4_SCALE_LEAST 0x1p-116f
#define GW_NVFP4_SCALE_MOST  0x1.86p116f

/* Of a value in units of the scale; beyond 6 it saturates. */
static GW_INLINE uint32_t gw__fp4_code(float t)
{
    float a = fabsf(t) > 6.0f ? 6.0f : fabsf(t);
    return gw__float_bits(t) >> 31 << 3 | gw__mini_code(gw__e2m1(), a);
}

static GW_INLINE float gw__fp4_value(uint32_t code)
{
    float value = gw__mini_value(gw__e2m1(), code & 7u);
    return code & 8u ? -value : value;
}

static GW_INLINE unsigned gw__fp4_block(const gw_float_spec_t *spec)
{
    return spec->format == GW_FLOAT_NVFP4 ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK;
}

static GW_INLINE float gw__nvfp4_group_scale(float most)
{
    float scale = most / 2688.0f;
    scale = scale < GW_NVFP4_SCALE_LEAST ? GW_NVFP4_SCALE_LEAST : scale;
    return scale > GW_NVFP4_SCALE_MOST ? GW_NVFP4_SCALE_MOST : scale;
}

/* most / 6 in units of the group's scale, as E4M3; `inverse` is 1 / (6 * scale of the group). */
static GW_INLINE uint32_t gw__nvfp4_scale_code(float most, float inverse)
{
    float scale = most * inverse;
    return gw__mini_code(gw__e4m3(), scale > 448.0f ? 448.0f : scale);
}

/* floor(log2(most)) - 2, biased by 127; the least one also for zeros and denormals. */
static GW_INLINE uint32_t gw__mxfp4_scale_code(float most)
{
    uint32_t exponent = gw__float_bits(most) >> 23;
    return exponent > 2 ? exponent - 2 : 0;
}

/* The factor that a scale stands for; `group` is NVFP4's. The marker of a poisoned block gives NaN.
 */
static GW_INLINE float gw__fp4_scale(gw_float_format_t format, uint32_t code, float group)
{
    if (format == GW_FLOAT_NVFP4)
        return code == GW_FP4_POISON_NV ? gw__float_of(GW_NAN_BITS)
                                        : group * gw__mini_value(gw__e4m3(), code);
    if (code == GW_FP4_POISON_MX)
        return gw__float_of(GW_NAN_BITS);
    return gw__float_of(code ? code << 23 : 0x00400000u);
}

static GW_INLINE bool gw__fp4_scale_valid(gw_float_format_t format, uint32_t code)
{
    if (format == GW_FLOAT_NVFP4)
        return code <= GW_FP4_POISON_NV;
    return code <= GW_MXFP4_SCALE_MOST || code == GW_FP4_POISON_MX;
}

static GW_INLINE bool gw__nvfp4_group_valid(uint32_t bits)
{
    return bits >= gw__float_bits(GW_NVFP4_SCALE_LEAST) &&
           bits <= gw__float_bits(GW_NVFP4_SCALE_MOST);
}

#endif
