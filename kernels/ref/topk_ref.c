/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by magnitude and sparse vectors, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "topk_values.h"

static GW_KERNEL_BODY void fold(const float *src, float *residual, size_t count)
{
    for (size_t i = 0; i < count; i++)
        residual[i] = gw__topk_folded(src[i], residual[i]);
}

void gw__topk_ref_fold(const float *src, float *residual, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    fold(src, residual, count);
    gw__fpmode_leave(mode);
}

static GW_KERNEL_BODY void correct(const float *src, float factor, float *momentum, float *residual,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (gw__topk_magnitude(src[i]) >= GW_TOPK_INF)
            continue;
        float decayed = factor * momentum[i];
        momentum[i] = gw__topk_limited(decayed + src[i]);
        if (residual)
            residual[i] = gw__topk_limited(residual[i] + momentum[i]);
    }
}

void gw__topk_ref_correct(const float *src, float factor, float *momentum, float *residual,
                          size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    correct(src, factor, momentum, residual, count);
    gw__fpmode_leave(mode);
}

size_t gw__topk_ref_count(const float *x, size_t count, uint32_t least)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += gw__topk_magnitude(x[i]) >= least;
    return found;
}

size_t gw__topk_ref_find(const float *x, size_t count, uint32_t least, uint32_t base,
                         uint32_t *index, size_t room)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (gw__topk_magnitude(x[i]) >= least) {
            if (found < room)
                index[found] = base + (uint32_t)i;
            found++;
        }
    return found;
}

/* Four tables, so that equal digits in a row do not wait for each other's store. */
static void first_digit(const float *x, size_t count, uint32_t *bin)
{
    uint32_t table[4][GW_TOPK_BINS] = {{0}};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t t = 0; t < 4; t++)
            table[t][gw__topk_magnitude(x[i + t]) >> gw__topk_shift(0)]++;
    for (; i < count; i++)
        table[0][gw__topk_magnitude(x[i]) >> gw__topk_shift(0)]++;
    for (size_t d = 0; d < GW_TOPK_BINS; d++)
        bin[d] += table[0][d] + table[1][d] + table[2][d] + table[3][d];
}

void gw__topk_ref_histogram(const float *x, size_t count, unsigned digit, uint32_t prefix,
                            uint32_t *bin)
{
    unsigned shift = gw__topk_shift(digit), bits = gw__topk_digit_bits(digit);
    if (digit == 0 && prefix == 0 && count >= 4 * GW_TOPK_BINS) {
        first_digit(x, count, bin);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t m = gw__topk_magnitude(x[i]);
        if (m >> shift >> bits == prefix)
            bin[m >> shift & ((1u << bits) - 1)]++;
    }
}

void gw__topk_ref_store(float *dst, const uint32_t *index, const float *value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[index[i]] = value[i];
}

static GW_KERNEL_BODY void add(float *dst, const uint32_t *index, const float *value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = dst[index[i]] + value[i];
        dst[index[i]] = sum != sum ? gw__float_of(GW_NAN_BITS) : sum;
    }
}

void gw__topk_ref_add(float *dst, const uint32_t *index, const float *value, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    add(dst, index, value, count);
    gw__fpmode_leave(mode);
}

static GW_KERNEL_BODY void settle(float *residual, const uint32_t *index, const float *value,
                                  const float *sent, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float *r = &residual[index[i]];
        *r = gw__topk_settled(*r, value[i], sent[i]);
    }
}

void gw__topk_ref_settle(float *residual, const uint32_t *index, const float *value,
                         const float *sent, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    settle(residual, index, value, sent, count);
    gw__fpmode_leave(mode);
}
