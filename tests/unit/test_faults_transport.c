/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the transport `fault`: it keeps the contract where no fault is asked for, and each fault
 * does what its name says. */
#include "gw_test.h"
#include "fault.h"
#include "transport_ranks.h"

#include <stdarg.h>
#include <string.h>

static const gw_transport_t *fault(void)
{
    const gw_transport_t *transport = NULL;
    ck_assert_int_eq(gw_transport_find("fault", &transport, NULL, 0), GW_OK);
    return transport;
}

/* ---- The contract
 * --------------------------------------------------------------------------------------- */

static const char *faults;

static void run_rank(body_rank_t *me)
{
    me->faults = faults;
    body_run(me);
}

static void run_part(const char *part, int size, const char *spec)
{
    char failure[320], carrier[64];
    faults = spec;
    ranks_threads(size, fault(), part, run_rank, failure, carrier);
    ck_assert_msg(failure[0] == '\0', "%s: %s", spec, failure);
}

START_TEST(contract_over_loopback)
{
    run_part(body_parts[_i], 2, "over=loopback");
    run_part(body_parts[_i], 4, "over=loopback,seed=3");
}
END_TEST

/* What only comes late or in another order is no fault to the contract. */
START_TEST(contract_with_delays)
{
    run_part(body_parts[_i], 2, "over=loopback,delay=2ms:0.5");
    run_part(body_parts[_i], 3, "over=loopback,reorder=0.5,delay=500us:0.1,seed=9");
}
END_TEST

START_TEST(contract_over_ucx)
{
    if (GW_THREAD_SANITIZED)
        return gw_test_skip("contract_over_ucx", "UCX under ThreadSanitizer");
#ifdef HAVE_UCX
    run_part(body_parts[_i], 3, "over=ucx");
    run_part(body_parts[_i], 2, "over=ucx,reorder=0.5,delay=500us:0.1");
#else
    gw_test_skip("contract_over_ucx", "this build has no ucx module");
#endif
}
END_TEST

/* ---- Specifications
 * -------------------------------------------------------------------------------------- */

START_TEST(specifications)
{
    gw__fault_spec_t s;
    char why[256] = "";
    gw_status_t status = gw__fault_parse("over=loopback,seed=18446744073709551615,only=3,from=12,"
                                         "delay=1.5ms:0.25,reorder=1,truncate=0,corrupt=0.01:48,"
                                         "drop=0.5,duplicate=1.0,kill=2@100,mute=0@0,freeze=1@7,"
                                         "error=0-3@9",
                                         &s, why, sizeof why);
    ck_assert_msg(status == GW_OK, "%s", why);
    ck_assert_str_eq(s.over, "loopback");
    ck_assert_uint_eq(s.seed, UINT64_MAX);
    ck_assert_int_eq(s.only, 3);
    ck_assert_uint_eq(s.from, 12);
    ck_assert_int_eq(s.delay_ns, 1500000);
    ck_assert(s.delay == 0.25 && s.reorder == 1 && s.truncate == 0 && s.drop == 0.5 &&
              s.duplicate == 1);
    ck_assert(s.corrupt > 0.0099 && s.corrupt < 0.0101 && s.reach == 48);
    ck_assert(s.kill.rank == 2 && s.kill.after == 100 && s.mute.rank == 0 && s.mute.after == 0);
    ck_assert(s.freeze.rank == 1 && s.freeze.after == 7);
    ck_assert(s.error.rank == 0 && s.error.peer == 3 && s.error.after == 9);
    ck_assert_int_eq(gw__fault_parse(NULL, &s, why, sizeof why), GW_OK);
    ck_assert_str_eq(s.over, "ucx");
    ck_assert(s.kill.rank == -1 && s.only == -1 && s.drop == 0 && s.delay == 0);
}
END_TEST

