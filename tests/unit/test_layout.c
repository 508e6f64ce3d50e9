/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: as objects, as a file, what rules make of their tensors, how calls are split. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "context_internal.h"
#include "gw_test.h"
#include "gw_bound.h"
#include "parts.h"

/* ---- Objects ---- */

static const gw_tensor_t good[] = {{"fc1.weight", 0, 2, {40, 50}},
                                   {"fc1.bias", 2000, 1, {50}},
                                   {NULL, 2060, 0, {0}},
                                   {"conv", 2061, 4, {8, 4, 3, 3}}};
enum { GOOD = sizeof good / sizeof *good, GOOD_ELEMENTS = 2061 + 288 + 7 };

START_TEST(a_layout_keeps_what_it_was_given)
{
    gw_layout_t *layout, *again;
    gw_tensor_t tensors[GOOD], out;
    char name[16] = "fc1.weight";
    memcpy(tensors, good, sizeof good);
    tensors[0].name = name;
    ck_assert_int_eq(gw_layout_create(GOOD_ELEMENTS, tensors, GOOD, &layout, NULL, 0), GW_OK);
    memset(name, 'x', sizeof name - 1);
    memset(tensors, 0xAA, sizeof tensors);
    ck_assert_uint_eq(gw_layout_elements(layout), GOOD_ELEMENTS);
    ck_assert_uint_eq(gw_layout_count(layout), GOOD);
    for (size_t i = 0; i < GOOD; i++) {
        ck_assert_int_eq(gw_layout_tensor(layout, i, &out), GW_OK);
        ck_assert_str_eq(out.name, good[i].name ? good[i].name : "");
        ck_assert_uint_eq(out.offset, good[i].offset);
        ck_assert_int_eq(out.ndim, good[i].ndim);
        ck_assert_int_eq(memcmp(out.dim, good[i].dim, sizeof out.dim), 0);
    }
    ck_assert_int_eq(gw_layout_tensor(layout, GOOD, &out), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_layout_create(GOOD_ELEMENTS, good, GOOD, &again, NULL, 0), GW_OK);
    ck_assert_uint_eq(gw_layout_digest(layout), gw_layout_digest(again));
    gw_layout_free(again);
    gw_layout_free(gw__layout_hold(layout));
    ck_assert_uint_eq(gw_layout_count(layout), GOOD);
    gw_layout_free(layout);
    gw_layout_free(NULL);
}
END_TEST

START_TEST(every_part_of_a_layout_is_in_its_digest)
{
    uint64_t digest[8];
    for (int i = 0; i < 8; i++) {
        gw_tensor_t tensors[GOOD];
        gw_layout_t *layout;
        size_t elements = GOOD_ELEMENTS, count = GOOD;
        memcpy(tensors, good, sizeof good);
        switch (i) {
        case 1:
            elements++;
            break;
        case 2:
            count--;
            break;
        case 3:
            tensors[3].offset++;
            break;
        case 4:
            tensors[0].dim[0] = 50, tensors[0].dim[1] = 40;
            break;
        case 5:
            tensors[1].name = "fc1.bia";
            break;
        case 6:
            tensors[2].ndim = 1, tensors[2].dim[0] = 1;
            break;
        case 7:
            tensors[3].ndim = 3, tensors[3].dim[2] = 9;
            break;
        default:
            break;
        }
        ck_assert_int_eq(gw_layout_create(elements, tensors, count, &layout, NULL, 0), GW_OK);
        digest[i] = gw_layout_digest(layout);
        for (int j = 0; j < i; j++)
            ck_assert_msg(digest[i] != digest[j], "%d and %d", i, j);
        gw_layout_free(layout);
    }
}
END_TEST

