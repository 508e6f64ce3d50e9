/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "quant_grid.h"

/* Reads p = src + residual into `p`; returns whether all of it is finite. */
static bool load_bucket(const float *src, const float *residual, size_t n, float *p)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        p[i] = residual ? src[i] + residual[i] : src[i];
        uint32_t magnitude = gw__float_bits(p[i]) & 0x7FFFFFFFu;
        top = magnitude > top ? magnitude : top;
    }
    return top < 0x7F800000u;
}

static gw_quant_grid_t find_grid(const gw_quant_spec_t *spec, const float *p, size_t n, bool finite)
{
    float mn = INFINITY, mx = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        mn = p[i] < mn ? p[i] : mn;
        mx = p[i] > mx ? p[i] : mx;
    }
    return gw__quant_grid(spec, mn, mx, finite);
}

static void code_bucket(const gw_quant_spec_t *spec, const gw_quant_grid_t *g, const float *p,
                        size_t n, gw_quant_noise_t noise, uint8_t *code)
{
    int32_t top = (int32_t)(1u << spec->bits) - 1;
    for (size_t i = 0; i < n; i++) {
        if (spec->stochastic) {
            uint32_t pair = gw__quant_noise_pair(noise, (uint32_t)i / 2);
            code[i] = (uint8_t)gw__quant_code_stochastic(g, p[i], top,
                                                         i % 2 ? pair >> 16 : pair & 0xFFFFu);
        } else {
            code[i] = (uint8_t)gw__quant_code_nearest(g, p[i], top);
        }
    }
}

/* One little-endian bit stream: code j at bit j * bits. */
static void pack(const uint8_t *code, size_t n, unsigned bits, uint8_t *dst)
{
    uint32_t word = 0;
    unsigned held = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint32_t)code[i] << held;
        for (held += bits; held >= 8; held -= 8, word >>= 8)
            *dst++ = (uint8_t)word;
    }
    if (held)
        *dst = (uint8_t)word;
}

static void unpack(const uint8_t *src, size_t n, unsigned bits, uint8_t *code)
{
    uint32_t word = 0, mask = (1u << bits) - 1;
    unsigned held = 0;
    for (size_t i = 0; i < n; i++) {
        if (held < bits) {
            word |= (uint32_t)*src++ << held;
            held += 8;
        }
        code[i] = (uint8_t)(word & mask);
        word >>= bits;
        held -= bits;
    }
}

bool gw__quant_ref_bucket(const gw_quant_spec_t *spec, const float *src, float *residual, size_t n,
                          gw_quant_noise_t noise, uint8_t *dst)
{
    float p[GW_QUANT_BUCKET_MAX];
    uint8_t code[GW_QUANT_BUCKET_MAX];
    bool finite = load_bucket(src, residual, n, p);
    gw_quant_grid_t g = find_grid(spec, p, n, finite);
    gw__store_float(dst, g.min);
    gw__store_float(dst + 4, g.unit);
    if (finite)
        code_bucket(spec, &g, p, n, noise, code);
    else
        memset(code, 0, n);
    pack(code, n, spec->bits, dst + GW_QUANT_META_BYTES);
    for (size_t i = 0; residual && finite && i < n; i++)
        residual[i] = gw__quant_loss(&g, p[i], code[i]);
    return finite;
}

static GW_KERNEL_BODY size_t encode(const gw_quant_spec_t *spec, const float *src, float *residual,
                                    size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    size_t poisoned = 0;
    uint64_t bucket = first / spec->bucket;
    for (size_t i = 0; i < count; i += spec->bucket, bucket++) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        bool finite = gw__quant_ref_bucket(spec, src + i, residual ? residual + i : NULL, n,
                                           gw__quant_noise(key, bucket), dst);
        poisoned += !finite;
        dst += gw__quant_bytes(spec->bits, n);
    }
    return poisoned;
}

