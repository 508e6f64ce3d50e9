/* SPDX-License-Identifier: Apache-2.0 */
/* The sparse codecs through their contract: splits, tiers, bounds, poison, feedback, 16-bit types,
 * refusals. */
#include "gw_test.h"

#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "quant_fill.h"

static const char *const specs[] = {
    "topk:block=1024",
    "topk:block=64,ratio=0.25",
    "topk+fp16:block=256,ratio=0.1",
    "topk+q8:block=4096,ratio=0.2",
    "topk+q4:block=8192,ratio=0.25",
    "topk:block=4096,ratio=0.05,select=sampled",
    "topk",
    "block",
    "block:size=16,domain=1024",
    "block:size=64,domain=4096,ef=on",
    "topblock:size=64,domain=1024,ratio=0.2",
    "topblock:size=16,domain=8192",
    "randomk:block=256,ratio=0.1",
    "randomk:block=1024,ratio=0.5,values=wire,seed=3",
    "randomk:block=512,ratio=0.2,scale=on,ef=off,force=1",
};
enum { SPECS = sizeof specs / sizeof *specs, N = 3 * 8192 + 1000 + 77, ROOM = 8 * N };
static float x[N], y[N], z[N], residual[N], before[N], bound[N];
static uint8_t payload[ROOM], other[ROOM];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static int tier_count(void)
{
    int n = 0;
    while (gw__kernels_available((size_t)n))
        n++;
    return n;
}

static void use_tier(int i)
{
    ck_assert_int_eq(gw__kernels_select(gw__kernels_available((size_t)i), NULL, 0), GW_OK);
}

static bool is_lossy(const gw_coder_t *coder)
{
    return coder->family->flags & GW_CODEC_LOSSY;
}

static size_t encode_keyed(const gw_coder_t *coder, float *kept, size_t count, size_t *poisoned)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .residual = kept, .count = count, .key = 77};
    size_t most = coder->family->bound(coder, GW_F32, count);
    memset(payload, 0xA5, sizeof payload);
    gw_check(coder->family->encode(coder, &in, payload, most, &length) == GW_OK, "%s: no encoding",
             coder->spec);
    gw_check(length <= most && payload[most] == 0xA5, "%s: %zu bytes, at most %zu", coder->spec,
             length, most);
    gw_check(length == most || !(coder->family->flags & GW_CODEC_FIXED), "%s: %zu bytes, not %zu",
             coder->spec, length, most);
    if (poisoned)
        *poisoned = in.poisoned;
    return length;
}

static size_t encode(const gw_coder_t *coder, float *kept, size_t count)
{
    return encode_keyed(coder, kept, count, NULL);
}

static gw_status_t decode(const gw_coder_t *coder, size_t length, size_t count, float *dst)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = dst};
    return coder->family->decode(coder, &out);
}

static void fill(test_fill_t what, uint64_t seed, size_t count)
{
    test_fill(what, seed, x, count);
    test_fill(FILL_NORMAL, seed + 1, residual, count);
    memcpy(before, residual, sizeof before);
}

static const size_t counts[] = {0, 1, 2, 3, 7, 31, 32, 33, 64, 511, 513, 1023, 1025, 8191, N};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- Bytes --------------------------------------------------------------------------------------
 */

START_TEST(pieces_give_the_bytes_of_the_whole)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t grain = coder.family->grain(&coder), at = 0, bounds = 0;
    fill(FILL_HEAVY, 5, N);
    size_t length = encode(&coder, residual, N);
    memcpy(other, payload, length);
    memcpy(y, residual, sizeof y);
    memcpy(residual, before, sizeof residual);
    for (size_t i = 0, n; i < N; i += n) {
        size_t part = 0;
        n = grain * (1 + i / grain % 3);
        n = n < N - i ? n : N - i;
        gw_encode_t in = {
            .src = x + i, .residual = residual + i, .count = n, .first = i, .key = 77};
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload + at, ROOM - at, &part), GW_OK);
        bounds += coder.family->bound(&coder, GW_F32, n);
        at += part;
    }
    ck_assert_uint_eq(bounds, coder.family->bound(&coder, GW_F32, N));
    ck_assert_uint_eq(at, length);
    ck_assert_mem_eq(payload, other, length);
    ck_assert_mem_eq(residual, y, sizeof residual);
}
END_TEST

