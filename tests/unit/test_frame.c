/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: golden ones, every truncation, every single-byte change, random bytes. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "frame.h"
#include "test_quant_data.h"

enum { ROOM = 65536, N = 300 };

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

/* Decodes a copy that ends where the memory ends. dst is poisoned before; after an error all of it
 * must still be, after success none of it. */
static gw_status_t decode(const gw_coder_t *coder, const uint8_t *frame, size_t length,
                          gw_decode_t io, float *dst)
{
    uint8_t *copy = malloc(length + 1);
    if (!copy)
        ck_abort_msg("no memory");
    memcpy(copy + 1, frame, length); /* odd address */
    memset(dst, 0xA5, (io.count + 1) * sizeof *dst);
    io.payload = copy + 1;
    io.length = length;
    io.dst = dst;
    gw_status_t status = gw_frame_decode(coder, &io);
    size_t poisoned = 0;
    for (size_t i = 0; i < io.count; i++)
        poisoned += gw__load32(&dst[i]) == 0xA5A5A5A5;
    if (poisoned != (status ? io.count : 0) || gw__load32(&dst[io.count]) != 0xA5A5A5A5)
        ck_abort_msg("%zu of %zu elements left, status %d", poisoned, io.count, status);
    free(copy);
    return status;
}

static size_t make(const gw_coder_t *coder, bool checksum, size_t count, uint8_t *frame)
{
    static float x[N];
    size_t length = 0;
    test_fill(FILL_NORMAL, count, x, count);
    gw_encode_t in = {.src = x, .count = count, .first = coder->family->grain(coder)};
    if (gw__frame_encode(coder, &in, checksum, frame, ROOM, &length))
        ck_abort_msg("%s does not encode", coder->spec);
    return length;
}

static gw_decode_t expect(const gw_coder_t *coder, size_t count)
{
    return (gw_decode_t){.count = count, .first = coder->family->grain(coder)};
}

static const char *const specs[] = {"raw",
                                    "q1:bucket=32",
                                    "q3:bucket=96",
                                    "q4",
                                    "q8:bucket=64",
                                    "fp16",
                                    "bf16",
                                    "fp8e4m3:block=64",
                                    "fp8e5m2",
                                    "mxfp4:group=512",
                                    "nvfp4:group=512",
                                    "sign:bucket=32",
                                    "sign:bucket=96",
                                    "q4r:block=64,seed=7",
                                    "q3r",
                                    "natural:bucket=32",
                                    "nuqsgd:bits=3,bucket=64",
                                    "ternary:bucket=32",
                                    "topk:block=64,ratio=0.1",
                                    "topk+q8:block=64,ratio=0.2",
                                    "randomk:block=64,ratio=0.1",
                                    "block:size=16,domain=64",
                                    "topblock:size=16,domain=128",
                                    "lossless",
                                    "lossless2"};
enum { SPECS = sizeof specs / sizeof *specs };

/* ---- Layout -------------------------------------------------------------------------------------
 */

START_TEST(layout_is_as_documented)
{
    static uint8_t frame[ROOM];
    gw_coder_t coder = coder_of("q4:bucket=96");
    size_t length = make(&coder, false, 100, frame);
    static const uint8_t expected[GW_FRAME_HEADER] = {
        'G', 'W', 'F', 'R', 1,          1,         0,        0,
        4,   0,   96,  0,   [16] = 100, [24] = 96, [32] = 66 /* 8 + 48 and 8 + 2 */
    };
    ck_assert_uint_eq(length, GW_FRAME_HEADER + 66);
    ck_assert_mem_eq(frame, expected, sizeof expected);
    ck_assert_uint_eq(gw_frame_bound(&coder, GW_F32, 100), length);
}
END_TEST

