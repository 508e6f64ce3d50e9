/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of the families that go through codecs/blockwise.c: splits, poison, feedback, 16-bit
 * types, refusals, any bytes. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 4096 + 512 + 77, ROOM = N * 4 + 8192 };
static float x[N], y[N], residual[N], before[N];
static uint8_t payload[ROOM];

static const char *const specs[] = {"sign",
                                    "sign:bucket=32",
                                    "sign:bucket=288",
                                    "sign:bucket=4096",
                                    "q1r",
                                    "q2r:block=64,scale=unbiased",
                                    "q3r:seed=5",
                                    "q4r",
                                    "q5r:block=4096",
                                    "q6r:block=128",
                                    "q7r:block=1024",
                                    "q8r:block=256",
                                    "nuqsgd",
                                    "nuqsgd:bits=5,norm=max,bucket=96",
                                    "nuqsgd:bits=3,bucket=32,round=stochastic,ef=on",
                                    "ternary",
                                    "ternary:ef=on,bucket=288"};
enum { SPECS = sizeof specs / sizeof *specs };

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static size_t encode(const gw_coder_t *coder, const float *src, float *kept, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = src, .residual = kept, .count = count, .key = 77};
    gw_check(coder->family->encode(coder, &in, payload, sizeof payload, &length) == GW_OK,
             "%s does not encode", coder->spec);
    gw_check(length == coder->family->bound(coder, GW_F32, count), "%s: bound", coder->spec);
    return length;
}

static gw_status_t decode(const gw_coder_t *coder, size_t length, size_t count, float *dst)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = dst};
    return coder->family->decode(coder, &out);
}

static int tier_count(void)
{
    int n = 0;
    while (gw__kernels_available((size_t)n))
        n++;
    return n;
}

/* Tests loop over every spec on every tier. */
static gw_coder_t begin(int i)
{
    ck_assert_int_eq(gw__kernels_select(gw__kernels_available((size_t)i / SPECS), NULL, 0), GW_OK);
    return coder_of(specs[i % SPECS]);
}

START_TEST(pieces_give_the_bytes_of_the_whole)
{
    static uint8_t whole[ROOM];
    static float kept[N], part_y[N];
    gw_coder_t coder = begin(_i);
    size_t grain = coder.family->grain(&coder), at = 0;
    test_fill(FILL_HEAVY, 3, x, N);
    test_fill(FILL_NORMAL, 4, residual, N);
    memcpy(kept, residual, sizeof kept);
    size_t length = encode(&coder, x, kept, N);
    ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
    memcpy(whole, payload, length);
    for (size_t i = 0, n; i < N; i += n) {
        size_t part = 0;
        n = grain * (1 + i / grain % 3);
        n = n < N - i ? n : N - i;
        gw_encode_t in = {
            .src = x + i, .residual = residual + i, .count = n, .first = i, .key = 77};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload + at, ROOM - at, &part), GW_OK);
        gw_decode_t out = {
            .payload = payload + at, .length = part, .count = n, .first = i, .dst = part_y + i};
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        at += part;
    }
    ck_assert_uint_eq(at, length);
    ck_assert_mem_eq(payload, whole, length);
    ck_assert_mem_eq(residual, kept, sizeof kept);
    ck_assert_mem_eq(part_y, y, sizeof y);
}
END_TEST

START_TEST(sizes_add_up)
{
    gw_coder_t coder = begin(_i);
    size_t grain = coder.family->grain(&coder);
    size_t one = coder.family->bound(&coder, GW_F32, grain);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 0), 0);
    for (size_t tail = 0; tail < grain; tail += 1 + tail / 9)
        for (size_t k = 0; k < 4; k++)
            gw_check(coder.family->bound(&coder, GW_F32, k * grain + tail) ==
                         k * one + coder.family->bound(&coder, GW_F32, tail),
                     "%s: %zu grains and %zu", coder.spec, k, tail);
}
END_TEST

/* One NaN poisons its grain and nothing else: every element of it decodes to the same NaN, stored
 * or added; its residual stays as it was, the count says 1. */
