/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kernel checker's table for the family sign. */
#ifndef KERNEL_BODIES_SIGN_H
#define KERNEL_BODIES_SIGN_H

#include "kernel_check.h"

void sign_draw(kernel_call_t *c);
void sign_prepare_encode(kernel_call_t *c);
void sign_prepare_valid(kernel_call_t *c);
void sign_prepare_store(kernel_call_t *c);
void sign_prepare_add(kernel_call_t *c);
uint64_t sign_run_encode(const gw_kernels_t *k, kernel_call_t *c);
uint64_t sign_run_valid(const gw_kernels_t *k, kernel_call_t *c);
uint64_t sign_run_store(const gw_kernels_t *k, kernel_call_t *c);
uint64_t sign_run_add(const gw_kernels_t *k, kernel_call_t *c);
void (*sign_encode(const gw_kernels_t *k))(void);
void (*sign_valid(const gw_kernels_t *k))(void);
void (*sign_store(const gw_kernels_t *k))(void);
void (*sign_add(const gw_kernels_t *k))(void);
extern const char *const sign_encodings[], *const sign_decodings[];

#define KERNEL_BODIES_SIGN                                                                         \
    {"sign.encode", sign_draw, sign_prepare_encode, sign_run_encode,                               \
     sign_encode,   1200,      sign_encodings},                                                    \
        {"sign.valid", sign_draw, sign_prepare_valid, sign_run_valid,                              \
         sign_valid,   600,       sign_decodings},                                                 \
        {"sign.store", sign_draw, sign_prepare_store, sign_run_store,                              \
         sign_store,   600,       sign_decodings},                                                 \
    {                                                                                              \
        "sign.add", sign_draw, sign_prepare_add, sign_run_add, sign_add, 600, sign_decodings       \
    }

#endif
