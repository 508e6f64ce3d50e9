/* SPDX-License-Identifier: Apache-2.0 */
/* The codec contract (include/gradwire/codec.h), one property after the other. */
#include "contract.h"

#include "contract_factors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "reduce.h"

const char *const contract_properties[] = {
    "sizes add up",    "no space",     "encodes",       "size",          "source",
    "guard",           "decodes",      "bound",         "exact",         "finite",
    "poison",          "spread",       "counted",       "residual",      "residual NaN",
    "added",           "reduced",      "merged",        "momentum",      "half",
    "tiers",           "refused",      "untouched",     "pieces",        "slice",
    "position",        "factor sizes", "factor guard",  "factor poison", "factor replicas",
    "factor residual", "factor bound", "factor finite", "factor tiers",  NULL};

/* What the checks share: the coder, its input, and what the tier ref made of it. */
typedef struct check {
    const gw_coder_t *coder;
    const gw_codec_t *family;
    const contract_data_t *data;
    contract_report_t *report;
    size_t grain, bound;
    bool feeds; /* keeps a residual */
} check_t;

static bool GW_PRINTF(3, 4) broken(const check_t *c, const char *property, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    c->report->property = property;
    snprintf(c->report->text, sizeof c->report->text,
             "%s, %s as %s, count %zu, %s, tier %s: %s: %s", c->coder->spec,
             gw_dtype_name(c->data->src_dtype), gw_dtype_name(c->data->wire_dtype), c->data->count,
             c->data->fill, gw__kernels_tier(), property, what);
    return false;
}

/* ---- Guarded memory -----------------------------------------------------------------------------
 */

enum { ZONE = 64 };

typedef struct guarded {
    uint8_t *block, *at;
    size_t bytes;
    uint8_t poison;
} guarded_t;

/* Payloads lie at odd places, since nothing aligns them. */
static guarded_t guard(size_t bytes, size_t odd, uint8_t poison)
{
    guarded_t g = {.block = malloc(bytes + 2 * ZONE + odd), .bytes = bytes, .poison = poison};
    memset(g.block, poison, bytes + 2 * ZONE + odd);
    g.at = g.block + ZONE + odd;
    return g;
}

static bool intact(const guarded_t *g)
{
    bool right = true;
    for (size_t i = 1; i <= ZONE; i++)
        right &= g->at[-(ptrdiff_t)i] == g->poison && g->at[g->bytes + i - 1] == g->poison;
    return right;
}

static bool unwritten(const guarded_t *g)
{
    bool right = intact(g);
    for (size_t i = 0; i < g->bytes; i++)
        right &= g->at[i] == g->poison;
    return right;
}

/* What one tier makes of the input. */
typedef struct result {
    guarded_t payload, y, sum, kept, half;
    size_t length, poisoned;
} result_t;

static result_t result_new(const check_t *c, uint8_t poison)
{
    size_t n = c->data->count;
    return (result_t){.payload = guard(c->bound, 1, poison),
                      .y = guard(4 * n, 0, poison),
                      .sum = guard(4 * n, 0, poison),
                      .kept = guard(4 * n, 0, poison),
                      .half = guard(4 * n, 0, poison)};
}

static void result_free(result_t *r)
{
    guarded_t *all[] = {&r->payload, &r->y, &r->sum, &r->kept, &r->half};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->block);
}

static const float *floats(const guarded_t *g)
{
    return (const float *)(const void *)g->at;
}

static gw_encode_t request(const check_t *c, float *residual)
{
    return (gw_encode_t){.src = c->data->src,
                         .src_dtype = c->data->src_dtype,
                         .wire_dtype = c->data->wire_dtype,
                         .residual = residual,
                         .count = c->data->count,
                         .key = 77,
                         .shared_key = 78};
}

static gw_decode_t answer(const check_t *c, const result_t *r, void *dst)
{
    return (gw_decode_t){.payload = r->payload.at,
                         .length = r->length,
                         .wire_dtype = c->data->wire_dtype,
                         .count = c->data->count,
                         .dst = dst,
                         .dst_dtype = GW_F32};
}

