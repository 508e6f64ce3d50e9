/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode in one pass: the bytes and the residual of the chain of its parts, on every tier;
 * what is refused. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "frame.h"
#include "kernels.h"
#include "reduce.h"
#include "test_quant_data.h"

enum { PEERS = 15, N = 4096 + 1100, ROOM = 4 * N + 4096, FIRST = 4096 * 3 * 5 };

/* All that one reduction needs, and where it goes. */
typedef struct trial {
    gw_coder_t coder;
    gw_reduce_t in;
    bool checksum;
    size_t at;    /* offset of all bytes from alignment */
    uint64_t mix; /* picks the data */
} trial_t;

static float own[N];
static uint8_t own_half[2 * N];
static uint8_t frame[PEERS][ROOM];
static const uint8_t *payload[PEERS];
static size_t length[PEERS];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

/* Mostly ordinary gradients, so that the sums have something to round. */
static test_fill_t fill_of(uint64_t *seed)
{
    uint64_t dice = gw_test_random(seed);
    return dice % 3 ? (test_fill_t)(dice % 2) : (test_fill_t)(dice / 8 % FILL_COUNT);
}

static void prepare(trial_t *t)
{
    static float x[N];
    uint64_t seed = t->mix;
    test_fill(fill_of(&seed), seed, own, t->in.count);
    t->in.own = own;
    if (t->in.own_dtype != GW_F32) {
        const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
        (t->in.own_dtype == GW_F16 ? cast->f32_to_f16 : cast->f32_to_bf16)(own, own_half,
                                                                           t->in.count);
        t->in.own = own_half;
    }
    for (size_t k = 0; k < t->in.payloads; k++) {
        test_fill(fill_of(&seed), seed + k, x, t->in.count);
        gw_encode_t in = {.src = x,
                          .wire_dtype = t->in.wire_dtype,
                          .count = t->in.count,
                          .first = t->in.first,
                          .key = k};
        payload[k] = frame[k] + t->at;
        if (gw__frame_encode(&t->coder, &in, (t->mix + k) % 2, frame[k] + t->at, ROOM - t->at,
                             &length[k]))
            ck_abort_msg("%s does not encode", t->coder.spec);
    }
    t->in.payload = payload;
    t->in.length = length;
}

static void contribute_own(const trial_t *t, bool add, float *sum)
{
    static float wide[N];
    const gw_kernels_t *ref = gw__kernels_of("ref");
    if (t->in.own_dtype == GW_F32)
        memcpy(wide, t->in.own, t->in.count * sizeof *wide);
    else
        (t->in.own_dtype == GW_F16 ? ref->cast.f16_to_f32 : ref->cast.bf16_to_f32)(t->in.own, wide,
                                                                                   t->in.count);
    if (add)
        ref->sum.add(sum, wide, t->in.count);
    else
        memcpy(sum, wide, t->in.count * sizeof *sum);
}

/* The parts one after the other; returns the length of the frame. */
static size_t chain(trial_t *t, float *residual, uint8_t *out, size_t *poisoned)
{
    static float sum[N];
    size_t bytes = 0;
    for (size_t k = 0; k <= t->in.payloads; k++) {
        if (k == t->in.own_at)
            contribute_own(t, k > 0, sum);
        if (k == t->in.payloads)
            break;
        gw_decode_t io = {.payload = payload[k],
                          .length = length[k],
                          .wire_dtype = t->in.wire_dtype,
                          .count = t->in.count,
                          .first = t->in.first,
                          .mode = k || !t->in.own_at ? GW_DECODE_ADD : GW_DECODE_STORE,
                          .dst = sum};
        if (gw_frame_decode(&t->coder, &io))
            ck_abort_msg("%s does not decode", t->coder.spec);
    }
    if (t->in.scale != 1.0f)
        gw__kernels_of("ref")->sum.scale(sum, t->in.scale, t->in.count);
    gw_encode_t in = {.src = sum,
                      .wire_dtype = t->in.wire_dtype,
                      .residual = residual,
                      .count = t->in.count,
                      .first = t->in.first,
                      .key = t->in.key};
    if (gw__frame_encode(&t->coder, &in, t->checksum, out, ROOM, &bytes))
        ck_abort_msg("%s does not encode a sum", t->coder.spec);
    *poisoned = in.poisoned;
    return bytes;
}

