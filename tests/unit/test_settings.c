/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: good and bad values, who wins, what is said about mistakes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "context_internal.h"
#include "gw_locale.h"

extern char **environ;

/* The machine's own settings must not reach the tests. */
static void clear_environment(void)
{
    for (char **e = environ; *e;) {
        char name[256];
        if (strncmp(*e, "GRADWIRE_", 9) != 0) {
            e++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        unsetenv(name);
        e = environ;
    }
}

static gw_status_t create(const char *name, const char *value, gw_context_t **out, char *why,
                          size_t size)
{
    gw_setting_t setting = {name, value};
    *out = NULL;
    return gw_context_create(&setting, 1, out, why, size);
}

static void accepts(const char *name, const char *value)
{
    gw_context_t *context;
    char why[512] = "";
    gw_status_t status = create(name, value, &context, why, sizeof why);
    ck_assert_msg(status == GW_OK, "%s=%s: %s", name, value, why);
    gw_context_free(context);
}

/* The sentence names setting, value and what is allowed. */
static void refuses(const char *name, const char *value, const char *allowed)
{
    gw_context_t *context;
    char why[512] = "", start[300];
    gw_status_t status = create(name, value, &context, why, sizeof why);
    ck_assert_msg(status == GW_ERR_BAD_SETTING, "%s=%s: status %d", name, value, status);
    ck_assert_ptr_null(context);
    snprintf(start, sizeof start, "%s=%s: ", name, value);
    ck_assert_msg(strncmp(why, start, strlen(start)) == 0, "%s=%s says: %s", name, value, why);
    ck_assert_msg(strstr(why, allowed) != NULL, "%s=%s says: %s", name, value, why);
    /* The same out of the environment. */
    setenv(name, value, 1);
    char again[512] = "";
    status = gw_context_create(NULL, 0, &context, again, sizeof again);
    unsetenv(name);
    if (value[0] == '\0') { /* there it means: not set */
        ck_assert_int_eq(status, GW_OK);
        gw_context_free(context);
        return;
    }
    ck_assert_int_eq(status, GW_ERR_BAD_SETTING);
    ck_assert_str_eq(again, why);
}

typedef struct row {
    const char *name, *value, *allowed; /* NULL: a good value */
} row_t;

static const row_t rows[] = {
    {"GRADWIRE_CODEC", "q4", NULL},
    {"GRADWIRE_CODEC", "q4:bucket=64,round=stochastic", NULL},
    {"GRADWIRE_CODEC", "raw", NULL},
    {"GRADWIRE_CODEC", "", ""},
    {"GRADWIRE_CODEC", "q9", "q"},
    {"GRADWIRE_CODEC", "nosuch", "nosuch"},
    {"GRADWIRE_CODEC", "q4:bukket=64", "bukket"},
    {"GRADWIRE_CODEC", "q4:bucket=-1", "bucket"},
    {"GRADWIRE_MIN_BYTES", "0", NULL},
    {"GRADWIRE_MIN_BYTES", "64K", NULL},
    {"GRADWIRE_MIN_BYTES", "1g", NULL},
    {"GRADWIRE_MIN_BYTES", "", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "-1", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", " -1", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "+1", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "64KB", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "0x10", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "1.5M", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "99999999999999999999", "number of bytes"},
    {"GRADWIRE_MIN_BYTES", "18446744073709551615G", "number of bytes"},
    {"GRADWIRE_GATE", "always", NULL},
    {"GRADWIRE_GATE", "Always", "always"},
    {"GRADWIRE_GATE", "auto", "always"},
    {"GRADWIRE_PLAN", "auto", NULL},
    {"GRADWIRE_PLAN", "direct", NULL},
    {"GRADWIRE_PLAN", "gather", NULL},
    {"GRADWIRE_PLAN", "ring", "raw or randomk"}, /* the codec is q4 */
    {"GRADWIRE_PLAN", "tree", "GRADWIRE_PLAN=auto"},
    {"GRADWIRE_PLAN", "star", "auto|direct|gather|ring|tree"},
    {"GRADWIRE_PLAN", "", "auto|direct|gather|ring|tree"},
    {"GRADWIRE_PLAN", "direct|gather", "auto|direct|gather|ring|tree"},
    {"GRADWIRE_LOG", "off", NULL},
    {"GRADWIRE_LOG", "debug", NULL},
    {"GRADWIRE_LOG", "verbose", "off|warn|info|debug"},
    {"GRADWIRE_LOG_FILE", "/nonexistent/directory/log", "cannot be opened"},
    {"GRADWIRE_SEED", "0", NULL},
    {"GRADWIRE_SEED", "18446744073709551615", NULL},
    {"GRADWIRE_SEED", "18446744073709551616", "0 to 2^64-1"},
    {"GRADWIRE_SEED", "-1", "0 to 2^64-1"},
    {"GRADWIRE_SEED", " 1", "0 to 2^64-1"},
    {"GRADWIRE_SEED", "1x", "0 to 2^64-1"},
    {"GRADWIRE_SEED", "", "0 to 2^64-1"},
    {"GRADWIRE_KERNELS", "ref", NULL},
    {"GRADWIRE_KERNELS", "best", NULL},
    {"GRADWIRE_TRANSPORT", "auto", NULL},
    {"GRADWIRE_TRANSPORT", "ucx", NULL},
    {"GRADWIRE_TRANSPORT", "mpi", NULL},
    {"GRADWIRE_TRANSPORT", "carrier-pigeon", "auto|ucx|mpi"},
    {"GRADWIRE_TRANSPORT", "fault", NULL},
    {"GRADWIRE_FAULT", "", NULL},
    {"GRADWIRE_FAULT", "over=ucx,seed=7,drop=0.01,kill=2@100", NULL},
    {"GRADWIRE_FAULT", "drop=2", "a chance of 0 to 1"},
    {"GRADWIRE_FAULT", "sabotage=1", "no such fault"},
    {"GRADWIRE_CONFIG", "", NULL},
    {"GRADWIRE_CONFIG", "/dev/null/rules", "cannot be read"},
    {"GRADWIRE_CONFIG", "/dev/zero", "is not a file of text"},
    {"GRADWIRE_LAYOUT", "", NULL},
    {"GRADWIRE_LAYOUT", "/dev/null/layout", "cannot be read"},
    {"GRADWIRE_LAYOUT", "/dev/zero", "is not a file of text"},
    {"GRADWIRE_KERNELS", "sse9", "sse9"},
    {"GRADWIRE_THREADS", "0", NULL},
    {"GRADWIRE_THREADS", "64", NULL},
    {"GRADWIRE_THREADS", "65", "0 to 64"},
    {"GRADWIRE_THREADS", "-1", "0 to 64"},
    {"GRADWIRE_THREADS", "all", "0 to 64"},
    {"GRADWIRE_CHECKSUM", "on", NULL},
    {"GRADWIRE_CHECKSUM", "1", "off|on"},
    {"GRADWIRE_INTERFACES", "", NULL},
    {"GRADWIRE_INTERFACES", "eth0,10.0.0.0/8", NULL},
    {"GRADWIRE_INTERFACES", "^docker0", NULL},
    {"GRADWIRE_INTERFACES", "10.0.0.0/99", "more bits after /"},
    {"GRADWIRE_INTERFACES", "eth0,,eth1", "empty item"},
    {"GRADWIRE_INTERFACES", "eth0,^eth1", "only once"},
    {"GRADWIRE_PORTS", "", NULL},
    {"GRADWIRE_PORTS", "5000-5100", NULL},
    {"GRADWIRE_PORTS", "65535", NULL},
    {"GRADWIRE_PORTS", "0-100", "range of ports"},
    {"GRADWIRE_PORTS", "100-65536", "range of ports"},
    {"GRADWIRE_PORTS", "5100-5000", "range of ports"},
    {"GRADWIRE_PORTS", "5000-", "range of ports"},
    {"GRADWIRE_PORTS", "-5000", "range of ports"},
    {"GRADWIRE_PORTS", "5000-5100x", "range of ports"},
    {"GRADWIRE_PORTS", "5000 - 5100", "range of ports"},
    {"GRADWIRE_TIMEOUT", "60", NULL},
    {"GRADWIRE_TIMEOUT", "0.5", NULL},
    {"GRADWIRE_TIMEOUT", "1000000", NULL},
    {"GRADWIRE_TIMEOUT", "0", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "1000001", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "inf", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "nan", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "-5", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "5s", "0.1 to 1000000"},
    {"GRADWIRE_TIMEOUT", "0x20", "0.1 to 1000000"},
    {"GRADWIRE_RESIDUAL_BYTES", "", NULL},
    {"GRADWIRE_RESIDUAL_BYTES", "4G", NULL},
    {"GRADWIRE_RESIDUAL_BYTES", "lots", "number of bytes"},
    {"GRADWIRE_GUARD", "on", NULL},
    {"GRADWIRE_GUARD", "off", NULL},
    {"GRADWIRE_GUARD", "1", "off|on"},
    {"GRADWIRE_DEVICE", "auto", NULL},
    {"GRADWIRE_DEVICE", "off", NULL},
    {"GRADWIRE_DEVICE", "cuda", "auto|off"},
    {"GRADWIRE_RESIDUALS", "bf16", NULL},
    {"GRADWIRE_RESIDUALS", "pinned", NULL},
    {"GRADWIRE_RESIDUALS", "fp16", "fp32|bf16|pinned"},
    {"GRADWIRE_DISABLE", "0", NULL},
    {"GRADWIRE_DISABLE", "1", NULL},
    {"GRADWIRE_DISABLE", "yes", "0|1"},
    {"GRADWIRE_DISABLE", "2", "0|1"},
};

START_TEST(values_are_accepted_or_named)
{
    clear_environment();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].allowed)
            refuses(rows[i].name, rows[i].value, rows[i].allowed);
        else
            accepts(rows[i].name, rows[i].value);
    }
}
END_TEST

