/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the filters that guard UCX's listening sockets, on listening sockets of our own: the
 * kernel is the judge. */
#include "gw_test.h"
#include "ucx_filter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address_t;

static address_t address_of(const char *host, int port, socklen_t *length)
{
    address_t a = {.any = {0}};
    bool v6 = strchr(host, ':');
    *length = v6 ? sizeof a.v6 : sizeof a.v4;
    if (v6) {
        a.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        inet_pton(AF_INET6, host, &a.v6.sin6_addr);
    } else {
        a.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        inet_pton(AF_INET, host, &a.v4.sin_addr);
    }
    return a;
}

static int socket_on(const char *host)
{
    socklen_t length;
    address_t a = address_of(host, 0, &length);
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fd, &a.any, length), 0);
    return fd;
}

static int listener_on(const char *host, struct sock_filter *code, int length)
{
    struct sock_fprog program = {(unsigned short)length, code};
    int fd = socket_on(host);
    ck_assert_int_eq(listen(fd, 16), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
    return fd;
}

static bool becomes(int fd, short event, int ms)
{
    struct pollfd poller = {.fd = fd, .events = event};
    return poll(&poller, 1, ms) > 0;
}

/* A connection from `host`, or -1. */
static int connect_from(const char *host, int listener)
{
    address_t a;
    socklen_t length = sizeof a;
    int fd = socket_on(host), one = 1;
    ck_assert_int_eq(getsockname(listener, &a.any, &length), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect(fd, &a.any, length);
    if (becomes(fd, POLLOUT, 60))
        return fd;
    close(fd);
    return -1;
}

static bool admits(int listener, const char *host)
{
    int fd = connect_from(host, listener);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static ucx_source_t v4(const char *text)
{
    ucx_source_t source = {.family = 4};
    inet_pton(AF_INET, text, source.addr);
    return source;
}

START_TEST(closed_admits_nobody)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    int fd = listener_on("127.0.0.1", code, gw__ucx_filter_closed(code));
    ck_assert(!admits(fd, "127.0.0.1"));
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &fd, sizeof fd), 0);
    ck_assert(admits(fd, "127.0.0.1"));
    close(fd);
}
END_TEST

START_TEST(open_admits_its_sources)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    ucx_source_t sources[] = {v4("127.0.0.9"), v4("127.0.0.5"), v4("10.1.2.3")};
    int fd = listener_on("127.0.0.1", code, gw__ucx_filter_open(sources, 3, false, true, code));
    ck_assert(admits(fd, "127.0.0.5"));
    ck_assert(admits(fd, "127.0.0.9"));
    ck_assert(!admits(fd, "127.0.0.6"));
    ck_assert(!admits(fd, "127.0.0.1"));
    close(fd);
    fd = listener_on("127.0.0.1", code, gw__ucx_filter_open(sources, 3, true, true, code));
    ck_assert(admits(fd, "127.0.0.1"));
    close(fd);
    fd = listener_on("127.0.0.1", code, gw__ucx_filter_open(sources, -1, false, true, code));
    ck_assert(admits(fd, "127.7.7.7"));
    close(fd);
}
END_TEST

/* Two thousand hosts in two hundred groups: all of them pass, and who is far from them does not. */
START_TEST(many_sources_become_ranges)
{
    enum { GROUPS = 200, MANY = 10 * GROUPS };
    static ucx_source_t sources[MANY];
    struct sock_filter code[GW__UCX_FILTER_MAX];
    for (int i = 0; i < MANY; i++) {
        char text[32];
        snprintf(text, sizeof text, "127.1.%d.%d", i % GROUPS, 3 * (i / GROUPS) + 1);
        sources[i] = v4(text);
    }
    int length = gw__ucx_filter_open(sources, MANY, false, true, code);
    gw_check(length < GW__UCX_FILTER_MAX, "%d instructions", length);
    int fd = listener_on("127.0.0.1", code, length);
    ck_assert(admits(fd, "127.1.0.1"));
    ck_assert(admits(fd, "127.1.199.28"));
    ck_assert(admits(fd, "127.1.77.13"));
    ck_assert(!admits(fd, "127.2.0.1"));
    ck_assert(!admits(fd, "127.0.255.255"));
    close(fd);
}
END_TEST

