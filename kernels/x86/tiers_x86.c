/* SPDX-License-Identifier: Apache-2.0 */
/* Which x86 tiers this CPU can run. Compiled for the baseline. */
#include "x86.h"

#include <cpuid.h>

/* __builtin_cpu_supports() answers from CPUID and from XGETBV: a feature whose registers the system
 * does not save counts as absent. */

static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool gw__kernels_fill_avx2(gw_kernels_t *table)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("popcnt") || !has_f16c())
        return false;
    table->tier = "avx2";
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
    return true;
}

bool gw__kernels_fill_avx512(gw_kernels_t *table)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return false;
    table->tier = "avx512";
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
    return true;
}
