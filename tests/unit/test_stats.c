/* SPDX-License-Identifier: Apache-2.0 */
/* Figures: bytes counted by hand, sums that must add up, and the JSON file, whole at every moment.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gw_world.h"
#include "gw_bound.h"
#include "comm_internal.h"

/* ---- A strict reader of JSON
 * -------------------------------------------------------------------------- */

static const char *skip(const char *c)
{
    return c + strspn(c, " \t\r\n");
}

static const char *text(const char *c)
{
    if (*c++ != '"')
        return NULL;
    for (; *c != '"'; c++) {
        if ((unsigned char)*c < 0x20)
            return NULL;
        if (*c != '\\')
            continue;
        c++;
        if (*c == 'u') {
            for (int i = 1; i <= 4; i++)
                if (!isxdigit((unsigned char)c[i]))
                    return NULL;
            c += 4;
        } else if (*c == '\0' || !strchr("\"\\/bfnrt", *c)) {
            return NULL;
        }
    }
    return c + 1;
}

static const char *value(const char *c);

/* The members of an object or array behind its first bracket. */
static const char *members(const char *c, char close, bool named)
{
    c = skip(c);
    if (*c == close)
        return c + 1;
    for (;;) {
        if (named) {
            c = text(skip(c));
            if (!c || *(c = skip(c)) != ':')
                return NULL;
            c++;
        }
        c = value(c);
        if (!c)
            return NULL;
        c = skip(c);
        if (*c == close)
            return c + 1;
        if (*c++ != ',')
            return NULL;
    }
}

/* Behind the value at `c`, or NULL when it is not one. Figures are whole numbers. */
static const char *value(const char *c)
{
    c = skip(c);
    if (*c == '{')
        return members(c + 1, '}', true);
    if (*c == '[')
        return members(c + 1, ']', false);
    if (*c == '"')
        return text(c);
    size_t digits = strspn(c, "0123456789");
    return digits > 0 && (digits == 1 || *c != '0') ? c + digits : NULL;
}

static bool is_json(const char *document)
{
    const char *end = value(document);
    return end && *skip(end) == '\0';
}

/* The number behind the first "name": from `c` on. */
static uint64_t number(const char *c, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(c, key);
    ck_assert_msg(at != NULL, "no %s in %s", name, c);
    return strtoull(at + strlen(key), NULL, 10);
}

static char *read_file(const char *name)
{
    static _Thread_local char content[1 << 18];
    FILE *f = fopen(name, "r");
    if (!f)
        return NULL;
    size_t n = fread(content, 1, sizeof content - 1, f);
    content[n] = '\0';
    fclose(f);
    return content;
}

