/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec family that is listed, one from outside, and many wrong ones, through the contract.
 */
#include "gw_test.h"

#include <string.h>

#include "codecs.h"
#include "contract.h"
#include "kernels.h"
#include "made_codec.h"

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const size_t counts[] = {0, 1, 7, 33, 513};
#else
static const size_t counts[] = {0, 1, 2, 3, 7, 31, 32, 33, 511, 512, 513};
#endif
enum { COUNTS = sizeof counts / sizeof *counts, VARIANTS = 128, LARGE = 65537, LARGEST = 1000003 };

/* Types of the source and of the wire: what a rank pushes, and the binary32 sum that it sends. */
static const struct {
    gw_dtype_t src, wire;
} types[] = {
    {GW_F32, GW_F32}, {GW_F16, GW_F16}, {GW_BF16, GW_BF16}, {GW_F32, GW_F16}, {GW_F32, GW_BF16}};
enum { TYPES = sizeof types / sizeof *types };

static size_t family_count(void)
{
    size_t n = 0;
    while (gw_codec_at(n))
        n++;
    return n;
}

static size_t fill_count(void)
{
    size_t n = 0;
    while (contract_fill_name(n))
        n++;
    return n;
}

static size_t variants_of(const gw_codec_t *family, gw_coder_t *out)
{
    size_t n = contract_variants(family, out, VARIANTS);
    ck_assert_msg(n > 0 && n < VARIANTS, "%s: %zu variants", family->family, n);
    return n;
}

/* One input, through all variants. */
static void check_input(const gw_coder_t *coder, size_t variants, size_t type, size_t count,
                        size_t fill)
{
    contract_report_t report;
    contract_data_t data = contract_make(types[type].src, types[type].wire, count, fill,
                                         count * 100 + fill * 7 + type);
    for (size_t v = 0; v < variants; v++)
        gw_check(contract_check(&coder[v], &data, &report), "%s", report.text);
    contract_release(&data);
}

/* ---- Families -----------------------------------------------------------------------------------
 */

static void check_small(const gw_codec_t *family)
{
    static gw_coder_t coder[VARIANTS];
    size_t variants = variants_of(family, coder), inputs = 0;
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS; c++)
            for (size_t fill = 0; fill < fill_count(); fill++, inputs++)
                check_input(coder, variants, type, counts[c], fill);
    printf("# %s: %zu variants, %zu inputs\n", family->family, variants, inputs);
}

START_TEST(every_family_keeps_the_contract)
{
    check_small(gw_codec_at((size_t)_i));
}
END_TEST

/* Each variant with some of the inputs, each input with some of the variants. */
START_TEST(large_counts_keep_it_too)
{
    static gw_coder_t coder[VARIANTS];
    size_t variants = variants_of(gw_codec_at((size_t)_i), coder);
    for (size_t v = 0; v < variants; v++)
        for (size_t k = 0; k < 3; k++)
            check_input(&coder[v], 1, (v + k) % TYPES, LARGE, (v * 3 + k) % fill_count());
    check_input(coder, 1, 0, LARGEST, fill_count() - 1);
    check_input(coder, 1, 2, LARGEST, 0);
}
END_TEST

START_TEST(every_name_is_a_variant)
{
    static gw_coder_t coder[VARIANTS];
    const gw_codec_t *family = gw_codec_at((size_t)_i);
    size_t variants = variants_of(family, coder);
    for (const char *at = family->names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " "), found = 0;
        for (size_t v = 0; v < variants; v++)
            found += !strncmp(coder[v].spec, at, n) && !coder[v].spec[n];
        ck_assert_msg(found == 1, "%.*s is there %zu times", (int)n, at, found);
        at += n;
    }
}
END_TEST

/* ---- A family from outside ----------------------------------------------------------------------
 */

START_TEST(a_registered_family_keeps_it)
{
    ck_assert_int_eq(gw_codec_register(&made_codec), GW_OK);
    ck_assert_ptr_eq(gw_codec_by_id(made_codec.id), &made_codec);
    check_small(&made_codec);
}
END_TEST