/* Whoever adds a setting says here what it refuses. The stats file takes any name: what is wrong
 * with it shows when it is written (test_stats.c), or is its length (below). */
START_TEST(every_setting_has_a_value_that_is_refused)
{
    gw_setting_info_t info;
    for (size_t i = 0; gw_setting_at(NULL, i, &info) == GW_OK; i++) {
        bool refused = strcmp(info.name, "GRADWIRE_STATS") == 0;
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            refused |= rows[j].allowed && strcmp(rows[j].name, info.name) == 0;
        ck_assert_msg(refused, "%s has no bad value among the tests", info.name);
    }
}
END_TEST

START_TEST(ports_are_a_range)
{
    gw_context_t *context;
    clear_environment();
    ck_assert_int_eq(create("GRADWIRE_PORTS", "5000-5100", &context, NULL, 0), GW_OK);
    ck_assert_int_eq(context->settings.port_min, 5000);
    ck_assert_int_eq(context->settings.port_max, 5100);
    gw_context_free(context);
    ck_assert_int_eq(create("GRADWIRE_PORTS", "7", &context, NULL, 0), GW_OK);
    ck_assert_int_eq(context->settings.port_min, 7);
    ck_assert_int_eq(context->settings.port_max, 7);
    gw_context_free(context);
}
END_TEST

