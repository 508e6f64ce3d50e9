/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks with AVX2: the bytes of ref/rotate_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "quant_avx2.h"
#include "ref.h"
#include "rotate_block.h"

/*
 * A block goes through a buffer in the first level: loaded with its signs, rotated there, coded
 * from there. Whole blocks whose magnitudes are ordinary are done here, the others by the
 * reference.
 */

/* Bytes from the place in work to the place prefetched, into the second level: the first has too
 * few misses in flight for a stream. */
#define AHEAD 16384

typedef struct job {
    const gw_rotate_spec_t *spec;
    size_t n;              /* elements of a block */
    const uint64_t *signs; /* of a block */
} job_t;

typedef enum finish { STORE, ADD, LOSS } finish_t;

/* Eight elements with the signs of bits 8 k .. 8 k + 7 of a word. */
INLINE __m256 negative_where(__m256 x, uint32_t word, int k)
{
    __m256i left = _mm256_sub_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                                    _mm256_set1_epi32(8 * k));
    __m256 sign = _mm256_castsi256_ps(_mm256_sllv_epi32(_mm256_set1_epi32((int)word), left));
    return _mm256_xor_ps(x, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

/* The lanes of the registers added up as in gw__rotate_fold(). */
INLINE float fold(const __m256 sum[4])
{
    __m256 lane8 = _mm256_add_ps(_mm256_add_ps(sum[0], sum[2]), _mm256_add_ps(sum[1], sum[3]));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

INLINE void prefetch(const float *at)
{
    _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T1);
    _mm_prefetch((const char *)at + AHEAD + 64, _MM_HINT_T1);
}

/* Bits 32 (i / 32) .. of the signs of a block. */
INLINE uint32_t signs_at(const job_t *job, size_t i)
{
    return (uint32_t)(job->signs[i / 64] >> i % 64);
}

/* The block with its signs to z; returns its sum of squares. */
INLINE float load_block(const job_t *job, const float *src, const float *residual, float *z,
                        bool ef)
{
    __m256 zero = _mm256_setzero_ps(), sum[4] = {zero, zero, zero, zero};
    for (size_t i = 0; i < job->n; i += 32) {
        uint32_t word = signs_at(job, i);
        prefetch(src + i);
        if (ef)
            prefetch(residual + i);
        for (int k = 0; k < 4; k++) {
            size_t at = i + 8 * (size_t)k;
            __m256 p = load_p(src, residual, at, ef);
            sum[k] = _mm256_add_ps(sum[k], _mm256_mul_ps(p, p));
            _mm256_store_ps(z + at, negative_where(p, word, k));
        }
    }
    return fold(sum);
}

/* ---- The transform ------------------------------------------------------------------------------
 */

/* Butterflies over 1, 2 and 4 elements. */
INLINE __m256 within(__m256 x)
{
    const float m = -0.0f;
    __m256 one = _mm256_setr_ps(0, m, 0, m, 0, m, 0, m);
    __m256 two = _mm256_setr_ps(0, 0, m, m, 0, 0, m, m);
    __m256 four = _mm256_setr_ps(0, 0, 0, 0, m, m, m, m);
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xB1), _mm256_xor_ps(x, one));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4E), _mm256_xor_ps(x, two));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 0x01), _mm256_xor_ps(x, four));
}

INLINE void butterfly(__m256 *a, __m256 *b)
{
    __m256 sum = _mm256_add_ps(*a, *b);
    *b = _mm256_sub_ps(*a, *b);
    *a = sum;
}

/* Unrolled, or the array would lie in memory. */
INLINE void between(__m256 *v, size_t h)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        if (!(i & h))
            butterfly(&v[i], &v[i + h]);
}

/* Butterflies over h, 2 h and 4 h elements between eight registers. */
INLINE void eight(float *z, size_t h, bool first)
{
    __m256 v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        v[i] = _mm256_load_ps(z + h * i);
        v[i] = first ? within(v[i]) : v[i];
    }
    between(v, 1);
    between(v, 2);
    between(v, 4);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        _mm256_store_ps(z + h * i, v[i]);
}

