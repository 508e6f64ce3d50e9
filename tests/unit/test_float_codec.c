/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs cast, fp8 and fp4 through their contract: splits, zeros, poison, feedback, 16-bit types,
 * refusals. What their numbers are is in test_float_formats.c. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 3 * 4096 + 1024 + 77, ROOM = N * 4 + 8192 };
static float x[N], y[N], residual[N];
static uint8_t payload[ROOM];

static const char *const specs[] = {"fp16",
                                    "bf16",
                                    "fp8e4m3",
                                    "fp8e5m2",
                                    "mxfp4",
                                    "nvfp4",
                                    "fp8e4m3:block=32",
                                    "fp8e5m2:block=4096",
                                    "mxfp4:group=512",
                                    "nvfp4:group=1536"};
enum { SPECS = sizeof specs / sizeof *specs, BARE = 6 };

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static size_t encode(const gw_coder_t *coder, const float *src, float *kept, size_t count,
                     size_t *poisoned)
{
    size_t length = 0;
    gw_encode_t in = {.src = src, .residual = kept, .count = count, .key = 77};
    ck_assert_int_eq(coder->family->encode(coder, &in, payload, sizeof payload, &length), GW_OK);
    ck_assert_uint_eq(length, coder->family->bound(coder, GW_F32, count));
    if (poisoned)
        *poisoned = in.poisoned;
    return length;
}

static gw_status_t decode(const gw_coder_t *coder, size_t length, size_t count, float *dst)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = dst};
    return coder->family->decode(coder, &out);
}

static void round_trip(const gw_coder_t *coder, float *kept, size_t count)
{
    ck_assert_int_eq(decode(coder, encode(coder, x, kept, count, NULL), count, y), GW_OK);
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

/* Elements that a NaN takes with it. */
static size_t poison_block(const gw_coder_t *coder)
{
    switch (coder->family->id) {
    case 2:
        return 1;
    case 3:
        return (size_t)gw_coder_get(coder, "block", 0);
    default:
        return gw_coder_get(coder, "type", 0) != 0 ? 16 : 32;
    }
}

/* ---- Splits, types ------------------------------------------------------------------------------
 */

START_TEST(pieces_give_the_bytes_of_the_whole)
{
    static uint8_t whole[ROOM];
    static float kept[N];
    use_tier(_i);
    for (size_t s = 0; s < SPECS; s++) {
        gw_coder_t coder = coder_of(specs[s]);
        size_t grain = coder.family->grain(&coder), at = 0;
        test_fill(FILL_HEAVY, s, x, N);
        test_fill(FILL_NORMAL, s, residual, N);
        memcpy(kept, residual, sizeof kept);
        size_t length = encode(&coder, x, kept, N, NULL);
        memcpy(whole, payload, length);
        for (size_t i = 0, n; i < N; i += n) {
            size_t part = 0;
            n = grain * (1 + i / grain % 3);
            n = n < N - i ? n : N - i;
            gw_encode_t in = {
                .src = x + i, .residual = residual + i, .count = n, .first = i, .key = 77};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload + at, ROOM - at, &part),
                             GW_OK);
            ck_assert_uint_eq(part, coder.family->bound(&coder, GW_F32, n));
            at += part;
        }
        ck_assert_uint_eq(at, length);
        ck_assert_mem_eq(payload, whole, length);
        ck_assert_mem_eq(residual, kept, sizeof kept);
    }
}
END_TEST

