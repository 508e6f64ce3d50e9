/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on device memory give the bytes, the elements and the residual that they give on the CPU.
 */
#include "gw_test.h"

#include <string.h>

#include "contract.h"
#include "cuda_queue.h"
#include "device_ops.h"
#include "reduce.h"

/* The last two: of families with payloads of no fixed length alone. */
static const size_t counts[] = {0, 1, 31, 32, 33, 97, 255, 512, 513, 2500, 8193};
enum { COUNTS = sizeof counts / sizeof *counts, VARIANTS = 64, PEERS = 4 };

/* AddressSanitizer takes several times as long: every seventh case, of all types and counts in
 * turn.
 */
#if defined(__SANITIZE_ADDRESS__)
enum { STEP = 7 };
#else
enum { STEP = 1 };
#endif

/* Where there is no double. */
__attribute__((weak)) gw_cuda_queue_t *cuda_queue(void)
{
    return NULL;
}

/* One comparison. Everything lies at the end of its allocation, `odd` elements into it. */
typedef struct trial {
    const gw_coder_t *coder;
    gw_dtype_t src, wire;
    size_t count, bytes, odd, number;
    size_t length, lengths[PEERS]; /* of `want` and of the payloads: `bytes` or less */
    bool ef;
    contract_data_t data;
    float *wide;
    uint8_t *payload[PEERS], *want, *got;
    gw_cuda_queue_t *queue;
    gw_cuda_result_t result;
} trial_t;

static void *at_end(size_t bytes, size_t odd)
{
    char *room = malloc(bytes + odd);
    ck_assert_ptr_nonnull(room);
    memset(room, 0xA5, bytes + odd);
    return room + odd;
}

static void release(void *at, size_t odd)
{
    free((char *)at - odd);
}

static void same(const trial_t *t, const char *what, const void *got, const void *want,
                 size_t bytes)
{
    gw_check(!bytes || !memcmp(got, want, bytes),
             "%s: %s differs: %zu elements of type %d, wire %d, %s, residual %d, %zu elements odd",
             t->coder->spec, what, t->count, (int)t->src, (int)t->wire, t->data.fill, t->ef,
             t->odd);
}

static void same_payload(const trial_t *t, const char *what)
{
    if (!gw__device_is_fixed(t->coder) && t->count)
        gw_check(t->result.length == t->length, "%s: %s of %zu elements: %u bytes for %zu",
                 t->coder->spec, what, t->count, t->result.length, t->length);
    same(t, what, t->got, t->want, t->length);
}

static void must(const trial_t *t, const char *what, gw_status_t status)
{
    gw_check(status == GW_OK, "%s: %s of %zu elements: %s", t->coder->spec, what, t->count,
             gw_status_name(status));
}

/* ---- encode -------------------------------------------------------------------------------------
 */

static void check_encode(trial_t *t)
{
    size_t wide = 4 * t->count, own = gw__element_bytes(t->src) * t->count;
    uint8_t *src = at_end(own, t->odd * gw__element_bytes(t->src));
    float *residual = at_end(wide, 4 * t->odd), *kept = at_end(wide, 0);
    if (t->count) {
        memcpy(src, t->data.src, own);
        memcpy(residual, t->data.residual, wide);
        memcpy(kept, t->data.residual, wide);
    }
    gw_encode_t in = {.src = src,
                      .src_dtype = t->src,
                      .wire_dtype = t->wire,
                      .residual = t->ef ? kept : NULL,
                      .count = t->count,
                      .first = 3 * t->coder->family->grain(t->coder),
                      .key = t->number,
                      .shared_key = t->number + 1};
    must(t, "encoding on the CPU",
         t->coder->family->encode(t->coder, &in, t->want, t->bytes, &t->length));
    size_t poisoned = in.poisoned;
    in.residual = t->ef ? residual : NULL;
    in.poisoned = 77;
    t->result = (gw_cuda_result_t){.poisoned = 100};
    must(t, "encoding",
         gw__device_encode(t->queue, t->coder, &in, gw__device_wants_wide(t->src) ? t->wide : NULL,
                           t->got, &t->result));
    same_payload(t, "the payload");
    same(t, "the residual", residual, kept, t->ef ? wide : 0);
    ck_assert_uint_eq(t->result.poisoned, 100 + poisoned);
    ck_assert_uint_eq(in.poisoned, 77);
    release(src, t->odd * gw__element_bytes(t->src));
    release(residual, 4 * t->odd);
    release(kept, 0);
}