static void across(float *z, size_t n, size_t h)
{
    for (size_t i = 0; i < n; i += 2 * h)
        for (size_t j = i; j < i + h; j += 8) {
            __m256 a = _mm256_load_ps(z + j), b = _mm256_load_ps(z + j + h);
            _mm256_store_ps(z + j, _mm256_add_ps(a, b));
            _mm256_store_ps(z + j + h, _mm256_sub_ps(a, b));
        }
}

static GW_KERNEL_BODY void hadamard(float *z, size_t n)
{
    size_t h = 64;
    for (size_t i = 0; i < n; i += 64)
        eight(z + i, 8, true);
    for (; 8 * h <= n; h *= 8)
        for (size_t i = 0; i < n; i += 8 * h)
            for (size_t j = i; j < i + h; j += 8)
                eight(z + j, h, false);
    for (; h < n; h *= 2)
        across(z, n, h);
}

/* ---- Coding -------------------------------------------------------------------------------------
 */

/* Eight entries of a table by loads of one: a gather is no faster on many processors, and QEMU 7.2
 * forgets the index when the compiler keeps it in ymm4. */
INLINE __m256i look_up(const void *table, __m256i index)
{
    uint32_t at[8];
    const uint32_t *t = table;
    _mm256_storeu_si256((__m256i *)(void *)at, index);
    return _mm256_setr_epi32((int)t[at[0]], (int)t[at[1]], (int)t[at[2]], (int)t[at[3]],
                             (int)t[at[4]], (int)t[at[5]], (int)t[at[6]], (int)t[at[7]]);
}

/* Levels of codes below 2^(bits - 1); 8 of them fit a register. */
INLINE __m256 level_of(__m256i code, unsigned bits)
{
    const float *table = gw__rotate_level[bits - 1];
    if (bits == 1)
        return _mm256_set1_ps(table[0]);
    if (bits <= 4)
        return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), code);
    return _mm256_castsi256_ps(look_up(table, code));
}

/* Codes of magnitudes: by counting thresholds, or by cells. */
INLINE __m256i level_code(__m256 magnitude, unsigned bits)
{
    __m256i word = _mm256_castps_si256(magnitude), one = _mm256_set1_epi32(1);
    if (bits <= 4) {
        __m256i code = _mm256_setzero_si256();
        for (unsigned k = 1; k < 1u << (bits - 1); k++) {
            int below = (int)gw__rotate_threshold[bits - 1][k] - 1;
            code = _mm256_sub_epi32(code, _mm256_cmpgt_epi32(word, _mm256_set1_epi32(below)));
        }
        return code;
    }
    __m256 place = _mm256_mul_ps(magnitude, _mm256_set1_ps((float)(1u << bits) / 4));
    place = _mm256_min_ps(place, _mm256_set1_ps(gw__rotate_last_cell[bits - 1]));
    __m256i cell = look_up(gw__rotate_cell[bits - 1], _mm256_cvttps_epi32(place));
    __m256i below = _mm256_and_si256(_mm256_cmpgt_epi32(cell, word), one);
    return _mm256_sub_epi32(_mm256_and_si256(cell, _mm256_set1_epi32(255)), below);
}

typedef struct products {
    __m256 ct[4], cc[4];
} products_t;

/* The codes of 8 values; takes them into the sums of the scale. */
INLINE __m256i code_8(__m256 t, products_t *sum, size_t lane, unsigned bits)
{
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), t);
    __m256i code = level_code(magnitude, bits);
    __m256 level = level_of(code, bits);
    sum->ct[lane] = _mm256_add_ps(sum->ct[lane], _mm256_mul_ps(level, magnitude));
    sum->cc[lane] = _mm256_add_ps(sum->cc[lane], _mm256_mul_ps(level, level));
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(t), (int)(32 - bits));
    return _mm256_or_si256(code, _mm256_and_si256(sign, _mm256_set1_epi32(1 << (bits - 1))));
}

