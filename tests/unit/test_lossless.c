/* SPDX-License-Identifier: Apache-2.0 */
/* The lossless codec: every bit pattern comes back, whatever raw does it does, nothing grows, and
 * what is broken is refused. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "lossless_fill.h"

enum { N = 2 * 4096 + 512 + 77, MOST = 65536, LEVELS = 2, TYPES = 3 };

static const char *const names[LEVELS] = {"lossless", "lossless2"};
static uint8_t payload[4 * MOST + 1024];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static void use_tier(int i)
{
    ck_assert_int_eq(gw__kernels_select(gw__kernels_available((size_t)i), NULL, 0), GW_OK);
}

static size_t encode(const gw_coder_t *coder, gw_dtype_t dtype, const void *src, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = src, .src_dtype = dtype, .wire_dtype = dtype, .count = count};
    gw_check(coder->family->encode(coder, &in, payload, sizeof payload, &length) == GW_OK,
             "does not encode");
    gw_check(length <= coder->family->bound(coder, dtype, count), "length %zu", length);
    return length;
}

static gw_status_t decode(const gw_coder_t *coder, gw_dtype_t dtype, size_t length, size_t count,
                          void *dst)
{
    gw_decode_t out = {.payload = payload,
                       .length = length,
                       .wire_dtype = dtype,
                       .count = count,
                       .dst = dst,
                       .dst_dtype = dtype};
    return coder->family->decode(coder, &out);
}

/* ---- Exactness ----------------------------------------------------------------------------------
 */

static void check_round_trip(const char *name, gw_dtype_t dtype, const uint8_t *src, size_t count,
                             const char *what)
{
    static uint8_t back[4 * MOST];
    gw_coder_t coder = coder_of(name);
    size_t bytes = count * (dtype == GW_F32 ? 4 : 2), length = encode(&coder, dtype, src, count);
    memset(back, 0xA5, bytes);
    gw_check(decode(&coder, dtype, length, count, back) == GW_OK, "does not decode");
    if (memcmp(back, src, bytes))
        ck_abort_msg("%s %s: %s do not come back", name, gw_dtype_name(dtype), what);
}

/* All of 16 bits, in order and mixed up; of 32 bits all exponents with both signs and mantissas of
 * all kinds. */
START_TEST(every_pattern_comes_back)
{
    static uint8_t src[4 * MOST];
    use_tier(_i);
    for (int level = 0; level < LEVELS; level++)
        for (uint32_t factor = 1; factor < 65536; factor += 40503 - 1) {
            for (uint32_t i = 0; i < MOST; i++)
                gw__store16(src + 2 * i, (uint16_t)(i * factor));
            check_round_trip(names[level], GW_F16, src, MOST, "patterns");
            check_round_trip(names[level], GW_BF16, src, MOST, "patterns");
            for (uint32_t i = 0; i < MOST; i++)
                gw__store32(src + 4 * i,
                            (i * factor & 0xFFFF) << 16 | (i & 1 ? i * 40503 & 0xFFFF : i & 2));
            check_round_trip(names[level], GW_F32, src, MOST, "patterns");
        }
}
END_TEST

START_TEST(every_law_comes_back)
{
    static const size_t counts[] = {1, 2, 3, 7, 31, 32, 33, 511, 512, 513, 4095, 4096, 4097, N};
    static uint8_t src[4 * N];
    use_tier(_i);
    for (int t = 0; t < TYPES; t++)
        for (int fill = 0; fill < LOSSLESS_FILLS; fill++)
            for (uint64_t seed = 0; seed < 20; seed++) {
                size_t count = counts[(seed + (uint64_t)fill) % (sizeof counts / sizeof *counts)];
                lossless_fill((lossless_fill_t)fill, &lossless_types[t], seed, src, count);
                for (int level = 0; level < LEVELS; level++)
                    check_round_trip(names[level], lossless_types[t].dtype, src, count, "values");
            }
}
END_TEST

