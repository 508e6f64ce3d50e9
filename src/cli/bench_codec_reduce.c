/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's work in an all-reduce, for codecs that do it in one pass: own elements and the
 * payloads of seven peers are summed and the sum is encoded. */
#include <string.h>

#include "bench_codec.h"

/* Each peer's payload lies in memory of its own, as received ones do; the sum's behind them. */
static uint8_t *place(const gw_bench_codec_t *b, int peer)
{
    return b->peers + (size_t)peer * b->peer_room;
}

gw_status_t gw_bench_codec_reduce(gw_bench_codec_t *b)
{
    const uint8_t *payload[GW_BENCH_PEERS];
    size_t length[GW_BENCH_PEERS], written;
    for (int peer = 0; peer < GW_BENCH_PEERS; peer++) {
        payload[peer] = place(b, peer);
        length[peer] = b->peer_length;
    }
    gw_reduce_t in = {.own = b->src,
                      .own_dtype = b->dtype,
                      .payload = payload,
                      .length = length,
                      .payloads = GW_BENCH_PEERS,
                      .scale = 1.0f,
                      .wire_dtype = b->dtype,
                      .count = b->count,
                      .key = ++b->key};
    return b->coder->family->reduce(b->coder, &in, place(b, GW_BENCH_PEERS), b->peer_room,
                                    &written);
}

/* All peers send what this rank would. */
static gw_status_t encode_peers(gw_bench_codec_t *b)
{
    gw_encode_t in = {
        .src = b->src, .src_dtype = b->dtype, .wire_dtype = b->dtype, .count = b->count, .key = 1};
    gw_status_t status =
        b->coder->family->encode(b->coder, &in, place(b, 0), b->peer_room, &b->peer_length);
    for (int peer = 1; peer < GW_BENCH_PEERS && status == GW_OK; peer++)
        memcpy(place(b, peer), place(b, 0), b->peer_length);
    return status;
}

/* The same in steps, into the frame's buffer: own elements, then each payload, then the encoding.
 */
static gw_status_t in_steps(gw_bench_codec_t *b, size_t *length)
{
    const gw_codec_t *family = b->coder->family;
    gw_status_t status = GW_OK;
    gw_bench_widen(b->dtype, b->src, b->count, b->out);
    for (int peer = 0; peer < GW_BENCH_PEERS && status == GW_OK; peer++) {
        gw_decode_t add = {.payload = place(b, peer),
                           .length = b->peer_length,
                           .wire_dtype = b->dtype,
                           .count = b->count,
                           .mode = GW_DECODE_ADD,
                           .dst = b->out,
                           .dst_dtype = GW_F32};
        status = family->decode(b->coder, &add);
    }
    gw_encode_t in = {.src = b->out,
                      .src_dtype = GW_F32,
                      .wire_dtype = b->dtype,
                      .count = b->count,
                      .key = b->key};
    return status == GW_OK ? family->encode(b->coder, &in, b->frame, b->capacity, length) : status;
}

gw_status_t gw_bench_codec_check_reduce(gw_bench_codec_t *b, bool *same)
{
    size_t length = 0;
    *same = true;
    if (!gw_bench_codec_has(b, GW_BENCH_REDUCE))
        return GW_OK;
    gw_status_t status = encode_peers(b);
    memset(place(b, GW_BENCH_PEERS), 0xff, b->peer_room);
    if (status == GW_OK)
        status = gw_bench_codec_reduce(b);
    if (status == GW_OK)
        status = in_steps(b, &length);
    if (status == GW_OK)
        *same = memcmp(b->frame, place(b, GW_BENCH_PEERS), length) == 0;
    return status;
}
