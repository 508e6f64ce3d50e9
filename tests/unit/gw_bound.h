/* SPDX-License-Identifier: Apache-2.0 */
/* The end-to-end bound of an all-reduce, as numerics of the README state it, and element conversion
 * for tests. */
#ifndef GW_BOUND_H
#define GW_BOUND_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/codec.h>
#include <gradwire/comm.h>

static inline gw_coder_t gw_test_coder(const char *spec)
{
    gw_coder_t coder;
    char why[256];
    if (gw_coder_parse(spec, &coder, why, sizeof why) != GW_OK)
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

/* float <-> dtype through the raw codec, which the codec tests check against all 65536 patterns. */
static inline void gw_test_narrow(const float *src, size_t n, gw_dtype_t dtype, void *out)
{
    gw_coder_t raw = gw_test_coder("raw");
    gw_encode_t in = {.src = src, .src_dtype = GW_F32, .wire_dtype = dtype, .count = n};
    size_t length;
    ck_assert_int_eq(raw.family->encode(&raw, &in, out, n * gw_dtype_size(dtype), &length), GW_OK);
}

static inline void gw_test_widen(const void *src, size_t n, gw_dtype_t dtype, float *out)
{
    gw_coder_t raw = gw_test_coder("raw");
    gw_decode_t io = {.payload = src,
                      .length = n * gw_dtype_size(dtype),
                      .wire_dtype = dtype,
                      .count = n,
                      .mode = GW_DECODE_STORE,
                      .dst = out,
                      .dst_dtype = GW_F32};
    ck_assert_int_eq(raw.family->decode(&raw, &io), GW_OK);
}

/*
 * allowed[i] for |result[i] - exact[i]|, exact[i] the sum over ranks of x[r][i] (times `scale`):
 * the sum of the ranks' push bounds, the pull bound of what is pulled (its range is the exact one's
 * widened by what the pushes lost), fp32 summation and output rounding.
 */
static inline void gw_test_end_to_end(const gw_coder_t *coder, gw_plan_kind_t plan,
                                      const float *const *x, int ranks, size_t n, float scale,
                                      gw_dtype_t dtype, double *exact, double *allowed)
{
    float *bound = calloc(n + 1, sizeof *bound), *sum = calloc(n + 1, sizeof *sum);
    double pushed = 0.0, magnitude = 0.0;
    memset(exact, 0, n * sizeof *exact);
    memset(allowed, 0, n * sizeof *allowed);
    bool lossy = (coder->family->flags & GW_CODEC_LOSSY) && coder->family->error_bound;
    for (int r = 0; r < ranks; r++) {
        if (lossy)
            coder->family->error_bound(coder, x[r], n, bound);
        for (size_t i = 0; i < n; i++) {
            exact[i] += x[r][i];
            allowed[i] += bound[i];
            magnitude = fmax(magnitude, fabs((double)x[r][i]));
            pushed = fmax(pushed, allowed[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        exact[i] *= scale;
        allowed[i] *= scale;
        sum[i] = (float)exact[i];
    }
    memset(bound, 0, n * sizeof *bound);
    bool pulls = lossy && plan == GW_PLAN_DIRECT;
    if (pulls)
        coder->family->error_bound(coder, sum, n, bound);
    double unit = dtype == GW_F32 ? 0x1p-24 : dtype == GW_F16 ? 0x1p-11 : 0x1p-8;
    double smallest = dtype == GW_F16 ? 0x1p-25 : FLT_MIN;
    for (size_t i = 0; i < n; i++) {
        allowed[i] +=
            bound[i] + (pulls ? pushed * scale : 0.0) + magnitude * ranks * ranks * 0x1p-23;
        allowed[i] += (fabs(exact[i]) + allowed[i]) * unit + smallest;
    }
    free(bound);
    free(sum);
}

#endif