/* What raw makes of elements of one type over another into a third, stored or added. */
static void with_codec(const char *name, const gw_encode_t *in, gw_decode_t out)
{
    gw_coder_t coder = coder_of(name);
    size_t length = 0;
    gw_encode_t copy = *in;
    ck_assert_int_eq(coder.family->encode(&coder, &copy, payload, sizeof payload, &length), GW_OK);
    out.payload = payload;
    out.length = length;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    ck_assert_uint_eq(copy.poisoned, 0);
}

START_TEST(does_what_raw_does)
{
    static uint8_t src[4 * N], expected[4 * N], got[4 * N], before[4 * N];
    const lossless_type_t *from = &lossless_types[_i / 9], *to = &lossless_types[_i % 3];
    gw_dtype_t over = lossless_types[_i / 3 % 3].dtype;
    lossless_fill(LOSSLESS_FLOATS, &lossless_types[0], 9, before, N);
    for (int fill = 0; fill < LOSSLESS_FILLS; fill++)
        for (int add = 0; add < (to->dtype == GW_F32 ? 2 : 1); add++)
            for (int level = 0; level < LEVELS; level++) {
                lossless_fill((lossless_fill_t)fill, from, (uint64_t)fill, src, N);
                gw_encode_t in = {
                    .src = src, .src_dtype = from->dtype, .wire_dtype = over, .count = N};
                gw_decode_t out = {.wire_dtype = over,
                                   .count = N,
                                   .mode = add ? GW_DECODE_ADD : GW_DECODE_STORE,
                                   .dst = expected,
                                   .dst_dtype = to->dtype};
                memcpy(expected, before, sizeof expected);
                memcpy(got, before, sizeof got);
                with_codec("raw", &in, out);
                out.dst = got;
                with_codec(names[level], &in, out);
                if (memcmp(got, expected, sizeof got))
                    ck_abort_msg("%s, law %d, %s", names[level], fill, add ? "added" : "stored");
            }
}
END_TEST

/* ---- Size ---------------------------------------------------------------------------------------
 */

START_TEST(pieces_give_the_bytes_of_the_whole)
{
    static uint8_t src[4 * N], whole[sizeof payload], back[4 * N];
    for (int fill = 0; fill < LOSSLESS_FILLS; fill++)
        for (int t = 0; t < TYPES; t++) {
            const lossless_type_t *type = &lossless_types[t];
            gw_coder_t coder = coder_of(names[_i]);
            size_t grain = coder.family->grain(&coder), at = 0, bound = 0;
            lossless_fill((lossless_fill_t)fill, type, 3, src, N);
            size_t length = encode(&coder, type->dtype, src, N);
            memcpy(whole, payload, length);
            for (size_t i = 0, n; i < N; i += n) {
                n = grain * (1 + i / grain % 3);
                n = n < N - i ? n : N - i;
                size_t part = encode(&coder, type->dtype, src + i * type->bytes, n);
                ck_assert_mem_eq(whole + at, payload, part);
                ck_assert_int_eq(decode(&coder, type->dtype, part, n, back + i * type->bytes),
                                 GW_OK);
                bound += coder.family->bound(&coder, type->dtype, n);
                at += part;
            }
            ck_assert_uint_eq(at, length);
            ck_assert_uint_eq(bound, coder.family->bound(&coder, type->dtype, N));
            ck_assert_mem_eq(back, src, N * type->bytes);
        }
}
END_TEST

/* At the limit of far exponents a block is coded, one more makes it raw; a group is never more than
 * a byte longer than its blocks. */
