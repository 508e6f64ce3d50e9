/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels give the bytes of kernels/ref in every shape of launch, and stay within payloads
 * that nobody has checked. */
#include "gw_test.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "cuda_queue.h"
#include "cuda_table.h"
#include "kernel_check.h"

static const unsigned shapes[][2] = {{0, 0},  {32, 1},  {64, 3},   {128, 7},  {1024, 1},
                                     {32, 7}, {256, 3}, {1024, 0}, {64, 200}, {96, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes, SLICE = 37 };

/* AddressSanitizer takes four times as long: every second slice. */
#if defined(__SANITIZE_ADDRESS__)
enum { STEP = 2 * SLICE };
#else
enum { STEP = SLICE };
#endif

static gw_cuda_queue_t *queue_of(size_t shape)
{
    gw_cuda_queue_t *q = cuda_queue();
    if (!q)
        return NULL;
    q->block = shapes[shape % SHAPES][0];
    q->blocks = shapes[shape % SHAPES][1];
    return q;
}

/* ---- The bytes of ref ---------------------------------------------------------------------------
 */

/* The bodies of the other tiers: their data, counts, odd addresses and red zones. Slices of the
 * cases go round the shapes, and come at another one in each round. */
START_TEST(every_kernel_gives_the_bytes_of_ref)
{
    const kernel_body_t *body = &kernel_bodies[_i];
    if (!cuda_table_has(body->name))
        return;
    if (!cuda_queue()) {
        gw_test_skip(body->name, "nothing is linked that runs CUDA source");
        return;
    }
    for (size_t from = 0; from < body->cases; from += STEP) {
        size_t shape = from / STEP, to = from + SLICE < body->cases ? from + SLICE : body->cases;
        const gw_kernels_t *table = cuda_table(queue_of(shape));
        kernel_report_t r = kernel_check(body, gw__kernels_of("ref"), table, from, to);
        if (r.failures)
            ck_abort_msg("block %u, grid %u: %zu of %zu cases failed; first: %s",
                         shapes[shape % SHAPES][0], shapes[shape % SHAPES][1], r.failures, r.cases,
                         r.first);
    }
}
END_TEST

/* ---- Payloads that are not valid ----------------------------------------------------------------
 */

enum { COUNT = 6 * 96 + 13, BUCKET = 96, PAYLOAD = 8 * BUCKET * COUNT / BUCKET + 100, PEERS = 11 };

typedef struct case_t {
    unsigned family; /* below 8: quant of a bit more; then those named below */
    gw_quant_spec_t quant;
    gw_sign_spec_t sign;
    gw_float_spec_t floats;
    size_t bytes, stride, buckets; /* of a payload; from one bucket to the next */
    uint8_t *payload;              /* its end is that of an allocation */
    float *dst, *want;
} case_t;

enum { SIGN = 8, E4M3, E5M2, MXFP4, NVFP4, CODED };

static case_t case_of(unsigned family)
{
    return (case_t){.family = family,
                    .quant = {family + 1, BUCKET, false, true},
                    .sign = {BUCKET},
                    .floats = {(gw_float_format_t)(GW_FLOAT_E4M3 + family - E4M3), BUCKET}};
}

static size_t size_of(const case_t *c, size_t n)
{
    return c->family < SIGN    ? gw__quant_bytes(c->quant.bits, n)
           : c->family == SIGN ? gw__sign_bytes(n)
                               : gw__float_bytes(&c->floats, n);
}

/* One bucket by ref, if it is valid. */
static bool decode_by_ref(const case_t *c, const uint8_t *at, size_t n, bool add, float *dst)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    const gw_float_kernels_t *floats = c->family < MXFP4 ? &ref->fp8 : &ref->fp4;
    bool valid = c->family < SIGN    ? ref->quant.valid(&c->quant, at, n)
                 : c->family == SIGN ? ref->sign.valid(&c->sign, at, n)
                                     : floats->valid(&c->floats, at, n);
    if (valid && c->family < SIGN)
        (add ? ref->quant.add : ref->quant.store)(&c->quant, at, n, dst);
    else if (valid && c->family == SIGN)
        (add ? ref->sign.add : ref->sign.store)(&c->sign, at, n, dst);
    else if (valid)
        (add ? floats->add : floats->store)(&c->floats, at, n, dst);
    return valid;
}