/* Only the parameter table tells what to try: the fallback has to reach both ends of `members`. */
START_TEST(unknown_parameters_are_tried)
{
    gw_coder_t coder[VARIANTS];
    size_t least = 0, most = 0, off = 0;
    ck_assert_int_eq(gw_codec_register(&made_codec), GW_OK);
    size_t variants = variants_of(&made_codec, coder);
    for (size_t v = 0; v < variants; v++) {
        least += gw_coder_get(&coder[v], "members", 0) == 32;
        most += gw_coder_get(&coder[v], "members", 0) == 1024;
        off += gw_coder_get(&coder[v], "ef", 1) == 0;
    }
    ck_assert(least && most && off);
}
END_TEST

/* ---- Wrong families -----------------------------------------------------------------------------
 */

typedef enum fault {
    NOTHING_WRONG,
    SIZES,
    ROOM,
    FAILS,
    SHORT,
    SOURCE,
    OUTSIDE,
    REFUSES,
    COARSE,
    INEXACT,
    INFINITE,
    ERASES,
    SMEARS,
    UNCOUNTED,
    FORGETS,
    CATCHES,
    STORES,
    TWICE,
    SUMS,
    MERGES,
    KEEPS,
    OTHER_TIER,
    ACCEPTS,
    WRITES,
    FIRST_BYTES,
    FIRST_VALUES,
    FACTOR_SIZES, /* from here on of a family that sums factors */
    FACTOR_OUTSIDE,
    FACTOR_UNSEEN,
    FACTOR_ALONE,
    FACTOR_GROWS,
    FACTOR_COARSE,
    FACTOR_INFINITE,
    FACTOR_TIER,
} fault_t;

static fault_t fault; /* of the family below */

static const struct {
    fault_t fault;
    const char *property, *fill;
} wrong[] = {
    {SIZES, "sizes add up", "normal"},
    {ROOM, "no space", "normal"},
    {FAILS, "encodes", "normal"},
    {SHORT, "size", "normal"},
    {SOURCE, "source", "normal"},
    {OUTSIDE, "guard", "normal"},
    {REFUSES, "decodes", "normal"},
    {COARSE, "bound", "normal"},
    {INEXACT, "exact", "normal"},
    {INFINITE, "finite", "FLT_MAX"},
    {ERASES, "poison", "few not finite"},
    {SMEARS, "spread", "few not finite"},
    {UNCOUNTED, "counted", "few not finite"},
    {FORGETS, "residual", "normal"},
    {CATCHES, "residual NaN", "few not finite"},
    {STORES, "added", "normal"},
    {TWICE, "half", "normal"},
    {SUMS, "reduced", "normal"},
    {MERGES, "merged", "normal"},
    {KEEPS, "momentum", "normal"},
    {OTHER_TIER, "tiers", "normal"},
    {ACCEPTS, "refused", "normal"},
    {WRITES, "untouched", "normal"},
    {FIRST_BYTES, "pieces", "normal"},
    {FIRST_VALUES, "slice", "normal"},
    {FACTOR_SIZES, "factor sizes", "normal"},
    {FACTOR_OUTSIDE, "factor guard", "normal"},
    {FACTOR_UNSEEN, "factor poison", "few not finite"},
    {FACTOR_ALONE, "factor replicas", "normal"},
    {FACTOR_GROWS, "factor residual", "normal"},
    {FACTOR_COARSE, "factor bound", "normal"},
    {FACTOR_INFINITE, "factor finite", "FLT_MAX"},
    {FACTOR_TIER, "factor tiers", "normal"},
};
enum { WRONG = sizeof wrong / sizeof *wrong };

static bool wrong_match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "wrong");
}

static void wrong_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "wrong");
}

static size_t wrong_bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return made_codec.bound(coder, wire_dtype, count) + (fault == SIZES && count > 100);
}

static gw_status_t wrong_encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst,
                                size_t capacity, size_t *length)
{
    if (fault == FAILS && capacity == made_codec.bound(coder, in->wire_dtype, in->count))
        return GW_ERR_INVALID;
    if (fault == ROOM && capacity < made_codec.bound(coder, in->wire_dtype, in->count))
        dst[0] = 1;
    gw_status_t status = made_codec.encode(coder, in, dst, capacity, length);
    if (status)
        return status;
    if (fault == SHORT)
        --*length;
    if (fault == SOURCE)
        memset((void *)(uintptr_t)in->src, 1, 1);
    if (fault == OUTSIDE)
        dst[*length] ^= 1;
    if (fault == FORGETS && in->residual)
        memset(in->residual, 0, 4);
    if (fault == CATCHES && in->residual && in->poisoned)
        in->residual[in->count - 1] = NAN;
    if (fault == UNCOUNTED)
        in->poisoned = 0;
    bool tier = fault == OTHER_TIER && strcmp(gw__kernels_tier(), "ref") != 0;
    if (tier || (fault == FIRST_BYTES && in->first))
        dst[*length - 1] ^= 1;
    return GW_OK;
}

