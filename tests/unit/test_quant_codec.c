/* SPDX-License-Identifier: Apache-2.0 */
/* The quant codec through its contract: splits, zeros, poison, feedback, 16-bit types, refusals. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 4096 + 512 + 77, ROOM = N * 4 + 8192 };
static float x[N], y[N], residual[N];
static uint8_t payload[ROOM];

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
    ck_assert_int_eq(coder->family->encode(coder, &in, payload, sizeof payload, &length), GW_OK);
    ck_assert_uint_eq(length, coder->family->bound(coder, GW_F32, count));
    return length;
}

static gw_status_t decode(const gw_coder_t *coder, size_t length, size_t count, float *dst)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = dst};
    return coder->family->decode(coder, &out);
}

static void use_tier(int i)
{
    ck_assert_int_eq(gw__kernels_select(gw__kernels_available((size_t)i), NULL, 0), GW_OK);
}

static int tier_count(void)
{
    int n = 0;
    while (gw__kernels_available((size_t)n))
        n++;
    return n;
}

START_TEST(pieces_give_the_bytes_of_the_whole)
{
    static const char *const specs[] = {"q4", "q3:round=stochastic,bucket=96", "q8:zero=off",
                                        "q1:bucket=64"};
    static uint8_t whole[ROOM];
    static float kept[N];
    use_tier(_i);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_coder_t coder = coder_of(specs[s]);
        size_t grain = coder.family->grain(&coder), at = 0;
        test_fill(FILL_HEAVY, s, x, N);
        test_fill(FILL_NORMAL, s, residual, N);
        memcpy(kept, residual, sizeof kept);
        size_t length = encode(&coder, x, kept, N);
        memcpy(whole, payload, length);
        for (size_t i = 0, n; i < N; i += n) {
            size_t part = 0;
            n = grain * (1 + i / grain % 3);
            n = n < N - i ? n : N - i;
            gw_encode_t in = {
                .src = x + i, .residual = residual + i, .count = n, .first = i, .key = 77};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload + at, ROOM - at, &part),
                             GW_OK);
            at += part;
        }
        ck_assert_uint_eq(at, length);
        ck_assert_mem_eq(payload, whole, length);
        ck_assert_mem_eq(residual, kept, sizeof kept);
    }
}
END_TEST

START_TEST(zeros_stay_zero)
{
    use_tier(_i);
    for (unsigned bits = 1; bits <= 8; bits++)
        for (int stochastic = 0; stochastic < 2; stochastic++) {
            char spec[64];
            int moved = 0, zeros = 0;
            snprintf(spec, sizeof spec, "q%u:bucket=64,force=1%s", bits,
                     stochastic ? ",round=stochastic" : "");
            gw_coder_t coder = coder_of(spec);
            for (int i = 0; i < N; i++) {
                uint64_t seed = (uint64_t)i + 1000 * bits;
                x[i] = i % 3 ? test_lognormal(&seed) * (i % 64 < 32 ? 1.0f : 1e-38f) : 0.0f;
            }
            ck_assert_int_eq(decode(&coder, encode(&coder, x, NULL, N), N, y), GW_OK);
            for (int i = 0; i < N; i++) {
                zeros += x[i] == 0.0f;
                moved += x[i] == 0.0f && y[i] != 0.0f;
            }
            ck_assert_int_gt(zeros, N / 4);
            ck_assert_msg(moved == 0, "%s moved %d of %d zeros", spec, moved, zeros);
        }
}
END_TEST

START_TEST(without_the_option_zeros_move)
{
    gw_coder_t coder = coder_of("q4:zero=off");
    int moved = 0;
    test_fill(FILL_SPARSE, 1, x, N);
    ck_assert_int_eq(decode(&coder, encode(&coder, x, NULL, N), N, y), GW_OK);
    for (int i = 0; i < N; i++)
        moved += x[i] == 0.0f && y[i] != 0.0f;
    ck_assert_int_gt(moved, 0);
}
END_TEST

START_TEST(flat_buckets_are_exact)
{
    static const float values[] = {0.0f, -0.37f, 1e-42f, FLT_MAX, -FLT_MAX, 0x1p126f};
    use_tier(_i);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (int zero = 0; zero < 2; zero++) {
            gw_coder_t coder = coder_of(zero ? "q4" : "q4:zero=off");
            for (int i = 0; i < 600; i++)
                x[i] = values[v];
            memset(residual, 0, sizeof residual);
            ck_assert_int_eq(decode(&coder, encode(&coder, x, residual, 600), 600, y), GW_OK);
            ck_assert_mem_eq(y, x, 600 * sizeof *x);
            for (int i = 0; i < 600; i++)
                ck_assert_float_eq(residual[i], 0.0f);
        }
}
END_TEST

/* One NaN poisons its bucket and nothing else: every element of it decodes to the same NaN, its
 * residual stays as it was, the count says 1. */
