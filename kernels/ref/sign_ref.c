/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element, normative scalar tier. */
#include "ref.h"

#include <math.h>

#include "fpmode.h"
#include "sign_scale.h"

/* Reads p = src + residual; returns whether all of it is finite. */
static bool load_bucket(const float *src, const float *residual, size_t n, float *p)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        p[i] = residual ? src[i] + residual[i] : src[i];
        finite &= (gw__float_bits(p[i]) & 0x7FFFFFFFu) < 0x7F800000u;
    }
    return finite;
}

/* Sets the mask bits of groups that hold zeros alone; returns how many elements the others have. */
static size_t find_zeros(const float *p, size_t n, uint8_t *mask)
{
    size_t touched = 0;
    memset(mask, 0, gw__sign_meta_bytes(n) - 4);
    for (size_t g = 0; g < gw__sign_groups(n); g++) {
        size_t from = g * GW_SIGN_GROUP;
        size_t to = from + GW_SIGN_GROUP < n ? from + GW_SIGN_GROUP : n;
        bool zeros = true;
        for (size_t i = from; i < to; i++)
            zeros &= p[i] == 0.0f;
        if (zeros)
            mask[g / 8] |= (uint8_t)(1 << g % 8);
        else
            touched += to - from;
    }
    return touched;
}

static float sum_of(const float *p, size_t n, float factor)
{
    float lane[GW_SIGN_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % GW_SIGN_LANES] += fabsf(p[i]) * factor;
    return gw__sign_fold(lane);
}

static float scale_of(const float *p, size_t n, size_t touched)
{
    float sum = sum_of(p, n, 1.0f);
    if (sum <= FLT_MAX)
        return gw__sign_scale(sum, touched, false);
    return gw__sign_scale(sum_of(p, n, GW_SIGN_SMALLER), touched, true);
}

/* The value of an element. The sign of a scale of 0 stays, which changes no sum but that of zeros.
 */
static float value_of(const uint8_t *mask, const uint8_t *signs, float scale, size_t i)
{
    size_t g = i / GW_SIGN_GROUP;
    float value = mask[g / 8] >> g % 8 & 1 ? 0.0f : scale;
    return signs[i / 8] >> i % 8 & 1 ? -value : value;
}

/* Groups of zeros get sign bits of 0: they decode to +0, and -0 in them as well. */
static void put_signs(const float *p, size_t n, const uint8_t *mask, uint8_t *signs)
{
    memset(signs, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        size_t g = i / GW_SIGN_GROUP;
        if (gw__float_bits(p[i]) >> 31 && !(mask[g / 8] >> g % 8 & 1))
            signs[i / 8] |= (uint8_t)(1 << i % 8);
    }
}

bool gw__sign_ref_bucket(const float *src, float *residual, size_t n, uint8_t *dst)
{
    float p[GW_SIGN_BUCKET_MAX];
    uint8_t *mask = dst + 4, *signs = dst + gw__sign_meta_bytes(n);
    if (!load_bucket(src, residual, n, p)) {
        memset(dst, 0, gw__sign_bytes(n));
        gw__store32(dst, GW_NAN_BITS);
        return false;
    }
    float scale = scale_of(p, n, find_zeros(p, n, mask));
    gw__store_float(dst, scale);
    put_signs(p, n, mask, signs);
    for (size_t i = 0; residual && i < n; i++)
        residual[i] = p[i] - value_of(mask, signs, scale, i);
    return true;
}

static GW_KERNEL_BODY size_t encode(const gw_sign_spec_t *spec, const float *src, float *residual,
                                    size_t count, uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i += spec->bucket) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        poisoned += !gw__sign_ref_bucket(src + i, residual ? residual + i : NULL, n, dst);
        dst += gw__sign_bytes(n);
    }
    return poisoned;
}

size_t gw__sign_ref_encode(const gw_sign_spec_t *spec, const float *src, float *residual,
                           size_t count, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Whether the bits behind the first `used` ones of a row of bytes are 0. */
static bool rest_is_zero(const uint8_t *bytes, size_t used)
{
    return used % 8 == 0 || bytes[used / 8] >> used % 8 == 0;
}

static bool bucket_valid(const uint8_t *payload, size_t n)
{
    return gw__sign_scale_valid(gw__load32(payload)) &
           rest_is_zero(payload + 4, gw__sign_groups(n)) &
           rest_is_zero(payload + gw__sign_meta_bytes(n), n);
}

/* Buckets. Metadata lies too far apart for the processor to see the pattern in time. */
#define VALID_AHEAD 32

bool gw__sign_ref_valid(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count)
{
    size_t stride = gw__sign_bytes(spec->bucket);
    bool valid = true;
    for (size_t i = 0; i < count; i += spec->bucket, payload += stride) {
        __builtin_prefetch(payload + VALID_AHEAD * stride);
        valid &= bucket_valid(payload, count - i < spec->bucket ? count - i : spec->bucket);
    }
    return valid;
}

void gw__sign_ref_decode_bucket(const uint8_t *src, size_t n, bool add, float *dst)
{
    float scale = gw__load_float(src);
    const uint8_t *mask = src + 4, *signs = src + gw__sign_meta_bytes(n);
    for (size_t i = 0; i < n; i++) {
        float value = value_of(mask, signs, scale, i);
        if (add)
            value = dst[i] + value;
        if (scale != scale || value != value)
            value = gw__float_of(GW_NAN_BITS);
        dst[i] = value;
    }
}

static GW_KERNEL_BODY void decode(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count,
                                  bool add, float *dst)
{
    for (size_t i = 0; i < count; i += spec->bucket) {
        size_t n = count - i < spec->bucket ? count - i : spec->bucket;
        gw__sign_ref_decode_bucket(payload, n, add, dst + i);
        payload += gw__sign_bytes(n);
    }
}

void gw__sign_ref_store(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, false, dst);
    gw__fpmode_leave(mode);
}

void gw__sign_ref_add(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    decode(spec, payload, count, true, dst);
    gw__fpmode_leave(mode);
}
