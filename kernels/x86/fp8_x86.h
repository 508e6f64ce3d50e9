/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of fp8. A tier includes it behind its vectors. */
#ifndef GW_FP8_X86_H
#define GW_FP8_X86_H

#include "fpmode.h"
#include "minifloat.h"
#include "ref.h"
#include "stream.h"

/* Whole blocks are done here; a tail block and blocks with a NaN or an Inf go to the reference. A
 * block is read twice, the second time from the nearest cache; the processor overlaps the blocks by
 * itself. */

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

/* ---- The tier's part ----------------------------------------------------------------------------
 * most_t is the greatest magnitude so far.
 */

INLINE most_t most_start(void);
INLINE void take_most_32(const job_t *job, size_t i, most_t *most, bool ef);
INLINE uint32_t most_bits(most_t most);

/* The codes of a block whose scale is known, and what is lost. */
INLINE void code_block(const job_t *job, float scale, float inverse, uint8_t *dst, bool e5m2,
                       bool ef);

INLINE void decode_32(const uint8_t *src, float scale, float *dst, bool e5m2, bool add);

/* ---- Encoding -----------------------------------------------------------------------------------
 */

INLINE uint32_t most_of(const job_t *job, const uint8_t *dst, bool ef)
{
    most_t most = most_start();
    for (size_t i = 0; i < job->spec->block; i += 32) {
        prefetch_floats(job->src, job->residual, i, 32, ef);
        prefetch(dst + i, 32);
        take_most_32(job, i, &most, ef);
    }
    return most_bits(most);
}

INLINE size_t encode_blocks(job_t job, size_t blocks, uint8_t *dst, bool e5m2, bool ef)
{
    size_t n = job.spec->block, poisoned = 0;
    for (size_t k = 0; k < blocks; k++, dst += GW_FP8_META_BYTES + n) {
        uint32_t most = most_of(&job, dst, ef);
        if (__builtin_expect(most >= 0x7F800000u, 0)) {
            poisoned += gw__fp8_ref_encode(job.spec, job.src, ef ? job.residual : NULL, n, dst);
        } else {
            float scale = gw__fp8_scale(job.spec->format, gw__float_of(most));
            gw__store16(dst, (uint16_t)(gw__float_bits(scale) >> 16));
            code_block(&job, scale, scale > 0.0f ? 1.0f / scale : 0.0f, dst + GW_FP8_META_BYTES,
                       e5m2, ef);
        }
        job.src += n;
        job.residual += ef ? n : 0;
    }
    return poisoned;
}

#define ENCODER(e5m2, ef)                                                                          \
    static GW_KERNEL_BODY size_t encode_##e5m2##_##ef(job_t job, size_t blocks, uint8_t *dst)      \
    {                                                                                              \
        return encode_blocks(job, blocks, dst, e5m2, ef);                                          \
    }
ENCODER(0, 0)
ENCODER(0, 1)
ENCODER(1, 0)
ENCODER(1, 1)

static size_t encode(const gw_float_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst)
{
    static size_t (*const encoders[2][2])(job_t, size_t, uint8_t *) = {{encode_0_0, encode_0_1},
                                                                       {encode_1_0, encode_1_1}};
    size_t blocks = count / spec->block, done = blocks * spec->block;
    job_t job = {spec, src, residual};
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encoders[spec->format == GW_FLOAT_E5M2][residual != NULL](job, blocks, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__fp8_ref_encode(spec, src + done, residual ? residual + done : NULL, count - done,
                               dst + blocks * gw__float_bytes(spec, spec->block));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void decode_blocks(size_t n, const uint8_t *payload, size_t blocks, float *dst, bool e5m2,
                          bool add)
{
    for (size_t k = 0; k < blocks; k++, payload += GW_FP8_META_BYTES + n, dst += n) {
        float scale = gw__float_of((uint32_t)gw__load16(payload) << 16);
        for (size_t i = 0; i < n; i += 32) {
            prefetch(dst + i, 32 * sizeof *dst);
            prefetch(payload + i, 32);
            decode_32(payload + GW_FP8_META_BYTES + i, e5m2 ? scale : scale * 256.0f, dst + i, e5m2,
                      add);
        }
    }
}

#define DECODER(e5m2, add)                                                                         \
    static GW_KERNEL_BODY void decode_##e5m2##_##add(size_t n, const uint8_t *payload,             \
                                                     size_t blocks, float *dst)                    \
    {                                                                                              \
        decode_blocks(n, payload, blocks, dst, e5m2, add);                                         \
    }
DECODER(0, 0)
DECODER(0, 1)
DECODER(1, 0)
DECODER(1, 1)

static void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    static void (*const decoders[2][2])(size_t, const uint8_t *, size_t, float *) = {
        {decode_0_0, decode_0_1}, {decode_1_0, decode_1_1}};
    size_t blocks = count / spec->block, done = blocks * spec->block;
    uint64_t mode = gw__fpmode_enter();
    decoders[spec->format == GW_FLOAT_E5M2][add](spec->block, payload, blocks, dst);
    gw__fpmode_leave(mode);
    payload += blocks * gw__float_bytes(spec, spec->block);
    if (done < count)
        (add ? gw__fp8_ref_add : gw__fp8_ref_store)(spec, payload, count - done, dst + done);
}

static void store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

#endif
