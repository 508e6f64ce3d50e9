/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the UCX transport: the contract over TCP and shared memory, with threads and processes
 * as ranks. */
#include "gw_test.h"
#include "transport_body.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const gw_transport_t *ucx(void)
{
    const gw_transport_t *transport = NULL;
    char why[256] = "";
    gw_status_t status = gw_transport_find("ucx", &transport, why, sizeof(why));
    ck_assert_msg(status == GW_OK, "%s", why);
    status = transport->probe(why, sizeof(why));
    ck_assert_msg(status == GW_OK, "%s", why);
    return transport;
}

/* ---- threads of one process
 * -------------------------------------------------------------------------- */

typedef struct seat {
    body_rank_t body;
    gw_loopback_rank_t rank;
    pthread_t thread;
} seat_t;

static void *seat_main(void *arg)
{
    body_run(&((seat_t *)arg)->body);
    return NULL;
}

/* Runs a part with threads as ranks. The loopback's all-gather is the channel outside. */
static void run_threads(const char *part, int size)
{
    seat_t seats[8] = {0};
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(size, &world), GW_OK);
    for (int i = 0; i < size; i++) {
        seats[i].rank = (gw_loopback_rank_t){world, i};
        seats[i].body = (body_rank_t){.transport = ucx(),
                                      .part = part,
                                      .rank = i,
                                      .size = size,
                                      .gather = gw_loopback_allgather,
                                      .gather_arg = &seats[i].rank};
        ck_assert_int_eq(pthread_create(&seats[i].thread, NULL, seat_main, &seats[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(seats[i].thread, NULL);
    for (int i = 0; i < size; i++)
        ck_assert_msg(seats[i].body.failure[0] == '\0', "%s, rank %d: %s", part, i,
                      seats[i].body.failure);
    gw_loopback_free(world);
}

START_TEST(threads_tcp)
{
    setenv("UCX_TLS", "tcp,self", 1);
    run_threads(body_parts[_i], 3);
}
END_TEST

START_TEST(threads_shared_memory)
{
    run_threads(body_parts[_i], 3);
}
END_TEST

int main(void)
{
    int parts = 0;
    while (body_parts[parts])
        parts++;
    Suite *suite = suite_create("ucx");
    TCase *tc = tcase_create("ucx");
    tcase_add_loop_test(tc, threads_tcp, 0, parts);
    tcase_add_loop_test(tc, threads_shared_memory, 0, parts);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
