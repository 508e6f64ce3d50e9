/* SPDX-License-Identifier: Apache-2.0 */
/* Codec specifications: canonical text, and errors that say what would be allowed. */
#include "gw_locale.h"

#include <string.h>

#include <gradwire/codec.h>

static const struct {
    const char *spec, *canonical;
} good[] = {
    {"raw", "raw"},
    {"q4", "q4"},
    {"q1", "q1"},
    {"q8", "q8"},
    {"q4:bucket=512", "q4"},
    {"q4:bucket=512,round=nearest,zero=on,ef=on,force=0", "q4"},
    {"q4:ef=off", "q4:ef=off"},
    {"q4:ef=0,zero=0", "q4:zero=off,ef=off"},
    {"q4:ef=off,bucket=128", "q4:bucket=128,ef=off"},
    {"q4:round=stochastic", "q4:round=stochastic"},
    {"q4:force=1,ef=off,zero=off,round=stochastic,bucket=4096",
     "q4:bucket=4096,round=stochastic,zero=off,ef=off,force=1"},
    {"q2:ef=off,force=1", "q2:ef=off,force=1"},
    {"q2:ef=off,force=on", "q2:ef=off,force=1"},
    {"q1:round=stochastic,force=1", "q1:round=stochastic,force=1"},
    {"q2:bucket=32", "q2:bucket=32"},
    {"q4:bits=4", "q4"},
    {"fp16", "fp16"},
    {"bf16:ef=off,type=bf16", "bf16:ef=off"},
    {"fp8e4m3:block=128,ef=on", "fp8e4m3"},
    {"fp8e5m2:ef=off,block=32", "fp8e5m2:block=32,ef=off"},
    {"mxfp4:group=1024", "mxfp4"},
    {"nvfp4:type=nv,group=512", "nvfp4:group=512"},
    {"topk+q8:ratio=0.1019048576", "topk+q8:ratio=0.101904858"},
    {"auto:bits=1", "q1r"},
    {"auto:bits=1.99", "q1r"},
    {"auto:bits=8", "q8"},
    {"auto:bits=16", "bf16"},
    {"auto:bits=31.9", "bf16"},
    {"auto:bits=32", "lossless"},
};

START_TEST(good_specs_have_one_canonical_text)
{
    gw_coder_t coder, again;
    char why[256] = "untouched";
    ck_assert_int_eq(gw_coder_parse(good[_i].spec, &coder, why, sizeof why), GW_OK);
    ck_assert_str_eq(coder.spec, good[_i].canonical);
    ck_assert_str_eq(why, "untouched");
    ck_assert_int_eq(gw_coder_parse(coder.spec, &again, NULL, 0), GW_OK);
    ck_assert_mem_eq(&coder, &again, sizeof coder);
}
END_TEST

/* A process may have set a locale with a decimal comma. */
START_TEST(numbers_of_specs_are_read_alike_in_every_locale)
{
    if (!gw_test_locale_with_comma()) {
        gw_test_skip("numbers_of_specs_are_read_alike_in_every_locale",
                     "localedef cannot make one");
        return;
    }
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("topk:ratio=0.02", &coder, NULL, 0), GW_OK);
    ck_assert_str_eq(coder.spec, "topk:ratio=0.02");
    ck_assert(gw_coder_get(&coder, "ratio", 0) == 0.02);
    ck_assert_int_eq(gw_coder_parse("topk", &coder, NULL, 0), GW_OK);
    ck_assert(gw_coder_get(&coder, "ratio", 0) == 0.01);
    ck_assert_int_eq(gw_coder_parse("topk:ratio=0,02", &coder, NULL, 0), GW_ERR_BAD_SETTING);
}
END_TEST

/* Whole numbers of any length read back as what was printed. */
START_TEST(long_whole_numbers_stay_what_they_are)
{
    static const char *const specs[] = {"randomk:seed=2147483647", "randomk:seed=1234567891",
                                        "topk:warmup=1000000000"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        gw_coder_t coder, again;
        ck_assert_int_eq(gw_coder_parse(specs[i], &coder, NULL, 0), GW_OK);
        ck_assert_str_eq(coder.spec, specs[i]);
        ck_assert_int_eq(gw_coder_parse(coder.spec, &again, NULL, 0), GW_OK);
        ck_assert_str_eq(again.spec, specs[i]);
    }
}
END_TEST

