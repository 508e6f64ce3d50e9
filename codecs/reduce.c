/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode for every family of fixed payload size, out of its decode() and encode(). */
#include "reduce.h"

#include "kernels.h"

/* Elements of a slice where the grain leaves a choice: the sum stays in the nearest cache beside
 * what is added to it. */
enum { SLICE = 2048 };

bool gw__reduce_cuts(const gw_coder_t *coder)
{
    return (coder->family->flags & GW_CODEC_FIXED) != 0;
}

size_t gw__reduce_slice(const gw_coder_t *coder)
{
    size_t grain = coder->family->grain(coder);
    return grain < SLICE ? SLICE / grain * grain : grain;
}

/* One slice: elements `at` to at + count - 1, and where they lie in every payload. */
typedef struct slice {
    size_t at, count, from, bytes;
} slice_t;

/* What is read when the next slice comes. Payloads are as many streams as there are ranks, more
 * than processors follow by themselves. */
static void prefetch(const void *p, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const uint8_t *)p + line, 0, 2);
}

/* Own elements into the sum: the first contribution is copied, not added to 0. */
static void add_own(const gw_reduce_t *in, const slice_t *s, bool add, float *sum)
{
    size_t wide = gw__element_bytes(in->own_dtype), left = in->count - s->at - s->count;
    const uint8_t *own = (const uint8_t *)in->own + s->at * wide;
    float block[SLICE];
    prefetch(own + s->count * wide, (left < s->count ? left : s->count) * wide);
    if (!add) {
        gw__widen(in->own_dtype, own, sum, s->count);
    } else if (in->own_dtype == GW_F32) {
        gw__kernels()->sum.add(sum, own, s->count);
    } else {
        for (size_t i = 0; i < s->count; i += SLICE) {
            size_t n = s->count - i < SLICE ? s->count - i : SLICE;
            gw__widen(in->own_dtype, own + i * wide, block, n);
            gw__kernels()->sum.add(sum + i, block, n);
        }
    }
}

static gw_status_t add_payload(const gw_coder_t *coder, gw_reduce_t *in, const slice_t *s, size_t k,
                               float *sum)
{
    size_t left = in->length[k] - in->skip - s->from - s->bytes;
    gw_decode_t io = {.payload = in->payload[k] + in->skip + s->from,
                      .length = s->bytes,
                      .wire_dtype = in->wire_dtype,
                      .count = s->count,
                      .first = in->first + s->at,
                      .mode = k || in->own_at == 0 ? GW_DECODE_ADD : GW_DECODE_STORE,
                      .dst = sum,
                      .dst_dtype = GW_F32};
    prefetch(io.payload + s->bytes, left < s->bytes ? left : s->bytes);
    in->refused = k;
    return coder->family->decode(coder, &io);
}

static gw_status_t sum_slice(const gw_coder_t *coder, gw_reduce_t *in, const slice_t *s, float *sum)
{
    gw_status_t status = GW_OK;
    for (size_t k = 0; k <= in->payloads && status == GW_OK; k++) {
        if (k == in->own_at)
            add_own(in, s, k > 0, sum);
        if (k < in->payloads)
            status = add_payload(coder, in, s, k, sum);
    }
    if (status == GW_OK && in->scale != 1.0f)
        gw__kernels()->sum.scale(sum, in->scale, s->count);
    return status;
}

static gw_status_t encode_slice(const gw_coder_t *coder, gw_reduce_t *in, const slice_t *s,
                                const float *sum, uint8_t *dst)
{
    gw_encode_t out = {.src = sum,
                       .src_dtype = GW_F32,
                       .wire_dtype = in->wire_dtype,
                       .residual = in->residual ? in->residual + s->at : NULL,
                       .count = s->count,
                       .first = in->first + s->at,
                       .key = in->key,
                       .shared_key = in->shared_key};
    size_t length;
    in->refused = in->payloads;
    gw_status_t status = coder->family->encode(coder, &out, dst + s->from, s->bytes, &length);
    in->poisoned += out.poisoned;
    return status;
}

static gw_status_t check(const gw_coder_t *coder, gw_reduce_t *in, size_t bytes, size_t capacity)
{
    if (!gw__element_bytes(in->own_dtype) || !gw__element_bytes(in->wire_dtype) ||
        !gw__reduce_cuts(coder))
        return GW_ERR_UNSUPPORTED;
    if (in->first % coder->family->grain(coder) || in->own_at > in->payloads)
        return GW_ERR_INVALID;
    for (size_t i = 0; i < in->payloads; i++) {
        in->refused = i;
        if (in->length[i] < in->skip || in->length[i] - in->skip != bytes)
            return GW_ERR_FRAME_LENGTH;
    }
    in->refused = in->payloads;
    return capacity < bytes ? GW_ERR_NO_SPACE : GW_OK;
}

gw_status_t gw__reduce_slices(const gw_coder_t *coder, gw_reduce_t *in, float *sum, uint8_t *dst,
                              size_t capacity, size_t *length)
{
    const gw_codec_t *family = coder->family;
    size_t bytes = family->bound(coder, in->wire_dtype, in->count), slice = gw__reduce_slice(coder);
    gw_status_t status = check(coder, in, bytes, capacity);
    slice_t s = {.bytes = family->bound(coder, in->wire_dtype, slice)};
    in->poisoned = 0;
    for (; s.at < in->count && status == GW_OK; s.at += s.count, s.from += s.bytes) {
        s.count = in->count - s.at < slice ? in->count - s.at : slice;
        if (s.count < slice)
            s.bytes = bytes - s.from;
        status = sum_slice(coder, in, &s, sum);
        if (status == GW_OK)
            status = encode_slice(coder, in, &s, sum, dst);
    }
    if (status == GW_OK)
        *length = bytes;
    return status;
}

/* Decoders prefetch as far ahead as a slice and a half behind the sum: there has to be memory. */
gw_status_t gw__reduce_small(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst,
                             size_t capacity, size_t *length)
{
    float sum[2 * GW_BLOCK];
    for (size_t page = 0; page < 2 * GW_BLOCK; page += 1024)
        ((volatile float *)sum)[page] = 0.0f;
    return gw__reduce_slices(coder, in, sum, dst, capacity, length);
}
