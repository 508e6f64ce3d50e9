/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kernel checker's table for the family rotate. */
#ifndef KERNEL_BODIES_ROTATE_H
#define KERNEL_BODIES_ROTATE_H

#include "kernel_check.h"

void rotate_draw(kernel_call_t *c);
void rotate_prepare_encode(kernel_call_t *c);
void rotate_prepare_valid(kernel_call_t *c);
void rotate_prepare_store(kernel_call_t *c);
void rotate_prepare_add(kernel_call_t *c);
uint64_t rotate_run_encode(const gw_kernels_t *k, kernel_call_t *c);
uint64_t rotate_run_valid(const gw_kernels_t *k, kernel_call_t *c);
uint64_t rotate_run_store(const gw_kernels_t *k, kernel_call_t *c);
uint64_t rotate_run_add(const gw_kernels_t *k, kernel_call_t *c);
void (*rotate_encode(const gw_kernels_t *k))(void);
void (*rotate_valid(const gw_kernels_t *k))(void);
void (*rotate_store(const gw_kernels_t *k))(void);
void (*rotate_add(const gw_kernels_t *k))(void);
extern const char *const rotate_encodings[], *const rotate_decodings[];

#define KERNEL_BODIES_ROTATE                                                                       \
    {"rotate.encode", rotate_draw, rotate_prepare_encode, rotate_run_encode,                       \
     rotate_encode,   2400,        rotate_encodings},                                              \
        {"rotate.valid", rotate_draw, rotate_prepare_valid, rotate_run_valid,                      \
         rotate_valid,   600,         rotate_decodings},                                           \
        {"rotate.store", rotate_draw, rotate_prepare_store, rotate_run_store,                      \
         rotate_store,   1200,        rotate_decodings},                                           \
    {                                                                                              \
        "rotate.add", rotate_draw, rotate_prepare_add, rotate_run_add, rotate_add, 1200,           \
            rotate_decodings                                                                       \
    }

#endif
