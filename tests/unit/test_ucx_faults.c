/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the UCX transport when things go wrong: dead and silent peers, damaged addresses, forks,
 * missing devices. */
#include "gw_test.h"
#include "transport_ranks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How ranks reach each other; the loop index of most tests. */
enum { TCP, SHARED_MEMORY, CARRIERS };

static void carry(int how)
{
    setenv("UCX_TLS", how == TCP ? "tcp,self" : "sm,self", 1);
}

static const gw_transport_t *ucx(void)
{
    const gw_transport_t *transport = NULL;
    char why[256] = "";
    gw_status_t status = gw_transport_find("ucx", &transport, why, sizeof(why));
    ck_assert_msg(status == GW_OK, "%s", why);
    return transport;
}

/* Runs ranks that may be killed: only those below `survivors` must end well. */
static void run(int size, int survivors, ranks_fn fn)
{
    ranks_t *ranks = ranks_fork(size, "", fn);
    for (int i = 0; i < survivors; i++) {
        ck_assert_msg(ranks->body[i].failure[0] == '\0', "rank %d: %s", i, ranks->body[i].failure);
        ck_assert_msg(ranks->exit_status[i] == 0, "rank %d ended with status %d", i,
                      ranks->exit_status[i]);
    }
    ranks_free(ranks);
}

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            body_fail(me, __VA_ARGS__);                                                            \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void meet(body_rank_t *me)
{
    char mine = 0, all[RANKS_MAX];
    if (me->gather(me->gather_arg, &mine, all, 1) != GW_OK)
        body_fail(me, "the gather failed");
}

static void close_within(body_rank_t *me, double seconds)
{
    double start = body_now();
    me->transport->close(me->link);
    if (body_now() - start > seconds)
        body_fail(me, "close took %.1f s", body_now() - start);
}

/* One message each way between two ranks, so that their connection stands. */
static void greet(body_rank_t *me, int peer)
{
    char in[64], out[64] = "hello";
    gw_request_t receive, send;
    me->transport->recv(me->link, peer, 1, in, sizeof(in), &receive);
    me->transport->send(me->link, peer, 1, out, sizeof(out), &send);
    EXPECT(body_finish(me, &receive, 10) == GW_OK, "no hello from %d: %s", peer,
           gw_status_name(receive.status));
    EXPECT(body_finish(me, &send, 10) == GW_OK, "no hello to %d: %s", peer,
           gw_status_name(send.status));
}

/* ---- death
 * ------------------------------------------------------------------------------------------- */

enum { BIG = 48 << 20 }; /* more than the buffers of a socket hold */
static char big_in[BIG], big_out[BIG];

static void with_a_dead_peer(body_rank_t *me)
{
    gw_request_t receive, second, send, late;
    char small[8];
    me->transport = ucx();
    EXPECT(body_open(me) == 0, "open failed");
    for (int peer = 0; peer < me->size; peer++)
        if (peer != me->rank)
            greet(me, peer);
    meet(me);
    if (me->rank == 2)
        raise(SIGKILL);
    double start = body_now();
    me->transport->recv(me->link, 2, 5, big_in, sizeof(big_in), &receive);
    me->transport->recv(me->link, 2, 6, small, sizeof(small), &second);
    me->transport->send(me->link, 2, 7, big_out, sizeof(big_out), &send);
    EXPECT(body_finish(me, &receive, 5) == GW_ERR_PEER_FAILED, "receive: %s",
           gw_status_name(receive.status));
    EXPECT(body_finish(me, &second, 5) == GW_ERR_PEER_FAILED, "second receive: %s",
           gw_status_name(second.status));
    EXPECT(body_finish(me, &send, 5) == GW_ERR_PEER_FAILED, "send: %s",
           gw_status_name(send.status));
    EXPECT(body_now() - start < 5, "the death was noticed after %.1f s", body_now() - start);
    me->transport->recv(me->link, 2, 8, small, sizeof(small), &late);
    EXPECT(body_finish(me, &late, 5) == GW_ERR_PEER_FAILED, "late receive: %s",
           gw_status_name(late.status));
    EXPECT(me->transport->send(me->link, 2, 8, small, sizeof(small), &late) == GW_ERR_PEER_FAILED,
           "late send: %s", gw_status_name(late.status));
    greet(me, 1 - me->rank);
    close_within(me, 5);
}

/* The living go on with each other. */
START_TEST(peer_killed)
{
    carry(_i);
    run(3, 2, with_a_dead_peer);
}
END_TEST

