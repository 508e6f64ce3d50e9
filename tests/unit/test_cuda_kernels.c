/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels give the bytes of kernels/ref in every shape of launch, and stay within payloads
 * that nobody has checked. */
#include "gw_test.h"

#include <stdlib.h>
#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "cuda_queue.h"
#include "cuda_table.h"
#include "kernel_check.h"
#include "sparse.h"

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
    gw_rotate_spec_t rotate;
    gw_natural_spec_t natural;
    size_t bucket;                 /* elements */
    size_t bytes, stride, buckets; /* of a payload; from one bucket to the next */
    uint8_t *payload;              /* its end is that of an allocation */
    float *dst, *want;
} case_t;

enum { SIGN = 8, E4M3, E5M2, MXFP4, NVFP4, ROTATE, POWERS, LEVELS, CODED };

static case_t case_of(unsigned family)
{
    return (case_t){
        .family = family,
        .quant = {family + 1, BUCKET, false, true},
        .sign = {BUCKET},
        .floats = {(gw_float_format_t)(GW_FLOAT_E4M3 + family - E4M3), BUCKET},
        .rotate = {5, 128, 3, false},
        .natural = {family == POWERS ? GW_NATURAL_POWERS : GW_NATURAL_MOST, 3, BUCKET, false, 0},
        .bucket = family == ROTATE ? 128 : BUCKET};
}

static size_t size_of(const case_t *c, size_t n)
{
    if (c->family < SIGN)
        return gw__quant_bytes(c->quant.bits, n);
    if (c->family == SIGN)
        return gw__sign_bytes(n);
    if (c->family == ROTATE)
        return gw__rotate_bytes(c->rotate.bits, n);
    return c->family > ROTATE ? gw__natural_bytes(&c->natural, n) : gw__float_bytes(&c->floats, n);
}

/* One bucket by ref, if it is valid. */
#define BY_REF(name, spec)                                                                         \
    bool valid = ref->name.valid(spec, at, n);                                                     \
    if (valid)                                                                                     \
        (add ? ref->name.add : ref->name.store)(spec, at, n, dst);                                 \
    return valid

static bool decode_by_ref(const case_t *c, const uint8_t *at, size_t n, bool add, float *dst)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    if (c->family < SIGN) {
        BY_REF(quant, &c->quant);
    } else if (c->family == SIGN) {
        BY_REF(sign, &c->sign);
    } else if (c->family < MXFP4) {
        BY_REF(fp8, &c->floats);
    } else if (c->family < ROTATE) {
        BY_REF(fp4, &c->floats);
    } else if (c->family == ROTATE) {
        BY_REF(rotate, &c->rotate);
    } else {
        BY_REF(natural, &c->natural);
    }
}

