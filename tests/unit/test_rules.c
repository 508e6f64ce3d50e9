/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of GRADWIRE_CONFIG: what they mean, what is said about mistakes, that ranks agree. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "context_internal.h"
#include "gw_test.h"
#include "gw_world.h"
#include "text.h"

static char file_name[64], other_name[64];

static void write_file(const char *name, const char *text, size_t length)
{
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, length, f), length);
    fclose(f);
}

static void setup(void)
{
    snprintf(file_name, sizeof file_name, "/tmp/gw_rules_%ld.conf", (long)getpid());
    snprintf(other_name, sizeof other_name, "/tmp/gw_rules_%ld.other", (long)getpid());
}

static void teardown(void)
{
    unlink(file_name);
    unlink(other_name);
}

static gw_status_t parse(const char *text, gw__rules_t *out, char *why, size_t size)
{
    return gw__rules_parse(text, strlen(text), out, why, size);
}

/* ---- Text ---- */

static const struct {
    const char *text, *canonical;
} good[] = {
    {"-> q4", "-> q4"},
    {"-> exclude", "-> exclude"},
    {"->\tq8:bucket=256 # why", "-> q8:bucket=256"},
    {"dtype=f32 -> q4:bucket=512", "dtype=f32 -> q4"},
    {"dtype=bf16,f32 -> q4", "dtype=f32,bf16 -> q4"},
    {"dtype=f32,f16,bf16 -> q4", "-> q4"},
    {"collective=allreduce bytes=0.. -> q4", "-> q4"},
    {"bytes=1048576..64M -> q4\r", "bytes=1M..64M -> q4"},
    {"bytes=..65537 -> q4", "bytes=..65537 -> q4"},
    {"bytes=0 -> q4", "bytes=0 -> q4"},
    {"bytes=4k..4K -> q4", "bytes=4K -> q4"},
    {"ranks=4.. -> raw", "ranks=4.. -> raw"},
    {"slot=..5 comm=0 -> q4", "comm=0 slot=1..5 -> q4"},
    {"slot=1.. -> q4", "slot=1.. -> q4"},
    {"name=tp* -> q4", "name=\"tp*\" -> q4"},
    {"name=\"a b # c -> d\" -> q4", "name=\"a b # c -> d\" -> q4"},
    {"name=\"a->b\" -> q4", "name=\"a->b\" -> q4"},
    {"name=\"\" -> q4", "name=\"\" -> q4"},
    {"name=a#b -> q4", "name=\"a#b\" -> q4"},
    {"ndim=1 -> raw", "ndim=1 -> raw"},
    {"ndim=0.. elements=1024.. tensor=*.bias -> q4", "tensor=\"*.bias\" elements=1024.. -> q4"},
    {"elements=..1023 tensor=\"a b\" ndim=..1 slot=2 -> exclude",
     "slot=2 tensor=\"a b\" ndim=..1 elements=..1023 -> exclude"},
    {"ndim=0.. -> q8", "tensor=\"*\" -> q8"},
    {"tensor=a elements=0.. -> q8", "tensor=\"a\" -> q8"},
    {"slot=3 comm=0 ranks=4.. bytes=1M..64M dtype=f32 -> q8:bucket=256",
     "dtype=f32 bytes=1M..64M ranks=4.. comm=0 slot=3 -> q8:bucket=256"},
};

START_TEST(rules_have_one_canonical_form)
{
    char why[512] = "", text[GW__RULES_TEXT_MAX];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        gw__rules_t rules, again;
        ck_assert_msg(parse(good[i].text, &rules, why, sizeof why) == GW_OK, "%s: %s", good[i].text,
                      why);
        ck_assert_int_eq(rules.count, 1);
        gw__rule_print(&rules.rule[0], text, sizeof text);
        ck_assert_str_eq(text, good[i].canonical);
        ck_assert_int_eq(parse(text, &again, why, sizeof why), GW_OK);
        ck_assert_uint_eq(rules.digest, again.digest);
        gw__rules_free(&rules);
        gw__rules_free(&again);
    }
}
END_TEST