/* f16 and bf16 inputs give the payload of their widened values; outputs are narrowed once. */
START_TEST(half_types_are_widened_and_narrowed)
{
    static uint16_t half[N], out_half[N], expected[N];
    static uint8_t from_f32[ROOM];
    static float kept[N];
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    use_tier(_i);
    for (size_t s = 0; s < 2 * SPECS; s++) {
        gw_dtype_t type = s % 2 ? GW_BF16 : GW_F16;
        gw_coder_t coder = coder_of(specs[s / 2]);
        size_t length = 0;
        test_fill(FILL_HEAVY, s, y, N);
        (s % 2 ? cast->f32_to_bf16 : cast->f32_to_f16)(y, half, N);
        (s % 2 ? cast->bf16_to_f32 : cast->f16_to_f32)(half, x, N);
        memset(residual, 0, sizeof residual);
        memset(kept, 0, sizeof kept);
        size_t expected_length = encode(&coder, x, kept, N, NULL);
        memcpy(from_f32, payload, expected_length);
        ck_assert_int_eq(decode(&coder, expected_length, N, y), GW_OK);
        (s % 2 ? cast->f32_to_bf16 : cast->f32_to_f16)(y, expected, N);
        gw_encode_t in = {
            .src = half, .src_dtype = type, .wire_dtype = type, .residual = residual, .count = N};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
        ck_assert_uint_eq(length, expected_length);
        ck_assert_mem_eq(payload, from_f32, length);
        ck_assert_mem_eq(residual, kept, sizeof kept);
        gw_decode_t out = {.payload = payload,
                           .length = length,
                           .wire_dtype = type,
                           .count = N,
                           .dst = out_half,
                           .dst_dtype = type};
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        ck_assert_mem_eq(out_half, expected, sizeof expected);
    }
}
END_TEST

/* ---- Special values -----------------------------------------------------------------------------
 */

/* Each 0 keeps its sign as well, whatever else is in the block. */
START_TEST(zeros_stay_zero)
{
    use_tier(_i);
    for (size_t s = 0; s < SPECS; s++)
        for (int fill = 0; fill < 3; fill++) {
            gw_coder_t coder = coder_of(specs[s]);
            int moved = 0;
            test_fill((test_fill_t[]){FILL_NEGATIVE_ZERO, FILL_HEAVY, FILL_MAX}[fill], s, x, N);
            for (int i = 0; fill && i < N; i += 3)
                x[i] = i % 2 ? 0.0f : -0.0f;
            round_trip(&coder, NULL, N);
            for (int i = 0; i < N; i++)
                moved += x[i] == 0.0f && gw__float_bits(y[i]) != gw__float_bits(x[i]);
            ck_assert_msg(moved == 0, "%s moved %d zeros", specs[s], moved);
        }
}
END_TEST

/* One NaN poisons its block and nothing else: every element of it decodes to the same NaN, its
 * residual stays as it was, the count says 1. A cast keeps what it is. */
START_TEST(poison_stays_in_its_block)
{
    static const uint32_t bad[] = {0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 0x7F812345};
    static float before[N];
    use_tier(_i);
    for (size_t s = 0; s < SPECS * 5; s++) {
        gw_coder_t coder = coder_of(specs[s / 5]);
        size_t block = poison_block(&coder), other = 0, kept = 0, changed = 0, poisoned = 0;
        size_t at = 4096 + 517, from = at / block * block;
        test_fill(FILL_NORMAL, s, x, N);
        test_fill(FILL_NORMAL, s + 9, before, N);
        memcpy(residual, before, sizeof before);
        x[at] = gw__float_of(bad[s % 5]);
        ck_assert_int_eq(decode(&coder, encode(&coder, x, residual, N, &poisoned), N, y), GW_OK);
        ck_assert_uint_eq(poisoned, 1);
        for (size_t i = 0; i < N; i++) {
            bool inside = i >= from && i < from + block;
            uint32_t bits = gw__float_bits(y[i]);
            if (inside && block == 1)
                other += s % 5 == 2 || s % 5 == 3 ? bits != bad[s % 5] : y[i] == y[i];
            else
                other += inside ? bits != GW_NAN_BITS : !isfinite(y[i]) || !isfinite(residual[i]);
            kept += inside && residual[i] == before[i];
            changed += !inside && residual[i] != before[i];
        }
        ck_assert_uint_eq(other, 0);
        ck_assert_uint_eq(kept, block);
        ck_assert_uint_gt(changed, N - block - 200);
    }
}
END_TEST