START_TEST(nothing_grows)
{
    static uint8_t src[4 * GW_LOSSLESS_BLOCK];
    gw_coder_t fast = coder_of("lossless"), dense = coder_of("lossless2");
    for (int t = 0; t < TYPES; t++) {
        const lossless_type_t *type = &lossless_types[t];
        size_t raw = type->bytes * GW_LOSSLESS_BLOCK;
        size_t plain = 256 + (t == 0 ? 1536 : t == 1 ? 704 : 512);
        for (size_t far = 0; far <= 511; far++) {
            uint64_t seed = far;
            for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i++)
                lossless_store(type, src, i, lossless_bits(type, i < far ? 5 : 30, &seed));
            size_t length = encode(&fast, type->dtype, src, GW_LOSSLESS_BLOCK);
            ck_assert_uint_eq(length, far <= type->far_max ? 2 + plain + far : 2 + raw);
            ck_assert_uint_eq(payload[1], far <= type->far_max ? far : 255);
            ck_assert_uint_le(encode(&dense, type->dtype, src, GW_LOSSLESS_BLOCK), length + 1);
        }
    }
}
END_TEST

/* A block of +0 is two bytes; one other bit anywhere is not lost. */
START_TEST(zeros_are_two_bytes)
{
    static uint8_t src[4 * GW_LOSSLESS_BLOCK];
    use_tier(_i / TYPES);
    const lossless_type_t *type = &lossless_types[_i % TYPES];
    gw_coder_t coder = coder_of("lossless");
    for (size_t n = 1; n <= GW_LOSSLESS_BLOCK; n += n < 20 ? 1 : 123) {
        size_t bytes = n * type->bytes, bits = 8 * bytes;
        memset(src, 0, sizeof src);
        ck_assert_uint_eq(encode(&coder, type->dtype, src, n), 2);
        for (size_t bit = 0; bit < bits; bit += bits < 70 ? 1 : 1 + bits / 40) {
            src[bit / 8] = (uint8_t)(1 << bit % 8);
            check_round_trip("lossless", type->dtype, src, n, "bits");
            check_round_trip("lossless2", type->dtype, src, n, "bits");
            src[bit / 8] = 0;
        }
    }
}
END_TEST

/* A law of gradients: a scale for each block of elements, one row of 256 in 8 and one element in
 * 200 exactly 0. */
START_TEST(gradients_become_shorter)
{
    static uint8_t src[4 * MOST];
    static const double least[LEVELS][TYPES] = {{1.14, 1.06, 1.32}, {1.18, 1.11, 1.44}};
    for (int t = 0; t < TYPES; t++) {
        uint64_t seed = 1;
        const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
        for (size_t i = 0; i < MOST; i++) {
            bool zero = i / 256 % 8 == 5 || gw_test_random(&seed) % 200 == 0;
            float x = zero ? 0.0f : 1e-2f * gw_test_normal(&seed) / (1 + (float)(i / 8192));
            if (t == 0)
                gw__store_float(src + 4 * i, x);
            else
                (t == 1 ? cast->f32_to_f16 : cast->f32_to_bf16)(&x, src + 2 * i, 1);
        }
        for (int level = 0; level < LEVELS; level++) {
            gw_coder_t coder = coder_of(names[level]);
            double ratio = (double)(MOST * lossless_types[t].bytes) /
                           (double)encode(&coder, lossless_types[t].dtype, src, MOST);
            printf("# %s %s: %.3f\n", names[level], gw_dtype_name(lossless_types[t].dtype), ratio);
            ck_assert(ratio > least[level][t]);
        }
    }
}
END_TEST

/* ---- Layout -------------------------------------------------------------------------------------
 */

/* codecs/README.md: greatest exponent 130, one far; codes, bytes, the far exponent. */
START_TEST(layout_is_as_documented)
{
    static const uint16_t src[7] = {0x4134, 0xC100, 0x0000, 0x8001, 0x3A80, 0x1234, 0x4155};
    static const uint8_t expected[] = {130,  1,    0x00, 0xEE, 0xFD, 0x00, 0x34,
                                       0x80, 0x00, 0x81, 0x00, 0x34, 0x55, 0x24};
    gw_coder_t coder = coder_of("lossless");
    size_t length = encode(&coder, GW_BF16, src, 7);
    ck_assert_uint_eq(length, sizeof expected);
    ck_assert_mem_eq(payload, expected, sizeof expected);
}
END_TEST

/* ---- Broken payloads ----------------------------------------------------------------------------
 */

static uint8_t dst[4 * N];

