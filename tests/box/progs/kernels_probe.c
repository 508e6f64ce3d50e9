/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kernel checker on every tier that this processor has; or calls a tier that it lacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_check.h"
#if defined(__x86_64__)
#include "x86.h"
#endif

enum { CASES = 56 }; /* every width with every bucket: emulation is slow */

/* Whether a tier gives the bytes of the reference in every kernel. */
static int same(const gw_kernels_t *tier)
{
    int right = 1;
    for (const kernel_body_t *body = kernel_bodies; body->name; body++) {
        kernel_report_t r = kernel_check(body, gw__kernels_of("ref"), tier, 8, 8 + CASES);
        if (r.failures)
            printf("%zu of %zu cases failed: %s\n", r.failures, r.cases, r.first);
        right &= !r.failures;
    }
    return right;
}

static int check_all(void)
{
    int right = 1;
    for (size_t i = 0; gw__kernels_available(i); i++) {
        printf("tier %s\n", gw__kernels_available(i));
        right &= same(gw__kernels_of(gw__kernels_available(i)));
    }
    return !right;
}

#if defined(__x86_64__)

/* One instruction of AVX2, whatever the processor says. */
static int leak(void)
{
    __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
    return 0;
}

static void fill(const char *tier, gw_kernels_t *table)
{
    gw__kernels_fill_ref(table);
    if (!strcmp(tier, "avx512")) {
        gw__quant_avx512_fill(&table->quant);
        gw__quant_reduce_avx512_fill(&table->quant);
        gw__cast_avx512_fill(&table->cast);
        gw__fp8_avx512_fill(&table->fp8);
        gw__fp4_avx512_fill(&table->fp4);
        gw__lossless_avx512_fill(&table->lossless);
        gw__topk_avx512_fill(&table->topk);
        gw__block_avx512_fill(&table->block);
        gw__sign_avx512_fill(&table->sign);
        gw__rotate_avx512_fill(&table->rotate);
        gw__natural_avx512_fill(&table->natural);
        gw__lowrank_avx512_fill(&table->lowrank);
    } else {
        gw__quant_avx2_fill(&table->quant);
        gw__quant_reduce_avx2_fill(&table->quant);
        gw__cast_avx2_fill(&table->cast);
        gw__sum_avx2_fill(&table->sum);
        gw__fp8_avx2_fill(&table->fp8);
        gw__fp4_avx2_fill(&table->fp4);
        gw__lossless_avx2_fill(&table->lossless);
        gw__topk_avx2_fill(&table->topk);
        gw__block_avx2_fill(&table->block);
        gw__sign_avx2_fill(&table->sign);
        gw__rotate_avx2_fill(&table->rotate);
        gw__natural_avx2_fill(&table->natural);
        gw__lowrank_avx2_fill(&table->lowrank);
    }
    table->tier = tier;
}

/* Calls every kernel that a tier has of its own, unasked: 0 when each one ends with SIGILL, which
 * shows that it is what the tier's name says. Cases with two whole buckets. */
static int force(const char *tier)
{
    gw_kernels_t table, ref;
    int own = 0, died = 0;
    fill(tier, &table);
    gw__kernels_fill_ref(&ref);
    for (const kernel_body_t *body = kernel_bodies; body->name; body++) {
        if (!body->function || body->function(&table) == body->function(&ref))
            continue;
        kernel_report_t r = kernel_check(body, &ref, &table, 100, 130);
        int illegal = r.crashes && strstr(r.first, "ends with signal 4") != NULL;
        printf("%s %s: %zu of %zu calls died%s\n", tier, body->name, r.crashes, r.cases,
               illegal ? " of SIGILL" : "");
        own++;
        died += illegal;
    }
    printf("%d kernels of its own, %d died of SIGILL\n", own, died);
    return !own || died != own;
}

#else

static int leak(void)
{
    return 0;
}

static int force(const char *tier)
{
    return strlen(tier) > 0;
}

#endif

/* kernels_probe [leak | force TIER]: "tier NAME" for each; 1 when one differs from the reference.
 */
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "leak"))
        return leak() || check_all();
    if (argc > 2 && !strcmp(argv[1], "force"))
        return force(argv[2]);
    return check_all();
}