START_TEST(inspection_tells_all)
{
    static uint8_t frame[ROOM];
    gw_frame_info_t info;
    gw_coder_t coder = coder_of("q6:bucket=64,round=stochastic");
    size_t length = make(&coder, true, 100, frame);
    ck_assert_int_eq(gw_frame_inspect(frame, length, &info), GW_OK);
    ck_assert_str_eq(info.coder.spec, "q6:bucket=64"); /* how it was rounded does not travel */
    ck_assert_ptr_eq(info.coder.family, coder.family);
    ck_assert_uint_eq(info.count, 100);
    ck_assert_uint_eq(info.first, 64);
    ck_assert_int_eq(info.wire_dtype, GW_F32);
    ck_assert_uint_eq(info.header_bytes, GW_FRAME_HEADER);
    ck_assert_uint_eq(info.payload_bytes, length - GW_FRAME_HEADER);
    ck_assert(info.has_checksum);
}
END_TEST

START_TEST(crc_is_castagnoli)
{
    uint8_t zeros[32] = {0}, rising[32];
    for (int i = 0; i < 32; i++)
        rising[i] = (uint8_t)i;
    ck_assert_uint_eq(gw__crc32c(0, (const uint8_t *)"123456789", 9), 0xE3069283);
    ck_assert_uint_eq(gw__crc32c(0, zeros, 32), 0x8A9136AA); /* RFC 3720, B.4 */
    ck_assert_uint_eq(gw__crc32c(0, rising, 32), 0x46DD794E);
    for (size_t cut = 0; cut <= 32; cut++)
        ck_assert_uint_eq(gw__crc32c(gw__crc32c(0, rising, cut), rising + cut, 32 - cut),
                          0x46DD794E);
}
END_TEST

START_TEST(other_frames_are_a_mismatch)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of("q4"), other = coder_of("q4:bucket=64"), raw = coder_of("raw");
    size_t length = make(&coder, false, 100, frame);
    gw_decode_t io = expect(&coder, 100);
    ck_assert_int_eq(decode(&coder, frame, length, io, dst), GW_OK);
    ck_assert_int_eq(decode(&other, frame, length, io, dst), GW_ERR_FRAME_MISMATCH);
    ck_assert_int_eq(decode(&raw, frame, length, io, dst), GW_ERR_FRAME_MISMATCH);
    io.count = 99;
    ck_assert_int_eq(decode(&coder, frame, length, io, dst), GW_ERR_FRAME_MISMATCH);
    io = expect(&coder, 100);
    io.first = 0;
    ck_assert_int_eq(decode(&coder, frame, length, io, dst), GW_ERR_FRAME_MISMATCH);
    io = expect(&coder, 100);
    io.wire_dtype = GW_BF16;
    ck_assert_int_eq(decode(&coder, frame, length, io, dst), GW_ERR_FRAME_MISMATCH);
    /* How the sender rounded is no difference. */
    other = coder_of("q4:round=stochastic,ef=off");
    ck_assert_int_eq(decode(&other, frame, length, expect(&coder, 100), dst), GW_OK);
}
END_TEST

/* A piece that does not begin at a grain is no frame, even where the caller expects it. */
START_TEST(first_is_a_multiple_of_the_grain)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = make(&coder, false, 100, frame);
    gw_decode_t io = expect(&coder, 100);
    io.first += 1;
    gw__store64(frame + 24, io.first);
    ck_assert_int_eq(decode(&coder, frame, length, io, dst), GW_ERR_FRAME_HEADER);
}
END_TEST

START_TEST(small_buffers_are_refused)
{
    static uint8_t frame[ROOM];
    static float x[N];
    size_t length = 7;
    gw_coder_t coder = coder_of(specs[_i]);
    gw_encode_t in = {.src = x, .count = N};
    size_t need = gw_frame_bound(&coder, GW_F32, N);
    for (size_t room = 0; room < need; room += room < 60 ? 1 : 37) {
        memset(frame, 0xA5, sizeof frame);
        ck_assert_int_eq(gw_frame_encode(&coder, &in, frame, room, &length), GW_ERR_NO_SPACE);
        ck_assert_uint_eq(frame[0], 0xA5);
    }
    ck_assert_uint_eq(length, 7);
    ck_assert_int_eq(gw_frame_encode(&coder, &in, frame, need, &length), GW_OK);
    if (coder.family->flags & GW_CODEC_FIXED)
        ck_assert_uint_eq(length, need);
    ck_assert_uint_le(length, need);
}
END_TEST