static const struct {
    size_t elements, count;
    gw_tensor_t tensor[2];
    const char *why;
} wrong[] = {
    {0, 1, {{"a", 0, 1, {1}}}, "a buffer of 0 elements"},
    {SIZE_MAX, 1, {{"a", 0, 1, {1}}}, "a buffer of"},
    {10, 0, {{0}}, "without tensors"},
    {10, GW_LAYOUT_TENSORS_MAX + 1, {{"a", 0, 1, {1}}}, "more than 65536"},
    {10, 1, {{"a", 0, 1, {11}}}, "tensor 0 ('a'): 11 elements from 0 on do not fit"},
    {10, 1, {{"a", 11, 1, {1}}}, "do not fit"},
    {10, 1, {{"a", SIZE_MAX, 1, {1}}}, "do not fit"},
    {10, 1, {{"a", 0, 1, {0}}}, "a dimension of 0"},
    {10, 1, {{"a", 0, 2, {(size_t)1 << 40, (size_t)1 << 40}}}, "more elements than memory has"},
    {10, 1, {{"a", 0, -1, {1}}}, "-1 dimensions"},
    {10, 1, {{"a", 0, 9, {1}}}, "9 dimensions"},
    {10, 2, {{"a", 0, 1, {5}}, {"b", 4, 1, {5}}}, "tensor 1 ('b') begins at element 4, before"},
    {10, 2, {{"a", 5, 1, {5}}, {NULL, 0, 1, {5}}}, "tensor 1 begins at element 0, before"},
    {10, 1, {{"a\nb", 0, 1, {1}}}, "not text"},
    {10, 1, {{"a\"b", 0, 1, {1}}}, "not text"},
};

START_TEST(wrong_layouts_are_refused_with_the_tensor)
{
    static char long_name[GW_TENSOR_NAME_MAX + 1];
    gw_layout_t *layout = NULL;
    char why[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why[0] = '\0';
        ck_assert_int_eq(gw_layout_create(wrong[i].elements, wrong[i].tensor, wrong[i].count,
                                          &layout, why, sizeof why),
                         GW_ERR_INVALID);
        ck_assert_msg(strstr(why, wrong[i].why) != NULL, "%zu: %s", i, why);
        ck_assert_int_eq(
            gw_layout_create(wrong[i].elements, wrong[i].tensor, wrong[i].count, &layout, NULL, 0),
            GW_ERR_INVALID);
    }
    ck_assert_ptr_null(layout);
    memset(long_name, 'n', GW_TENSOR_NAME_MAX);
    gw_tensor_t tensor = {long_name, 0, 1, {1}};
    ck_assert_int_eq(gw_layout_create(10, &tensor, 1, &layout, why, sizeof why), GW_ERR_INVALID);
    long_name[GW_TENSOR_NAME_MAX - 1] = '\0';
    ck_assert_int_eq(gw_layout_create(10, &tensor, 1, &layout, why, sizeof why), GW_OK);
    ck_assert_int_eq(gw_layout_create(10, &tensor, 1, NULL, why, sizeof why), GW_ERR_INVALID);
    gw_layout_free(layout);
}
END_TEST

/* ---- Files ---- */

static gw_status_t parse(const char *text, gw__layouts_t *out, char *why, size_t size)
{
    return gw__layouts_parse(text, strlen(text), out, why, size);
}

static const char example[] = "\xEF\xBB\xBF# two buffers\n"
                              "buffer 2356\r\n"
                              "tensor fc1.weight 40x50   # a comment\n"
                              "\ttensor \"fc1.bias\" 50\n"
                              "tensor \"a name\" scalar at=2060\n"
                              "tensor conv 8x4x3x3\n"
                              "\n"
                              "buffer 100 slot=3\n"
                              "tensor x 100\n"
                              "buffer 100\n"
                              "tensor y 10x10";

START_TEST(a_file_describes_buffers)
{
    gw__layouts_t layouts;
    gw_tensor_t t;
    char why[256] = "", shape[GW__SHAPE_TEXT_MAX];
    ck_assert_msg(parse(example, &layouts, why, sizeof why) == GW_OK, "%s", why);
    ck_assert_int_eq(layouts.count, 3);
    ck_assert(layouts.slots);
    const gw_layout_t *first = gw__layouts_find(&layouts, 2356, 0);
    ck_assert_ptr_nonnull(first);
    ck_assert_int_eq(layouts.entry[0].line, 2);
    ck_assert_int_eq(layouts.entry[1].line, 8);
    ck_assert_uint_eq(gw_layout_count(first), 4);
    gw_layout_tensor(first, 0, &t);
    ck_assert_str_eq(t.name, "fc1.weight");
    ck_assert(t.ndim == 2 && t.dim[0] == 40 && t.dim[1] == 50 && t.offset == 0);
    gw_layout_tensor(first, 1, &t);
    ck_assert_str_eq(t.name, "fc1.bias");
    ck_assert(t.ndim == 1 && t.dim[0] == 50 && t.offset == 2000);
    gw_layout_tensor(first, 2, &t);
    ck_assert_str_eq(t.name, "a name");
    ck_assert(t.ndim == 0 && t.offset == 2060);
    gw__tensor_shape(&t, shape, sizeof shape);
    ck_assert_str_eq(shape, "scalar");
    gw_layout_tensor(first, 3, &t);
    ck_assert_uint_eq(t.offset, 2061);
    gw__tensor_shape(&t, shape, sizeof shape);
    ck_assert_str_eq(shape, "8x4x3x3");
    /* By the place, where there is one for it. */
    gw_layout_tensor(gw__layouts_find(&layouts, 100, 3), 0, &t);
    ck_assert_str_eq(t.name, "x");
    for (long slot = 0; slot < 3; slot++) {
        gw_layout_tensor(gw__layouts_find(&layouts, 100, slot), 0, &t);
        ck_assert_str_eq(t.name, "y");
    }
    ck_assert_ptr_null(gw__layouts_find(&layouts, 101, 3));
    gw__layouts_free(&layouts);
}
END_TEST