/* ---- decode -------------------------------------------------------------------------------------
 */

static void check_decode(trial_t *t, gw_decode_mode_t mode, gw_dtype_t to)
{
    size_t element = gw__element_bytes(to), bytes = element * t->count;
    uint8_t *dst = at_end(bytes, t->odd * element), *want = at_end(bytes, 0);
    for (size_t i = 0; i < t->count && mode == GW_DECODE_ADD; i++)
        memcpy(want + 4 * i, t->data.residual + i, 4);
    memcpy(dst, want, bytes);
    gw_decode_t io = {.payload = t->want,
                      .length = t->length,
                      .wire_dtype = t->wire,
                      .count = t->count,
                      .mode = mode,
                      .dst = want,
                      .dst_dtype = to};
    must(t, "decoding on the CPU", t->coder->family->decode(t->coder, &io));
    io.dst = dst;
    t->result = (gw_cuda_result_t){0};
    must(t, "indexing", gw__device_index(t->coder, t->wire, t->count, t->want, t->length));
    must(t, "decoding",
         gw__device_decode(t->queue, t->coder, &io, gw__device_wants_wide(to) ? t->wide : NULL,
                           &t->result));
    same(t, mode == GW_DECODE_ADD ? "what is added" : "what is stored", dst, want, bytes);
    ck_assert_uint_eq(t->result.invalid, 0);
    release(dst, t->odd * element);
    release(want, 0);
}

/* ---- reduce -------------------------------------------------------------------------------------
 */

/* Payloads of other elements of the same kind. */
static void fill_payloads(trial_t *t)
{
    for (size_t k = 0; k < PEERS; k++) {
        contract_data_t d =
            contract_make(t->src, t->wire, t->count, (t->number / 3 + k) % 3, t->number + k);
        gw_encode_t in = {.src = d.src,
                          .src_dtype = t->src,
                          .wire_dtype = t->wire,
                          .count = t->count,
                          .key = k,
                          .shared_key = 5};
        must(t, "encoding a payload",
             t->coder->family->encode(t->coder, &in, t->payload[k] + k, t->bytes, &t->lengths[k]));
        contract_release(&d);
    }
}

static void check_reduce(trial_t *t)
{
    const uint8_t *list[PEERS];
    size_t lengths[PEERS], wide = 4 * t->count, skip = t->number % 2;
    float *residual = at_end(wide, 4 * t->odd), *kept = at_end(wide, 0);
    if (t->count) {
        memcpy(residual, t->data.residual, wide);
        memcpy(kept, t->data.residual, wide);
    }
    fill_payloads(t);
    for (size_t k = 0; k < PEERS; k++) {
        list[k] = t->payload[k] + (skip ? 0 : k);
        lengths[k] = t->lengths[k] + skip;
        if (skip) /* payloads behind a byte to skip: all lie at 1 */
            memmove(t->payload[k] + 1, t->payload[k] + k, t->lengths[k]);
        must(t, "indexing",
             gw__device_index(t->coder, t->wire, t->count, t->payload[k] + (skip ? 1 : k),
                              t->lengths[k]));
    }
    gw_reduce_t in = {.own = t->data.src,
                      .own_dtype = t->src,
                      .payload = list,
                      .length = lengths,
                      .payloads = t->number % (PEERS + 1),
                      .skip = skip,
                      .scale = t->number % 3 ? 0.25f : 1.0f,
                      .wire_dtype = t->wire,
                      .residual = t->ef ? kept : NULL,
                      .count = t->count,
                      .first = 2 * t->coder->family->grain(t->coder),
                      .key = t->number,
                      .shared_key = t->number + 2};
    in.own_at = t->number / 7 % (in.payloads + 1);
    must(t, "reducing on the CPU",
         t->coder->family->reduce
             ? t->coder->family->reduce(t->coder, &in, t->want, t->bytes, &t->length)
             : gw__reduce_slices(t->coder, &in, t->wide, t->want, t->bytes, &t->length));
    size_t poisoned = in.poisoned;
    in.residual = t->ef ? residual : NULL;
    t->result = (gw_cuda_result_t){0};
    must(t, "reducing", gw__device_reduce(t->queue, t->coder, &in, t->wide, t->got, &t->result));
    same_payload(t, "the sum's payload");
    same(t, "the sum's residual", residual, kept, t->ef ? wide : 0);
    ck_assert_uint_eq(t->result.poisoned, poisoned);
    ck_assert_uint_eq(t->result.invalid, 0);
    release(residual, 4 * t->odd);
    release(kept, 0);
}