/* The codes of a rotated block to dst; returns its scale. */
INLINE float code_block(const job_t *job, float squares, const float *z, uint8_t *dst,
                        unsigned bits)
{
    __m256 zero = _mm256_setzero_ps();
    products_t sum = {{zero, zero, zero, zero}, {zero, zero, zero, zero}};
    float r = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(squares)));
    __m256 inverse = _mm256_set1_ps(1.0f / r);
    for (size_t i = 0; i < job->n; i += 32, dst += 4 * bits) {
        __m256i code[4];
        for (size_t k = 0; k < 4; k++)
            code[k] = code_8(_mm256_mul_ps(_mm256_load_ps(z + i + 8 * k), inverse), &sum, k, bits);
        __m256i dealt = _mm256_packus_epi16(_mm256_packs_epi32(code[0], code[1]),
                                            _mm256_packs_epi32(code[2], code[3]));
        emit(dealt, dst, i + 32 == job->n, bits);
    }
    return gw__rotate_scale(r, fold(sum.ct), fold(sum.cc), job->n, job->spec->unbiased);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* What 8 codes stand for. */
INLINE __m256 value_8(__m256i x, __m256 factor, unsigned bits)
{
    __m256i code = _mm256_and_si256(x, _mm256_set1_epi32((1 << (bits - 1)) - 1));
    __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(x, (int)bits - 1), 31);
    return _mm256_xor_ps(_mm256_mul_ps(factor, level_of(code, bits)), _mm256_castsi256_ps(sign));
}

/* The levels of a block, times the factor, to z. */
INLINE void unpack_block(const job_t *job, const uint8_t *src, float *z, unsigned bits)
{
    __m256 factor = _mm256_set1_ps(gw__rotate_factor(gw__load_float(src), job->n));
    uint8_t end[32 + 8] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_ROTATE_META_BYTES;
    for (size_t i = 0; i < job->n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        if (over_reads(bits) && i + 32 == job->n)
            at = memcpy(end, src, 4 * bits);
        for (unsigned k = 0; k < 4; k++)
            _mm256_store_ps(z + i + 8 * k, value_8(take(at, k, bits), factor, bits));
    }
}

/* NaN in dst keeps no payload: the sum of a block is cleaned when one was seen. */
static void clean_nan(float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dst[i] != dst[i])
            dst[i] = gw__float_of(GW_NAN_BITS);
}

/* The rotated-back block with its signs: stored, added, or taken from src + dst. */
INLINE void finish_block(const job_t *job, const float *z, const float *src, float *dst,
                         finish_t finish)
{
    __m256 unordered = _mm256_setzero_ps();
    for (size_t i = 0; i < job->n; i += 32) {
        uint32_t word = signs_at(job, i);
        for (int k = 0; k < 4; k++) {
            size_t at = i + 8 * (size_t)k;
            __m256 x = negative_where(_mm256_load_ps(z + at), word, k);
            if (finish == ADD) {
                x = _mm256_add_ps(_mm256_loadu_ps(dst + at), x);
                unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            } else if (finish == LOSS) {
                x = _mm256_sub_ps(load_p(src, dst, at, true), x);
            }
            _mm256_storeu_ps(dst + at, x);
        }
    }
    if (finish == ADD && _mm256_movemask_ps(unordered))
        clean_nan(dst, job->n);
}

INLINE void decode_block(const job_t *job, const uint8_t *payload, const float *src, float *dst,
                         unsigned bits, finish_t finish)
{
    float z[GW_ROTATE_BLOCK_MAX] __attribute__((aligned(64)));
    unpack_block(job, payload, z, bits);
    hadamard(z, job->n);
    finish_block(job, z, src, dst, finish);
}

INLINE void decode_blocks(job_t job, const uint8_t *payload, size_t blocks, float *dst,
                          unsigned bits, finish_t finish)
{
    size_t stride = gw__rotate_bytes(bits, job.n);
    for (size_t k = 0; k < blocks; k++, payload += stride, dst += job.n) {
        if (gw__rotate_is_plain(gw__load_float(payload)))
            decode_block(&job, payload, NULL, dst, bits, finish);
        else
            gw__rotate_ref_decode_block(job.spec, payload, job.n, finish == ADD, dst);
    }
}

/* All whole blocks of a call; returns how many were poisoned. */
INLINE size_t encode_blocks(job_t job, const float *src, float *residual, size_t blocks,
                            uint8_t *dst, unsigned bits, bool ef)
{
    float z[GW_ROTATE_BLOCK_MAX] __attribute__((aligned(64)));
    size_t stride = gw__rotate_bytes(bits, job.n), poisoned = 0;
    for (size_t k = 0; k < blocks; k++, src += job.n, dst += stride) {
        float squares = load_block(&job, src, residual, z, ef);
        if (__builtin_expect(gw__rotate_is_ordinary(squares), 1)) {
            hadamard(z, job.n);
            gw__store_float(dst, code_block(&job, squares, z, dst + GW_ROTATE_META_BYTES, bits));
            if (ef)
                decode_block(&job, dst, src, residual, bits, LOSS);
        } else {
            poisoned += !gw__rotate_ref_block(job.spec, src, residual, job.n, dst);
        }
        residual = ef ? residual + job.n : NULL;
    }
    return poisoned;
}