/* A NaN's sign and payload are those that the casts of kernels/ keep, with and without feedback. */
START_TEST(casts_keep_a_nan)
{
    static const uint32_t nan[] = {0x7FC00000, 0xFFC10000, 0x7F812345, 0xFFFFFFFF};
    use_tier(_i);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int ef = 0; ef < 2; ef++) {
            const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
            uint16_t expected[64];
            gw_coder_t coder = coder_of(bf16 ? "bf16" : "fp16");
            for (int i = 0; i < 64; i++) {
                x[i] = gw__float_of(nan[i % 4]);
                residual[i] = -0.25f;
            }
            (bf16 ? cast->f32_to_bf16 : cast->f32_to_f16)(x, expected, 64);
            encode(&coder, x, ef ? residual : NULL, 64, NULL);
            ck_assert_mem_eq(payload, expected, sizeof expected);
            for (int i = 0; i < 64; i++)
                ck_assert(residual[i] == -0.25f);
        }
}
END_TEST

/* Random blocks of {0, -0, denormal, 1, +-FLT_MAX, log-normal}: all is finite, in and out. */
START_TEST(finite_stays_finite)
{
    uint64_t seed = 11;
    size_t bad = 0;
    use_tier(_i);
    for (int round = 0; round < 400; round++) {
        gw_coder_t coder = coder_of(specs[round % SPECS]);
        size_t n = 2048 + (size_t)round % 40;
        int kinds = 1 + (int)(gw_test_random(&seed) % 9);
        for (size_t i = 0; i < n; i++)
            x[i] = i % 64 < (size_t)kinds ? test_mixed(&seed) : x[gw_test_random(&seed) % i];
        memset(residual, 0, sizeof residual);
        round_trip(&coder, round % 2 ? residual : NULL, n);
        for (size_t i = 0; i < n; i++)
            bad += !isfinite(y[i]) || !isfinite(residual[i]);
    }
    ck_assert_uint_eq(bad, 0);
}
END_TEST

/* ---- Feedback -----------------------------------------------------------------------------------
 */

/* residual' = (src + residual) - decoded, to the value. */
START_TEST(residual_is_what_was_lost)
{
    static float before[N];
    use_tier(_i);
    for (size_t s = 0; s < SPECS; s++) {
        gw_coder_t coder = coder_of(specs[s]);
        size_t wrong = 0;
        test_fill(FILL_HEAVY, s, x, N);
        test_fill(FILL_NORMAL, s, before, N);
        memcpy(residual, before, sizeof before);
        round_trip(&coder, residual, N);
        for (int i = 0; i < N; i++) {
            float p = x[i] + before[i];
            wrong += residual[i] != p - y[i];
        }
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

/* The sum over calls of a constant gradient comes right with feedback, and does not without. */
static double drift(const char *spec, bool feedback)
{
    static double sum[1024];
    gw_coder_t coder = coder_of(spec);
    double wrong = 0, right = 0;
    test_fill(FILL_NORMAL, 4, x, 1024);
    memset(residual, 0, sizeof residual);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < 500; step++) {
        round_trip(&coder, feedback ? residual : NULL, 1024);
        for (int i = 0; i < 1024; i++)
            sum[i] += (double)y[i];
    }
    for (int i = 0; i < 1024; i++) {
        wrong += (sum[i] - 500.0 * (double)x[i]) * (sum[i] - 500.0 * (double)x[i]);
        right += 25e4 * (double)x[i] * (double)x[i];
    }
    return sqrt(wrong / right);
}

START_TEST(feedback_is_real)
{
    for (int s = 0; s < BARE; s++) {
        double with = drift(specs[s], true), without = drift(specs[s], false);
        ck_assert_msg(with * 50 < without, "%s: %g with feedback, %g without", specs[s], with,
                      without);
    }
}
END_TEST

/* An increment that is too small for the format arrives over the calls: what a residual is for. */
START_TEST(tiny_increments_arrive)
{
    gw_coder_t coder = coder_of("bf16");
    double sum = 0;
    residual[0] = 0;
    for (int step = 0; step < 1000; step++) {
        x[0] = 1.0f + 0x1p-10f; /* becomes 1 */
        round_trip(&coder, residual, 1);
        sum += (double)y[0];
    }
    ck_assert_double_gt(sum, 1000.9);
    ck_assert_double_lt(sum, 1001.1);
}
END_TEST

/* ---- Refusals -----------------------------------------------------------------------------------
 */

START_TEST(refusals_write_nothing)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = 12345;
    test_fill(FILL_NORMAL, 1, x, N);
    memset(payload, 0xA5, sizeof payload);
    gw_encode_t in = {.src = x, .count = 1000};
    size_t need = coder.family->bound(&coder, GW_F32, 1000);
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need - 1, &length),
                     GW_ERR_NO_SPACE);
    in.first = 17;
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
    for (int i = 0; i < tier_count(); i++)
        for (size_t s = 0; s < SPECS; s++) {
            gw_coder_t coder = coder_of(specs[s]);
            size_t length = 5;
            use_tier(i);
            gw_encode_t in = {.wire_dtype = GW_F32};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload, 0, &length), GW_OK);
            ck_assert_uint_eq(length, 0);
            ck_assert_int_eq(decode(&coder, 0, 0, NULL), GW_OK);
            ck_assert_int_eq(decode(&coder, 1, 0, NULL), GW_ERR_FRAME_LENGTH);
        }
}
END_TEST