/* Decodes what lies in payload: an error, and nothing was written. */
static void refused(const gw_coder_t *coder, gw_dtype_t dtype, size_t length, size_t count,
                    const char *what)
{
    memset(dst, 0xA5, sizeof dst);
    gw_status_t status = decode(coder, dtype, length, count, dst);
    if (status != GW_ERR_FRAME_PAYLOAD && status != GW_ERR_FRAME_LENGTH)
        ck_abort_msg("%s: status %d", what, status);
    for (size_t i = 0; i < sizeof dst; i++)
        if (dst[i] != 0xA5)
            ck_abort_msg("%s: byte %zu was written", what, i);
}

static void refused_with(const gw_coder_t *coder, size_t length, size_t count, size_t at,
                         uint8_t value, const char *what)
{
    uint8_t old = payload[at];
    ck_assert_uint_ne(old, value);
    payload[at] = value;
    refused(coder, GW_BF16, length, count, what);
    payload[at] = old;
    ck_assert_int_eq(decode(coder, GW_BF16, length, count, dst), GW_OK);
}

/* Two whole blocks and a tail of an odd count. */
START_TEST(broken_blocks_are_refused)
{
    static uint8_t src[2 * 1123];
    gw_coder_t coder = coder_of("lossless");
    use_tier(_i);
    lossless_fill(LOSSLESS_NEAR, &lossless_types[2], 1, src, 1123);
    gw__store16(src + 2 * 600, 0x0101);
    size_t length = encode(&coder, GW_BF16, src, 1123), second = 770, tail = 2 * 770 + 1;
    ck_assert_uint_eq(length, tail + 2 + 50 + 99);
    ck_assert_uint_eq(payload[second + 1], 1);
    refused_with(&coder, length, 1123, 1, 1, "one far too many");
    refused_with(&coder, length, 1123, 1, 255, "raw by mistake");
    refused_with(&coder, length, 1123, 2 + 30, 0xF0, "a far code without exponent");
    refused_with(&coder, length, 1123, second + 2 + 44, 0x00, "an exponent without far code");
    refused_with(&coder, length, 1123, second + 1, 0, "a far element less");
    refused_with(&coder, length, 1123, tail + 2 + 49, payload[tail + 2 + 49] | 0x10, "padding");
    refused_with(&coder, length, 1123, tail + 2 + 3, 0xF1, "a far code in the tail");
    for (size_t cut = 0; cut < length; cut += cut < 20 ? 1 : 7)
        refused(&coder, GW_BF16, cut, 1123, "cut");
    refused(&coder, GW_BF16, length + 1, 1123, "grown");
    lossless_fill(LOSSLESS_ANY, &lossless_types[2], 1, src, 1123);
    length = encode(&coder, GW_BF16, src, 1123);
    ck_assert_uint_eq(payload[1], 255);
    refused_with(&coder, length, 1123, 0, 1, "raw with an exponent");
    memset(src, 0, 2 * 1024);
    length = encode(&coder, GW_BF16, src, 1123);
    ck_assert_uint_eq(payload[3], 254);
    refused_with(&coder, length, 1123, 2, 1, "zeros with an exponent");
    refused_with(&coder, length, 1123, 3, 0, "codes that are not there");
}
END_TEST

/* Right in everything but that the elements themselves would be shorter. */
START_TEST(coded_blocks_that_do_not_pay_are_refused)
{
    static uint8_t src[2 * GW_LOSSLESS_BLOCK];
    static const size_t codes = 2, most = 63;
    const lossless_type_t *type = &lossless_types[1];
    gw_coder_t fast = coder_of("lossless"), dense = coder_of("lossless2");
    uint64_t seed = 1;
    use_tier(_i);
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i++)
        lossless_store(type, src, i, lossless_bits(type, i < most ? 5 : 30, &seed));
    size_t length = encode(&fast, GW_F16, src, GW_LOSSLESS_BLOCK);
    ck_assert_uint_eq(payload[1], most);
    payload[1]++;
    payload[codes + most / 2] |= 0xF0;
    payload[length] = 5;
    refused(&fast, GW_F16, length + 1, GW_LOSSLESS_BLOCK, "one far too many to pay");
    memmove(payload + 1, payload, length + 1);
    payload[0] = 0;
    refused(&dense, GW_F16, length + 2, GW_LOSSLESS_BLOCK, "the same in a group");
}
END_TEST

