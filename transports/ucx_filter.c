/* SPDX-License-Identifier: Apache-2.0 */
/* Classic BPF programs for UCX's listening sockets. A program on a TCP socket sees each packet from
 * its TCP header on, and the IP header through SKF_NET_OFF. */
#include "ucx_filter.h"

#include <stdlib.h>
#include <string.h>

/* Such a program stays below 20 KiB, which older kernels allow a socket (net.core.optmem_max). */
enum { V4_MAX = 128, V6_MAX = 64 };
#define KEEP      UINT32_MAX
#define SYN       0x02u
#define REQUEST_4 42u /* magic 8, header 5, request 13, socket address 16 */

typedef struct program {
    struct sock_filter *code;
    int length;
} program_t;

static void put(program_t *p, uint16_t code, uint32_t k, int jump_true, int jump_false)
{
    p->code[p->length++] = (struct sock_filter){code, (uint8_t)jump_true, (uint8_t)jump_false, k};
}

static void load(program_t *p, uint16_t how, uint32_t at)
{
    put(p, BPF_LD | how, at, 0, 0);
}

static void ret(program_t *p, uint32_t keep)
{
    put(p, BPF_RET | BPF_K, keep, 0, 0);
}

/* Ends with `keep` unless the accumulator compares. */
static void unless(program_t *p, uint16_t comparison, uint32_t k, uint32_t keep)
{
    put(p, BPF_JMP | comparison | BPF_K, k, 1, 0);
    ret(p, keep);
}

static void when(program_t *p, uint16_t comparison, uint32_t k, uint32_t keep)
{
    put(p, BPF_JMP | comparison | BPF_K, k, 0, 1);
    ret(p, keep);
}

int gw__ucx_filter_closed(struct sock_filter out[GW__UCX_FILTER_MAX])
{
    program_t p = {out, 0};
    ret(&p, 0);
    return p.length;
}

/* A <- bytes of payload, X <- where it begins. */
static void load_payload(program_t *p)
{
    load(p, BPF_B | BPF_ABS, 12);
    put(p, BPF_ALU | BPF_AND | BPF_K, 0xF0, 0, 0);
    put(p, BPF_ALU | BPF_RSH | BPF_K, 2, 0, 0);
    put(p, BPF_MISC | BPF_TAX, 0, 0, 0);
    load(p, BPF_W | BPF_LEN, 0);
    put(p, BPF_ALU | BPF_SUB | BPF_X, 0, 0, 0);
}

/*
 * Segments of a connection. UCX (1.11 to 1.18) opens one with: the number 0xCAFEBABE12345678; id 32
 * of its connection messages; their length, 29 or 41 by address family; event 1; flags 0 or 1; and
 * what is the sender's own. It sends that in one piece, so it arrives as one segment. No later
 * message begins with 0x78, for ids end at 35.
 */
static void put_segment_rules(program_t *p)
{
    load_payload(p);
    when(p, BPF_JEQ, 0, KEEP);
    load(p, BPF_B | BPF_IND, 0);
    unless(p, BPF_JEQ, 0x78, KEEP);
    load_payload(p);
    unless(p, BPF_JGE, REQUEST_4, 0);
    load(p, BPF_W | BPF_IND, 0);
    unless(p, BPF_JEQ, 0x78563412u, 0);
    load(p, BPF_W | BPF_IND, 4);
    unless(p, BPF_JEQ, 0xBEBAFECAu, 0);
    load(p, BPF_B | BPF_IND, 8);
    unless(p, BPF_JEQ, 32, 0);
    load(p, BPF_W | BPF_IND, 9);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 29u << 24, 2, 0);
    unless(p, BPF_JEQ, 41u << 24, 0);
    load(p, BPF_W | BPF_IND, 13);
    unless(p, BPF_JEQ, 1u << 24, 0);
    load(p, BPF_B | BPF_IND, 17);
    when(p, BPF_JGT, 1, 0);
    ret(p, KEEP);
}

typedef struct range {
    uint32_t low, high;
} range_t;

static uint32_t word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int by_address(const void *a, const void *b)
{
    const ucx_source_t *x = a, *y = b;
    int family = (int)x->family - (int)y->family;
    return family ? family : memcmp(x->addr, y->addr, sizeof x->addr);
}