/* All of `words` must be in the sentence. */
static const struct {
    const char *spec;
    gw_status_t status;
    const char *words[3];
} bad[] = {
    {"randomk:seed=2147483648", GW_ERR_BAD_SETTING, {"whole number", "0 to 2147483647"}},
    {"", GW_ERR_NOT_FOUND, {"missing", "q4"}},
    {":bucket=3", GW_ERR_NOT_FOUND, {"missing"}},
    {"q9", GW_ERR_NOT_FOUND, {"'q9'", "closest: 'q8'", "raw"}},
    {"q0", GW_ERR_NOT_FOUND, {"'q0'", "closest: 'q1'"}},
    {"rw", GW_ERR_NOT_FOUND, {"closest: 'raw'"}},
    {"Q4", GW_ERR_NOT_FOUND, {"closest: 'q4'"}},
    {"q4 ", GW_ERR_NOT_FOUND, {"closest: 'q4'"}},
    {"q44", GW_ERR_NOT_FOUND, {"closest: 'q4'"}},
    {"q4,bucket=64", GW_ERR_NOT_FOUND, {"'q4,bucket=64'", "follow a colon"}},
    {"quant", GW_ERR_NOT_FOUND, {"closest: 'q1'"}},
    {"powersgd", GW_ERR_NOT_FOUND, {"closest: 'lowrank'"}},
    {"drive", GW_ERR_NOT_FOUND, {"closest: 'q1r'"}},
    {"rand", GW_ERR_NOT_FOUND, {"closest: 'randomk'"}},
    {"row", GW_ERR_NOT_FOUND, {"closest: 'raw'"}}, /* not sign, whose text has rows */
    {"fp8", GW_ERR_NOT_FOUND, {"closest: 'fp8e4m3'"}},
    {"q4:bits=3", GW_ERR_BAD_SETTING, {"bits=3: q4 says otherwise", "what is meant is q3"}},
    {"fp16:ef=off,type=bf16", GW_ERR_BAD_SETTING, {"type=bf16: fp16 says", "is bf16"}},
    {"mxfp4:type=nv", GW_ERR_BAD_SETTING, {"what is meant is nvfp4"}},
    {"topk+q4:values=fp16", GW_ERR_BAD_SETTING, {"what is meant is topk+fp16"}},
    {"topk+q4:values=raw", GW_ERR_BAD_SETTING, {"what is meant is topk"}},
    {"topk:masking=off", GW_ERR_BAD_SETTING, {"masking=off", "momentum=0.9"}},
    {"block:ratio=0.2", GW_ERR_BAD_SETTING, {"ratio=0.2", "topblock"}},
    {"block:mode=largest", GW_ERR_BAD_SETTING, {"what is meant is topblock"}},
    {"q4:", GW_ERR_BAD_SETTING, {"key=value"}},
    {"q4:bucket", GW_ERR_BAD_SETTING, {"'bucket'", "key=value"}},
    {"q4:=5", GW_ERR_BAD_SETTING, {"key=value"}},
    {"q4:ef=on,", GW_ERR_BAD_SETTING, {"key=value"}},
    {"q4:ef=on,,zero=on", GW_ERR_BAD_SETTING, {"key=value"}},
    {"q4:buckt=64", GW_ERR_BAD_SETTING, {"'buckt'", "closest: 'bucket'", "round"}},
    {"q4: bucket=64", GW_ERR_BAD_SETTING, {"closest: 'bucket'"}},
    {"raw:bucket=64", GW_ERR_BAD_SETTING, {"'bucket'", "raw has no parameters"}},
    {"q4:bucket=", GW_ERR_BAD_SETTING, {"bucket=:", "whole number", "32 to 4096"}},
    {"q4:bucket=31", GW_ERR_BAD_SETTING, {"bucket=31", "32 to 4096"}},
    {"q4:bucket=4128", GW_ERR_BAD_SETTING, {"bucket=4128", "32 to 4096"}},
    {"q4:bucket=-64", GW_ERR_BAD_SETTING, {"32 to 4096"}},
    {"q4:bucket=64.0", GW_ERR_BAD_SETTING, {"whole number"}},
    {"q4:bucket=0x40", GW_ERR_BAD_SETTING, {"whole number"}},
    {"q4:bucket=64k", GW_ERR_BAD_SETTING, {"whole number"}},
    {"q4:bucket= 64", GW_ERR_BAD_SETTING, {"whole number"}},
    {"q4:bucket=nan", GW_ERR_BAD_SETTING, {"whole number"}},
    {"q4:bucket=99999999999999999999", GW_ERR_BAD_SETTING, {"32 to 4096"}},
    {"q4:bucket=100", GW_ERR_BAD_SETTING, {"bucket=100", "multiple of 32", "96"}},
    {"q4:round=up", GW_ERR_BAD_SETTING, {"round=up", "nearest|stochastic"}},
    {"q4:round=near", GW_ERR_BAD_SETTING, {"nearest|stochastic"}},
    {"q4:round=", GW_ERR_BAD_SETTING, {"nearest|stochastic"}},
    {"q4:round=nearest|stochastic", GW_ERR_BAD_SETTING, {"allowed is one of"}},
    {"q4:zero=yes", GW_ERR_BAD_SETTING, {"zero=yes", "on and off"}},
    {"q4:ef=2", GW_ERR_BAD_SETTING, {"ef=2", "on and off"}},
    {"q4:ef=on,ef=off", GW_ERR_BAD_SETTING, {"ef is given twice"}},
    {"q2:ef=off", GW_ERR_BAD_SETTING, {"ef=off", "worse than sending zeros", "force=1"}},
    {"q1:ef=off,bucket=64", GW_ERR_BAD_SETTING, {"q1", "force=1"}},
    {"q1:round=stochastic", GW_ERR_BAD_SETTING, {"round=stochastic", "force=1"}},
    {"q4:bits=9", GW_ERR_BAD_SETTING, {"bits=9", "1 to 8"}},
    {"fp8", GW_ERR_NOT_FOUND, {"'fp8'", "fp8e4m3"}},
    {"auto", GW_ERR_BAD_SETTING, {"auto needs a budget", "auto:bits=4"}},
    {"auto:", GW_ERR_BAD_SETTING, {"one parameter", "auto:bits=4"}},
    {"auto:bits", GW_ERR_BAD_SETTING, {"'bits'", "one parameter"}},
    {"auto:bits=", GW_ERR_BAD_SETTING, {"bits=:", "a number from 0.25 to 32"}},
    {"auto:bits=four", GW_ERR_BAD_SETTING, {"bits=four", "a number from 0.25 to 32"}},
    {"auto:bits=-1", GW_ERR_BAD_SETTING, {"bits=-1", "0.25 to 32"}},
    {"auto:bits=33", GW_ERR_BAD_SETTING, {"bits=33", "0.25 to 32"}},
    {"auto:bits=nan", GW_ERR_BAD_SETTING, {"bits=nan", "0.25 to 32"}},
    {"auto:bits=4,ef=off", GW_ERR_BAD_SETTING, {"'bits=4,ef=off'", "one parameter", "is named"}},
    {"auto:bits=0.01", GW_ERR_BAD_SETTING, {"bits=0.01", "0.25 to 32"}},
    {"auto:bits=0", GW_ERR_BAD_SETTING, {"bits=0", "0.25 to 32"}},
    {"fp8e4m3:block=100", GW_ERR_BAD_SETTING, {"block=100", "multiple of 32", "96"}},
    {"fp8e5m2:block=16", GW_ERR_BAD_SETTING, {"32 to 4096"}},
    {"nvfp4:group=1000", GW_ERR_BAD_SETTING, {"group=1000", "multiple of 512", "1024"}},
    {"mxfp4:block=32", GW_ERR_BAD_SETTING, {"'block'", "group"}},
    {"bf16:type=fp32", GW_ERR_BAD_SETTING, {"fp16|bf16"}},
    {"q4:bucket=64,bucket=64,bucket=64,bucket=64,bucket=64,bucket=64,bucket=64,bucket=64,"
     "bucket=64,bucket=64,bucket=64,bucket=64,bucket=64,bucket=64",
     GW_ERR_BAD_SETTING,
     {"longer than"}},
};

