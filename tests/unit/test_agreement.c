/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of settings between ranks: who is named, with what, and that no buffer overflows.
 */
#include <string.h>

#include <gradwire/gradwire.h>

#include "gw_test.h"

static char why[2048];

static gw_status_t compare(const char *const *texts, int size)
{
    return gw_agreement_compare(texts, size, why, sizeof why);
}

START_TEST(equal_texts_agree)
{
    const char *texts[] = {"a=1;b=2", "a=1;b=2", "a=1;b=2"};
    strcpy(why, "left over");
    ck_assert_int_eq(compare(texts, 3), GW_OK);
    ck_assert_str_eq(why, "");
    ck_assert_int_eq(compare(texts, 1), GW_OK);
}
END_TEST

START_TEST(the_rank_that_differs_is_named_with_both_values)
{
    const char *texts[] = {"codec=q4;min_bytes=1", "codec=q4;min_bytes=1", "codec=q8;min_bytes=1"};
    ck_assert_int_eq(compare(texts, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 2 has codec=q8, rank 0 q4");
    const char *first[] = {"codec=q8;min_bytes=2", "codec=q4;min_bytes=1", "codec=q4;min_bytes=1"};
    ck_assert_int_eq(compare(first, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 0 has codec=q8, rank 1 q4; rank 0 has min_bytes=2, rank 1 1");
    /* Two ranks have no majority: the first counts as the model. */
    ck_assert_int_eq(compare(first, 2), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 1 has codec=q4, rank 0 q8; rank 1 has min_bytes=1, rank 0 2");
}
END_TEST

START_TEST(a_field_that_only_one_side_has_is_named)
{
    const char *texts[] = {"a=1;b=2", "a=1;b=2;c=3", "a=1;b=2"};
    ck_assert_int_eq(compare(texts, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 1 has c=3");
    const char *less[] = {"a=1;b=2", "a=1", "a=1;b=2"};
    ck_assert_int_eq(compare(less, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 1 does not have b=2 of rank 0");
}
END_TEST

START_TEST(ranks_without_gradwire_are_named)
{
    const char *texts[] = {"a=1", "", "a=1"}, *none[] = {"", ""};
    ck_assert_int_eq(compare(texts, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 1 runs without Gradwire");
    ck_assert_int_eq(compare(none, 2), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 0 runs without Gradwire; rank 1 runs without Gradwire");
}
END_TEST

/* The rule: equal wire revision, equal first two numbers of the version. */
START_TEST(versions_go_together_by_rule)
{
    static const struct {
        const char *other;
        bool together;
    } table[] = {{"version=0.1.0;wire=2;codec=q4", true},
                 {"version=0.1.7;wire=2;codec=q4", true},
                 {"version=0.1.12-rc.1;wire=2;codec=q4", true},
                 {"version=0.1;wire=2;codec=q4", true},
                 {"version=0.2.0;wire=2;codec=q4", false},
                 {"version=0.10.0;wire=2;codec=q4", false},
                 {"version=1.1.0;wire=2;codec=q4", false},
                 {"version=0;wire=2;codec=q4", false},
                 {"version=;wire=2;codec=q4", false},
                 {"version=0.1.0;wire=3;codec=q4", false},
                 {"version=0.1.7;wire=2;codec=q8", false},
                 {"version=0.1.7;wire=2;codec=q4;new=1", false},
                 {"wire=2;version=0.1.0;codec=q4", false},
                 {"versions=0.1.7;wire=2;codec=q4", false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *texts[] = {"version=0.1.0;wire=2;codec=q4", table[i].other,
                               "version=0.1.3;wire=2;codec=q4"};
        gw_status_t status = compare(texts, 3);
        ck_assert_msg((status == GW_OK) == table[i].together, "%s: %s", table[i].other, why);
    }
    const char *texts[] = {"version=0.1.0;wire=2", "version=0.2.1;wire=2", "version=0.1.1;wire=2"};
    ck_assert_int_eq(compare(texts, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 1 has version=0.2.1, rank 0 0.1.0");
    const char *wire[] = {"version=0.1.0;wire=2", "version=0.1.1;wire=3", "version=0.1.1;wire=3"};
    ck_assert_int_eq(compare(wire, 3), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 0 has wire=2, rank 1 3");
}
END_TEST

START_TEST(texts_from_elsewhere_do_no_harm)
{
    static const char *const strange[] = {";", "=;=;=", "a", "a=1;a=2", "novalue;b=", ";;;a=1"};
    enum { N = sizeof strange / sizeof *strange };
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            const char *texts[] = {strange[i], strange[j], strange[i]};
            gw_status_t status = compare(texts, 3);
            ck_assert_int_eq(status, i == j ? GW_OK : GW_ERR_SETTINGS_DIFFER);
            ck_assert_int_eq(why[0] == '\0', i == j);
        }
}
END_TEST

START_TEST(many_ranks_name_the_first_few)
{
    enum { RANKS = 1000 };
    const char *texts[RANKS];
    for (int i = 0; i < RANKS; i++)
        texts[i] = i % 100 == 7 ? "codec=q8" : "codec=q4";
    ck_assert_int_eq(compare(texts, RANKS), GW_ERR_SETTINGS_DIFFER);
    ck_assert_str_eq(why, "rank 7 has codec=q8, rank 0 q4; rank 107 has codec=q8, rank 0 q4; "
                          "rank 207 has codec=q8, rank 0 q4; rank 307 has codec=q8, rank 0 q4; "
                          "and 6 more ranks differ");
    for (int i = 0; i < RANKS; i++)
        texts[i] = i ? "" : "codec=q4";
    ck_assert_int_eq(compare(texts, RANKS), GW_ERR_SETTINGS_DIFFER);
    ck_assert_msg(strstr(why, "and 995 more ranks differ") != NULL, "%s", why);
}
END_TEST

START_TEST(a_small_buffer_is_respected)
{
    const char *texts[] = {"codec=q4;min_bytes=1", "", "codec=q8;min_bytes=2"};
    char full[256];
    ck_assert_int_eq(gw_agreement_compare(texts, 3, full, sizeof full), GW_ERR_SETTINGS_DIFFER);
    for (size_t size = 0; size <= strlen(full) + 1; size++) {
        char small[256];
        memset(small, '#', sizeof small);
        ck_assert_int_eq(gw_agreement_compare(texts, 3, small, size), GW_ERR_SETTINGS_DIFFER);
        for (size_t i = size; i < sizeof small; i++)
            gw_check(small[i] == '#', "size %zu: byte %zu", size, i);
        gw_check(size == 0 || memchr(small, '\0', size), "size %zu: no end", size);
        gw_check(size < 3 || strncmp(small, full, strlen(small)) == 0, "size %zu: %s", size, small);
    }
    ck_assert_int_eq(gw_agreement_compare(texts, 3, NULL, 0), GW_ERR_SETTINGS_DIFFER);
}
END_TEST

START_TEST(the_text_holds_what_ranks_must_share)
{
    static const struct {
        const char *name, *value;
        bool shared;
    } table[] = {{"GRADWIRE_CODEC", "q8", true},
                 {"GRADWIRE_CODEC", "q4:bucket=512", false}, /* the default, spelled out */
                 {"GRADWIRE_MIN_BYTES", "1", true},
                 {"GRADWIRE_MIN_BYTES", "64K", false}, /* likewise */
                 {"GRADWIRE_PLAN", "direct", true},
                 {"GRADWIRE_SEED", "3", true},
                 {"GRADWIRE_TRANSPORT", "ucx", true},
                 {"GRADWIRE_DISABLE", "1", true},
                 {"GRADWIRE_KERNELS", "ref", false},
                 {"GRADWIRE_TIMEOUT", "5", false},
                 {"GRADWIRE_INTERFACES", "eth0", false},
                 {"GRADWIRE_LOG", "off", false}};
    char plain[GW_AGREEMENT_MAX], other[GW_AGREEMENT_MAX], tiny[8];
    gw_context_t *context;
    ck_assert_int_eq(gw_context_create(NULL, 0, &context, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_context_agreement(context, plain, sizeof plain), GW_OK);
    ck_assert_int_eq(gw_context_agreement(context, tiny, sizeof tiny), GW_ERR_NO_SPACE);
    ck_assert(strncmp(plain, "version=", 8) == 0 && strstr(plain, ";wire=2;"));
    gw_context_free(context);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        gw_setting_t setting = {table[i].name, table[i].value};
        ck_assert_int_eq(gw_context_create(&setting, 1, &context, why, sizeof why), GW_OK);
        ck_assert_int_eq(gw_context_agreement(context, other, sizeof other), GW_OK);
        const char *texts[] = {plain, other};
        gw_status_t status = compare(texts, 2);
        ck_assert_msg((status == GW_ERR_SETTINGS_DIFFER) == table[i].shared, "%s=%s: %s",
                      table[i].name, table[i].value, why);
        gw_context_free(context);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agreement");
    TCase *tc = tcase_create("agreement");
    tcase_add_test(tc, equal_texts_agree);
    tcase_add_test(tc, the_rank_that_differs_is_named_with_both_values);
    tcase_add_test(tc, a_field_that_only_one_side_has_is_named);
    tcase_add_test(tc, ranks_without_gradwire_are_named);
    tcase_add_test(tc, versions_go_together_by_rule);
    tcase_add_test(tc, texts_from_elsewhere_do_no_harm);
    tcase_add_test(tc, many_ranks_name_the_first_few);
    tcase_add_test(tc, a_small_buffer_is_respected);
    tcase_add_test(tc, the_text_holds_what_ranks_must_share);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