/* ---- All of them --------------------------------------------------------------------------------
 */

/* Elements that a conversion would change, and runs of zeros. */
static void plant(trial_t *t)
{
    uint16_t *half = t->data.src;
    size_t element = gw__element_bytes(t->src), run = t->number % 4 ? 64 : 700;
    if (element == 2 && t->count && t->number % 5 == 0)
        half[t->number % t->count] = t->src == GW_BF16 ? 0x7F81 : 0x7C01; /* a signalling NaN */
    for (size_t i = run; i < t->count && t->number % 3 && !gw__device_is_fixed(t->coder); i += run)
        if (i / run % (t->number % 7 + 2))
            memset((uint8_t *)t->data.src + i * element, 0,
                   (t->count - i < run ? t->count - i : run) * element);
}

static void run(trial_t *t)
{
    size_t fills = 0, room = gw__device_room(t->coder, t->wire, t->count);
    uint8_t *scratch;
    while (contract_fill_name(fills))
        fills++;
    t->bytes = t->coder->family->bound(t->coder, t->wire, t->count);
    t->data = contract_make(t->src, t->wire, t->count, t->number % fills, t->number);
    plant(t);
    size_t slice = gw__reduce_slice(t->coder);
    t->wide = at_end(4 * (slice > t->count ? slice : t->count), 0);
    scratch = at_end(gw__device_scratch(t->coder, t->count), 0);
    t->queue->scratch = scratch;
    t->want = at_end(room, 0);
    t->got = at_end(t->bytes, 0);
    for (size_t k = 0; k < PEERS; k++)
        t->payload[k] = at_end(room + PEERS, 0);
    check_encode(t);
    check_decode(t, GW_DECODE_STORE, GW_F32);
    check_decode(t, GW_DECODE_ADD, GW_F32);
    check_decode(t, GW_DECODE_STORE, t->wire);
    if (gw__device_is_fixed(t->coder))
        check_reduce(t);
    for (size_t k = 0; k < PEERS; k++)
        release(t->payload[k], 0);
    t->queue->scratch = NULL;
    release(scratch, 0);
    release(t->got, 0);
    release(t->want, 0);
    release(t->wide, 0);
    contract_release(&t->data);
}