START_TEST(networks_of_the_sixth_version)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    ucx_source_t sources[200];
    for (int i = 0; i < 200; i++)
        sources[i] =
            (ucx_source_t){.family = 6, .addr = {0xFD, 0, 0, 0, 0, 0, 0, (uint8_t)(i / 4)}};
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    socklen_t length;
    address_t a = address_of("::1", 0, &length);
    if (probe < 0 || bind(probe, &a.any, length) != 0) {
        gw_test_skip("filter for IPv6", "no IPv6 loopback");
        return;
    }
    close(probe);
    int fd = listener_on("::1", code, gw__ucx_filter_open(sources, 200, false, true, code));
    ck_assert(!admits(fd, "::1"));
    close(fd);
    fd = listener_on("::1", code, gw__ucx_filter_open(sources, 200, true, true, code));
    ck_assert(admits(fd, "::1"));
    close(fd);
    /* ::/64 by list, beyond the sixty-four networks that fit. */
    for (int i = 0; i < 200; i++)
        sources[i].addr[6] = (uint8_t)(i + 1);
    fd = listener_on("::1", code, gw__ucx_filter_open(sources, 200, false, true, code));
    ck_assert(admits(fd, "::1"));
    close(fd);
}
END_TEST

/* ---- Segments
 * ------------------------------------------------------------------------------------------------
 */

/* UCX 1.13's connection request over IPv4. */
static const unsigned char request[42] = {0x78, 0x56, 0x34, 0x12, 0xBE, 0xBA, 0xFE, 0xCA, 32, 29,
                                          0,    0,    0,    1,    0,    0,    0,    0,    7};

/* Bytes of `pieces` (each `sizes[i]` long) that arrive, sent one by one. */
static int arrives(bool requests, const unsigned char *bytes, const int *sizes, int pieces)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    static unsigned char buffer[4096];
    int listener =
        listener_on("127.0.0.1", code, gw__ucx_filter_open(NULL, -1, false, requests, code));
    int from = connect_from("127.0.0.1", listener);
    ck_assert_int_ge(from, 0);
    ck_assert(becomes(listener, POLLIN, 1000));
    int to = accept(listener, NULL, NULL), total = 0;
    for (int i = 0, at = 0; i < pieces; at += sizes[i++]) {
        ck_assert_int_eq(send(from, bytes + at, (size_t)sizes[i], 0), sizes[i]);
        usleep(2000);
    }
    while (becomes(to, POLLIN, 50)) {
        ssize_t got = recv(to, buffer, sizeof buffer, 0);
        if (got <= 0)
            break;
        total += (int)got;
    }
    close(to);
    close(from);
    close(listener);
    return total;
}

static int arrives_whole(const unsigned char *bytes, int size)
{
    return arrives(true, bytes, &size, 1);
}

START_TEST(whole_requests_pass)
{
    unsigned char more[200] = {0};
    memcpy(more, request, sizeof request);
    ck_assert_int_eq(arrives_whole(request, sizeof request), 42);
    ck_assert_int_eq(arrives_whole(more, sizeof more), 200);
    more[9] = 41;
    ck_assert_int_eq(arrives_whole(more, sizeof more), 200);
    ck_assert_int_eq(arrives_whole((const unsigned char *)"GET / HTTP/1.1\r\n\r\n", 18), 18);
    ck_assert_int_eq(arrives_whole((const unsigned char *)"", 1), 1);
}
END_TEST

/* Every byte that the rule covers, every length; and without the rule they pass. */
START_TEST(broken_requests_are_dropped)
{
    static const int covered[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    for (size_t i = 0; i < sizeof covered / sizeof covered[0]; i++) {
        unsigned char bytes[42];
        memcpy(bytes, request, sizeof bytes);
        bytes[covered[i]] ^= 0x42;
        gw_check(arrives_whole(bytes, 42) == 0, "byte %d may be anything", covered[i]);
    }
    for (int length = 1; length < 42; length += 5)
        gw_check(arrives_whole(request, length) == 0, "%d bytes pass", length);
    int all = 17;
    ck_assert_int_eq(arrives(false, request, &all, 1), 17);
}
END_TEST

/* What was dropped stays missing, so that nothing behind it arrives either. */
START_TEST(requests_in_pieces_are_dropped)
{
    int bytewise[42], halves[] = {8, 34}, tail[] = {41, 1};
    for (int i = 0; i < 42; i++)
        bytewise[i] = 1;
    ck_assert_int_eq(arrives(true, request, halves, 2), 0);
    ck_assert_int_eq(arrives(true, request, tail, 2), 0);
    ck_assert_int_eq(arrives(true, request, bytewise, 42), 0);
    ck_assert_int_eq(arrives(false, request, bytewise, 42), 42);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ucx_filter");
    TCase *sources = tcase_create("sources"), *segments = tcase_create("segments");
    tcase_set_timeout(sources, 60);
    tcase_set_timeout(segments, 60);
    tcase_add_test(sources, closed_admits_nobody);
    tcase_add_test(sources, open_admits_its_sources);
    tcase_add_test(sources, many_sources_become_ranges);
    tcase_add_test(sources, networks_of_the_sixth_version);
    tcase_add_test(segments, whole_requests_pass);
    tcase_add_test(segments, broken_requests_are_dropped);
    tcase_add_test(segments, requests_in_pieces_are_dropped);
    suite_add_tcase(suite, sources);
    suite_add_tcase(suite, segments);
    return gw_test_main(suite);
}
