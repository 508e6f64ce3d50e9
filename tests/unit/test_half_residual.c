/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals in 16 bits: the payloads of a residual in binary32 that holds the same, rounded by
 * chance without a bias, however a call is cut. */
#include <math.h>
#include <string.h>

#include "gw_test.h"

#include "frame.h"
#include "gw_bound.h"
#include "half_residual.h"
#include "kernels.h"
#include "reduce.h"

enum { N = 20000, ROOM = 5 * N, PEERS = 3 };

static const char *const specs[] = {"q4:ef=on",   "q4r:ef=on",     "q8:ef=on",
                                    "sign:ef=on", "fp8e4m3:ef=on", "nvfp4:ef=on",
                                    "bf16:ef=on", "natural:ef=on", "randomk:ef=on"};
enum { SPECS = sizeof specs / sizeof *specs };

static float x[N], wide[N], want_wide[N];
static uint16_t half[N], want_half[N], cut_half[N];
static uint8_t frame[ROOM], want[ROOM];

/* A coder, without ef=on where the family has no such parameter. */
static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char name[64], why[256];
    snprintf(name, sizeof name, "%s", spec);
    if (gw_coder_parse(name, &coder, why, sizeof why) != GW_OK) {
        *strchr(name, ':') = '\0';
        gw_check(gw_coder_parse(name, &coder, why, sizeof why) == GW_OK, "%s", why);
    }
    return coder;
}

static void fill(uint64_t seed)
{
    uint64_t state = seed;
    for (int i = 0; i < N; i++) {
        float kept = 0.1f * gw_test_normal(&state);
        x[i] = gw_test_normal(&state);
        gw__kernels()->cast.f32_to_bf16(&kept, &half[i], 1);
    }
    x[N / 3] = NAN; /* its bucket keeps its residual */
    gw__kernels()->cast.bf16_to_f32(half, wide, N);
}

static gw_encode_t input(size_t first, size_t count)
{
    return (gw_encode_t){.src = x + first,
                         .src_dtype = GW_F32,
                         .wire_dtype = GW_F32,
                         .count = count,
                         .first = first,
                         .key = 77,
                         .shared_key = 5};
}

/* What the residual in binary32 becomes in 16 bits. */
static void round_residual(const float *from, uint16_t *to)
{
    gw__kernels()->cast.bf16_stochastic(from, to, N, 0, gw__half_residual_key(77));
}

START_TEST(it_encodes_what_binary32_would)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length, want_length;
    if (!gw__half_residual_serves(&coder)) {
        ck_assert_str_eq(coder.family->family, "randomk"); /* its blocks are too large */
        return;
    }
    fill(3);
    memcpy(want_half, half, sizeof half);
    memcpy(want_wide, wide, sizeof wide);
    gw_encode_t in = input(0, N), same = input(0, N);
    same.residual = want_wide;
    ck_assert_int_eq(gw__frame_encode(&coder, &same, true, want, ROOM, &want_length), GW_OK);
    round_residual(want_wide, want_half);
    ck_assert_int_eq(gw__frame_encode_half(&coder, &in, half, true, frame, ROOM, &length), GW_OK);
    ck_assert_uint_eq(in.poisoned, same.poisoned);
    ck_assert_uint_eq(length, want_length);
    ck_assert_mem_eq(frame, want, length);
    ck_assert_mem_eq(half, want_half, sizeof half);
    ck_assert_int_eq(gw__frame_encode_half(&coder, &in, half, true, frame, length - 1, &length),
                     GW_ERR_NO_SPACE);
}
END_TEST

START_TEST(the_cut_does_not_matter)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length, grain = coder.family->grain(&coder), at = N / 2 / grain * grain;
    if (!gw__half_residual_serves(&coder))
        return;
    fill(4);
    memcpy(cut_half, half, sizeof half);
    gw_encode_t whole = input(0, N), head = input(0, at), tail = input(at, N - at);
    ck_assert_int_eq(gw__frame_encode_half(&coder, &whole, half, false, want, ROOM, &length),
                     GW_OK);
    ck_assert_int_eq(gw__frame_encode_half(&coder, &head, cut_half, false, frame, ROOM, &length),
                     GW_OK);
    ck_assert_mem_eq(frame + GW_FRAME_HEADER, want + GW_FRAME_HEADER, length - GW_FRAME_HEADER);
    ck_assert_int_eq(
        gw__frame_encode_half(&coder, &tail, cut_half + at, false, frame, ROOM, &length), GW_OK);
    ck_assert_mem_eq(cut_half, half, sizeof half);
}
END_TEST

