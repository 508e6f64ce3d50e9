/* SPDX-License-Identifier: Apache-2.0 */
/* Codec block (id 10): dense blocks that are not zero, or the largest ones (OmniReduce, 2021). */
#include "codecs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "block_layout.h"
#include "bytes.h"
#include "device_ops.h"
#include "kernels.h"
#include "sparse.h"
#include "topk.h"

enum { SIZE, DOMAIN, MODE, RATIO, FEEDBACK, FORCE };
enum { NONZERO, LARGEST };
enum { SIZE_LARGEST = GW_BLOCK };

static const gw_codec_param_t params[] = {
    [SIZE] = {"size", GW_PARAM_INT, "256", 16, SIZE_LARGEST, NULL,
              "elements of a block; a power of two"},
    [DOMAIN] = {"domain", GW_PARAM_INT, "65536", 64, 1 << 24, NULL,
                "elements whose blocks share a bitmap and are compared; a power of two"},
    [MODE] = {"mode", GW_PARAM_CHOICE, "nonzero", 0, 0, "nonzero|largest",
              "which blocks are sent; the names block and topblock set it"},
    [RATIO] = {"ratio", GW_PARAM_REAL, "0.1", 1e-6, 0.5, NULL,
               "part of the blocks that mode=largest sends"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "off", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call; topblock has it on"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    bool largest = !strcmp(name, "topblock");
    coder->value[MODE] = largest ? LARGEST : NONZERO;
    coder->value[FEEDBACK] = largest;
    return largest || !strcmp(name, "block");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, coder->value[MODE] ? "topblock" : "block");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    for (int i = SIZE; i <= DOMAIN; i++) {
        size_t value = (size_t)coder->value[i];
        if (value & (value - 1)) {
            snprintf(why, size, "%s=%zu: a power of two is needed, such as %zu", params[i].name,
                     value, (size_t)1 << (63 - __builtin_clzll(value)));
            return GW_ERR_BAD_SETTING;
        }
    }
    double blocks = coder->value[DOMAIN] / coder->value[SIZE];
    if (blocks < 1 || blocks > GW_BLOCK_BLOCKS) {
        snprintf(why, size, "domain=%.0f: 1 to %d blocks of size=%.0f are needed, such as %.0f",
                 coder->value[DOMAIN], GW_BLOCK_BLOCKS, coder->value[SIZE],
                 256 * coder->value[SIZE]);
        return GW_ERR_BAD_SETTING;
    }
    gw_coder_t plain;
    gw__coder_defaults(coder->family, &plain);
    if (!coder->value[MODE] && coder->value[RATIO] != plain.value[RATIO]) {
        snprintf(why, size,
                 "ratio=%g: block sends every block that is not zero; topblock takes a ratio",
                 coder->value[RATIO]);
        return GW_ERR_BAD_SETTING;
    }
    if (coder->value[MODE] && !coder->value[FEEDBACK] && !coder->value[FORCE]) {
        snprintf(why, size,
                 "ef=off: the blocks that are not sent would be lost for good; use ef=on, or "
                 "force=1");
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[DOMAIN];
}

/* A domain is never larger than its elements and the byte that says so. */
static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return count * gw__element_bytes(wire_dtype) + (count + grain(coder) - 1) / grain(coder);
}

/* ---- Layout -------------------------------------------------------------------------------------
 */

static gw_block_layout_t layout_of(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    gw_block_layout_t layout = {.log2_size = gw__log2((size_t)coder->value[SIZE]),
                                .log2_domain = gw__log2((size_t)coder->value[DOMAIN]),
                                .wire = wire_dtype};
    if (coder->value[MODE])
        layout.ratio = gw__ratio_fixed(coder->value[RATIO]);
    return layout;
}

static gw_block_domain_t domain_of(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t n)
{
    gw_block_layout_t layout = layout_of(coder, wire_dtype);
    return gw__block_domain(&layout, n);
}

static bool is_set(const uint8_t *map, size_t block)
{
    return map[block / 8] >> block % 8 & 1;
}

/* Bytes of the blocks in a bitmap. */
static size_t sent_bytes(const gw_block_domain_t *d, const uint8_t *map)
{
    size_t set = 0;
    for (size_t i = 0; i < d->map_bytes; i++)
        set += (size_t)__builtin_popcount(map[i]);
    return gw__block_bytes(d, set, is_set(map, d->blocks - 1));
}