/* Spoils one decoded element, or many. */
static void spoil(const gw_decode_t *in)
{
    float *y = in->dst;
    uint16_t *half = in->dst;
    bool wide = in->dst_dtype == GW_F32, stored = wide && in->mode == GW_DECODE_STORE;
    for (size_t i = 0; wide && i < in->count; i++) {
        bool nan = isnan(y[i]);
        y[i] = fault == ERASES && nan                        ? 0.0f
               : fault == INFINITE && fabsf(y[i]) > 0x1p126f ? INFINITY
               : fault == COARSE                             ? y[i] * 1.5f
                                                             : y[i];
    }
    if (fault == SMEARS && stored)
        y[in->count - 1] = y[0] = y[in->count / 2] = NAN;
    if (fault == TWICE && !wide)
        half[0] ^= 1;
    if (fault == FIRST_VALUES && in->first && stored)
        y[0] += 1.0f;
}

static gw_status_t wrong_decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw_decode_t io = *in;
    size_t bytes = made_codec.bound(coder, in->wire_dtype, in->count);
    if (fault == REFUSES)
        return GW_ERR_FRAME_PAYLOAD;
    if (fault == ACCEPTS && in->length > bytes)
        io.length = bytes;
    if (fault == WRITES && in->length != bytes)
        memset(in->dst, 0, 4);
    if (fault == STORES && in->dst_dtype == GW_F32)
        io.mode = GW_DECODE_STORE;
    gw_status_t status = made_codec.decode(coder, &io);
    if (status == GW_OK && in->count)
        spoil(in);
    return status;
}

/* Leaves out what the others sent. */
static gw_status_t wrong_reduce(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst,
                                size_t capacity, size_t *length)
{
    gw_encode_t own = {.src = in->own,
                       .src_dtype = in->own_dtype,
                       .wire_dtype = in->wire_dtype,
                       .residual = in->residual,
                       .count = in->count};
    return made_codec.encode(coder, &own, dst, capacity, length);
}

/* Leaves `into` as it is. */
static gw_status_t wrong_merge(const gw_coder_t *coder, gw_merge_t *io)
{
    return GW_OK;
}

/* lowrank's sums, with a fault. A rank without warm state is another one than the others. */
static bool wrong_sizes(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, size_t rows,
                        gw_factor_sizes_t *out)
{
    gw_coder_t lowrank;
    gw_coder_parse("lowrank", &lowrank, NULL, 0);
    bool gains = lowrank.family->factors->sizes(&lowrank, dtype, count, rows, out);
    out->rows -= fault == FACTOR_SIZES;
    return gains;
}

static void wrong_project(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_coder_t lowrank;
    gw_coder_parse("lowrank", &lowrank, NULL, 0);
    lowrank.family->factors->project(&lowrank, io);
    if (fault == FACTOR_OUTSIDE)
        io->first[-1] += 1.0f;
}

static bool wrong_factor(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_coder_t lowrank;
    gw_coder_parse("lowrank", &lowrank, NULL, 0);
    return lowrank.family->factors->factor(&lowrank, io) || fault == FACTOR_UNSEEN;
}

static void wrong_expand(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_coder_t lowrank;
    float *y = io->dst;
    gw_coder_parse("lowrank", &lowrank, NULL, 0);
    lowrank.family->factors->expand(&lowrank, io);
    if (fault == FACTOR_ALONE && !io->warm)
        y[1] += 1.0f;
    if (fault == FACTOR_GROWS && io->residual)
        io->residual[3] += 1000.0f;
    if (fault == FACTOR_COARSE)
        y[2] += 1000.0f;
    if (fault == FACTOR_INFINITE)
        y[2] = INFINITY;
    if (fault == FACTOR_TIER && strcmp(gw__kernels_tier(), "ref") != 0)
        y[2] += 0.001f;
}

static void wrong_factor_bound(const gw_coder_t *coder, const float *x, size_t count, size_t rows,
                               float *bound)
{
    gw_coder_t lowrank;
    gw_coder_parse("lowrank", &lowrank, NULL, 0);
    lowrank.family->factors->error_bound(&lowrank, x, count, rows, bound);
}

