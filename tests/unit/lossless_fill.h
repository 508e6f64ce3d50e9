/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for the tests of lossless: elements by their bits, so that exponents are near, far or
 * anything. */
#ifndef LOSSLESS_FILL_H
#define LOSSLESS_FILL_H

#include "bytes.h"
#include "kernels.h"
#include "quant_fill.h"

typedef enum lossless_fill {
    LOSSLESS_FLOATS, /* test_fill, narrowed */
    LOSSLESS_ANY,    /* any bits: every block is raw */
    LOSSLESS_NEAR,   /* all within 14 binades: no exponent is written out */
    LOSSLESS_FAR,    /* as many far exponents in a block as there may be, or one more or less */
    LOSSLESS_SPARSE, /* mostly zeros of both signs, denormals among them */
    LOSSLESS_WILD,   /* few elements that are anything: NaN, Inf, huge */
    LOSSLESS_EQUAL,  /* all exponents the same */
    LOSSLESS_ROWS,   /* rows of 256 that are all 0 but for a -0 or a denormal now and then */
    LOSSLESS_FILLS
} lossless_fill_t;

typedef struct lossless_type {
    gw_dtype_t dtype;
    size_t bytes;
    unsigned mantissa, exponents; /* bits of it; greatest exponent */
    size_t far_max;               /* far exponents that a whole coded block may have */
} lossless_type_t;

static const lossless_type_t lossless_types[3] = {
    {GW_F32, 4, 23, 255, 253}, {GW_F16, 2, 10, 31, 63}, {GW_BF16, 2, 7, 255, 253}};

static inline uint32_t lossless_bits(const lossless_type_t *t, unsigned exponent, uint64_t *seed)
{
    uint32_t any = (uint32_t)gw_test_random(seed);
    uint32_t mantissa = any & ((1u << t->mantissa) - 1);
    return (any >> 31) << (8 * t->bytes - 1) | exponent << t->mantissa | mantissa;
}

/* Exponents below 20 are far from a block's greatest, 31 or more. */
static inline unsigned lossless_exponent(const lossless_type_t *t, lossless_fill_t fill, bool far,
                                         uint64_t *seed)
{
    uint64_t dice = gw_test_random(seed);
    switch (fill) {
    case LOSSLESS_NEAR:
        return t->exponents - 1 - dice % 14;
    case LOSSLESS_FAR:
        return far ? 1 + dice % (t->exponents - 16) : t->exponents - dice % 14;
    case LOSSLESS_SPARSE:
        return dice % 8 ? 0 : 12 + dice / 8 % 6;
    case LOSSLESS_WILD:
        return dice % 300 ? t->exponents / 2 : (unsigned)(dice / 300 % (t->exponents + 1));
    case LOSSLESS_EQUAL:
        return t->exponents / 3;
    default:
        return (unsigned)(dice % (t->exponents + 1));
    }
}

static inline void lossless_store(const lossless_type_t *t, uint8_t *at, size_t i, uint32_t x)
{
    if (t->bytes == 4)
        gw__store32(at + 4 * i, x);
    else
        gw__store16(at + 2 * i, (uint16_t)x);
}

static inline void lossless_floats(const lossless_type_t *t, uint64_t seed, uint8_t *at,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = test_value((test_fill_t)(seed % FILL_COUNT), &seed);
        const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
        if (t->dtype == GW_F32)
            gw__store_float(at + 4 * i, x);
        else
            (t->dtype == GW_F16 ? cast->f32_to_f16 : cast->f32_to_bf16)(&x, at + 2 * i, 1);
    }
}

static inline void lossless_fill(lossless_fill_t fill, const lossless_type_t *t, uint64_t seed,
                                 uint8_t *at, size_t count)
{
    size_t far = 0, from = 0, seed_row = (size_t)(seed % 8);
    if (fill == LOSSLESS_FLOATS) {
        lossless_floats(t, seed, at, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        size_t in_block = i % GW_LOSSLESS_BLOCK;
        if (in_block == 0) { /* a run of far ones, anywhere in the block */
            far = gw_test_random(&seed) % 5 ? t->far_max + gw_test_random(&seed) % 3 - 1
                                            : gw_test_random(&seed) % GW_LOSSLESS_BLOCK;
            from = gw_test_random(&seed) % (GW_LOSSLESS_BLOCK - far);
        }
        bool is_far = in_block >= from && in_block < from + far;
        unsigned exponent = lossless_exponent(t, fill, is_far, &seed);
        if (fill == LOSSLESS_FAR && in_block == (from + far) % GW_LOSSLESS_BLOCK)
            exponent = t->exponents; /* the greatest one is there */
        uint32_t x = lossless_bits(t, exponent, &seed);
        if (fill == LOSSLESS_ROWS && (i / 256 + seed_row) % 8)
            x = gw_test_random(&seed) % 2000 ? 0 : x & ~(t->exponents << t->mantissa);
        lossless_store(t, at, i, x);
    }
}

#endif