START_TEST(the_reader_is_strict)
{
    static const char *const good[] = {"{}", "{\"a\": [1, 2, {\"b\": \"c\\n\\u00ff\"}]}", " [ ] "};
    static const char *const bad[] = {"",       "{",           "{} x",     "{\"a\" 1}", "[1,]",
                                      "[1 2]",  "{\"a\":}",    "\"a\nb\"", "\"\\x\"",   "[01]",
                                      "{a: 1}", "\"\\u12g4\"", "[1, 2",    "nan"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(is_json(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!is_json(bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(any_name_becomes_a_json_string)
{
    static const struct {
        const char *name, *json;
    } table[] = {
        {"plain", "\"plain\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"a\nb\x01", "\"a\\u000ab\\u0001\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"cut \xe2\x82", "\"cut \\ufffd\\ufffd\""},
        {"\xff\xc0\xaf", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xf5\x80", "\"\\ufffd\\ufffd\""},
        {"", "\"\""}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *out = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&out, &size);
        gw_json_string(f, table[i].name);
        fclose(f);
        ck_assert_str_eq(out, table[i].json);
        ck_assert(is_json(out));
        free(out);
    }
}
END_TEST

/* ---- Bytes counted by hand
 * ---------------------------------------------------------------------------- */

enum { COUNT = 3 * 5120 };

/* Bytes of a frame of q4 with buckets of 512: two to a byte, and two floats for each bucket. */
static size_t frame_bytes(size_t count)
{
    gw_coder_t coder = gw_test_coder("q4");
    float x[512] = {1.0f};
    uint8_t frame[4096];
    size_t length;
    gw_encode_t in = {.src = x, .src_dtype = GW_F32, .wire_dtype = GW_F32, .count = 512};
    ck_assert_int_eq(gw_frame_encode(&coder, &in, frame, sizeof frame, &length), GW_OK);
    gw_frame_info_t info;
    ck_assert_int_eq(gw_frame_inspect(frame, length, &info), GW_OK);
    ck_assert_uint_eq(info.payload_bytes, 264);
    return length - 264 + count / 512 * 264;
}

typedef struct bill {
    const char *plan;
    size_t wire, plain;
} bill_t;

static void pay(gw_rank_t *rank)
{
    const bill_t *bill = rank->arg;
    float *x = calloc(COUNT, sizeof *x);
    gw_context_set_rank(rank->context, rank->rank, rank->size);
    for (int call = 0; call < 3; call++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, COUNT, GW_F32, GW_SUM), GW_OK);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 10, GW_F32, GW_SUM), GW_OK);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 0, GW_F32, GW_SUM), GW_OK);
    gw_context_count_passed(rank->context, GW_REASON_DTYPE);
    gw_context_count_passed(rank->context, GW_REASON_DTYPE);
    gw_stats_t s, of_context;
    gw_comm_stats(rank->comm, &s);
    ck_assert_uint_eq(s.calls, 5);
    ck_assert_uint_eq(s.compressed, 3);
    ck_assert_uint_eq(s.raw_bytes, 3 * COUNT * 4);
    ck_assert_uint_eq(s.plain_bytes, 3 * bill->plain);
    ck_assert_uint_eq(s.wire_bytes, 3 * bill->wire);
    ck_assert_uint_eq(s.reasons[GW_REASON_TOO_SMALL], 1);
    ck_assert_uint_eq(s.reasons[GW_REASON_ZERO_COUNT], 1);
    gw_context_stats(rank->context, &of_context);
    uint64_t reasons = 0;
    for (int r = 0; r < GW_REASON_COUNT; r++)
        reasons += of_context.reasons[r];
    ck_assert_uint_eq(of_context.calls, of_context.compressed + of_context.passed);
    ck_assert_uint_eq(of_context.passed, reasons);
    ck_assert_uint_eq(of_context.passed, 4);
    ck_assert_uint_eq(of_context.wire_bytes, s.wire_bytes);
    free(x);
}

static void check_bill(const char *stats, int ranks, const bill_t *bill)
{
    gw_setting_t settings[] = {
        {"GRADWIRE_STATS", stats}, {"GRADWIRE_PLAN", bill->plan}, {"GRADWIRE_MIN_BYTES", "4K"}};
    gw_world_t world = {.size = ranks,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = pay,
                        .arg = (void *)(uintptr_t)bill};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++) {
        char name[128];
        snprintf(name, sizeof name, "%s.%d", stats, r);
        const char *json = read_file(name);
        ck_assert_msg(json && is_json(json), "%s: %s", name, json ? json : "missing");
        ck_assert_uint_eq(number(json, "rank"), (uint64_t)r);
        ck_assert_uint_eq(number(json, "size"), (uint64_t)ranks);
        ck_assert_uint_eq(number(json, "calls"), 7);
        ck_assert_uint_eq(number(json, "compressed"), 3);
        ck_assert_uint_eq(number(json, "passed"), 4);
        ck_assert_uint_eq(number(json, "dtype"), 2);
        ck_assert_uint_eq(number(json, "wire_bytes"), 3 * bill->wire);
        const char *page = strstr(json, "\"communicators\""), *plan = strstr(page, "\"plan\": ");
        ck_assert(strncmp(plan + 9, bill->plan, strlen(bill->plan)) == 0);
        ck_assert(strstr(page, "\"codec\": \"q4\"") && strstr(page, "\"transport\": \"loopback\""));
        /* 0 and 40 bytes, and 61440 three times. */
        const char *class = strstr(page, "\"bytes_from\": 0, \"bytes_to\": 1,");
        ck_assert(class && number(class, "calls") == 1 && number(class, "compressed") == 0);
        class = strstr(page, "\"bytes_from\": 32, \"bytes_to\": 63,");
        ck_assert(class && number(class, "calls") == 1 && number(class, "compressed") == 0);
        class = strstr(page, "\"bytes_from\": 32768, \"bytes_to\": 65535,");
        ck_assert(class && number(class, "calls") == 3 && number(class, "compressed") == 3);
        ck_assert_uint_eq(number(class, "wire_bytes"), 3 * bill->wire);
        ck_assert_uint_eq(number(class, "raw_bytes"), 3 * COUNT * 4);
        ck_assert_int_eq(unlink(name), 0);
    }
}