START_TEST(an_unknown_kernel_tier_is_an_error)
{
    gw_context_t *context;
    char why[256] = "";
    clear_environment();
    ck_assert_int_lt(create("GRADWIRE_KERNELS", "sse9", &context, why, sizeof why), 0);
    ck_assert_msg(strstr(why, "sse9") != NULL, "says: %s", why);
}
END_TEST

START_TEST(suffixes_of_bytes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},         {"4096", 4096},   {"64K", 65536},
        {"2M", 2u << 20}, {"2m", 2u << 20}, {"1G", (size_t)1 << 30},
        {"7k", 7 * 1024}, {"007", 7},       {"8589934591G", 8589934591u * ((size_t)1 << 30)}};
    size_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(gw__parse_bytes(good[i].text, &bytes) == GW_OK, "%s", good[i].text);
        ck_assert_uint_eq(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",           "K",   "1T",  "1KK", "1 K",
                                      "-0",         "1e3", "1K ", "\t1", "9223372036854775808K",
                                      "8589934592G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(gw__parse_bytes(bad[i], &bytes) == GW_ERR_BAD_SETTING, "%s", bad[i]);
}
END_TEST

/* A process may have set a locale with a decimal comma. */
START_TEST(numbers_are_read_alike_in_every_locale)
{
    clear_environment();
    if (!gw_test_locale_with_comma())
        gw_test_skip("numbers_are_read_alike_in_every_locale", "no locale with a decimal comma");
    gw_context_t *context;
    ck_assert_int_eq(create("GRADWIRE_TIMEOUT", "2.25", &context, NULL, 0), GW_OK);
    ck_assert(context->settings.timeout == 2.25);
    gw_context_free(context);
    ck_assert_int_eq(create("GRADWIRE_TIMEOUT", "2,25", &context, NULL, 0), GW_ERR_BAD_SETTING);
}
END_TEST

