/* SPDX-License-Identifier: Apache-2.0 */
/* GRADWIRE_PORTS: a running communicator listens within the range, and one that finds no port there
 * says so on all ranks. */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gw_world.h"

/* Below the ports that the system gives to those who do not ask for one. */
enum { FIRST = 21400, LAST = 21431 };

/* Whether this process holds a socket with this inode. */
static bool is_ours(unsigned long inode)
{
    char wanted[64], path[300], target[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; !found && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n > 0) {
            target[n] = '\0';
            found = strcmp(target, wanted) == 0;
        }
    }
    closedir(directory);
    return found;
}

/* The ports on which this process listens, from both tables of the kernel. */
static int listening(int *ports, int most)
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    int count = 0;
    char line[512];
    for (int t = 0; t < 2; t++) {
        FILE *f = fopen(tables[t], "r");
        while (f && fgets(line, sizeof line, f)) {
            unsigned port, state;
            unsigned long inode;
            if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu", &port,
                       &state, &inode) == 3 &&
                state == 0x0A && count < most && is_ours(inode))
                ports[count++] = (int)port;
        }
        if (f)
            fclose(f);
    }
    return count;
}

typedef struct seen {
    int inside, outside;
} seen_t;

static void look(gw_rank_t *rank)
{
    float x[20000] = {1.0f};
    int ports[256];
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 20000, GW_F32, GW_SUM), GW_OK);
    seen_t *seen = (seen_t *)rank->arg + rank->rank;
    int count = listening(ports, 256);
    for (int i = 0; i < count; i++) {
        bool inside = ports[i] >= FIRST && ports[i] <= LAST;
        seen->inside += inside;
        seen->outside += !inside;
    }
    /* Neither closes before both have looked. */
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 20000, GW_F32, GW_SUM), GW_OK);
}

static bool ready(const char *test)
{
    const gw_transport_t *ucx;
    char why[256];
    setenv("UCX_TLS", "tcp,self", 1);
    if (gw_transport_find("ucx", &ucx, why, sizeof why) == GW_OK)
        return true;
    gw_test_skip(test, "module ucx is not built");
    return false;
}

static seen_t run(const char *ports, gw_world_t *world)
{
    seen_t seen[2] = {{0}};
    gw_setting_t settings[] = {
        {"GRADWIRE_PORTS", ports}, {"GRADWIRE_LOG", "off"}, {"GRADWIRE_TIMEOUT", "10"}};
    *world = (gw_world_t){.size = 2,
                          .transport = "ucx",
                          .settings = settings,
                          .setting_count = 3,
                          .body = look,
                          .arg = seen};
    gw_world_run(world);
    ck_assert_int_eq(seen[0].inside, seen[1].inside);
    return seen[0];
}

START_TEST(listening_ports_lie_in_the_range)
{
    gw_world_t world;
    char range[32];
    if (!ready("listening_ports_lie_in_the_range"))
        return;
    snprintf(range, sizeof range, "%d-%d", FIRST, LAST);
    seen_t seen = run(range, &world);
    ck_assert_int_eq(world.created[0], GW_OK);
    ck_assert_int_gt(seen.inside, 0);
    ck_assert_int_eq(seen.outside, 0);
}
END_TEST

/* The negative case: without the setting they lie elsewhere. */
START_TEST(without_a_range_they_do_not)
{
    gw_world_t world;
    if (!ready("without_a_range_they_do_not"))
        return;
    seen_t seen = run("", &world);
    ck_assert_int_eq(world.created[0], GW_OK);
    ck_assert_int_eq(seen.inside, 0);
    ck_assert_int_gt(seen.outside, 0);
}
END_TEST

/* UCX 1.13 forgets what it allocated for an interface that it cannot open. */
GW_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:ucp_worker_iface_open";
}

/* So that LeakSanitizer sees who called UCX's allocator, which keeps no frame pointer. */
GW_API const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "fast_unwind_on_malloc=0";
}

START_TEST(a_range_that_is_used_up_is_an_error_on_all_ranks)
{
    gw_world_t world;
    char range[32];
    if (!ready("a_range_that_is_used_up_is_an_error_on_all_ranks"))
        return;
    snprintf(range, sizeof range, "%d", LAST + 1);
    run(range, &world);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(world.created[r] < 0, "rank %d: %s", r, gw_status_name(world.created[r]));
}
END_TEST

/* UCX looks for a free port at random, and would look for ever. */
START_TEST(so_is_a_range_that_others_use)
{
    enum { HELD = 4 };
    gw_world_t world;
    char range[32];
    int held[HELD];
    if (!ready("so_is_a_range_that_others_use"))
        return;
    for (int i = 0; i < HELD; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)(LAST + 10 + i)),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        held[i] = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(bind(held[i], (struct sockaddr *)&address, sizeof address), 0);
        ck_assert_int_eq(listen(held[i], 1), 0);
    }
    snprintf(range, sizeof range, "%d-%d", LAST + 10, LAST + 10 + HELD - 1);
    run(range, &world);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(world.created[r] < 0, "rank %d: %s", r, gw_status_name(world.created[r]));
    for (int i = 0; i < HELD; i++)
        close(held[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ports");
    TCase *tc = tcase_create("ports");
    tcase_add_test(tc, listening_ports_lie_in_the_range);
    tcase_add_test(tc, without_a_range_they_do_not);
    tcase_add_test(tc, a_range_that_is_used_up_is_an_error_on_all_ranks);
    tcase_add_test(tc, so_is_a_range_that_others_use);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