START_TEST(device_gives_what_the_processor_gives)
{
    static const gw_dtype_t types[][2] = {
        {GW_F32, GW_F32}, {GW_F16, GW_F16}, {GW_BF16, GW_BF16}, {GW_F32, GW_BF16}};
    static gw_coder_t coders[VARIANTS];
    const gw_codec_t *family = gw_codec_at((size_t)_i);
    gw_cuda_queue_t *queue = cuda_queue();
    if (!gw__codec_device(family))
        return;
    if (!queue) {
        gw_test_skip(family->family, "nothing is linked that runs CUDA source");
        return;
    }
    size_t n = contract_variants(family, coders, VARIANTS);
    for (size_t number = 0; number < n * COUNTS * 4; number += STEP) {
        size_t v = number / 4 / COUNTS, d = number % 4, count = counts[number / 4 % COUNTS];
        if (!gw__device_serves(&coders[v]) || (count > 513 && gw__device_is_fixed(&coders[v])))
            continue;
        trial_t t = {.coder = &coders[v],
                     .src = types[d][0],
                     .wire = types[d][1],
                     .count = count,
                     .odd = number % 5,
                     .number = number + v,
                     .ef = family->flags & GW_CODEC_FEEDBACK && number % 3,
                     .queue = queue};
        queue->block = number % 2 ? 64 : 0;
        queue->blocks = number % 4 ? 0 : 3;
        run(&t);
    }
    ck_assert_uint_gt(n, 0);
}
END_TEST

/* ---- Payloads that are damaged ------------------------------------------------------------------
 */

/* The device says that a payload is not valid where the processor does, whatever its bits are, and
 * touches nothing outside of what it was given. */
static void check_damaged(const gw_coder_t *coder, gw_cuda_queue_t *queue, size_t count,
                          uint64_t seed)
{
    size_t bytes = coder->family->bound(coder, GW_F32, count), length;
    uint8_t *payload = at_end(gw__device_room(coder, GW_F32, count), 0),
            *scratch = at_end(gw__device_scratch(coder, count), 0);
    float *dst = at_end(4 * count, 0), *want = at_end(4 * count, 0);
    contract_data_t data = contract_make(GW_F32, GW_F32, count, seed % 3, seed);
    gw_encode_t in = {.src = data.src, .src_dtype = GW_F32, .wire_dtype = GW_F32, .count = count};
    gw_status_t status = coder->family->encode(coder, &in, payload, bytes, &length);
    ck_assert_int_eq(status, GW_OK);
    for (uint64_t flips = gw_test_random(&seed) % 3 + 1; flips > 0; flips--) {
        size_t near = gw_test_random(&seed) % 2 ? length : 12;
        payload[gw_test_random(&seed) % (near < length ? near : length)] ^=
            (uint8_t)(1u << gw_test_random(&seed) % 8);
    }
    gw_decode_t io = {.payload = payload,
                      .length = length,
                      .wire_dtype = GW_F32,
                      .count = count,
                      .dst = want,
                      .dst_dtype = GW_F32};
    gw_cuda_result_t result = {0};
    status = coder->family->decode(coder, &io);
    io.dst = dst;
    queue->scratch = scratch;
    bool refused = gw__device_index(coder, GW_F32, count, payload, length) != GW_OK;
    if (!refused)
        ck_assert_int_eq(gw__device_decode(queue, coder, &io, NULL, &result), GW_OK);
    queue->scratch = NULL;
    refused |= result.invalid != 0;
    gw_check((status != GW_OK) == refused, "%s, %zu elements: %s, and %u invalid", coder->spec,
             count, gw_status_name(status), result.invalid);
    gw_check(status || !memcmp(dst, want, 4 * count), "%s: other elements", coder->spec);
    contract_release(&data);
    release(payload, 0);
    release(scratch, 0);
    release(dst, 0);
    release(want, 0);
}

START_TEST(damaged_payloads_are_told)
{
    static gw_coder_t coders[VARIANTS];
    const gw_codec_t *family = gw_codec_at((size_t)_i);
    gw_cuda_queue_t *queue = cuda_queue();
    if (!queue || !gw__codec_device(family))
        return;
    size_t n = contract_variants(family, coders, VARIANTS);
    queue->block = queue->blocks = 0;
    for (size_t v = 0; v < n; v++)
        for (uint64_t seed = 0; seed < 24 / STEP + 1 && gw__device_serves(&coders[v]); seed++)
            check_damaged(&coders[v], queue, seed % 2 ? 600 : 150, seed * 1000 + v);
}
END_TEST

