/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks with AVX-512 (F, BW, DQ, VL): the bytes of ref/rotate_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "quant_avx512.h"
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

INLINE __m512 negative_where(__m512 x, uint64_t word)
{
    return _mm512_mask_xor_ps(x, (__mmask16)word, x, _mm512_set1_ps(-0.0f));
}

/* The lanes of both registers added up as in gw__rotate_fold(). */
INLINE float fold(const __m512 sum[2])
{
    __m512 lane16 = _mm512_add_ps(sum[0], sum[1]);
    __m256 lane8 = _mm256_add_ps(_mm512_castps512_ps256(lane16), _mm512_extractf32x8_ps(lane16, 1));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

INLINE void prefetch(const float *at)
{
    for (int line = 0; line < 4; line++)
        _mm_prefetch((const char *)at + AHEAD + 64 * line, _MM_HINT_T1);
}

/* The block with its signs to z; returns its sum of squares. */
INLINE float load_block(const job_t *job, const float *src, const float *residual, float *z,
                        bool ef)
{
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (size_t i = 0; i < job->n; i += 64) {
        uint64_t word = job->signs[i / 64];
        prefetch(src + i);
        if (ef)
            prefetch(residual + i);
        for (size_t k = 0; k < 4; k++) {
            __m512 p = load_p(src, residual, i + 16 * k, ef);
            sum[k % 2] = _mm512_add_ps(sum[k % 2], _mm512_mul_ps(p, p));
            _mm512_store_ps(z + i + 16 * k, negative_where(p, word >> 16 * k));
        }
    }
    return fold(sum);
}

/* ---- The transform ------------------------------------------------------------------------------
 */

/* Butterflies over 1, 2, 4 and 8 elements. A product with 1 or -1 is exact, so that the fused
 * operation rounds as the addition alone. */
INLINE __m512 within(__m512 x)
{
    const float m = -1.0f;
    __m512 one = _mm512_setr_ps(1, m, 1, m, 1, m, 1, m, 1, m, 1, m, 1, m, 1, m);
    __m512 two = _mm512_setr_ps(1, 1, m, m, 1, 1, m, m, 1, 1, m, m, 1, 1, m, m);
    __m512 four = _mm512_setr_ps(1, 1, 1, 1, m, m, m, m, 1, 1, 1, 1, m, m, m, m);
    __m512 eight = _mm512_setr_ps(1, 1, 1, 1, 1, 1, 1, 1, m, m, m, m, m, m, m, m);
    x = _mm512_fmadd_ps(x, one, _mm512_permute_ps(x, 0xB1));
    x = _mm512_fmadd_ps(x, two, _mm512_permute_ps(x, 0x4E));
    x = _mm512_fmadd_ps(x, four, _mm512_shuffle_f32x4(x, x, 0xB1));
    return _mm512_fmadd_ps(x, eight, _mm512_shuffle_f32x4(x, x, 0x4E));
}

INLINE void butterfly(__m512 *a, __m512 *b)
{
    __m512 sum = _mm512_add_ps(*a, *b);
    *b = _mm512_sub_ps(*a, *b);
    *a = sum;
}

/* Unrolled, or the array would lie in memory. */
INLINE void between(__m512 *v, size_t registers, size_t h)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        if (!(i & h))
            butterfly(&v[i], &v[i + h]);
}

/* All butterflies inside of 16 * registers elements. */
INLINE void transform(float *z, size_t registers)
{
    __m512 v[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        v[i] = within(_mm512_load_ps(z + 16 * i));
    between(v, registers, 1);
    between(v, registers, 2);
    if (registers > 4)
        between(v, registers, 4);
    if (registers > 8)
        between(v, registers, 8);
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        _mm512_store_ps(z + 16 * i, v[i]);
}

static void across(float *z, size_t n, size_t h)
{
    for (size_t i = 0; i < n; i += 2 * h)
        for (size_t j = i; j < i + h; j += 16) {
            __m512 a = _mm512_load_ps(z + j), b = _mm512_load_ps(z + j + h);
            _mm512_store_ps(z + j, _mm512_add_ps(a, b));
            _mm512_store_ps(z + j + h, _mm512_sub_ps(a, b));
        }
}

static GW_KERNEL_BODY void hadamard(float *z, size_t n)
{
    if (n == 64) {
        transform(z, 4);
    } else if (n == 128) {
        transform(z, 8);
    } else {
        for (size_t i = 0; i < n; i += 256)
            transform(z + i, 16);
        for (size_t h = 256; h < n; h *= 2)
            across(z, n, h);
    }
}

/* ---- Coding -------------------------------------------------------------------------------------
 */

/* Entries of a table of 16, of 32, or of any size. */
INLINE __m512i pick(const uint32_t *table, __m512i index, size_t entries)
{
    if (entries <= 16)
        return _mm512_permutexvar_epi32(index, _mm512_loadu_si512(table));
    if (entries <= 32)
        return _mm512_permutex2var_epi32(_mm512_loadu_si512(table), index,
                                         _mm512_loadu_si512(table + 16));
    return _mm512_i32gather_epi32(index, table, 4);
}

INLINE __m512 level_of(__m512i code, unsigned bits)
{
    const float *table = gw__rotate_level[bits - 1];
    if (bits == 1)
        return _mm512_set1_ps(table[0]);
    return _mm512_castsi512_ps(pick((const uint32_t *)(const void *)table, code, 1u << (bits - 1)));
}

/* Codes of magnitudes, by cells. */
INLINE __m512i level_code(__m512 magnitude, unsigned bits)
{
    static const unsigned char cells[9] = {0, 2, 2, 5, 11, 25, 57, 128, 255};
    if (bits == 1)
        return _mm512_setzero_si512();
    __m512 place = _mm512_mul_ps(magnitude, _mm512_set1_ps((float)(1u << bits) / 4));
    place = _mm512_min_ps(place, _mm512_set1_ps(gw__rotate_last_cell[bits - 1]));
    __m512i cell = pick(gw__rotate_cell[bits - 1], _mm512_cvttps_epi32(place), cells[bits]);
    __mmask16 below = _mm512_cmplt_epi32_mask(_mm512_castps_si512(magnitude), cell);
    __m512i next = _mm512_and_si512(cell, _mm512_set1_epi32(255));
    return _mm512_mask_sub_epi32(next, below, next, _mm512_set1_epi32(1));
}

typedef struct products {
    __m512 ct[2], cc[2];
} products_t;

/* The codes of 16 values; takes them into the sums of the scale. */
INLINE __m512i code_16(__m512 t, products_t *sum, size_t lane, unsigned bits)
{
    __m512 magnitude = _mm512_abs_ps(t);
    __m512i code = level_code(magnitude, bits);
    __m512 level = level_of(code, bits);
    sum->ct[lane] = _mm512_add_ps(sum->ct[lane], _mm512_mul_ps(level, magnitude));
    sum->cc[lane] = _mm512_add_ps(sum->cc[lane], _mm512_mul_ps(level, level));
    __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(t), 32 - bits);
    return _mm512_or_si512(code, _mm512_and_si512(sign, _mm512_set1_epi32(1 << (bits - 1))));
}