/* One trial against the chain that ref makes, on the tier in use. */
static void compare(trial_t *t, bool ef)
{
    static float before[N], expected_residual[N];
    static uint8_t expected[ROOM];
    const char *tier = gw__kernels_tier();
    size_t poisoned = 0, bytes = 0;
    prepare(t);
    test_fill(FILL_NORMAL, t->mix + 5, before, t->in.count);
    memcpy(expected_residual, before, sizeof before);
    ck_assert_int_eq(gw__kernels_select("ref", NULL, 0), GW_OK);
    size_t need = chain(t, ef ? expected_residual : NULL, expected, &poisoned);
    ck_assert_int_eq(gw__kernels_select(tier, NULL, 0), GW_OK);
    test_guarded_t out = test_guard(need, t->at), res = test_guard(t->in.count * 4, 4 * t->at);
    memcpy(res.at, before, t->in.count * 4);
    t->in.residual = ef ? (float *)(void *)res.at : NULL;
    gw_status_t status =
        gw__frame_reduce(&t->coder, &t->in, t->checksum, NULL, out.at, need, &bytes);
    if (status || bytes != need || t->in.poisoned != poisoned || t->in.skip)
        ck_abort_msg("%s, %s: status %d, %zu of %zu bytes, %zu poisoned, expected %zu", tier,
                     t->coder.spec, status, bytes, need, t->in.poisoned, poisoned);
    if (memcmp(out.at, expected, need) || (ef && memcmp(res.at, expected_residual, res.bytes)))
        ck_abort_msg("%s, %s: %s differs, count %zu, own %zu of %zu, own type %d, scale %g", tier,
                     t->coder.spec, memcmp(out.at, expected, need) ? "frame" : "residual",
                     t->in.count, t->in.own_at, t->in.payloads, (int)t->in.own_dtype,
                     (double)t->in.scale);
    test_release(out);
    test_release(res);
}

static const char *const specs[] = {"raw",
                                    "q1:bucket=32",
                                    "q2:bucket=96",
                                    "q3:bucket=96",
                                    "q4",
                                    "q4:bucket=64,zero=off",
                                    "q5:bucket=160",
                                    "q6:bucket=1024",
                                    "q7:bucket=64",
                                    "q8",
                                    "q4:bucket=4096",
                                    "q4:round=stochastic",
                                    "q3:bucket=64,round=stochastic,zero=off",
                                    "q8:bucket=32,round=stochastic",
                                    "fp16",
                                    "bf16",
                                    "fp8e4m3",
                                    "fp8e5m2:block=96",
                                    "mxfp4:group=512",
                                    "nvfp4",
                                    "sign:bucket=32",
                                    "sign",
                                    "q1r:block=64",
                                    "q4r",
                                    "q5r:block=4096,scale=unbiased,seed=3",
                                    "natural",
                                    "nuqsgd:bucket=64",
                                    "nuqsgd:bits=5,ef=on",
                                    "ternary:bucket=1024"};
enum { SPECS = sizeof specs / sizeof *specs };
static const size_t counts[] = {0, 1, 31, 32, 33, 511, 512, 1000, 1024, 2600, N};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Own elements at every place among up to seven peers, and among fifteen. */
START_TEST(gives_what_the_chain_gives)
{
    const char *tier = gw__kernels_known((size_t)_i);
    if (gw__kernels_select(tier, NULL, 0)) {
        gw_test_skip("gives_what_the_chain_gives", "this CPU lacks the tier");
        return;
    }
    uint64_t mix = 1;
    for (size_t s = 0; s < SPECS; s++)
        for (size_t peers = 0; peers <= PEERS; peers = peers == 7 ? PEERS : peers + 1)
            for (size_t own_at = 0; own_at <= peers; own_at++, mix++) {
                trial_t t = {.coder = coder_of(specs[s]), .mix = mix, .at = mix % 4};
                t.in =
                    (gw_reduce_t){.own_at = own_at, .payloads = peers, .first = FIRST, .key = mix};
                t.in.scale = mix % 3 ? 1.0f : 1.0f / (float)(peers + 1);
                t.in.own_dtype = (gw_dtype_t[]){GW_F32, GW_F32, GW_F16, GW_BF16}[mix / 2 % 4];
                t.in.wire_dtype = mix % 5 ? GW_F32 : GW_BF16;
                t.in.count = counts[mix * 7 % COUNTS];
                t.checksum = mix % 2;
                compare(&t, mix / 3 % 2);
            }
}
END_TEST