#define BY_CUDA(name, spec)                                                                        \
    (add ? gw__cuda_##name.add : gw__cuda_##name.store)(q, spec, c->payload, COUNT, c->dst, result)

static gw_status_t decode_by_cuda(const case_t *c, gw_cuda_queue_t *q, bool add,
                                  gw_cuda_result_t *result)
{
    if (c->family < SIGN)
        return BY_CUDA(quant, &c->quant);
    if (c->family == SIGN)
        return BY_CUDA(sign, &c->sign);
    if (c->family < MXFP4)
        return BY_CUDA(fp8, &c->floats);
    if (c->family < ROTATE)
        return BY_CUDA(fp4, &c->floats);
    return c->family == ROTATE ? BY_CUDA(rotate, &c->rotate) : BY_CUDA(natural, &c->natural);
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
    c->stride = size_of(c, c->bucket);
    c->bytes = COUNT / c->bucket * c->stride + size_of(c, COUNT % c->bucket);
    c->buckets = (COUNT + c->bucket - 1) / c->bucket;
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
    gw_cuda_result_t result = {0};
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    if (!q)
        return;
    start(&c, &seed);
    for (size_t k = 0; k < c.buckets; k++) {
        size_t at = k * c.bucket, n = COUNT - at < c.bucket ? COUNT - at : c.bucket;
        invalid += !decode_by_ref(&c, c.payload + k * c.stride, n, add, c.want + at);
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
    gw_cuda_result_t result = {0};
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

/* ---- Sums of rotated blocks: the CPU has no kernel of its own for them --------------------------
 */

typedef struct sum_case {
    gw_rotate_spec_t spec;
    size_t count, bytes, stride; /* bytes: of a payload */
    uint8_t *payload[PEERS], *out, *want;
    float *own, *residual, *kept;
    gw_quant_sum_t sum;
} sum_case_t;

static size_t rotated_bytes(const gw_rotate_spec_t *spec, size_t count)
{
    size_t tail = count % spec->block;
    return count / spec->block * gw__rotate_bytes(spec->bits, spec->block) +
           (tail ? gw__rotate_bytes(spec->bits, tail) : 0);
}

/* Payloads of any data, at odd addresses, of up to PEERS ranks. */
static sum_case_t sum_case(unsigned number, const uint8_t **list, uint64_t *seed)
{
    static const unsigned blocks[] = {64, 512, 128, 4096, 1024};
    sum_case_t c = {.spec = {number % 8 + 1, blocks[number / 8 % 5], number % 3, number % 2}};
    c.count = c.spec.block > 1000 ? 5000 + gw_test_random(seed) % 50
                                  : gw_test_random(seed) % (4 * c.spec.block) + 1;
    c.bytes = rotated_bytes(&c.spec, c.count);
    c.stride = gw__rotate_bytes(c.spec.bits, c.spec.block);
    c.own = malloc(4 * c.count);
    c.residual = malloc(4 * c.count);
    c.kept = malloc(4 * c.count);
    c.out = calloc(1, c.bytes);
    c.want = calloc(1, c.bytes);
    for (size_t k = 0; k < PEERS; k++) {
        test_fill((test_fill_t)(number % 4 ? FILL_NORMAL : gw_test_random(seed) % FILL_COUNT),
                  gw_test_random(seed), c.own, c.count);
        c.payload[k] = malloc(c.bytes + k);
        gw__kernels_of("ref")->rotate.encode(&c.spec, c.own, NULL, c.count, c.payload[k] + k);
        list[k] = c.payload[k] + k;
    }
    test_fill(FILL_NORMAL, gw_test_random(seed), c.own, c.count);
    for (size_t i = 0; i < c.count; i++)
        c.residual[i] = c.kept[i] = 0.1f * c.own[c.count - 1 - i];
    c.sum = (gw_quant_sum_t){.own = c.own,
                             .payload = list,
                             .payloads = gw_test_random(seed) % (PEERS + 1),
                             .scale = number % 3 ? 0.25f : 1.0f};
    c.sum.own_at = gw_test_random(seed) % (c.sum.payloads + 1);
    return c;
}

static void sum_end(sum_case_t *c)
{
    for (size_t k = 0; k < PEERS; k++)
        free(c->payload[k]);
    free(c->own);
    free(c->residual);
    free(c->kept);
    free(c->out);
    free(c->want);
}

/* As codecs/reduce.c does it, out of the kernels of ref; returns the poisoned blocks. */
static size_t sum_by_ref(sum_case_t *c, float *kept)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    float *x = malloc(4 * c->count);
    for (size_t k = 0; k <= c->sum.payloads; k++) {
        if (k == c->sum.own_at && k)
            ref->sum.add(x, c->own, c->count);
        else if (k == c->sum.own_at)
            memcpy(x, c->own, 4 * c->count);
        if (k < c->sum.payloads)
            (k || c->sum.own_at == 0 ? ref->rotate.add
                                     : ref->rotate.store)(&c->spec, c->sum.payload[k], c->count, x);
    }
    if (c->sum.scale != 1.0f)
        ref->sum.scale(x, c->sum.scale, c->count);
    size_t poisoned = ref->rotate.encode(&c->spec, x, kept, c->count, c->want);
    free(x);
    return poisoned;
}

START_TEST(rotated_sums_are_those_of_decoding_adding_and_encoding)
{
    uint64_t seed = (uint64_t)_i + 3;
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0};
    const uint8_t *list[PEERS];
    bool ef = _i % 5 != 0;
    if (!q)
        return;
    sum_case_t c = sum_case((unsigned)_i, list, &seed);
    size_t poisoned = sum_by_ref(&c, ef ? c.kept : NULL);
    ck_assert_int_eq(
        gw__cuda_rotate.reduce(q, &c.spec, &c.sum, ef ? c.residual : NULL, c.count, c.out, &result),
        GW_OK);
    ck_assert_uint_eq(result.poisoned, poisoned);
    ck_assert_uint_eq(result.invalid, 0);
    ck_assert_int_eq(memcmp(c.out, c.want, c.bytes), 0);
    ck_assert_int_eq(memcmp(c.residual, c.kept, 4 * c.count), 0);
    sum_end(&c);
}
END_TEST

/* As for quant above. */
START_TEST(rotated_sums_name_the_payload_that_is_not_valid)
{
    uint64_t seed = (uint64_t)_i + 11;
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0};
    const uint8_t *list[PEERS];
    if (!q)
        return;
    sum_case_t c = sum_case((unsigned)_i, list, &seed);
    c.sum.payloads = PEERS;
    size_t poisoned = sum_by_ref(&c, c.kept), blocks = (c.count - 1) / c.spec.block + 1;
    size_t who = gw_test_random(&seed) % PEERS, where = gw_test_random(&seed) % blocks;
    size_t at = where * c.spec.block, n = c.count - at < c.spec.block ? c.count - at : c.spec.block;
    uint8_t *out = c.want + where * c.stride;
    gw__store32(c.payload[who] + who + where * c.stride, 0x80000000u);
    poisoned -= gw__load32(out) == GW_NAN_BITS;
    memset(out, 0, gw__rotate_bytes(c.spec.bits, n));
    gw__store32(out, GW_NAN_BITS);
    memcpy(c.kept + at, c.residual + at, 4 * n);
    gw__cuda_rotate.reduce(q, &c.spec, &c.sum, c.residual, c.count, c.out, &result);
    ck_assert_uint_eq(result.invalid, PEERS - who);
    ck_assert_uint_eq(result.poisoned, poisoned);
    ck_assert_int_eq(memcmp(c.out, c.want, c.bytes), 0);
    ck_assert_int_eq(memcmp(c.residual, c.kept, 4 * c.count), 0);
    sum_end(&c);
}
END_TEST

