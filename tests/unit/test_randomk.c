/* SPDX-License-Identifier: Apache-2.0 */
/* Codec randomk, and merging without decoding: places, sums, refusals. */
#include "gw_test.h"

#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "frame.h"
#include "kernels.h"
#include "quant_fill.h"

enum { N = 3 * 1024 + 777, ROOM = 4 * N + 4096, RANKS = 5 };
static float x[RANKS][N], y[N], z[N];
static uint8_t payload[RANKS][ROOM], sum[ROOM + 1];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static size_t encode(const gw_coder_t *coder, int rank, uint64_t call, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x[rank],
                      .count = count,
                      .key = (uint64_t)rank + 1000 * call, /* differs between ranks */
                      .shared_key = call};
    ck_assert_int_eq(coder->family->encode(coder, &in, payload[rank], ROOM, &length), GW_OK);
    return length;
}

static void decode(const gw_coder_t *coder, const uint8_t *bytes, size_t length, size_t count,
                   gw_decode_mode_t mode, float *dst)
{
    gw_decode_t out = {
        .payload = bytes, .length = length, .count = count, .mode = mode, .dst = dst};
    ck_assert_int_eq(coder->family->decode(coder, &out), GW_OK);
}

/* ---- Places -------------------------------------------------------------------------------------
 */

static size_t sent(const float *v, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += v[i] != 0.0f;
    return k;
}

START_TEST(all_ranks_choose_alike_and_every_call_anew)
{
    static const char *const specs[] = {"randomk:block=1024,ratio=0.1", "randomk:block=64",
                                        "randomk:block=256,ratio=0.5", "randomk:ratio=0.03"};
    for (size_t s = 0; s < 4; s++) {
        gw_coder_t coder = coder_of(specs[s]);
        size_t same = 0, grain = coder.family->grain(&coder);
        for (int r = 0; r < 2; r++)
            for (size_t i = 0; i < N; i++)
                x[r][i] = (float)(1 + r);
        size_t length = encode(&coder, 0, 7, N);
        encode(&coder, 1, 7, N);
        decode(&coder, payload[0], length, N, GW_DECODE_STORE, y);
        decode(&coder, payload[1], length, N, GW_DECODE_STORE, z);
        for (size_t i = 0; i < N; i++)
            gw_check(z[i] == 2 * y[i], "%s: element %zu", specs[s], i);
        for (size_t i = 0; i < N; i += grain) { /* exactly k in each block: none is drawn twice */
            size_t n = N - i < grain ? N - i : grain;
            size_t k = (size_t)(gw_coder_get(&coder, "ratio", 0) * (double)n + 0.5);
            ck_assert_uint_eq(sent(y + i, n), k ? k : 1);
        }
        encode(&coder, 1, 8, N);
        decode(&coder, payload[1], length, N, GW_DECODE_STORE, z);
        for (size_t i = 0; i < N; i++)
            same += y[i] != 0 && z[i] != 0;
        ck_assert_uint_lt(same, sent(y, N) * 3 / 4);
    }
    gw_coder_t one = coder_of("randomk:seed=1"), two = coder_of("randomk:seed=2");
    encode(&one, 0, 7, N);
    encode(&two, 1, 7, N);
    ck_assert_mem_ne(payload[0], payload[1], 4);
}
END_TEST

/* Every element is chosen equally often, within 6 deviations; also in a block that k does not
 * divide, and when scaled the mean is right. */
START_TEST(every_element_has_the_same_chance)
{
    enum { DRAWS = 40000, M = 100 };
    static int times[M];
    gw_coder_t coder = coder_of("randomk:block=128,ratio=0.07,ef=off,scale=on,force=1");
    double p = 7.0 / M, mean = 0;
    memset(times, 0, sizeof times);
    for (size_t i = 0; i < M; i++)
        x[0][i] = 1.0f;
    for (uint64_t call = 0; call < DRAWS; call++) {
        decode(&coder, payload[0], encode(&coder, 0, call, M), M, GW_DECODE_STORE, y);
        for (int i = 0; i < M; i++) {
            times[i] += y[i] != 0;
            mean += (double)y[i] / M / DRAWS;
        }
    }
    for (int i = 0; i < M; i++)
        gw_check(fabs(times[i] - p * DRAWS) < 6 * sqrt(p * (1 - p) * DRAWS), "%d: %d times", i,
                 times[i]);
    ck_assert_double_eq_tol(mean, 1.0, 1e-5);
}
END_TEST

