/* SPDX-License-Identifier: Apache-2.0 */
/* The x86 tiers: each family overwrites its part of a table. */
#ifndef GW_X86_H
#define GW_X86_H

#include "kernels.h"

/* A fill function runs on any processor, whatever its file is compiled for. */
#define GW_BASELINE __attribute__((target("no-avx")))

GW_BASELINE void gw__quant_avx2_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__quant_reduce_avx2_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__cast_avx2_fill(gw_cast_kernels_t *table);
GW_BASELINE void gw__sum_avx2_fill(gw_sum_kernels_t *table);
GW_BASELINE void gw__fp8_avx2_fill(gw_float_kernels_t *table);
GW_BASELINE void gw__fp4_avx2_fill(gw_float_kernels_t *table);
GW_BASELINE void gw__lossless_avx2_fill(gw_lossless_kernels_t *table);
GW_BASELINE void gw__topk_avx2_fill(gw_topk_kernels_t *table);
GW_BASELINE void gw__block_avx2_fill(gw_block_kernels_t *table);
GW_BASELINE void gw__sign_avx2_fill(gw_sign_kernels_t *table);
GW_BASELINE void gw__rotate_avx2_fill(gw_rotate_kernels_t *table);
GW_BASELINE void gw__natural_avx2_fill(gw_natural_kernels_t *table);
GW_BASELINE void gw__lowrank_avx2_fill(gw_lowrank_kernels_t *table);

GW_BASELINE void gw__topk_avx512_fill(gw_topk_kernels_t *table);
GW_BASELINE void gw__block_avx512_fill(gw_block_kernels_t *table);
GW_BASELINE void gw__quant_avx512_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__quant_reduce_avx512_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__cast_avx512_fill(gw_cast_kernels_t *table);
GW_BASELINE void gw__fp8_avx512_fill(gw_float_kernels_t *table);
GW_BASELINE void gw__fp4_avx512_fill(gw_float_kernels_t *table);
GW_BASELINE void gw__lossless_avx512_fill(gw_lossless_kernels_t *table);
GW_BASELINE void gw__sign_avx512_fill(gw_sign_kernels_t *table);
GW_BASELINE void gw__rotate_avx512_fill(gw_rotate_kernels_t *table);
GW_BASELINE void gw__natural_avx512_fill(gw_natural_kernels_t *table);
GW_BASELINE void gw__lowrank_avx512_fill(gw_lowrank_kernels_t *table);

#endif
