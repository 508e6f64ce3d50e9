/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of blocks: rendezvous, shuffles, votes, atomics, shared memory, orders, errors. */
#include "gw_double.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gw_test.h"

#if !defined(GW_NO_DOUBLE)

enum { SEEDS = 6 };

static char why[512];

static bool launch(const char *name, unsigned grid, unsigned block, size_t shared, uint64_t seed,
                   void *const *args)
{
    const gw_double_kernel_t *kernel = gw_double_find(name);
    gw_check(kernel, "no kernel %s", name);
    return gw_double_launch(kernel, grid, block, shared, seed, args, why, sizeof why);
}

static void must(const char *name, unsigned grid, unsigned block, size_t shared, uint64_t seed,
                 void *const *args)
{
    gw_check(launch(name, grid, block, shared, seed, args), "%s", why);
}

static uint32_t in[7 * 1024], out[14 * 1024];

static bool reversed(const char *name, unsigned grid, unsigned block, uint64_t seed)
{
    const void *from = in;
    void *to = out, *args[] = {&from, &to};
    bool right = true;
    for (unsigned i = 0; i < grid * block; i++)
        in[i] = 3 * i + 1;
    must(name, grid, block, 4 * block, seed, args);
    for (unsigned i = 0; i < grid * block; i++)
        right &= out[i] == in[i / block * block + block - 1 - i % block];
    return right;
}

START_TEST(barrier_orders_shared_memory)
{
    static const unsigned blocks[] = {1, 32, 64, 128, 256, 1024}, grids[] = {1, 3, 7};
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (uint64_t seed = 0; seed < SEEDS; seed++)
                gw_check(reversed("double_reverse", grids[g], blocks[b], seed),
                         "grid %u, block %u, seed %d", grids[g], blocks[b], (int)seed);
}
END_TEST

START_TEST(a_missing_barrier_shows_in_every_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        gw_check(!reversed("double_race", 2, 64, seed), "seed %d hides it", (int)seed);
}
END_TEST

START_TEST(static_shared_memory_is_poisoned_for_each_block)
{
    void *to = out, *args[] = {&to};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        must("double_static", 5, 96, 0, seed, args);
        for (unsigned i = 0; i < 5 * 96; i++)
            gw_check(out[2 * i] == UINT32_MAX && out[2 * i + 1] == 7 + i / 96, "thread %u", i);
    }
}
END_TEST

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

START_TEST(lanes_get_what_others_have)
{
    void *to = out, *args[] = {&to};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        must("double_lanes", 1, 96, 0, seed, args);
        for (unsigned i = 0; i < 96; i++) {
            unsigned lane = i % 32, warp = i - lane;
            const uint32_t expected[12] = {warp + 3,
                                           lane < 5 ? i : i - 5,
                                           lane + 5 > 31 ? i : i + 5,
                                           i ^ 9,
                                           i / 8 * 8 + 1,
                                           0x49249249,
                                           1,
                                           1,
                                           i ^ 1,
                                           bits_of((float)(lane % 4 == 3 ? i : i + 1)),
                                           48,
                                           1};
            for (unsigned k = 0; k < 12; k++)
                gw_check(out[12 * i + k] == expected[k], "seed %d, thread %u, word %u: %08x",
                         (int)seed, i, k, out[12 * i + k]);
        }
        must("double_halves", 1, 64, 0, seed, args);
        for (unsigned i = 0; i < 64; i++)
            gw_check(out[i] == (i % 32 < 16 ? 0xAAAAu : 0x11110000u), "thread %u", i);
    }
}
END_TEST

START_TEST(atomics_lose_nothing)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t word[7] = {0, 0, 1000, 0, UINT32_MAX, 999, 0};
        float sum = 0;
        void *words = word, *total = &sum, *args[] = {&words, &total};
        must("double_atomics", 3, 64, 0, seed, args);
        gw_check(word[0] == 192 && word[1] == 191 && word[2] == 1 && word[3] == UINT32_MAX &&
                     word[4] == 0xFFFF0000 && word[5] < 192 && word[6] == 384 && sum == 96,
                 "seed %d", (int)seed);
    }
}
END_TEST