/* Bytes of a domain that begins here; 0 when no encoder can have written it. */
static size_t measure(const gw_block_domain_t *d, const uint8_t *at, size_t length)
{
    if (length < 1 || at[0] > GW_BLOCK_DENSE)
        return 0;
    gw_block_form_t form = (gw_block_form_t)at[0];
    size_t sent = 0, data = gw__block_data(d, form);
    if (length < data)
        return 0;
    if (form == GW_BLOCK_SOME) {
        sent = sent_bytes(d, at + 1);
        if (d->blocks % 8 && at[d->map_bytes] >> d->blocks % 8)
            return 0;
        if (gw__block_form(d, sent) != GW_BLOCK_SOME)
            return 0;
    }
    size_t bytes = gw__block_whole(d, form, sent);
    return bytes <= length ? bytes : 0;
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

typedef struct work {
    const gw_coder_t *coder;
    const gw_encode_t *in;
    size_t at;       /* of the domain in the call's piece */
    float *residual; /* of the domain; NULL: none */
    bool mixed;      /* some elements are not finite: they are in the source alone */
    float rms[GW_BLOCK_BLOCKS];
    float tile[GW_BLOCK], sent[GW_BLOCK];
    uint32_t place[GW_BLOCK]; /* 0, 1, 2, ... */
} work_t;

static const float *source(const gw_encode_t *in, size_t at, size_t n, float *tile)
{
    if (in->src_dtype == GW_F32)
        return (const float *)in->src + at;
    gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * at, tile, n);
    return tile;
}

/* The elements of a block as they are to be sent. */
static const float *look(work_t *w, const gw_block_domain_t *d, size_t block)
{
    size_t first = block * d->size, n = gw__block_elements(d, block);
    if (w->residual && !w->mixed)
        return w->residual + first;
    const float *x = source(w->in, w->at + first, n, w->tile);
    if (!w->residual)
        return x;
    for (size_t i = 0; i < n; i++)
        w->tile[i] =
            (gw__float_bits(x[i]) & GW_TOPK_INF) == GW_TOPK_INF ? x[i] : w->residual[first + i];
    return w->tile;
}

/* Adds the source to the residual; returns whether all of it is finite. */
static bool take_up(work_t *w, const gw_block_domain_t *d)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    size_t lost = 0;
    for (size_t i = 0; i < d->n; i += GW_BLOCK) {
        size_t n = d->n - i < GW_BLOCK ? d->n - i : GW_BLOCK;
        const float *x = source(w->in, w->at + i, n, w->tile);
        lost += topk->count(x, n, GW_TOPK_INF);
        if (w->residual)
            topk->fold(x, w->residual + i, n);
    }
    w->mixed = lost > 0;
    return lost == 0;
}

/* -0 counts as 0: products with a mask are full of it. */
static void mark_nonzero(work_t *w, const gw_block_domain_t *d, uint8_t *map)
{
    size_t wide = gw__element_bytes(w->in->src_dtype);
    for (size_t b = 0; b < d->blocks; b++) {
        size_t n = gw__block_elements(d, b);
        const uint8_t *src = (const uint8_t *)w->in->src + wide * (w->at + b * d->size);
        bool any =
            w->residual
                ? gw__kernels()->block.any(look(w, d, b), n * sizeof(float), 0x7FFFFFFF)
                : gw__kernels()->block.any(src, n * wide, wide == 4 ? 0x7FFFFFFF : 0x7FFF7FFF);
        map[b / 8] |= (uint8_t)(any << b % 8);
    }
}

/* The k blocks of largest mean square, of equal ones the first, but none that is zero; and all that
 * hold what is not finite. */
static void mark_largest(work_t *w, const gw_block_domain_t *d, uint8_t *map)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    size_t k = gw__ratio_of(gw__ratio_fixed(w->coder->value[RATIO]), d->blocks);
    for (size_t b = 0; b < d->blocks; b++)
        w->rms[b] = gw__kernels()->block.rms(look(w, d, b), gw__block_elements(d, b));
    uint32_t least = gw__topk_bound(w->rms, d->blocks, 0, k, 0);
    least = least < GW_TOPK_INF ? least : GW_TOPK_INF - 1;
    size_t ties = k - (topk->count(w->rms, d->blocks, least + 1) < k
                           ? topk->count(w->rms, d->blocks, least + 1)
                           : k);
    for (size_t b = 0; b < d->blocks; b++) {
        uint32_t bits = gw__float_bits(w->rms[b]);
        bool tie = bits == least && ties > 0, sent = bits > least || tie;
        ties -= tie;
        map[b / 8] |= (uint8_t)((sent && bits) << b % 8);
    }
}

