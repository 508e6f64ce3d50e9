/* SPDX-License-Identifier: Apache-2.0 */
/* Codec topk from the inside: layout of a block (topk_wire.c) and selection (topk_select.c). */
#ifndef GW_TOPK_H
#define GW_TOPK_H

#include "codecs.h"
#include "kernels.h"

typedef enum gw__topk_values {
    GW__TOPK_RAW,  /* in the element type of the collective */
    GW__TOPK_FP16, /* binary16, what is too large limited to its range */
    GW__TOPK_Q8,   /* buckets of quant, in order of index */
    GW__TOPK_Q4
} gw__topk_values_t;

typedef struct gw__topk_spec {
    unsigned log2_block;
    uint32_t ratio; /* in 2^-32 */
    gw__topk_values_t values;
    gw_dtype_t wire_dtype;
    bool sampled;
    float momentum; /* factor; 0: none */
    bool masking;
} gw__topk_spec_t;

enum {
    GW__TOPK_ROOM = GW_BLOCK,
    GW__TOPK_BUCKET = 512 /* values that share a grid in q8 and q4 */
};

/* Entries that have been selected and not been written. */
typedef struct gw__topk_picked {
    size_t held;
    uint32_t index[GW__TOPK_ROOM], place[GW__TOPK_ROOM];
    float value[GW__TOPK_ROOM], sent[GW__TOPK_ROOM];
} gw__topk_picked_t;

/* One block on its way out. */
typedef struct gw__topk_writer {
    const gw__topk_spec_t *spec;
    float *residual; /* of the block; NULL: none */
    float *momentum; /* likewise, where what was sent is to lose it; NULL: nowhere */
    uint8_t *at;     /* of the block in the payload */
    size_t slots, written;
} gw__topk_writer_t;

/* Entries that a block of n elements has room for. */
size_t gw__topk_slots(const gw__topk_spec_t *spec, size_t n);

/* Bytes of a block of n elements. */
size_t gw__topk_block_bytes(const gw__topk_spec_t *spec, size_t n);

/* Begins a block of n elements: all zero, no entry. */
gw__topk_writer_t gw__topk_begin(const gw__topk_spec_t *spec, float *residual, size_t n,
                                 uint8_t *at);

/* Writes whole value buckets of what is held, all of it when `last`, and settles the residual. */
void gw__topk_flush(gw__topk_writer_t *writer, gw__topk_picked_t *picked, bool last);

void gw__topk_poison(gw__topk_writer_t *writer);

/* Whether an encoder can have written this block. */
bool gw__topk_valid(const gw__topk_spec_t *spec, const uint8_t *at, size_t n);

/* Entries `from` and on of a valid block that is not poisoned, at most GW__TOPK_ROOM of them, into
 * index and value; returns how many. `from` is a multiple of GW__TOPK_ROOM. */
size_t gw__topk_read(const gw__topk_spec_t *spec, const uint8_t *at, size_t n, size_t from,
                     gw__topk_picked_t *out);

bool gw__topk_is_poisoned(const uint8_t *at);

/* The greatest magnitude that `most` of n elements or more reach; stops early at one that `enough`
 * or fewer do. `least` is reached by `most` or more. */
uint32_t gw__topk_bound(const float *x, size_t n, uint32_t least, size_t most, size_t enough);

/* Selects from the n elements of `in` from `at` on and writes the block; returns whether it holds a
 * value that is not finite. */
bool gw__topk_encode_block(const gw__topk_spec_t *spec, const gw_encode_t *in, size_t at, size_t n,
                           gw__topk_picked_t *scratch, uint8_t *dst);

#endif
