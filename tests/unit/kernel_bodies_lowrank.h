/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kernel checker's table for the family lowrank. */
#ifndef KERNEL_BODIES_LOWRANK_H
#define KERNEL_BODIES_LOWRANK_H

#include "kernel_check.h"

void lowrank_draw(kernel_call_t *c);
void lowrank_draw_finite(kernel_call_t *c);
void lowrank_prepare_project(kernel_call_t *c);
void lowrank_prepare_collect(kernel_call_t *c);
void lowrank_prepare_store(kernel_call_t *c);
void lowrank_prepare_add(kernel_call_t *c);
void lowrank_prepare_keep(kernel_call_t *c);
uint64_t lowrank_run_project(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lowrank_run_collect(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lowrank_run_store(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lowrank_run_add(const gw_kernels_t *k, kernel_call_t *c);
uint64_t lowrank_run_keep(const gw_kernels_t *k, kernel_call_t *c);
void (*lowrank_project(const gw_kernels_t *k))(void);
void (*lowrank_collect(const gw_kernels_t *k))(void);
void (*lowrank_store(const gw_kernels_t *k))(void);
void (*lowrank_add(const gw_kernels_t *k))(void);
void (*lowrank_keep(const gw_kernels_t *k))(void);
extern const char *const lowrank_products[], *const lowrank_expansions[];

#define KERNEL_BODIES_LOWRANK                                                                      \
    {"lowrank.project", lowrank_draw, lowrank_prepare_project, lowrank_run_project,                \
     lowrank_project,   1200,         lowrank_products},                                           \
        {"lowrank.collect",   lowrank_draw_finite, lowrank_prepare_collect,                        \
         lowrank_run_collect, lowrank_collect,     1200,                                           \
         lowrank_products},                                                                        \
        {"lowrank.store",   lowrank_draw_finite, lowrank_prepare_store,                            \
         lowrank_run_store, lowrank_store,       800,                                              \
         lowrank_expansions},                                                                      \
        {"lowrank.add", lowrank_draw_finite, lowrank_prepare_add, lowrank_run_add, lowrank_add,    \
         800,           lowrank_expansions},                                                       \
    {                                                                                              \
        "lowrank.keep", lowrank_draw_finite, lowrank_prepare_keep, lowrank_run_keep, lowrank_keep, \
            800, lowrank_expansions                                                                \
    }

#endif