/* ---- randomk: what the codec does on the CPU ----------------------------------------------------
 */

typedef struct places_case {
    gw_coder_t coder;
    gw_randomk_spec_t spec;
    gw_dtype_t wire;
    size_t count, bytes, blocks;
    uint64_t first, key;
    bool ef;
    float *src, *residual, *kept;
    uint8_t *out, *want, *room; /* out: at any address of room */
    uint32_t *marks;
} places_case_t;

static places_case_t places_case(unsigned number, uint64_t *seed)
{
    static const char *const ratios[] = {"0.01", "0.5", "0.13", "0.000001"};
    static const gw_dtype_t wires[] = {GW_F32, GW_F16, GW_BF16};
    places_case_t c = {.wire = wires[number % 3], .ef = number % 5 > 0};
    char text[200], why[200] = "";
    unsigned block = 64u << gw_test_random(seed) % 7, halves = number / 3 % 2;
    bool scale = number % 4 == 3;
    snprintf(text, sizeof text, "randomk:ratio=%s,block=%u,seed=%u,values=%s,scale=%s,force=1",
             ratios[number / 6 % 4], block, number % 7, halves ? "wire" : "fp32",
             scale ? "on" : "off");
    if (gw_coder_parse(text, &c.coder, why, sizeof why))
        ck_abort_msg("%s: %s", text, why);
    c.spec = (gw_randomk_spec_t){block, gw__ratio_fixed(strtod(ratios[number / 6 % 4], NULL)),
                                 halves ? c.wire : GW_F32, number % 7, scale};
    c.count = gw_test_random(seed) % (5 * block) + 1;
    c.first = gw_test_random(seed) % 9 * block;
    c.key = gw_test_random(seed);
    c.bytes = c.coder.family->bound(&c.coder, c.wire, c.count);
    c.blocks = (c.count + block - 1) / block;
    c.src = malloc(4 * c.count);
    c.residual = malloc(4 * c.count);
    c.kept = malloc(4 * c.count);
    c.want = malloc(c.bytes);
    c.room = malloc(c.bytes + number % 9);
    c.out = c.room + number % 9;
    c.marks = calloc(c.blocks, sizeof *c.marks);
    test_fill((test_fill_t)(gw_test_random(seed) % FILL_COUNT), gw_test_random(seed), c.src,
              c.count);
    test_fill(FILL_NORMAL, gw_test_random(seed), c.residual, c.count);
    memcpy(c.kept, c.residual, 4 * c.count);
    return c;
}