START_TEST(layout_is_as_documented)
{
    gw_coder_t coder = coder_of("randomk:block=128,ratio=0.02"); /* 3 of 128; 1 of 32 */
    ck_assert_uint_eq(coder.family->bound(&coder, GW_BF16, 160), 4 + 12 + 4 + 4);
    coder = coder_of("randomk:block=128,ratio=0.02,values=wire");
    ck_assert_uint_eq(coder.family->bound(&coder, GW_BF16, 160), 4 + 6 + 4 + 2);
    for (size_t i = 0; i < 128; i++)
        x[0][i] = i == 100 ? NAN : 5.0f;
    coder = coder_of("randomk:block=128,ratio=0.02");
    size_t length = encode(&coder, 0, 1, 128);
    static const uint8_t nothing[12];
    ck_assert(payload[0][3] & 0x80);
    ck_assert_mem_eq(payload[0] + 4, nothing, 12);
    decode(&coder, payload[0], length, 128, GW_DECODE_STORE, y);
    ck_assert_uint_eq(gw__float_bits(y[0]), GW_NAN_BITS);
    payload[0][8] = 1;
    gw_decode_t out = {.payload = payload[0], .length = length, .count = 128, .dst = y};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_FRAME_PAYLOAD);
}
END_TEST

START_TEST(specifications)
{
    static const struct {
        const char *spec, *text;
        bool good;
    } cases[] = {
        {"randomk:ratio=0.01", "randomk", true},
        {"randomk:seed=5,values=wire", "randomk:seed=5,values=wire", true},
        {"randomk:ef=off,scale=on,force=1", "randomk:scale=on,ef=off,force=1", true},
        {"randomk:scale=on", "twice", false},
        {"randomk:ef=off", "force=1", false},
        {"randomk:block=100", "power of two", false},
        {"randomk:ratio=0.6", "0.5", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_coder_t coder;
        char why[512] = "";
        gw_status_t status = gw_coder_parse(cases[i].spec, &coder, why, sizeof why);
        ck_assert_msg((status == GW_OK) == cases[i].good, "%s: %s", cases[i].spec, why);
        ck_assert_msg(strstr(status ? why : coder.spec, cases[i].text), "%s: %s", cases[i].spec,
                      status ? why : coder.spec);
    }
}
END_TEST

/* ---- Merging ------------------------------------------------------------------------------------
 */

static const char *const linear[] = {"raw", "randomk:block=1024,ratio=0.1",
                                     "randomk:block=64,ratio=0.5"};
enum { LINEAR = sizeof linear / sizeof *linear };

/* Merged one after the other: the bits of adding what each one decodes to, in the same order; also
 * with what is not finite, on any address. */
START_TEST(merging_is_adding)
{
    gw_coder_t coder = coder_of(linear[_i]);
    static const size_t counts[] = {0, 1, 63, 64, 1025, N};
    for (int f = 0; f < FILL_COUNT; f++)
        for (size_t c = 0; c < 6; c++) {
            size_t count = counts[c], length = 0;
            uint8_t *into = sum + f % 2;
            for (int r = 0; r < RANKS; r++) {
                test_fill(r == 2 ? (test_fill_t)f : FILL_HEAVY, (uint64_t)r + 9, x[r], count);
                length = encode(&coder, r, 3, count);
                if (r == 0)
                    memcpy(into, payload[0], length);
                decode(&coder, payload[r], length, count, r ? GW_DECODE_ADD : GW_DECODE_STORE, y);
                gw_merge_t io = {.from = payload[r],
                                 .from_length = length,
                                 .into = into,
                                 .into_length = length,
                                 .count = count};
                if (r > 0)
                    ck_assert_int_eq(coder.family->merge(&coder, &io), GW_OK);
            }
            decode(&coder, into, length, count, GW_DECODE_STORE, z);
            for (size_t i = 0; i < count; i++) {
                uint32_t a = gw__float_bits(y[i]), b = gw__float_bits(z[i]);
                gw_check(a == b, "%s fill %d count %zu: element %zu is %08x, not %08x", linear[_i],
                         f, count, i, b, a);
            }
        }
}
END_TEST

static size_t frame_of(const gw_coder_t *coder, int rank, uint64_t call, bool checksum)
{
    size_t length = 0;
    gw_encode_t in = {.src = x[rank], .count = 200, .first = 1024, .shared_key = call};
    ck_assert_int_eq(gw__frame_encode(coder, &in, checksum, payload[rank], ROOM, &length), GW_OK);
    return length;
}

static gw_status_t merge_frames(const gw_coder_t *coder, size_t into, size_t from, bool *refused)
{
    gw_merge_t io = {.from = payload[1],
                     .from_length = from,
                     .into = payload[0],
                     .into_length = into,
                     .count = 200,
                     .first = 1024};
    gw_status_t status = gw_frame_merge(coder, &io);
    *refused = io.refused_from;
    return status;
}

/* Frames: the checksum is renewed; a byte that is wrong in either is an error that names it, and
 * nothing is written. */
START_TEST(frames_are_checked_before_they_are_merged)
{
    gw_coder_t coder = coder_of(linear[_i]);
    static uint8_t kept[ROOM];
    bool refused;
    for (int r = 0; r < 2; r++)
        test_fill(FILL_NORMAL, (uint64_t)r, x[r], 200);
    size_t length = frame_of(&coder, 0, 1, true);
    frame_of(&coder, 1, 1, true);
    ck_assert_int_eq(merge_frames(&coder, length, length, &refused), GW_OK);
    gw_decode_t io = {
        .payload = payload[0], .length = length, .count = 200, .first = 1024, .dst = y};
    ck_assert_int_eq(gw_frame_decode(&coder, &io), GW_OK);
    memcpy(kept, payload[0], length);
    for (int which = 0; which < 2; which++)
        for (size_t at = 0; at < length; at++) {
            payload[which][at] ^= 0x10;
            gw_status_t status = merge_frames(&coder, length, length, &refused);
            payload[which][at] ^= 0x10;
            gw_check(status <= GW_ERR_FRAME_MAGIC && status >= GW_ERR_FRAME_MISMATCH,
                     "%s: byte %zu of %d: status %d", linear[_i], at, which, status);
            gw_check(refused == (which == 1), "%s: byte %zu of %d: the other is blamed", linear[_i],
                     at, which);
            gw_check(!memcmp(payload[0], kept, length), "%s: written to", linear[_i]);
        }
    for (size_t cut = 0; cut < length; cut++) {
        ck_assert_int_eq(merge_frames(&coder, cut, length, &refused), GW_ERR_FRAME_LENGTH);
        ck_assert_int_eq(merge_frames(&coder, length, cut, &refused), GW_ERR_FRAME_LENGTH);
    }
    ck_assert_mem_eq(payload[0], kept, length);
}
END_TEST

START_TEST(what_cannot_be_merged_is_refused)
{
    bool refused;
    gw_coder_t coder = coder_of("randomk:block=64,ratio=0.1"), q4 = coder_of("q4");
    test_fill(FILL_NORMAL, 1, x[0], 200);
    test_fill(FILL_NORMAL, 2, x[1], 200);
    size_t length = frame_of(&coder, 0, 1, false);
    frame_of(&coder, 1, 2, false); /* of another call: other places */
    ck_assert_int_eq(merge_frames(&coder, length, length, &refused), GW_ERR_FRAME_MISMATCH);
    ck_assert(refused);
    ck_assert_int_eq(merge_frames(&q4, length, length, &refused), GW_ERR_UNSUPPORTED);
    /* 16 bits would be rounded at each step. */
    gw_coder_t raw = coder_of("raw"), wire = coder_of("randomk:values=wire");
    gw_merge_t io = {.from = payload[1], .into = payload[0], .wire_dtype = GW_BF16};
    ck_assert_int_eq(raw.family->merge(&raw, &io), GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(wire.family->merge(&wire, &io), GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(coder.family->merge(&coder, &io), GW_OK); /* its values are binary32 */
}
END_TEST

/* The flag says what there is. */
START_TEST(linear_families_can_merge)
{
    const gw_codec_t *family;
    for (size_t i = 0; (family = gw_codec_at(i)); i++) {
        bool flagged = family->flags & GW_CODEC_LINEAR;
        ck_assert_msg(flagged == (family->merge != NULL), "%s", family->family);
        ck_assert_msg(!flagged || family->flags & GW_CODEC_FIXED, "%s", family->family);
    }
    gw_codec_t wrong = *gw_codec_by_id(9);
    wrong.id = 222;
    wrong.merge = NULL;
    ck_assert_int_eq(gw_codec_register(&wrong), GW_ERR_INVALID);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("randomk");
    TCase *t = tcase_create("randomk");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, all_ranks_choose_alike_and_every_call_anew);
    tcase_add_test(t, every_element_has_the_same_chance);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_test(t, specifications);
    tcase_add_loop_test(t, merging_is_adding, 0, LINEAR);
    tcase_add_loop_test(t, frames_are_checked_before_they_are_merged, 0, LINEAR);
    tcase_add_test(t, what_cannot_be_merged_is_refused);
    tcase_add_test(t, linear_families_can_merge);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
