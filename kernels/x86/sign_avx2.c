/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element with AVX2: the bytes of ref/sign_ref.c. */
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

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

/* The sign bits of a group, in order. Saturation keeps signs; both packs deal out groups of four.
 */
INLINE uint32_t signs_of(const __m256 p[4])
{
    __m256i low = _mm256_packs_epi32(_mm256_castps_si256(p[0]), _mm256_castps_si256(p[1]));
    __m256i high = _mm256_packs_epi32(_mm256_castps_si256(p[2]), _mm256_castps_si256(p[3]));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i dealt = _mm256_packs_epi16(low, high);
    return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(dealt, order));
}

INLINE float fold(const __m256 sum[4])
{
    __m256 lane8 = _mm256_add_ps(_mm256_add_ps(sum[0], sum[2]), _mm256_add_ps(sum[1], sum[3]));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

/* Signs and zero mask to dst; returns the sum of magnitudes in the reference's order. */
INLINE float scan(const float *src, const float *residual, size_t n, uint8_t *dst, size_t *zeros,
                  bool ef)
{
    __m256 zero_ps = _mm256_setzero_ps(), sum[4] = {zero_ps, zero_ps, zero_ps, zero_ps};
    uint8_t *signs = dst + gw__sign_meta_bytes(n), *mask = dst + 4;
    uint32_t bits = 0;
    *zeros = 0;
    for (size_t i = 0; i < n; i += 32) {
        __m256 p[4], any = zero_ps;
        prefetch(src + i);
        if (ef)
            prefetch(residual + i);
        for (size_t k = 0; k < 4; k++) {
            p[k] = load_p(src, residual, i + 8 * k, ef);
            __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), p[k]);
            any = _mm256_or_ps(any, magnitude);
            sum[k] = _mm256_add_ps(sum[k], magnitude);
        }
        __m256i each = _mm256_castps_si256(any);
        uint32_t zero = (uint32_t)_mm256_testz_si256(each, each), word = signs_of(p);
        gw__store32(signs + i / 8, zero ? 0 : word);
        *zeros += zero;
        bits |= zero << i / 32 % 8;
        if (i / 32 % 8 == 7 || i + 32 == n) {
            mask[i / 256] = (uint8_t)bits;
            bits = 0;
        }
    }
    return fold(sum);
}

/* Eight of the 32 values of a group: `scale` with the signs of bits 8 k .. 8 k + 7. */
INLINE __m256 pick(__m256 scale, __m256i word, int k)
{
    __m256i left = _mm256_sub_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                                    _mm256_set1_epi32(8 * k));
    __m256 sign = _mm256_castsi256_ps(_mm256_sllv_epi32(word, left));
    return _mm256_xor_ps(scale, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

/* The scale of a group: 0 where the mask says so. */
INLINE __m256 group_scale(__m256 scale, const uint8_t *mask, size_t group)
{
    return mask[group / 8] >> group % 8 & 1 ? _mm256_setzero_ps() : scale;
}

INLINE void keep_loss(const float *src, float *residual, size_t n, const uint8_t *dst)
{
    __m256 scale = _mm256_set1_ps(gw__load_float(dst));
    const uint8_t *signs = dst + gw__sign_meta_bytes(n);
    for (size_t i = 0; i < n; i += 32) {
        __m256 own = group_scale(scale, dst + 4, i / 32);
        __m256i word = _mm256_set1_epi32((int)gw__load32(signs + i / 8));
        for (int k = 0; k < 4; k++) {
            size_t at = i + 8 * (size_t)k;
            __m256 p = load_p(src, residual, at, true);
            _mm256_storeu_ps(residual + at, _mm256_sub_ps(p, pick(own, word, k)));
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
    __m256 scale = _mm256_set1_ps(gw__load_float(src)), unordered = _mm256_setzero_ps();
    const uint8_t *signs = src + gw__sign_meta_bytes(n);
    for (size_t i = 0; i < n; i += 32) {
        __m256 own = group_scale(scale, src + 4, i / 32);
        __m256i word = _mm256_set1_epi32((int)gw__load32(signs + i / 8));
        for (int k = 0; k < 4; k += 2) {
            float *to = dst + i + 8 * k;
            __m256 a = pick(own, word, k), b = pick(own, word, k + 1);
            if (add) {
                a = _mm256_add_ps(_mm256_loadu_ps(to), a);
                b = _mm256_add_ps(_mm256_loadu_ps(to + 8), b);
                unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
            }
            _mm256_storeu_ps(to, a);
            _mm256_storeu_ps(to + 8, b);
        }
    }
    if (add && _mm256_movemask_ps(unordered))
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

void gw__sign_avx2_fill(gw_sign_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