START_TEST(bytes_are_those_counted_by_hand)
{
    char stats[64];
    snprintf(stats, sizeof stats, "/tmp/gw_stats_%ld", (long)getpid());
    size_t raw = COUNT * 4;
    bill_t two_gather = {"gather", frame_bytes(COUNT), raw};
    bill_t two_direct = {"direct", 2 * frame_bytes(COUNT / 2), raw};
    bill_t three_gather = {"gather", 2 * frame_bytes(COUNT), raw / 3 * 4};
    bill_t three_direct = {"direct", 4 * frame_bytes(COUNT / 3), raw / 3 * 4};
    check_bill(stats, 2, &two_gather);
    check_bill(stats, 2, &two_direct);
    check_bill(stats, 3, &three_gather);
    check_bill(stats, 3, &three_direct);
}
END_TEST

/* ---- Times
 * -------------------------------------------------------------------------------------------- */

static void time_body(gw_rank_t *rank)
{
    enum { N = 4000000 };
    float *x = calloc(N, sizeof *x);
    atomic_bool *first_is_here = rank->arg;
    if (rank->rank == 0)
        atomic_store(first_is_here, true);
    while (!atomic_load(first_is_here))
        usleep(1000);
    if (rank->rank == 1)
        usleep(1500000); /* the other one is in its call by now, whatever the load */
    for (int call = 0; call < 5; call++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    free(x);
    gw_stats_t s;
    gw_comm_stats(rank->comm, &s);
    uint64_t whole = 0, sum = s.encode_us + s.wire_us + s.decode_us + s.wait_us;
    for (int i = 0; i < GW__STATS_CLASSES; i++)
        whole += rank->comm->page->classes[i].time_us;
    ck_assert_msg(sum <= whole && sum + whole / 20 >= whole, "%llu of %llu us",
                  (unsigned long long)sum, (unsigned long long)whole);
    ck_assert(s.encode_us > 0 && s.decode_us > 0);
    if (rank->rank == 0)
        ck_assert_uint_ge(s.wait_us, 100000);
}

START_TEST(times_add_up)
{
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}};
    for (int size = 2; size <= 3; size++) {
        atomic_bool first_is_here = false;
        gw_world_t world = {.size = size,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 1,
                            .body = time_body,
                            .arg = &first_is_here};
        gw_world_run(&world);
    }
}
END_TEST

/* ---- The file
 * ----------------------------------------------------------------------------------------- */

static gw_context_t *open_context(const char *stats, const char *log)
{
    gw_context_t *context;
    gw_setting_t settings[] = {{"GRADWIRE_STATS", stats}, {"GRADWIRE_LOG_FILE", log}};
    ck_assert_int_eq(gw_context_create(settings, 2, &context, NULL, 0), GW_OK);
    return context;
}