static void dead_in_the_middle(body_rank_t *me)
{
    gw_request_t message;
    me->transport = ucx();
    EXPECT(body_open(me) == 0, "open failed");
    greet(me, 1 - me->rank);
    memset(big_out, 'x', sizeof(big_out));
    if (me->rank == 1) {
        me->transport->send(me->link, 0, 5, big_out, sizeof(big_out), &message);
        me->transport->progress(me->link);
        raise(SIGKILL);
    }
    me->transport->recv(me->link, 1, 5, big_in, sizeof(big_in), &message);
    gw_status_t status = body_finish(me, &message, 5);
    /* Through shared memory the receiver reads by itself, and may be done before the sender's
     * memory goes: then the message must be whole. */
    bool whole = status == GW_OK && memcmp(big_in, big_out, sizeof(big_in)) == 0;
    EXPECT(status == GW_ERR_PEER_FAILED || whole, "half a message: %s", gw_status_name(status));
    close_within(me, 5);
}

START_TEST(peer_killed_while_sending)
{
    carry(_i);
    run(2, 1, dead_in_the_middle);
}
END_TEST

/* What a rank sent before it closed arrives, though nobody meets before the close. */
static void last_words(body_rank_t *me)
{
    enum { COUNT = 10 };
    static char text[COUNT][30000];
    gw_request_t message[COUNT], none;
    me->transport = ucx();
    EXPECT(body_open(me) == 0, "open failed");
    greet(me, 1 - me->rank);
    if (me->rank == 1) {
        for (int i = 0; i < COUNT; i++) {
            memset(text[i], 'a' + i, sizeof(text[i]));
            me->transport->send(me->link, 0, 2, text[i], sizeof(text[i]), &message[i]);
        }
        for (int i = 0; i < COUNT; i++)
            EXPECT(body_finish(me, &message[i], 10) == GW_OK, "send: %s",
                   gw_status_name(message[i].status));
        close_within(me, 5);
        return;
    }
    usleep(100000);
    for (int i = 0; i < COUNT; i++) {
        me->transport->recv(me->link, 1, 2, text[i], sizeof(text[i]), &message[i]);
        EXPECT(body_finish(me, &message[i], 10) == GW_OK, "receive: %s",
               gw_status_name(message[i].status));
        EXPECT(text[i][0] == 'a' + i && text[i][29999] == 'a' + i, "message %d is damaged", i);
    }
    me->transport->recv(me->link, 1, 2, text[0], 1, &none);
    gw_status_t status = body_finish(me, &none, 10);
    EXPECT(status == GW_ERR_PEER_FAILED, "receive from a closed peer: %s", gw_status_name(status));
    close_within(me, 5);
}

START_TEST(peer_closed)
{
    carry(_i);
    run(2, 2, last_words);
}
END_TEST

/* ---- silence
 * ----------------------------------------------------------------------------------------- */

/* Rank 1 does not progress: what rank 0 sent cannot finish, and is taken back. */
static void cancel_with_a_silent_peer(body_rank_t *me)
{
    gw_request_t send[8], receive;
    me->transport = ucx();
    EXPECT(body_open(me) == 0, "open failed");
    greet(me, 1 - me->rank);
    if (me->rank == 0) {
        double start = body_now();
        me->transport->recv(me->link, 1, 4, big_in, sizeof(big_in), &receive);
        for (int i = 0; i < 8; i++)
            me->transport->send(me->link, 1, 5, big_out, sizeof(big_out), &send[i]);
        body_finish(me, &send[7], 0.2);
        me->transport->cancel(me->link, &receive);
        EXPECT(receive.status == GW_ERR_CANCELED, "cancelled receive: %s",
               gw_status_name(receive.status));
        for (int i = 7; i >= 0; i--) {
            me->transport->cancel(me->link, &send[i]);
            EXPECT(send[i].status != GW_IN_PROGRESS, "a cancelled send goes on");
        }
        EXPECT(send[7].status == GW_ERR_CANCELED, "cancelled send: %s",
               gw_status_name(send[7].status));
        EXPECT(body_now() - start < 5, "the cancels took %.1f s", body_now() - start);
        close_within(me, 11);
    }
    meet(me);
    if (me->rank == 1)
        close_within(me, 11);
}

START_TEST(cancel_of_sends)
{
    carry(_i);
    run(2, 2, cancel_with_a_silent_peer);
}
END_TEST