static const gw_factor_ops_t wrong_ops = {
    .sizes = wrong_sizes,
    .project = wrong_project,
    .factor = wrong_factor,
    .expand = wrong_expand,
    .error_bound = wrong_factor_bound,
};

static bool always_keeps(const gw_coder_t *coder)
{
    return true;
}

/* Says nothing of the last element. */
static gw_status_t wrong_correct(const gw_coder_t *coder, const gw_encode_t *in, float *out)
{
    gw__widen(in->src_dtype, in->src, out, in->count);
    out[in->count - 1] = 0.0f;
    return GW_OK;
}

/* The family from outside under another name, with one fault at a time. */
static gw_codec_t *wrong_family(void)
{
    static gw_codec_t family;
    family = made_codec;
    family.id = 191;
    family.family = "wrong";
    family.names = "wrong";
    family.match = wrong_match;
    family.name = wrong_name;
    family.bound = wrong_bound;
    family.encode = wrong_encode;
    family.decode = wrong_decode;
    return &family;
}

static size_t fill_named(const char *name)
{
    size_t i = 0;
    while (strcmp(contract_fill_name(i), name) != 0)
        i++;
    return i;
}

/* The property that a fault breaks, by name; NULL: none. */
static const char *verdict(gw_codec_t *family, fault_t what, const char *fill, gw_dtype_t dtype)
{
    gw_coder_t coder;
    contract_report_t report;
    contract_data_t data = contract_make(dtype, dtype, 777, fill_named(fill), 1);
    ck_assert_int_eq(gw_coder_parse("wrong", &coder, NULL, 0), GW_OK);
    fault = what;
    if (what == INEXACT)
        family->flags &= ~(unsigned)GW_CODEC_LOSSY;
    family->reduce = what == SUMS ? wrong_reduce : NULL;
    family->merge = what == MERGES ? wrong_merge : NULL;
    family->factors = &wrong_ops;
    family->keeps_momentum = what == KEEPS ? always_keeps : NULL;
    family->correct = what == KEEPS ? wrong_correct : NULL;
    contract_check(&coder, &data, &report);
    family->flags = made_codec.flags;
    fault = NOTHING_WRONG;
    contract_release(&data);
    return report.property;
}

START_TEST(every_fault_is_named)
{
    gw_codec_t *family = wrong_family();
    ck_assert_int_eq(gw_codec_register(family), GW_OK);
    for (size_t i = 0; i < WRONG; i++) {
        gw_dtype_t dtype = wrong[i].fault == TWICE ? GW_BF16 : GW_F32;
        if (wrong[i].fault == OTHER_TIER && !gw__kernels_available(1)) {
            gw_test_skip("every_fault_is_named", "one tier only");
            continue;
        }
        const char *fine = verdict(family, NOTHING_WRONG, wrong[i].fill, dtype);
        ck_assert_msg(!fine, "without a fault: %s", fine ? fine : "");
        const char *found = verdict(family, wrong[i].fault, wrong[i].fill, dtype);
        ck_assert_msg(found && !strcmp(found, wrong[i].property),
                      "fault %d was named '%s', not '%s'", wrong[i].fault,
                      found ? found : "nothing", wrong[i].property);
    }
}
END_TEST

/* A property without a wrong family would be one that nobody has seen to fail. `position` is the
 * frame's, whose negative cases are in test_frame.c. */
START_TEST(every_property_has_been_seen_to_fail)
{
    for (size_t p = 0; contract_properties[p]; p++) {
        size_t seen = !strcmp(contract_properties[p], "position");
        for (size_t i = 0; i < WRONG; i++)
            seen += !strcmp(contract_properties[p], wrong[i].property);
        ck_assert_msg(seen > 0, "nothing breaks '%s'", contract_properties[p]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("contract");
    TCase *tc = tcase_create("contract");
    tcase_set_timeout(tc, 300);
    int families = (int)family_count();
    tcase_add_loop_test(tc, every_family_keeps_the_contract, 0, families);
    tcase_add_loop_test(tc, large_counts_keep_it_too, 0, families);
    tcase_add_loop_test(tc, every_name_is_a_variant, 0, families);
    tcase_add_test(tc, a_registered_family_keeps_it);
    tcase_add_test(tc, unknown_parameters_are_tried);
    tcase_add_test(tc, every_fault_is_named);
    tcase_add_test(tc, every_property_has_been_seen_to_fail);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
