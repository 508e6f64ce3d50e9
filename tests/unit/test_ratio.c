/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/ratio.csv: bytes and error of every codec on two kinds of data, so that a change
 * shows as a diff. `test_ratio --write FILE` writes it anew. */
#include "gw_test.h"

#include <math.h>
#include <string.h>

#include "bench_codec.h"
#include "contract.h"

/* Some blocks of each codec, and a tail. */
enum { COUNT = 2 * 65536 + 1000, VARIANTS = 128, LINE = 256 };
static const char head[] = "codec,data,count,payload_bytes,relative_l2_error\n";
static const char *const laws[] = {"normal", "gradient"};
enum { LAWS = sizeof laws / sizeof *laws };
static float x[COUNT], y[COUNT];

typedef struct row {
    char spec[GW_CODEC_SPEC_MAX], data[16];
    size_t count, bytes;
    double error;
} row_t;

static void load(const char *law)
{
    gw_bench_source_t source;
    char why[256] = "";
    if (!gw_bench_source_open(law, &source, why, sizeof why) ||
        !gw_bench_source_fill(&source, GW_F32, COUNT, x, why, sizeof why))
        ck_abort_msg("%s: %s", law, why);
    gw_bench_source_close(&source);
}

/* Without a residual: what one call loses. */
static row_t measure(const gw_coder_t *coder, const char *law)
{
    row_t row = {.count = COUNT};
    size_t room = coder->family->bound(coder, GW_F32, COUNT);
    uint8_t *payload = malloc(room);
    double lost = 0, all = 0;
    gw_encode_t in = {.src = x, .count = COUNT, .key = 77, .shared_key = 78};
    ck_assert_int_eq(coder->family->encode(coder, &in, payload, room, &row.bytes), GW_OK);
    gw_decode_t io = {.payload = payload, .length = row.bytes, .count = COUNT, .dst = y};
    ck_assert_int_eq(coder->family->decode(coder, &io), GW_OK);
    for (size_t i = 0; i < COUNT; i++) {
        lost += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        all += (double)x[i] * (double)x[i];
    }
    free(payload);
    row.error = sqrt(lost / all);
    snprintf(row.spec, sizeof row.spec, "%s", coder->spec);
    snprintf(row.data, sizeof row.data, "%s", law);
    return row;
}

/* A comma inside a specification is written as a semicolon. Whether feedback is on changes nothing
 * of one call. */
static void print(const row_t *row, char *out)
{
    snprintf(out, LINE, "%s,%s,%zu,%zu,%.3e\n", row->spec, row->data, row->count, row->bytes,
             row->error);
    char *end = out + strlen(row->spec);
    for (char *c = out; c < end; c++)
        *c = *c == ',' ? ';' : *c;
}

typedef void (*take_fn)(const row_t *row, void *arg);

static void each(take_fn take, void *arg)
{
    static gw_coder_t coder[VARIANTS];
    const gw_codec_t *family;
    for (size_t l = 0; l < LAWS; l++) {
        load(laws[l]);
        for (size_t f = 0; (family = gw_codec_at(f)); f++) {
            size_t n = contract_variants(family, coder, VARIANTS);
            for (size_t v = 0; v < n; v++) {
                if (strstr(coder[v].spec, "ef="))
                    continue;
                row_t row = measure(&coder[v], laws[l]);
                take(&row, arg);
            }
        }
    }
}

static void write_row(const row_t *row, void *arg)
{
    char line[LINE];
    print(row, line);
    fputs(line, arg);
}

static const char *write_to; /* the file's name, when it is to be written */

START_TEST(write_all)
{
    FILE *f = fopen(write_to, "w");
    ck_assert_msg(f != NULL, "%s cannot be written", write_to);
    fputs(head, f);
    each(write_row, f);
    ck_assert_int_eq(fclose(f), 0);
}
END_TEST

/* ---- Comparison ---------------------------------------------------------------------------------
 */

/* Whether a line of the file says what was measured. Bytes exactly; of the error the fourth digit
 * may be one off, since the data come out of the C library's functions. */
static bool agrees(const char *line, const row_t *row)
{
    char now[LINE];
    print(row, now);
    const char *error = strrchr(line, ','), *own = strrchr(now, ',');
    if (!error || error - line != own - now || strncmp(line, now, (size_t)(own - now)) != 0)
        return false;
    double kept = strtod(error + 1, NULL), rounded = strtod(own + 1, NULL);
    double digit = rounded > 0 ? pow(10, floor(log10(rounded)) - 3) : 0;
    return fabs(kept - rounded) <= 1.01 * digit;
}

static void compare_row(const row_t *row, void *arg)
{
    char line[LINE] = "", now[LINE];
    print(row, now);
    bool there = fgets(line, sizeof line, arg);
    gw_check(there && agrees(line, row),
             "tests/golden/ratio.csv has %s, now it is %s"
             "(build/tests/test_ratio --write tests/golden/ratio.csv writes it anew)",
             there ? line : "no more lines", now);
}

START_TEST(bytes_and_errors_are_as_recorded)
{
    char path[1024], line[LINE];
    const char *source = getenv("GW_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/ratio.csv", source ? source : ".");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    ck_assert(fgets(line, sizeof line, f) && !strcmp(line, head));
    each(compare_row, f);
    ck_assert_msg(!fgets(line, sizeof line, f), "no codec for %s", line);
    fclose(f);
}
END_TEST

/* One byte more, the error two digits off, another codec: each must be seen. */
START_TEST(changes_are_seen)
{
    row_t row = {
        .spec = "q4:bucket=32", .data = "normal", .count = 10, .bytes = 7, .error = 0.1234};
    ck_assert(agrees("q4:bucket=32,normal,10,7,1.234e-01\n", &row));
    ck_assert(agrees("q4:bucket=32,normal,10,7,1.235e-01\n", &row));
    ck_assert(!agrees("q4:bucket=32,normal,10,7,1.236e-01\n", &row));
    ck_assert(!agrees("q4:bucket=32,normal,10,8,1.234e-01\n", &row));
    ck_assert(!agrees("q4:bucket=64,normal,10,7,1.234e-01\n", &row));
    ck_assert(!agrees("", &row));
    row.error = 0;
    ck_assert(!agrees("q4:bucket=32,normal,10,7,1.000e-09\n", &row));
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("ratio");
    TCase *tc = tcase_create("ratio");
    tcase_set_timeout(tc, 300);
    write_to = argc == 3 && !strcmp(argv[1], "--write") ? argv[2] : NULL;
    if (write_to)
        tcase_add_test(tc, write_all);
    else
        tcase_add_test(tc, bytes_and_errors_are_as_recorded);
    tcase_add_test(tc, changes_are_seen);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