START_TEST(tiers_give_the_same_bytes)
{
    gw_coder_t coder = coder_of(specs[_i]);
    for (int f = 0; f < FILL_COUNT; f++)
        for (size_t c = 0; c < COUNTS; c++) {
            use_tier(0);
            fill((test_fill_t)f, c, counts[c]);
            size_t length = encode(&coder, residual, counts[c]);
            memcpy(other, payload, length);
            memcpy(z, residual, counts[c] * sizeof *z);
            for (int t = 1; t < tier_count(); t++) {
                use_tier(t);
                memcpy(residual, before, sizeof residual);
                gw_check(encode(&coder, residual, counts[c]) == length &&
                             !memcmp(payload, other, length) &&
                             !memcmp(residual, z, counts[c] * sizeof *z),
                         "%s: %s differs, fill %d, count %zu", specs[_i],
                         gw__kernels_available((size_t)t), f, counts[c]);
            }
        }
}
END_TEST

/* ---- Values -------------------------------------------------------------------------------------
 */

START_TEST(finite_stays_finite_and_within_the_bound)
{
    gw_coder_t coder = coder_of(specs[_i]);
    for (int f = 0; f < FILL_FINITE; f++)
        for (size_t c = 0; c < COUNTS; c++) {
            fill((test_fill_t)f, c + 9, counts[c]);
            size_t length = encode(&coder, NULL, counts[c]);
            gw_check(decode(&coder, length, counts[c], y) == GW_OK, "%s: no decoding", specs[_i]);
            if (is_lossy(&coder))
                coder.family->error_bound(&coder, x, counts[c], bound);
            for (size_t i = 0; i < counts[c]; i++) {
                double error = fabs((double)y[i] - (double)x[i]);
                gw_check(error <= (is_lossy(&coder) ? (double)bound[i] : 0.0),
                         "%s fill %d: x[%zu] = %a became %a, bound %a", specs[_i], f, i,
                         (double)x[i], (double)y[i], (double)bound[i]);
                gw_check(x[i] != 0.0f || y[i] == 0.0f, "%s: a zero moved", specs[_i]);
            }
        }
}
END_TEST

/* residual' = (src + residual) - decoded, to the bit; finite whatever came in. */
START_TEST(residual_is_what_was_lost)
{
    gw_coder_t coder = coder_of(specs[_i]);
    for (int f = 0; f < FILL_COUNT; f++) {
        fill((test_fill_t)f, 21, N);
        size_t length = encode(&coder, residual, N);
        ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
        for (size_t i = 0; i < N; i++) {
            float p = x[i] + before[i];
            gw_check(isfinite(residual[i]), "%s fill %d: residual[%zu]", specs[_i], f, i);
            gw_check(isfinite(x[i]) || (!isfinite(y[i]) && residual[i] == before[i]),
                     "%s fill %d: %g became %g, residual %g", specs[_i], f, (double)x[i],
                     (double)y[i], (double)residual[i]);
            gw_check(!isfinite(p) || !isfinite(y[i]) || residual[i] == p - y[i],
                     "%s fill %d: residual[%zu] is %a, lost %a", specs[_i], f, i,
                     (double)residual[i], (double)(p - y[i]));
        }
    }
}
END_TEST

/* One, some, and only such: they arrive, each at its own index; blocks that hold some are counted.
 */
START_TEST(what_is_not_finite_arrives)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    gw_coder_t coder = coder_of(specs[_i]);
    for (size_t every = 1; every < 8192; every = 3 * every + 4) {
        size_t poisoned = 0, lost = 0, expected = 0;
        fill(FILL_NORMAL, every, N);
        for (size_t i = every / 2; i < N; i += every)
            x[i] = bad[i % 4];
        size_t length = encode_keyed(&coder, residual, N, &poisoned);
        ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
        for (size_t i = 0; i < N; i++) {
            expected += !isfinite(x[i]);
            lost += !isfinite(x[i]) && isfinite(y[i]);
        }
        gw_check(lost == 0, "%s, every %zu: %zu of %zu lost", specs[_i], every, lost, expected);
        gw_check(!is_lossy(&coder) || (poisoned > 0 && poisoned <= expected),
                 "%s, every %zu: %zu blocks", specs[_i], every, poisoned);
    }
}
END_TEST

START_TEST(adding_is_storing_and_summing)
{
    gw_coder_t coder = coder_of(specs[_i]);
    fill(FILL_HEAVY, 3, N);
    size_t length = encode(&coder, NULL, N);
    ck_assert_int_eq(decode(&coder, length, N, y), GW_OK);
    gw_decode_t out = {
        .payload = payload, .length = length, .count = N, .mode = GW_DECODE_ADD, .dst = residual};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    for (size_t i = 0; i < N; i++)
        gw_check(residual[i] == before[i] + y[i], "%s: element %zu", specs[_i], i);
}
END_TEST