/* One block, in the element type of the collective; what that loses stays in the residual. */
static void write_block(work_t *w, const gw_block_domain_t *d, size_t block, uint8_t *out)
{
    size_t n = gw__block_elements(d, block), at = w->at + block * d->size;
    if (!w->residual && w->in->src_dtype == w->in->wire_dtype) {
        memcpy(out, (const uint8_t *)w->in->src + d->wide * at, n * d->wide);
        return;
    }
    const float *x = look(w, d, block);
    gw__narrow(w->in->wire_dtype, x, out, n);
    gw__widen(w->in->wire_dtype, out, w->sent, n);
    if (w->residual) {
        memmove(w->tile, x, n * sizeof *x); /* the residual is about to change */
        gw__kernels()->topk.settle(w->residual + block * d->size, w->place, w->tile, w->sent, n);
    }
}

/* Returns the bytes that were written. */
static size_t encode_domain(work_t *w, const gw_block_domain_t *d, uint8_t *dst)
{
    uint8_t map[GW_BLOCK_BLOCKS / 8];
    memset(map, 0, d->map_bytes);
    if (w->coder->value[MODE])
        mark_largest(w, d, map);
    else
        mark_nonzero(w, d, map);
    gw_block_form_t form = gw__block_form(d, sent_bytes(d, map));
    uint8_t *out = dst + gw__block_data(d, form);
    dst[0] = (uint8_t)form;
    if (form == GW_BLOCK_NOTHING)
        return 1;
    if (form == GW_BLOCK_SOME)
        memcpy(dst + 1, map, d->map_bytes);
    for (size_t b = 0; b < d->blocks; b++) {
        if (form == GW_BLOCK_SOME && !is_set(map, b))
            continue;
        write_block(w, d, b, out);
        out += gw__block_elements(d, b) * d->wide;
    }
    return (size_t)(out - dst);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    work_t w = {.coder = coder, .in = in};
    size_t written = 0;
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % grain(coder))
        return GW_ERR_INVALID;
    if (capacity < bound(coder, in->wire_dtype, in->count))
        return GW_ERR_NO_SPACE;
    for (uint32_t i = 0; i < GW_BLOCK; i++)
        w.place[i] = i;
    in->poisoned = 0;
    for (size_t n; w.at < in->count; w.at += n) {
        n = in->count - w.at < grain(coder) ? in->count - w.at : grain(coder);
        gw_block_domain_t d = domain_of(coder, in->wire_dtype, n);
        w.residual = in->residual ? in->residual + w.at : NULL;
        w.mixed = false;
        if (w.residual || coder->value[MODE])
            in->poisoned += !take_up(&w, &d);
        written += encode_domain(&w, &d, dst + written);
    }
    *length = written;
    return GW_OK;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

static void decode_block(const gw_decode_t *in, const uint8_t *payload, size_t at, size_t n)
{
    float block[GW_BLOCK];
    if (in->mode == GW_DECODE_ADD && in->wire_dtype == GW_F32) {
        gw__kernels()->sum.add((float *)in->dst + at, payload, n);
        return;
    }
    gw__widen(in->wire_dtype, payload, block, n);
    if (in->mode == GW_DECODE_ADD)
        gw__kernels()->sum.add((float *)in->dst + at, block, n);
    else if (in->wire_dtype == in->dst_dtype)
        memcpy((uint8_t *)in->dst + gw__element_bytes(in->dst_dtype) * at, payload,
               n * gw__element_bytes(in->dst_dtype));
    else
        gw__narrow(in->dst_dtype, block, (uint8_t *)in->dst + gw__element_bytes(in->dst_dtype) * at,
                   n);
}

/* Where nothing was sent, adding leaves dst as it is. */
static void decode_domain(const gw_decode_t *in, const gw_block_domain_t *d, const uint8_t *payload,
                          size_t at)
{
    gw_block_form_t form = (gw_block_form_t)payload[0];
    const uint8_t *map = payload + 1, *elements = payload + gw__block_data(d, form);
    size_t wide = gw__element_bytes(in->dst_dtype);
    if (form != GW_BLOCK_DENSE && in->mode == GW_DECODE_STORE)
        memset((uint8_t *)in->dst + wide * at, 0, wide * d->n);
    for (size_t b = 0; form != GW_BLOCK_NOTHING && b < d->blocks; b++) {
        size_t n = gw__block_elements(d, b);
        if (form == GW_BLOCK_SOME && !is_set(map, b))
            continue;
        decode_block(in, elements, at + b * d->size, n);
        elements += n * d->wide;
    }
}