static const struct {
    const char *text, *where, *reason;
} bad[] = {
    {"bytes=1M", "line 1, column 9: ", "-> and a codec or exclude are missing"},
    {"bytes=1M # -> q4", "line 1, column 10: ", "-> and a codec"},
    {"-> q4\n\n  ->", "line 3, column 5: ", "missing behind ->"},
    {"-> q4 q8", "line 1, column 7: 'q8': ", "nothing may follow"},
    {"-> q9", "line 1, column 4: 'q9': ", "closest: 'q8'"},
    {"-> q4:bukket=64", "line 1, column 4: 'q4:bukket=64': ", "bukket"},
    {"\n# c\nbyts=4 -> q4", "line 3, column 1: 'byts': ", "no such condition"},
    {"=4 -> q4", "line 1, column 1: ", "no such condition"},
    {"bytes -> q4", "line 1, column 1: 'bytes': ", "name=value"},
    {"bytes= -> q4", "line 1, column 1: 'bytes=': ", "name=value"},
    {"bytes=4x -> q4", "line 1, column 7: '4x': ", "wanted bytes"},
    {"bytes=.. -> q4", "line 1, column 7: '..': ", "wanted bytes"},
    {"bytes=1...3 -> q4", "line 1, column 7: '1...3': ", "wanted bytes"},
    {"bytes=-1.. -> q4", "line 1, column 7: '-1..': ", "wanted bytes"},
    {"bytes=99999999999999999999 -> q4", "line 1, column 7: ", "wanted bytes"},
    {"bytes=2M..1M -> q4", "line 1, column 7: '2M..1M': ", "ends before it begins"},
    {"ranks=4K -> q4", "line 1, column 7: '4K': ", "wanted a number"},
    {"comm=world -> q4", "line 1, column 6: 'world': ", "wanted a number"},
    {"slot=0 -> q4", "line 1, column 6: '0': ", "counted from 1"},
    {"slot=1025 -> q4", "line 1, column 6: '1025': ", "at most 1024"},
    {"ranks=0 -> q4", "line 1, column 7: '0': ", "counted from 1"},
    {"dtype=f64 -> q4", "line 1, column 7: 'f64': ", "must be f32, f16 or bf16"},
    {"dtype=f32, -> q4", "line 1, column 11: ", "must be f32, f16 or bf16"},
    {"collective=reduce -> q4", "line 1, column 12: 'reduce': ", "allreduce"},
    {"ranks=2 ranks=2 -> q4", "line 1, column 9: 'ranks': ", "given twice"},
    {"name=\"a -> q4", "line 1, column 1: ", "not closed"},
    {"name=a\"b\" -> q4", "line 1, column 6: ", "inside of a name"},
    {"tensor=a\"b\" -> q4", "line 1, column 8: ", "inside of a name"},
    {"ndim=2D -> q4", "line 1, column 6: '2D': ", "wanted a number"},
    {"elements=1K.. -> q4", "line 1, column 10: '1K..': ", "wanted a number"},
    {"ndim=1 ndim=2 -> q4", "line 1, column 8: 'ndim': ", "given twice"},
    {"bytes=1M->q8", "line 1, column 9: ", "a blank is missing before ->"},
    {"bytes=1M-> q8", "line 1, column 9: ", "a blank is missing before ->"},
    {"bytes=1M ->q8", "line 1, column 12: ", "a blank is missing behind ->"},
    {"->q8", "line 1, column 3: ", "a blank is missing behind ->"},
    {"->-> q8", "line 1, column 3: ", "a blank is missing behind ->"},
    {"name=a->b -> q8", "line 1, column 7: ", "in quotation marks"},
    {"name=\"a->b\"->q8", "line 1, column 12: ", "a blank is missing before ->"},
    {"-> q4\n\x01", "line 2, column 1: ", "not text"},
    {"-> q4 # \x7f", "line 1, column 9: ", "not text"},
    {"-> q4\r-> q8", "line 1, column 6: ", "not text"},
    {"\xEF\xBB\xBF\xEF\xBB\xBF-> q4", "line 1, column 1: '\?\?\?->': ", "no such condition"},
};

