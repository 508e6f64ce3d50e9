/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a domain of codec block: how it is kept, a bitmap, the blocks that are sent. */
#ifndef GW_BLOCK_LAYOUT_H
#define GW_BLOCK_LAYOUT_H

#include "inline.h"
#include "kernels.h"

enum { GW_BLOCK_BLOCKS = 4096 /* of a domain, at most */ };

/* The first byte of a domain. */
typedef enum gw_block_form { GW_BLOCK_NOTHING, GW_BLOCK_SOME, GW_BLOCK_DENSE } gw_block_form_t;

typedef struct gw_block_layout {
    unsigned log2_size, log2_domain; /* elements of a block and of a domain */
    uint32_t ratio; /* of the blocks that are sent, in 2^-32; 0: all that are not zero */
    gw_dtype_t wire;
} gw_block_layout_t;

/* A domain of n elements; `wide`: bytes of one. */
typedef struct gw_block_domain {
    size_t n, size, blocks, map_bytes, wide;
} gw_block_domain_t;

static GW_INLINE gw_block_domain_t gw__block_domain(const gw_block_layout_t *layout, size_t n)
{
    gw_block_domain_t d;
    d.n = n;
    d.size = (size_t)1 << layout->log2_size;
    d.blocks = (n + d.size - 1) / d.size;
    d.map_bytes = (d.blocks + 7) / 8;
    d.wide = layout->wire == GW_F32 ? 4 : 2;
    return d;
}

static GW_INLINE size_t gw__block_elements(const gw_block_domain_t *d, size_t block)
{
    return block + 1 < d->blocks ? d->size : d->n - block * d->size;
}

/* Bytes of the elements of so many blocks; `last`: that of the domain is among them. */
static GW_INLINE size_t gw__block_bytes(const gw_block_domain_t *d, size_t blocks, bool last)
{
    size_t missing = last ? d->size - gw__block_elements(d, d->blocks - 1) : 0;
    return (blocks * d->size - missing) * d->wide;
}

/* How a domain is kept of which blocks of so many bytes are to be sent. */
static GW_INLINE gw_block_form_t gw__block_form(const gw_block_domain_t *d, size_t bytes)
{
    if (!bytes)
        return GW_BLOCK_NOTHING;
    return d->map_bytes + bytes < d->n * d->wide ? GW_BLOCK_SOME : GW_BLOCK_DENSE;
}

/* Where the elements begin in a domain that is kept so, in bytes. */
static GW_INLINE size_t gw__block_data(const gw_block_domain_t *d, gw_block_form_t form)
{
    return 1 + (form == GW_BLOCK_SOME ? d->map_bytes : 0);
}

/* Bytes of a domain that is kept so, and in which blocks of so many bytes are to be sent. */
static GW_INLINE size_t gw__block_whole(const gw_block_domain_t *d, gw_block_form_t form,
                                        size_t bytes)
{
    if (form == GW_BLOCK_NOTHING)
        return 1;
    return gw__block_data(d, form) + (form == GW_BLOCK_DENSE ? d->n * d->wide : bytes);
}

#endif
