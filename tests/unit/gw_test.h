/* SPDX-License-Identifier: Apache-2.0 */
/* What all unit tests share: one main, counted skips, random numbers. */
#ifndef GW_TEST_H
#define GW_TEST_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gw_random.h"

/* Whether this is a build with ThreadSanitizer, under which UCX has races of its own and computing
 * takes many times as long. */
#if defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
enum { GW_THREAD_SANITIZED = 1 };
#else
enum { GW_THREAD_SANITIZED = 0 };
#endif

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
