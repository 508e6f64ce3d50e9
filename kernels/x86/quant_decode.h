/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of an x86 decoder of quant. A tier includes it behind its code header. */
#ifndef GW_QUANT_DECODE_H
#define GW_QUANT_DECODE_H

#include "fpmode.h"
#include "ref.h"

/* The tier's part: stores or adds a whole bucket whose metadata, at src, is neither poisoned nor
 * wide. */
INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add);

INLINE void decode_buckets(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                           float *dst, unsigned bits, bool add)
{
    size_t n = spec->bucket, stride = gw__quant_bytes(bits, n);
    float levels = (float)((1 << bits) - 1);
    for (size_t k = 0; k < buckets; k++, payload += stride, dst += n) {
        float min = gw__load_float(payload), unit = gw__load_float(payload + 4);
        if (min != min || gw__quant_is_wide(min, unit, levels))
            gw__quant_ref_decode_bucket(spec, payload, n, add, dst);
        else
            decode_bucket(payload, n, dst, bits, add);
    }
}

typedef void (*decode_fn)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                          float *dst);

#define DECODER(bits, mode)                                                                        \
    static GW_KERNEL_BODY void decode_##bits##_##mode(                                             \
        const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets, float *dst)           \
    {                                                                                              \
        decode_buckets(spec, payload, buckets, dst, bits, mode);                                   \
    }
#define DECODERS(bits)                                                                             \
    DECODER(bits, 0)                                                                               \
    DECODER(bits, 1)
#define DECODER_ROW(bits)                                                                          \
    {                                                                                              \
        decode_##bits##_0, decode_##bits##_1                                                       \
    }

DECODERS(1)
DECODERS(2)
DECODERS(3)
DECODERS(4)
DECODERS(5)
DECODERS(6)
DECODERS(7)
DECODERS(8)

static const decode_fn decoders[8][2] = {DECODER_ROW(1), DECODER_ROW(2), DECODER_ROW(3),
                                         DECODER_ROW(4), DECODER_ROW(5), DECODER_ROW(6),
                                         DECODER_ROW(7), DECODER_ROW(8)};

static void decode(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    size_t buckets = count / spec->bucket, done = buckets * spec->bucket;
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        decoders[spec->bits - 1][add](spec, payload, buckets, dst);
    gw__fpmode_leave(mode);
    payload += buckets * gw__quant_bytes(spec->bits, spec->bucket);
    if (done < count && add)
        gw__quant_ref_add(spec, payload, count - done, dst + done);
    else if (done < count)
        gw__quant_ref_store(spec, payload, count - done, dst + done);
}

static void store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

#endif