static int lines_with(const char *file, const char *text)
{
    char line[2048];
    int lines = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        lines += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return lines;
}

START_TEST(unknown_names_of_the_environment_warn_once)
{
    char log[64];
    gw_context_t *context;
    clear_environment();
    snprintf(log, sizeof log, "/tmp/gw_settings_%ld.log", (long)getpid());
    unlink(log);
    setenv("GRADWIRE_CODEK", "q8", 1);
    setenv("GRADWIRE_MINBYTES", "1", 1);
    setenv("GRADWIRE_UCX_TLS", "tcp", 1);
    setenv("GRADWIRE_BUILD", "/tmp", 1);
    setenv("NOT_GRADWIRE_CODEX", "1", 1);
    ck_assert_int_eq(create("GRADWIRE_LOG_FILE", log, &context, NULL, 0), GW_OK);
    ck_assert_str_eq(context->settings.text[GW__SETTING_CODEC], "q4");
    gw_context_free(context);
    ck_assert_int_eq(lines_with(log, "unknown setting"), 1);
    ck_assert_int_eq(lines_with(log, "GRADWIRE_CODEK (did you mean GRADWIRE_CODEC?)"), 1);
    ck_assert_int_eq(lines_with(log, "GRADWIRE_MINBYTES (did you mean GRADWIRE_MIN_BYTES?)"), 1);
    ck_assert_int_eq(lines_with(log, "UCX_TLS"), 0);
    ck_assert_int_eq(lines_with(log, "BUILD"), 0);
    ck_assert_int_eq(lines_with(log, "CODEX"), 0);
    unlink(log);
    /* More unknown names than the text holds, and one that is longer than any setting. */
    for (int i = 0; i < 40; i++) {
        char name[200];
        snprintf(name, sizeof name, "GRADWIRE_%0*d", i == 20 ? 150 : 4, i);
        setenv(name, "1", 1);
    }
    ck_assert_int_eq(create("GRADWIRE_LOG", "off", &context, NULL, 0), GW_OK);
    gw_context_free(context);
    clear_environment();
}
END_TEST

START_TEST(overrides_beat_the_environment)
{
    gw_context_t *context;
    clear_environment();
    setenv("GRADWIRE_CODEC", "q8", 1);
    setenv("GRADWIRE_MIN_BYTES", "1K", 1);
    setenv("GRADWIRE_PLAN", "", 1); /* empty: as if it was not set */
    ck_assert_int_eq(create("GRADWIRE_CODEC", "q2", &context, NULL, 0), GW_OK);
    /* The environment is read once. */
    setenv("GRADWIRE_MIN_BYTES", "2K", 1);
    static const struct {
        const char *name, *value, *origin;
    } expected[] = {{"GRADWIRE_CODEC", "q2", "override"},
                    {"GRADWIRE_MIN_BYTES", "1K", "environment"},
                    {"GRADWIRE_PLAN", "auto", "default"}};
    size_t seen = 0;
    gw_setting_info_t info, bare;
    for (size_t i = 0; gw_setting_at(context, i, &info) == GW_OK; i++) {
        ck_assert(info.name && info.value && info.def && info.type && info.help && info.origin);
        ck_assert_int_eq(gw_setting_at(NULL, i, &bare), GW_OK);
        ck_assert_str_eq(bare.value, bare.def);
        ck_assert_str_eq(bare.origin, "default");
        for (size_t e = 0; e < 3; e++)
            if (strcmp(info.name, expected[e].name) == 0) {
                ck_assert_str_eq(info.value, expected[e].value);
                ck_assert_str_eq(info.origin, expected[e].origin);
                seen++;
            }
    }
    ck_assert_uint_eq(seen, 3);
    ck_assert_int_eq(gw_setting_at(context, 10000, &info), GW_ERR_NOT_FOUND);
    ck_assert_uint_eq(context->settings.min_bytes, 1024);
    gw_context_free(context);
    clear_environment();
}
END_TEST

