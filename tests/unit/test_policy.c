/* SPDX-License-Identifier: Apache-2.0 */
/* The decision on one call: every reason, their order, what it may depend on, how it is printed. */
#include <string.h>

#include <gradwire/gradwire.h>

#include "gw_test.h"
#include "policy.h"
#include "context_internal.h"

static gw_context_t *create(const char *name, const char *value)
{
    gw_context_t *context;
    gw_setting_t settings[] = {{name, value}, {"GRADWIRE_LOG", "off"}};
    ck_assert_int_eq(gw_context_create(settings, 2, &context, NULL, 0), GW_OK);
    return context;
}

static const gw_call_t good = {GW_ALLREDUCE, GW_F32, GW_SUM, 1 << 20, NULL, NULL, 0};
static const gw_comm_facts_t four = {.size = 4};

static gw_reason_t reason(const gw_context_t *context, gw_call_t call, gw_comm_facts_t facts)
{
    gw_decision_t d = gw_decide(context, &call, &facts);
    ck_assert_int_eq(d.compress, d.reason == GW_REASON_NONE);
    return d.reason;
}

START_TEST(each_reason_is_given)
{
    gw_context_t *context = create("GRADWIRE_CODEC", "q4");
    static const struct {
        gw_dtype_t dtype;
        gw_op_t op;
        size_t count;
        gw_comm_facts_t facts;
        gw_reason_t reason;
    } table[] = {
        {GW_F32, GW_SUM, 1 << 20, {.size = 4}, GW_REASON_NONE},
        {GW_F16, GW_SUM, 1 << 20, {.size = 2}, GW_REASON_NONE},
        {GW_BF16, GW_AVG, 1 << 20, {.size = 2}, GW_REASON_NONE},
        {GW_F32, GW_SUM, 16384, {.size = 2}, GW_REASON_NONE},
        {GW_F32, GW_SUM, 16383, {.size = 2}, GW_REASON_TOO_SMALL},
        {GW_F16, GW_SUM, 32767, {.size = 2}, GW_REASON_TOO_SMALL},
        {GW_F32, GW_SUM, 1, {.size = 2}, GW_REASON_TOO_SMALL},
        {GW_F32, GW_SUM, 0, {.size = 2}, GW_REASON_ZERO_COUNT},
        {GW_F64, GW_SUM, 1 << 20, {.size = 2}, GW_REASON_DTYPE},
        {GW_DTYPE_OTHER, GW_SUM, 1 << 20, {.size = 2}, GW_REASON_DTYPE},
        {GW_DTYPE_USER, GW_SUM, 1 << 20, {.size = 2}, GW_REASON_DATATYPE_USER},
        {GW_F32, GW_OP_OTHER, 1 << 20, {.size = 2}, GW_REASON_OP},
        {GW_F32, GW_OP_USER, 1 << 20, {.size = 2}, GW_REASON_OP_USER},
        {GW_F32, GW_SUM, 1 << 20, {.size = 1}, GW_REASON_SINGLE_RANK},
        {GW_F32, GW_SUM, 1 << 20, {.size = 2, .intercomm = true}, GW_REASON_INTERCOMM},
        {GW_F32, GW_SUM, 1 << 20, {.size = 2, .mismatch = true}, GW_REASON_MISMATCH},
        {GW_F32, GW_SUM, SIZE_MAX / 2, {.size = 2}, GW_REASON_UNSUPPORTED_CALL},
        {GW_F32, GW_SUM, SIZE_MAX / 4 + 2, {.size = 2}, GW_REASON_UNSUPPORTED_CALL},
        {GW_F32, GW_SUM, SIZE_MAX, {.size = 2}, GW_REASON_UNSUPPORTED_CALL},
        {GW_F32, GW_SUM, ((size_t)1 << 33) + 1, {.size = 2}, GW_REASON_NONE},
        /* Several at once: the order is part of what users read. */
        {GW_DTYPE_USER,
         GW_OP_USER,
         0,
         {.size = 1, .intercomm = true, .mismatch = true},
         GW_REASON_INTERCOMM},
        {GW_DTYPE_USER, GW_OP_USER, 0, {.size = 1, .mismatch = true}, GW_REASON_SINGLE_RANK},
        {GW_DTYPE_USER, GW_OP_USER, 0, {.size = 2, .mismatch = true}, GW_REASON_DATATYPE_USER},
        {GW_F64, GW_OP_USER, 0, {.size = 2, .mismatch = true}, GW_REASON_OP_USER},
        {GW_F64, GW_OP_OTHER, 0, {.size = 2, .mismatch = true}, GW_REASON_DTYPE},
        {GW_F32, GW_OP_OTHER, 0, {.size = 2, .mismatch = true}, GW_REASON_OP},
        {GW_F32, GW_SUM, 0, {.size = 2, .mismatch = true}, GW_REASON_ZERO_COUNT},
        {GW_F32, GW_SUM, 5, {.size = 2, .mismatch = true}, GW_REASON_TOO_SMALL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        gw_call_t call = {GW_ALLREDUCE, table[i].dtype, table[i].op, table[i].count, NULL, NULL, 0};
        gw_reason_t got = reason(context, call, table[i].facts);
        ck_assert_msg(got == table[i].reason, "row %zu: %s, not %s", i, gw_reason_name(got),
                      gw_reason_name(table[i].reason));
    }
    gw_context_free(context);
}
END_TEST

START_TEST(settings_decide_too)
{
    gw_context_t *context = create("GRADWIRE_DISABLE", "1");
    ck_assert(gw_context_disabled(context));
    ck_assert_int_eq(
        reason(context, good, (gw_comm_facts_t){.size = 1, .intercomm = true, .mismatch = true}),
        GW_REASON_DISABLED);
    gw_context_free(context);
    context = create("GRADWIRE_CODEC", "raw");
    ck_assert_int_eq(reason(context, good, four), GW_REASON_EXCLUDED);
    ck_assert_int_eq(reason(context, good, (gw_comm_facts_t){.size = 2, .mismatch = true}),
                     GW_REASON_MISMATCH);
    gw_context_free(context);
    context = create("GRADWIRE_MIN_BYTES", "0");
    gw_call_t one = good;
    one.count = 1;
    ck_assert_int_eq(reason(context, one, four), GW_REASON_NONE);
    one.count = 0;
    ck_assert_int_eq(reason(context, one, four), GW_REASON_ZERO_COUNT);
    gw_context_free(context);
}
END_TEST

/* Ranks decide alone: nothing that differs between them may matter. */
START_TEST(addresses_do_not_matter)
{
    gw_context_t *context = create("GRADWIRE_CODEC", "q4");
    uint64_t state = 1;
    for (int i = 0; i < 2000; i++) {
        gw_call_t call = {
            GW_ALLREDUCE, GW_F32, GW_SUM, gw_test_random(&state) >> (gw_test_random(&state) % 64),
            NULL,         NULL,   0};
        gw_comm_facts_t facts = {.size = 1 + (int)(gw_test_random(&state) % 9)};
        gw_decision_t a = gw_decide(context, &call, &facts);
        call.send = (const void *)(uintptr_t)gw_test_random(&state);
        call.recv = (void *)(uintptr_t)gw_test_random(&state);
        gw_context_set_rank(context, (int)(gw_test_random(&state) % 9), 9);
        gw_context_count_passed(context, GW_REASON_OP);
        gw_decision_t b = gw_decide(context, &call, &facts);
        gw_check(a.compress == b.compress && a.reason == b.reason && a.plan == b.plan, "call %d",
                 i);
    }
    gw_context_free(context);
}
END_TEST

static gw_plan_kind_t plan_of(const gw_context_t *context, int size, size_t count)
{
    gw_call_t call = good;
    call.count = count;
    gw_comm_facts_t facts = {.size = size};
    gw_decision_t d = gw_decide(context, &call, &facts);
    ck_assert(d.compress);
    return d.plan;
}

START_TEST(the_plan_follows_size_and_setting)
{
    gw_context_t *context = create("GRADWIRE_CODEC", "q4");
    ck_assert_int_eq(plan_of(context, 2, 1 << 24), GW_PLAN_GATHER);
    ck_assert_int_eq(plan_of(context, 3, 1 << 24), GW_PLAN_DIRECT);
    /* 16384 elements are 8 KiB and a little at 4 bits: to two peers still one round trip. */
    ck_assert_int_eq(plan_of(context, 3, 16384), GW_PLAN_GATHER);
    ck_assert_int_eq(plan_of(context, 5, 16384), GW_PLAN_DIRECT);
    /* Never back to gather as the call grows. */
    bool direct = false;
    for (size_t count = 16384; count < 1 << 18; count += 997) {
        bool now = plan_of(context, 4, count) == GW_PLAN_DIRECT;
        gw_check(now || !direct, "count %zu", count);
        direct = now;
    }
    ck_assert(direct);
    gw_context_free(context);
    context = create("GRADWIRE_PLAN", "direct");
    ck_assert_int_eq(plan_of(context, 2, 16384), GW_PLAN_DIRECT);
    gw_context_free(context);
    context = create("GRADWIRE_PLAN", "gather");
    ck_assert_int_eq(plan_of(context, 9, 1 << 26), GW_PLAN_GATHER);
    gw_context_free(context);
}
END_TEST

/* Ring and tree where they are set and the numbers in the payload have 32 bits; what cannot be
 * merged, of compressed calls and of those that are not, is split as if nothing was set. */
START_TEST(plans_that_merge_are_for_what_can_be_merged)
{
    static const char *const names[] = {"ring", "tree"};
    static const gw_plan_kind_t plans[] = {GW_PLAN_RING, GW_PLAN_TREE};
    static const char *const codecs[] = {"randomk", "randomk:values=wire", "raw"};
    for (int i = 0; i < 2 * 3 * 2; i++) {
        gw_setting_t with[] = {{"GRADWIRE_PLAN", names[i % 2]},
                               {"GRADWIRE_CODEC", codecs[i / 2 % 3]}};
        gw_context_t *context = NULL;
        ck_assert_int_eq(gw_context_create(with, 2, &context, NULL, 0), GW_OK);
        gw_call_t call = good;
        call.dtype = i / 6 ? GW_BF16 : GW_F32;
        call.count = 1 << 24;
        gw_comm_facts_t facts = {.size = 5};
        gw_decision_t d = gw_decide(context, &call, &facts);
        bool compress = i / 2 % 3 < 2, merges = i / 6 == 0 || i / 2 % 3 == 0;
        ck_assert_int_eq(d.compress, compress);
        gw_check(d.plan == (merges ? plans[i % 2] : GW_PLAN_DIRECT), "case %d: %s", i,
                 gw_plan_name(d.plan));
        facts.mismatch = true; /* goes uncompressed */
        d = gw_decide(context, &call, &facts);
        ck_assert(!d.compress);
        gw_check(d.plan == (i / 6 ? GW_PLAN_DIRECT : plans[i % 2]), "case %d, raw: %s", i,
                 gw_plan_name(d.plan));
        gw_context_free(context);
    }
    ck_assert_str_eq(gw_plan_name(GW_PLAN_RING), "ring");
    ck_assert_str_eq(gw_plan_name(GW_PLAN_TREE), "tree");
    ck_assert_str_eq(gw_plan_name((gw_plan_kind_t)99), "unknown");
}
END_TEST

static void prints(const gw_context_t *context, gw_call_t call, gw_comm_facts_t facts,
                   const char *expected)
{
    char line[200];
    gw_decision_t d = gw_decide(context, &call, &facts);
    gw_decision_print(context, &call, &facts, &d, line, sizeof line);
    ck_assert_str_eq(line, expected);
    /* Any size of buffer. */
    for (size_t size = 0; size < strlen(expected) + 3; size++) {
        char cut[200];
        memset(cut, '#', sizeof cut);
        gw_decision_print(context, &call, &facts, &d, cut, size);
        gw_check(cut[size] == '#', "size %zu: written behind", size);
        gw_check(size == 0 || strncmp(cut, expected, strlen(cut)) == 0, "size %zu: %s", size, cut);
    }
}

START_TEST(a_decision_prints_as_one_line)
{
    gw_context_t *context = create("GRADWIRE_CODEC", "q4:bucket=64");
    gw_call_t call = good;
    prints(context, call, four, "allreduce f32 sum 1048576 x 4 ranks: q4:bucket=64 direct");
    prints(context, call, (gw_comm_facts_t){.size = 2},
           "allreduce f32 sum 1048576 x 2 ranks: q4:bucket=64 gather");
    call.op = GW_AVG;
    call.dtype = GW_BF16;
    call.count = 3;
    prints(context, call, four, "allreduce bf16 avg 3 x 4 ranks: passed (too_small)");
    call.op = GW_OP_USER;
    call.dtype = GW_DTYPE_USER;
    prints(context, call, four, "allreduce user user op 3 x 4 ranks: passed (datatype_user)");
    call.op = GW_OP_OTHER;
    call.dtype = GW_DTYPE_OTHER;
    prints(context, call, four, "allreduce other other op 3 x 4 ranks: passed (dtype)");
    gw_context_free(context);
}
END_TEST

START_TEST(names_are_those_of_the_stats_file)
{
    static const char *const names[] = {"none",      "too_small",     "dtype",
                                        "op",        "datatype_user", "op_user",
                                        "intercomm", "single_rank",   "disabled",
                                        "excluded",  "gate",          "mismatch",
                                        "capture",   "device_memory", "unsupported_call",
                                        "zero_count"};
    ck_assert_uint_eq(sizeof names / sizeof *names, GW_REASON_COUNT);
    for (int r = 0; r < GW_REASON_COUNT; r++)
        ck_assert_str_eq(gw_reason_name((gw_reason_t)r), names[r]);
    ck_assert_str_eq(gw_reason_name((gw_reason_t)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tc = tcase_create("policy");
    tcase_add_test(tc, each_reason_is_given);
    tcase_add_test(tc, settings_decide_too);
    tcase_add_test(tc, addresses_do_not_matter);
    tcase_add_test(tc, the_plan_follows_size_and_setting);
    tcase_add_test(tc, plans_that_merge_are_for_what_can_be_merged);
    tcase_add_test(tc, a_decision_prints_as_one_line);
    tcase_add_test(tc, names_are_those_of_the_stats_file);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