/* ---- What is refused ----------------------------------------------------------------------------
 */

static size_t launches;
static gw_status_t counts_only(gw_cuda_queue_t *queue, const char *kernel, unsigned grid,
                               unsigned block, unsigned shared, void **args)
{
    launches++;
    return GW_ERR_DEVICE;
}

START_TEST(others_are_not_served)
{
    const char *names[] = {"raw", "q4",      "fp16",    "fp8e4m3", "mxfp4", "sign",
                           "q4r", "natural", "randomk", "topk",    "block"};
    gw_cuda_queue_t queue = {.launch = counts_only};
    gw_coder_t coder;
    size_t served = 0;
    const gw_codec_t *family;
    for (size_t i = 0; (family = gw_codec_at(i)); i++)
        served += gw__codec_device(family) != NULL;
    ck_assert_uint_eq(served, sizeof names / sizeof *names);
    for (size_t i = 0; i < served; i++) {
        ck_assert_int_eq(gw_coder_parse(names[i], &coder, NULL, 0), GW_OK);
        ck_assert_ptr_nonnull(gw__codec_device(coder.family));
    }
    launches = 0;
    ck_assert_int_eq(gw_coder_parse("topk+q8", &coder, NULL, 0), GW_OK);
    gw_encode_t in = {.src_dtype = GW_F32, .wire_dtype = GW_F32, .count = 9};
    ck_assert_int_eq(gw__device_encode(&queue, &coder, &in, NULL, NULL, NULL), GW_ERR_UNSUPPORTED);
    ck_assert_uint_eq(launches, 0);
}
END_TEST

START_TEST(nothing_is_launched_for_what_is_refused_or_empty)
{
    gw_cuda_queue_t queue = {.launch = counts_only};
    gw_coder_t coder;
    float momentum;
    const uint8_t *payload[1] = {NULL};
    size_t length[1] = {0};
    ck_assert_int_eq(gw_coder_parse("q4", &coder, NULL, 0), GW_OK);
    gw_encode_t in = {.src_dtype = GW_F64, .wire_dtype = GW_F32, .count = 9};
    gw_decode_t io = {.dst_dtype = GW_F32, .wire_dtype = GW_F32, .count = 9, .length = 3};
    gw_reduce_t sum = {.payload = payload, .length = length, .payloads = 1, .count = 9};
    launches = 0;
#define encodes gw__device_encode(&queue, &coder, &in, NULL, NULL, NULL)
#define decodes gw__device_decode(&queue, &coder, &io, NULL, NULL)
#define reduces gw__device_reduce(&queue, &coder, &sum, NULL, NULL, NULL)
    ck_assert_int_eq(encodes, GW_ERR_UNSUPPORTED);
    in.src_dtype = GW_F32;
    in.first = 1;
    ck_assert_int_eq(encodes, GW_ERR_INVALID);
    in.first = 0;
    in.momentum = &momentum;
    ck_assert_int_eq(encodes, GW_ERR_UNSUPPORTED);
    in.momentum = NULL;
    in.count = 0;
    ck_assert_int_eq(encodes, GW_OK);
    ck_assert_int_eq(decodes, GW_ERR_FRAME_LENGTH);
    io.mode = GW_DECODE_ADD;
    io.dst_dtype = GW_F16;
    ck_assert_int_eq(decodes, GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(reduces, GW_ERR_FRAME_LENGTH);
    sum.own_at = 2;
    ck_assert_int_eq(reduces, GW_ERR_INVALID);
    ck_assert_int_eq(gw_coder_parse("block", &coder, NULL, 0), GW_OK);
    sum.own_at = 0;
    queue.scratch = length;
    ck_assert_int_eq(reduces, GW_ERR_UNSUPPORTED);
    queue.scratch = NULL;
    ck_assert_int_eq(gw_coder_parse("q4", &coder, NULL, 0), GW_OK);
    ck_assert_uint_eq(launches, 0);
    in.count = 9;
    ck_assert_int_eq(encodes, GW_ERR_DEVICE);
    ck_assert_uint_eq(launches, 1);
}
END_TEST

START_TEST(scratch_that_is_missing_is_refused)
{
    gw_cuda_queue_t queue = {.launch = counts_only};
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("q4", &coder, NULL, 0), GW_OK);
    ck_assert_uint_eq(gw__device_scratch(&coder, 1000), 0);
    ck_assert_int_eq(gw_coder_parse("lossless", &coder, NULL, 0), GW_OK);
    ck_assert_uint_eq(gw__device_scratch(&coder, 1000), 0); /* is not served */
    ck_assert_int_eq(gw_coder_parse("randomk:block=64", &coder, NULL, 0), GW_OK);
    ck_assert_uint_eq(gw__device_scratch(&coder, 0), 0);
    ck_assert_uint_eq(gw__device_scratch(&coder, 64), 4);
    ck_assert_uint_eq(gw__device_scratch(&coder, 65), 8);
    size_t bytes = coder.family->bound(&coder, GW_F32, 9);
    gw_encode_t in = {.src_dtype = GW_F32, .wire_dtype = GW_F32, .count = 9};
    gw_decode_t io = {.dst_dtype = GW_F32, .wire_dtype = GW_F32, .count = 9, .length = bytes};
    gw_reduce_t sum = {.own_dtype = GW_F32, .wire_dtype = GW_F32, .scale = 1.0f, .count = 9};
    launches = 0;
    ck_assert_int_eq(encodes, GW_ERR_INVALID);
    ck_assert_int_eq(decodes, GW_ERR_INVALID);
    ck_assert_int_eq(reduces, GW_ERR_INVALID);
    ck_assert_uint_eq(launches, 0);
    queue.scratch = &bytes;
    ck_assert_int_eq(encodes, GW_ERR_DEVICE);
    ck_assert_uint_eq(launches, 1);
    queue.scratch = NULL;
    in.count = 0;
    ck_assert_int_eq(encodes, GW_OK);
    ck_assert_uint_eq(launches, 1);
}
END_TEST

