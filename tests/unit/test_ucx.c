/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the UCX transport: the contract over TCP and shared memory, with threads and with
 * processes as ranks. */
#include "gw_test.h"
#include "transport_ranks.h"

#include <string.h>

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

static void run_threads(const char *part, char carrier[64])
{
    char failure[320];
    ranks_threads(3, ucx(), part, body_run, failure, carrier);
    ck_assert_msg(failure[0] == '\0', "%s", failure);
}

static void run_rank(body_rank_t *me)
{
    me->transport = ucx();
    body_run(me);
}

static void run_processes(const char *part, char carrier[64])
{
    ranks_t *ranks = ranks_fork(4, part, run_rank);
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(ranks->body[i].failure[0] == '\0', "%s, rank %d: %s", part, i,
                      ranks->body[i].failure);
        ck_assert_msg(ranks->exit_status[i] == 0, "%s, rank %d ended with status %d", part, i,
                      ranks->exit_status[i]);
    }
    strcpy(carrier, ranks->body[0].carrier);
    ranks_free(ranks);
}

static bool over_tcp(const char *carrier)
{
    return !strncmp(carrier, "tcp/", 4);
}

static bool over_shared_memory(const char *carrier)
{
    return strstr(carrier, "sysv") || strstr(carrier, "posix") || strstr(carrier, "xpmem");
}

START_TEST(threads_tcp)
{
    char carrier[64];
    setenv("UCX_TLS", "tcp,self", 1);
    run_threads(body_parts[_i], carrier);
    ck_assert_msg(over_tcp(carrier), "carried by %s", carrier);
}
END_TEST

START_TEST(threads_shared_memory)
{
    char carrier[64];
    run_threads(body_parts[_i], carrier);
    ck_assert_msg(over_shared_memory(carrier), "carried by %s", carrier);
}
END_TEST

/* The prefixed variable wins over the plain one. */
START_TEST(processes_tcp)
{
    char carrier[64];
    setenv("UCX_TLS", "sm,self", 1);
    setenv("GRADWIRE_UCX_TLS", "tcp,self", 1);
    run_processes(body_parts[_i], carrier);
    ck_assert_msg(over_tcp(carrier), "carried by %s", carrier);
}
END_TEST

START_TEST(processes_shared_memory)
{
    char carrier[64];
    run_processes(body_parts[_i], carrier);
    ck_assert_msg(over_shared_memory(carrier), "carried by %s", carrier);
}
END_TEST

/* Rendezvous over TCP stays possible for users who ask for it. */
START_TEST(processes_tcp_rendezvous)
{
    char carrier[64];
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_RNDV_THRESH", "16k", 1);
    run_processes(body_parts[_i], carrier);
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
    tcase_add_loop_test(tc, processes_tcp, 0, parts);
    tcase_add_loop_test(tc, processes_shared_memory, 0, parts);
    tcase_add_loop_test(tc, processes_tcp_rendezvous, 0, parts);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