static void places_end(places_case_t *c)
{
    free(c->src);
    free(c->residual);
    free(c->kept);
    free(c->want);
    free(c->room);
    free(c->marks);
}

static void encode_by_codec(places_case_t *c, size_t *poisoned)
{
    size_t length;
    gw_encode_t in = {.src = c->src,
                      .wire_dtype = c->wire,
                      .residual = c->ef ? c->kept : NULL,
                      .count = c->count,
                      .first = c->first,
                      .shared_key = c->key};
    gw__kernels_select("ref", NULL, 0);
    ck_assert_int_eq(c->coder.family->encode(&c->coder, &in, c->want, c->bytes, &length), GW_OK);
    ck_assert_uint_eq(length, c->bytes);
    *poisoned = in.poisoned;
}

START_TEST(randomk_encodes_as_the_codec)
{
    uint64_t seed = (uint64_t)_i + 21;
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0};
    size_t poisoned;
    if (!q)
        return;
    places_case_t c = places_case((unsigned)_i, &seed);
    encode_by_codec(&c, &poisoned);
    ck_assert_int_eq(gw__cuda_randomk.encode(q, &c.spec, c.src, c.ef ? c.residual : NULL, c.count,
                                             c.first, c.key, c.out, c.marks, &result),
                     GW_OK);
    ck_assert_uint_eq(result.poisoned, poisoned);
    ck_assert_int_eq(memcmp(c.out, c.want, c.bytes), 0);
    ck_assert_int_eq(memcmp(c.residual, c.kept, 4 * c.count), 0);
    places_end(&c);
}
END_TEST

/* Any header; a value behind a poisoned one, or none, as chance wills. Decodes each block by the
 * codec, which refuses those that are not valid. */
START_TEST(randomk_decodes_as_the_codec)
{
    uint64_t seed = (uint64_t)_i + 31;
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0};
    size_t poisoned, invalid = 0;
    bool add = _i % 2;
    if (!q)
        return;
    places_case_t c = places_case((unsigned)_i, &seed);
    size_t stride = gw__randomk_bytes(&c.spec, c.spec.block);
    encode_by_codec(&c, &poisoned);
    memcpy(c.out, c.want, c.bytes);
    for (size_t i = 0; i < c.count; i += 3) /* any other NaN becomes the one */
        c.residual[i] = gw__float_of(0x7FC12345u);
    for (size_t b = 0; b < c.blocks; b++) {
        size_t at = b * c.spec.block, n = c.count - at < c.spec.block ? c.count - at : c.spec.block;
        size_t bytes = gw__randomk_bytes(&c.spec, n);
        uint8_t *block = c.out + b * stride;
        uint64_t dice = gw_test_random(&seed);
        if (dice % 4 == 0)
            gw__store32(block, gw__load32(block) | GW_RANDOMK_POISON);
        if (dice % 8 == 0)
            memset(block + 4, 0, bytes - 4);
        gw_decode_t io = {.payload = block,
                          .length = bytes,
                          .wire_dtype = c.wire,
                          .count = n,
                          .mode = add ? GW_DECODE_ADD : GW_DECODE_STORE,
                          .dst = c.kept + at};
        memcpy(c.kept + at, c.residual + at, 4 * n);
        invalid += c.coder.family->decode(&c.coder, &io) != GW_OK;
    }
    memset(c.marks, 0xAB, 4 * c.blocks);
    ck_assert_int_eq((add ? gw__cuda_randomk.add : gw__cuda_randomk.store)(
                         q, &c.spec, c.out, c.count, c.residual, c.marks, &result),
                     GW_OK);
    ck_assert_uint_eq(result.invalid, invalid);
    ck_assert_int_eq(memcmp(c.residual, c.kept, 4 * c.count), 0);
    places_end(&c);
}
END_TEST

