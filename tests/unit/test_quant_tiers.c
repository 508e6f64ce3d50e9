/* SPDX-License-Identifier: Apache-2.0 */
/* Every tier of the quant kernels gives the bytes of the reference: one body for all tiers. */
#include "gw_test.h"

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

static const size_t counts[] = {0,  1,   2,   3,   7,   31,  32,  33,   63,   64,  65,
                                96, 255, 256, 511, 512, 513, 544, 1000, 1024, 4097};
enum { COUNTS = sizeof counts / sizeof *counts };

typedef struct shape {
    gw_quant_spec_t spec;
    size_t count;
    bool ef;
    size_t offset; /* of floats, in elements; of the payload, in bytes */
} shape_t;

static size_t payload_bytes(const shape_t *s)
{
    size_t tail = s->count % s->spec.bucket;
    return s->count / s->spec.bucket * gw__quant_bytes(s->spec.bits, s->spec.bucket) +
           (tail ? gw__quant_bytes(s->spec.bits, tail) : 0);
}

/* What one tier makes of one input: payload, residual, stored and added values, poisoned buckets.
 */
typedef struct outcome {
    test_guarded_t payload, residual, stored, added;
    size_t poisoned;
} outcome_t;

static outcome_t run(const gw_kernels_t *tier, const shape_t *s, const float *x,
                     const float *before)
{
    size_t floats = s->count * sizeof(float), skew = s->offset * sizeof(float);
    outcome_t o = {test_guard(payload_bytes(s), s->offset), test_guard(floats, skew),
                   test_guard(floats, skew), test_guard(floats, skew), 0};
    float *residual = (float *)(void *)o.residual.at, *added = (float *)(void *)o.added.at;
    test_guarded_t src = test_guard(floats, skew);
    memcpy(src.at, x, floats);
    memcpy(residual, before, floats);
    memcpy(added, before, floats);
    uint64_t first = 7 * s->spec.bucket;
    o.poisoned = tier->quant.encode(&s->spec, (const float *)(const void *)src.at,
                                    s->ef ? residual : NULL, s->count, first, 99, o.payload.at);
    if (!tier->quant.valid(&s->spec, o.payload.at, s->count))
        ck_abort_msg("%s calls its own payload invalid", tier->tier);
    tier->quant.store(&s->spec, o.payload.at, s->count, (float *)(void *)o.stored.at);
    tier->quant.add(&s->spec, o.payload.at, s->count, added);
    if (memcmp(src.at, x, floats))
        ck_abort_msg("%s wrote to its input", tier->tier);
    test_release(src);
    return o;
}

static void release(outcome_t o)
{
    test_release(o.payload);
    test_release(o.residual);
    test_release(o.stored);
    test_release(o.added);
}

static void compare(const gw_kernels_t *ref, const gw_kernels_t *tier, const shape_t *s,
                    test_fill_t fill, uint64_t seed)
{
    static float x[4097], before[4097];
    test_fill(fill, seed, x, s->count);
    test_fill(FILL_NORMAL, seed + 1, before, s->count);
    if (s->count > 5 && seed % 3 == 0)
        before[s->count / 2] = gw__float_of(0xFFC12345); /* a NaN in what is added to */
    outcome_t a = run(ref, s, x, before), b = run(tier, s, x, before);
    const test_guarded_t *left = &a.payload, *right = &b.payload;
    static const char *const part[] = {"payload", "residual", "stored", "added"};
    for (int i = 0; i < 4; i++)
        if (memcmp(left[i].at, right[i].at, left[i].bytes))
            ck_abort_msg(
                "%s: %s differs: q%u bucket %u count %zu ef %d stochastic %d zero %d fill %d",
                tier->tier, part[i], s->spec.bits, s->spec.bucket, s->count, s->ef,
                s->spec.stochastic, s->spec.zero, fill);
    if (a.poisoned != b.poisoned)
        ck_abort_msg("%s: %zu poisoned buckets, reference %zu", tier->tier, b.poisoned, a.poisoned);
    release(a);
    release(b);
}

static void compare_shapes(const gw_kernels_t *tier, unsigned bits, unsigned bucket)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    uint64_t seed = bits * 1000 + bucket;
    for (int options = 0; options < 8; options++)
        for (int fill = 0; fill < FILL_COUNT; fill++)
            for (int k = 0; k < 3; k++, seed++) {
                shape_t s = {{bits, bucket, options & 1, options >> 1 & 1},
                             counts[seed * 7 % COUNTS],
                             options >> 2,
                             seed % 4};
                compare(ref, tier, &s, (test_fill_t)fill, seed);
            }
}

static const char *const tiers[] = {"avx2", "avx512"};

/* Skips, counted, when the tier cannot run here. */
static const gw_kernels_t *tier_under_test(int i, const char *test)
{
    const gw_kernels_t *tier = gw__kernels_of(tiers[i]);
    if (!tier)
        gw_test_skip(test, "this CPU lacks the tier");
    return tier;
}

START_TEST(tier_gives_the_bytes_of_ref)
{
    const gw_kernels_t *tier = tier_under_test(_i, "tier_gives_the_bytes_of_ref");
    static const unsigned buckets[] = {32, 64, 96, 512, 1024, 4096};
    for (unsigned bits = 1; tier && bits <= 8; bits++)
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++)
            compare_shapes(tier, bits, buckets[b]);
}
END_TEST

/* Every count of the list with every offset, on one setting per width. */
START_TEST(tier_handles_every_tail)
{
    const gw_kernels_t *tier = tier_under_test(_i, "tier_handles_every_tail");
    for (unsigned bits = 1; tier && bits <= 8; bits++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t offset = 0; offset < 4; offset++) {
                shape_t s = {{bits, 64, offset & 1, true}, counts[c], offset > 1, offset};
                compare(gw__kernels_of("ref"), tier, &s, FILL_NORMAL, bits + 10 * offset);
            }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("quant tiers");
    TCase *t = tcase_create("tiers");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, tier_gives_the_bytes_of_ref, 0, sizeof tiers / sizeof *tiers);
    tcase_add_loop_test(t, tier_handles_every_tail, 0, sizeof tiers / sizeof *tiers);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
