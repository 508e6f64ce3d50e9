/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a topk block: count, packed indices, values (README.md). */
#include "topk.h"

#include <string.h>

#include "bytes.h"
#include "sparse.h"
#include "topk_layout.h"

size_t gw__topk_slots(const gw__topk_spec_t *spec, size_t n)
{
    return gw__ratio_of(spec->ratio, n);
}

static size_t index_bytes(const gw__topk_spec_t *spec, size_t slots)
{
    return (slots * spec->log2_block + 7) / 8;
}

static gw_quant_spec_t quant_of(const gw__topk_spec_t *spec)
{
    return (gw_quant_spec_t){
        .bits = spec->values == GW__TOPK_Q8 ? 8 : 4, .bucket = GW__TOPK_BUCKET, .zero = true};
}

static size_t value_bytes(const gw__topk_spec_t *spec, size_t count)
{
    if (spec->values == GW__TOPK_RAW)
        return count * gw__element_bytes(spec->wire_dtype);
    if (spec->values == GW__TOPK_FP16)
        return count * 2;
    unsigned bits = quant_of(spec).bits;
    size_t tail = count % GW__TOPK_BUCKET;
    return count / GW__TOPK_BUCKET * gw__quant_bytes(bits, GW__TOPK_BUCKET) +
           (tail ? gw__quant_bytes(bits, tail) : 0);
}

size_t gw__topk_block_bytes(const gw__topk_spec_t *spec, size_t n)
{
    size_t slots = gw__topk_slots(spec, n);
    return GW_TOPK_HEADER + index_bytes(spec, slots) + value_bytes(spec, slots);
}

/* ---- Writing ------------------------------------------------------------------------------------
 */

gw__topk_writer_t gw__topk_begin(const gw__topk_spec_t *spec, float *residual, size_t n,
                                 uint8_t *at)
{
    memset(at, 0, gw__topk_block_bytes(spec, n));
    return (gw__topk_writer_t){
        .spec = spec, .residual = residual, .at = at, .slots = gw__topk_slots(spec, n)};
}

void gw__topk_poison(gw__topk_writer_t *writer)
{
    gw__store32(writer->at, GW_TOPK_POISON);
}

/* Index j of the block lies at bit j * width of a stream that is zero so far. */
static void pack(uint8_t *out, size_t first, unsigned width, const uint32_t *index, size_t count)
{
    for (size_t i = 0; width == 16 && i < count; i++)
        gw__store16(out + 2 * (first + i), (uint16_t)index[i]);
    for (size_t i = 0; width != 16 && i < count; i++) {
        size_t bit = (first + i) * width;
        uint8_t *at = out + bit / 8;
        for (uint32_t rest = index[i] << bit % 8; rest; rest >>= 8)
            *at++ |= (uint8_t)rest;
    }
}

/* Keeps what is finite in the range of binary16. */
static void limit(const float *src, float *dst, size_t count)
{
    const float top = 65504.0f;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = gw__float_bits(src[i]), magnitude = bits & 0x7FFFFFFFu;
        bool over = magnitude > gw__float_bits(top) && magnitude < GW_TOPK_INF;
        dst[i] = over ? gw__float_of((bits & 0x80000000u) | gw__float_bits(top)) : src[i];
    }
}

/* Values from `first` on, a multiple of the bucket; and what they arrive as. */
static void write_values(const gw__topk_writer_t *w, size_t first, const float *value, float *sent,
                         size_t count)
{
    const gw__topk_spec_t *spec = w->spec;
    uint8_t *out = w->at + GW_TOPK_HEADER + index_bytes(spec, w->slots) + value_bytes(spec, first);
    gw_quant_spec_t quant = quant_of(spec);
    switch (spec->values) {
    case GW__TOPK_RAW:
        gw__narrow(spec->wire_dtype, value, out, count);
        gw__widen(spec->wire_dtype, out, sent, count);
        break;
    case GW__TOPK_FP16:
        limit(value, sent, count);
        gw__narrow(GW_F16, sent, out, count);
        gw__widen(GW_F16, out, sent, count);
        break;
    default:
        gw__kernels()->quant.encode(&quant, value, NULL, count, first, 0, out);
        gw__kernels()->quant.store(&quant, out, count, sent);
    }
}