START_TEST(poison_stays_in_its_bucket)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static float before[N];
    use_tier(_i);
    for (size_t b = 0; b < 4; b++) {
        gw_coder_t coder = coder_of("q4:bucket=64");
        size_t length = 0, other = 0, kept = 0, changed = 0;
        uint32_t bits;
        test_fill(FILL_NORMAL, b, x, N);
        test_fill(FILL_NORMAL, b + 9, before, N);
        memcpy(residual, before, sizeof before);
        x[64 * 5 + 17] = bad[b];
        gw_encode_t in = {.src = x, .residual = residual, .count = N};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
        ck_assert_uint_eq(in.poisoned, 1);
        ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
        for (int i = 0; i < N; i++) {
            bool inside = i / 64 == 5;
            memcpy(&bits, &y[i], sizeof bits);
            other += inside ? bits != GW_NAN_BITS : !isfinite(y[i]) || !isfinite(residual[i]);
            kept += inside && residual[i] == before[i];
            changed += !inside && residual[i] != before[i];
        }
        ck_assert_uint_eq(other, 0);
        ck_assert_uint_eq(kept, 64);
        ck_assert_uint_gt(changed, N - 64 - 50);
    }
}
END_TEST

/* residual' = (src + residual) - decoded, to the bit. */
START_TEST(residual_is_what_was_lost)
{
    static float before[N];
    use_tier(_i);
    for (unsigned bits = 1; bits <= 8; bits++) {
        char spec[8];
        size_t wrong = 0;
        snprintf(spec, sizeof spec, "q%u", bits);
        gw_coder_t coder = coder_of(spec);
        test_fill(FILL_HEAVY, bits, x, N);
        test_fill(FILL_NORMAL, bits, before, N);
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

/* The sum over 2000 calls of a constant gradient comes right with feedback, and does not without.
 */
static double drift(const char *spec, bool feedback)
{
    static double sum[1024];
    gw_coder_t coder = coder_of(spec);
    double wrong = 0, right = 0;
    test_fill(FILL_NORMAL, 4, x, 1024);
    memset(residual, 0, sizeof residual);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < 2000; step++) {
        ck_assert_int_eq(
            decode(&coder, encode(&coder, x, feedback ? residual : NULL, 1024), 1024, y), GW_OK);
        for (int i = 0; i < 1024; i++)
            sum[i] += (double)y[i];
    }
    for (int i = 0; i < 1024; i++) {
        wrong += (sum[i] - 2000.0 * (double)x[i]) * (sum[i] - 2000.0 * (double)x[i]);
        right += 4e6 * (double)x[i] * (double)x[i];
    }
    return sqrt(wrong / right);
}

START_TEST(feedback_is_real)
{
    ck_assert_double_lt(drift("q4", true), 0.001);
    ck_assert_double_lt(drift("q2", true), 0.01);
    ck_assert_double_lt(drift("q1:bucket=64", true), 0.04);
    ck_assert_double_gt(drift("q2", false), 0.1);
    ck_assert_double_gt(drift("q4", false), 0.05);
}
END_TEST

/* f16 and bf16 inputs give the payload of their widened values; outputs are narrowed once. */
START_TEST(half_types_are_widened_and_narrowed)
{
    static uint16_t half[N], out_half[N], expected[N];
    static uint8_t from_f32[ROOM];
    static const gw_dtype_t types[] = {GW_F16, GW_BF16};
    use_tier(_i);
    for (int t = 0; t < 2; t++) {
        const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
        gw_coder_t coder = coder_of("q5:bucket=96");
        static float kept[N];
        size_t length = 0;
        test_fill(FILL_HEAVY, (uint64_t)t, y, N);
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
    gw_coder_t coder = coder_of("q4");
    size_t length = 12345;
    test_fill(FILL_NORMAL, 1, x, N);
    memset(payload, 0xA5, sizeof payload);
    gw_encode_t in = {.src = x, .count = 1000};
    size_t need = coder.family->bound(&coder, GW_F32, 1000);
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need - 1, &length),
                     GW_ERR_NO_SPACE);
    in.first = 100;
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
}
END_TEST