START_TEST(bad_specs_say_what_is_allowed)
{
    gw_coder_t coder;
    char why[512] = "";
    memset(&coder, 0xA5, sizeof coder);
    ck_assert_int_eq(gw_coder_parse(bad[_i].spec, &coder, why, sizeof why), bad[_i].status);
    for (int w = 0; w < 3 && bad[_i].words[w]; w++)
        ck_assert_msg(strstr(why, bad[_i].words[w]), "'%s': '%s' is not in: %s", bad[_i].spec,
                      bad[_i].words[w], why);
    ck_assert_uint_eq(((unsigned char *)&coder)[0], 0xA5); /* outputs only on success */
    ck_assert_int_eq(gw_coder_parse(bad[_i].spec, &coder, NULL, 0), bad[_i].status);
    ck_assert_int_eq(gw_coder_parse(bad[_i].spec, &coder, why, 5), bad[_i].status);
    ck_assert_uint_lt(strlen(why), 5);
}
END_TEST

START_TEST(no_spec_is_an_error)
{
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse(NULL, &coder, NULL, 0), GW_ERR_INVALID);
}
END_TEST

START_TEST(values_are_found_by_name)
{
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("q3:bucket=96,ef=off", &coder, NULL, 0), GW_OK);
    ck_assert(gw_coder_get(&coder, "bits", -1) == 3);
    ck_assert(gw_coder_get(&coder, "bucket", -1) == 96);
    ck_assert(gw_coder_get(&coder, "ef", -1) == 0);
    ck_assert(gw_coder_get(&coder, "zero", -1) == 1);
    ck_assert(gw_coder_get(&coder, "ratio", -1) == -1);
}
END_TEST

