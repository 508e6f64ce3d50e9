/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kernel checker's table for the family lossless. */
#ifndef KERNEL_BODIES_LOSSLESS_H
#define KERNEL_BODIES_LOSSLESS_H

#include "kernel_check.h"

void lossless_draw(kernel_call_t *c);
void lossless_draw_group(kernel_call_t *c);
void lossless_prepare_encode(kernel_call_t *c);
void lossless_prepare_valid(kernel_call_t *c);
void lossless_prepare_decode(kernel_call_t *c);
void lossless_prepare_pack(kernel_call_t *c);
void lossless_prepare_unpack(kernel_call_t *c);
uint64_t lossless_run_encode(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lossless_run_valid(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lossless_run_decode(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lossless_run_pack(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lossless_run_unpack(const gw_kernels_t *k, kernel_call_t *c);
void (*lossless_encode(const gw_kernels_t *k))(void);
void (*lossless_valid(const gw_kernels_t *k))(void);
void (*lossless_decode(const gw_kernels_t *k))(void);
void (*lossless_pack(const gw_kernels_t *k))(void);
void (*lossless_unpack(const gw_kernels_t *k))(void);
extern const char *const lossless_settings[], *const lossless_decodings[], *const lossless_none[];

/* clang-format off */
#define KERNEL_BODIES_LOSSLESS                                                                     \
    {"lossless.encode", lossless_draw, lossless_prepare_encode, lossless_run_encode,               \
     lossless_encode, 1500, lossless_settings},                                                    \
    {"lossless.valid", lossless_draw, lossless_prepare_valid, lossless_run_valid,                  \
     lossless_valid, 1500, lossless_settings},                                                     \
    {"lossless.decode", lossless_draw, lossless_prepare_decode, lossless_run_decode,               \
     lossless_decode, 1500, lossless_decodings},                                                   \
    {"lossless.pack", lossless_draw_group, lossless_prepare_pack, lossless_run_pack,               \
     lossless_pack, 600, lossless_none},                                                           \
    {"lossless.unpack", lossless_draw_group, lossless_prepare_unpack, lossless_run_unpack,         \
     lossless_unpack, 2400, lossless_none},
/* clang-format on */

#endif