START_TEST(broken_bits_behind_the_end_are_refused)
{
    static uint8_t src[2 * 13];
    gw_coder_t coder = coder_of("lossless");
    lossless_fill(LOSSLESS_NEAR, &lossless_types[1], 1, src, 13);
    size_t length = encode(&coder, GW_F16, src, 13), bits = 2 + 7 + 13;
    if (payload[1] == 255) { /* so short a piece does not pay with fp16 */
        ck_assert_uint_eq(length, 28);
        return;
    }
    for (size_t plane = 0; plane < 3; plane++) {
        payload[bits + 2 * plane + 1] ^= 0x20;
        refused(&coder, GW_F16, length, 13, "a bit behind the last");
        payload[bits + 2 * plane + 1] ^= 0x20;
    }
}
END_TEST

/* One group: how it is kept, the lengths of codes, those of streams, the streams. */
START_TEST(broken_groups_are_refused)
{
    static uint8_t src[2 * 4096];
    gw_coder_t coder = coder_of("lossless2");
    use_tier(_i);
    lossless_fill(LOSSLESS_FLOATS, &lossless_types[2], FILL_COUNT, src, 4096);
    size_t length = encode(&coder, GW_BF16, src, 4096), streams = 17;
    ck_assert_uint_eq(payload[0], 1);
    for (int block = 0; block < 8; block++)
        streams += 514u + payload[streams + 1];
    ck_assert_uint_lt(streams, length);
    refused_with(&coder, length, 4096, 0, 0, "not packed");
    refused_with(&coder, length, 4096, 0, 2, "packed in an unknown way");
    for (size_t at = 1; at < 9; at++) {
        refused_with(&coder, length, 4096, at, payload[at] ^ 0x01, "another length of a code");
        refused_with(&coder, length, 4096, at, 0xFF, "too long a code");
    }
    for (size_t at = 9; at < 17; at++)
        refused_with(&coder, length, 4096, at, payload[at] ^ 0x01, "another length of a stream");
    refused_with(&coder, length, 4096, 18, 254, "far elements that are not there");
    refused_with(&coder, length, 4096, 18, 255, "a raw block that is not there");
    refused(&coder, GW_BF16, length - 1, 4096, "cut");
    payload[length] = 0;
    refused(&coder, GW_BF16, length + 1, 4096, "grown");
    /* Streams hold other codes then, or end elsewhere: an error or a full decode of other values.
     */
    size_t refusals = 0;
    for (size_t at = streams; at < length; at++) {
        payload[at] ^= 0x10;
        memset(dst, 0xA5, sizeof dst);
        gw_status_t status = decode(&coder, GW_BF16, length, 4096, dst);
        gw_check(status == GW_OK || status == GW_ERR_FRAME_PAYLOAD, "status %d", status);
        refusals += status != GW_OK;
        for (size_t i = 0; i < 2 * 4096 && status; i++)
            gw_check(dst[i] == 0xA5, "byte %zu was written", i);
        payload[at] ^= 0x10;
    }
    ck_assert_uint_gt(refusals, (length - streams) / 4);
}
END_TEST

/* Bits that no encoder writes behind the last code of a stream. */
START_TEST(streams_end_in_zeros)
{
    static uint8_t src[2 * 4096];
    gw_coder_t coder = coder_of("lossless2");
    size_t tried = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        lossless_fill(LOSSLESS_NEAR, &lossless_types[2], seed, src, 4096);
        for (size_t i = 0; i < 4096; i += 2)
            gw__store16(src + 2 * i, 0);
        size_t length = encode(&coder, GW_BF16, src, 4096);
        ck_assert_uint_eq(payload[0], 1);
        uint8_t last = payload[length - 1];
        if (last & 0x80) /* no room behind this one */
            continue;
        payload[length - 1] = last | 0x80;
        memset(dst, 0xA5, sizeof dst);
        if (decode(&coder, GW_BF16, length, 4096, dst) != GW_OK)
            tried++;
    }
    ck_assert_uint_gt(tried, 10);
}
END_TEST