START_TEST(mistakes_are_named_with_their_place)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[512] = "";
        gw__rules_t rules = {.count = -1};
        ck_assert_msg(parse(bad[i].text, &rules, why, sizeof why) == GW_ERR_BAD_SETTING, "%s",
                      bad[i].text);
        ck_assert_int_eq(rules.count, -1);
        ck_assert_msg(strncmp(why, bad[i].where, strlen(bad[i].where)) == 0, "%s: %s", bad[i].text,
                      why);
        ck_assert_msg(strstr(why, bad[i].reason) != NULL, "%s: %s", bad[i].text, why);
    }
}
END_TEST

START_TEST(sizes_are_bounded)
{
    static char text[GW__RULES_FILE_MAX + 2];
    char why[512];
    gw__rules_t rules;
    size_t used = 0;
    for (int i = 0; i < GW__RULES_MAX; i++)
        used += (size_t)sprintf(text + used, "slot=%d -> q4\n", i + 1);
    ck_assert_int_eq(parse(text, &rules, why, sizeof why), GW_OK);
    ck_assert_int_eq(rules.count, GW__RULES_MAX);
    ck_assert_int_eq(rules.rule[255].line, 256);
    gw__rules_free(&rules);
    ck_assert_int_eq(parse("\xEF\xBB\xBF-> q8\n", &rules, why, sizeof why), GW_OK);
    ck_assert_int_eq(rules.count, 1);
    gw__rules_free(&rules);
    ck_assert_int_eq(parse("\xEF\xBB\xBFx -> q8\n", &rules, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "line 1, column 1"));
    strcpy(text + used, "-> q4");
    ck_assert_int_eq(parse(text, &rules, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "line 257, column 1: more than 256 rules");
    memset(text, '#', sizeof text);
    ck_assert_int_eq(gw__rules_parse(text, GW__TEXT_LINE_MAX, &rules, why, sizeof why), GW_OK);
    ck_assert_int_eq(gw__rules_parse(text, GW__TEXT_LINE_MAX + 1, &rules, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "longer than 1024 bytes"));
    for (size_t i = 999; i < sizeof text; i += 1000)
        text[i] = '\n';
    write_file(file_name, text, GW__RULES_FILE_MAX);
    ck_assert_int_eq(gw__rules_read(file_name, &rules, why, sizeof why), GW_OK);
    ck_assert_int_eq(rules.count, 0);
    write_file(file_name, text, GW__RULES_FILE_MAX + 1);
    ck_assert_int_eq(gw__rules_read(file_name, &rules, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "is larger than 65536 bytes");
}
END_TEST

/* What a setting may name by mistake: nothing of it may make us wait. */
START_TEST(only_regular_files_are_read)
{
    static const char *const names[] = {"/nonexistent/rules", "/tmp", "/dev/zero", "/dev/tty"};
    char why[512];
    gw__rules_t rules;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_int_eq(gw__rules_read(names[i], &rules, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_int_eq(mkfifo(file_name, 0600), 0);
    ck_assert_int_eq(gw__rules_read(file_name, &rules, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "is not a file of text");
}
END_TEST

/* ---- Meaning ---- */

static gw_context_t *context_with(const char *rules)
{
    gw_context_t *context;
    char why[512] = "";
    gw_setting_t settings[] = {
        {"GRADWIRE_CONFIG", file_name}, {"GRADWIRE_LOG", "off"}, {"GRADWIRE_MIN_BYTES", "64K"}};
    write_file(file_name, rules, strlen(rules));
    ck_assert_msg(gw_context_create(settings, 3, &context, why, sizeof why) == GW_OK, "%s", why);
    return context;
}

static const struct {
    const char *rules;
    gw_dtype_t dtype;
    size_t count;
    gw_comm_facts_t facts;
    const char *result; /* the codec, or the reason in parentheses */
    int line;           /* that is shown; 0: none */
} table[] = {
    {"-> q8", GW_F32, 1 << 20, {.size = 2}, "q8", 1},
    {"-> q2\n-> q8", GW_F32, 1 << 20, {.size = 2}, "q2", 1},
    {"-> exclude\n-> q8", GW_F32, 1 << 20, {.size = 2}, "(excluded)", 1},
    {"-> raw", GW_F32, 1 << 20, {.size = 2}, "(excluded)", 1},
    {"# none", GW_F32, 1 << 20, {.size = 2}, "q4", 0},
    {"dtype=f16 -> q8", GW_F32, 1 << 20, {.size = 2}, "q4", 0},
    {"dtype=f16 -> q8", GW_F16, 1 << 20, {.size = 2}, "q8", 1},
    {"\n\nbytes=1M -> q8", GW_F32, 1 << 18, {.size = 2}, "q8", 3},
    {"bytes=1M -> q8", GW_F32, (1 << 18) + 1, {.size = 2}, "q4", 0},
    {"bytes=1M -> q8", GW_BF16, 1 << 19, {.size = 2}, "q8", 1},
    {"bytes=..1M -> q8", GW_F32, 1 << 18, {.size = 2}, "q8", 1},
    {"bytes=1M.. -> q8", GW_F32, (1 << 18) - 1, {.size = 2}, "q4", 0},
    /* The floor is a hard one. */
    {"bytes=..1M -> q8", GW_F32, 16383, {.size = 2}, "(too_small)", 0},
    {"-> q8", GW_F64, 1 << 20, {.size = 2}, "(dtype)", 0},
    {"-> q8", GW_F32, 1 << 20, {.size = 1}, "(single_rank)", 0},
    {"-> q8", GW_F32, 1 << 20, {.size = 2, .mismatch = true}, "(mismatch)", 0},
    {"ranks=4.. -> q8", GW_F32, 1 << 20, {.size = 3}, "q4", 0},
    {"ranks=4.. -> q8", GW_F32, 1 << 20, {.size = 4}, "q8", 1},
    {"comm=1..2 -> q8", GW_F32, 1 << 20, {.size = 4}, "q4", 0},
    {"comm=1..2 -> q8", GW_F32, 1 << 20, {.size = 4, .order = 2}, "q8", 1},
    {"slot=3 -> q8", GW_F32, 1 << 20, {.size = 4}, "q4", 0},
    {"slot=3 -> q8", GW_F32, 1 << 20, {.size = 4, .slot = 3}, "q8", 1},
    {"slot=1.. -> q8", GW_F32, 1 << 20, {.size = 4, .slot = 0}, "q4", 0},
    {"name=tp* -> q8", GW_F32, 1 << 20, {.size = 4}, "q4", 0},
    {"name=tp* -> q8", GW_F32, 1 << 20, {.size = 4, .name = "tp"}, "q8", 1},
    {"name=tp* -> q8", GW_F32, 1 << 20, {.size = 4, .name = "atp"}, "q4", 0},
    {"name=*a*b -> q8", GW_F32, 1 << 20, {.size = 4, .name = "xabab"}, "q8", 1},
    {"name=*a*b -> q8", GW_F32, 1 << 20, {.size = 4, .name = "xababc"}, "q4", 0},
    {"name=\"\" -> q8", GW_F32, 1 << 20, {.size = 4, .name = ""}, "q8", 1},
    {"name=\"\" -> q8", GW_F32, 1 << 20, {.size = 4, .name = "x"}, "q4", 0},
    {"name=* -> q8", GW_F32, 1 << 20, {.size = 4}, "q8", 1},
    /* A rule about tensors says nothing of a call without a layout. */
    {"ndim=1 -> exclude\ntensor=* -> q2\nelements=1.. -> q2",
     GW_F32,
     1 << 20,
     {.size = 4},
     "q4",
     0},
};

START_TEST(the_first_rule_that_matches_decides)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        gw_context_t *context = context_with(table[i].rules);
        gw_call_t call = {GW_ALLREDUCE, table[i].dtype, GW_SUM, table[i].count, NULL, NULL, 0};
        gw_decision_t d = gw_decide(context, &call, &table[i].facts);
        char result[GW_CODEC_SPEC_MAX], line[256], tail[64] = "";
        if (d.compress)
            snprintf(result, sizeof result, "%s", d.coder->spec);
        else
            snprintf(result, sizeof result, "(%s)", gw_reason_name(d.reason));
        ck_assert_msg(strcmp(result, table[i].result) == 0, "%zu: %s gives %s", i, table[i].rules,
                      result);
        ck_assert_int_eq(d.coder != NULL, d.compress);
        gw_decision_print(context, &call, &table[i].facts, &d, line, sizeof line);
        if (table[i].line)
            snprintf(tail, sizeof tail, " (line %d of GRADWIRE_CONFIG)", table[i].line);
        ck_assert_msg((strstr(line, "GRADWIRE_CONFIG") != NULL) == (table[i].line > 0) &&
                          strcmp(line + strlen(line) - strlen(tail), tail) == 0,
                      "%zu: %s", i, line);
        gw_context_free(context);
    }
}
END_TEST

START_TEST(the_rules_can_be_listed)
{
    gw_context_t *context = context_with("# head\nslot=2 -> exclude\n\nname=a -> q8\n");
    char text[GW_RULE_TEXT_MAX];
    int line = 0;
    ck_assert_int_eq(gw_rule_at(context, 0, &line, text, sizeof text), GW_OK);
    ck_assert_int_eq(line, 2);
    ck_assert_str_eq(text, "slot=2 -> exclude");
    ck_assert_int_eq(gw_rule_at(context, 1, &line, text, sizeof text), GW_OK);
    ck_assert_int_eq(line, 4);
    ck_assert_int_eq(gw_rule_at(context, 2, &line, text, sizeof text), GW_ERR_NOT_FOUND);
    ck_assert_uint_eq(gw_rule_facts(context), GW_RULE_COMM | GW_RULE_SLOT);
    gw_context_free(context);
    context = context_with("bytes=1M.. -> q8\n");
    ck_assert_uint_eq(gw_rule_facts(context), 0);
    gw_context_free(context);
}
END_TEST

/* ---- Between ranks ---- */

static void check_codecs(gw_rank_t *rank)
{
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);
    gw_stats_t before, small, large;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 5);
    gw_comm_stats(rank->comm, &before);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N / 2, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &small);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &large);
    uint64_t q2 = small.wire_bytes - before.wire_bytes, q8 = large.wire_bytes - small.wire_bytes;
    /* A quarter of the bits for half of the elements. */
    gw_check(q8 > 6 * q2 && q8 < 9 * q2, "%llu and %llu bytes", (unsigned long long)q2,
             (unsigned long long)q8);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N / 4, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &large);
    ck_assert_uint_eq(large.reasons[GW_REASON_EXCLUDED], 1);
    free(x);
}