/* Each is refused with a sentence that holds the bad part. */
START_TEST(bad_specifications)
{
    char long_item[100] = "drop=0.";
    memset(long_item + 7, 0x30, 90);
    const char *const bad[] = {
        "drop",      "drop=",          "drop=1.5",
        "drop=-1",   "drop=0.1x",      "drop=0,1",
        "DROP=1",    "sabotage=1",     "delay=5",
        "delay=5m",  "delay=ms",       "delay=1ms:2",
        "kill=2",    "kill=@3",        "kill=2@",
        "kill=-1@3", "error=1-1@3",    "error=1@3",
        "over=",     "over=fault",     "corrupt=1:",
        "seed=",     "seed=1e3",       "drop=1,",
        ",drop=1",   "drop=1,,seed=1", "seed=99999999999999999999",
        "only=",     "from=x",         "over=a-name-that-is-much-longer-than-any",
        long_item};
    gw__fault_spec_t s = {.seed = 42};
    char why[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why[0] = '\0';
        gw_check(gw__fault_parse(bad[i], &s, why, sizeof why) == GW_ERR_BAD_SETTING,
                 "\"%s\" was taken", bad[i]);
        gw_check(strlen(why) > 10 && why[0] == '"', "\"%s\": %s", bad[i], why);
    }
    ck_assert_uint_eq(s.seed, 42);
}
END_TEST

/* ---- One fault at a time
 * --------------------------------------------------------------------------------- */

/* Two or three ranks over the loopback, all used by this thread. */
typedef struct pair {
    gw_loopback_t *world;
    gw_link_t *link[3];
    int size;
} pair_t;

static int warnings;
static char warning[256];

static void take_log(void *arg, gw_log_level_t level, const char *format, ...)
{
    if (level != GW_LOG_WARN)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(warning, sizeof warning, format, args);
    va_end(args);
    warnings++;
}

static pair_t pair_open(int size, const char *spec)
{
    pair_t pair = {.size = size};
    ck_assert_int_eq(gw_loopback_create(size, &pair.world), GW_OK);
    for (int i = 0; i < size; i++) {
        gw_link_params_t params = {.rank = i,
                                   .size = size,
                                   .arg = pair.world,
                                   .timeout = 2,
                                   .log = take_log,
                                   .faults = spec};
        gw_status_t status = fault()->open(&params, &pair.link[i]);
        ck_assert_msg(status == GW_OK, "%s: %s", spec, warning);
    }
    return pair;
}

static void pair_close(pair_t *pair)
{
    for (int i = 0; i < pair->size; i++)
        ck_assert_int_eq(fault()->close(pair->link[i]), GW_OK);
    gw_loopback_free(pair->world);
}

/* Gives all ranks turns for so many milliseconds, or until the request is final. */
static gw_status_t turns(pair_t *pair, int ms, const gw_request_t *req)
{
    double until = body_now() + ms * 1e-3;
    do {
        for (int i = 0; i < pair->size; i++)
            fault()->progress(pair->link[i]);
    } while (body_now() < until && (!req || req->status == GW_IN_PROGRESS));
    return req ? req->status : GW_OK;
}

enum { LENGTH = 300, TAGS = 400 };

/* What became of a message of LENGTH bytes on each of TAGS tags. */
typedef struct fate {
    bool came[TAGS];
    size_t length[TAGS];
    int bits[TAGS];     /* that differ */
    size_t where[TAGS]; /* the last byte that differs */
    int total;
} fate_t;

static void send_and_look(const char *spec, fate_t *fate)
{
    static unsigned char out[LENGTH], in[TAGS][LENGTH];
    static gw_request_t sent[TAGS], received[TAGS];
    pair_t pair = pair_open(2, spec);
    memset(fate, 0, sizeof *fate);
    for (size_t i = 0; i < LENGTH; i++)
        out[i] = (unsigned char)(i * 7);
    for (uint64_t tag = 0; tag < TAGS; tag++) {
        memset(in[tag], 0, LENGTH);
        fault()->recv(pair.link[1], 0, tag, in[tag], LENGTH, &received[tag]);
        fault()->send(pair.link[0], 1, tag, out, LENGTH, &sent[tag]);
    }
    turns(&pair, 40, NULL);
    for (uint64_t tag = 0; tag < TAGS; tag++) {
        gw_check(sent[tag].status == GW_OK, "send %d: %s", (int)tag,
                 gw_status_name(sent[tag].status));
        fate->came[tag] = received[tag].status == GW_OK;
        fate->length[tag] = received[tag].length;
        fate->total += fate->came[tag];
        for (size_t i = 0; fate->came[tag] && i < received[tag].length; i++)
            if (in[tag][i] != out[i]) {
                fate->bits[tag] += __builtin_popcount(in[tag][i] ^ out[i]);
                fate->where[tag] = i;
            }
        fault()->cancel(pair.link[1], &received[tag]);
        gw_check(received[tag].status != GW_IN_PROGRESS, "a cancelled receive goes on");
    }
    pair_close(&pair);
}

