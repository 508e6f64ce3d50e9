/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of rotate. A tier includes it behind its vectors. */
#ifndef GW_ROTATE_X86_H
#define GW_ROTATE_X86_H

#include <string.h>

#include "fpmode.h"
#include "ref.h"
#include "rotate_block.h"
#include "stream.h"

/*
 * A block goes through a buffer in the first level: loaded with its signs, rotated there, coded
 * from there. Whole blocks whose magnitudes are ordinary are done here, the others by the
 * reference.
 */

typedef struct job {
    const gw_rotate_spec_t *spec;
    size_t n;              /* elements of a block */
    const uint64_t *signs; /* of a block */
} job_t;

typedef enum finish { STORE, ADD, LOSS } finish_t;

/* Sums over the elements of a block, for its scale. */
typedef struct products {
    lanes_t ct, cc;
} products_t;

/* ---- The tier's part: 64 elements at a time -----------------------------------------------------
 * lanes_t and seen_t are those of lanes_<tier>.h; values_t is what codes stand for.
 */

/* src (+ residual) with its signs to z; adds the squares to the lanes. */
INLINE void load_64(const float *src, const float *residual, uint64_t signs, float *z, lanes_t *sum,
                    bool ef);

/* H z for n elements, 64 or more. */
static void hadamard(float *z, size_t n);

/* The codes of z * inverse to dst; bytes behind them may be written, except after the last ones. */
INLINE void code_64(const float *z, float inverse, products_t *sum, uint8_t *dst, bool last,
                    unsigned bits);

INLINE values_t values_of(float factor, unsigned bits);

/* What 64 codes stand for to z; up to 16 bytes behind them are read. */
INLINE void unpack_64(const uint8_t *src, const values_t *values, float *z, unsigned bits);

/* z with its signs: stored, added, or taken from src + dst. */
INLINE void finish_64(const float *z, uint64_t signs, const float *src, float *dst, seen_t *seen,
                      finish_t finish);

/* ---- Blocks -------------------------------------------------------------------------------------
 */

/* The block with its signs to z; returns its sum of squares. */
INLINE float load_block(const job_t *job, const float *src, const float *residual, float *z,
                        bool ef)
{
    lanes_t sum = lanes_start();
    for (size_t i = 0; i < job->n; i += 64) {
        prefetch_floats(src, residual, i, 64, ef);
        load_64(src + i, ef ? residual + i : NULL, job->signs[i / 64], z + i, &sum, ef);
    }
    return fold(&sum);
}

/* The codes of a rotated block to dst; returns its scale. */
INLINE float code_block(const job_t *job, float squares, const float *z, uint8_t *dst,
                        unsigned bits)
{
    products_t sum = {lanes_start(), lanes_start()};
    float r = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(squares)));
    for (size_t i = 0; i < job->n; i += 64, dst += 8 * bits)
        code_64(z + i, 1.0f / r, &sum, dst, i + 64 == job->n, bits);
    return gw__rotate_scale(r, fold(&sum.ct), fold(&sum.cc), job->n, job->spec->unbiased);
}

/* The levels of a block, times the factor, to z. */
INLINE void unpack_block(const job_t *job, const uint8_t *src, float *z, unsigned bits)
{
    values_t values = values_of(gw__rotate_factor(gw__load_float(src), job->n), bits);
    uint8_t end[64 + 16] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_ROTATE_META_BYTES;
    for (size_t i = 0; i < job->n; i += 64, src += 8 * bits) {
        const uint8_t *at = src;
        if (over_reads(bits) && i + 64 == job->n)
            at = memcpy(end, src, 8 * bits);
        unpack_64(at, &values, z + i, bits);
    }
}

INLINE void finish_block(const job_t *job, const float *z, const float *src, float *dst,
                         finish_t finish)
{
    seen_t seen = seen_start();
    for (size_t i = 0; i < job->n; i += 64) {
        if (finish != LOSS) /* the residual was prefetched when it was read */
            prefetch(dst + i, 64 * sizeof *dst);
        finish_64(z + i, job->signs[i / 64], finish == LOSS ? src + i : NULL, dst + i, &seen,
                  finish);
    }
    if (finish == ADD && is_seen(seen))
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

#endif