static const struct {
    const char *text, *where, *reason;
} bad[] = {
    {"tensor a 10", "line 1, column 1: 'tensor': ", "comes before its tensors"},
    {"bufer 10", "line 1, column 1: 'bufer': ", "begins with buffer or with tensor"},
    {"buffer", "line 1, column 7: ", "wanted the number of elements"},
    {"buffer 0\ntensor a 1", "line 1, column 8: '0': ", "wanted the number"},
    {"buffer 1K", "line 1, column 8: '1K': ", "wanted the number"},
    {"buffer -1", "line 1, column 8: '-1': ", "wanted the number"},
    {"buffer 99999999999999999999", "line 1, column 8: ", "wanted the number"},
    {"buffer 10 slot=0", "line 1, column 11: 'slot=0': ", "only slot=N"},
    {"buffer 10 slot=1025", "line 1, column 11: 'slot=1025': ", "only slot=N"},
    {"buffer 10 slots=1", "line 1, column 11: 'slots=1': ", "only slot=N"},
    {"buffer 10 slot=1 at=2", "line 1, column 18: 'at=2': ", "nothing may follow"},
    {"buffer 10\nbuffer 11\ntensor a 1", "line 1, column 1: ", "without tensors"},
    {"buffer 10\ntensor a 1\nbuffer 10\ntensor a 1",
     "line 3, column 8: '10': ", "described in line 1 already"},
    {"buffer 10\ntensor", "line 2, column 7: ", "wanted a shape"},
    {"buffer 10\ntensor a", "line 2, column 9: ", "wanted a shape"},
    {"buffer 10\ntensor a 2x", "line 2, column 10: '2x': ", "wanted a shape"},
    {"buffer 10\ntensor a 2X5", "line 2, column 10: '2X5': ", "wanted a shape"},
    {"buffer 10\ntensor a 0x5", "line 2, column 10: '0x5': ", "wanted a shape"},
    {"buffer 10\ntensor a 1x1x1x1x1x1x1x1x1", "line 2, column 10: ", "more than 8 dimensions"},
    {"buffer 10\ntensor a 3x4",
     "line 2, column 10: '3x4': ", "does not fit: 12 elements from 0 on, and the buffer has 10"},
    {"buffer 10\ntensor a 5\ntensor b 5 at=4", "line 3, column 12: 'at=4': ", "before the end"},
    {"buffer 10\ntensor a 5 at=6", "line 2, column 10: '5': ", "does not fit"},
    {"buffer 10\ntensor a 5 in=6", "line 2, column 12: 'in=6': ", "only at=N"},
    {"buffer 10\ntensor a 5 at=6 x", "line 2, column 17: 'x': ", "nothing may follow"},
    {"buffer 10\ntensor \"a 5", "line 2, column 8: ", "not closed"},
    {"buffer 10\ntensor a\"b\" 5", "line 2, column 8: ", "inside of a name"},
    {"buffer 10\ntensor a 1152921504606846975x2", "line 2, column 10: ", "more elements than"},
    {"buffer 10\n\x01", "line 2, column 1: ", "not text"},
};