START_TEST(drop)
{
    static fate_t first, again, other;
    send_and_look("over=loopback,drop=0.25,seed=1", &first);
    send_and_look("over=loopback,drop=0.25,seed=1", &again);
    send_and_look("over=loopback,drop=0.25,seed=2", &other);
    ck_assert_msg(first.total > TAGS * 6 / 10 && first.total < TAGS * 9 / 10, "%d of %d came",
                  first.total, TAGS);
    ck_assert(memcmp(first.came, again.came, sizeof first.came) == 0);
    ck_assert(memcmp(first.came, other.came, sizeof first.came) != 0);
    send_and_look("over=loopback,drop=1,only=1", &first);
    ck_assert_int_eq(first.total, TAGS);
    send_and_look("over=loopback,drop=1,from=100", &first);
    ck_assert_int_eq(first.total, 100);
}
END_TEST

START_TEST(truncate_)
{
    static fate_t fate;
    int cut = 0;
    send_and_look("over=loopback,truncate=0.5", &fate);
    ck_assert_int_eq(fate.total, TAGS);
    for (int i = 0; i < TAGS; i++) {
        gw_check(fate.length[i] <= LENGTH && fate.bits[i] == 0, "message %d", i);
        cut += fate.length[i] < LENGTH;
    }
    ck_assert_msg(cut > TAGS * 3 / 10 && cut < TAGS * 7 / 10, "%d of %d cut", cut, TAGS);
}
END_TEST

START_TEST(corrupt)
{
    static fate_t fate;
    int hit = 0, behind = 0;
    send_and_look("over=loopback,corrupt=0.5", &fate);
    for (int i = 0; i < TAGS; i++) {
        gw_check(fate.length[i] == LENGTH && fate.bits[i] <= 1, "message %d", i);
        hit += fate.bits[i];
        behind += fate.where[i] >= 48;
    }
    ck_assert_msg(hit > TAGS * 3 / 10 && hit < TAGS * 7 / 10, "%d of %d hit", hit, TAGS);
    ck_assert_int_gt(behind, 0);
    send_and_look("over=loopback,corrupt=1:48", &fate);
    for (int i = 0; i < TAGS; i++)
        gw_check(fate.bits[i] == 1 && fate.where[i] < 48, "message %d", i);
}
END_TEST

/* The twin follows its message, also where nobody waits for the first any more. */
START_TEST(duplicate)
{
    pair_t pair = pair_open(2, "over=loopback,duplicate=1");
    char out[8] = "gradwire", in[2][8] = {{0}};
    gw_request_t sent, received[2];
    ck_assert_int_eq(fault()->send(pair.link[0], 1, 4, out, 8, &sent), GW_OK);
    memset(out, 0, sizeof out);
    for (int i = 0; i < 2; i++) {
        fault()->recv(pair.link[1], 0, 4, in[i], 8, &received[i]);
        ck_assert_int_eq(turns(&pair, 1000, &received[i]), GW_OK);
        ck_assert(memcmp(in[i], "gradwire", 8) == 0);
    }
    pair_close(&pair);
}
END_TEST

START_TEST(delay)
{
    pair_t pair = pair_open(2, "over=loopback,delay=80ms");
    char byte = 'x', in = 0;
    gw_request_t sent, received;
    double start = body_now();
    fault()->recv(pair.link[1], 0, 4, &in, 1, &received);
    ck_assert_int_eq(fault()->send(pair.link[0], 1, 4, &byte, 1, &sent), GW_IN_PROGRESS);
    /* A sleeper is woken when it is time. */
    while (sent.status == GW_IN_PROGRESS && body_now() - start < 5)
        if (fault()->progress(pair.link[0]) == 0)
            fault()->wait(pair.link[0], 3000000);
    ck_assert_int_eq(sent.status, GW_OK);
    ck_assert(body_now() - start >= 0.08 && body_now() - start < 2);
    ck_assert_int_eq(turns(&pair, 1000, &received), GW_OK);
    /* What is held back can be cancelled, and does not come then. */
    fault()->recv(pair.link[1], 0, 5, &in, 1, &received);
    fault()->send(pair.link[0], 1, 5, &byte, 1, &sent);
    fault()->cancel(pair.link[0], &sent);
    ck_assert_int_eq(sent.status, GW_ERR_CANCELED);
    ck_assert_int_eq(turns(&pair, 150, &received), GW_IN_PROGRESS);
    fault()->cancel(pair.link[1], &received);
    pair_close(&pair);
}
END_TEST