START_TEST(ranks_compress_by_rule)
{
    static const char rules[] = "bytes=300K.. -> q8\nbytes=150K.. -> q2\n-> exclude\n";
    gw_setting_t settings[] = {{"GRADWIRE_CONFIG", file_name}, {"GRADWIRE_PLAN", "direct"}};
    write_file(file_name, rules, strlen(rules));
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = check_codecs};
    gw_world_run(&world);
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(world.created[r], GW_OK);
}
END_TEST

static gw_status_t world_of(const char *mine, const char *theirs)
{
    gw_setting_t settings[] = {{"GRADWIRE_CONFIG", file_name}, {"GRADWIRE_LOG", "off"}};
    gw_setting_t odd = {"GRADWIRE_CONFIG", other_name};
    write_file(file_name, mine, strlen(mine));
    write_file(other_name, theirs, strlen(theirs));
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .odd = &odd,
                        .odd_rank = 1};
    gw_world_run(&world);
    ck_assert_int_eq(world.created[0], world.created[1]);
    return world.created[0];
}

START_TEST(ranks_must_have_the_same_rules)
{
    /* The same rules, written otherwise. */
    ck_assert_int_eq(world_of("bytes=1M.. -> q8\n", "# c\n\nbytes=1048576..  ->  q8:bucket=512"),
                     GW_OK);
    ck_assert_int_eq(world_of("slot=3 -> q8", "slot=4 -> q8"), GW_ERR_SETTINGS_DIFFER);
    ck_assert_int_eq(world_of("slot=3 -> q8\n-> q2", "-> q2\nslot=3 -> q8"),
                     GW_ERR_SETTINGS_DIFFER);
    ck_assert_int_eq(world_of("slot=3 -> q8", "# nothing"), GW_ERR_SETTINGS_DIFFER);
    gw_context_t *a = context_with("slot=3 -> q8"), *b = context_with("");
    char x[GW_AGREEMENT_MAX], y[GW_AGREEMENT_MAX], why[512];
    const char *texts[] = {x, y};
    ck_assert_int_eq(gw_context_agreement(a, x, sizeof x), GW_OK);
    ck_assert_int_eq(gw_context_agreement(b, y, sizeof y), GW_OK);
    ck_assert_int_eq(gw_agreement_compare(texts, 2, why, sizeof why), GW_ERR_SETTINGS_DIFFER);
    ck_assert_msg(strncmp(why, "rank 1 has GRADWIRE_CONFIG=none, rank 0 1 rules ", 48) == 0, "%s",
                  why);
    gw_context_free(a);
    gw_context_free(b);
}
END_TEST