START_TEST(nothing_is_fine)
{
    gw_coder_t coder = coder_of("q4");
    size_t length = 5;
    for (int i = 0; i < tier_count(); i++) {
        use_tier(i);
        gw_encode_t in = {.wire_dtype = GW_F32};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, 0, &length), GW_OK);
        ck_assert_uint_eq(length, 0);
        ck_assert_int_eq(decode(&coder, 0, 0, NULL), GW_OK);
        ck_assert_int_eq(decode(&coder, 1, 0, NULL), GW_ERR_FRAME_LENGTH);
    }
}
END_TEST

/* Metadata that no encoder writes is refused wherever it stands, and dst is untouched. */
START_TEST(impossible_metadata_is_refused)
{
    static const struct {
        uint32_t min, unit;
        bool valid;
    } cases[] = {
        {0x3F800000, 0x3F800000, true},  {GW_NAN_BITS, 0, true},
        {0xFF7FFFFF, 0x7F7FFFFF, true},  {0x80000000, 0x00000001, true},
        {0x3F800000, 0xBF800000, false}, {0x3F800000, 0x80000000, false},
        {0x3F800000, 0x7F800000, false}, {0x7F800000, 0x3F800000, false},
        {0xFF800000, 0, false},          {GW_NAN_BITS, 0x3F800000, false},
        {0x7FC00001, 0, false},          {0xFFC00000, 0, false},
        {0x3F800000, 0x7FC00000, false},
    };
    gw_coder_t coder = coder_of("q3:bucket=32");
    test_fill(FILL_NORMAL, 1, x, 101);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t bucket = 0; bucket < 4; bucket++) {
            size_t length = encode(&coder, x, NULL, 101), at = bucket * gw__quant_bytes(3, 32);
            gw__store32(payload + at, cases[c].min);
            gw__store32(payload + at + 4, cases[c].unit);
            for (int i = 0; i < 101; i++)
                y[i] = -5.0f;
            gw_status_t status = decode(&coder, length, 101, y);
            ck_assert_int_eq(status, cases[c].valid ? GW_OK : GW_ERR_FRAME_PAYLOAD);
            int untouched = 0;
            for (int i = 0; i < 101; i++)
                untouched += y[i] == -5.0f;
            ck_assert_int_eq(untouched, cases[c].valid ? 0 : 101);
        }
    size_t length = encode(&coder, x, NULL, 101);
    payload[length - 1] |= 0x80; /* 5 * 3 = 15 bits are used */
    ck_assert_int_eq(decode(&coder, length, 101, y), GW_ERR_FRAME_PAYLOAD);
}
END_TEST

/* Any bytes: an error or a full decode, the same in every tier. */
START_TEST(random_payloads_do_no_harm)
{
    uint64_t seed = 5;
    int decoded = 0;
    static float other[600];
    for (int i = 0; i < 4000; i++) {
        char spec[32];
        snprintf(spec, sizeof spec, "q%d:bucket=%d", 1 + i % 8, 32 << i / 8 % 3);
        gw_coder_t coder = coder_of(spec);
        size_t count = gw_test_random(&seed) % 600;
        size_t length = coder.family->bound(&coder, GW_F32, count);
        uint8_t *bytes = malloc(length + 1);
        for (size_t k = 0; k < length; k++)
            bytes[k] = (uint8_t)(gw_test_random(&seed) & (i % 2 ? 0x7E : 0xFF));
        gw_decode_t out = {.payload = bytes, .length = length, .count = count, .dst = y};
        use_tier(0);
        gw_status_t status = coder.family->decode(&coder, &out);
        use_tier(tier_count() - 1);
        out.dst = other;
        ck_assert_int_eq(coder.family->decode(&coder, &out), status);
        if (!status && memcmp(y, other, count * sizeof *y))
            ck_abort_msg("tiers differ on random bytes, round %d", i);
        decoded += !status;
        free(bytes);
    }
    ck_assert_int_gt(decoded, 100);
    ck_assert_int_lt(decoded, 3900);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("quant codec");
    TCase *t = tcase_create("codec");
    int tiers = tier_count();
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_whole, 0, tiers);
    tcase_add_loop_test(t, zeros_stay_zero, 0, tiers);
    tcase_add_test(t, without_the_option_zeros_move);
    tcase_add_loop_test(t, flat_buckets_are_exact, 0, tiers);
    tcase_add_loop_test(t, poison_stays_in_its_bucket, 0, tiers);
    tcase_add_loop_test(t, residual_is_what_was_lost, 0, tiers);
    tcase_add_test(t, feedback_is_real);
    tcase_add_loop_test(t, half_types_are_widened_and_narrowed, 0, tiers);
    tcase_add_test(t, refusals_write_nothing);
    tcase_add_test(t, nothing_is_fine);
    tcase_add_test(t, impossible_metadata_is_refused);
    tcase_add_test(t, random_payloads_do_no_harm);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
