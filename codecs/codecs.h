/* SPDX-License-Identifier: Apache-2.0 */
/* What the codec families share: the built-in table, parameter access, element sizes. */
#ifndef GW_CODECS_H
#define GW_CODECS_H

#include <gradwire/codec.h>

/* The built-in families, in order of id. A new one: its file, and a line in codecs.c. */
extern const gw_codec_t gw__codec_raw;
extern const gw_codec_t gw__codec_quant;
extern const gw_codec_t gw__codec_cast;
extern const gw_codec_t gw__codec_fp8;
extern const gw_codec_t gw__codec_fp4;
extern const gw_codec_t gw__codec_sign;
extern const gw_codec_t gw__codec_rotate;
extern const gw_codec_t gw__codec_natural;
extern const gw_codec_t gw__codec_topk;
extern const gw_codec_t gw__codec_randomk;
extern const gw_codec_t gw__codec_block;
extern const gw_codec_t gw__codec_lowrank;
extern const gw_codec_t gw__codec_lossless;

/* Elements that go through a stack buffer at a time when a dtype has to be converted: 16 KiB. */
#define GW_BLOCK 4096

/* Bytes of an element that codecs read and write; 0 for all other types. */
static inline size_t gw__element_bytes(gw_dtype_t dtype)
{
    return dtype == GW_F32 ? 4 : dtype == GW_F16 || dtype == GW_BF16 ? 2 : 0;
}

/* Whether a momentum is kept beside the residual. */
static inline bool gw__keeps_momentum(const gw_coder_t *coder)
{
    return coder->family->keeps_momentum && coder->family->keeps_momentum(coder);
}

/* Fills coder with the family's defaults; no name, no spec. */
void gw__coder_defaults(const gw_codec_t *family, gw_coder_t *coder);

/* The default codec of the largest budget that is not above `bits`; NULL when all are. */
const char *gw__budget_find(double bits);

/* Writes the canonical spec of complete values into coder->spec. */
void gw__coder_print(gw_coder_t *coder);

/* Widens to, or narrows from, binary32; dtype is GW_F32 (a copy), GW_F16 or GW_BF16. */
void gw__widen(gw_dtype_t dtype, const void *src, float *dst, size_t count);
void gw__narrow(gw_dtype_t dtype, const float *src, void *dst, size_t count);

#endif