START_TEST(a_bad_file_is_named_with_its_line)
{
    gw_context_t *context = NULL;
    char why[512], path[1200];
    gw_setting_t setting = {"GRADWIRE_CONFIG", file_name};
    write_file(file_name, "-> q4\n-> q44\n", 13);
    ck_assert_int_eq(gw_context_create(&setting, 1, &context, why, sizeof why), GW_ERR_BAD_SETTING);
    snprintf(path, sizeof path, "GRADWIRE_CONFIG=%s: line 2, column 4: 'q44': ", file_name);
    ck_assert_msg(strncmp(why, path, strlen(path)) == 0, "%s", why);
    /* A long path leaves room for the reason. */
    memset(path, 'x', 1000);
    path[0] = '/';
    strcpy(path + 990, "/rules");
    setting.value = path;
    ck_assert_int_eq(gw_context_create(&setting, 1, &context, why, 256), GW_ERR_BAD_SETTING);
    ck_assert_msg(strstr(why, "/rules: cannot be read") != NULL, "%s", why);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rules");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, rules_have_one_canonical_form);
    tcase_add_test(tc, mistakes_are_named_with_their_place);
    tcase_add_test(tc, sizes_are_bounded);
    tcase_add_test(tc, only_regular_files_are_read);
    tcase_add_test(tc, the_first_rule_that_matches_decides);
    tcase_add_test(tc, the_rules_can_be_listed);
    tcase_add_test(tc, ranks_compress_by_rule);
    tcase_add_test(tc, ranks_must_have_the_same_rules);
    tcase_add_test(tc, a_bad_file_is_named_with_its_line);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
