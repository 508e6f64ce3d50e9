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
GW_BASELINE void gw__sign_avx2_fill(gw_sign_kernels_t *table);
GW_BASELINE void gw__rotate_avx2_fill(gw_rotate_kernels_t *table);

GW_BASELINE void gw__quant_avx512_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__quant_reduce_avx512_fill(gw_quant_kernels_t *table);
GW_BASELINE void gw__sign_avx512_fill(gw_sign_kernels_t *table);
GW_BASELINE void gw__rotate_avx512_fill(gw_rotate_kernels_t *table);

#endif