static gw_status_t decode_by_cuda(const case_t *c, gw_cuda_queue_t *q, bool add,
                                  gw_cuda_result_t *result)
{
    if (c->family < SIGN)
        return (add ? gw__cuda_quant.add : gw__cuda_quant.store)(q, &c->quant, c->payload, COUNT,
                                                                 c->dst, result);
    if (c->family == SIGN)
        return (add ? gw__cuda_sign.add : gw__cuda_sign.store)(q, &c->sign, c->payload, COUNT,
                                                               c->dst, result);
    const gw_cuda_float_kernels_t *floats = c->family < MXFP4 ? &gw__cuda_fp8 : &gw__cuda_fp4;
    return (add ? floats->add : floats->store)(q, &c->floats, c->payload, COUNT, c->dst, result);
}

/* Any bytes, or metadata that is valid more often than not. */
static void any_bytes(case_t *c, uint64_t *seed)
{
    for (size_t i = 0; i < c->bytes; i++)
        c->payload[i] = (uint8_t)gw_test_random(seed);
    for (size_t k = 0; k < c->buckets; k++) {
        uint64_t dice = gw_test_random(seed);
        if (dice % 4) {
            gw__store_float(c->payload + k * c->stride, (float)(dice % 9));
            if (k + 1 < c->buckets || c->bytes - k * c->stride > 8)
                gw__store_float(c->payload + k * c->stride + 4, 0.25f);
        }
    }
}

static void start(case_t *c, uint64_t *seed)
{
    c->stride = size_of(c, BUCKET);
    c->bytes = COUNT / BUCKET * c->stride + size_of(c, COUNT % BUCKET);
    c->buckets = (COUNT + BUCKET - 1) / BUCKET;
    c->payload = malloc(c->bytes);
    c->dst = malloc(4 * COUNT);
    c->want = malloc(4 * COUNT);
    for (size_t i = 0; i < COUNT; i++)
        c->dst[i] = c->want[i] = (float)i;
    any_bytes(c, seed);
}

static void end(case_t *c)
{
    free(c->payload);
    free(c->dst);
    free(c->want);
}

/* Each bucket by itself: what ref finds valid it decodes, the others are counted and left. */
START_TEST(buckets_that_are_not_valid_are_left_and_counted)
{
    uint64_t seed = (uint64_t)_i;
    bool add = _i / CODED % 2;
    case_t c = case_of((unsigned)_i % CODED);
    size_t invalid = 0;
    gw_cuda_result_t result = {0, 0};
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    if (!q)
        return;
    start(&c, &seed);
    for (size_t k = 0; k < c.buckets; k++) {
        size_t n = COUNT - k * BUCKET < BUCKET ? COUNT % BUCKET : BUCKET;
        invalid += !decode_by_ref(&c, c.payload + k * c.stride, n, add, c.want + k * BUCKET);
    }
    ck_assert_int_eq(decode_by_cuda(&c, q, add, &result), GW_OK);
    ck_assert_uint_eq(result.invalid, invalid);
    ck_assert_int_eq(memcmp(c.dst, c.want, 4 * COUNT), 0);
    end(&c);
}
END_TEST

/* One payload of several is spoilt in one bucket: that one is named, its bucket is poisoned and
 * keeps its residual, all others are as if nothing were wrong. */
START_TEST(reduce_names_the_payload_that_is_not_valid)
{
    uint64_t seed = (uint64_t)_i + 7;
    const gw_kernels_t *ref = gw__kernels_of("ref");
    gw_quant_spec_t spec = {(unsigned)_i % 8 + 1, BUCKET, false, true};
    static uint8_t payload[PEERS][PAYLOAD], out[PAYLOAD], want[PAYLOAD];
    const uint8_t *list[PEERS];
    float own[COUNT], residual[COUNT], kept[COUNT];
    size_t stride = gw__quant_bytes(spec.bits, BUCKET), refused;
    size_t who = gw_test_random(&seed) % PEERS, where = gw_test_random(&seed) % 7;
    size_t bytes = 6 * stride + gw__quant_bytes(spec.bits, COUNT % BUCKET);
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0, 0};
    if (!q)
        return;
    for (size_t k = 0; k < PEERS; k++) {
        for (size_t i = 0; i < COUNT; i++)
            own[i] = gw_test_normal(&seed);
        ref->quant.encode(&spec, own, NULL, COUNT, 0, 1, payload[k]);
        list[k] = payload[k];
    }
    for (size_t i = 0; i < COUNT; i++)
        residual[i] = kept[i] = 0.1f * own[i];
    gw_quant_sum_t sum = {own, gw_test_random(&seed) % (PEERS + 1), list, PEERS, 0, 0.5f};
    ref->quant.reduce(&spec, &sum, kept, COUNT, 0, 1, want, &refused);
    gw__store32(payload[who] + where * stride + 4, 0x7F800000u);
    size_t n = where < 6 ? BUCKET : COUNT % BUCKET, size = gw__quant_bytes(spec.bits, n);
    memset(want + where * stride, 0, size);
    gw__store32(want + where * stride, GW_NAN_BITS);
    memcpy(kept + where * BUCKET, residual + where * BUCKET, 4 * n);
    gw__cuda_quant.reduce(q, &spec, &sum, residual, COUNT, 0, 1, out, &result);
    ck_assert_uint_eq(result.invalid, PEERS - who);
    ck_assert_uint_eq(result.poisoned, 0);
    ck_assert_int_eq(memcmp(out, want, bytes), 0);
    ck_assert_int_eq(memcmp(residual, kept, sizeof kept), 0);
}
END_TEST