/* Bytes at a place of the payload, which says whether all of it can be. */
typedef struct change {
    const char *spec;
    size_t at, bytes;
    uint32_t value;
    bool valid;
} change_t;

/* Payloads of 1025 elements: fp8 block 4 begins at 4 * 130, nvfp4 group 1 at 4 + 64 + 512. */
static const change_t changes[] = {
    {"fp8e4m3", 520, 2, 0x0000, true},    {"fp8e4m3", 520, 2, 0x0080, true},
    {"fp8e4m3", 520, 2, 0x007F, false},   {"fp8e4m3", 520, 2, 0x7B12, true},
    {"fp8e4m3", 520, 2, 0x7B13, false},   {"fp8e4m3", 520, 2, 0x7FC0, true},
    {"fp8e4m3", 520, 2, 0x7FC1, false},   {"fp8e4m3", 520, 2, 0x7F80, false},
    {"fp8e4m3", 520, 2, 0xFFC0, false},   {"fp8e4m3", 520, 2, 0x8000, false},
    {"fp8e4m3", 520, 2, 0xBF80, false},   {"fp8e4m3", 8 * 130, 2, 0xBF80, false},
    {"fp8e5m2", 520, 2, 0x7792, true},    {"fp8e5m2", 520, 2, 0x7793, false},
    {"fp8e5m2", 520, 2, 0x7FC0, true},    {"mxfp4", 31, 1, 0, true},
    {"mxfp4", 31, 1, 252, true},          {"mxfp4", 31, 1, 253, false},
    {"mxfp4", 31, 1, 254, false},         {"mxfp4", 31, 1, 255, true},
    {"mxfp4", 544, 1, 253, false},        {"mxfp4", 545, 1, 0x07, true},
    {"mxfp4", 545, 1, 0x17, false},       {"nvfp4", 4, 1, 0x00, true},
    {"nvfp4", 4, 1, 0x7E, true},          {"nvfp4", 4, 1, 0x7F, true},
    {"nvfp4", 4, 1, 0x80, false},         {"nvfp4", 67, 1, 0xFF, false},
    {"nvfp4", 584, 1, 0x80, false},       {"nvfp4", 585, 1, 0x10, false},
    {"nvfp4", 0, 4, 0x05800000, true},    {"nvfp4", 0, 4, 0x057FFFFF, false},
    {"nvfp4", 0, 4, 0x79C30000, true},    {"nvfp4", 0, 4, 0x79C30001, false},
    {"nvfp4", 0, 4, 0x7F800000, false},   {"nvfp4", 580, 4, 0x7FC00000, false},
    {"nvfp4", 580, 4, 0xBF800000, false}, {"nvfp4", 580, 4, 0, false},
};

