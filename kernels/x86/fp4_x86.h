/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of fp4. A tier includes it behind its vectors. */
#ifndef GW_FP4_X86_H
#define GW_FP4_X86_H

#include "fpmode.h"
#include "minifloat.h"
#include "ref.h"
#include "stream.h"

/* Whole groups are done here; a tail group and groups with a NaN or an Inf go to the reference. A
 * group is read twice: the greatest magnitudes of LANES blocks at a time, then all scales, then the
 * codes. */

enum { SCALES_MAX = GW_FLOAT_BLOCK_MAX / GW_NVFP4_BLOCK };

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

/* Magnitudes, then what each block's codes are multiplied by, and its inverse. */
typedef struct scales {
    float most[SCALES_MAX], scale[SCALES_MAX], inverse[SCALES_MAX];
} scales_t;

/* ---- The tier's part ----------------------------------------------------------------------------
 * LANES blocks at a time; words_t has a word for each.
 */

INLINE words_t words_start(void);
INLINE uint32_t greatest_word(words_t words);

/* The greatest magnitudes of LANES blocks from element `at` on; takes them into `top`. */
INLINE void find_most(const job_t *job, size_t at, size_t block, float *most, words_t *top,
                      bool ef);

/* The scales of blocks k to k + LANES - 1 from their magnitudes; `inverse` is 1 / (6 group). */
INLINE void make_scales(scales_t *s, size_t k, float group, float inverse, uint8_t *dst, bool nv);

/* 32 elements, which are one block or two, to 16 bytes; the even one in the low half. */
INLINE void code_32(const job_t *job, size_t i, const float *scale, const float *inverse,
                    uint8_t *dst, bool nv, bool ef);

/* What the codes of LANES blocks are multiplied by. */
INLINE void read_scales(const uint8_t *src, float group, float *factor, bool nv);

/* 16 elements from 8 bytes. */
INLINE void decode_16(const uint8_t *src, float scale, float *dst, bool add);

/* ---- Encoding -----------------------------------------------------------------------------------
 */

INLINE void encode_group(const job_t *job, scales_t *s, float top, uint8_t *dst, bool nv, bool ef)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, n = job->spec->block;
    float group = nv ? gw__nvfp4_group_scale(top) : 1.0f, inverse = 1.0f / (6.0f * group);
    if (nv) {
        gw__store_float(dst, group);
        dst += GW_NVFP4_META_BYTES;
    }
    for (size_t k = 0; k < n / block; k += LANES)
        make_scales(s, k, group, inverse, dst + k, nv);
    dst += n / block;
    for (size_t i = 0; i < n; i += 32, dst += 16)
        code_32(job, i, s->scale + i / block, s->inverse + i / block, dst, nv, ef);
}

INLINE size_t encode_groups(job_t job, size_t groups, uint8_t *dst, bool nv, bool ef)
{
    scales_t s;
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, n = job.spec->block, poisoned = 0;
    for (size_t k = 0; k < groups; k++, dst += gw__float_bytes(job.spec, n)) {
        words_t words = words_start();
        for (size_t b = 0; b < n / block; b += LANES)
            find_most(&job, b * block, block, s.most + b, &words, ef);
        uint32_t top = greatest_word(words);
        if (__builtin_expect(top >= 0x7F800000u, 0))
            poisoned += gw__fp4_ref_encode(job.spec, job.src, ef ? job.residual : NULL, n, dst);
        else
            encode_group(&job, &s, gw__float_of(top), dst, nv, ef);
        job.src += n;
        job.residual += ef ? n : 0;
    }
    return poisoned;
}

#define ENCODER(nv, ef)                                                                            \
    static GW_KERNEL_BODY size_t encode_##nv##_##ef(job_t job, size_t groups, uint8_t *dst)        \
    {                                                                                              \
        return encode_groups(job, groups, dst, nv, ef);                                            \
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
    size_t groups = count / spec->block, done = groups * spec->block;
    job_t job = {spec, src, residual};
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encoders[spec->format == GW_FLOAT_NVFP4][residual != NULL](job, groups, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__fp4_ref_encode(spec, src + done, residual ? residual + done : NULL, count - done,
                               dst + groups * gw__float_bytes(spec, spec->block));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void decode_groups(const gw_float_spec_t *spec, const uint8_t *payload, size_t groups,
                          float *dst, bool nv, bool add)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, blocks = spec->block / block;
    for (size_t g = 0; g < groups; g++, payload += gw__float_bytes(spec, spec->block)) {
        float group = nv ? gw__load_float(payload) : 1.0f;
        const uint8_t *scale = payload + (nv ? GW_NVFP4_META_BYTES : 0), *src = scale + blocks;
        for (size_t k = 0; k < blocks; k += LANES) {
            float factor[LANES];
            read_scales(scale + k, group, factor, nv);
            for (size_t j = 0; j < LANES; j++)
                for (size_t i = 0; i < block; i += 16, src += 8, dst += 16) {
                    prefetch(dst, 16 * sizeof *dst);
                    decode_16(src, factor[j], dst, add);
                }
        }
    }
}

#define DECODER(nv, add)                                                                           \
    static GW_KERNEL_BODY void decode_##nv##_##add(                                                \
        const gw_float_spec_t *spec, const uint8_t *payload, size_t groups, float *dst)            \
    {                                                                                              \
        decode_groups(spec, payload, groups, dst, nv, add);                                        \
    }
DECODER(0, 0)
DECODER(0, 1)
DECODER(1, 0)
DECODER(1, 1)

static void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    static void (*const decoders[2][2])(const gw_float_spec_t *, const uint8_t *, size_t,
                                        float *) = {{decode_0_0, decode_0_1},
                                                    {decode_1_0, decode_1_1}};
    size_t groups = count / spec->block, done = groups * spec->block;
    uint64_t mode = gw__fpmode_enter();
    decoders[spec->format == GW_FLOAT_NVFP4][add](spec, payload, groups, dst);
    gw__fpmode_leave(mode);
    payload += groups * gw__float_bytes(spec, spec->block);
    if (done < count)
        (add ? gw__fp4_ref_add : gw__fp4_ref_store)(spec, payload, count - done, dst + done);
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