/* ---- One function per width ---------------------------------------------------------------------
 */

#define WIDTH(bits)                                                                                \
    static GW_KERNEL_BODY size_t encode_##bits(job_t job, const float *src, size_t blocks,         \
                                               uint8_t *dst)                                       \
    {                                                                                              \
        return encode_blocks(job, src, NULL, blocks, dst, bits, false);                            \
    }                                                                                              \
    static GW_KERNEL_BODY size_t encode_ef_##bits(job_t job, const float *src, float *residual,    \
                                                  size_t blocks, uint8_t *dst)                     \
    {                                                                                              \
        return encode_blocks(job, src, residual, blocks, dst, bits, true);                         \
    }                                                                                              \
    static GW_KERNEL_BODY void store_##bits(job_t job, const uint8_t *payload, size_t blocks,      \
                                            float *dst)                                            \
    {                                                                                              \
        decode_blocks(job, payload, blocks, dst, bits, STORE);                                     \
    }                                                                                              \
    static GW_KERNEL_BODY void add_##bits(job_t job, const uint8_t *payload, size_t blocks,        \
                                          float *dst)                                              \
    {                                                                                              \
        decode_blocks(job, payload, blocks, dst, bits, ADD);                                       \
    }
WIDTH(1)
WIDTH(2)
WIDTH(3)
WIDTH(4)
WIDTH(5)
WIDTH(6)
WIDTH(7)
WIDTH(8)

#define ROW(bits)                                                                                  \
    {                                                                                              \
        encode_##bits, encode_ef_##bits, store_##bits, add_##bits                                  \
    }

static const struct {
    size_t (*encode)(job_t job, const float *src, size_t blocks, uint8_t *dst);
    size_t (*encode_ef)(job_t job, const float *src, float *residual, size_t blocks, uint8_t *dst);
    void (*store)(job_t job, const uint8_t *payload, size_t blocks, float *dst);
    void (*add)(job_t job, const uint8_t *payload, size_t blocks, float *dst);
} widths[8] = {ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8)};

/* Puts the signs of a block in `signs`. */
static job_t job_of(const gw_rotate_spec_t *spec, uint64_t signs[GW_ROTATE_BLOCK_MAX / 64])
{
    uint64_t start = gw__rotate_start(spec->seed);
    for (size_t i = 0; i < spec->block / 64; i++)
        signs[i] = gw__rotate_signs(start, i);
    return (job_t){spec, spec->block, signs};
}

static size_t encode(const gw_rotate_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst)
{
    size_t blocks = count / spec->block, done = blocks * spec->block;
    uint64_t signs[GW_ROTATE_BLOCK_MAX / 64];
    job_t job = job_of(spec, signs);
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = residual ? widths[spec->bits - 1].encode_ef(job, src, residual, blocks, dst)
                               : widths[spec->bits - 1].encode(job, src, blocks, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__rotate_ref_encode(spec, src + done, residual ? residual + done : NULL, count - done,
                                  dst + blocks * gw__rotate_bytes(spec->bits, spec->block));
    return poisoned;
}

static void decode(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    size_t blocks = count / spec->block, done = blocks * spec->block;
    uint64_t signs[GW_ROTATE_BLOCK_MAX / 64];
    job_t job = job_of(spec, signs);
    uint64_t mode = gw__fpmode_enter();
    (add ? widths[spec->bits - 1].add : widths[spec->bits - 1].store)(job, payload, blocks, dst);
    gw__fpmode_leave(mode);
    payload += blocks * gw__rotate_bytes(spec->bits, spec->block);
    if (done < count && add)
        gw__rotate_ref_add(spec, payload, count - done, dst + done);
    else if (done < count)
        gw__rotate_ref_store(spec, payload, count - done, dst + done);
}

static void store(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

void gw__rotate_avx2_fill(gw_rotate_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
