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

size_t gw__sign_ref_encode(const gw_sign_spec_t *spec, const float *src, float *residual,
                           size_t count, uint8_t *dst);
bool gw__sign_ref_valid(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count);
void gw__sign_ref_store(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst);
void gw__sign_ref_add(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst);

/* One bucket of n elements, in the default floating-point mode. Encoding returns whether all values
 * were finite. */
bool gw__sign_ref_bucket(const float *src, float *residual, size_t n, uint8_t *dst);
void gw__sign_ref_decode_bucket(const uint8_t *src, size_t n, bool add, float *dst);

size_t gw__rotate_ref_encode(const gw_rotate_spec_t *spec, const float *src, float *residual,
                             size_t count, uint8_t *dst);
bool gw__rotate_ref_valid(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count);
void gw__rotate_ref_store(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                          float *dst);
void gw__rotate_ref_add(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count,
                        float *dst);

/* One block of n elements, in the default floating-point mode. Encoding
 * returns whether all values were finite. */
bool gw__rotate_ref_block(const gw_rotate_spec_t *spec, const float *src, float *residual, size_t n,
                          uint8_t *dst);
void gw__rotate_ref_decode_block(const gw_rotate_spec_t *spec, const uint8_t *src, size_t n,
                                 bool add, float *dst);

void gw__cast_ref_f16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_f16(const void *src, void *dst, size_t count);
void gw__cast_ref_bf16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_bf16(const void *src, void *dst, size_t count);

void gw__sum_ref_add(float *dst, const void *src, size_t count);
void gw__sum_ref_scale(float *dst, float factor, size_t count);

#endif