/* Each default is a codec, is what its budget resolves to, and sends about as many bits. */
START_TEST(budgets_hold_what_they_say)
{
    double bits, before = 0;
    const char *spec;
    size_t i = 0, sized = 1 << 24;
    for (; (spec = gw_codec_budget_at(i, &bits)); i++) {
        char text[32];
        gw_coder_t named, budget;
        ck_assert(bits > before);
        before = bits;
        ck_assert_msg(gw_coder_parse(spec, &named, NULL, 0) == GW_OK, "%s", spec);
        ck_assert_str_eq(named.spec, spec);
        snprintf(text, sizeof text, "auto:bits=%.9g", bits);
        ck_assert_int_eq(gw_coder_parse(text, &budget, NULL, 0), GW_OK);
        ck_assert_mem_eq(&budget, &named, sizeof named);
        double sent = 8.0 * (double)named.family->bound(&named, GW_F32, sized) / (double)sized;
        gw_check(sent <= bits * 1.15, "%s sends %g bits, not %g", spec, sent, bits);
    }
    ck_assert_uint_ge(i, 7);
    ck_assert_ptr_null(gw_codec_budget_at(i, &bits));
    ck_assert_ptr_null(gw_codec_budget_at(SIZE_MAX, &bits));
}
END_TEST

/* ---- The table of families ----------------------------------------------------------------------
 */

START_TEST(families_are_in_order_of_id)
{
    const gw_codec_t *family;
    int last = -1, count = 0;
    for (size_t i = 0; (family = gw_codec_at(i)); i++, count++) {
        ck_assert_int_gt(family->id, last);
        ck_assert_int_lt(family->id, 64);
        ck_assert_ptr_eq(gw_codec_by_id(family->id), family);
        ck_assert_int_eq(family->abi, GW_CODEC_ABI);
        last = family->id;
    }
    ck_assert_int_ge(count, 2);
    ck_assert_ptr_null(gw_codec_by_id(99));
}
END_TEST

static bool is_external(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "mine");
}

static void external_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "mine");
}

static const gw_codec_t *whole_family(void)
{
    static gw_codec_t mine;
    mine = *gw_codec_by_id(0);
    mine.id = 200;
    mine.family = mine.names = "mine";
    mine.match = is_external;
    mine.name = external_name;
    return &mine;
}