START_TEST(mistakes_are_named_with_their_place)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[512] = "";
        gw__layouts_t layouts = {.count = -1};
        ck_assert_msg(parse(bad[i].text, &layouts, why, sizeof why) == GW_ERR_BAD_SETTING, "%s",
                      bad[i].text);
        ck_assert_int_eq(layouts.count, -1);
        ck_assert_msg(strncmp(why, bad[i].where, strlen(bad[i].where)) == 0, "%s: %s", bad[i].text,
                      why);
        ck_assert_msg(strstr(why, bad[i].reason) != NULL, "%s: %s", bad[i].text, why);
    }
}
END_TEST

START_TEST(sizes_are_bounded)
{
    static char text[2000];
    char why[512];
    gw__layouts_t layouts;
    int used = sprintf(text, "buffer 10\ntensor ");
    memset(text + used, 'n', GW_TENSOR_NAME_MAX);
    strcpy(text + used + GW_TENSOR_NAME_MAX, " 5");
    ck_assert_int_eq(parse(text, &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "longer than 255 bytes"));
    memset(text, '#', 1100);
    text[1100] = '\0';
    ck_assert_int_eq(parse(text, &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "longer than 1024 bytes"));
    char *many = malloc(64 * 70000);
    size_t at = (size_t)sprintf(many, "buffer 70000\n");
    for (int i = 0; i <= GW_LAYOUT_TENSORS_MAX; i++)
        at += (size_t)sprintf(many + at, "tensor a 1\n");
    ck_assert_int_eq(parse(many, &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "line 65538, column 10: '1': more than 65536 tensors"));
    at = 0;
    for (int i = 1; i <= GW__LAYOUTS_MAX + 1; i++)
        at += (size_t)sprintf(many + at, "buffer %d\ntensor a 1\n", i);
    ck_assert_int_eq(parse(many, &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "more than 1024 buffers"));
    free(many);
    ck_assert_int_eq(gw__layouts_read("/dev/zero", &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_int_eq(parse("# nothing\n", &layouts, why, sizeof why), GW_OK);
    ck_assert_int_eq(layouts.count, 0);
    gw__layouts_free(&layouts);
}
END_TEST

/* ---- Rules ---- */

static char rules_name[64], layout_name[64];

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void setup(void)
{
    snprintf(rules_name, sizeof rules_name, "/tmp/gw_layout_%ld.rules", (long)getpid());
    snprintf(layout_name, sizeof layout_name, "/tmp/gw_layout_%ld.layout", (long)getpid());
}

static void teardown(void)
{
    unlink(rules_name);
    unlink(layout_name);
}

static const char model[] = "buffer 100000\n"
                            "tensor emb.weight 200x300\n"  /* 0 .. 60000 */
                            "tensor norm.weight 300\n"     /* .. 60300 */
                            "tensor head.weight 100x300\n" /* .. 90300 */
                            "tensor head.bias 2000\n"      /* .. 92300 */
                            "tensor small 30x30\n";        /* .. 93200, then nothing */

static gw_context_t *context_with(const char *rules, const char *codec)
{
    gw_context_t *context;
    char why[512] = "";
    gw_setting_t settings[] = {{"GRADWIRE_CONFIG", rules_name},
                               {"GRADWIRE_LAYOUT", layout_name},
                               {"GRADWIRE_LOG", "off"},
                               {"GRADWIRE_CODEC", codec}};
    write_file(rules_name, rules);
    write_file(layout_name, model);
    ck_assert_msg(gw_context_create(settings, 4, &context, why, sizeof why) == GW_OK, "%s", why);
    return context;
}

static const gw_call_t call_of_model = {GW_ALLREDUCE, GW_F32, GW_SUM, 100000, NULL, NULL, 0};

static const struct {
    const char *rules, *codec;
    const char *codecs; /* of the five tensors */
    const char *why;    /* of the last one whose reason is worth a look, by its letter */
} table[] = {
    {"", "q4", "q4 - q4 - -",
     "codec of the call|one dimension|codec of the call|one dimension|"
     "fewer than 1024 elements"},
    {"-> q8", "q4", "q8 - q8 - -", NULL},
    {"ndim=1 -> q2", "q4", "q4 q2 q4 q2 -", NULL},
    {"ndim=..1 -> lossless", "q4", "q4 lossless q4 lossless -", NULL},
    {"elements=..1000 -> q8", "q4", "q4 q8 q4 - q8", NULL},
    {"tensor=emb* -> topk", "q4", "topk - q4 - -",
     "line 1 of GRADWIRE_CONFIG|one dimension|codec of the call|one dimension|"
     "fewer than 1024 elements"},
    {"tensor=emb* -> exclude", "q4", "- - q4 - -", NULL},
    {"tensor=\"*.weight\" ndim=2 -> raw\ntensor=* -> q8", "q4", "- q8 - q8 q8", NULL},
    /* The first rule that holds decides, whatever it is about. */
    {"-> q8\ntensor=emb* -> q2", "q4", "q8 - q8 - -", NULL},
    {"ranks=3 tensor=emb* -> q2", "q4", "q4 - q4 - -", NULL},
    {"ranks=2 tensor=emb* -> q2\n-> exclude", "q4", "q2 - - - -", NULL},
    {"dtype=f16 tensor=* -> q2", "q4", "q4 - q4 - -", NULL},
    {"elements=60000..60000 -> q2", "q4", "q2 - q4 - -", NULL},
    {"tensor=emb* -> q2", "raw", "q2 - - - -", NULL},
};

START_TEST(a_file_without_a_buffer_is_refused)
{
    char why[256] = "";
    gw__layouts_t layouts;
    write_file(layout_name, "# nothing\n");
    ck_assert_int_eq(gw__layouts_read(layout_name, &layouts, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "no buffer is described"));
    unlink(layout_name);
}
END_TEST

START_TEST(tensors_get_codecs_by_rule)
{
    gw_comm_facts_t facts = {.size = 2};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        gw_context_t *context = context_with(table[i].rules, table[i].codec);
        const gw_layout_t *layout;
        int line;
        long slot;
        char codecs[256] = "", why[512] = "";
        ck_assert_int_eq(gw_layout_at(context, 0, &layout, &line, &slot), GW_OK);
        ck_assert_int_eq(gw_layout_at(context, 1, &layout, &line, &slot), GW_ERR_NOT_FOUND);
        for (size_t t = 0; t < gw_layout_count(layout); t++) {
            gw_tensor_choice_t choice;
            ck_assert_int_eq(gw_layout_choice(context, layout, &call_of_model, &facts, t, &choice),
                             GW_OK);
            sprintf(codecs + strlen(codecs), "%s%s", t ? " " : "",
                    choice.coder ? choice.coder->spec : "-");
            sprintf(why + strlen(why), "%s%s", t ? "|" : "", choice.why);
        }
        ck_assert_msg(strcmp(codecs, table[i].codecs) == 0, "%zu: %s: %s", i, table[i].rules,
                      codecs);
        if (table[i].why)
            ck_assert_str_eq(why, table[i].why);
        gw_decision_t d = gw_decide(context, &call_of_model, &facts);
        ck_assert(d.compress && d.layout == layout && d.coder);
        ck_assert_ptr_nonnull(strstr(codecs, d.coder->spec));
        gw_decision_print(context, &call_of_model, &facts, &d, why, sizeof why);
        ck_assert_ptr_nonnull(strstr(why, "5 tensors"));
        gw_context_free(context);
    }
}
END_TEST

START_TEST(a_call_that_is_exact_all_over_is_left_alone)
{
    gw_comm_facts_t facts = {.size = 2};
    gw_context_t *context = context_with("", "raw");
    gw_decision_t d = gw_decide(context, &call_of_model, &facts);
    ck_assert(!d.compress && d.reason == GW_REASON_EXCLUDED && !d.layout);
    gw_context_free(context);
    context = context_with("tensor=* -> exclude\n", "q4");
    /* What no tensor describes goes by the codec of the call. */
    d = gw_decide(context, &call_of_model, &facts);
    ck_assert(d.compress && strcmp(d.coder->spec, "q4") == 0);
    gw_context_free(context);
    context = context_with("tensor=* -> exclude\n-> exclude\n", "q4");
    d = gw_decide(context, &call_of_model, &facts);
    ck_assert(!d.compress && d.reason == GW_REASON_EXCLUDED);
    /* Another size has no layout, and conditions on tensors say nothing of it. */
    gw_call_t other = call_of_model;
    other.count++;
    gw_context_free(context);
    context = context_with("tensor=* -> q8\n", "q4");
    d = gw_decide(context, &other, &facts);
    ck_assert(d.compress && !d.layout && strcmp(d.coder->spec, "q4") == 0);
    gw_context_free(context);
}
END_TEST

START_TEST(ranks_compare_layouts_as_settings)
{
    char none[GW_AGREEMENT_MAX], with[GW_AGREEMENT_MAX], why[512];
    gw_context_t *context;
    ck_assert_int_eq(gw_context_create(NULL, 0, &context, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_context_agreement(context, none, sizeof none), GW_OK);
    ck_assert_ptr_null(strstr(none, "LAYOUT"));
    gw_context_free(context);
    context = context_with("", "q4");
    ck_assert_uint_eq(gw_rule_facts(context), 0);
    ck_assert_int_eq(gw_context_agreement(context, with, sizeof with), GW_OK);
    ck_assert_ptr_nonnull(strstr(with, "GRADWIRE_LAYOUT=1 buffers "));
    gw_context_free(context);
    char *digit = strrchr(with, ' ') + 1, other[GW_AGREEMENT_MAX];
    strcpy(other, with);
    other[digit - with] ^= 1;
    const char *differ[] = {with, other}, *without[] = {with, none};
    ck_assert_int_eq(gw_agreement_compare(differ, 2, why, sizeof why), GW_ERR_SETTINGS_DIFFER);
    ck_assert_ptr_nonnull(strstr(why, "rank 1 has GRADWIRE_LAYOUT=1 buffers"));
    ck_assert_int_eq(gw_agreement_compare(without, 2, why, sizeof why), GW_ERR_SETTINGS_DIFFER);
    ck_assert_ptr_nonnull(strstr(why, "GRADWIRE_LAYOUT"));
    /* A layout for a place makes the places known. */
    write_file(layout_name, "buffer 10 slot=2\ntensor a 10\n");
    gw_setting_t settings[] = {{"GRADWIRE_LAYOUT", layout_name}};
    ck_assert_int_eq(gw_context_create(settings, 1, &context, why, sizeof why), GW_OK);
    ck_assert_uint_eq(gw_rule_facts(context), GW_RULE_SLOT);
    gw_context_free(context);
    write_file(layout_name, "buffer 10\n\ntensor a 11\n");
    ck_assert_int_eq(gw_context_create(settings, 1, &context, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "GRADWIRE_LAYOUT=/tmp/gw_layout_"));
    ck_assert_ptr_nonnull(strstr(why, "line 3, column 10: '11': does not fit"));
}
END_TEST

/* ---- Splits ---- */

static gw__split_t *split_of(gw_context_t *context, const gw_layout_t *layout, gw_dtype_t dtype,
                             int size)
{
    static gw_coder_t raw;
    gw_comm_facts_t facts = {.size = size};
    gw_call_t call = {GW_ALLREDUCE, dtype, GW_SUM, gw_layout_elements(layout), NULL, NULL, 0};
    raw = gw_test_coder("raw");
    gw__split_t *split = gw__split_make(context, layout, &call, &facts, &raw);
    ck_assert_ptr_nonnull(split);
    return split;
}

/* Every element of the buffer belongs to one part. */
static void check_covers(const gw__split_t *split)
{
    size_t elements = gw_layout_elements(split->layout), largest = 0;
    char *seen = calloc(elements, 1);
    for (size_t p = 0; p < split->parts; p++) {
        const gw__part_t *part = &split->part[p];
        size_t count = 0;
        for (size_t s = part->stretch; s < part->stretch + part->stretches; s++) {
            for (size_t i = 0; i < split->stretch[s].count; i++)
                gw_check(seen[split->stretch[s].first + i]++ == 0, "twice");
            count += split->stretch[s].count;
        }
        ck_assert_uint_eq(count, part->count);
        largest = part->stretches > 1 && count > largest ? count : largest;
    }
    for (size_t i = 0; i < elements; i++)
        gw_check(seen[i] == 1, "element %zu is in no part", i);
    ck_assert_uint_eq(split->buffer_bytes, largest * gw_dtype_size(split->dtype));
    free(seen);
}

START_TEST(a_split_has_a_part_for_each_codec)
{
    gw_context_t *context = context_with("tensor=emb* -> q8\n", "q4");
    const gw_layout_t *layout;
    int line;
    long slot;
    gw_layout_at(context, 0, &layout, &line, &slot);
    gw__split_t *split = split_of(context, layout, GW_F32, 2);
    check_covers(split);
    ck_assert_uint_eq(split->parts, 3);
    ck_assert_str_eq(split->part[0].coder.spec, "q8");
    ck_assert_uint_eq(split->part[0].rows, 200); /* it is one matrix, and alone */
    ck_assert(split->part[1].exact && split->part[1].rows == 0);
    ck_assert_uint_eq(split->part[1].count, 300 + 2000 + 900);
    ck_assert_uint_eq(split->part[1].stretches, 2); /* bias and small lie side by side */
    ck_assert_uint_eq(split->part[1].tensors, 3);
    ck_assert_str_eq(split->part[2].coder.spec, "q4");
    ck_assert_uint_eq(split->part[2].count, 30000 + 6800); /* with what no tensor describes */
    ck_assert_uint_eq(split->part[2].rows, 0);
    ck_assert_uint_eq(split->residual_floats, 60000 + 36800);
    ck_assert(split->part[0].residual == 0 && split->part[2].residual == 60000);
    /* The same split has the same digest; another type, rule or codec has another one. */
    gw__split_t *again = split_of(context, layout, GW_F32, 2),
                *half = split_of(context, layout, GW_BF16, 2);
    ck_assert_uint_eq(split->digest, again->digest);
    ck_assert_uint_eq(split->part[2].key, again->part[2].key);
    ck_assert_uint_ne(split->digest, half->digest);
    check_covers(half);
    gw__split_free(split);
    gw__split_free(again);
    gw__split_free(half);
    gw_context_free(context);
}
END_TEST

START_TEST(momentum_has_room_beside_the_residual)
{
    gw_context_t *context = context_with("tensor=emb* -> topk:momentum=0.9\n", "q4:ef=off");
    const gw_layout_t *layout;
    int line;
    long slot;
    gw_layout_at(context, 0, &layout, &line, &slot);
    gw__split_t *split = split_of(context, layout, GW_F32, 2);
    ck_assert_uint_eq(split->residual_floats, 2 * 60000);
    gw__split_free(split);
    gw_context_free(context);
}
END_TEST

/* Random layouts under random rules. */
START_TEST(any_split_covers_its_buffer)
{
    static const char *const rules[] = {"", "ndim=2.. elements=..2000 -> q8\nndim=1 -> q2\n",
                                        "tensor=a* -> topk\ntensor=*b -> raw\n-> exclude\n"};
    static const char *const names[] = {"a", "ab", "b", "c"};
    uint64_t state = 7;
    for (int n = 0; n < 60; n++) {
        gw_context_t *context = context_with(rules[n % 3], "q4");
        gw_tensor_t tensors[40];
        gw_layout_t *layout;
        size_t end = 0, count = 1 + gw_test_random(&state) % 40;
        for (size_t t = 0; t < count; t++) {
            end += gw_test_random(&state) % 3 ? 0 : gw_test_random(&state) % 50;
            tensors[t] =
                (gw_tensor_t){names[gw_test_random(&state) % 4],
                              end,
                              (int)(gw_test_random(&state) % 4),
                              {1 + gw_test_random(&state) % 30, 1 + gw_test_random(&state) % 30,
                               1 + gw_test_random(&state) % 30}};
            end += gw__tensor_elements(&tensors[t]);
        }
        end += gw_test_random(&state) % 2 * 13;
        ck_assert_int_eq(gw_layout_create(end, tensors, count, &layout, NULL, 0), GW_OK);
        gw__split_t *split = split_of(context, layout, n % 2 ? GW_F32 : GW_F16, 2 + n % 3);
        check_covers(split);
        ck_assert_uint_le(split->parts, 4);
        gw__split_free(split);
        gw_layout_free(layout);
        gw_context_free(context);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tc = tcase_create("layout");
    tcase_add_unchecked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_layout_keeps_what_it_was_given);
    tcase_add_test(tc, every_part_of_a_layout_is_in_its_digest);
    tcase_add_test(tc, wrong_layouts_are_refused_with_the_tensor);
    tcase_add_test(tc, a_file_describes_buffers);
    tcase_add_test(tc, mistakes_are_named_with_their_place);
    tcase_add_test(tc, sizes_are_bounded);
    tcase_add_test(tc, a_file_without_a_buffer_is_refused);
    tcase_add_test(tc, tensors_get_codecs_by_rule);
    tcase_add_test(tc, a_call_that_is_exact_all_over_is_left_alone);
    tcase_add_test(tc, ranks_compare_layouts_as_settings);
    tcase_add_test(tc, a_split_has_a_part_for_each_codec);
    tcase_add_test(tc, momentum_has_room_beside_the_residual);
    tcase_add_test(tc, any_split_covers_its_buffer);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