/* Messages overtake others of another tag, and only those. */
START_TEST(reorder)
{
    enum { COUNT = 60 };
    pair_t pair = pair_open(2, "over=loopback,reorder=0.5,seed=5");
    static uint32_t out[COUNT], in[COUNT];
    static gw_request_t sent[COUNT], received[COUNT];
    int overtaken = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        out[i] = i;
        fault()->send(pair.link[0], 1, i % 30, &out[i], sizeof out[i], &sent[i]);
        for (uint32_t k = 0; k < i; k++)
            overtaken += sent[i].status == GW_OK && sent[k].status == GW_IN_PROGRESS;
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        fault()->recv(pair.link[1], 0, i % 30, &in[i], sizeof in[i], &received[i]);
        ck_assert_int_eq(turns(&pair, 1000, &received[i]), GW_OK);
        gw_check(in[i] == i, "message %u of tag %u is %u", i, i % 30, in[i]);
    }
    ck_assert_int_gt(overtaken, 10);
    turns(&pair, 10, &sent[COUNT - 1]);
    pair_close(&pair);
}
END_TEST

/* Rank 1 of three dies at its third message: the others learn of it, and go on with each other. */
START_TEST(kill)
{
    pair_t pair = pair_open(3, "over=loopback,kill=1@2");
    static char big[100000];
    char in[3], byte = 0;
    gw_request_t sent, received, waits, mine, late;
    fault()->recv(pair.link[2], 1, 9, in, 1, &waits);
    fault()->recv(pair.link[1], 0, 9, in + 1, 1, &mine);
    for (uint64_t tag = 0; tag < 2; tag++)
        ck_assert_int_eq(fault()->send(pair.link[1], 0, tag, &byte, 1, &sent), GW_OK);
    ck_assert_int_eq(fault()->send(pair.link[0], 1, 5, big, sizeof big, &sent), GW_IN_PROGRESS);
    ck_assert_int_eq(fault()->send(pair.link[1], 0, 2, &byte, 1, &late), GW_ERR_PEER_FAILED);
    ck_assert_int_eq(mine.status, GW_ERR_PEER_FAILED);
    ck_assert_int_eq(turns(&pair, 1000, &waits), GW_ERR_PEER_FAILED);
    ck_assert_int_eq(turns(&pair, 1000, &sent), GW_ERR_PEER_FAILED);
    ck_assert_int_eq(fault()->recv(pair.link[1], 2, 1, in, 1, &late), GW_ERR_PEER_FAILED);
    fault()->recv(pair.link[0], 2, 1, in, 1, &received);
    ck_assert_int_eq(fault()->send(pair.link[2], 0, 1, &byte, 1, &sent), GW_OK);
    ck_assert_int_eq(turns(&pair, 1000, &received), GW_OK);
    double start = body_now();
    fault()->wait(pair.link[1], 5000);
    ck_assert(body_now() - start >= 0.004);
    pair_close(&pair);
}
END_TEST

/* A mute rank believes that it speaks, and hears. */
START_TEST(mute)
{
    pair_t pair = pair_open(2, "over=loopback,mute=0@1");
    char in[2], byte = 0;
    gw_request_t sent, received[2];
    for (uint64_t tag = 0; tag < 2; tag++) {
        fault()->recv(pair.link[1], 0, tag, &in[tag], 1, &received[tag]);
        ck_assert_int_eq(fault()->send(pair.link[0], 1, tag, &byte, 1, &sent), GW_OK);
    }
    ck_assert_int_eq(turns(&pair, 1000, &received[0]), GW_OK);
    ck_assert_int_eq(turns(&pair, 50, &received[1]), GW_IN_PROGRESS);
    fault()->cancel(pair.link[1], &received[1]);
    fault()->recv(pair.link[0], 1, 3, in, 1, &received[0]);
    ck_assert_int_eq(fault()->send(pair.link[1], 0, 3, &byte, 1, &sent), GW_OK);
    ck_assert_int_eq(turns(&pair, 1000, &received[0]), GW_OK);
    pair_close(&pair);
}
END_TEST