/* Of 3 blocks of 64 threads, which take two turns each. */
static const uint32_t *order_of(uint64_t seed)
{
    uint32_t next = 0, seen[192] = {0};
    void *counter = &next, *to = out, *args[] = {&counter, &to};
    must("double_order", 3, 64, 0, seed, args);
    for (unsigned i = 0; i < 384; i++)
        seen[out[i]]++;
    for (unsigned i = 0; i < 192; i++)
        gw_check(seen[i] == 2, "thread %u came %u times", i, seen[i]);
    return out;
}

START_TEST(orders_follow_the_seed)
{
    uint32_t once[384];
    const uint32_t *order = order_of(0);
    for (unsigned i = 0; i < 384; i++)
        gw_check(order[i] == i / 128 * 64 + i % 64, "ascending: %u at %u", order[i], i);
    order = order_of(1);
    for (unsigned i = 0; i < 384; i++)
        gw_check(order[i] == 191 - (i / 128 * 64 + i % 64), "descending: %u at %u", order[i], i);
    memcpy(once, order_of(2), sizeof once);
    gw_check(memcmp(once, once + 64, 64 * 4), "both turns have one order");
    gw_check(!memcmp(once, order_of(2), sizeof once), "a seed does not repeat itself");
    gw_check(memcmp(once, order_of(3), sizeof once), "two seeds have one order");
}
END_TEST

START_TEST(arguments_have_their_types)
{
    uint32_t got[4] = {0};
    uint32_t *list[4] = {&got[3], &got[2], &got[1], &got[0]};
    uint64_t big = (uint64_t)5 << 32;
    float x = 40;
    uint8_t small = 200;
    void *args[] = {list, &big, &x, &small};
    const gw_double_kernel_t *kernel = gw_double_find("double_args");
    must("double_args", 1, 4, 0, 0, args);
    for (int i = 0; i < 4; i++)
        gw_check(got[i] == 245, "%d: %u", i, got[i]);
    gw_check(kernel->count == 4 && kernel->params[0].bytes == sizeof list &&
                 !kernel->params[0].pointer && kernel->params[3].bytes == 1,
             "parameters of double_args");
    kernel = gw_double_find("double_reverse");
    gw_check(kernel->count == 2 && kernel->params[1].pointer, "parameters of double_reverse");
    gw_check(!gw_double_find("double_"), "a kernel that is not there");
}
END_TEST

START_TEST(bits_are_those_of_the_device)
{
    static const uint32_t words[2] = {0x00F0A512, 0x87654321};
    uint32_t got[12] __attribute__((aligned(16)));
    const void *from = words;
    void *to = got, *args[] = {&from, &to};
    static const uint32_t expected[12] = {10,
                                          8,
                                          2,
                                          0x48A50F00,
                                          0xA5872165 /* bytes 6, 4, 7, 1 */,
                                          0x00F0A512,
                                          32 + 63 + 64,
                                          0x40500000,
                                          0x00F0A512,
                                          0x87654321,
                                          0x00F0A512,
                                          0x87654321};
    must("double_bits", 1, 1, 0, 0, args);
    for (int i = 0; i < 12; i++)
        gw_check(got[i] == expected[i], "word %d: %08x", i, got[i]);
}
END_TEST

/* ---- Errors -------------------------------------------------------------------------------------
 */

static void must_say(const char *name, unsigned block, const char *part)
{
    void *to = out, *args[] = {&to};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        gw_check(!launch(name, 2, block, 0, seed, args), "%s: no error", name);
        gw_check(strstr(why, name) && strstr(why, part), "%s: \"%s\" lacks \"%s\"", name, why,
                 part);
    }
    gw_check(reversed("double_reverse", 1, 64, 0), "a launch after an error");
}