static bool is_frame_error(gw_status_t status)
{
    return status == GW_ERR_FRAME_LENGTH || status == GW_ERR_FRAME_PAYLOAD ||
           status == GW_ERR_FRAME_HEADER || status == GW_ERR_FRAME_MISMATCH;
}

/* ---- Sizes --------------------------------------------------------------------------------------
 */

static bool sizes_add_up(const check_t *c)
{
    gw_dtype_t wire = c->data->wire_dtype;
    size_t one = c->family->bound(c->coder, wire, c->grain);
    for (size_t k = 0; k < 4; k++)
        for (size_t tail = 0; tail < c->grain; tail += 1 + tail / 2)
            if (c->family->bound(c->coder, wire, k * c->grain + tail) !=
                k * one + c->family->bound(c->coder, wire, tail))
                return broken(c, "sizes add up", "%zu grains and %zu elements", k, tail);
    return c->family->bound(c->coder, wire, 0) == 0 || broken(c, "sizes add up", "0 elements");
}

static bool refuses_less_room(const check_t *c)
{
    size_t length = 7;
    gw_encode_t in = request(c, NULL);
    if (c->bound == 0)
        return true;
    guarded_t out = guard(c->bound, 1, 0xA5);
    gw_status_t status = c->family->encode(c->coder, &in, out.at, c->bound - 1, &length);
    bool right = status == GW_ERR_NO_SPACE && unwritten(&out) && length == 7;
    free(out.block);
    return right || broken(c, "no space", "status %d with a byte less than bound()", status);
}

/* ---- Encoding and decoding ----------------------------------------------------------------------
 */

static bool encodes(const check_t *c, result_t *r, bool feedback)
{
    size_t bytes = c->data->count * gw_dtype_size(c->data->src_dtype);
    uint8_t *before = malloc(bytes + 1);
    gw_encode_t in = request(c, feedback ? (float *)(void *)r->kept.at : NULL);
    memcpy(before, c->data->src, bytes);
    if (feedback)
        memcpy(r->kept.at, c->data->residual, 4 * c->data->count);
    gw_status_t status = c->family->encode(c->coder, &in, r->payload.at, c->bound, &r->length);
    bool same = !memcmp(before, c->data->src, bytes);
    memcpy(c->data->src, before, bytes);
    free(before);
    r->poisoned = in.poisoned;
    if (status)
        return broken(c, "encodes", "status %d", status);
    if (r->length > c->bound || (c->family->flags & GW_CODEC_FIXED && r->length != c->bound))
        return broken(c, "size", "%zu bytes, bound() says %zu", r->length, c->bound);
    if (!same)
        return broken(c, "source", "encode wrote to it");
    return (intact(&r->payload) && intact(&r->kept)) || broken(c, "guard", "encode wrote outside");
}

static bool decodes(const check_t *c, result_t *r)
{
    gw_decode_t io = answer(c, r, r->y.at);
    gw_status_t status = c->family->decode(c->coder, &io);
    if (status)
        return broken(c, "decodes", "status %d", status);
    return intact(&r->y) || broken(c, "guard", "decode wrote outside");
}

/* ---- Values -------------------------------------------------------------------------------------
 */

static bool within_bound(const check_t *c, const result_t *r)
{
    const float *x = c->data->x, *y = floats(&r->y);
    if (!(c->family->flags & GW_CODEC_LOSSY) || !c->data->finite)
        return true;
    float *bound = malloc(4 * c->data->count + 4);
    size_t i = 0, n = c->data->count;
    c->family->error_bound(c->coder, x, n, bound);
    while (i < n && fabs((double)y[i] - (double)x[i]) <= (double)bound[i])
        i++;
    float limit = i < n ? bound[i] : 0;
    free(bound);
    return i == n || broken(c, "bound", "x[%zu] = %a became %a, declared %a", i, (double)x[i],
                            (double)y[i], (double)limit);
}

