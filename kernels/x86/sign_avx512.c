/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element with AVX-512 (F, BW, DQ, VL): the bytes of ref/sign_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "ref.h"
#include "sign_scale.h"

/*
 * Signs do not depend on the scale, so one pass over the input gives all of a bucket; with a
 * residual a second one, over what is then in the first level. Whole buckets are done here, a group
 * of 32 at a time; tails and buckets whose sum is not finite go to the reference.
 */

#define INLINE static inline __attribute__((always_inline))

/* Bytes from the place in work to the place prefetched, into the second level: the first has too
 * few misses in flight for a stream. */
#define AHEAD 16384

INLINE void prefetch(const float *at)
{
    _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T1);
    _mm_prefetch((const char *)at + AHEAD + 64, _MM_HINT_T1);
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

/* Signs and zero mask to dst; returns the sum of magnitudes in the reference's order. */
INLINE float scan(const float *src, const float *residual, size_t n, uint8_t *dst, size_t *zeros,
                  bool ef)
{
    __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
    uint8_t *signs = dst + gw__sign_meta_bytes(n), *mask = dst + 4;
    uint32_t bits = 0;
    *zeros = 0;
    for (size_t i = 0; i < n; i += 32) {
        prefetch(src + i);
        if (ef)
            prefetch(residual + i);
        __m512 a = load_p(src, residual, i, ef), b = load_p(src, residual, i + 16, ef);
        uint32_t word = _mm512_movepi32_mask(_mm512_castps_si512(a)) |
                        (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(b)) << 16;
        a = _mm512_abs_ps(a);
        b = _mm512_abs_ps(b);
        __m512i any = _mm512_castps_si512(_mm512_or_ps(a, b));
        uint32_t zero = _mm512_test_epi32_mask(any, any) == 0;
        gw__store32(signs + i / 8, zero ? 0 : word);
        *zeros += zero;
        bits |= zero << i / 32 % 8;
        if (i / 32 % 8 == 7 || i + 32 == n) {
            mask[i / 256] = (uint8_t)bits;
            bits = 0;
        }
        low = _mm512_add_ps(low, a);
        high = _mm512_add_ps(high, b);
    }
    __m512 lane16 = _mm512_add_ps(low, high);
    __m256 lane8 = _mm256_add_ps(_mm512_castps512_ps256(lane16), _mm512_extractf32x8_ps(lane16, 1));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

INLINE __m512 pick(__m512 plus, __m512 minus, uint32_t word)
{
    return _mm512_mask_blend_ps((__mmask16)word, plus, minus);
}

/* The scale of a group: 0 where the mask says so. */
INLINE __m512 group_scale(__m512 scale, const uint8_t *mask, size_t group)
{
    return mask[group / 8] >> group % 8 & 1 ? _mm512_setzero_ps() : scale;
}

INLINE __m512 negative(__m512 x)
{
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

INLINE void keep_loss(const float *src, float *residual, size_t n, const uint8_t *dst)
{
    __m512 scale = _mm512_set1_ps(gw__load_float(dst));
    const uint8_t *signs = dst + gw__sign_meta_bytes(n);
    for (size_t i = 0; i < n; i += 32) {
        __m512 plus = group_scale(scale, dst + 4, i / 32), minus = negative(plus);
        uint32_t word = gw__load32(signs + i / 8);
        for (size_t k = 0; k < 32; k += 16, word >>= 16) {
            __m512 p = load_p(src, residual, i + k, true);
            _mm512_storeu_ps(residual + i + k, _mm512_sub_ps(p, pick(plus, minus, word)));
        }
    }
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

/* NaN in dst keeps no payload: the sum of a bucket is cleaned when one was seen. */
static void clean_nan(float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dst[i] != dst[i])
            dst[i] = gw__float_of(GW_NAN_BITS);
}

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, bool add)
{
    __m512 scale = _mm512_set1_ps(gw__load_float(src));
    const uint8_t *signs = src + gw__sign_meta_bytes(n);
    __mmask16 unordered = 0;
    for (size_t i = 0; i < n; i += 32) {
        __m512 plus = group_scale(scale, src + 4, i / 32), minus = negative(plus);
        uint32_t word = gw__load32(signs + i / 8);
        __m512 a = pick(plus, minus, word), b = pick(plus, minus, word >> 16);
        if (add) {
            a = _mm512_add_ps(_mm512_loadu_ps(dst + i), a);
            b = _mm512_add_ps(_mm512_loadu_ps(dst + i + 16), b);
            unordered |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
        }
        _mm512_storeu_ps(dst + i, a);
        _mm512_storeu_ps(dst + i + 16, b);
    }
    if (add && unordered)
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

void gw__sign_avx512_fill(gw_sign_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