/* ---- What is refused ----------------------------------------------------------------------------
 */

static trial_t three_peers(const char *spec)
{
    trial_t t = {.coder = coder_of(spec), .mix = 2};
    t.in = (gw_reduce_t){.own_at = 1, .payloads = 3, .scale = 1.0f, .count = 300, .first = FIRST};
    prepare(&t);
    return t;
}

/* Nothing may be written then, neither bytes nor residual. */
static gw_status_t refused(trial_t *t, size_t capacity)
{
    static uint8_t out[ROOM];
    static float residual[N];
    size_t bytes = 77, changed = 0;
    memset(out, 0xA5, sizeof out);
    memset(residual, 0xA5, sizeof residual);
    t->in.residual = residual;
    gw_status_t status = gw_frame_reduce(&t->coder, &t->in, out, capacity, &bytes);
    for (size_t i = 0; i < sizeof out; i++)
        changed += out[i] != 0xA5;
    for (size_t i = 0; i < N; i++)
        changed += gw__load32(&residual[i]) != 0xA5A5A5A5;
    if (status && (changed || bytes != 77 || t->in.skip))
        ck_abort_msg("status %d, but %zu bytes were written", status, changed);
    return status;
}

/* A change of any byte of a frame with a checksum, and of any header byte of one without. */
START_TEST(bad_frames_are_named)
{
    for (size_t k = 0; k < 3; k++) {
        trial_t t = three_peers(_i ? "q4:bucket=64" : "raw");
        bool sealed = gw__load32(frame[k] + 40) != 0;
        for (size_t i = 0; i < (sealed ? length[k] : GW_FRAME_HEADER); i++) {
            frame[k][i] ^= 0x10;
            gw_status_t status = refused(&t, ROOM);
            if (status > GW_ERR_FRAME_MAGIC || status < GW_ERR_FRAME_MISMATCH || t.in.refused != k)
                ck_abort_msg("frame %zu, byte %zu: status %d, refused %zu", k, i, status,
                             t.in.refused);
            frame[k][i] ^= 0x10;
        }
        length[k]--;
        ck_assert_int_eq(refused(&t, ROOM), GW_ERR_FRAME_LENGTH);
        ck_assert_uint_eq(t.in.refused, k);
        length[k] = 0;
        ck_assert_int_eq(refused(&t, ROOM), GW_ERR_FRAME_LENGTH);
    }
}
END_TEST

/* Metadata that no encoder writes, in the last frame: the others are fine, and still nothing is
 * written. */
START_TEST(bad_payloads_are_named)
{
    trial_t t = three_peers("q4:bucket=64");
    size_t k = gw__load32(frame[2] + 40) ? 1 : 2;
    gw__store32(frame[k] + GW_FRAME_HEADER, 0x7F800000);
    ck_assert_int_eq(refused(&t, ROOM), GW_ERR_FRAME_PAYLOAD);
    ck_assert_uint_eq(t.in.refused, k);
}
END_TEST

/* In the third of five buckets: what comes before it may have been written, it and what follows is
 * untouched. */