START_TEST(the_rank_is_part_of_the_name)
{
    static const struct {
        const char *pattern, *name;
        int rank, size;
    } table[] = {{"a", "a", 0, 1},      {"a", "a.0", 0, 2},     {"a", "a.13", 13, 20},
                 {"a.%r", "a.3", 3, 4}, {"%r%r", "77", 7, 8},   {"r%r.json", "r0.json", 0, 1},
                 {"a%", "a%.1", 1, 2},  {"a%d", "a%d.1", 1, 2}, {"%%r", "%1", 1, 2}};
    char directory[] = "/tmp/gw_stats_XXXXXX", path[128];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, table[i].pattern);
        gw_context_t *context = open_context(path, "");
        gw_context_set_rank(context, table[i].rank, table[i].size);
        ck_assert_int_eq(gw_context_write_stats(context), GW_OK);
        snprintf(path, sizeof path, "%s/%s", directory, table[i].name);
        ck_assert_msg(access(path, R_OK) == 0, "%s", path);
        gw_context_free(context);
        ck_assert_int_eq(unlink(path), 0);
    }
    /* Nothing else was left there. */
    ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_warns_once)
{
    char log[64];
    snprintf(log, sizeof log, "/tmp/gw_stats_%ld.log", (long)getpid());
    unlink(log);
    gw_context_t *context = open_context("/nonexistent/directory/stats.json", log);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(gw_context_write_stats(context), GW_ERR_IO);
        gw_context_count_passed(context, GW_REASON_OP);
        ck_assert_int_eq(gw_context_write_stats(context), GW_ERR_IO);
    }
    gw_stats_t s;
    gw_context_stats(context, &s);
    ck_assert_uint_eq(s.passed, 3);
    gw_context_free(context);
    const char *lines = read_file(log), *first = strstr(lines, "GRADWIRE_STATS=");
    ck_assert(first && strstr(first, "cannot be written: No such file") &&
              !strstr(first + 1, "GRADWIRE_STATS="));
    unlink(log);
}
END_TEST

typedef struct watch {
    char name[64];
    atomic_bool stop;
    int seen;
} watch_t;

static void *watch_main(void *arg)
{
    watch_t *w = arg;
    while (!atomic_load(&w->stop)) {
        const char *json = read_file(w->name);
        if (!json)
            continue;
        gw_check(is_json(json), "a part of the file is visible: %s", json);
        w->seen++;
    }
    return NULL;
}

static void *write_main(void *arg)
{
    for (int i = 0; i < 1000; i++)
        gw_check(gw_context_write_stats(arg) == GW_OK, "write %d", i);
    return NULL;
}

START_TEST(the_file_is_whole_at_every_moment)
{
    watch_t w = {.seen = 0};
    pthread_t thread, writer;
    snprintf(w.name, sizeof w.name, "/tmp/gw_stats_%ld.json", (long)getpid());
    /* Two contexts that write to one name, as a mistake would have it: still one or the other. */
    gw_context_t *a = open_context(w.name, ""), *b = open_context(w.name, "");
    ck_assert_int_eq(pthread_create(&thread, NULL, watch_main, &w), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, write_main, b), 0);
    for (int i = 0; i < 1000; i++) {
        gw_context_count_passed(a, GW_REASON_OP);
        ck_assert_int_eq(gw_context_write_stats(a), GW_OK);
    }
    pthread_join(writer, NULL);
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    ck_assert_int_gt(w.seen, 10);
    gw_context_free(b);
    gw_context_free(a);
    ck_assert_uint_eq(number(read_file(w.name), "calls"), 1000);
    unlink(w.name);
}
END_TEST