START_TEST(bad_overrides_are_named)
{
    char why[512], value[GW__SETTING_TEXT_MAX + 8];
    gw_context_t *context;
    clear_environment();
    ck_assert_int_eq(create("GRADWIRE_TIMEOUTS", "3", &context, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "GRADWIRE_TIMEOUTS: no such setting, did you mean GRADWIRE_TIMEOUT?");
    ck_assert_int_eq(create(NULL, "3", &context, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_int_eq(create("GRADWIRE_TIMEOUT", NULL, &context, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    /* Too long, by one; the longest that fits is not cut. */
    memset(value, 'x', sizeof value);
    value[GW__SETTING_TEXT_MAX] = '\0';
    ck_assert_int_eq(create("GRADWIRE_INTERFACES", value, &context, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "GRADWIRE_INTERFACES: value longer than 1023 bytes");
    setenv("GRADWIRE_STATS", value, 1);
    ck_assert_int_eq(gw_context_create(NULL, 0, &context, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_str_eq(why, "GRADWIRE_STATS: value longer than 1023 bytes");
    clear_environment();
    value[GW__SETTING_TEXT_MAX - 1] = '\0';
    ck_assert_int_eq(create("GRADWIRE_STATS", value, &context, why, sizeof why), GW_OK);
    ck_assert_uint_eq(strlen(context->settings.text[GW__SETTING_STATS]), GW__SETTING_TEXT_MAX - 1);
    gw_context_free(context);
    ck_assert_int_eq(gw_context_create(NULL, 1, &context, why, sizeof why), GW_ERR_INVALID);
    ck_assert_int_eq(gw_context_create(NULL, 0, NULL, why, sizeof why), GW_ERR_INVALID);
}
END_TEST

START_TEST(a_small_buffer_for_the_reason_is_respected)
{
    clear_environment();
    for (size_t size = 0; size < 40; size++) {
        char why[48];
        gw_context_t *context;
        memset(why, '#', sizeof why);
        ck_assert_int_eq(create("GRADWIRE_PLAN", "ring", &context, why, size), GW_ERR_BAD_SETTING);
        for (size_t i = size; i < sizeof why; i++)
            gw_check(why[i] == '#', "size %zu: byte %zu", size, i);
        gw_check(size == 0 || memchr(why, '\0', size), "size %zu: no end", size);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settings");
    TCase *tc = tcase_create("settings");
    tcase_add_test(tc, values_are_accepted_or_named);
    tcase_add_test(tc, every_setting_has_a_value_that_is_refused);
    tcase_add_test(tc, ports_are_a_range);
    tcase_add_test(tc, an_unknown_kernel_tier_is_an_error);
    tcase_add_test(tc, suffixes_of_bytes);
    tcase_set_timeout(tc, 60); /* a locale may have to be made first */
    tcase_add_test(tc, numbers_are_read_alike_in_every_locale);
    tcase_add_test(tc, unknown_names_of_the_environment_warn_once);
    tcase_add_test(tc, overrides_beat_the_environment);
    tcase_add_test(tc, bad_overrides_are_named);
    tcase_add_test(tc, a_small_buffer_for_the_reason_is_respected);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