START_TEST(work_ends_at_a_bad_bucket)
{
    static uint8_t out[ROOM];
    const char *tier = gw__kernels_known((size_t)_i);
    if (gw__kernels_select(tier, NULL, 0)) {
        gw_test_skip("work_ends_at_a_bad_bucket", "this CPU lacks the tier");
        return;
    }
    trial_t t = three_peers("q4:bucket=64");
    t.in.own_dtype = GW_F32;
    size_t k = gw__load32(frame[1] + 40) ? 2 : 1, stride = gw__quant_bytes(4, 64), bytes = 77;
    gw__store32(frame[k] + GW_FRAME_HEADER + 2 * stride, 0x7F800000);
    memset(out, 0xA5, sizeof out);
    ck_assert_int_eq(gw_frame_reduce(&t.coder, &t.in, out, ROOM, &bytes), GW_ERR_FRAME_PAYLOAD);
    ck_assert_uint_eq(t.in.refused, k);
    ck_assert_uint_eq(bytes, 77);
    for (size_t i = GW_FRAME_HEADER + 2 * stride; i < sizeof out; i++)
        gw_check(out[i] == 0xA5, "byte %zu is written", i);
}
END_TEST

static gw_codec_t without_reduce;

START_TEST(wrong_use_is_refused)
{
    trial_t t = three_peers(_i ? "q4:bucket=64" : "raw");
    size_t need = gw_frame_bound(&t.coder, GW_F32, t.in.count);
    for (size_t capacity = 0; capacity < need; capacity += 13)
        ck_assert_int_eq(refused(&t, capacity), GW_ERR_NO_SPACE);
    ck_assert_int_eq(refused(&t, need), GW_OK);
    t.in.own_at = 4;
    ck_assert_int_eq(refused(&t, ROOM), GW_ERR_INVALID);
    t.in.own_at = 3;
    t.in.own_dtype = GW_F64;
    ck_assert_int_eq(refused(&t, ROOM), GW_ERR_UNSUPPORTED);
    t.in.own_dtype = GW_F32;
    t.in.payloads = 0;
    t.in.own_at = 0;
    t.in.first = FIRST + 1;
    ck_assert_int_eq(refused(&t, ROOM), GW_ERR_INVALID);
    t.in.first = FIRST;
    without_reduce = *t.coder.family;
    without_reduce.reduce = NULL;
    t.coder.family = &without_reduce;
    ck_assert_int_eq(refused(&t, ROOM), GW_ERR_UNSUPPORTED);
}
END_TEST

/* ---- Slice by slice -----------------------------------------------------------------------------
 */

enum { SLICED = 3, SLICED_N = 5 * 4096 + 777 };

static const char *const sliced[] = {"topk:block=1024,ratio=0.1",
                                     "topk+q8:block=4096",
                                     "randomk:block=256,ratio=0.2",
                                     "q8:bucket=512",
                                     "raw",
                                     "sign"};
enum { SLICED_SPECS = sizeof sliced / sizeof *sliced };

typedef struct slices {
    gw_coder_t coder;
    uint8_t payload[SLICED][8 * SLICED_N], dst[2][8 * SLICED_N];
    const uint8_t *peer[SLICED];
    size_t length[SLICED], out[2];
    float own[SLICED_N], sum[SLICED_N], residual[2][SLICED_N];
} slices_t;

static void lay_slices(slices_t *s, const char *spec)
{
    s->coder = coder_of(spec);
    for (size_t k = 0; k <= SLICED; k++) {
        test_fill(FILL_NORMAL, 31 + k, s->own, SLICED_N);
        gw_encode_t in = {.src = s->own, .count = SLICED_N, .key = k, .shared_key = 9};
        if (k < SLICED)
            ck_assert_int_eq(s->coder.family->encode(&s->coder, &in, s->payload[k],
                                                     sizeof s->payload[k], &s->length[k]),
                             GW_OK);
        s->peer[k % SLICED] = s->payload[k % SLICED];
    }
    for (int r = 0; r < 2; r++)
        test_fill(FILL_NORMAL, 77, s->residual[r], SLICED_N);
}

static gw_reduce_t of_slices(slices_t *s, float *residual)
{
    return (gw_reduce_t){.own = s->own,
                         .own_at = 1,
                         .payload = s->peer,
                         .length = s->length,
                         .payloads = SLICED,
                         .scale = 0.25f,
                         .residual = residual,
                         .count = SLICED_N,
                         .key = 5,
                         .shared_key = 9};
}