START_TEST(it_reduces_what_binary32_would)
{
    static uint8_t peer[PEERS][ROOM];
    static float sum[2 * GW_BLOCK];
    gw_coder_t coder = coder_of(specs[_i]);
    const uint8_t *payload[PEERS];
    size_t lengths[PEERS], all[PEERS], length, want_length;
    if (!gw__half_residual_serves(&coder))
        return;
    for (uint64_t k = 0; k < PEERS; k++) {
        fill(10 + k);
        gw_encode_t in = input(0, N);
        payload[k] = peer[k];
        ck_assert_int_eq(gw__frame_encode(&coder, &in, k == 1, peer[k], ROOM, &all[k]), GW_OK);
    }
    fill(20);
    memcpy(want_wide, wide, sizeof wide);
    gw_reduce_t in = {.own = x,
                      .own_dtype = GW_F32,
                      .own_at = 1,
                      .payload = payload,
                      .length = all,
                      .payloads = PEERS,
                      .scale = 0.25f,
                      .wire_dtype = GW_F32,
                      .count = N,
                      .key = 77,
                      .shared_key = 5};
    gw_reduce_t same = in;
    same.residual = want_wide;
    ck_assert_int_eq(gw__frame_reduce(&coder, &same, false, sum, want, ROOM, &want_length), GW_OK);
    round_residual(want_wide, want_half);
    memcpy(lengths, all, sizeof all);
    in.length = lengths;
    ck_assert_int_eq(
        gw__frame_reduce_half(&coder, &in, lengths, half, false, sum, frame, ROOM, &length), GW_OK);
    ck_assert_uint_eq(length, want_length);
    ck_assert_uint_eq(in.poisoned, same.poisoned);
    ck_assert_mem_eq(frame, want, length);
    ck_assert_mem_eq(half, want_half, sizeof half);
    /* A frame that is damaged is named, and nothing is written. */
    memcpy(lengths, all, sizeof all);
    peer[2][0] ^= 1;
    ck_assert_int_eq(
        gw__frame_reduce_half(&coder, &in, lengths, half, false, sum, frame, ROOM, &length),
        GW_ERR_FRAME_MAGIC);
    ck_assert_uint_eq(in.refused, 2);
    ck_assert_mem_eq(half, want_half, sizeof half);
}
END_TEST

/* Every number goes to one of its two neighbours, and the mean over many keys is the number. */
START_TEST(rounding_has_no_bias)
{
    enum { NUMBERS = 32, KEYS = 4096 };
    uint64_t state = 9;
    for (int n = 0; n < NUMBERS; n++) {
        float value[4], back[4];
        uint16_t rounded[4];
        double mean = 0;
        for (int j = 0; j < 4; j++)
            value[j] = ldexpf(gw_test_normal(&state), n - 20);
        for (uint64_t key = 0; key < KEYS; key++) {
            gw__kernels()->cast.bf16_stochastic(value, rounded, 4, 8, key);
            gw__kernels()->cast.bf16_to_f32(rounded, back, 4);
            for (int j = 0; j < 4; j++) {
                ck_assert(fabsf(back[j] - value[j]) <= fabsf(value[j]) / 128);
                mean += ((double)back[j] - (double)value[j]) / (double)fabsf(value[j]);
            }
        }
        /* Five deviations: of one number at most 1/256 of it. */
        ck_assert_double_lt(fabs(mean / (4 * KEYS)), 5.0 / 256 / sqrt(4.0 * KEYS));
    }
}
END_TEST

START_TEST(what_is_exact_stays)
{
    static const float exact[] = {0.0f,      -0.0f,    1.0f,      -2.5f,
                                  0x1p-126f, INFINITY, -INFINITY, 3.3895314e38f};
    enum { COUNT = sizeof exact / sizeof *exact };
    uint16_t rounded[COUNT];
    float back[COUNT], large = 3.4028234e38f; /* finite, though its upper neighbour is not */
    for (uint64_t key = 0; key < 200; key++) {
        gw__kernels()->cast.bf16_stochastic(exact, rounded, COUNT, key, key);
        gw__kernels()->cast.bf16_to_f32(rounded, back, COUNT);
        ck_assert_mem_eq(back, exact, sizeof exact);
        gw__kernels()->cast.bf16_stochastic(&large, rounded, 1, key, key);
        gw__kernels()->cast.bf16_to_f32(rounded, back, 1);
        ck_assert(isfinite(back[0]));
    }
}
END_TEST

START_TEST(others_are_not_served)
{
    static const char *const others[] = {"raw", "lossless", "topk", "lowrank"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        gw_coder_t coder = gw_test_coder(others[i]);
        gw_check(!gw__half_residual_serves(&coder), "%s", others[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("half_residual");
    TCase *t = tcase_create("half_residual");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, it_encodes_what_binary32_would, 0, SPECS);
    tcase_add_loop_test(t, the_cut_does_not_matter, 0, SPECS);
    tcase_add_loop_test(t, it_reduces_what_binary32_would, 0, SPECS);
    tcase_add_test(t, rounding_has_no_bias);
    tcase_add_test(t, what_is_exact_stays);
    tcase_add_test(t, others_are_not_served);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
