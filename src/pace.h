/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a communicator's ranks compute and how fast their wire is, and the chunk that follows.
 */
#ifndef GW_PACE_H
#define GW_PACE_H

#include <gradwire/codec.h>
#include <gradwire/context.h>

struct gw__hello;

/* Equal on all ranks: those of the slowest. */
typedef struct gw__pace {
    double encode_s, decode_s; /* seconds per element of one rank's contribution */
    double wire_s;             /* seconds per byte that a rank sends */
    double message_s;          /* of the CPU per message, at both ends together */
} gw__pace_t;

/* What one rank tells of its own speed. */
typedef struct gw__speed {
    uint32_t encode_ps, decode_ps; /* picoseconds per element; 0: not measured */
} gw__speed_t;

/* Measures encoding and decoding with this coder for about a tenth of a millisecond. Zeros without
 * memory. */
gw__speed_t gw__speed_measure(const gw_coder_t *coder);

/* From all ranks' speeds and facts, as they came from peers; any values are safe. With `threads`
 * the ranks are threads of one process and the facts say nothing. `local_ranks` becomes the number
 * of ranks on the node of `rank`. */
void gw__pace_of(const struct gw__hello *all, int size, int rank, bool threads, gw__pace_t *out,
                 int *local_ranks);

/*
 * Elements of a chunk for a call of `count` elements that are sent as `wire_bytes` bytes in all. A
 * pure function of its arguments. Large chunks make few messages; small ones fill the pipeline
 * early: the first chunk's encoding and the last one's decoding have nothing beside them. So with N
 * elements per shard, a cost o per round and a cost f per element of filling, c + N o / (c f) is
 * least at c = sqrt(N o / f).
 */
size_t gw__pace_chunk(const gw__pace_t *pace, gw_plan_kind_t plan, int size, size_t count,
                      size_t wire_bytes);

#endif