/* Of a family that loses nothing: every bit, those of NaN too. */
static bool exact(const check_t *c, result_t *r)
{
    if (c->family->flags & GW_CODEC_LOSSY || c->data->src_dtype != c->data->wire_dtype)
        return true;
    gw_decode_t io = answer(c, r, r->half.at);
    io.dst_dtype = c->data->src_dtype;
    gw_status_t status = c->family->decode(c->coder, &io);
    return (status == GW_OK && !memcmp(r->half.at, c->data->src,
                                       c->data->count * gw_dtype_size(c->data->src_dtype))) ||
           broken(c, "exact", "other bits (status %d)", status);
}

static bool all_finite(const float *x, size_t count)
{
    bool right = true;
    for (size_t i = 0; i < count; i++)
        right &= (bool)isfinite(x[i]);
    return right;
}

/* What is finite in a grain that is finite stays so; what is not arrives at its own index. */
static bool finite_where_it_should(const check_t *c, const result_t *r, bool decoded_sum)
{
    const float *x = c->data->x, *y = floats(&r->y);
    for (size_t at = 0, n; at < c->data->count; at += n) {
        n = c->data->count - at < c->grain ? c->data->count - at : c->grain;
        bool clean = all_finite(x + at, n);
        for (size_t i = at; i < at + n; i++) {
            if (!isfinite(x[i]) && isfinite(y[i]))
                return broken(c, "poison", "x[%zu] = %g became %g", i, (double)x[i], (double)y[i]);
            if (clean && !decoded_sum && !isfinite(y[i]))
                return broken(c, c->data->finite ? "finite" : "spread", "x[%zu] = %a became %g", i,
                              (double)x[i], (double)y[i]);
        }
    }
    return true;
}

static float limited(float x)
{
    return fmaxf(-FLT_MAX, fminf(FLT_MAX, x));
}

/* residual' = (src + residual) - decoded; as it was, or all of what was to be sent, where the
 * element or its bucket is not finite. */
static bool residual_is_right(const check_t *c, const result_t *r)
{
    const float *x = c->data->x, *y = floats(&r->y), *before = c->data->residual,
                *kept = floats(&r->kept);
    for (size_t i = 0; i < c->data->count; i++) {
        float p = limited(x[i] + before[i]);
        if (!isfinite(kept[i]))
            return broken(c, "residual NaN", "residual[%zu] is %g", i, (double)kept[i]);
        bool right = !isfinite(x[i])   ? kept[i] == before[i]
                     : !isfinite(y[i]) ? kept[i] == before[i] || kept[i] == p || kept[i] == 0.0f
                                       : kept[i] == limited(p - y[i]);
        if (!right)
            return broken(c, "residual", "x[%zu] = %a, residual %a, decoded %a, residual %a", i,
                          (double)x[i], (double)before[i], (double)y[i], (double)kept[i]);
    }
    return (r->poisoned > 0) == !c->data->finite ||
           broken(c, "counted", "%zu poisoned", r->poisoned);
}

/* ---- Modes and types ----------------------------------------------------------------------------
 */