size_t gw__quant_ref_encode(const gw_quant_spec_t *spec, const float *src, float *residual,
                            size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, first, key, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

/* Buckets. Metadata lies too far apart for the processor to see the pattern in time. */
#define VALID_AHEAD 32

bool gw__quant_ref_valid(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count)
{
    size_t stride = gw__quant_bytes(spec->bits, spec->bucket);
    size_t buckets = (count + spec->bucket - 1) / spec->bucket;
    size_t tail_bits = count % spec->bucket * spec->bits;
    bool valid = true;
    for (size_t i = 0; i < buckets; i++) {
        const uint8_t *meta = payload + i * stride;
        __builtin_prefetch(meta + VALID_AHEAD * stride);
        valid &= gw__quant_meta_valid(gw__load32(meta), gw__load32(meta + 4));
    }
    if (tail_bits % 8) {
        const uint8_t *tail = payload + (buckets - 1) * stride + GW_QUANT_META_BYTES;
        valid &= tail[tail_bits / 8] >> tail_bits % 8 == 0;
    }
    return valid;
}

/* One bucket into dst. A sum that is NaN gets the one pattern: processors differ in which operand's
 * payload they keep. */
void gw__quant_ref_decode_bucket(const gw_quant_spec_t *spec, const uint8_t *src, size_t n,
                                 bool add, float *dst)
{
    uint8_t code[GW_QUANT_BUCKET_MAX];
    float min = gw__load_float(src), unit = gw__load_float(src + 4);
    bool wide = gw__quant_is_wide(min, unit, (float)((1u << spec->bits) - 1));
    unpack(src + GW_QUANT_META_BYTES, n, spec->bits, code);
    for (size_t i = 0; i < n; i++) {
        float value = gw__quant_value(min, unit, wide, code[i]);
        if (add)
            value = dst[i] + value;
        dst[i] = value != value ? gw__float_of(GW_NAN_BITS) : value;
    }
}

static GW_KERNEL_BODY void decode(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                                  bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->bucket) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        gw__quant_ref_decode_bucket(spec, payload, n, add, dst + i);
        payload += gw__quant_bytes(spec->bits, n);
    }
}

void gw__quant_ref_store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                         float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__quant_ref_add(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

static void add_own(const float *own, size_t n, bool add, float *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = add ? dst[i] + own[i] : own[i];
}

/* The n elements from `at` on. A NaN on the way poisons the bucket whatever its pattern: nothing is
 * cleaned here. */
static void sum_bucket(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, size_t at, size_t n,
                       float *dst)
{
    size_t skip = sum->skip + at / spec->bucket * gw__quant_bytes(spec->bits, spec->bucket);
    for (size_t k = 0; k < sum->payloads; k++) {
        if (k == sum->own_at)
            add_own(sum->own + at, n, k > 0, dst);
        gw__quant_ref_decode_bucket(spec, sum->payload[k] + skip, n, k || sum->own_at == 0, dst);
    }
    if (sum->own_at == sum->payloads)
        add_own(sum->own + at, n, sum->payloads > 0, dst);
    for (size_t i = 0; sum->scale != 1.0f && i < n; i++)
        dst[i] *= sum->scale;
}

size_t gw__quant_ref_refused(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, size_t at,
                             size_t n)
{
    size_t skip = sum->skip + at / spec->bucket * gw__quant_bytes(spec->bits, spec->bucket), k = 0;
    while (k < sum->payloads && gw__quant_ref_valid(spec, sum->payload[k] + skip, n))
        k++;
    return k;
}

bool gw__quant_ref_reduce_bucket(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, size_t at,
                                 float *residual, size_t n, gw_quant_noise_t noise, uint8_t *dst)
{
    float total[GW_QUANT_BUCKET_MAX];
    sum_bucket(spec, sum, at, n, total);
    return gw__quant_ref_bucket(spec, total, residual, n, noise, dst);
}

static GW_KERNEL_BODY size_t reduce(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum,
                                    float *residual, size_t count, uint64_t first, uint64_t key,
                                    uint8_t *dst, size_t *refused)
{
    size_t poisoned = 0;
    uint64_t bucket = first / spec->bucket;
    *refused = sum->payloads;
    for (size_t i = 0; i < count; i += spec->bucket, bucket++) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        *refused = gw__quant_ref_refused(spec, sum, i, n);
        if (*refused < sum->payloads)
            break;
        poisoned += !gw__quant_ref_reduce_bucket(spec, sum, i, residual ? residual + i : NULL, n,
                                                 gw__quant_noise(key, bucket), dst);
        dst += gw__quant_bytes(spec->bits, n);
    }
    return poisoned;
}

size_t gw__quant_ref_reduce(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, float *residual,
                            size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                            size_t *refused)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = reduce(spec, sum, residual, count, first, key, dst, refused);
    gw__fpmode_leave(mode);
    return poisoned;
}
