/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kernel checker's table for the family natural. */
#ifndef KERNEL_BODIES_NATURAL_H
#define KERNEL_BODIES_NATURAL_H

#include "kernel_check.h"

void natural_draw(kernel_call_t *c);
void natural_prepare_encode(kernel_call_t *c);
void natural_prepare_valid(kernel_call_t *c);
void natural_prepare_store(kernel_call_t *c);
void natural_prepare_add(kernel_call_t *c);
uint64_t natural_run_encode(const gw_kernels_t *k, kernel_call_t *c);
uint64_t natural_run_valid(const gw_kernels_t *k, kernel_call_t *c);
uint64_t natural_run_store(const gw_kernels_t *k, kernel_call_t *c);
uint64_t natural_run_add(const gw_kernels_t *k, kernel_call_t *c);
void (*natural_encode(const gw_kernels_t *k))(void);
void (*natural_valid(const gw_kernels_t *k))(void);
void (*natural_store(const gw_kernels_t *k))(void);
void (*natural_add(const gw_kernels_t *k))(void);
extern const char *const natural_encodings[], *const natural_decodings[];

#define KERNEL_BODIES_NATURAL                                                                      \
    {"natural.encode", natural_draw, natural_prepare_encode, natural_run_encode,                   \
     natural_encode,   1920,         natural_encodings},                                           \
        {"natural.valid", natural_draw, natural_prepare_valid, natural_run_valid,                  \
         natural_valid,   960,          natural_decodings},                                        \
        {"natural.store", natural_draw, natural_prepare_store, natural_run_store,                  \
         natural_store,   960,          natural_decodings},                                        \
    {                                                                                              \
        "natural.add", natural_draw, natural_prepare_add, natural_run_add, natural_add, 960,       \
            natural_decodings                                                                      \
    }

#endif