static bool same_or_nan(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool adds(const check_t *c, result_t *r)
{
    float *sum = (float *)(void *)r->sum.at;
    gw_decode_t io = answer(c, r, sum);
    io.mode = GW_DECODE_ADD;
    for (size_t i = 0; i < c->data->count; i++)
        sum[i] = 0.5f + (float)(i % 13);
    gw_status_t status = c->family->decode(c->coder, &io);
    if (status || !intact(&r->sum))
        return broken(c, status ? "added" : "guard", "adding, status %d", status);
    for (size_t i = 0; i < c->data->count; i++)
        if (!same_or_nan(sum[i], 0.5f + (float)(i % 13) + floats(&r->y)[i]))
            return broken(c, "added", "element %zu: %a plus %a gave %a", i,
                          (double)(0.5f + (float)(i % 13)), (double)floats(&r->y)[i],
                          (double)sum[i]);
    return true;
}

/* Decoding to 16 bits is decoding to 32 and narrowing once. */
static bool narrows(const check_t *c, result_t *r)
{
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    size_t n = c->data->count;
    bool f16 = c->data->wire_dtype == GW_F16;
    gw_decode_t io = answer(c, r, r->half.at);
    if (c->data->wire_dtype == GW_F32)
        return true;
    io.dst_dtype = c->data->wire_dtype;
    uint16_t *narrow = malloc(2 * n + 2);
    float *a = malloc(4 * n + 4), *b = malloc(4 * n + 4);
    gw_status_t status = c->family->decode(c->coder, &io);
    (f16 ? cast->f32_to_f16 : cast->f32_to_bf16)(floats(&r->y), narrow, n);
    (f16 ? cast->f16_to_f32 : cast->bf16_to_f32)(narrow, a, n);
    (f16 ? cast->f16_to_f32 : cast->bf16_to_f32)(r->half.at, b, n);
    size_t i = 0;
    while (i < n && same_or_nan(a[i], b[i]))
        i++;
    free(narrow);
    free(a);
    free(b);
    if (!intact(&r->half))
        return broken(c, "guard", "decode to 16 bits");
    return (status == GW_OK && i == n) || broken(c, "half", "element %zu, status %d", i, status);
}

/* ---- Sums ---------------------------------------------------------------------------------------
 */

enum { PEERS = 2 };

/* Two payloads, of the input and of what lay in the residual; by itself and as a sum. */
typedef struct sums {
    uint8_t *payload[PEERS];
    size_t length[PEERS];
    float *sum, *kept[2];
    uint8_t *out[2];
} sums_t;

static bool sums_new(const check_t *c, sums_t *s)
{
    const float *src[PEERS] = {c->data->x, c->data->residual};
    gw_status_t status = GW_OK;
    size_t bytes = 4 * c->data->count;
    *s = (sums_t){.sum = malloc(bytes + 4)};
    for (int k = 0; k < PEERS; k++) {
        gw_encode_t in = request(c, NULL);
        in.src = src[k];
        in.src_dtype = GW_F32;
        s->payload[k] = malloc(c->bound + 1);
        s->out[k] = malloc(c->bound + 1);
        s->kept[k] = malloc(bytes + 4);
        memcpy(s->kept[k], c->data->residual, bytes);
        status |= c->family->encode(c->coder, &in, s->payload[k], c->bound, &s->length[k]);
    }
    return status == GW_OK || broken(c, "encodes", "status %d of binary32", status);
}

static void sums_free(sums_t *s)
{
    for (int k = 0; k < PEERS; k++) {
        free(s->payload[k]);
        free(s->out[k]);
        free(s->kept[k]);
    }
    free(s->sum);
}

static bool take(const check_t *c, const sums_t *s, int k, gw_decode_mode_t mode)
{
    gw_decode_t io = {.payload = s->payload[k],
                      .length = s->length[k],
                      .wire_dtype = c->data->wire_dtype,
                      .count = c->data->count,
                      .mode = mode,
                      .dst = s->sum,
                      .dst_dtype = GW_F32};
    return c->family->decode(c->coder, &io) == GW_OK;
}

/* Own elements lie between the two payloads: STORE, a sum, ADD, a product, encode. */
static bool chain(const check_t *c, sums_t *s, size_t *length)
{
    gw_encode_t in = request(c, c->feeds ? s->kept[0] : NULL);
    if (!take(c, s, 0, GW_DECODE_STORE))
        return false;
    gw__kernels()->sum.add(s->sum, c->data->x, c->data->count);
    if (!take(c, s, 1, GW_DECODE_ADD))
        return false;
    gw__kernels()->sum.scale(s->sum, 0.5f, c->data->count);
    in.src = s->sum;
    in.src_dtype = GW_F32;
    return c->family->encode(c->coder, &in, s->out[0], c->bound, length) == GW_OK;
}

/* By the family's own way, or slice by slice. */
static gw_status_t sum_up(const check_t *c, gw_reduce_t *in, uint8_t *dst, size_t *length)
{
    if (c->family->reduce)
        return c->family->reduce(c->coder, in, dst, c->bound, length);
    float *sum = malloc(gw__reduce_slice(c->coder) * sizeof *sum);
    gw_status_t status = gw__reduce_slices(c->coder, in, sum, dst, c->bound, length);
    free(sum);
    return status;
}

static bool reduce_is_chain(const check_t *c, sums_t *s)
{
    size_t expected = 0, length = 0;
    gw_reduce_t in = {.own = c->data->src,
                      .own_dtype = c->data->src_dtype,
                      .own_at = 1,
                      .payload = (const uint8_t *const *)s->payload,
                      .length = s->length,
                      .payloads = PEERS,
                      .scale = 0.5f,
                      .wire_dtype = c->data->wire_dtype,
                      .residual = c->feeds ? s->kept[1] : NULL,
                      .count = c->data->count,
                      .key = 77,
                      .shared_key = 78};
    gw_status_t status = sum_up(c, &in, s->out[1], &length);
    bool right = status == GW_OK && chain(c, s, &expected) && length == expected &&
                 !memcmp(s->out[0], s->out[1], length) &&
                 !memcmp(s->kept[0], s->kept[1], 4 * c->data->count);
    return right ||
           broken(c, "reduced", "not what decoding, adding and encoding give (status %d)", status);
}

/* Payloads with numbers of 16 bits are refused. */
static bool merge_is_adding(const check_t *c, const result_t *r, sums_t *s)
{
    float *merged = s->kept[0];
    gw_merge_t io = {.from = s->payload[1],
                     .from_length = s->length[1],
                     .into = s->out[0],
                     .into_length = s->length[0],
                     .wire_dtype = c->data->wire_dtype,
                     .count = c->data->count};
    gw_decode_t back = answer(c, r, merged);
    memcpy(s->out[0], s->payload[0], s->length[0]);
    gw_status_t status = c->family->merge(c->coder, &io);
    if (status == GW_ERR_UNSUPPORTED && c->data->wire_dtype != GW_F32)
        return true;
    back.payload = s->out[0];
    back.length = s->length[0];
    bool right = status == GW_OK && c->family->decode(c->coder, &back) == GW_OK &&
                 take(c, s, 0, GW_DECODE_STORE) && take(c, s, 1, GW_DECODE_ADD);
    for (size_t i = 0; right && i < c->data->count; i++)
        right = same_or_nan(merged[i], s->sum[i]);
    return right || broken(c, "merged", "not what decoding and adding give (status %d)", status);
}

static bool sums(const check_t *c, const result_t *r)
{
    sums_t s;
    bool reduces = c->family->reduce || gw__reduce_cuts(c->coder);
    if (!reduces && !c->family->merge)
        return true;
    bool right = sums_new(c, &s) && (!reduces || reduce_is_chain(c, &s)) &&
                 (!c->family->merge || merge_is_adding(c, r, &s));
    sums_free(&s);
    return right;
}

/* ---- Momentum -----------------------------------------------------------------------------------
 */

/* Into a momentum of zeros everything goes as it is; the next time parts give what the whole does.
 */
static bool takes_momentum(const check_t *c)
{
    size_t n = c->data->count, half = n / 2, wide = gw_dtype_size(c->data->src_dtype);
    if (!c->family->keeps_momentum || !c->family->keeps_momentum(c->coder))
        return true;
    float *u[2] = {calloc(n + 1, sizeof(float)), calloc(n + 1, sizeof(float))};
    float *out[2] = {calloc(n + 1, sizeof(float)), calloc(n + 1, sizeof(float))};
    gw_encode_t in = request(c, NULL);
    in.momentum = u[0];
    bool right = c->family->correct(c->coder, &in, out[0]) == GW_OK && all_finite(u[0], n);
    for (size_t i = 0; right && i < n; i++)
        right = same_or_nan(out[0][i], c->data->x[i]);
    memcpy(u[1], u[0], n * sizeof(float));
    right = right && c->family->correct(c->coder, &in, out[0]) == GW_OK;
    for (size_t at = 0; right && at < n; at += in.count) {
        in.src = (const uint8_t *)c->data->src + at * wide;
        in.count = at ? n - half : half ? half : n;
        in.momentum = u[1] + at;
        right = c->family->correct(c->coder, &in, out[1] + at) == GW_OK;
    }
    right = right && !memcmp(u[0], u[1], n * sizeof(float)) &&
            !memcmp(out[0], out[1], n * sizeof(float));
    for (int k = 0; k < 2; k++) {
        free(u[k]);
        free(out[k]);
    }
    return right || broken(c, "momentum", "not what went in, or parts are not the whole");
}

/* ---- Refusals -----------------------------------------------------------------------------------
 */

static bool refuses_length(const check_t *c, const result_t *r, size_t length)
{
    uint8_t *bytes = malloc(length + (length == 0)); /* no more than that, for AddressSanitizer */
    guarded_t out = guard(4 * c->data->count, 0, 0xA5);
    gw_decode_t io = answer(c, r, out.at);
    for (size_t i = 0; i < length; i++)
        bytes[i] = i < r->length ? r->payload.at[i] : 0;
    io.payload = bytes;
    io.length = length;
    gw_status_t status = c->family->decode(c->coder, &io);
    bool clean = unwritten(&out);
    free(bytes);
    free(out.block);
    if (!is_frame_error(status))
        return broken(c, "refused", "%zu bytes of %zu: status %d", length, r->length, status);
    return clean || broken(c, "untouched", "%zu bytes of %zu were refused", length, r->length);
}

static bool refuses_other_lengths(const check_t *c, const result_t *r)
{
    size_t n = r->length;
    if (!refuses_length(c, r, n + 1) || !refuses_length(c, r, n + 4096))
        return false;
    return n == 0 ||
           (refuses_length(c, r, n - 1) && refuses_length(c, r, n / 2) && refuses_length(c, r, 0));
}

/* ---- Pieces -------------------------------------------------------------------------------------
 */

typedef struct pieces {
    guarded_t y, kept;
    size_t at; /* bytes of payload so far */
} pieces_t;

/* One piece as a frame: encoded where it lies in the call, decoded at its own place. */
static bool piece(const check_t *c, const result_t *whole, pieces_t *p, size_t at, size_t n)
{
    size_t room = gw_frame_bound(c->coder, c->data->wire_dtype, n), length = 0;
    uint8_t *frame = malloc(room);
    float *kept = c->feeds ? (float *)(void *)p->kept.at + at : NULL;
    gw_encode_t in = request(c, kept);
    gw_frame_info_t info = {.header_bytes = 0};
    in.src = (const uint8_t *)c->data->src + at * gw_dtype_size(c->data->src_dtype);
    in.first = at;
    in.count = n;
    gw_decode_t io = answer(c, whole, p->y.at + 4 * at);
    io.first = at;
    io.count = n;
    gw_status_t status = gw_frame_encode(c->coder, &in, frame, room, &length);
    io.payload = frame;
    io.length = length;
    status = status ? status : gw_frame_inspect(frame, length, &info);
    status = status ? status : gw_frame_decode(c->coder, &io);
    bool same = status || !(c->family->flags & GW_CODEC_FIXED) ||
                (p->at + info.payload_bytes <= whole->length &&
                 !memcmp(frame + info.header_bytes, whole->payload.at + p->at, info.payload_bytes));
    io.first += c->grain;
    gw_status_t moved = status ? GW_ERR_FRAME_MISMATCH : gw_frame_decode(c->coder, &io);
    p->at += info.payload_bytes;
    free(frame);
    if (moved != GW_ERR_FRAME_MISMATCH)
        return broken(c, "position", "a frame of %zu was taken for one of %zu", at, at + c->grain);
    if (status)
        return broken(c, "slice", "status %d at %zu", status, at);
    return same || broken(c, "pieces", "other bytes from element %zu on", at);
}

static bool pieces_make_the_whole(const check_t *c, const result_t *whole)
{
    size_t count = c->data->count;
    bool right = true;
    pieces_t p = {.y = guard(4 * count, 0, 0x3C), .kept = guard(4 * count, 0, 0x3C)};
    memcpy(p.kept.at, c->data->residual, 4 * count);
    for (size_t at = 0, n; right && at < count; at += n) {
        n = c->grain * (1 + at / c->grain % 3);
        n = n < count - at ? n : count - at;
        right = piece(c, whole, &p, at, n);
    }
    if (right && (memcmp(p.y.at, whole->y.at, 4 * count) || !intact(&p.y)))
        right = broken(c, "slice", "decoded pieces are not the decoded whole");
    if (right && c->feeds && memcmp(p.kept.at, whole->kept.at, 4 * count))
        right = broken(c, "pieces", "another residual");
    free(p.y.block);
    free(p.kept.block);
    return right;
}

/* ---- All of it ----------------------------------------------------------------------------------
 */

/* Without a residual the declared bound holds; with one, what it says. */
static bool check_values(const check_t *c, result_t *r)
{
    if (!encodes(c, r, false) || !decodes(c, r) || !exact(c, r) ||
        !finite_where_it_should(c, r, false) || !within_bound(c, r))
        return false;
    if (!c->feeds)
        return true;
    return encodes(c, r, true) && decodes(c, r) && finite_where_it_should(c, r, true) &&
           residual_is_right(c, r);
}

static bool check_first_tier(const check_t *c, result_t *r)
{
    return sizes_add_up(c) && refuses_less_room(c) && check_values(c, r) && adds(c, r) &&
           narrows(c, r) && sums(c, r) && takes_momentum(c) && refuses_other_lengths(c, r) &&
           pieces_make_the_whole(c, r);
}

static bool same(const guarded_t *a, const guarded_t *b, size_t bytes)
{
    return !memcmp(a->at, b->at, bytes);
}

/* Another poison, so that what one tier leaves out shows. */
static bool check_tier(const check_t *c, const result_t *ref)
{
    size_t bytes = 4 * c->data->count;
    result_t r = result_new(c, 0x5A);
    bool right = encodes(c, &r, c->feeds) && decodes(c, &r) && adds(c, &r) && narrows(c, &r) &&
                 sums(c, &r) && refuses_other_lengths(c, &r);
    if (right)
        right = (r.length == ref->length && same(&r.payload, &ref->payload, r.length) &&
                 same(&r.y, &ref->y, bytes) && same(&r.sum, &ref->sum, bytes) &&
                 (!c->feeds || same(&r.kept, &ref->kept, bytes)) && r.poisoned == ref->poisoned) ||
                broken(c, "tiers", "not what ref gives");
    result_free(&r);
    return right;
}

bool contract_check(const gw_coder_t *coder, const contract_data_t *data, contract_report_t *report)
{
    check_t c = {.coder = coder,
                 .family = coder->family,
                 .data = data,
                 .report = report,
                 .grain = coder->family->grain(coder),
                 .bound = coder->family->bound(coder, data->wire_dtype, data->count)};
    c.feeds = c.family->flags & GW_CODEC_FEEDBACK && gw_coder_get(coder, "ef", 1) != 0;
    *report = (contract_report_t){.property = NULL};
    result_t ref = result_new(&c, 0xA5);
    gw__kernels_select(gw__kernels_available(0), NULL, 0);
    bool right = check_first_tier(&c, &ref);
    for (size_t i = 1; right && gw__kernels_available(i); i++) {
        gw__kernels_select(gw__kernels_available(i), NULL, 0);
        right = check_tier(&c, &ref);
    }
    gw__kernels_select("best", NULL, 0);
    result_free(&ref);
    if (right && c.family->factors)
        right = contract_factors(coder, data, &report->property, report->text, sizeof report->text);
    return right;
}