/* ---- Damage -------------------------------------------------------------------------------------
 */

START_TEST(every_truncation_fails)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of(specs[_i]);
    gw_frame_info_t info;
    for (int checksum = 0; checksum < 2; checksum++) {
        size_t length = make(&coder, checksum, N, frame);
        for (size_t cut = 0; cut < length; cut++)
            if (decode(&coder, frame, cut, expect(&coder, N), dst) != GW_ERR_FRAME_LENGTH)
                ck_abort_msg("cut to %zu of %zu bytes", cut, length);
        ck_assert_int_eq(gw_frame_inspect(frame, length - 1, &info), GW_ERR_FRAME_LENGTH);
        frame[length] = 0;
        ck_assert_int_eq(decode(&coder, frame, length + 1, expect(&coder, N), dst),
                         GW_ERR_FRAME_LENGTH);
        ck_assert_int_eq(decode(&coder, frame, length, expect(&coder, N), dst), GW_OK);
    }
}
END_TEST

/* Without a checksum, every other value of every header byte is an error: each byte is checked
 * against what is expected. */
START_TEST(every_header_change_fails)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = make(&coder, false, 100, frame);
    for (size_t at = 0; at < GW_FRAME_HEADER; at++)
        for (int flip = 1; flip < 256; flip++) {
            frame[at] ^= (uint8_t)flip;
            gw_status_t status = decode(&coder, frame, length, expect(&coder, 100), dst);
            if (status > GW_ERR_FRAME_MAGIC || status < GW_ERR_FRAME_MISMATCH)
                ck_abort_msg("byte %zu changed by %02x: status %d", at, (unsigned)flip, status);
            frame[at] ^= (uint8_t)flip;
        }
    ck_assert_int_eq(decode(&coder, frame, length, expect(&coder, 100), dst), GW_OK);
}
END_TEST

/* With one, every change of any byte is. */
START_TEST(every_change_fails_the_checksum)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = make(&coder, true, 100, frame);
    for (size_t at = 0; at < length; at++)
        for (int flip = 1; flip < 256; flip = 2 * flip + 1) {
            frame[at] ^= (uint8_t)flip;
            gw_status_t status = decode(&coder, frame, length, expect(&coder, 100), dst);
            if (status > GW_ERR_FRAME_MAGIC || status < GW_ERR_FRAME_MISMATCH)
                ck_abort_msg("byte %zu changed by %02x: status %d", at, (unsigned)flip, status);
            frame[at] ^= (uint8_t)flip;
        }
    ck_assert_int_eq(decode(&coder, frame, length, expect(&coder, 100), dst), GW_OK);
}
END_TEST

/* A payload without checksum: an error or a full decode, which decode() above checks. */
START_TEST(payload_changes_do_no_harm)
{
    static uint8_t frame[ROOM];
    static float dst[N + 1];
    gw_coder_t coder = coder_of(specs[_i]);
    size_t length = make(&coder, false, 100, frame), decoded = 0;
    for (size_t at = GW_FRAME_HEADER; at < length; at++)
        for (int bit = 0; bit < 8; bit++) {
            frame[at] ^= (uint8_t)(1 << bit);
            gw_status_t status = decode(&coder, frame, length, expect(&coder, 100), dst);
            if (status && status != GW_ERR_FRAME_PAYLOAD)
                ck_abort_msg("byte %zu: status %d", at, status);
            decoded += !status;
            frame[at] ^= (uint8_t)(1 << bit);
        }
    ck_assert_uint_gt(decoded, 0);
}
END_TEST

