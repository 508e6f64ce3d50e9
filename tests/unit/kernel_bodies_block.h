/* SPDX-License-Identifier: Apache-2.0 */
/* What kernel_bodies_block.c has for the table of bodies. */
#ifndef KERNEL_BODIES_BLOCK_H
#define KERNEL_BODIES_BLOCK_H

#include "kernel_check.h"

void block_prepare_any(kernel_call_t *c);
uint64_t block_run_any(const gw_kernels_t *k, kernel_call_t *c);
void block_prepare_rms(kernel_call_t *c);
uint64_t block_run_rms(const gw_kernels_t *k, kernel_call_t *c);

#endif