/* ---- Copies -------------------------------------------------------------------------------------
 */

START_TEST(copies_are_exact_at_any_address)
{
    gw_cuda_queue_t *queue = cuda_queue();
    uint64_t seed = (uint64_t)_i;
    if (!queue)
        return;
    for (size_t bytes = 0; bytes < 150; bytes += bytes < 40 ? 1 : 7) {
        size_t from = gw_test_random(&seed) % 17, to = _i % 2 ? from : gw_test_random(&seed) % 17;
        uint8_t *src = at_end(bytes, from), *dst = at_end(bytes + 1, to);
        for (size_t i = 0; i < bytes; i++)
            src[i] = (uint8_t)gw_test_random(&seed);
        queue->block = 32u << _i % 4;
        queue->blocks = (unsigned)_i % 3;
        ck_assert_int_eq(gw__cuda_sum.copy(queue, dst, src, bytes), GW_OK);
        gw_check(!memcmp(dst, src, bytes) && dst[bytes] == 0xA5, "%zu bytes from %zu to %zu", bytes,
                 from, to);
        release(src, from);
        release(dst, to);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("codecs on the device");
    TCase *t = tcase_create("device_ops"), *copies = tcase_create("copies");
    int families = 0;
    while (gw_codec_at((size_t)families))
        families++;
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, device_gives_what_the_processor_gives, 0, families);
    tcase_add_loop_test(t, damaged_payloads_are_told, 0, families);
    tcase_add_test(t, others_are_not_served);
    tcase_add_test(t, nothing_is_launched_for_what_is_refused_or_empty);
    tcase_add_test(t, scratch_that_is_missing_is_refused);
    tcase_add_loop_test(copies, copies_are_exact_at_any_address, 0, 12);
    suite_add_tcase(s, t);
    suite_add_tcase(s, copies);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