/* A frozen rank finishes nothing, not even what has come; its requests can be cancelled. */
START_TEST(freeze)
{
    pair_t pair = pair_open(2, "over=loopback,freeze=0@0");
    char in, byte = 0;
    gw_request_t sent, received, frozen[2];
    ck_assert_int_eq(fault()->reach(pair.link[0], 1, 1.0), GW_OK);
    ck_assert_int_eq(fault()->send(pair.link[0], 1, 1, &byte, 1, &frozen[0]), GW_IN_PROGRESS);
    ck_assert_int_eq(fault()->reach(pair.link[0], 1, 1.0), GW_ERR_UNREACHABLE);
    ck_assert_int_eq(fault()->reach(pair.link[1], 0, 1.0), GW_OK);
    fault()->send(pair.link[1], 0, 1, &byte, 1, &sent);
    ck_assert_int_eq(fault()->recv(pair.link[0], 1, 1, &in, 1, &frozen[1]), GW_IN_PROGRESS);
    fault()->recv(pair.link[1], 0, 1, &in, 1, &received);
    ck_assert_int_eq(turns(&pair, 50, &received), GW_IN_PROGRESS);
    ck_assert_int_eq(frozen[0].status, GW_IN_PROGRESS);
    ck_assert_int_eq(frozen[1].status, GW_IN_PROGRESS);
    fault()->cancel(pair.link[0], &frozen[0]);
    fault()->cancel(pair.link[0], &frozen[1]);
    ck_assert_int_eq(frozen[0].status, GW_ERR_CANCELED);
    ck_assert_int_ne(frozen[1].status, GW_IN_PROGRESS);
    fault()->cancel(pair.link[1], &received);
    pair_close(&pair);
}
END_TEST

/* The connection of ranks 0 and 2 breaks at both ends; both go on with rank 1. */
START_TEST(error)
{
    pair_t pair = pair_open(3, "over=loopback,error=2-0@1");
    char in[2], byte = 0;
    gw_request_t sent, waits, received;
    for (int end = 0; end <= 2; end += 2) {
        fault()->recv(pair.link[end], 2 - end, 7, in, 1, &waits);
        ck_assert_int_eq(fault()->send(pair.link[end], 2 - end, 1, &byte, 1, &sent), GW_OK);
        ck_assert_int_eq(waits.status, GW_IN_PROGRESS);
        ck_assert_int_eq(fault()->send(pair.link[end], 2 - end, 2, &byte, 1, &sent),
                         GW_ERR_PEER_FAILED);
        ck_assert_int_eq(waits.status, GW_ERR_PEER_FAILED);
        fault()->recv(pair.link[1], end, 3, in, 1, &received);
        ck_assert_int_eq(fault()->send(pair.link[end], 1, 3, &byte, 1, &sent), GW_OK);
        ck_assert_int_eq(turns(&pair, 1000, &received), GW_OK);
    }
    pair_close(&pair);
}
END_TEST

/* A link that cannot be opened says why. */
START_TEST(open_refuses)
{
    static const char *const bad[] = {"drop=x", "over=pigeon", "over=loopback"};
    static const char *const said[] = {"drop", "pigeon", "loopback"};
    for (int i = 0; i < 3; i++) {
        gw_link_t *link = NULL;
        gw_link_params_t params = {.size = 2, .timeout = 1, .log = take_log, .faults = bad[i]};
        ck_assert_int_lt(fault()->open(&params, &link), 0);
        ck_assert_ptr_null(link);
        ck_assert_int_eq(warnings, i + 1);
        ck_assert_msg(strstr(warning, said[i]) != NULL, "%s", warning);
    }
}
END_TEST

int main(void)
{
    int parts = 0;
    while (body_parts[parts])
        parts++;
    Suite *suite = suite_create("faults_transport");
    TCase *tc = tcase_create("faults_transport");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, contract_over_loopback, 0, parts);
    tcase_add_loop_test(tc, contract_with_delays, 0, parts);
    tcase_add_loop_test(tc, contract_over_ucx, 0, parts);
    tcase_add_test(tc, specifications);
    tcase_add_test(tc, bad_specifications);
    tcase_add_test(tc, drop);
    tcase_add_test(tc, truncate_);
    tcase_add_test(tc, corrupt);
    tcase_add_test(tc, duplicate);
    tcase_add_test(tc, delay);
    tcase_add_test(tc, reorder);
    tcase_add_test(tc, kill);
    tcase_add_test(tc, mute);
    tcase_add_test(tc, freeze);
    tcase_add_test(tc, error);
    tcase_add_test(tc, open_refuses);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
