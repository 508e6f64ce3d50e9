/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the loopback transport: the contract with threads as ranks, its all-gather, and its life
 * cycle. */
#include "gw_test.h"
#include "transport_ranks.h"

#include <pthread.h>
#include <string.h>

static const gw_transport_t *loopback(void)
{
    const gw_transport_t *transport = NULL;
    ck_assert_int_eq(gw_transport_find("loopback", &transport, NULL, 0), GW_OK);
    return transport;
}

static void run_part(const char *part, int size)
{
    char failure[320], carrier[64];
    ranks_threads(size, loopback(), part, body_run, failure, carrier);
    ck_assert_msg(failure[0] == '\0', "%s", failure);
    ck_assert_str_eq(carrier, "loopback");
}

START_TEST(contract_two_ranks)
{
    run_part(body_parts[_i], 2);
}
END_TEST

START_TEST(contract_four_ranks)
{
    run_part(body_parts[_i], 4);
}
END_TEST

/* ---- the all-gather
 * ---------------------------------------------------------------------------------- */

typedef struct seat {
    gw_loopback_rank_t rank;
    pthread_t thread;
} seat_t;

enum { GATHERERS = 5, ROUNDS = 300 };

static void *gather_rounds(void *arg)
{
    seat_t *seat = arg;
    uint64_t mine[3], all[GATHERERS][3];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t words = round % 4;
        for (size_t w = 0; w < words; w++)
            mine[w] = round * 1000 + (uint64_t)seat->rank.rank * 10 + w;
        memset(all, 0, sizeof(all));
        uint64_t *table = &all[0][0];
        if (gw_loopback_allgather(&seat->rank, mine, table, words * sizeof(mine[0])) != GW_OK)
            return "a round failed";
        for (uint64_t r = 0; r < GATHERERS; r++)
            for (size_t w = 0; w < words; w++)
                if (table[r * words + w] != round * 1000 + r * 10 + w)
                    return "a round mixed up its words";
    }
    return NULL;
}

START_TEST(allgather_rounds)
{
    seat_t seats[GATHERERS] = {0};
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(GATHERERS, &world), GW_OK);
    for (int i = 0; i < GATHERERS; i++) {
        seats[i].rank = (gw_loopback_rank_t){world, i};
        ck_assert_int_eq(pthread_create(&seats[i].thread, NULL, gather_rounds, &seats[i]), 0);
    }
    for (int i = 0; i < GATHERERS; i++) {
        void *failure;
        pthread_join(seats[i].thread, &failure);
        ck_assert_msg(!failure, "%s", (const char *)failure);
    }
    gw_loopback_free(world);
}
END_TEST

static void *gather_unequal(void *arg)
{
    seat_t *seat = arg;
    char mine[8] = {0}, all[16];
    gw_status_t first = gw_loopback_allgather(&seat->rank, mine, all, seat->rank.rank == 0 ? 4 : 8);
    gw_status_t second = gw_loopback_allgather(&seat->rank, mine, all, 8);
    return first == GW_ERR_INVALID && second == GW_OK ? NULL
                                                      : "not refused, or not usable afterwards";
}