START_TEST(more_communicators_than_pages)
{
    enum { MANY = GW__STATS_COMMS + 10 };
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    gw_comm_t *comms[MANY];
    gw_comm_params_t params = {.rank = 0, .size = 1, .name = "caf\xc3\xa9 \"x\""};
    float x[4] = {0};
    /* All at once: the last ones have no page, but are counted. */
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(gw_comm_create(context, &params, &comms[i]), GW_OK);
        ck_assert_int_eq(gw_allreduce(comms[i], NULL, x, 4, GW_F32, GW_SUM), GW_OK);
    }
    ck_assert_int_eq(gw_context_write_stats(context), GW_OK);
    const char *json = read_file(name);
    ck_assert(is_json(json));
    ck_assert_uint_eq(number(json, "calls"), MANY);
    ck_assert_uint_eq(number(json, "communicators_dropped"), 10);
    /* One after the other: the oldest pages make room. */
    for (int i = 0; i < MANY; i++)
        gw_comm_free(comms[i]);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(gw_comm_create(context, &params, &comms[0]), GW_OK);
        ck_assert_int_eq(gw_allreduce(comms[0], NULL, x, 4, GW_F32, GW_SUM), GW_OK);
        gw_comm_free(comms[0]);
    }
    ck_assert_int_eq(gw_context_write_stats(context), GW_OK);
    json = read_file(name);
    ck_assert(is_json(json));
    ck_assert_uint_eq(number(json, "calls"), 2 * MANY);
    ck_assert_uint_eq(number(json, "communicators_dropped"), 10 + MANY);
    ck_assert_uint_eq(number(strstr(json, "\"communicators\""), "id"), 2 * MANY - GW__STATS_COMMS);
    gw_context_free(context);
    unlink(name);
}
END_TEST

/* ---- Figures that change while they are read
 * ---------------------------------------------------------------- */

enum { PAGES = 2, ADDERS = 4, ADDED = 60000 };

typedef struct adder {
    gw_context_t *context;
    gw__stats_page_t *page; /* NULL: without one */
} adder_t;

/* Calls of which every figure is a multiple of their number. */
static void *add_main(void *arg)
{
    adder_t *a = arg;
    gw__stats_call_t sum = {.compressed = true,
                            .bytes = 100,
                            .plain_bytes = 50,
                            .wire_bytes = 25,
                            .encode_us = 1,
                            .time_us = 7,
                            .plan = "direct"};
    gw__stats_call_t passed = {.reason = GW_REASON_OP, .bytes = 100};
    for (int i = 0; i < ADDED; i++) {
        gw__context_count(a->context, a->page, i % 3 ? &sum : &passed);
        if (i % 64 == 0)
            usleep(1); /* lets the reader in, also on one processor */
    }
    return NULL;
}

static void check_sums(const char *json)
{
    const char *pages = strstr(json, "\"communicators\"");
    uint64_t compressed = number(json, "compressed"), passed = number(json, "passed");
    gw_check(is_json(json), "%s", json);
    gw_check(number(json, "calls") == compressed + passed, "%s", json);
    gw_check((passed == 0) || number(json, "op") == passed, "%s", json);
    gw_check(number(json, "raw_bytes") >= 100 * (compressed - compressed / 8), "%s", json);
    for (int i = 0; i < PAGES; i++) {
        pages = strstr(pages + 1, "{\"id\"");
        const char *class = strstr(pages, "\"bytes_from\": 64,");
        uint64_t calls = number(pages, "calls"), n = number(pages, "compressed");
        if (calls == 0)
            continue;
        gw_check(class && number(class, "calls") == calls, "%s", json);
        gw_check(number(class, "compressed") == n && number(class, "raw_bytes") == 100 * n &&
                     number(class, "wire_bytes") == 25 * n && number(class, "time_us") == 7 * n,
                 "between two calls: %s", json);
    }
}

START_TEST(figures_add_up_while_calls_are_counted)
{
    char name[64];
    pthread_t thread[ADDERS];
    adder_t adder[ADDERS];
    gw__stats_page_t *page[ADDERS];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    for (int i = 0; i < PAGES; i++)
        page[i] = gw__stats_page_new(&context->stats, (uint32_t)i, 2);
    page[2] = page[0]; /* a worker and the caller on one communicator */
    page[3] = NULL;
    for (int i = 0; i < ADDERS; i++) {
        adder[i] = (adder_t){context, page[i]};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, add_main, &adder[i]), 0);
    }
    int reads = 0;
    gw_stats_t s = {0};
    while (s.calls < ADDERS * ADDED) {
        gw_check(gw_context_write_stats(context) == GW_OK, "not written");
        check_sums(read_file(name));
        gw_context_stats(context, &s);
        gw_check(s.calls == s.compressed + s.passed && s.passed == s.reasons[GW_REASON_OP],
                 "%llu %llu %llu", (unsigned long long)s.calls, (unsigned long long)s.compressed,
                 (unsigned long long)s.passed);
        reads++;
    }
    for (int i = 0; i < ADDERS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_gt(reads, 5);
    ck_assert_uint_eq(s.compressed, 2 * ADDERS * (ADDED / 3));
    ck_assert_uint_eq(s.raw_bytes, 100 * s.compressed);
    ck_assert_uint_eq(s.encode_us, s.compressed);
    gw_context_free(context);
    unlink(name);
}
END_TEST