static double drift(const gw_coder_t *coder, bool feedback, int steps)
{
    enum { M = 2048 };
    static double sum[M];
    double wrong = 0, right = 0;
    test_fill(FILL_NORMAL, 4, x, M);
    memset(residual, 0, sizeof residual);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < steps; step++) {
        gw_encode_t in = {.src = x,
                          .residual = feedback ? residual : NULL,
                          .count = M,
                          .key = (uint64_t)step,
                          .shared_key = (uint64_t)step};
        size_t length = 0;
        gw_check(coder->family->encode(coder, &in, payload, ROOM, &length) == GW_OK &&
                     decode(coder, length, M, y) == GW_OK,
                 "%s: step %d", coder->spec, step);
        for (int i = 0; i < M; i++)
            sum[i] += (double)y[i];
    }
    for (int i = 0; i < M; i++) {
        double exact = steps * (double)x[i];
        wrong += (sum[i] - exact) * (sum[i] - exact);
        right += exact * exact;
    }
    return sqrt(wrong / right);
}

/* The sum over many calls of a constant gradient comes right with feedback, and does not without.
 */
START_TEST(feedback_is_real)
{
    gw_coder_t coder = coder_of(specs[_i]);
    bool lossless = gw_coder_get(&coder, "mode", 1) == 0;
    if (!(coder.family->flags & GW_CODEC_FEEDBACK) || !gw_coder_get(&coder, "ef", 0) || lossless)
        return;
    double with = drift(&coder, true, 2000), without = drift(&coder, false, 2000);
    printf("# %s: %.4f with feedback, %.4f without\n", specs[_i], with, without);
    ck_assert_double_lt(with, 0.05);
    ck_assert_double_gt(without, 0.3);
}
END_TEST

/* ---- 16-bit types -------------------------------------------------------------------------------
 */

START_TEST(half_types_are_widened_and_narrowed)
{
    static uint16_t half[N], out_half[N], expected[N];
    static const gw_dtype_t types[] = {GW_F16, GW_BF16};
    gw_coder_t coder = coder_of(specs[_i]);
    for (int k = 0; k < 8; k++) {
        const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
        int t = k % 2;
        size_t length = 0, wide_length = 0;
        fill(k < 4 ? FILL_HEAVY : FILL_NAN, (uint64_t)t, N);
        memcpy(y, x, sizeof y);
        (t ? cast->f32_to_bf16 : cast->f32_to_f16)(y, half, N);
        (t ? cast->bf16_to_f32 : cast->f16_to_f32)(half, x, N);
        bool ef = k & 2;
        gw_encode_t in = {.src = x,
                          .wire_dtype = types[t],
                          .residual = ef ? residual : NULL,
                          .count = N,
                          .key = 77};
        ck_assert_int_eq(coder.family->encode(&coder, &in, other, ROOM, &wide_length), GW_OK);
        memcpy(z, residual, sizeof z);
        memcpy(residual, before, sizeof residual);
        in.src = half;
        in.src_dtype = types[t];
        ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
        ck_assert_uint_eq(length, wide_length);
        ck_assert_mem_eq(payload, other, length);
        ck_assert_mem_eq(residual, z, sizeof z);
        gw_decode_t out = {
            .payload = payload, .length = length, .wire_dtype = types[t], .count = N, .dst = y};
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        (t ? cast->f32_to_bf16 : cast->f32_to_f16)(y, expected, N);
        out.dst = out_half;
        out.dst_dtype = types[t];
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
        ck_assert_mem_eq(out_half, expected, sizeof expected);
    }
}
END_TEST

/* ---- Refusals -----------------------------------------------------------------------------------
 */

START_TEST(refusals_write_nothing)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = 12345, need = coder.family->bound(&coder, GW_F32, 1000);
    fill(FILL_NORMAL, 1, N);
    memset(payload, 0xA5, sizeof payload);
    gw_encode_t in = {.src = x, .residual = residual, .count = 1000};
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need - 1, &length),
                     GW_ERR_NO_SPACE);
    in.first = 1;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_ERR_INVALID);
    in.first = 0;
    in.src_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_ERR_UNSUPPORTED);
    in.src_dtype = GW_F32;
    in.wire_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_ERR_UNSUPPORTED);
    ck_assert_uint_eq(length, 12345);
    ck_assert_mem_eq(residual, before, sizeof residual);
    for (size_t i = 0; i < ROOM; i++)
        gw_check(payload[i] == 0xA5, "byte %zu", i);
    length = encode(&coder, NULL, 1000);
    gw_decode_t out = {.payload = payload,
                       .length = length,
                       .count = 1000,
                       .mode = GW_DECODE_ADD,
                       .dst = y,
                       .dst_dtype = GW_F16};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_UNSUPPORTED);
    ck_assert_int_ne(decode(&coder, length - 1, 1000, y), GW_OK);
    ck_assert_int_ne(decode(&coder, length + 1, 1000, y), GW_OK);
}
END_TEST

