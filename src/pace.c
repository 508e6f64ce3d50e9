/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a communicator's ranks compute and how fast their wire is, and the chunk that follows.
 */
#include "pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "comm_peers.h"
#include "frame.h"
#include "plan.h"

/*
 * What the facts do not tell. Shared memory and a message over it: UCX on a desktop and on a
 * server. A message over TCP: two system calls at each end, measured over veth. A virtual interface
 * has no speed, or any: ten gigabits then.
 */
static const double memory_wire_s = 1 / 5e9, memory_message_s = 3e-6, tcp_message_s = 15e-6;
enum { UNKNOWN_MBIT = 10000, SLOWEST_MBIT = 10, FASTEST_MBIT = 1600000 };

/* Chunks: enough bytes that a message is worth its cost, few enough that a chunk stays in the
 * second-level cache between the steps of a round. */
enum { SMALLEST = 16 * 1024, LARGEST = 256 * 1024 };

enum { PROBE = 32 * 1024, PROBES = 3 };

static uint32_t picoseconds(int64_t ns)
{
    int64_t ps = ns * 1000 / PROBE;
    return ps < 1 ? 1 : ps > UINT32_MAX ? UINT32_MAX : (uint32_t)ps;
}

static void least(uint32_t *value, uint32_t with)
{
    if (*value == 0 || with < *value)
        *value = with;
}

gw__speed_t gw__speed_measure(const gw_coder_t *coder)
{
    gw__speed_t speed = {0, 0};
    size_t capacity = gw_frame_bound(coder, GW_F32, PROBE), length = 0;
    float *data = malloc(PROBE * sizeof *data);
    uint8_t *frame = malloc(capacity);
    if (!data || !frame)
        goto done;
    for (int i = 0; i < PROBE; i++) /* all magnitudes, both signs */
        data[i] = ((float)((unsigned)i * 2654435761u >> 8) - 8388608.0f) * 1e-9f;
    for (int turn = 0; turn < PROBES; turn++) {
        gw_encode_t in = {.src = data, .src_dtype = GW_F32, .wire_dtype = GW_F32, .count = PROBE};
        int64_t begin = gw__now_ns();
        if (gw__frame_encode(coder, &in, false, frame, capacity, &length) != GW_OK)
            goto done;
        int64_t middle = gw__now_ns();
        gw_decode_t out = {.payload = frame,
                           .length = length,
                           .wire_dtype = GW_F32,
                           .count = PROBE,
                           .mode = GW_DECODE_ADD,
                           .dst = data,
                           .dst_dtype = GW_F32};
        if (gw_frame_decode(coder, &out) != GW_OK)
            goto done;
        least(&speed.encode_ps, picoseconds(middle - begin));
        least(&speed.decode_ps, picoseconds(gw__now_ns() - middle));
    }
done:
    free(frame);
    free(data);
    return speed;
}

/* The fastest interface of a rank that leads out of its node. */
static uint32_t rank_mbit(const gw_node_facts_t *facts)
{
    uint32_t best = 0;
    for (int i = 0; i < facts->iface_count && i < GW_NODE_FACTS_IFACES; i++) {
        const gw_node_iface_t *iface = &facts->iface[i];
        bool out = iface->family && !(iface->flags & (GW_IFACE_LOOPBACK | GW_IFACE_BRIDGE));
        if (out && iface->speed_mbit > best)
            best = iface->speed_mbit;
    }
    if (best == 0)
        return UNKNOWN_MBIT;
    return best < SLOWEST_MBIT ? SLOWEST_MBIT : best > FASTEST_MBIT ? FASTEST_MBIT : best;
}

void gw__pace_of(const struct gw__hello *all, int size, int rank, bool threads, gw__pace_t *out,
                 int *local_ranks)
{
    uint32_t encode_ps = 1, decode_ps = 1, mbit = FASTEST_MBIT;
    int on_node_of_0 = 0;
    *local_ranks = 0;
    for (int i = 0; i < size; i++) {
        const gw__hello_t *hello = &all[i];
        encode_ps = hello->speed.encode_ps > encode_ps ? hello->speed.encode_ps : encode_ps;
        decode_ps = hello->speed.decode_ps > decode_ps ? hello->speed.decode_ps : decode_ps;
        on_node_of_0 += threads || hello->facts.node_id == all[0].facts.node_id;
        *local_ranks += threads || hello->facts.node_id == all[rank].facts.node_id;
        uint32_t this = rank_mbit(&hello->facts);
        mbit = this < mbit ? this : mbit;
    }
    bool one_node = on_node_of_0 == size;
    *out = (gw__pace_t){.encode_s = encode_ps * 1e-12,
                        .decode_s = decode_ps * 1e-12,
                        .wire_s = one_node ? memory_wire_s : 8e-6 / mbit,
                        .message_s = one_node ? memory_message_s : tcp_message_s};
}

size_t gw__pace_chunk(const gw__pace_t *pace, gw_plan_kind_t plan, int size, size_t count,
                      size_t wire_bytes)
{
    double peers = size - 1, wire = pace->wire_s * (double)wire_bytes / (double)count;
    double shard = (double)count, messages = 2 * peers, fill;
    if (plan == GW_PLAN_GATHER) {
        fill = pace->encode_s + peers * (wire + pace->decode_s);
    } else if (plan == GW_PLAN_TREE) {
        /* The root's: a frame of each child and one to it, and every level twice. */
        double levels = gw__plan_levels(size);
        messages = 4 * levels;
        fill = pace->encode_s + 2 * levels * (wire + pace->decode_s);
    } else {
        /* A round has a chunk of every shard, there and back; a ring's wait for each other. */
        shard /= size;
        messages *= 2;
        fill = size * (pace->encode_s + pace->decode_s) + 2 * peers * (wire + pace->decode_s);
    }
    double best = sqrt(shard * messages * pace->message_s / fill);
    size_t largest = LARGEST, chunk = SMALLEST;
    bool shards = plan == GW_PLAN_DIRECT || plan == GW_PLAN_RING;
    for (int p = 2; shards && p < size && largest > 2 * SMALLEST; p *= 2)
        largest /= 2;
    /* Powers of two, so that a little more or less of anything changes nothing. */
    while (chunk < largest && (double)chunk * 1.42 < best)
        chunk *= 2;
    return chunk;
}