START_TEST(who_does_not_come_is_named)
{
    must_say("double_divergent", 32, "thread 0 waits at the barrier of the block");
    must_say("double_divergent", 32, "for thread 20, which has ended");
    must_say("double_two_places", 32, "for thread 20, which waits at the barrier of the block");
    must_say("double_two_places", 32, "double_kernels.cu:");
    must_say("double_lane_left", 32, "for thread 9, which has ended");
    must_say("double_lanes", 48, "for thread 48, which is not in the block");
    must_say("double_not_named", 32, "which lacks its own lane");
    must_say("double_reads_other", 32, "reads lane 20");
}
END_TEST

START_TEST(shapes_that_no_device_takes)
{
    void *to = out, *args[] = {&to};
    gw_check(!launch("double_static", 0, 32, 0, 0, args), "no blocks");
    gw_check(!launch("double_static", 1, 0, 0, 0, args), "no threads");
    gw_check(!launch("double_static", 1, 1025, 0, 0, args), "1,025 threads");
    gw_check(!launch("double_static", 1, 32, GW_DOUBLE_SHARED_MOST + 1, 0, args), "shared memory");
    gw_check(strstr(why, "no device runs"), "%s", why);
}
END_TEST

/* Ends the process: by the guard page, or by AddressSanitizer. */
START_TEST(a_write_behind_shared_memory_ends_the_program)
{
    uint32_t words = 12;
    void *args[] = {&words};
    launch("double_shared_over", 1, 1, 48, 0, args);
}
END_TEST

/* An array that ends at a page which nobody may touch. */
START_TEST(a_write_behind_an_array_ends_the_program)
{
    uint32_t words = 21;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(at != MAP_FAILED && !mprotect(at + page, page, PROT_NONE));
    void *to = at + page - 4 * words, *args[] = {&to, &words};
    launch("double_global_over", 1, 32, 0, 2, args);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__)
START_TEST(a_write_behind_an_allocation_ends_it_too)
{
    uint32_t words = 21;
    void *to = malloc(4 * words), *args[] = {&to, &words};
    launch("double_global_over", 1, 32, 0, 2, args);
}
END_TEST

/* 44 bytes end 4 bytes before the guard page. */
START_TEST(a_write_just_behind_shared_memory_ends_it_too)
{
    uint32_t words = 11;
    void *args[] = {&words};
    launch("double_shared_over", 1, 1, 44, 0, args);
}
END_TEST
#endif

static Suite *double_suite(void)
{
    Suite *suite = suite_create("double");
    TCase *tests = tcase_create("blocks");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, barrier_orders_shared_memory);
    tcase_add_test(tests, a_missing_barrier_shows_in_every_order);
    tcase_add_test(tests, static_shared_memory_is_poisoned_for_each_block);
    tcase_add_test(tests, lanes_get_what_others_have);
    tcase_add_test(tests, atomics_lose_nothing);
    tcase_add_test(tests, orders_follow_the_seed);
    tcase_add_test(tests, arguments_have_their_types);
    tcase_add_test(tests, bits_are_those_of_the_device);
    tcase_add_test(tests, who_does_not_come_is_named);
    tcase_add_test(tests, shapes_that_no_device_takes);
#if defined(__SANITIZE_ADDRESS__)
    tcase_add_exit_test(tests, a_write_behind_shared_memory_ends_the_program, 1);
    tcase_add_exit_test(tests, a_write_just_behind_shared_memory_ends_it_too, 1);
    tcase_add_exit_test(tests, a_write_behind_an_array_ends_the_program, 1);
    tcase_add_exit_test(tests, a_write_behind_an_allocation_ends_it_too, 1);
#else
    tcase_add_test_raise_signal(tests, a_write_behind_shared_memory_ends_the_program, SIGSEGV);
    tcase_add_test_raise_signal(tests, a_write_behind_an_array_ends_the_program, SIGSEGV);
#endif
    suite_add_tcase(suite, tests);
    return suite;
}

#else

START_TEST(no_double)
{
    gw_test_skip("double", "wants a C++ compiler and x86-64");
}
END_TEST

static Suite *double_suite(void)
{
    Suite *suite = suite_create("double");
    TCase *tests = tcase_create("blocks");
    tcase_add_test(tests, no_double);
    suite_add_tcase(suite, tests);
    return suite;
}

#endif

int main(void)
{
    return gw_test_main(double_suite());
}