START_TEST(poison_stays_in_its_grain)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    gw_coder_t coder = begin(_i);
    size_t grain = coder.family->grain(&coder), where[] = {grain + 17, N - 1};
    for (size_t b = 0; b < 8; b++) {
        size_t length = 0, other = 0, kept = 0, changed = 0, at = where[b / 4], poisoned = 0;
        test_fill(FILL_NORMAL, b, x, N);
        test_fill(FILL_NORMAL, b + 9, before, N);
        memcpy(residual, before, sizeof before);
        x[at] = bad[b % 4];
        gw_encode_t in = {.src = x, .residual = residual, .count = N};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
        ck_assert_uint_eq(in.poisoned, 1);
        ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
        gw_decode_t out = {
            .payload = payload, .length = length, .count = N, .mode = GW_DECODE_ADD, .dst = x};
        x[at] = 1.0f;
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        for (size_t i = 0; i < N; i++) {
            bool inside = i / grain == at / grain;
            poisoned += inside;
            other += inside ? gw__load32(&y[i]) != GW_NAN_BITS || gw__load32(&x[i]) != GW_NAN_BITS
                            : !isfinite(y[i]) || !isfinite(residual[i]) || !isfinite(x[i]);
            kept += inside && residual[i] == before[i];
            changed += !inside && residual[i] != before[i];
        }
        ck_assert_uint_eq(other, 0);
        ck_assert_uint_eq(kept, poisoned);
        ck_assert_uint_ge(changed + 60, N - poisoned);
    }
}
END_TEST

/* residual' = (src + residual) - decoded, to the bit. */
START_TEST(residual_is_what_was_lost)
{
    static const test_fill_t fills[] = {FILL_HEAVY, FILL_SPARSE, FILL_DENORMAL, FILL_TINY};
    gw_coder_t coder = begin(_i);
    for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
        size_t wrong = 0;
        test_fill(fills[f], f, x, N);
        test_fill(f % 2 ? FILL_ZEROS : FILL_NORMAL, f, before, N);
        memcpy(residual, before, sizeof before);
        ck_assert_int_eq(decode(&coder, encode(&coder, x, residual, N), N, y), GW_OK);
        for (int i = 0; i < N; i++) {
            float p = x[i] + before[i];
            wrong += residual[i] != p - y[i];
        }
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

/* Finite input gives a finite output and a finite residual, whatever its magnitudes. */
START_TEST(finite_stays_finite)
{
    gw_coder_t coder = begin(_i);
    for (int fill = 0; fill < 40; fill++) {
        uint64_t seed = (uint64_t)fill;
        size_t bad = 0;
        test_fill((test_fill_t)(fill % FILL_FINITE), (uint64_t)fill, x, N);
        for (size_t i = 0; fill >= 20 && i < N; i++)
            x[i] = test_mixed(&seed);
        memset(residual, 0, sizeof residual);
        ck_assert_int_eq(decode(&coder, encode(&coder, x, residual, N), N, y), GW_OK);
        for (size_t i = 0; i < N; i++)
            bad += !isfinite(y[i]) || !isfinite(residual[i]);
        gw_check(!bad, "%s: %zu of fill %d are not finite", coder.spec, bad, fill);
    }
}
END_TEST

START_TEST(zeros_stay_zero)
{
    static const uint8_t nothing[4 * N];
    gw_coder_t coder = begin(_i);
    for (int fill = 0; fill < 2; fill++) {
        test_fill(fill ? FILL_NEGATIVE_ZERO : FILL_ZEROS, 1, x, N);
        memset(residual, 0, sizeof residual);
        ck_assert_int_eq(decode(&coder, encode(&coder, x, residual, N), N, y), GW_OK);
        ck_assert_mem_eq(y, nothing, sizeof nothing);
        for (size_t i = 0; i < N; i++)
            gw_check(residual[i] == 0.0f, "%s: a residual of zeros", coder.spec);
    }
}
END_TEST

/* f16 and bf16 inputs give the payload of their widened values; outputs are narrowed once. */
START_TEST(half_types_are_widened_and_narrowed)
{
    static uint16_t half[N], out_half[N], expected[N];
    static uint8_t from_f32[ROOM];
    static const gw_dtype_t types[] = {GW_F16, GW_BF16};
    gw_coder_t coder = begin(_i);
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    for (int t = 0; t < 2; t++) {
        static float kept[N];
        size_t length = 0;
        test_fill(FILL_NORMAL, (uint64_t)t, y, N);
        (t ? cast->f32_to_bf16 : cast->f32_to_f16)(y, half, N);
        (t ? cast->bf16_to_f32 : cast->f16_to_f32)(half, x, N);
        memset(residual, 0, sizeof residual);
        memset(kept, 0, sizeof kept);
        size_t expected_length = encode(&coder, x, kept, N);
        memcpy(from_f32, payload, expected_length);
        ck_assert_int_eq(decode(&coder, expected_length, N, y), GW_OK);
        (t ? cast->f32_to_bf16 : cast->f32_to_f16)(y, expected, N);
        gw_encode_t in = {.src = half,
                          .src_dtype = types[t],
                          .wire_dtype = types[t],
                          .residual = residual,
                          .count = N,
                          .key = 77};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
        ck_assert_uint_eq(length, expected_length);
        ck_assert_mem_eq(payload, from_f32, length);
        ck_assert_mem_eq(residual, kept, sizeof kept);
        gw_decode_t out = {.payload = payload,
                           .length = length,
                           .wire_dtype = types[t],
                           .count = N,
                           .dst = out_half,
                           .dst_dtype = types[t]};
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        ck_assert_mem_eq(out_half, expected, sizeof expected);
    }
}
END_TEST

START_TEST(refusals_write_nothing)
{
    gw_coder_t coder = begin(_i);
    size_t length = 12345, need = coder.family->bound(&coder, GW_F32, 1000);
    test_fill(FILL_NORMAL, 1, x, N);
    memset(payload, 0xA5, sizeof payload);
    gw_encode_t in = {.src = x, .count = 1000};
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need - 1, &length),
                     GW_ERR_NO_SPACE);
    in.first = coder.family->grain(&coder) + 1;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_ERR_INVALID);
    in.first = 0;
    in.src_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_ERR_UNSUPPORTED);
    ck_assert_uint_eq(length, 12345);
    for (size_t i = 0; i < ROOM; i += 101)
        ck_assert_uint_eq(payload[i], 0xA5);
    gw_decode_t out = {.payload = payload,
                       .length = need,
                       .count = 1000,
                       .mode = GW_DECODE_ADD,
                       .dst = y,
                       .dst_dtype = GW_F16};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_UNSUPPORTED);
    out.dst_dtype = GW_F32;
    out.length = need - 1;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_FRAME_LENGTH);
    out.length = need;
    out.first = 1;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_INVALID);
}
END_TEST