/* Both of the same call; in a third of the cases one of the blocks of one is something else. */
START_TEST(randomk_merges_as_the_codec)
{
    uint64_t seed = (uint64_t)_i + 41;
    gw_cuda_queue_t *q = queue_of((size_t)_i);
    gw_cuda_result_t result = {0};
    size_t poisoned;
    if (!q)
        return;
    places_case_t c = places_case((unsigned)_i, &seed);
    if (c.spec.values != GW_F32) {
        ck_assert_int_eq(gw__cuda_randomk.merge(q, &c.spec, c.want, c.count, c.out, c.marks, NULL),
                         GW_ERR_UNSUPPORTED);
        places_end(&c);
        return;
    }
    size_t stride = gw__randomk_bytes(&c.spec, c.spec.block), odd = c.blocks;
    uint8_t *from = malloc(c.bytes);
    encode_by_codec(&c, &poisoned);
    memcpy(c.out, c.want, c.bytes);
    test_fill(_i % 2 ? FILL_NORMAL : FILL_NAN, seed, c.src, c.count);
    encode_by_codec(&c, &poisoned);
    memcpy(from, c.want, c.bytes);
    memcpy(c.want, c.out, c.bytes);
    if (_i % 3 == 0) {
        odd = gw_test_random(&seed) % c.blocks;
        from[odd * stride] ^= 1;
    }
    for (size_t b = 0; b < c.blocks; b++) {
        size_t at = b * c.spec.block, n = c.count - at < c.spec.block ? c.count - at : c.spec.block;
        size_t bytes = gw__randomk_bytes(&c.spec, n);
        gw_merge_t io = {.from = from + b * stride,
                         .from_length = bytes,
                         .into = c.want + b * stride,
                         .into_length = bytes,
                         .wire_dtype = c.wire,
                         .count = n};
        ck_assert_int_eq(c.coder.family->merge(&c.coder, &io),
                         b == odd ? GW_ERR_FRAME_MISMATCH : GW_OK);
    }
    ck_assert_int_eq(gw__cuda_randomk.merge(q, &c.spec, from, c.count, c.out, c.marks, &result),
                     GW_OK);
    ck_assert_uint_eq(result.invalid, odd < c.blocks);
    ck_assert_int_eq(memcmp(c.out, c.want, c.bytes), 0);
    free(from);
    places_end(&c);
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
    for (unsigned bits = 1; bits <= 8; bits++)
        for (unsigned block = GW_ROTATE_BLOCK_MIN; block <= GW_ROTATE_BLOCK_MAX; block *= 2) {
            gw_rotate_spec_t spec = {bits, block, 0, false};
            ck_assert_int_eq(gw__cuda_rotate.reduce(&q, &spec, &sum, NULL, 9, NULL, NULL),
                             GW_ERR_NO_MEMORY);
        }
    size_t so_far = launches;
    gw_quant_spec_t spec = {4, 512, false, false};
    gw_float_spec_t half = {GW_FLOAT_FP16, 0};
    gw_rotate_spec_t rotated = {4, 512, 0, false};
    ck_assert_int_eq(gw__cuda_quant.add(&q, &spec, NULL, 0, NULL, NULL), GW_OK);
    ck_assert_int_eq(gw__cuda_sum.scale(&q, NULL, 1.0f, 0), GW_OK);
    ck_assert_int_eq(gw__cuda_cast.add(&q, &half, NULL, 0, NULL), GW_OK);
    sum.payloads++;
    ck_assert_int_eq(gw__cuda_quant.reduce(&q, &spec, &sum, NULL, 9, 0, 0, NULL, NULL),
                     GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(gw__cuda_rotate.reduce(&q, &rotated, &sum, NULL, 9, NULL, NULL),
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
    tcase_add_loop_test(t, rotated_sums_are_those_of_decoding_adding_and_encoding, 0, 160);
    tcase_add_loop_test(t, rotated_sums_name_the_payload_that_is_not_valid, 0, 80);
    tcase_add_loop_test(t, randomk_encodes_as_the_codec, 0, 360);
    tcase_add_loop_test(t, randomk_decodes_as_the_codec, 0, 240);
    tcase_add_loop_test(t, randomk_merges_as_the_codec, 0, 120);
    tcase_add_test(t, a_launch_that_fails_is_reported_and_nothing_is_launched_for_nothing);
    tcase_add_test(t, images_are_fat_binaries);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