/* A scale that no encoder writes is refused wherever it stands, and dst is untouched; what is
 * accepted gives finite numbers unless it is the marker. */
START_TEST(impossible_scales_are_refused)
{
    const change_t *c = &changes[_i];
    gw_coder_t coder = coder_of(c->spec);
    size_t untouched = 0, special = 0;
    test_fill(FILL_MAX, 1, x, 1025);
    size_t length = encode(&coder, x, NULL, 1025, NULL);
    memcpy(payload + c->at, &c->value, c->bytes);
    for (int i = 0; i < 1025; i++)
        y[i] = -5.0f;
    ck_assert_int_eq(decode(&coder, length, 1025, y), c->valid ? GW_OK : GW_ERR_FRAME_PAYLOAD);
    for (int i = 0; i < 1025; i++) {
        untouched += y[i] == -5.0f;
        special += !isfinite(y[i]);
    }
    ck_assert_uint_eq(untouched, c->valid ? 0 : 1025);
    bool marker = c->value == 0x7FC0 || c->value == 255 || c->value == 0x7F;
    ck_assert(!c->valid || (special > 0) == marker);
}
END_TEST

/* Any bytes: an error or a full decode, the same in every tier. */
START_TEST(random_payloads_do_no_harm)
{
    uint64_t seed = 5;
    int decoded = 0;
    static float other[3000];
    for (int i = 0; i < 4000; i++) {
        gw_coder_t coder = coder_of(specs[i % SPECS]);
        size_t count = gw_test_random(&seed) % 3000;
        size_t length = coder.family->bound(&coder, GW_F32, count);
        uint8_t *bytes = malloc(length + 1);
        for (size_t k = 0; k < length; k++)
            bytes[k] = (uint8_t)(gw_test_random(&seed) & (i / 16 % 2 ? 0x7A : 0xFF));
        gw_decode_t out = {.payload = bytes, .length = length, .count = count, .dst = y};
        use_tier(0);
        gw_status_t status = coder.family->decode(&coder, &out);
        use_tier(tier_count() - 1);
        out.dst = other;
        ck_assert_int_eq(coder.family->decode(&coder, &out), status);
        if (!status && memcmp(y, other, count * sizeof *y))
            ck_abort_msg("%s: tiers differ on random bytes, round %d", coder.spec, i);
        decoded += !status;
        free(bytes);
    }
    ck_assert_int_gt(decoded, 400);
    ck_assert_int_lt(decoded, 3600);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("float codec");
    TCase *t = tcase_create("codec");
    int tiers = tier_count();
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_whole, 0, tiers);
    tcase_add_loop_test(t, half_types_are_widened_and_narrowed, 0, tiers);
    tcase_add_loop_test(t, zeros_stay_zero, 0, tiers);
    tcase_add_loop_test(t, poison_stays_in_its_block, 0, tiers);
    tcase_add_loop_test(t, casts_keep_a_nan, 0, tiers);
    tcase_add_loop_test(t, finite_stays_finite, 0, tiers);
    tcase_add_loop_test(t, residual_is_what_was_lost, 0, tiers);
    tcase_add_test(t, feedback_is_real);
    tcase_add_test(t, tiny_increments_arrive);
    tcase_add_loop_test(t, refusals_write_nothing, 0, SPECS);
    tcase_add_test(t, nothing_is_fine);
    tcase_add_loop_test(t, impossible_scales_are_refused, 0,
                        (int)(sizeof changes / sizeof *changes));
    tcase_add_test(t, random_payloads_do_no_harm);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