/* Rank 1 does not progress for good: rank 0 closes in the time it was given. */
static void close_with_a_silent_peer(body_rank_t *me)
{
    static char text[200][1000];
    gw_request_t send[200];
    me->transport = ucx();
    me->timeout = 1;
    EXPECT(body_open(me) == 0, "open failed");
    if (me->rank == 1) {
        meet(me);
        _exit(0);
    }
    /* Short messages that UCX keeps, on a connection that never comes to stand. */
    for (int i = 0; i < 200; i++)
        me->transport->send(me->link, 1, 5, text[i], sizeof(text[i]), &send[i]);
    for (int i = 199; i >= 0; i--)
        me->transport->cancel(me->link, &send[i]);
    close_within(me, 1.5);
    meet(me);
}

START_TEST(close_is_bounded)
{
    carry(_i);
    run(2, 1, close_with_a_silent_peer);
}
END_TEST

/* ---- addresses and devices
 * --------------------------------------------------------------------------- */

static void quiet(void *arg, gw_log_level_t level, const char *format, ...)
{
    if (level == GW_LOG_WARN)
        ++*(int *)arg;
}

static gw_link_t *open_alone(int rank, const char *devices, int *warnings, gw_status_t expected)
{
    gw_link_t *link = NULL;
    gw_link_params_t params = {.rank = rank,
                               .size = 2,
                               .devices = devices,
                               .timeout = 2,
                               .log = quiet,
                               .log_arg = warnings};
    gw_status_t status = ucx()->open(&params, &link);
    ck_assert_msg(status == expected, "open: %s", gw_status_name(status));
    return link;
}

/* Every byte of an address matters, and a refused address leaves the link usable. */
START_TEST(damaged_addresses)
{
    const gw_transport_t *t = ucx();
    static unsigned char bytes[2][GW_TRANSPORT_ADDRESS_MAX];
    gw_address_t addresses[2];
    gw_link_t *links[2];
    int warnings = 0, damages = 0;
    for (int i = 0; i < 2; i++) {
        size_t length = 10;
        links[i] = open_alone(i, NULL, &warnings, GW_OK);
        ck_assert_int_eq(t->address(links[i], bytes[i], &length), GW_ERR_NO_SPACE);
        ck_assert_int_eq(t->address(links[i], bytes[i], &length), GW_OK);
        addresses[i] = (gw_address_t){bytes[i], length};
    }
    for (size_t i = 0; i < addresses[1].length; i++, damages++) {
        bytes[1][i] ^= 0x41;
        ck_assert_int_eq(t->connect(links[0], addresses), GW_ERR_UNREACHABLE);
        bytes[1][i] ^= 0x41;
    }
    size_t length = addresses[1].length;
    for (addresses[1].length = 0; addresses[1].length < length; addresses[1].length += 7, damages++)
        ck_assert_int_eq(t->connect(links[0], addresses), GW_ERR_UNREACHABLE);
    addresses[1] = addresses[0];
    ck_assert_int_eq(t->connect(links[0], addresses), GW_ERR_UNREACHABLE);
    ck_assert_int_eq(warnings, damages + 1);
    addresses[1] = (gw_address_t){bytes[1], length};
    ck_assert_int_eq(t->connect(links[0], addresses), GW_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(t->close(links[i]), GW_OK);
}
END_TEST

START_TEST(no_such_device)
{
    int warnings = 0;
    open_alone(0, "gwnosuch0", &warnings, GW_ERR_NO_DEVICE);
    ck_assert_int_eq(warnings, 1);
}
END_TEST

/* Before connect() nothing can be sent, and describe() says no more than it knows. */
START_TEST(not_connected)
{
    char byte = 0;
    gw_request_t req;
    int warnings = 0;
    gw_link_t *link = open_alone(0, "lo", &warnings, GW_OK);
    ck_assert_int_eq(ucx()->send(link, 1, 1, &byte, 1, &req), GW_ERR_UNSUPPORTED);
    ck_assert_str_eq(ucx()->describe(link, 1), "ucx/lo");
    ck_assert_int_eq(ucx()->close(link), GW_OK);
}
END_TEST

/* ---- strangers
 * --------------------------------------------------------------------------------------- */

/* Who has another secret is not heard, though UCX connects him. */
static void with_another_secret(body_rank_t *me)
{
    static const uint8_t secrets[3][GW_TRANSPORT_SECRET] = {{1}, {1}, {2}};
    gw_request_t receive, send;
    char in[8], out[8] = "hello";
    me->transport = ucx();
    me->secret = secrets[me->rank];
    EXPECT(body_open(me) == 0, "open failed");
    if (me->rank < 2)
        greet(me, 1 - me->rank);
    int other = me->rank == 2 ? 0 : 2;
    if (me->rank != 1) {
        me->transport->recv(me->link, other, 1, in, sizeof(in), &receive);
        me->transport->send(me->link, other, 1, out, sizeof(out), &send);
        EXPECT(body_finish(me, &receive, 0.5) == GW_IN_PROGRESS, "heard: %s",
               gw_status_name(receive.status));
        body_finish(me, &send, 1);
        me->transport->cancel(me->link, &receive);
        me->transport->cancel(me->link, &send);
    }
    meet(me);
    close_within(me, 5);
}

START_TEST(another_secret_is_not_heard)
{
    carry(_i);
    run(3, 3, with_another_secret);
}
END_TEST

/* Whether a socket of this process that listens takes a connection. */
static bool admits_stranger(void)
{
    struct sockaddr_in address;
    bool admitted = false;
    for (int fd = 0, listens = 0; fd < 256; fd++, listens = 0) {
        socklen_t length = sizeof(listens), size = sizeof(address);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens ||
            getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
            address.sin_family != AF_INET)
            continue;
        int stranger = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct pollfd poller = {.fd = stranger, .events = POLLOUT};
        connect(stranger, (struct sockaddr *)&address, size);
        admitted |= poll(&poller, 1, 100) > 0;
        close(stranger);
    }
    return admitted;
}

