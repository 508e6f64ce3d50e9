/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of sign. A tier includes it behind what a group takes. */
#ifndef GW_SIGN_X86_H
#define GW_SIGN_X86_H

#include "fpmode.h"
#include "ref.h"
#include "sign_scale.h"
#include "stream.h"

/*
 * Signs do not depend on the scale, so one pass over the input gives all of a bucket; with a
 * residual a second one, over what is then in the first level. Whole buckets are done here, a group
 * of 32 at a time; tails and buckets whose sum is not finite go to the reference.
 */

/* ---- The tier's part: groups of 32 --------------------------------------------------------------
 * lanes_t and seen_t are those of lanes_<tier>.h.
 */

/* Adds the magnitudes to the lanes; returns the signs, and in *zero whether all of it is zero. */
INLINE uint32_t take_group(const float *src, const float *residual, lanes_t *sum, uint32_t *zero,
                           bool ef);

/* residual = src + residual - what was sent. */
INLINE void lose_group(const float *src, float *residual, float scale, uint32_t signs);

/* dst = decoded, or dst += decoded. */
INLINE void decode_group(float scale, uint32_t signs, float *dst, seen_t *seen, bool add);

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* Signs and zero mask to dst; returns the sum of magnitudes in the reference's order. */
INLINE float scan(const float *src, const float *residual, size_t n, uint8_t *dst, size_t *zeros,
                  bool ef)
{
    lanes_t sum = lanes_start();
    uint8_t *signs = dst + gw__sign_meta_bytes(n), *mask = dst + 4;
    uint32_t bits = 0, zero;
    *zeros = 0;
    for (size_t i = 0; i < n; i += 32) {
        prefetch_floats(src, residual, i, 32, ef);
        uint32_t word = take_group(src + i, ef ? residual + i : NULL, &sum, &zero, ef);
        gw__store32(signs + i / 8, zero ? 0 : word);
        *zeros += zero;
        bits |= zero << i / 32 % 8;
        if (i / 32 % 8 == 7 || i + 32 == n) {
            mask[i / 256] = (uint8_t)bits;
            bits = 0;
        }
    }
    return fold(&sum);
}

/* The scale of a group: 0 where the mask says so. */
INLINE float group_scale(float scale, const uint8_t *mask, size_t group)
{
    return mask[group / 8] >> group % 8 & 1 ? 0.0f : scale;
}

INLINE void keep_loss(const float *src, float *residual, size_t n, const uint8_t *dst)
{
    float scale = gw__load_float(dst);
    const uint8_t *signs = dst + gw__sign_meta_bytes(n);
    for (size_t i = 0; i < n; i += 32)
        lose_group(src + i, residual + i, group_scale(scale, dst + 4, i / 32),
                   gw__load32(signs + i / 8));
}

INLINE size_t encode_buckets(const float *src, float *residual, size_t n, size_t buckets,
                             uint8_t *dst, bool ef)
{
    size_t poisoned = 0, stride = gw__sign_bytes(n), zeros;
    for (size_t k = 0; k < buckets; k++, src += n, dst += stride) {
        float sum = scan(src, residual, n, dst, &zeros, ef);
        if (__builtin_expect(sum <= FLT_MAX, 1)) {
            gw__store_float(dst, gw__sign_scale(sum, n - 32 * zeros, false));
            if (ef)
                keep_loss(src, residual, n, dst);
        } else {
            poisoned += !gw__sign_ref_bucket(src, residual, n, dst);
        }
        residual = ef ? residual + n : NULL;
    }
    return poisoned;
}

static GW_KERNEL_BODY size_t encode_plain(const float *src, size_t n, size_t buckets, uint8_t *dst)
{
    return encode_buckets(src, NULL, n, buckets, dst, false);
}

static GW_KERNEL_BODY size_t encode_ef(const float *src, float *residual, size_t n, size_t buckets,
                                       uint8_t *dst)
{
    return encode_buckets(src, residual, n, buckets, dst, true);
}

static size_t encode(const gw_sign_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst)
{
    size_t n = spec->bucket, buckets = count / n, done = buckets * n;
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned =
        residual ? encode_ef(src, residual, n, buckets, dst) : encode_plain(src, n, buckets, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned += gw__sign_ref_encode(spec, src + done, residual ? residual + done : NULL,
                                        count - done, dst + buckets * gw__sign_bytes(n));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, bool add)
{
    float scale = gw__load_float(src);
    const uint8_t *signs = src + gw__sign_meta_bytes(n);
    seen_t seen = seen_start();
    for (size_t i = 0; i < n; i += 32) {
        prefetch(dst + i, 32 * sizeof *dst);
        decode_group(group_scale(scale, src + 4, i / 32), gw__load32(signs + i / 8), dst + i, &seen,
                     add);
    }
    if (add && is_seen(seen))
        clean_nan(dst, n);
}

INLINE void decode_buckets(const uint8_t *payload, size_t n, size_t buckets, float *dst, bool add)
{
    size_t stride = gw__sign_bytes(n);
    for (size_t k = 0; k < buckets; k++, payload += stride, dst += n) {
        if (gw__load32(payload) == GW_NAN_BITS)
            gw__sign_ref_decode_bucket(payload, n, add, dst);
        else
            decode_bucket(payload, n, dst, add);
    }
}

static GW_KERNEL_BODY void store_buckets(const uint8_t *payload, size_t n, size_t buckets,
                                         float *dst)
{
    decode_buckets(payload, n, buckets, dst, false);
}

static GW_KERNEL_BODY void add_buckets(const uint8_t *payload, size_t n, size_t buckets, float *dst)
{
    decode_buckets(payload, n, buckets, dst, true);
}

static void store(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    size_t n = spec->bucket, buckets = count / n, done = buckets * n;
    store_buckets(payload, n, buckets, dst);
    if (done < count)
        gw__sign_ref_store(spec, payload + buckets * gw__sign_bytes(n), count - done, dst + done);
}

static void add_to(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    size_t n = spec->bucket, buckets = count / n, done = buckets * n;
    uint64_t mode = gw__fpmode_enter();
    add_buckets(payload, n, buckets, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        gw__sign_ref_add(spec, payload + buckets * gw__sign_bytes(n), count - done, dst + done);
}

#endif