/* ---- When it is written
 * ------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits until the file counts `calls` calls; seconds that took. */
static double wait_for_calls(const char *name, uint64_t calls)
{
    double began = now();
    for (;;) {
        const char *json = read_file(name);
        if (json && number(json, "calls") == calls)
            return now() - began;
        gw_check(now() - began < 20, "%llu calls are not in %s", (unsigned long long)calls,
                 json ? json : "no file");
        usleep(5000);
    }
}

static ino_t inode(const char *name)
{
    struct stat s;
    return stat(name, &s) == 0 ? s.st_ino : 0;
}

START_TEST(the_last_calls_before_a_pause_are_in_the_file)
{
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    gw_context_count_passed(context, GW_REASON_OP);
    ck_assert_msg(wait_for_calls(name, 1) < 0.5, "the first figures take a second");
    for (int i = 0; i < 99; i++)
        gw_context_count_passed(context, GW_REASON_OP);
    double took = wait_for_calls(name, 100);
    ck_assert_msg(took > 0.3, "written twice in a second: after %.2f s", took);
    ck_assert_msg(took < 3, "the last calls are missing for %.2f s", took);
    /* Nothing new, nothing written. */
    ino_t last = inode(name);
    usleep(1300000);
    ck_assert_uint_eq(inode(name), last);
    gw_context_free(context);
    unlink(name);
}
END_TEST

START_TEST(steady_calls_write_once_a_second)
{
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    int changes = 0;
    ino_t last = 0;
    for (double began = now(); now() - began < 2.5;) {
        gw_context_count_passed(context, GW_REASON_OP);
        ino_t at = inode(name);
        changes += at != last && at != 0;
        last = at ? at : last;
        usleep(1000);
    }
    ck_assert_msg(changes >= 1 && changes <= 3, "%d files in 2.5 s", changes);
    gw_context_free(context);
    unlink(name);
}
END_TEST

START_TEST(without_a_thread_the_callers_write)
{
    enum { NO_THREAD = 3 };
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    atomic_store(&context->writer.state, NO_THREAD);
    gw_context_count_passed(context, GW_REASON_OP);
    ck_assert_uint_eq(number(read_file(name), "calls"), 1);
    gw_context_count_passed(context, GW_REASON_OP);
    ck_assert_uint_eq(number(read_file(name), "calls"), 1);
    atomic_store(&context->writer.written, 0); /* as if a second had gone by */
    gw_context_count_passed(context, GW_REASON_OP);
    ck_assert_uint_eq(number(read_file(name), "calls"), 3);
    gw_context_free(context);
    unlink(name);
}
END_TEST

