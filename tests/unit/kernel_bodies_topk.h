/* SPDX-License-Identifier: Apache-2.0 */
/* What kernel_bodies_topk.c has for the table of bodies. */
#ifndef KERNEL_BODIES_TOPK_H
#define KERNEL_BODIES_TOPK_H

#include <gradwire/codec.h>

#include "kernel_check.h"

#define TOPK_BODY(name)                                                                            \
    void topk_prepare_##name(kernel_call_t *c);                                                    \
    uint64_t topk_run_##name(const gw_kernels_t *k, kernel_call_t *c)

TOPK_BODY(fold);
TOPK_BODY(correct);
TOPK_BODY(count);
TOPK_BODY(find);
TOPK_BODY(histogram);
void topk_prepare_sparse(kernel_call_t *c);
uint64_t topk_run_store(const gw_kernels_t *k, kernel_call_t *c);
uint64_t topk_run_add(const gw_kernels_t *k, kernel_call_t *c);
TOPK_BODY(settle);
TOPK_BODY(encode);
TOPK_BODY(decode);

#endif