/* Closed until connect(), open until seal(), closed again; what stands stays, for messages of any
 * bytes.
 */
static void guarded(body_rank_t *me)
{
    gw_request_t receive, send;
    gw_link_t *alone = NULL;
    me->transport = ucx();
    me->one_node = true;
    me->guard = true;
    gw_link_params_t params = body_params(me);
    EXPECT(me->transport->open(&params, &alone) == GW_OK, "open failed");
    EXPECT(!admits_stranger(), "a stranger connects before connect()");
    me->transport->close(alone);
    EXPECT(body_open(me) == 0, "open failed");
    EXPECT(admits_stranger(), "this host cannot connect");
    meet(me);
    greet(me, 1 - me->rank);
    greet(me, 1 - me->rank);
    me->transport->seal(me->link);
    meet(me);
    EXPECT(!admits_stranger(), "a stranger connects after seal()");
    memset(big_out, 0x78, sizeof(big_out));
    me->transport->recv(me->link, 1 - me->rank, 5, big_in, sizeof(big_in), &receive);
    me->transport->send(me->link, 1 - me->rank, 5, big_out, sizeof(big_out), &send);
    EXPECT(body_finish(me, &receive, 20) == GW_OK && body_finish(me, &send, 20) == GW_OK,
           "a long message after seal(): %s", gw_status_name(receive.status));
    EXPECT(memcmp(big_in, big_out, sizeof(big_in)) == 0, "it is damaged");
    meet(me);
    close_within(me, 5);
}

START_TEST(the_guard_has_three_states)
{
    carry(TCP);
    run(2, 2, guarded);
}
END_TEST

/* ---- the process
 * ------------------------------------------------------------------------------------- */

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void open_and_close(body_rank_t *me)
{
    int after_first = 0;
    me->transport = ucx();
    for (int i = 0; i < 12; i++) {
        EXPECT(body_open(me) == 0, "open failed");
        greet(me, 1 - me->rank);
        meet(me);
        close_within(me, 5);
        if (i == 1)
            after_first = open_descriptors();
    }
    EXPECT(open_descriptors() <= after_first, "%d descriptors, %d after the second time",
           open_descriptors(), after_first);
}

START_TEST(descriptors_stay)
{
    carry(_i);
    run(2, 2, open_and_close);
}
END_TEST

/* Near the limit of descriptors a link is refused, one by one, until all that stand are whole. */
static void near_the_limit(body_rank_t *me)
{
    enum { MOST = 40 };
    gw_link_t *links[MOST];
    int warnings = 0, count = 0;
    gw_status_t status = GW_OK;
    me->transport = ucx();
    struct rlimit limit = {128, 128};
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0, "no such limit");
    while (count < MOST) {
        gw_link_params_t params = body_params(me);
        params.log = quiet;
        params.log_arg = &warnings;
        int before = open_descriptors();
        status = me->transport->open(&params, &me->link);
        if (status != GW_OK) {
            EXPECT(before + 24 + 3 * me->size > 128, "refused with %d in use", before);
            break;
        }
        me->transport->close(me->link);
        EXPECT(body_open(me) == 0, "open failed");
        greet(me, 1 - me->rank);
        meet(me);
        links[count++] = me->link;
    }
    EXPECT(count > 3 && count < MOST, "%d links", count);
    EXPECT(status == GW_ERR_IO && warnings == 1, "%s, %d warnings", gw_status_name(status),
           warnings);
    for (int i = 0; i < count; i++) {
        me->link = links[i];
        greet(me, 1 - me->rank);
    }
    meet(me);
    for (int i = 0; i < count; i++)
        me->transport->close(links[i]);
}