/* ---- Launches -----------------------------------------------------------------------------------
 */

static size_t launches;
static gw_status_t refuses(gw_cuda_queue_t *queue, const char *kernel, unsigned grid,
                           unsigned block, unsigned shared, void **args)
{
    launches++;
    ck_assert_uint_le(shared, GW_CUDA_SHARED_MOST);
    ck_assert_uint_gt(grid, 0);
    ck_assert(block >= 32 && block <= 1024 && block % 32 == 0);
    return GW_ERR_NO_MEMORY;
}

START_TEST(a_launch_that_fails_is_reported_and_nothing_is_launched_for_nothing)
{
    gw_cuda_queue_t q = {.launch = refuses, .block = 1024};
    const uint8_t *list[GW_CUDA_PAYLOADS + 1] = {0};
    gw_quant_sum_t sum = {.payload = list, .payloads = GW_CUDA_PAYLOADS, .scale = 1.0f};
    launches = 0;
    for (unsigned bits = 1; bits <= 8; bits++)
        for (unsigned bucket = 32; bucket <= GW_QUANT_BUCKET_MAX; bucket += 32) {
            gw_quant_spec_t spec = {bits, bucket, false, false};
            ck_assert_int_eq(gw__cuda_quant.encode(&q, &spec, NULL, NULL, 9, 0, 0, NULL, NULL),
                             GW_ERR_NO_MEMORY);
            ck_assert_int_eq(gw__cuda_quant.reduce(&q, &spec, &sum, NULL, 9, 0, 0, NULL, NULL),
                             GW_ERR_NO_MEMORY);
        }
    size_t so_far = launches;
    gw_quant_spec_t spec = {4, 512, false, false};
    gw_float_spec_t half = {GW_FLOAT_FP16, 0};
    ck_assert_int_eq(gw__cuda_quant.add(&q, &spec, NULL, 0, NULL, NULL), GW_OK);
    ck_assert_int_eq(gw__cuda_sum.scale(&q, NULL, 1.0f, 0), GW_OK);
    ck_assert_int_eq(gw__cuda_cast.add(&q, &half, NULL, 0, NULL), GW_OK);
    sum.payloads++;
    ck_assert_int_eq(gw__cuda_quant.reduce(&q, &spec, &sum, NULL, 9, 0, 0, NULL, NULL),
                     GW_ERR_UNSUPPORTED);
    ck_assert_uint_eq(launches, so_far);
}
END_TEST

/* The library holds code for each family, or none at all. */
START_TEST(images_are_fat_binaries)
{
    size_t n = 0;
    for (const gw_cuda_image_t *image; (image = gw__cuda_image(n)); n++) {
        ck_assert_uint_gt((size_t)((const char *)image->end - (const char *)image->data), 1000);
        ck_assert_uint_eq(gw__load32(image->data), 0xBA55ED50u);
    }
    if (!n)
        gw_test_skip("images_are_fat_binaries", "built without nvcc");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("CUDA kernels");
    TCase *t = tcase_create("kernels");
    int bodies = 0;
    while (kernel_bodies[bodies].name)
        bodies++;
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, every_kernel_gives_the_bytes_of_ref, 0, bodies);
    tcase_add_loop_test(t, buckets_that_are_not_valid_are_left_and_counted, 0, 20 * CODED);
    tcase_add_loop_test(t, reduce_names_the_payload_that_is_not_valid, 0, 80);
    tcase_add_test(t, a_launch_that_fails_is_reported_and_nothing_is_launched_for_nothing);
    tcase_add_test(t, images_are_fat_binaries);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