START_TEST(a_failure_is_in_the_file_at_once)
{
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *context = open_context(name, "");
    gw__stats_page_t *page = gw__stats_page_new(&context->stats, 0, 3);
    gw__stats_call_t call = {.reason = GW_REASON_DISABLED};
    gw__context_count(context, page, &call);
    call = (gw__stats_call_t){.compressed = true,
                              .failed = true,
                              .failed_rank = 2,
                              .error = "rank 2: \"gone\"",
                              .residual_resets = 1};
    gw__context_count(context, page, &call);
    const char *json = read_file(name), *of_comm = strstr(json, "\"communicators\"");
    ck_assert(is_json(json));
    ck_assert_uint_eq(number(json, "calls"), 2);
    ck_assert_uint_eq(number(json, "errors"), 1);
    ck_assert_uint_eq(number(of_comm, "errors"), 1);
    ck_assert_uint_eq(number(of_comm, "residual_resets"), 1);
    ck_assert_uint_eq(number(of_comm, "failed_rank"), 2);
    ck_assert(strstr(of_comm, "\"last_error\": \"rank 2: \\\"gone\\\"\"") != NULL);
    /* The next ones wait for their turn: a program may go on with refused calls. */
    call.failed_rank = -1;
    call.error = NULL;
    ino_t last = inode(name);
    gw__context_count(context, page, &call);
    ck_assert_uint_eq(inode(name), last);
    ck_assert_int_eq(gw_context_write_stats(context), GW_OK);
    json = read_file(name);
    ck_assert_uint_eq(number(json, "errors"), 2);
    ck_assert(!strstr(json, "failed_rank") && !strstr(json, "last_error"));
    gw_context_free(context);
    unlink(name);
}
END_TEST

/* ---- Where it is written
 * ------------------------------------------------------------------------------------ */

START_TEST(only_a_regular_file_is_replaced)
{
    char directory[] = "/tmp/gw_stats_XXXXXX", name[64], log[64];
    struct stat s;
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(name, sizeof name, "%s/pipe", directory);
    snprintf(log, sizeof log, "%s/log", directory);
    ck_assert_int_eq(mkfifo(name, 0600), 0);
    gw_context_t *context = open_context(name, log);
    ck_assert_int_eq(gw_context_write_stats(context), GW_ERR_IO);
    gw_context_free(context);
    ck_assert(stat(name, &s) == 0 && S_ISFIFO(s.st_mode));
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(unlink(log), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

START_TEST(the_file_stays_where_it_was_asked_for)
{
    char directory[] = "/tmp/gw_stats_XXXXXX", before[4096], name[64];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(directory), 0);
    gw_context_t *context = open_context("here.json", "");
    ck_assert_int_eq(chdir(before), 0);
    ck_assert_int_eq(gw_context_write_stats(context), GW_OK);
    gw_context_free(context);
    snprintf(name, sizeof name, "%s/here.json", directory);
    ck_assert(is_json(read_file(name)));
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

/* ---- The thread and the process
 * ----------------------------------------------------------------------------- */

/* Signals that the writer's thread blocks, as /proc has them; -1: there is no such thread. */
static long long blocked_signals(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long long mask = -1;
    for (struct dirent *d = readdir(tasks); d; d = readdir(tasks)) {
        char path[512];
        if (d->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        const char *status = read_file(path);
        if (status && strstr(status, "Name:\tgradwire-stats"))
            mask = (long long)strtoull(strstr(status, "SigBlk:") + 7, NULL, 16);
    }
    closedir(tasks);
    return mask;
}

START_TEST(the_thread_comes_late_takes_no_signals_and_goes)
{
    char name[64];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    gw_context_t *plain = open_context("", ""), *context = open_context(name, "");
    gw_context_count_passed(plain, GW_REASON_OP);
    ck_assert_int_eq(blocked_signals(), -1);
    gw_context_count_passed(context, GW_REASON_OP);
    wait_for_calls(name, 1);
    long long blocked = blocked_signals(), usual = 0;
    for (int s = 1; s < 32; s++)
        usual |= s == SIGKILL || s == SIGSTOP ? 0 : 1LL << (s - 1);
    ck_assert_msg((blocked & usual) == usual, "SigBlk %llx", (unsigned long long)blocked);
    gw_context_free(plain);
    gw_context_free(context);
    ck_assert_int_eq(blocked_signals(), -1);
    unlink(name);
}
END_TEST

START_TEST(a_forked_child_writes_nothing)
{
    char name[64], own[80];
    snprintf(name, sizeof name, "/tmp/gw_stats_%ld.json", (long)getpid());
    snprintf(own, sizeof own, "%s.child", name);
    gw_context_t *idle = open_context(name, ""), *context = open_context(name, "");
    gw_context_count_passed(context, GW_REASON_OP);
    wait_for_calls(name, 1);
    ino_t last = inode(name);
    pid_t child = fork();
    if (child == 0) {
        gw_context_count_passed(idle, GW_REASON_OP);
        gw_context_count_passed(context, GW_REASON_OP);
        gw_context_write_stats(context);
        gw_context_write_stats(idle);
        /* One of its own it may have. ThreadSanitizer ends children that start threads. */
        if (GW_THREAD_SANITIZED)
            exit(0);
        gw_context_t *mine = open_context(own, "");
        gw_context_count_passed(mine, GW_REASON_OP);
        gw_context_free(context);
        gw_context_free(mine);
        exit(0);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(inode(name), last);
    if (!GW_THREAD_SANITIZED)
        ck_assert_uint_eq(number(read_file(own), "calls"), 1);
    gw_context_count_passed(context, GW_REASON_OP);
    wait_for_calls(name, 2);
    gw_context_free(context);
    gw_context_free(idle);
    unlink(name);
    unlink(own);
}
END_TEST

static void hold_residuals(gw_rank_t *rank)
{
    float *x = calloc(COUNT, sizeof *x);
    for (int call = 0; call < 3; call++) {
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, COUNT, GW_F32, GW_SUM), GW_OK);
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, COUNT / 2, GW_F32, GW_SUM), GW_OK);
    }
    free(x);
    gw_context_set_rank(rank->context, rank->rank, rank->size);
    ck_assert_int_eq(gw_context_write_stats(rank->context), GW_OK);
    const char *name = rank->arg;
    char path[128];
    snprintf(path, sizeof path, "%s.%d", name, rank->rank);
    const char *json = read_file(path);
    ck_assert_uint_eq(number(json, "residual_slots"), 2);
    ck_assert_uint_ge(number(json, "residual_bytes"), (COUNT + COUNT / 2) * sizeof(float));
    ck_assert_uint_le(number(json, "residual_bytes"), (COUNT + COUNT / 2) * sizeof(float) + 8192);
}

