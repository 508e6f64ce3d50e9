/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with a scale for 32 (MXFP4) or 16 (NVFP4) elements, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "minifloat.h"

enum { SCALES_MAX = GW_FLOAT_BLOCK_MAX / GW_NVFP4_BLOCK };

/* A group: `n` elements whose scales lie together. */
typedef struct group {
    const gw_float_spec_t *spec;
    size_t n, block, scales;
    bool nv;
} group_t;

static group_t group_of(const gw_float_spec_t *spec, size_t n)
{
    size_t block = gw__fp4_block(spec);
    return (group_t){spec, n, block, (n + block - 1) / block, spec->format == GW_FLOAT_NVFP4};
}

/* Elements of block k. */
static size_t block_elements(const group_t *g, size_t k)
{
    size_t left = g->n - k * g->block;
    return left < g->block ? left : g->block;
}

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

/* Codes one block; `p` holds it, `first` is its place in the group. Beyond 6 a value saturates. */
static void code_block(const group_t *g, float scale, const float *p, float *residual, size_t n,
                       size_t first, uint8_t *codes)
{
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = gw__fp4_code(p[i] * inverse);
        codes[(first + i) / 2] |= (uint8_t)(code << (first + i) % 2 * 4);
        if (residual)
            residual[i] = p[i] - scale * gw__fp4_value(code);
    }
}

/* The greatest magnitudes of all blocks; returns how many have no finite one, and in `top` the
 * greatest of the others. */
static size_t find_most(const group_t *g, const float *src, const float *residual, uint32_t *most,
                        float *top)
{
    float p[GW_MXFP4_BLOCK];
    size_t poisoned = 0;
    *top = 0.0f;
    for (size_t k = 0; k < g->scales; k++) {
        size_t at = k * g->block;
        most[k] = load_block(src + at, residual ? residual + at : NULL, block_elements(g, k), p);
        if (most[k] >= 0x7F800000u)
            poisoned++;
        else
            *top = fmaxf(*top, gw__float_of(most[k]));
    }
    return poisoned;
}

static uint32_t scale_code(const group_t *g, uint32_t most, float inverse)
{
    if (most >= 0x7F800000u)
        return g->nv ? GW_FP4_POISON_NV : GW_FP4_POISON_MX;
    return g->nv ? gw__nvfp4_scale_code(gw__float_of(most), inverse)
                 : gw__mxfp4_scale_code(gw__float_of(most));
}

static size_t encode_group(const group_t *g, const float *src, float *residual, uint8_t *dst)
{
    uint32_t most[SCALES_MAX];
    float p[GW_MXFP4_BLOCK], top;
    size_t poisoned = find_most(g, src, residual, most, &top);
    float group = gw__nvfp4_group_scale(top), inverse = 1.0f / (6.0f * group);
    if (g->nv) {
        gw__store_float(dst, group);
        dst += GW_NVFP4_META_BYTES;
    }
    uint8_t *codes = dst + g->scales;
    memset(codes, 0, (g->n + 1) / 2);
    for (size_t k = 0; k < g->scales; k++) {
        size_t at = k * g->block, n = block_elements(g, k);
        float *kept = residual ? residual + at : NULL;
        dst[k] = (uint8_t)scale_code(g, most[k], inverse);
        if (most[k] >= 0x7F800000u)
            continue;
        load_block(src + at, kept, n, p);
        code_block(g, gw__fp4_scale(g->spec->format, dst[k], group), p, kept, n, at, codes);
    }
    return poisoned;
}

static GW_KERNEL_BODY size_t encode(const gw_float_spec_t *spec, const float *src, float *residual,
                                    size_t count, uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i += spec->block) {
        group_t g = group_of(spec, count - i < spec->block ? count - i : spec->block);
        poisoned += encode_group(&g, src + i, residual ? residual + i : NULL, dst);
        dst += gw__float_bytes(spec, g.n);
    }
    return poisoned;
}

size_t gw__fp4_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

/* Sixteen scales at once: compilers make vectors of a row of known length. */
static bool row_valid(gw_float_format_t format, const uint8_t *scale)
{
    uint8_t wrong = 0;
    if (format == GW_FLOAT_NVFP4)
        for (int k = 0; k < 16; k++)
            wrong |= scale[k] & 0x80;
    else
        for (int k = 0; k < 16; k++)
            wrong |= (uint8_t)((scale[k] > GW_MXFP4_SCALE_MOST) & (scale[k] != GW_FP4_POISON_MX));
    return !wrong;
}

static bool scales_valid(const group_t *g, const uint8_t *scale)
{
    bool valid = true;
    size_t k = 0;
    for (; k + 16 <= g->scales; k += 16)
        valid &= row_valid(g->spec->format, scale + k);
    for (; k < g->scales; k++)
        valid &= gw__fp4_scale_valid(g->spec->format, scale[k]);
    return valid;
}

/* Groups from the one in work to the one that is prefetched. */
#define VALID_AHEAD 16

bool gw__fp4_ref_valid(const gw_float_spec_t *spec, const uint8_t *payload, size_t count)
{
    bool valid = true;
    for (size_t i = 0; i < count; i += spec->block) {
        group_t g = group_of(spec, count - i < spec->block ? count - i : spec->block);
        size_t bytes = gw__float_bytes(spec, g.n), meta = g.nv ? GW_NVFP4_META_BYTES : 0;
        __builtin_prefetch(payload + VALID_AHEAD * bytes);
        __builtin_prefetch(payload + VALID_AHEAD * bytes + meta + g.scales);
        if (g.nv)
            valid &= gw__nvfp4_group_valid(gw__load32(payload));
        valid &= scales_valid(&g, payload + meta);
        if (g.n % 2)
            valid &= payload[bytes - 1] >> 4 == 0;
        payload += bytes;
    }
    return valid;
}

/* A sum that is NaN gets the one pattern. */
static void decode_group(const group_t *g, const uint8_t *src, bool add, float *dst)
{
    float group = 0.0f;
    if (g->nv) {
        group = gw__load_float(src);
        src += GW_NVFP4_META_BYTES;
    }
    const uint8_t *codes = src + g->scales;
    for (size_t i = 0; i < g->n; i++) {
        uint32_t code = codes[i / 2] >> i % 2 * 4 & 15u;
        float value =
            gw__fp4_scale(g->spec->format, src[i / g->block], group) * gw__fp4_value(code);
        if (add)
            value = dst[i] + value;
        dst[i] = value != value ? gw__float_of(GW_NAN_BITS) : value;
    }
}

static GW_KERNEL_BODY void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                                  bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->block) {
        group_t g = group_of(spec, count - i < spec->block ? count - i : spec->block);
        decode_group(&g, payload, add, dst + i);
        payload += gw__float_bytes(spec, g.n);
    }
}

void gw__fp4_ref_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__fp4_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}
