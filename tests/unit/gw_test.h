/* SPDX-License-Identifier: Apache-2.0 */
/* What all unit tests share: one main, counted skips, a small random generator. */
#ifndef GW_TEST_H
#define GW_TEST_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A test that this machine cannot run: counted and named by tests/run. */
static inline void gw_test_skip(const char *name, const char *reason)
{
    const char *file = getenv("GW_SKIP_FILE");
    FILE *f = file ? fopen(file, "a") : stderr;
    if (f)
        fprintf(f, "ok - %s # SKIP %s\n", name, reason);
    if (f && f != stderr)
        fclose(f);
}

/* Like ck_assert_msg, for loops over elements: Check writes to a file at each of its own
 * assertions. */
#define gw_check(condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg(__VA_ARGS__);                                                             \
    } while (0)

/* splitmix64: reproducible test data. */
static inline uint64_t gw_test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Roughly normal, mean 0, deviation 1. */
static inline float gw_test_normal(uint64_t *state)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += (double)(gw_test_random(state) >> 11) * 0x1p-53;
    return (float)sum;
}

/* Runs one suite as the program's main does. */
static inline int gw_test_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