/* The codes of a rotated block to dst; returns its scale. */
INLINE float code_block(const job_t *job, float squares, const float *z, uint8_t *dst,
                        unsigned bits)
{
    __m512 zero = _mm512_setzero_ps();
    products_t sum = {{zero, zero}, {zero, zero}};
    float r = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(squares)));
    __m512 inverse = _mm512_set1_ps(1.0f / r);
    for (size_t i = 0; i < job->n; i += 64, dst += 8 * bits) {
        __m512i code[4];
        for (size_t k = 0; k < 4; k++)
            code[k] =
                code_16(_mm512_mul_ps(_mm512_load_ps(z + i + 16 * k), inverse), &sum, k % 2, bits);
        __m512i dealt = _mm512_packus_epi16(_mm512_packs_epi32(code[0], code[1]),
                                            _mm512_packs_epi32(code[2], code[3]));
        emit(dealt, dst, 64, i + 64 == job->n, bits);
    }
    return gw__rotate_scale(r, fold(sum.ct), fold(sum.cc), job->n, job->spec->unbiased);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* What the codes stand for: the first 32 values in registers, sign included. */
typedef struct values {
    __m512 low, high, factor;
} values_t;

INLINE values_t values_of(float factor, unsigned bits)
{
    float value[32];
    for (unsigned i = 0; i < 32; i++) {
        float level = factor * gw__rotate_level[bits - 1][i & ((1u << (bits - 1)) - 1)];
        value[i] = i >> (bits - 1) & 1 ? -level : level;
    }
    return (values_t){_mm512_loadu_ps(value), _mm512_loadu_ps(value + 16), _mm512_set1_ps(factor)};
}

INLINE __m512 value_16(const uint8_t *src, const values_t *v, unsigned bits)
{
    __m512i x = take(src, bits);
    if (bits <= 4)
        return _mm512_permutexvar_ps(x, v->low);
    if (bits == 5)
        return _mm512_permutex2var_ps(v->low, x, v->high);
    __m512i code = _mm512_and_si512(x, _mm512_set1_epi32((1 << (bits - 1)) - 1));
    __m512i sign = _mm512_and_si512(_mm512_slli_epi32(x, 32 - bits), _mm512_set1_epi32(INT32_MIN));
    __m512 level = _mm512_mul_ps(v->factor, level_of(code, bits));
    return _mm512_xor_ps(level, _mm512_castsi512_ps(sign));
}

/* The levels of a block, times the factor, to z. */
INLINE void unpack_block(const job_t *job, const uint8_t *src, float *z, unsigned bits)
{
    values_t v = values_of(gw__rotate_factor(gw__load_float(src), job->n), bits);
    uint8_t end[64 + 16] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_ROTATE_META_BYTES;
    for (size_t i = 0; i < job->n; i += 64, src += 8 * bits) {
        const uint8_t *at = src;
        if (over_reads(bits) && i + 64 == job->n)
            at = memcpy(end, src, 8 * bits);
        for (size_t k = 0; k < 4; k++)
            _mm512_store_ps(z + i + 16 * k, value_16(at + 2 * k * bits, &v, bits));
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
    __mmask16 unordered = 0;
    for (size_t i = 0; i < job->n; i += 64) {
        uint64_t word = job->signs[i / 64];
        for (size_t k = 0; k < 64; k += 16) {
            __m512 x = negative_where(_mm512_load_ps(z + i + k), word >> k);
            if (finish == ADD) {
                x = _mm512_add_ps(_mm512_loadu_ps(dst + i + k), x);
                unordered |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
            } else if (finish == LOSS) {
                x = _mm512_sub_ps(load_p(src, dst, i + k, true), x);
            }
            _mm512_storeu_ps(dst + i + k, x);
        }
    }
    if (finish == ADD && unordered)
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

void gw__rotate_avx512_fill(gw_rotate_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