START_TEST(nothing_is_fine)
{
    gw_coder_t coder = begin(_i);
    size_t length = 5;
    gw_encode_t in = {.wire_dtype = GW_F32};
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, 0, &length), GW_OK);
    ck_assert_uint_eq(length, 0);
    ck_assert_int_eq(decode(&coder, 0, 0, NULL), GW_OK);
    ck_assert_int_eq(decode(&coder, 1, 0, NULL), GW_ERR_FRAME_LENGTH);
}
END_TEST

/* Any bytes: an error or a full decode, the same on every tier. Half of them have sound metadata.
 */
START_TEST(random_payloads_do_no_harm)
{
    static float other[1200];
    uint64_t seed = 5 + (uint64_t)_i;
    int decoded = 0;
    gw_coder_t coder = begin(_i);
    const char *tier = gw__kernels_tier();
    for (int i = 0; i < 400; i++) {
        size_t count = 1 + gw_test_random(&seed) % 1200;
        test_fill(FILL_HEAVY, seed, x, count);
        size_t length = encode(&coder, x, NULL, count);
        uint8_t *bytes = malloc(length);
        for (size_t k = 0; k < length; k++)
            bytes[k] = i % 2 ? (uint8_t)gw_test_random(&seed) : payload[k];
        for (int k = 0; k < 3; k++)
            bytes[gw_test_random(&seed) % length] = (uint8_t)gw_test_random(&seed);
        gw_decode_t out = {.payload = bytes, .length = length, .count = count, .dst = y};
        gw__kernels_select("ref", NULL, 0);
        gw_status_t status = coder.family->decode(&coder, &out);
        gw__kernels_select(tier, NULL, 0);
        out.dst = other;
        gw_check(coder.family->decode(&coder, &out) == status, "tiers differ in status");
        gw_check(status || !memcmp(y, other, count * sizeof *y), "tiers differ, round %d", i);
        decoded += !status;
        free(bytes);
    }
    ck_assert_int_gt(decoded, 20);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("blockwise");
    TCase *t = tcase_create("blockwise");
    int all = tier_count() * SPECS;
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_whole, 0, all);
    tcase_add_loop_test(t, sizes_add_up, 0, SPECS);
    tcase_add_loop_test(t, poison_stays_in_its_grain, 0, all);
    tcase_add_loop_test(t, residual_is_what_was_lost, 0, all);
    tcase_add_loop_test(t, finite_stays_finite, 0, all);
    tcase_add_loop_test(t, zeros_stay_zero, 0, all);
    tcase_add_loop_test(t, half_types_are_widened_and_narrowed, 0, all);
    tcase_add_loop_test(t, refusals_write_nothing, 0, SPECS);
    tcase_add_loop_test(t, nothing_is_fine, 0, all);
    tcase_add_loop_test(t, random_payloads_do_no_harm, 0, all);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