START_TEST(random_bytes_do_no_harm)
{
    static uint8_t frame[512];
    static float dst[N + 1];
    uint64_t seed = 3;
    for (int i = 0; i < 30000; i++) {
        gw_coder_t coder = coder_of(specs[i % SPECS]);
        size_t length = gw_test_random(&seed) % sizeof frame;
        for (size_t k = 0; k < sizeof frame; k++)
            frame[k] = (uint8_t)gw_test_random(&seed);
        if (i % 2) { /* past the first checks */
            static uint8_t good[ROOM];
            make(&coder, false, 1, good);
            memcpy(frame, good, 16);
            memset(frame + 17, 0, 7);
            memset(frame + 26, 0, 6);
            memset(frame + 33, 0, 15);
        }
        gw_decode_t io = {.count = frame[16], .first = gw__load64(frame + 24)};
        if (decode(&coder, frame, length, io, dst) > GW_OK)
            ck_abort_msg("round %d", i);
    }
}
END_TEST

/* ---- Golden frames ------------------------------------------------------------------------------
 */

static size_t read_file(const char *name, uint8_t *out)
{
    char path[4096];
    const char *source = getenv("GW_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source ? source : ".", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        ck_abort_msg("cannot open %s", path);
    size_t length = fread(out, 1, ROOM, f);
    fclose(f);
    return length;
}

typedef struct golden {
    char kind[8], file[64], expected[64], spec[64];
    int dtype;
    size_t count, first;
} golden_t;

static void check_golden(const golden_t *g)
{
    static uint8_t frame[ROOM], values[ROOM];
    static float dst[2048];
    gw_coder_t coder = coder_of(g->spec);
    size_t length = read_file(g->file, frame);
    gw_decode_t io = {.wire_dtype = (gw_dtype_t)g->dtype, .count = g->count, .first = g->first};
    gw_status_t status = decode(&coder, frame, length, io, dst);
    if (!strcmp(g->kind, "bad")) {
        if (status != (gw_status_t)atoi(g->expected))
            ck_abort_msg("%s: status %d, expected %s", g->file, status, g->expected);
        return;
    }
    if (status)
        ck_abort_msg("%s: status %d", g->file, status);
    if (read_file(g->expected, values) != g->count * sizeof *dst ||
        memcmp(values, dst, g->count * sizeof *dst))
        ck_abort_msg("%s decodes to other values", g->file);
}

START_TEST(golden_frames)
{
    static uint8_t list[ROOM];
    int good = 0, bad = 0;
    size_t length = read_file("frames.txt", list);
    ck_assert_uint_lt(length, ROOM);
    list[length] = 0;
    char *rest = (char *)list;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        golden_t g;
        if (sscanf(line, "%7s %63s %63s %63s %d %zu %zu", g.kind, g.file, g.expected, g.spec,
                   &g.dtype, &g.count, &g.first) != 7)
            ck_abort_msg("cannot read: %s", line);
        check_golden(&g);
        good += !strcmp(g.kind, "good");
        bad += !strcmp(g.kind, "bad");
    }
    ck_assert_int_ge(good, 68);
    ck_assert_int_ge(bad, 77);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("frame");
    TCase *t = tcase_create("frame");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_test(t, inspection_tells_all);
    tcase_add_test(t, crc_is_castagnoli);
    tcase_add_test(t, other_frames_are_a_mismatch);
    tcase_add_loop_test(t, first_is_a_multiple_of_the_grain, 0, SPECS);
    tcase_add_loop_test(t, small_buffers_are_refused, 0, SPECS);
    tcase_add_loop_test(t, every_truncation_fails, 0, SPECS);
    tcase_add_loop_test(t, every_header_change_fails, 0, SPECS);
    tcase_add_loop_test(t, every_change_fails_the_checksum, 0, SPECS);
    tcase_add_loop_test(t, payload_changes_do_no_harm, 0, SPECS);
    tcase_add_test(t, random_bytes_do_no_harm);
    tcase_add_test(t, golden_frames);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
