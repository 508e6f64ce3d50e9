/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codec families, built in and registered. */
#include "codecs.h"

#include <stdio.h>
#include <string.h>

#include "kernels.h"

/* In order of id. */
static const gw_codec_t *const built_in[] = {
    &gw__codec_raw,   &gw__codec_quant,   &gw__codec_cast,     &gw__codec_fp8,  &gw__codec_fp4,
    &gw__codec_sign,  &gw__codec_rotate,  &gw__codec_natural,  &gw__codec_topk, &gw__codec_randomk,
    &gw__codec_block, &gw__codec_lowrank, &gw__codec_lossless,
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, EXTERNAL = 16, EXTERNAL_FIRST = 128 };

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

/* What a family lacks, for people; NULL: nothing. */
static const char *missing_part(const gw_codec_t *f)
{
    const bool linear = f->flags & GW_CODEC_LINEAR, factors = f->flags & GW_CODEC_FACTORS;
    const struct {
        bool there;
        const char *name;
    } parts[] = {
        {f->family, "family"},
        {f->names, "names"},
        {f->summary, "summary"},
        {f->params, "params (a list that ends with a name of NULL)"},
        {f->match, "match"},
        {f->name, "name"},
        {f->grain, "grain"},
        {f->bound, "bound"},
        {f->encode, "encode"},
        {f->decode, "decode"},
        {f->put_params, "put_params"},
        {f->get_params, "get_params"},
        {f->error_bound || !(f->flags & GW_CODEC_LOSSY), "error_bound, for GW_CODEC_LOSSY"},
        {f->merge || !linear, "merge, for GW_CODEC_LINEAR"},
        {f->flags & GW_CODEC_FIXED || !linear, "GW_CODEC_FIXED, for GW_CODEC_LINEAR"},
        {f->factors || !factors, "factors, for GW_CODEC_FACTORS"},
        {!f->factors || factors, "GW_CODEC_FACTORS, for factors"},
        {!f->factors || (f->factors->sizes && f->factors->project && f->factors->factor &&
                         f->factors->expand && f->factors->error_bound),
         "a function of factors"},
        {f->correct || !f->keeps_momentum, "correct, for keeps_momentum"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].there)
            return parts[i].name;
    return NULL;
}

gw_status_t gw_codec_check(const gw_codec_t *family, char *why, size_t size)
{
    const char *part;
    size_t params = 0;
    if (!why || !size)
        why = NULL, size = 0;
    if (!family)
        snprintf(why, size, "no codec family given");
    else if (family->abi != GW_CODEC_ABI)
        snprintf(why, size, "abi is %d; this library has %d", family->abi, GW_CODEC_ABI);
    else if (family->id < EXTERNAL_FIRST)
        snprintf(why, size, "id is %d; 128 to 255 are for families from outside", family->id);
    else if ((part = missing_part(family)))
        snprintf(why, size, "%s is missing", part);
    else {
        while (params <= GW_CODEC_MAX_PARAMS && family->params[params].name)
            params++;
        if (params <= GW_CODEC_MAX_PARAMS)
            return GW_OK;
        snprintf(why, size, "params has more than %d entries", GW_CODEC_MAX_PARAMS);
    }
    return GW_ERR_INVALID;
}

gw_status_t gw_codec_register(const gw_codec_t *family)
{
    gw_status_t status = gw_codec_check(family, NULL, 0);
    if (status)
        return status;
    if (gw_codec_by_id(family->id))
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