/* Ranks that gather different sizes all hear of it, and can go on. */
START_TEST(allgather_unequal)
{
    seat_t seats[2] = {0};
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    for (int i = 0; i < 2; i++) {
        seats[i].rank = (gw_loopback_rank_t){world, i};
        ck_assert_int_eq(pthread_create(&seats[i].thread, NULL, gather_unequal, &seats[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *failure;
        pthread_join(seats[i].thread, &failure);
        ck_assert_msg(!failure, "%s", (const char *)failure);
    }
    gw_loopback_free(world);
}
END_TEST

/* ---- life cycle
 * -------------------------------------------------------------------------------------- */

static void silent(void *arg, gw_log_level_t level, const char *format, ...)
{
}

static gw_link_t *open_rank(gw_loopback_t *world, int rank, int size, gw_status_t expected)
{
    gw_link_t *link = NULL;
    gw_link_params_t params = {
        .rank = rank, .size = size, .arg = world, .timeout = 5, .log = silent};
    ck_assert_int_eq(loopback()->open(&params, &link), expected);
    return link;
}

/* A rank that closes ends what others wait for from it; what it sent before still arrives. */
START_TEST(close_of_a_peer)
{
    const gw_transport_t *t = loopback();
    static char big[100000];
    char small[8], in[8];
    gw_request_t sent, early, late, large, none;
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    gw_link_t *a = open_rank(world, 0, 2, GW_OK), *b = open_rank(world, 1, 2, GW_OK);
    memcpy(small, "gradwire", 8);
    ck_assert_int_eq(t->send(b, 0, 1, small, 8, &sent), GW_OK);
    ck_assert_int_eq(t->recv(a, 1, 2, in, 8, &early), GW_IN_PROGRESS);
    ck_assert_int_eq(t->send(a, 1, 3, big, sizeof(big), &large), GW_IN_PROGRESS);
    ck_assert_int_eq(t->close(b), GW_OK);
    ck_assert_int_eq(t->recv(a, 1, 1, in, 8, &late), GW_OK);
    ck_assert_mem_eq(in, small, 8);
    while (t->progress(a))
        ;
    ck_assert_int_eq(early.status, GW_ERR_PEER_FAILED);
    ck_assert_int_eq(large.status, GW_ERR_PEER_FAILED);
    ck_assert_int_eq(t->recv(a, 1, 1, in, 8, &none), GW_ERR_PEER_FAILED);
    ck_assert_int_eq(t->send(a, 1, 1, in, 8, &none), GW_ERR_PEER_FAILED);
    ck_assert_int_eq(t->close(a), GW_OK);
    gw_loopback_free(world);
}
END_TEST

/* A long send can be cancelled while no receive has come; unmatched messages leak nothing. */
START_TEST(cancel_of_a_send)
{
    const gw_transport_t *t = loopback();
    static char big[100000], in[100000];
    gw_request_t first, second, received;
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    gw_link_t *a = open_rank(world, 0, 2, GW_OK), *b = open_rank(world, 1, 2, GW_OK);
    ck_assert_int_eq(t->send(a, 1, 7, big, sizeof(big), &first), GW_IN_PROGRESS);
    ck_assert_int_eq(t->send(a, 1, 7, big, sizeof(big) - 1, &second), GW_IN_PROGRESS);
    t->cancel(a, &first);
    ck_assert_int_eq(first.status, GW_ERR_CANCELED);
    ck_assert_int_eq(t->recv(b, 0, 7, in, sizeof(in), &received), GW_OK);
    ck_assert_uint_eq(received.length, sizeof(big) - 1);
    ck_assert_int_eq(t->progress(a), 1);
    ck_assert_int_eq(second.status, GW_OK);
    ck_assert_int_eq(t->send(a, 1, 7, big, 100, &first), GW_OK);
    ck_assert_int_eq(t->close(a), GW_OK);
    ck_assert_int_eq(t->close(b), GW_OK);
    gw_loopback_free(world);
}
END_TEST

/* Copies are made while there are buffers; then messages stay with their sender, in order, and the
 * buffers come back. */
START_TEST(buffers_run_out)
{
    enum { COUNT = 200 };
    const gw_transport_t *t = loopback();
    static gw_request_t sent[COUNT], received;
    static uint32_t out[COUNT], in;
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    gw_link_t *a = open_rank(world, 0, 2, GW_OK), *b = open_rank(world, 1, 2, GW_OK);
    int copied[2] = {0, 0};
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            out[i] = i;
            copied[turn] += t->send(a, 1, 7, &out[i], sizeof out[i], &sent[i]) == GW_OK;
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            gw_check(t->recv(b, 0, 7, &in, sizeof in, &received) == GW_OK, "message %u", i);
            gw_check(in == i, "message %u holds %u", i, in);
        }
        t->progress(a);
        for (int i = 0; i < COUNT; i++)
            gw_check(sent[i].status == GW_OK, "send %d: %s", i, gw_status_name(sent[i].status));
    }
    ck_assert(copied[0] > 0 && copied[0] < COUNT);
    ck_assert_int_eq(copied[0], copied[1]);
    ck_assert_int_eq(t->close(a), GW_OK);
    ck_assert_int_eq(t->close(b), GW_OK);
    gw_loopback_free(world);
}
END_TEST

START_TEST(open_refuses)
{
    const gw_transport_t *t = loopback();
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(0, &world), GW_ERR_INVALID);
    ck_assert_int_eq(gw_loopback_create(3, &world), GW_OK);
    open_rank(NULL, 0, 3, GW_ERR_INVALID);
    open_rank(world, 3, 3, GW_ERR_INVALID);
    open_rank(world, 0, 2, GW_ERR_INVALID);
    gw_link_t *link = open_rank(world, 2, 3, GW_OK);
    open_rank(world, 2, 3, GW_ERR_INVALID);
    ck_assert_int_eq(t->close(link), GW_OK);
    link = open_rank(world, 2, 3, GW_OK);
    ck_assert_int_eq(t->close(link), GW_OK);
    gw_loopback_free(world);
    gw_loopback_free(NULL);
}
END_TEST

/* Every byte of an address matters. */
START_TEST(address_is_checked)
{
    const gw_transport_t *t = loopback();
    gw_loopback_t *world;
    unsigned char bytes[2][GW_TRANSPORT_ADDRESS_MAX];
    gw_address_t addresses[2];
    gw_link_t *links[2];
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    for (int i = 0; i < 2; i++) {
        links[i] = open_rank(world, i, 2, GW_OK);
        size_t length = 1;
        ck_assert_int_eq(t->address(links[i], bytes[i], &length), GW_ERR_NO_SPACE);
        ck_assert_int_eq(t->address(links[i], bytes[i], &length), GW_OK);
        addresses[i] = (gw_address_t){bytes[i], length};
    }
    for (size_t i = 0; i < addresses[1].length; i++) {
        bytes[1][i] ^= 0x10;
        ck_assert_int_eq(t->connect(links[0], addresses), GW_ERR_UNREACHABLE);
        bytes[1][i] ^= 0x10;
    }
    addresses[1].length--;
    ck_assert_int_eq(t->connect(links[0], addresses), GW_ERR_UNREACHABLE);
    addresses[1].length++;
    ck_assert_int_eq(t->connect(links[0], addresses), GW_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(t->close(links[i]), GW_OK);
    gw_loopback_free(world);
}
END_TEST

int main(void)
{
    int parts = 0;
    while (body_parts[parts])
        parts++;
    Suite *suite = suite_create("loopback");
    TCase *tc = tcase_create("loopback");
    tcase_add_loop_test(tc, contract_two_ranks, 0, parts);
    tcase_add_loop_test(tc, contract_four_ranks, 0, parts);
    tcase_add_test(tc, allgather_rounds);
    tcase_add_test(tc, allgather_unequal);
    tcase_add_test(tc, close_of_a_peer);
    tcase_add_test(tc, cancel_of_a_send);
    tcase_add_test(tc, buffers_run_out);
    tcase_add_test(tc, open_refuses);
    tcase_add_test(tc, address_is_checked);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
