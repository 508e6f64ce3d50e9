/* SPDX-License-Identifier: Apache-2.0 */
/* The raw codec: exact in the wire type, narrowed once, added in binary32. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 4096 + 130 };

static const gw_dtype_t types[] = {GW_F32, GW_F16, GW_BF16};
static float x[N], wide[N];

static gw_coder_t raw(void)
{
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("raw", &coder, NULL, 0), GW_OK);
    return coder;
}

static size_t bytes_of(gw_dtype_t type)
{
    return type == GW_F32 ? 4 : 2;
}

/* The reference's own conversion of x to `type`, into `out`. */
static void narrow(const float *src, gw_dtype_t type, void *out)
{
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    if (type == GW_F16)
        cast->f32_to_f16(src, out, N);
    else if (type == GW_BF16)
        cast->f32_to_bf16(src, out, N);
    else
        memcpy(out, src, N * sizeof *src);
}

static void widen(const void *src, gw_dtype_t type, float *out)
{
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    if (type == GW_F16)
        cast->f16_to_f32(src, out, N);
    else if (type == GW_BF16)
        cast->bf16_to_f32(src, out, N);
    else
        memcpy(out, src, N * sizeof *out);
}

/* From each source type over each wire type to each destination type. */
START_TEST(every_pair_of_types)
{
    static uint8_t src[4 * N], wire[4 * N + 1], expected[4 * N], dst[4 * N];
    gw_dtype_t from = types[_i / 9], over = types[_i / 3 % 3], to = types[_i % 3];
    gw_coder_t coder = raw();
    size_t length = 0;
    test_fill(FILL_HEAVY, 1, x, N);
    narrow(x, from, src);
    widen(src, from, wide);
    narrow(wide, over, expected);
    gw_encode_t in = {.src = src, .src_dtype = from, .wire_dtype = over, .count = N, .first = 64};
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire + 1, 4 * N, &length), GW_OK);
    ck_assert_uint_eq(length, N * bytes_of(over));
    ck_assert_uint_eq(length, coder.family->bound(&coder, over, N));
    ck_assert_mem_eq(wire + 1, expected, length);
    widen(expected, over, wide);
    narrow(wide, to, expected);
    gw_decode_t out = {.payload = wire + 1,
                       .length = length,
                       .wire_dtype = over,
                       .count = N,
                       .first = 64,
                       .dst = dst,
                       .dst_dtype = to};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    ck_assert_mem_eq(dst, expected, N * bytes_of(to));
}
END_TEST

START_TEST(adds_in_binary32)
{
    static uint8_t wire[4 * N];
    static float sum[N], before[N];
    gw_coder_t coder = raw();
    size_t length = 0, wrong = 0;
    test_fill(FILL_HEAVY, 1, x, N);
    test_fill(FILL_NORMAL, 2, before, N);
    memcpy(sum, before, sizeof sum);
    gw_encode_t in = {.src = x, .wire_dtype = types[_i], .count = N};
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire, sizeof wire, &length), GW_OK);
    gw_decode_t out = {.payload = wire,
                       .length = length,
                       .wire_dtype = types[_i],
                       .count = N,
                       .mode = GW_DECODE_ADD,
                       .dst = sum};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    widen(wire, types[_i], wide);
    for (int i = 0; i < N; i++)
        wrong += sum[i] != before[i] + wide[i];
    ck_assert_uint_eq(wrong, 0);
    out.dst_dtype = GW_BF16;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_UNSUPPORTED);
}
END_TEST

START_TEST(same_type_keeps_every_pattern)
{
    static uint8_t src[4 * N], wire[4 * N], dst[4 * N];
    gw_coder_t coder = raw();
    uint64_t seed = 1;
    size_t length = 0;
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)(gw_test_random(&seed) | (i % 4 > 1 ? 0x7F : 0)); /* many NaNs */
    gw_encode_t in = {.src = src, .src_dtype = types[_i], .wire_dtype = types[_i], .count = N};
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire, sizeof wire, &length), GW_OK);
    gw_decode_t out = {.payload = wire,
                       .length = length,
                       .wire_dtype = types[_i],
                       .count = N,
                       .dst = dst,
                       .dst_dtype = types[_i]};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    ck_assert_mem_eq(dst, src, length);
}
END_TEST

START_TEST(refusals)
{
    static uint8_t wire[4 * N];
    gw_coder_t coder = raw();
    size_t length = 5;
    gw_encode_t in = {.src = x, .count = 100};
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire, 399, &length), GW_ERR_NO_SPACE);
    in.wire_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire, sizeof wire, &length),
                     GW_ERR_UNSUPPORTED);
    in.wire_dtype = GW_F32;
    in.first = 32;
    ck_assert_int_eq(coder.family->encode(&coder, &in, wire, sizeof wire, &length), GW_ERR_INVALID);
    ck_assert_uint_eq(length, 5);
    gw_decode_t out = {.payload = wire, .length = 399, .count = 100, .dst = x};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_FRAME_LENGTH);
    ck_assert_uint_eq(coder.family->grain(&coder), 64);
    ck_assert_ptr_null(coder.family->error_bound);
}
END_TEST

START_TEST(nothing_is_fine)
{
    gw_coder_t coder = raw();
    size_t length = 5;
    uint8_t one[4];
    gw_encode_t in = {.wire_dtype = GW_F32};
    ck_assert_int_eq(coder.family->encode(&coder, &in, one, 0, &length), GW_OK);
    ck_assert_uint_eq(length, 0);
    gw_decode_t out = {.payload = one};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    out.mode = GW_DECODE_ADD;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("raw");
    TCase *t = tcase_create("raw");
    tcase_add_loop_test(t, every_pair_of_types, 0, 27);
    tcase_add_loop_test(t, adds_in_binary32, 0, 3);
    tcase_add_loop_test(t, same_type_keeps_every_pattern, 0, 3);
    tcase_add_test(t, refusals);
    tcase_add_test(t, nothing_is_fine);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