START_TEST(descriptors_run_out)
{
    carry(_i);
    run(2, 2, near_the_limit);
}
END_TEST

/* The functions that UCX's memory hooks would patch. */
typedef struct code {
    unsigned char bytes[6][16];
} code_t;

static code_t allocator_code(void)
{
    static const char *const names[6] = {"mmap", "munmap", "mremap", "madvise", "shmat", "shmdt"};
    code_t code;
    for (int i = 0; i < 6; i++)
        memcpy(code.bytes[i], dlsym(RTLD_DEFAULT, names[i]), sizeof(code.bytes[i]));
    return code;
}

static void send_long_messages(body_rank_t *me)
{
    code_t before = allocator_code(), after;
    me->part = "sizes";
    me->transport = ucx();
    body_run(me);
    after = allocator_code();
    EXPECT(memcmp(&before, &after, sizeof(code_t)) == 0, "a function of libc was patched");
}

START_TEST(no_memory_hooks)
{
    run(2, 2, send_long_messages);
}
END_TEST

/* The negative case: a user who asks for the hooks gets them, and the check sees them. */
START_TEST(memory_hooks_on_request)
{
    setenv("UCX_MEM_EVENTS", "y", 1);
    setenv("UCX_MEMTYPE_CACHE", "y", 1);
    ranks_t *ranks = ranks_fork(2, "", send_long_messages);
    if (!ranks->body[0].failure[0])
        gw_test_skip("memory_hooks_on_request",
                     "this UCX patches nothing even when it is asked to");
    else
        ck_assert_str_eq(ranks->body[0].failure, "a function of libc was patched");
    ranks_free(ranks);
}
END_TEST

/* A forked child can close the link it inherited and cannot disturb its parent's. */
static void fork_a_child(body_rank_t *me)
{
    char byte = 0;
    gw_request_t req, receive;
    int status;
    me->transport = ucx();
    EXPECT(body_open(me) == 0, "open failed");
    greet(me, 1 - me->rank);
    me->transport->recv(me->link, 1 - me->rank, 9, &byte, 1, &receive);
    pid_t child = fork();
    if (child == 0) {
        bool good =
            me->transport->send(me->link, 1 - me->rank, 9, &byte, 1, &req) == GW_ERR_UNSUPPORTED;
        good = good && me->transport->progress(me->link) == 0;
        me->transport->wait(me->link, 1000);
        me->transport->cancel(me->link, &receive);
        good = good && receive.status == GW_ERR_CANCELED && me->transport->close(me->link) == GW_OK;
        _exit(good ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "the child ended with status %d",
           status);
    greet(me, 1 - me->rank);
    me->transport->send(me->link, 1 - me->rank, 9, "x", 1, &req);
    EXPECT(body_finish(me, &receive, 5) == GW_OK && byte == 'x', "the parent's receive: %s",
           gw_status_name(receive.status));
    meet(me);
    close_within(me, 5);
}

START_TEST(forked_child)
{
    carry(_i);
    run(2, 2, fork_a_child);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ucx_faults");
    TCase *tc = tcase_create("ucx_faults");
    tcase_add_loop_test(tc, peer_killed, 0, CARRIERS);
    tcase_add_loop_test(tc, peer_killed_while_sending, 0, CARRIERS);
    tcase_add_loop_test(tc, peer_closed, 0, CARRIERS);
    tcase_add_loop_test(tc, cancel_of_sends, 0, CARRIERS);
    tcase_add_loop_test(tc, close_is_bounded, 0, CARRIERS);
    tcase_add_test(tc, damaged_addresses);
    tcase_add_test(tc, no_such_device);
    tcase_add_test(tc, not_connected);
    tcase_add_loop_test(tc, another_secret_is_not_heard, 0, CARRIERS);
    tcase_add_test(tc, the_guard_has_three_states);
    tcase_add_loop_test(tc, descriptors_stay, 0, CARRIERS);
    tcase_add_loop_test(tc, descriptors_run_out, 0, CARRIERS);
    tcase_add_test(tc, no_memory_hooks);
    tcase_add_test(tc, memory_hooks_on_request);
    tcase_add_loop_test(tc, forked_child, 0, CARRIERS);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
