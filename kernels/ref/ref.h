/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference tier lends to other tiers: whole kernels and single buckets for their tails.
 */
#ifndef GW_REF_H
#define GW_REF_H

#include "kernels.h"
#include "quant_grid.h"

size_t gw__quant_ref_encode(const gw_quant_spec_t *spec, const float *src, float *residual,
                            size_t count, uint64_t first, uint64_t key, uint8_t *dst);
bool gw__quant_ref_valid(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count);
void gw__quant_ref_store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                         float *dst);
void gw__quant_ref_add(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst);
size_t gw__quant_ref_reduce(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, float *residual,
                            size_t count, uint64_t first, uint64_t key, uint8_t *dst);

/* One bucket of n elements, in the default floating-point mode. Encoding returns whether all values
 * were finite. */
bool gw__quant_ref_bucket(const gw_quant_spec_t *spec, const float *src, float *residual, size_t n,
                          gw_quant_noise_t noise, uint8_t *dst);
void gw__quant_ref_decode_bucket(const gw_quant_spec_t *spec, const uint8_t *src, size_t n,
                                 bool add, float *dst);

/* The sum of the n elements from `at` on, where a bucket begins, encoded; as above. `residual` is
 * that of these elements. */
bool gw__quant_ref_reduce_bucket(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, size_t at,
                                 float *residual, size_t n, gw_quant_noise_t noise, uint8_t *dst);

void gw__cast_ref_f16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_f16(const void *src, void *dst, size_t count);
void gw__cast_ref_bf16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_bf16(const void *src, void *dst, size_t count);

void gw__topk_ref_fold(const float *src, float *residual, size_t count);
void gw__topk_ref_correct(const float *src, float factor, float *momentum, float *residual,
                          size_t count);
size_t gw__topk_ref_count(const float *x, size_t count, uint32_t least);
size_t gw__topk_ref_find(const float *x, size_t count, uint32_t least, uint32_t base,
                         uint32_t *index, size_t room);
void gw__topk_ref_histogram(const float *x, size_t count, unsigned digit, uint32_t prefix,
                            uint32_t *bin);
void gw__topk_ref_store(float *dst, const uint32_t *index, const float *value, size_t count);
void gw__topk_ref_add(float *dst, const uint32_t *index, const float *value, size_t count);
void gw__topk_ref_settle(float *residual, const uint32_t *index, const float *value,
                         const float *sent, size_t count);

bool gw__block_ref_any(const void *x, size_t bytes, uint32_t mask);
float gw__block_ref_rms(const float *x, size_t count);

void gw__sum_ref_add(float *dst, const void *src, size_t count);
void gw__sum_ref_scale(float *dst, float factor, size_t count);

#endif
