/* SPDX-License-Identifier: Apache-2.0 */
/* Levels that are powers of two, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "natural_levels.h"

typedef struct stream {
    uint32_t word;
    unsigned held;
} stream_t;

static uint32_t magnitude_of(float x)
{
    return gw__float_bits(x) & 0x7FFFFFFFu;
}

/* ---- Powers of two ------------------------------------------------------------------------------
 */

/* Exponents, then signs. Returns how many elements are not finite: they keep their residual. */
static size_t encode_powers(const gw_natural_spec_t *spec, const float *src, float *residual,
                            size_t n, gw_quant_noise_t noise, uint8_t *dst)
{
    size_t poisoned = 0;
    memset(dst + n, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        float p = residual ? src[i] + residual[i] : src[i];
        uint32_t sign = gw__float_bits(p) >> 31;
        if (magnitude_of(p) >= 0x7F800000u) {
            dst[i] = GW_NATURAL_POISON;
            poisoned++;
            continue;
        }
        uint32_t power =
            gw__natural_power(magnitude_of(p), gw__natural_added(spec->stochastic, noise, i));
        dst[i] = (uint8_t)power;
        dst[n + i / 8] |= (uint8_t)(sign << i % 8);
        if (residual)
            residual[i] = p - gw__natural_power_value(power, sign);
    }
    return poisoned;
}

/* ---- Levels of a bucket -------------------------------------------------------------------------
 */

/* Reads p = src + residual; returns the greatest magnitude, as bits. */
static uint32_t load_bucket(const float *src, const float *residual, size_t n, float *p)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        p[i] = residual ? src[i] + residual[i] : src[i];
        most = magnitude_of(p[i]) > most ? magnitude_of(p[i]) : most;
    }
    return most;
}

static float sum_of(const float *p, size_t n)
{
    float lane[GW_NATURAL_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        float square = p[i] * p[i];
        lane[i % GW_NATURAL_LANES] += square;
    }
    for (int half = GW_NATURAL_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j] + lane[j + half];
    return lane[0];
}

static double wide_sum_of(const float *p, size_t n)
{
    double lane[GW_NATURAL_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % GW_NATURAL_LANES] += (double)p[i] * (double)p[i];
    for (int half = GW_NATURAL_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j] + lane[j + half];
    return lane[0];
}

static float scale_of(const gw_natural_spec_t *spec, const float *p, size_t n, float most)
{
    float sum = sum_of(p, n);
    if (spec->rule == GW_NATURAL_MOST || gw__natural_sum_is_ordinary(sum))
        return gw__natural_scale(spec, sum, most, n);
    return gw__natural_wide_scale(spec, wide_sum_of(p, n), most, n);
}

/* One little-endian bit stream. */
static void put(stream_t *s, uint32_t code, unsigned bits, uint8_t **dst)
{
    s->word |= code << s->held;
    for (s->held += bits; s->held >= 8; s->held -= 8, s->word >>= 8)
        *(*dst)++ = (uint8_t)s->word;
}

