/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel dispatch: the tables of all tiers and the one that is in use. */
#include "kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ref.h"

static const char *const known[] = {"ref", "avx2", "avx512"};
enum { TIERS = sizeof known / sizeof *known };

static gw_kernels_t tables[TIERS];
static size_t filled; /* tables[0 .. filled) can run here, each better than the one before */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(const gw_kernels_t *) active;

void gw__kernels_fill_ref(gw_kernels_t *table)
{
    *table = (gw_kernels_t){
        .tier = "ref",
        .quant = {gw__quant_ref_encode, gw__quant_ref_valid, gw__quant_ref_store, gw__quant_ref_add,
                  gw__quant_ref_reduce},
        .cast = {gw__cast_ref_f16_to_f32, gw__cast_ref_f32_to_f16, gw__cast_ref_bf16_to_f32,
                 gw__cast_ref_f32_to_bf16, gw__cast_ref_encode, gw__cast_ref_add,
                 gw__cast_ref_bf16_stochastic},
        .sum = {gw__sum_ref_add, gw__sum_ref_scale},
        .fp8 = {gw__fp8_ref_encode, gw__fp8_ref_valid, gw__fp8_ref_store, gw__fp8_ref_add},
        .fp4 = {gw__fp4_ref_encode, gw__fp4_ref_valid, gw__fp4_ref_store, gw__fp4_ref_add},
        .lossless = {gw__lossless_ref_encode, gw__lossless_ref_valid, gw__lossless_ref_decode,
                     gw__lossless_ref_pack, gw__lossless_ref_unpack},
        .topk = {gw__topk_ref_fold, gw__topk_ref_correct, gw__topk_ref_count, gw__topk_ref_find,
                 gw__topk_ref_histogram, gw__topk_ref_store, gw__topk_ref_add, gw__topk_ref_settle},
        .block = {gw__block_ref_any, gw__block_ref_rms},
        .sign = {gw__sign_ref_encode, gw__sign_ref_valid, gw__sign_ref_store, gw__sign_ref_add},
        .rotate = {gw__rotate_ref_encode, gw__rotate_ref_valid, gw__rotate_ref_store,
                   gw__rotate_ref_add},
        .natural = {gw__natural_ref_encode, gw__natural_ref_valid, gw__natural_ref_store,
                    gw__natural_ref_add},
        .lowrank = {gw__lowrank_ref_project, gw__lowrank_ref_collect, gw__lowrank_ref_store,
                    gw__lowrank_ref_add, gw__lowrank_ref_keep},
    };
}

#if !GW_HAVE_X86 /* set by CMakeLists.txt where x86/ is compiled */
bool gw__kernels_fill_avx2(gw_kernels_t *table)
{
    return false;
}

bool gw__kernels_fill_avx512(gw_kernels_t *table)
{
    return false;
}
#endif

static void fill_tables(void)
{
    bool (*const better[])(gw_kernels_t *) = {gw__kernels_fill_avx2, gw__kernels_fill_avx512};
    gw__kernels_fill_ref(&tables[filled++]);
    for (size_t i = 0; i < sizeof better / sizeof *better; i++) {
        tables[filled] = tables[filled - 1];
        if (!better[i](&tables[filled]))
            return;
        filled++;
    }
}

static size_t usable(void)
{
    pthread_once(&once, fill_tables);
    return filled;
}

const gw_kernels_t *gw__kernels(void)
{
    const gw_kernels_t *table = atomic_load_explicit(&active, memory_order_acquire);
    return table ? table : &tables[usable() - 1];
}

const char *gw__kernels_tier(void)
{
    return gw__kernels()->tier;
}

const char *gw__kernels_available(size_t i)
{
    return i < usable() ? tables[i].tier : NULL;
}

const char *gw__kernels_known(size_t i)
{
    return i < TIERS ? known[i] : NULL;
}

const gw_kernels_t *gw__kernels_of(const char *tier)
{
    for (size_t i = 0; i < usable(); i++)
        if (!strcmp(tables[i].tier, tier))
            return &tables[i];
    return NULL;
}

static gw_status_t refuse(const char *tier, char *why, size_t why_size)
{
    bool is_known = false;
    char usable_names[64] = "best";
    for (size_t i = 0; i < TIERS; i++)
        is_known |= !strcmp(known[i], tier);
    for (size_t i = 0; i < usable(); i++) {
        size_t used = strlen(usable_names);
        snprintf(usable_names + used, sizeof usable_names - used, ", %s", tables[i].tier);
    }
    if (why && why_size)
        snprintf(why, why_size, "kernels tier '%s' %s; allowed here: %s", tier,
                 is_known ? "cannot run on this machine" : "does not exist", usable_names);
    return is_known ? GW_ERR_UNSUPPORTED : GW_ERR_NOT_FOUND;
}

gw_status_t gw__kernels_select(const char *tier, char *why, size_t why_size)
{
    const gw_kernels_t *table =
        !tier || !strcmp(tier, "best") ? &tables[usable() - 1] : gw__kernels_of(tier);
    if (!table)
        return refuse(tier, why, why_size);
    atomic_store_explicit(&active, table, memory_order_release);
    return GW_OK;
}