/* Checks all domains, notes where they begin unless `starts` is NULL, and decodes them if it is to;
 * false when one is none. */
static bool walk(const gw_coder_t *coder, const gw_decode_t *in, uint32_t *starts, bool decodes)
{
    size_t used = 0;
    for (size_t i = 0, n; i < in->count; i += n) {
        n = in->count - i < grain(coder) ? in->count - i : grain(coder);
        gw_block_domain_t d = domain_of(coder, in->wire_dtype, n);
        size_t bytes = measure(&d, in->payload + used, in->length - used);
        if (bytes == 0)
            return false;
        if (starts)
            *starts++ = (uint32_t)used;
        if (decodes)
            decode_domain(in, &d, in->payload + used, i);
        used += bytes;
    }
    return used == in->length;
}

static bool index_domains(const gw_coder_t *coder, gw_dtype_t wire_dtype, const uint8_t *payload,
                          size_t length, size_t count, uint32_t *starts)
{
    gw_decode_t in = {
        .payload = payload, .length = length, .wire_dtype = wire_dtype, .count = count};
    return walk(coder, &in, starts, false);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length > bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (!walk(coder, in, NULL, false))
        return GW_ERR_FRAME_PAYLOAD;
    walk(coder, in, NULL, true);
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* A block that is not sent is lost whole. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = coder->value[MODE] ? fabsf(x[i]) : 0.0f;
}

/* Byte 0: log2 of the block; byte 1: log2 of the domain. Which blocks the sender chose does not
 * matter to the reader. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)gw__log2((size_t)coder->value[SIZE]);
    out[1] = (uint8_t)gw__log2((size_t)coder->value[DOMAIN]);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    static const uint8_t none[GW_CODEC_HEADER_PARAMS - 2];
    if (memcmp(in + 2, none, sizeof none) || in[0] < 4 || in[0] > 12 || in[1] < 6 || in[1] > 24 ||
        in[1] < in[0] || in[1] - in[0] > 12)
        return GW_ERR_FRAME_HEADER;
    coder->value[SIZE] = (double)(1u << in[0]);
    coder->value[DOMAIN] = (double)(1u << in[1]);
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static size_t domains_of(const gw_coder_t *coder, size_t count)
{
    return (count + grain(coder) - 1) / grain(coder);
}

static size_t device_scratch(const gw_coder_t *coder, size_t count)
{
    gw_block_layout_t layout = layout_of(coder, GW_F32);
    return gw__cuda_block_work(&layout, count) * sizeof(uint32_t);
}

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_block_layout_t layout = layout_of(coder, in->wire_dtype);
    return gw__cuda_block.encode(queue, &layout, in->src_dtype, in->src, in->residual, in->count,
                                 dst, queue->scratch, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_block_layout_t layout = layout_of(coder, in->wire_dtype);
    const uint32_t *starts = gw__device_starts(coder, in->wire_dtype, in->count, in->payload);
    return in->mode == GW_DECODE_ADD
               ? gw__cuda_block.add(queue, &layout, in->payload, starts, in->count, in->dst)
               : gw__cuda_block.store(queue, &layout, in->payload, starts, in->count, in->dst_dtype,
                                      in->dst);
}

const gw__device_codec_t gw__device_block = {.family = &gw__codec_block,
                                             .encode = device_encode,
                                             .decode = device_decode,
                                             .scratch = device_scratch,
                                             .halves = true,
                                             .units = domains_of,
                                             .index = index_domains};

const gw_codec_t gw__codec_block = {
    .abi = GW_CODEC_ABI,
    .id = 10,
    .family = "block",
    .names = "block topblock",
    .summary = "dense blocks: all that are not zero, without loss, or the largest",
    .flags = GW_CODEC_LOSSY | GW_CODEC_FEEDBACK,
    .params = params,
    .match = match,
    .name = put_name,
    .check = check,
    .grain = grain,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .error_bound = error_bound,
    .put_params = put_params,
    .get_params = get_params,
};