bool gw__natural_ref_bucket(const gw_natural_spec_t *spec, const float *src, float *residual,
                            size_t n, gw_quant_noise_t noise, uint8_t *dst)
{
    float p[GW_NATURAL_BUCKET_MAX];
    const float *step = gw__natural_step[spec->bits - GW_NATURAL_BITS_LEAST];
    stream_t stream = {0, 0};
    uint32_t most = load_bucket(src, residual, n, p);
    if (most >= 0x7F800000u) {
        memset(dst, 0, gw__natural_bytes(spec, n));
        gw__store32(dst, GW_NAN_BITS);
        return false;
    }
    float scale = scale_of(spec, p, n, gw__float_of(most));
    gw__store_float(dst, scale);
    dst += 4;
    for (size_t i = 0; i < n; i++) {
        uint32_t added = gw__natural_added(spec->stochastic, noise, i);
        uint32_t code = gw__natural_code(p[i], scale, added, spec->bits);
        put(&stream, code, spec->bits, &dst);
        if (residual)
            residual[i] = p[i] - scale * step[code];
    }
    if (stream.held)
        *dst = (uint8_t)stream.word;
    return true;
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

static GW_KERNEL_BODY size_t encode(const gw_natural_spec_t *spec, const float *src,
                                    float *residual, size_t count, uint64_t first, uint64_t key,
                                    uint8_t *dst)
{
    size_t poisoned = 0;
    uint64_t bucket = first / spec->bucket;
    for (size_t i = 0; i < count; i += spec->bucket, bucket++) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        gw_quant_noise_t noise = gw__quant_noise(key, bucket);
        float *kept = residual ? residual + i : NULL;
        if (spec->rule == GW_NATURAL_POWERS)
            poisoned += encode_powers(spec, src + i, kept, n, noise, dst);
        else
            poisoned += !gw__natural_ref_bucket(spec, src + i, kept, n, noise, dst);
        dst += gw__natural_bytes(spec, n);
    }
    return poisoned;
}

size_t gw__natural_ref_encode(const gw_natural_spec_t *spec, const float *src, float *residual,
                              size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, first, key, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Buckets. Metadata lies too far apart for the processor to see the pattern in time. */
#define VALID_AHEAD 32

bool gw__natural_ref_valid(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count)
{
    bool powers = spec->rule == GW_NATURAL_POWERS, valid = true;
    size_t stride = gw__natural_bytes(spec, spec->bucket), tail = count % spec->bucket;
    size_t used = powers ? tail : tail * spec->bits; /* bits, in the tail's last bytes */
    for (size_t i = 0; !powers && i < count; i += spec->bucket) {
        const uint8_t *scale = payload + i / spec->bucket * stride;
        __builtin_prefetch(scale + VALID_AHEAD * stride);
        valid &= gw__natural_scale_valid(gw__load32(scale));
    }
    if (used % 8) {
        const uint8_t *last =
            payload + count / spec->bucket * stride + gw__natural_bytes(spec, tail) - 1;
        valid &= *last >> used % 8 == 0;
    }
    return valid;
}

/* A sum that is NaN gets the one pattern: processors differ in whose payload they keep. */
static void put_value(float value, bool add, float *dst)
{
    if (add)
        value = *dst + value;
    *dst = value != value ? gw__float_of(GW_NAN_BITS) : value;
}

static void decode_powers(const uint8_t *src, size_t n, bool add, float *dst)
{
    for (size_t i = 0; i < n; i++)
        put_value(gw__natural_power_value(src[i], src[n + i / 8] >> i % 8 & 1), add, dst + i);
}

void gw__natural_ref_decode_bucket(const gw_natural_spec_t *spec, const uint8_t *src, size_t n,
                                   bool add, float *dst)
{
    float scale = gw__load_float(src);
    const float *step = gw__natural_step[spec->bits - GW_NATURAL_BITS_LEAST];
    stream_t stream = {0, 0};
    src += 4;
    for (size_t i = 0; i < n; i++) {
        if (stream.held < spec->bits) {
            stream.word |= (uint32_t)*src++ << stream.held;
            stream.held += 8;
        }
        put_value(scale * step[stream.word & ((1u << spec->bits) - 1)], add, dst + i);
        stream.word >>= spec->bits;
        stream.held -= spec->bits;
    }
}

static GW_KERNEL_BODY void decode(const gw_natural_spec_t *spec, const uint8_t *payload,
                                  size_t count, bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->bucket) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        if (spec->rule == GW_NATURAL_POWERS)
            decode_powers(payload, n, add, dst + i);
        else
            gw__natural_ref_decode_bucket(spec, payload, n, add, dst + i);
        payload += gw__natural_bytes(spec, n);
    }
}

void gw__natural_ref_store(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                           float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__natural_ref_add(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                         float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}