START_TEST(refusals)
{
    static uint8_t src[4 * N];
    gw_coder_t coder = coder_of(names[_i]);
    size_t length = 5, need = coder.family->bound(&coder, GW_BF16, 1000);
    gw_encode_t in = {.src = src, .src_dtype = GW_BF16, .wire_dtype = GW_BF16, .count = 1000};
    memset(payload, 0xA5, need);
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need - 1, &length),
                     GW_ERR_NO_SPACE);
    in.wire_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need, &length), GW_ERR_UNSUPPORTED);
    in.wire_dtype = GW_BF16;
    in.src_dtype = GW_F64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need, &length), GW_ERR_UNSUPPORTED);
    in.src_dtype = GW_BF16;
    in.first = 64;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, need, &length), GW_ERR_INVALID);
    ck_assert_uint_eq(length, 5);
    for (size_t i = 0; i < need; i++)
        gw_check(payload[i] == 0xA5, "byte %zu was written", i);
    gw_decode_t out = {.payload = payload, .count = 10, .dst = dst, .dst_dtype = GW_F64};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_UNSUPPORTED);
    out.dst_dtype = GW_BF16;
    out.mode = GW_DECODE_ADD;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_UNSUPPORTED);
    ck_assert_ptr_null(coder.family->error_bound);
}
END_TEST

START_TEST(nothing_is_fine)
{
    gw_coder_t coder = coder_of(names[_i]);
    size_t length = 5;
    uint8_t one[4];
    gw_encode_t in = {.wire_dtype = GW_BF16, .src_dtype = GW_BF16};
    ck_assert_int_eq(coder.family->encode(&coder, &in, one, 0, &length), GW_OK);
    ck_assert_uint_eq(length, 0);
    gw_decode_t out = {.payload = one};
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    out.mode = GW_DECODE_ADD;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
    out.length = 1;
    ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_FRAME_LENGTH);
}
END_TEST

/* The name and the parameter say the same. */
START_TEST(levels_have_two_spellings)
{
    ck_assert_str_eq(coder_of("lossless").spec, "lossless");
    ck_assert_str_eq(coder_of("lossless2").spec, "lossless2");
    ck_assert_str_eq(coder_of("lossless:level=2").spec, "lossless2");
    ck_assert_uint_eq(coder_of("lossless").family->id, 12);
}
END_TEST

static Suite *suite(void)
{
    int tiers = 0;
    while (gw__kernels_available((size_t)tiers))
        tiers++;
    Suite *s = suite_create("lossless");
    TCase *t = tcase_create("lossless");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, every_pattern_comes_back, 0, tiers);
    tcase_add_loop_test(t, every_law_comes_back, 0, tiers);
    tcase_add_loop_test(t, does_what_raw_does, 0, 27);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_whole, 0, LEVELS);
    tcase_add_test(t, nothing_grows);
    tcase_add_loop_test(t, zeros_are_two_bytes, 0, TYPES * tiers);
    tcase_add_test(t, gradients_become_shorter);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_loop_test(t, broken_blocks_are_refused, 0, tiers);
    tcase_add_loop_test(t, coded_blocks_that_do_not_pay_are_refused, 0, tiers);
    tcase_add_test(t, broken_bits_behind_the_end_are_refused);
    tcase_add_loop_test(t, broken_groups_are_refused, 0, tiers);
    tcase_add_test(t, streams_end_in_zeros);
    tcase_add_loop_test(t, refusals, 0, LEVELS);
    tcase_add_loop_test(t, nothing_is_fine, 0, LEVELS);
    tcase_add_test(t, levels_have_two_spellings);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
