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
                            size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                            size_t *refused);

/* One bucket of n elements, in the default floating-point mode. Encoding returns whether all values
 * were finite. */
bool gw__quant_ref_bucket(const gw_quant_spec_t *spec, const float *src, float *residual, size_t n,
                          gw_quant_noise_t noise, uint8_t *dst);
void gw__quant_ref_decode_bucket(const gw_quant_spec_t *spec, const uint8_t *src, size_t n,
                                 bool add, float *dst);

/* The first payload whose bucket of n elements, from element `at` on, is not valid; or their
 * number. */
size_t gw__quant_ref_refused(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, size_t at,
                             size_t n);

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

size_t gw__natural_ref_encode(const gw_natural_spec_t *spec, const float *src, float *residual,
                              size_t count, uint64_t first, uint64_t key, uint8_t *dst);
bool gw__natural_ref_valid(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count);
void gw__natural_ref_store(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                           float *dst);
void gw__natural_ref_add(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count,
                         float *dst);

/* One bucket of n elements that has a scale, in the default floating-point mode. Encoding returns
 * whether all values were finite. */
bool gw__natural_ref_bucket(const gw_natural_spec_t *spec, const float *src, float *residual,
                            size_t n, gw_quant_noise_t noise, uint8_t *dst);
void gw__natural_ref_decode_bucket(const gw_natural_spec_t *spec, const uint8_t *src, size_t n,
                                   bool add, float *dst);

void gw__cast_ref_f16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_f16(const void *src, void *dst, size_t count);
void gw__cast_ref_bf16_to_f32(const void *src, void *dst, size_t count);
void gw__cast_ref_f32_to_bf16(const void *src, void *dst, size_t count);
void gw__cast_ref_bf16_stochastic(const float *src, void *dst, size_t count, uint64_t first,
                                  uint64_t key);
size_t gw__cast_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                           size_t count, uint8_t *dst);
void gw__cast_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                      float *dst);

size_t gw__fp8_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst);
bool gw__fp8_ref_valid(const gw_float_spec_t *spec, const uint8_t *payload, size_t count);
void gw__fp8_ref_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst);
void gw__fp8_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst);

size_t gw__fp4_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                          size_t count, uint8_t *dst);
bool gw__fp4_ref_valid(const gw_float_spec_t *spec, const uint8_t *payload, size_t count);
void gw__fp4_ref_store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst);
void gw__fp4_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst);

size_t gw__lossless_ref_encode(gw_dtype_t dtype, const void *src, size_t count, uint8_t *dst);
bool gw__lossless_ref_valid(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count);
size_t gw__lossless_ref_decode(gw_dtype_t dtype, const uint8_t *blocks, size_t count, void *dst);
size_t gw__lossless_ref_pack(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst);
size_t gw__lossless_ref_unpack(gw_dtype_t dtype, const uint8_t *src, size_t length, size_t count,
                               uint8_t *blocks, size_t *blocks_length);

/* One block of n elements; returns its bytes. */
size_t gw__lossless_ref_encode_block(gw_dtype_t dtype, const uint8_t *src, size_t n, uint8_t *dst);
size_t gw__lossless_ref_decode_block(gw_dtype_t dtype, const uint8_t *block, size_t n,
                                     uint8_t *dst);

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

void gw__lowrank_ref_project(const gw_lowrank_panel_t *panel, const float *src,
                             const float *residual, float scale, const float *q, float *p);
void gw__lowrank_ref_collect(const gw_lowrank_panel_t *panel, const float *src,
                             const float *residual, float scale, const float *p, float *q);
void gw__lowrank_ref_store(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                           float factor, float *dst);
void gw__lowrank_ref_add(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                         float factor, float *dst);
void gw__lowrank_ref_keep(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                          float factor, const float *src, float *residual);

#endif
