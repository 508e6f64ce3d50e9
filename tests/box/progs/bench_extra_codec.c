/* SPDX-License-Identifier: Apache-2.0 */
/* A codec of somebody else's, preloaded under `gradwire bench codec`: the upper half of a binary32.
 * BENCH_EXTRA makes it lie in one way, which the benchmark must see. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

static const char *lie = "";
static const gw_codec_param_t params[] = {{.name = NULL}};

static bool lies(const char *how)
{
    return strcmp(lie, how) == 0;
}

static bool match(const char *name, gw_coder_t *coder)
{
    (void)coder;
    return !lies("nameless") && strcmp(name, "upper16") == 0;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    (void)coder;
    snprintf(out, size, "upper16");
}

static size_t grain(const gw_coder_t *coder)
{
    (void)coder;
    return 1;
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    (void)coder, (void)wire_dtype;
    return 2 * count;
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    const float *x = in->src;
    if (in->src_dtype != GW_F32 || in->wire_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (capacity < bound(coder, in->wire_dtype, in->count))
        return GW_ERR_NO_SPACE;
    for (size_t i = 0; i < in->count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        if (lies("tier") && strcmp(gw_kernel_tier(), "ref") != 0)
            bits += 0x8000; /* inside the bound as well, but other bytes */
        dst[2 * i] = (uint8_t)(bits >> 16);
        dst[2 * i + 1] = (uint8_t)(bits >> 24);
    }
    in->poisoned = lies("poison");
    *length = 2 * in->count;
    return GW_OK;
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    float *out = in->dst;
    (void)coder;
    if (lies("refuse"))
        return GW_ERR_FRAME_PAYLOAD;
    if (in->length != 2 * in->count)
        return GW_ERR_FRAME_LENGTH;
    for (size_t i = 0; i < in->count - lies("unwritten"); i++) {
        uint32_t bits = (uint32_t)in->payload[2 * i] << 16 | (uint32_t)in->payload[2 * i + 1] << 24;
        float y;
        memcpy(&y, &bits, 4);
        if (in->mode == GW_DECODE_STORE)
            out[i] = y;
        else
            out[i] += lies("add") ? 2 * y : y;
    }
    return GW_OK;
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    (void)coder;
    for (size_t i = 0; i < count; i++)
        out[i] = fabsf(x[i]) * (lies("bound") ? 0x1p-10f : 0x1p-7f) + FLT_MIN;
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    (void)coder;
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    (void)in, (void)coder;
    return GW_OK;
}

/* Forgets the peers. */
static gw_status_t reduce_own(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst,
                              size_t capacity, size_t *length)
{
    gw_encode_t own = {
        .src = in->own, .src_dtype = in->own_dtype, .wire_dtype = GW_F32, .count = in->count};
    return encode(coder, &own, dst, capacity, length);
}

static gw_codec_t codec = {.abi = GW_CODEC_ABI,
                           .id = 200,
                           .family = "upper",
                           .names = "upper16 and its like",
                           .summary = "the upper half of a binary32",
                           .flags = GW_CODEC_LOSSY | GW_CODEC_FIXED,
                           .params = params,
                           .match = match,
                           .name = put_name,
                           .grain = grain,
                           .bound = bound,
                           .encode = encode,
                           .decode = decode,
                           .error_bound = error_bound,
                           .put_params = put_params,
                           .get_params = get_params};

__attribute__((constructor)) static void add(void)
{
    lie = getenv("BENCH_EXTRA") ? getenv("BENCH_EXTRA") : "";
    codec.reduce = lies("reduce") ? reduce_own : NULL;
    if (gw_codec_register(&codec) != GW_OK)
        abort();
}