static void objects(const gw_codec_t *family, const char *words)
{
    char why[128] = "";
    ck_assert_int_eq(gw_codec_check(family, why, sizeof why), GW_ERR_INVALID);
    ck_assert_msg(strstr(why, words), "'%s' is not in: %s", words, why);
    ck_assert_int_eq(gw_codec_check(family, NULL, 0), GW_ERR_INVALID);
}

START_TEST(what_a_family_lacks_is_named)
{
    static gw_codec_param_t many[GW_CODEC_MAX_PARAMS + 2];
    gw_codec_t f = *whole_family();
    char why[128] = "untouched";
    ck_assert_int_eq(gw_codec_check(&f, why, sizeof why), GW_OK);
    ck_assert_str_eq(why, "untouched");
    objects(NULL, "no codec family");
    f.id = 63;
    objects(&f, "id is 63; 128 to 255");
    f = *whole_family();
    f.abi++;
    objects(&f, "abi is ");
    f = *whole_family();
    f.decode = NULL;
    objects(&f, "decode is missing");
    f = *whole_family();
    f.flags |= GW_CODEC_LOSSY;
    objects(&f, "error_bound, for GW_CODEC_LOSSY");
    f = *whole_family();
    f.flags |= GW_CODEC_FACTORS;
    objects(&f, "factors, for GW_CODEC_FACTORS");
    for (size_t i = 0; i <= GW_CODEC_MAX_PARAMS; i++)
        many[i].name = "x";
    f = *whole_family();
    f.params = many;
    objects(&f, "more than");
}
END_TEST

START_TEST(families_can_be_registered)
{
    static gw_codec_t mine, other, wrong;
    gw_coder_t coder;
    mine = *whole_family();
    wrong = mine;
    wrong.id = 63;
    ck_assert_int_eq(gw_codec_register(&wrong), GW_ERR_INVALID);
    wrong.id = 201;
    wrong.abi = GW_CODEC_ABI + 1;
    ck_assert_int_eq(gw_codec_register(&wrong), GW_ERR_INVALID);
    wrong.abi = GW_CODEC_ABI;
    wrong.decode = NULL;
    ck_assert_int_eq(gw_codec_register(&wrong), GW_ERR_INVALID);
    ck_assert_int_eq(gw_codec_register(NULL), GW_ERR_INVALID);
    ck_assert_int_eq(gw_codec_register(&mine), GW_OK);
    ck_assert_int_eq(gw_codec_register(&mine), GW_ERR_INVALID); /* id taken */
    other = mine;
    other.id = 150;
    ck_assert_int_eq(gw_codec_register(&other), GW_OK);
    ck_assert_ptr_eq(gw_codec_by_id(200), &mine);
    ck_assert_ptr_eq(gw_codec_by_id(150), &other);
    ck_assert_int_eq(gw_coder_parse("mine", &coder, NULL, 0), GW_OK);
    ck_assert_ptr_eq(coder.family, &other); /* the lower id is asked first */
    ck_assert_str_eq(coder.spec, "mine");
    static gw_codec_t more[32];
    gw_status_t status = GW_OK;
    for (uint8_t i = 0; i < 32 && !status; i++) {
        more[i] = mine;
        more[i].id = (uint8_t)(210 + i);
        status = gw_codec_register(&more[i]);
    }
    ck_assert_int_eq(status, GW_ERR_NO_SPACE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("spec");
    TCase *t = tcase_create("spec");
    tcase_add_loop_test(t, good_specs_have_one_canonical_text, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(t, bad_specs_say_what_is_allowed, 0, sizeof bad / sizeof *bad);
    tcase_set_timeout(t, 60); /* a locale may have to be made first */
    tcase_add_test(t, numbers_of_specs_are_read_alike_in_every_locale);
    tcase_add_test(t, long_whole_numbers_stay_what_they_are);
    tcase_add_test(t, no_spec_is_an_error);
    tcase_add_test(t, values_are_found_by_name);
    tcase_add_test(t, budgets_hold_what_they_say);
    tcase_add_test(t, families_are_in_order_of_id);
    tcase_add_test(t, what_a_family_lacks_is_named);
    tcase_add_test(t, families_can_be_registered);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