START_TEST(residuals_that_are_held_are_told)
{
    char stats[64], path[80];
    snprintf(stats, sizeof stats, "/tmp/gw_stats_%ld", (long)getpid());
    gw_setting_t settings[] = {{"GRADWIRE_STATS", stats}, {"GRADWIRE_MIN_BYTES", "4K"}};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = hold_residuals,
                        .arg = stats};
    gw_world_run(&world);
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s.%d", stats, r);
        ck_assert_uint_eq(number(read_file(path), "residual_slots"), 0); /* all freed by then */
        unlink(path);
    }
    unlink(stats);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stats");
    TCase *tc = tcase_create("stats");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_reader_is_strict);
    tcase_add_test(tc, any_name_becomes_a_json_string);
    tcase_add_test(tc, bytes_are_those_counted_by_hand);
    tcase_add_test(tc, times_add_up);
    tcase_add_test(tc, the_rank_is_part_of_the_name);
    tcase_add_test(tc, a_file_that_cannot_be_written_warns_once);
    tcase_add_test(tc, the_file_is_whole_at_every_moment);
    tcase_add_test(tc, more_communicators_than_pages);
    tcase_add_test(tc, figures_add_up_while_calls_are_counted);
    tcase_add_test(tc, the_last_calls_before_a_pause_are_in_the_file);
    tcase_add_test(tc, steady_calls_write_once_a_second);
    tcase_add_test(tc, without_a_thread_the_callers_write);
    tcase_add_test(tc, a_failure_is_in_the_file_at_once);
    tcase_add_test(tc, only_a_regular_file_is_replaced);
    tcase_add_test(tc, the_file_stays_where_it_was_asked_for);
    tcase_add_test(tc, the_thread_comes_late_takes_no_signals_and_goes);
    tcase_add_test(tc, a_forked_child_writes_nothing);
    tcase_add_test(tc, residuals_that_are_held_are_told);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
