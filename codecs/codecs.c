/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codec families, built in and registered. */
#include "codecs.h"

#include <string.h>

#include "kernels.h"

/* In order of id. */
static const gw_codec_t *const built_in[] = {
    &gw__codec_raw,   &gw__codec_quant,   &gw__codec_cast,     &gw__codec_fp8,  &gw__codec_fp4,
    &gw__codec_sign,  &gw__codec_rotate,  &gw__codec_natural,  &gw__codec_topk, &gw__codec_randomk,
    &gw__codec_block, &gw__codec_lowrank, &gw__codec_lossless,
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, EXTERNAL = 16 };

static const gw_codec_t *external[EXTERNAL]; /* in order of id */
static size_t external_count;

const gw_codec_t *gw_codec_at(size_t i)
{
    if (i < BUILT_IN)
        return built_in[i];
    i -= BUILT_IN;
    return i < external_count ? external[i] : NULL;
}

const gw_codec_t *gw_codec_by_id(uint8_t id)
{
    const gw_codec_t *family;
    for (size_t i = 0; (family = gw_codec_at(i)); i++)
        if (family->id == id)
            return family;
    return NULL;
}

static bool is_complete(const gw_codec_t *f)
{
    if (!f->family || !f->names || !f->summary || !f->params || !f->match || !f->name || !f->grain)
        return false;
    if (!f->bound || !f->encode || !f->decode || !f->put_params || !f->get_params)
        return false;
    if (f->flags & GW_CODEC_LINEAR && (!f->merge || !(f->flags & GW_CODEC_FIXED)))
        return false;
    if (!(f->flags & GW_CODEC_FACTORS) != !f->factors)
        return false;
    if (f->factors && (!f->factors->sizes || !f->factors->project || !f->factors->factor ||
                       !f->factors->expand || !f->factors->error_bound))
        return false;
    if (f->keeps_momentum && !f->correct)
        return false;
    size_t params = 0;
    while (f->params[params].name)
        params++;
    return params <= GW_CODEC_MAX_PARAMS && (!(f->flags & GW_CODEC_LOSSY) || f->error_bound);
}

gw_status_t gw_codec_register(const gw_codec_t *family)
{
    if (!family || family->abi != GW_CODEC_ABI || family->id < 128 || !is_complete(family) ||
        gw_codec_by_id(family->id))
        return GW_ERR_INVALID;
    if (external_count == EXTERNAL)
        return GW_ERR_NO_SPACE;
    size_t at = external_count++;
    for (; at > 0 && external[at - 1]->id > family->id; at--)
        external[at] = external[at - 1];
    external[at] = family;
    return GW_OK;
}

void gw__widen(gw_dtype_t dtype, const void *src, float *dst, size_t count)
{
    const gw_cast_kernels_t *cast = &gw__kernels()->cast;
    if (dtype == GW_F16)
        cast->f16_to_f32(src, dst, count);
    else if (dtype == GW_BF16)
        cast->bf16_to_f32(src, dst, count);
    else
        memcpy(dst, src, count * sizeof *dst);
}

void gw__narrow(gw_dtype_t dtype, const float *src, void *dst, size_t count)
{
    const gw_cast_kernels_t *cast = &gw__kernels()->cast;
    if (dtype == GW_F16)
        cast->f32_to_f16(src, dst, count);
    else if (dtype == GW_BF16)
        cast->f32_to_bf16(src, dst, count);
    else
        memcpy(dst, src, count * sizeof *src);
}