/* Decoding all of each payload, then encoding all of the sum. */
static size_t whole_chain(slices_t *s)
{
    const gw_codec_t *family = s->coder.family;
    for (size_t k = 0; k < SLICED; k++) {
        gw_decode_t io = {.payload = s->payload[k],
                          .length = s->length[k],
                          .count = SLICED_N,
                          .mode = k ? GW_DECODE_ADD : GW_DECODE_STORE,
                          .dst = s->sum};
        ck_assert_int_eq(family->decode(&s->coder, &io), GW_OK);
        if (k == 0)
            gw__kernels()->sum.add(s->sum, s->own, SLICED_N);
    }
    gw__kernels()->sum.scale(s->sum, 0.25f, SLICED_N);
    bool feeds = family->flags & GW_CODEC_FEEDBACK;
    gw_encode_t in = {.src = s->sum,
                      .residual = feeds ? s->residual[0] : NULL,
                      .count = SLICED_N,
                      .key = 5,
                      .shared_key = 9};
    ck_assert_int_eq(family->encode(&s->coder, &in, s->dst[0], sizeof s->dst[0], &s->out[0]),
                     GW_OK);
    return in.poisoned;
}

START_TEST(slices_give_the_chain)
{
    static slices_t s;
    lay_slices(&s, sliced[_i]);
    bool feeds = s.coder.family->flags & GW_CODEC_FEEDBACK;
    gw_reduce_t in = of_slices(&s, feeds ? s.residual[1] : NULL);
    size_t poisoned = whole_chain(&s);
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], sizeof s.dst[1], &s.out[1]),
                     GW_OK);
    ck_assert_uint_eq(s.out[0], s.out[1]);
    ck_assert_uint_eq(in.poisoned, poisoned);
    ck_assert_int_eq(memcmp(s.dst[0], s.dst[1], s.out[0]), 0);
    ck_assert_int_eq(memcmp(s.residual[0], s.residual[1], sizeof s.residual[0]), 0);
}
END_TEST

/* A payload that is spoilt somewhere, a short one, a codec whose payload cannot be cut. */
START_TEST(slices_name_the_bad_payload)
{
    static slices_t s;
    lay_slices(&s, "topk:block=1024,ratio=0.1");
    gw_reduce_t in = of_slices(&s, NULL);
    size_t block = s.coder.family->bound(&s.coder, GW_F32, 1024);
    s.payload[2][3 * block + 3] = 0x40; /* more entries than there is room for */
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], sizeof s.dst[1], &s.out[1]),
                     GW_ERR_FRAME_PAYLOAD);
    ck_assert_uint_eq(in.refused, 2);
    s.length[1]--;
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], sizeof s.dst[1], &s.out[1]),
                     GW_ERR_FRAME_LENGTH);
    ck_assert_uint_eq(in.refused, 1);
    s.length[1]++;
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], 100, &s.out[1]),
                     GW_ERR_NO_SPACE);
    in.own_at = SLICED + 1;
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], sizeof s.dst[1], &s.out[1]),
                     GW_ERR_INVALID);
    s.coder = coder_of("lossless");
    ck_assert_int_eq(gw__reduce_slices(&s.coder, &in, s.sum, s.dst[1], sizeof s.dst[1], &s.out[1]),
                     GW_ERR_UNSUPPORTED);
}
END_TEST

static Suite *suite(void)
{
    size_t known = 0;
    while (gw__kernels_known(known))
        known++;
    Suite *s = suite_create("reduce");
    TCase *t = tcase_create("reduce");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, gives_what_the_chain_gives, 0, (int)known);
    tcase_add_loop_test(t, bad_frames_are_named, 0, 2);
    tcase_add_test(t, bad_payloads_are_named);
    tcase_add_loop_test(t, work_ends_at_a_bad_bucket, 0, (int)known);
    tcase_add_loop_test(t, wrong_use_is_refused, 0, 2);
    tcase_add_loop_test(t, slices_give_the_chain, 0, SLICED_SPECS);
    tcase_add_test(t, slices_name_the_bad_payload);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
