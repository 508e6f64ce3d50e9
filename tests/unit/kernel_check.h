/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel checker: one body per kernel runs every tier against ref, and benches with the same
 * call. */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"
#include "quant_fill.h"

/*
 * A body (kernel_bodies.c) draws a case by its number, lays out the regions that the kernel reads
 * and writes, and makes the call. The checker does the rest: it places every region between guard
 * pages, at their edge or at odd places with red zones round it, poisons what is to be written,
 * calls ref and the tier, and compares all that was written by memcmp. It finds
 *  - other bytes than those of ref, bytes that were left out (the two poisons differ), another
 * result;
 *  - writes into a red zone or into an input, reads and writes over the edge (SIGSEGV);
 *  - SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGTRAP: reported by name, the next case goes on;
 *  - another signal mask, rounding mode, x87 control word or direction flag than before, and
 * (x86-64) registers that a function has to preserve. It needs no test framework, so that it also
 * runs under an emulator. Not for use by two threads.
 */

enum { KERNEL_REGIONS = 24, KERNEL_PEERS = 15 };

typedef enum kernel_role { KERNEL_IN, KERNEL_OUT, KERNEL_INOUT } kernel_role_t;

typedef struct kernel_region {
    const char *name;
    kernel_role_t role;
    size_t bytes, unit; /* unit: alignment that the kernel may count on */
    uint8_t *initial;   /* contents before the call, of KERNEL_IN and KERNEL_INOUT */
    uint8_t *at;        /* where it lies during the call */
} kernel_region_t;

/* One call: its settings, of which each kernel uses what it needs, and its regions. */
typedef struct kernel_call {
    uint64_t seed; /* of the data */
    size_t number; /* of the case */
    gw_quant_spec_t spec;
    gw_float_spec_t floats;
    size_t count;
    test_fill_t fill;
    bool ef;
    bool alone; /* without checking payloads first */
    size_t payloads, own_at, skip;
    float scale;
    size_t regions;
    kernel_region_t region[KERNEL_REGIONS];
    const uint8_t *payload[KERNEL_PEERS];
} kernel_call_t;

typedef struct kernel_body {
    const char *name; /* "quant.encode" */
    void (*draw)(kernel_call_t *call);
    void (*prepare)(kernel_call_t *call);
    uint64_t (*run)(const gw_kernels_t *table,
                    kernel_call_t *call); /* returns what the kernel does */
    /* The kernel in a table, as something to compare; NULL: several are in use. */
    void (*(*function)(const gw_kernels_t *table))(void);
    size_t cases;             /* how many numbers are worth drawing */
    const char *const *bench; /* settings to bench, ended by NULL, such as "q4 ef" */
} kernel_body_t;

/* All bodies, ended by one without a name. */
extern const kernel_body_t kernel_bodies[];

/* Adds a region; returns where prepare() writes its contents (KERNEL_IN and KERNEL_INOUT). */
uint8_t *kernel_add(kernel_call_t *call, const char *name, kernel_role_t role, size_t bytes,
                    size_t unit);

/* The region's place during the call, as a pointer to floats. */
static inline float *kernel_floats(const kernel_call_t *call, size_t region)
{
    return (float *)(void *)call->region[region].at;
}

/* Told of pages that kernels will be given, and before they are unmapped. Here they do nothing;
 * cuda_queue_gpu.c has others, so that a GPU sees these pages. */
void kernel_pages_made(void *at, size_t bytes);
void kernel_pages_gone(void *at);

typedef struct kernel_report {
    size_t cases, failures, crashes;
    char first[512]; /* the first failure: tier, kernel, what, and the case */
} kernel_report_t;

/* Runs the cases `from` to `to` of a body on two tables. */
kernel_report_t kernel_check(const kernel_body_t *body, const gw_kernels_t *ref,
                             const gw_kernels_t *tier, size_t from, size_t to);

/* The same case of two bodies on one table; where both have a region, it must hold the same bytes,
 * and the results must be the same. The second body may have more regions. */
kernel_report_t kernel_check_pair(const kernel_body_t *one, const kernel_body_t *other,
                                  const gw_kernels_t *table, size_t number);

typedef struct kernel_speed {
    double gbps, memcpy_gbps, ratio; /* GB/s of binary32 input; medians of pairs */
} kernel_speed_t;

/* Times one of the body's bench settings on `count` elements beside memcpy of the same size. */
kernel_speed_t kernel_bench(const kernel_body_t *body, const gw_kernels_t *tier,
                            const char *setting, size_t count);

#endif
