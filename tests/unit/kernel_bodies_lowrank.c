/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernel checker for the family lowrank. */
#include "kernel_bodies_lowrank.h"

#include <string.h>

enum { TILE = 16384, SPARE = 3 }; /* a bench repeats a tile; floats between columns of p */

/* spec.bits is the rank, spec.bucket the columns of M. Every rank up to 12, and the greatest. */
void lowrank_draw(kernel_call_t *c)
{
    static const unsigned ranks[] = {4, 1, 2, 3, 5, 6, 7, 8, 9, 12, 16, 32};
    static const unsigned cols[] = {16, 1, 7, 17, 32, 48, 100, 256, 300};
    uint64_t seed = c->seed;
    c->spec.bits = ranks[c->number % 12];
    c->spec.bucket = cols[c->number / 12 % 9];
    c->ef = c->number / 108 % 2;
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = gw_test_random(&seed) % (c->spec.bucket * 14);
    if (gw_test_random(&seed) % 3 == 0)
        c->count = c->count / c->spec.bucket * c->spec.bucket;
    c->payloads = 1;
    c->scale = gw_test_random(&seed) % 4 ? 0x1p-9f : 0.5f;
}

void lowrank_draw_finite(kernel_call_t *c)
{
    lowrank_draw(c);
    c->fill = (test_fill_t)(c->number % FILL_FINITE);
}

/* A bench has 4 columns, and a matrix as square as it gets. */
static gw_lowrank_panel_t panel_of(const kernel_call_t *c)
{
    size_t cols = c->spec.bucket, rank = c->spec.bits;
    if (c->count > TILE) {
        rank = 4;
        for (cols = 16; cols * cols < c->count; cols *= 2)
            continue;
    }
    size_t rows = (c->count + cols - 1) / cols;
    return (gw_lowrank_panel_t){rows, cols, c->count, rows + SPARE, (unsigned)rank};
}

static float *add_floats(kernel_call_t *c, const char *name, kernel_role_t role, test_fill_t fill,
                         uint64_t seed, size_t count)
{
    uint8_t *at = kernel_add(c, name, role, 4 * count, 4);
    size_t tile = count < TILE ? count : TILE;
    test_fill(fill, c->seed + seed, (float *)(void *)at, tile);
    for (size_t i = 4 * TILE; i < 4 * count; i += 4 * TILE)
        memcpy(at + i, at, 4 * count - i < 4 * TILE ? 4 * count - i : 4 * TILE);
    return (float *)(void *)at;
}

/* Factors as they are in use, or greater ones: sums may overflow in the last step only. */
static void add_factor(kernel_call_t *c, const char *name, kernel_role_t role, uint64_t seed,
                       size_t count, float magnitude)
{
    float *x = add_floats(c, name, role, FILL_NORMAL, seed, count);
    for (size_t i = 0; i < count; i++)
        x[i] *= magnitude;
}

static size_t floats_of_p(const gw_lowrank_panel_t *m)
{
    return m->rows ? (m->rank - 1) * m->stride + m->rows : 0;
}

void lowrank_prepare_project(kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    add_floats(c, "source", KERNEL_IN, c->fill, 0, c->count);
    add_floats(c, "residual", KERNEL_IN, FILL_NORMAL, 1, c->count);
    add_factor(c, "q", KERNEL_IN, 2, m.rank * m.cols, 0.01f);
    /* What lies between the columns stays. */
    add_floats(c, "p", KERNEL_INOUT, FILL_NAN, 3, floats_of_p(&m));
}

uint64_t lowrank_run_project(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    k->lowrank.project(&m, kernel_floats(c, 0), c->ef ? kernel_floats(c, 1) : NULL, c->scale,
                       kernel_floats(c, 2), kernel_floats(c, 3));
    return 0;
}

void lowrank_prepare_collect(kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    add_floats(c, "source", KERNEL_IN, c->fill, 0, c->count);
    add_floats(c, "residual", KERNEL_IN, FILL_NORMAL, 1, c->count);
    add_factor(c, "p", KERNEL_IN, 2, floats_of_p(&m), 0.01f);
    add_factor(c, "q", KERNEL_INOUT, 3, m.rank * m.cols, 0.5f);
}

uint64_t lowrank_run_collect(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    k->lowrank.collect(&m, kernel_floats(c, 0), c->ef ? kernel_floats(c, 1) : NULL, c->scale,
                       kernel_floats(c, 2), kernel_floats(c, 3));
    return 0;
}

/* In a third of the cases what comes out has to be limited. */
static void add_factors(kernel_call_t *c, const gw_lowrank_panel_t *m)
{
    add_factor(c, "p", KERNEL_IN, 0, floats_of_p(m), 0.1f);
    add_factor(c, "q", KERNEL_IN, 1, m->rank * m->cols, c->number % 3 ? 1.0f : 0x1p120f);
}

static float factor_of(const kernel_call_t *c)
{
    return 1.0f / c->scale;
}

void lowrank_prepare_store(kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    add_factors(c, &m);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

uint64_t lowrank_run_store(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    k->lowrank.store(&m, kernel_floats(c, 0), kernel_floats(c, 1), factor_of(c),
                     kernel_floats(c, 2));
    return 0;
}

void lowrank_prepare_add(kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    add_factors(c, &m);
    add_floats(c, "sum", KERNEL_INOUT, c->number % 2 ? FILL_NAN : FILL_NORMAL, 2, c->count);
}

uint64_t lowrank_run_add(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    k->lowrank.add(&m, kernel_floats(c, 0), kernel_floats(c, 1), factor_of(c), kernel_floats(c, 2));
    return 0;
}

void lowrank_prepare_keep(kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    add_factors(c, &m);
    add_floats(c, "source", KERNEL_IN, c->fill, 2, c->count);
    add_floats(c, "residual", KERNEL_INOUT, c->number % 5 ? FILL_NORMAL : FILL_MAX, 3, c->count);
}

uint64_t lowrank_run_keep(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_lowrank_panel_t m = panel_of(c);
    k->lowrank.keep(&m, kernel_floats(c, 0), kernel_floats(c, 1), factor_of(c), kernel_floats(c, 2),
                    kernel_floats(c, 3));
    return 0;
}

#define FUNCTION(member)                                                                           \
    void (*lowrank_##member(const gw_kernels_t *k))(void)                                          \
    {                                                                                              \
        return (void (*)(void))k->lowrank.member;                                                  \
    }
FUNCTION(project)
FUNCTION(collect)
FUNCTION(store)
FUNCTION(add)
FUNCTION(keep)

const char *const lowrank_products[] = {"", "ef", NULL};
const char *const lowrank_expansions[] = {"", NULL};