void gw__topk_flush(gw__topk_writer_t *w, gw__topk_picked_t *p, bool last)
{
    size_t n = last ? p->held : p->held / GW__TOPK_BUCKET * GW__TOPK_BUCKET;
    if (n == 0)
        return;
    pack(w->at + GW_TOPK_HEADER, w->written, w->spec->log2_block, p->index, n);
    write_values(w, w->written, p->value, p->sent, n);
    if (w->residual)
        gw__kernels()->topk.settle(w->residual, p->index, p->value, p->sent, n);
    if (w->momentum) /* less itself: 0, but where it was not finite */
        gw__kernels()->topk.settle(w->momentum, p->index, p->sent, p->sent, n);
    w->written += n;
    p->held -= n;
    memmove(p->index, p->index + n, p->held * sizeof *p->index);
    memmove(p->value, p->value + n, p->held * sizeof *p->value);
    gw__store32(w->at, (uint32_t)w->written);
}

/* ---- Reading ------------------------------------------------------------------------------------
 */

static bool all_zero(const uint8_t *at, size_t bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++)
        any |= at[i];
    return !any;
}

static bool ascends(const uint8_t *at, size_t bytes, unsigned width, size_t count, size_t n)
{
    bool right = true;
    uint32_t least = 0; /* of the next index */
    for (size_t i = 0; i < count; i++) {
        uint32_t index = width == 16 ? gw__load16(at + 2 * i) : gw__topk_index(at, bytes, width, i);
        right &= index >= least && index < n;
        least = index + 1;
    }
    return right;
}

bool gw__topk_is_poisoned(const uint8_t *at)
{
    return gw__load32(at) == GW_TOPK_POISON;
}

bool gw__topk_valid(const gw__topk_spec_t *spec, const uint8_t *at, size_t n)
{
    size_t slots = gw__topk_slots(spec, n), bytes = index_bytes(spec, slots);
    size_t all = bytes + value_bytes(spec, slots), count = gw__load32(at);
    const uint8_t *indices = at + GW_TOPK_HEADER, *values = indices + bytes;
    if (gw__topk_is_poisoned(at))
        return all_zero(indices, all);
    if (count > slots || !ascends(indices, bytes, spec->log2_block, count, n))
        return false;
    size_t bits = count * spec->log2_block, used = value_bytes(spec, count);
    if (bits % 8 && indices[bits / 8] >> bits % 8)
        return false;
    size_t behind = (bits + 7) / 8;
    if (!all_zero(indices + behind, bytes - behind) || !all_zero(values + used, all - bytes - used))
        return false;
    gw_quant_spec_t quant = quant_of(spec);
    return spec->values < GW__TOPK_Q8 || gw__kernels()->quant.valid(&quant, values, count);
}

size_t gw__topk_read(const gw__topk_spec_t *spec, const uint8_t *at, size_t n, size_t from,
                     gw__topk_picked_t *out)
{
    size_t slots = gw__topk_slots(spec, n), bytes = index_bytes(spec, slots);
    size_t count = gw__load32(at) - from;
    const uint8_t *indices = at + GW_TOPK_HEADER,
                  *values = indices + bytes + value_bytes(spec, from);
    gw_quant_spec_t quant = quant_of(spec);
    count = count < GW__TOPK_ROOM ? count : GW__TOPK_ROOM;
    for (size_t i = 0; i < count; i++)
        out->index[i] = spec->log2_block == 16
                            ? gw__load16(indices + 2 * (from + i))
                            : gw__topk_index(indices, bytes, spec->log2_block, from + i);
    if (spec->values >= GW__TOPK_Q8)
        gw__kernels()->quant.store(&quant, values, count, out->value);
    else
        gw__widen(spec->values == GW__TOPK_RAW ? spec->wire_dtype : GW_F16, values, out->value,
                  count);
    return count;
}