START_TEST(nothing_is_fine)
{
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = 5;
    gw_encode_t in = {.wire_dtype = GW_F32};
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, 0, &length), GW_OK);
    ck_assert_uint_eq(length, 0);
    ck_assert_int_eq(decode(&coder, 0, 0, NULL), GW_OK);
    ck_assert_int_eq(decode(&coder, 1, 0, NULL), GW_ERR_FRAME_LENGTH);
}
END_TEST

/* Any bytes: an error and nothing is written, or all is, the same in every tier. */
static bool try_bytes(const gw_coder_t *coder, const uint8_t *bytes, size_t length, size_t count)
{
    gw_status_t status[2];
    uint8_t *copy = malloc(length + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, length);
    for (int t = 0; t < 2; t++) {
        float *dst = t ? z : y;
        use_tier(t ? tier_count() - 1 : 0);
        memset(dst, 0xA5, count * sizeof *dst);
        gw_decode_t out = {.payload = copy, .length = length, .count = count, .dst = dst};
        status[t] = coder->family->decode(coder, &out);
        for (size_t i = 0; i < count; i++)
            gw_check((gw__float_bits(dst[i]) == 0xA5A5A5A5) == (status[t] != GW_OK),
                     "%s: element %zu, status %d", coder->spec, i, status[t]);
    }
    free(copy);
    gw_check(status[0] == status[1] && !memcmp(y, z, count * sizeof *y), "%s: tiers differ",
             coder->spec);
    gw_check(!status[0] || status[0] == GW_ERR_FRAME_PAYLOAD || status[0] == GW_ERR_FRAME_LENGTH,
             "%s: status %d", coder->spec, status[0]);
    return status[0] == GW_OK;
}

START_TEST(changed_payloads_do_no_harm)
{
    gw_coder_t coder = coder_of(specs[_i]);
    uint64_t seed = 5;
    size_t count = 700, refused = 0;
    for (int f = 0; f < 3; f++) {
        fill(f == 0 ? FILL_NORMAL : f == 1 ? FILL_SPARSE : FILL_NAN, 2, count);
        use_tier(0);
        size_t length = encode(&coder, NULL, count);
        memcpy(other, payload, length);
        for (size_t i = 0; i<8 * length; i += length> 1000 ? 37 : 1) {
            other[i / 8] ^= (uint8_t)(1u << i % 8);
            refused += !try_bytes(&coder, other, length, count);
            other[i / 8] ^= (uint8_t)(1u << i % 8);
        }
        for (size_t cut = 0; cut<length; cut += length> 1000 ? 37 : 1)
            refused += !try_bytes(&coder, other, cut, count);
        for (int i = 0; i < 300; i++) {
            for (size_t k = 0; k < length; k++)
                other[k] = (uint8_t)(gw_test_random(&seed) & gw_test_random(&seed));
            refused += !try_bytes(&coder, other, length, count);
        }
    }
    ck_assert_uint_gt(refused, 10);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sparse codecs");
    TCase *t = tcase_create("codec");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_whole, 0, SPECS);
    tcase_add_loop_test(t, tiers_give_the_same_bytes, 0, SPECS);
    tcase_add_loop_test(t, finite_stays_finite_and_within_the_bound, 0, SPECS);
    tcase_add_loop_test(t, residual_is_what_was_lost, 0, SPECS);
    tcase_add_loop_test(t, what_is_not_finite_arrives, 0, SPECS);
    tcase_add_loop_test(t, adding_is_storing_and_summing, 0, SPECS);
    tcase_add_loop_test(t, feedback_is_real, 0, SPECS);
    tcase_add_loop_test(t, half_types_are_widened_and_narrowed, 0, SPECS);
    tcase_add_loop_test(t, refusals_write_nothing, 0, SPECS);
    tcase_add_loop_test(t, nothing_is_fine, 0, SPECS);
    tcase_add_loop_test(t, changed_payloads_do_no_harm, 0, SPECS);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