/* Joins neighbours that are at most `gap` apart, in place. */
static int join(range_t *ranges, int count, uint32_t gap)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (kept > 0 && ranges[i].low - ranges[kept - 1].high <= gap)
            ranges[kept - 1].high = ranges[i].high;
        else
            ranges[kept++] = ranges[i];
    return kept;
}

/* The sorted IPv4 addresses as at most V4_MAX ranges; NULL without memory. */
static range_t *ranges_of(const ucx_source_t *sources, int count, int *out)
{
    range_t *ranges = calloc((size_t)count + 1, sizeof *ranges);
    int n = 0;
    for (int i = 0; ranges && i < count && sources[i].family == 4; i++)
        ranges[n++] = (range_t){word(sources[i].addr), word(sources[i].addr)};
    n = ranges ? join(ranges, n, 1) : 0;
    for (uint32_t gap = 2; n > V4_MAX; gap *= 2)
        n = join(ranges, n, gap);
    *out = n;
    return ranges;
}

/* The source address of an IPv4 packet is in A. */
static void put_ranges(program_t *p, const range_t *ranges, int count, bool loopback)
{
    for (int i = 0; i < count; i++)
        if (ranges[i].low == ranges[i].high) {
            when(p, BPF_JEQ, ranges[i].low, KEEP);
        } else {
            put(p, BPF_JMP | BPF_JGE | BPF_K, ranges[i].low, 0, 2);
            put(p, BPF_JMP | BPF_JGT | BPF_K, ranges[i].high, 1, 0);
            ret(p, KEEP);
        }
    if (loopback) {
        put(p, BPF_ALU | BPF_AND | BPF_K, 0xFF000000u, 0, 0);
        when(p, BPF_JEQ, 127u << 24, KEEP);
    }
    ret(p, 0);
}

/* Compares the upper half of an IPv6 packet's source address with one /64. */
static void put_network(program_t *p, uint32_t high, uint32_t low)
{
    load(p, BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 8);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, high, 0, 3);
    load(p, BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 12);
    when(p, BPF_JEQ, low, KEEP);
}

static void put_networks(program_t *p, const ucx_source_t *sources, int count, bool loopback)
{
    int networks = 0;
    for (int i = 0; i < count; i++) {
        if (sources[i].family != 6 || (i > 0 && sources[i - 1].family == 6 &&
                                       !memcmp(sources[i].addr, sources[i - 1].addr, 8)))
            continue;
        if (++networks > V6_MAX) {
            ret(p, KEEP);
            return;
        }
        put_network(p, word(sources[i].addr), word(sources[i].addr + 4));
    }
    if (loopback)
        put_network(p, 0, 0);
    ret(p, 0);
}

/* Where a connection may begin. */
static void put_source_rules(program_t *p, ucx_source_t *sources, int count, bool loopback)
{
    int ranges = 0;
    qsort(sources, (size_t)count, sizeof *sources, by_address);
    range_t *range = ranges_of(sources, count, &ranges);
    if (!range) { /* no memory: rather open than a job that cannot start */
        ret(p, KEEP);
        return;
    }
    load(p, BPF_B | BPF_ABS, (uint32_t)SKF_NET_OFF);
    put(p, BPF_ALU | BPF_AND | BPF_K, 0xF0, 0, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, 0x60, 0, 1);
    int far = p->length;
    put(p, BPF_JMP | BPF_JA, 0, 0, 0);
    load(p, BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 12);
    put_ranges(p, range, ranges, loopback);
    p->code[far].k = (uint32_t)(p->length - far - 1);
    put_networks(p, sources, count, loopback);
    free(range);
}

int gw__ucx_filter_open(ucx_source_t *sources, int count, bool loopback, bool requests,
                        struct sock_filter out[GW__UCX_FILTER_MAX])
{
    program_t p = {out, 0};
    load(&p, BPF_B | BPF_ABS, 13);
    put(&p, BPF_JMP | BPF_JSET | BPF_K, SYN, 0, 1);
    int far = p.length;
    put(&p, BPF_JMP | BPF_JA, 0, 0, 0);
    if (requests)
        put_segment_rules(&p);
    else
        ret(&p, KEEP);
    p.code[far].k = (uint32_t)(p.length - far - 1);
    if (count < 0)
        ret(&p, KEEP);
    else
        put_source_rules(&p, sources, count, loopback);
    return p.length;
}
