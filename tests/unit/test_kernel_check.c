/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kernel checker on every kernel and tier, and shows that it sees each kind of wrong
 * kernel. */
#include "gw_test.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel_check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const char *const tiers[] = {"avx2", "avx512"};
enum { TIERS = sizeof tiers / sizeof *tiers };

static size_t bodies(void)
{
    size_t n = 0;
    while (kernel_bodies[n].name)
        n++;
    return n;
}

static const kernel_body_t *body_named(const char *name)
{
    for (size_t i = 0; kernel_bodies[i].name; i++)
        if (!strcmp(kernel_bodies[i].name, name))
            return &kernel_bodies[i];
    ck_abort_msg("no body %s", name);
    return NULL;
}

/* ---- Every kernel, every tier -------------------------------------------------------------------
 */

/* ref against itself shows that its results do not depend on what lies round its buffers. */
START_TEST(every_kernel_gives_the_bytes_of_ref)
{
    const kernel_body_t *body = &kernel_bodies[_i / (TIERS + 1)];
    const char *name = _i % (TIERS + 1) ? tiers[_i % (TIERS + 1) - 1] : "ref";
    const gw_kernels_t *ref = gw__kernels_of("ref"), *tier = gw__kernels_of(name);
    if (!tier) {
        gw_test_skip(body->name, "this CPU lacks the tier");
        return;
    }
    kernel_report_t r =
        kernel_check(body, ref, tier, 0, tier == ref ? body->cases / 4 : body->cases);
    if (r.failures)
        ck_abort_msg("%zu of %zu cases failed, %zu crashes; first: %s", r.failures, r.cases,
                     r.crashes, r.first);
    ck_assert_uint_gt(r.cases, 0);
}
END_TEST

/* One pass in place of its parts: reduce in the place of the chain, tier by tier. */
START_TEST(reduce_is_its_chain)
{
    const gw_kernels_t *tier = gw__kernels_of(_i ? tiers[_i - 1] : "ref");
    const kernel_body_t *reduce = body_named("quant.reduce"), *chain = body_named("quant.chain");
    if (!tier) {
        gw_test_skip("reduce_is_its_chain", "this CPU lacks the tier");
        return;
    }
    for (size_t number = 0; number < chain->cases; number++) {
        kernel_report_t r = kernel_check_pair(reduce, chain, tier, number);
        if (r.failures)
            ck_abort_msg("%s", r.first);
    }
}
END_TEST

/* Each member of the tables that a tier fills is seen by a body. */
START_TEST(every_kernel_has_a_body)
{
    size_t members =
        (sizeof(gw_kernels_t) - offsetof(gw_kernels_t, quant)) / sizeof(void (*)(void));
    size_t seen = 0;
    for (size_t i = 0; kernel_bodies[i].name; i++)
        seen += kernel_bodies[i].function != NULL;
    ck_assert_uint_eq(seen, members);
}
END_TEST

/* ---- Wrong kernels ------------------------------------------------------------------------------
 */

static const gw_sum_kernels_t *right(void)
{
    return &gw__kernels_of("ref")->sum;
}

static void wrong_byte(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    if (count > 32)
        ((uint8_t *)dst)[4 * 32] ^= 1;
}

static void leaves_the_last_out(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count > 16 ? count - 1 : count);
}

static void writes_behind(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    ((volatile uint8_t *)dst)[4 * count] = 0;
}

static void writes_before(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    ((volatile uint8_t *)dst)[-1] = 0;
}

static void writes_its_input(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    if (count)
        *(volatile uint8_t *)(uintptr_t)src ^= 1;
}

static volatile uint8_t sink;

static void reads_behind(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    sink = ((const volatile uint8_t *)src)[4 * count];
}

static void reads_before(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    sink = ((const volatile uint8_t *)src)[-1];
}

static void segfaults(float *dst, const void *src, size_t count)
{
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile int *)nowhere = 1;
}

static void traps(float *dst, const void *src, size_t count)
{
    __builtin_trap();
}

static void divides_by_zero(float *dst, const void *src, size_t count)
{
    raise(SIGFPE);
}

static volatile bool deeper = true;

static void recurses_for_ever(float *dst, const void *src, size_t count)
{
    volatile uint8_t page[4096];
    page[0] = (uint8_t)count;
    if (deeper)
        recurses_for_ever(dst, src, count + page[0]);
    sink = page[0];
}

static void blocks_a_signal(float *dst, const void *src, size_t count)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    right()->add(dst, src, count);
}

#if defined(__x86_64__)
static void leaves_another_mode(float *dst, const void *src, size_t count)
{
    right()->add(dst, src, count);
    _mm_setcsr(_mm_getcsr() | 0x8040);
}

/* In assembler: in C the compiler might preserve the register round it, or count on the flag. */
void spoils_a_register(float *dst, const void *src, size_t count);
void turns_the_direction(float *dst, const void *src, size_t count);
__asm__(".text\n"
        ".globl spoils_a_register\n"
        ".hidden spoils_a_register\n"
        "spoils_a_register:\n\t"
        "xorl %r14d, %r14d\n\t"
        "ret\n"
        ".globl turns_the_direction\n"
        ".hidden turns_the_direction\n"
        "turns_the_direction:\n\t"
        "std\n\t"
        "ret\n");
#endif

static const struct {
    const char *says;
    void (*add)(float *dst, const void *src, size_t count);
} wrong[] = {
    {"differs from ref at byte 128", wrong_byte},
    {"sum differs from ref", leaves_the_last_out},
    {"red zone of sum", writes_behind},
    {"red zone of sum", writes_before},
    {"writes to its input source", writes_its_input},
    {"ends with signal 11", reads_behind},
    {"ends with signal 11", reads_before},
    {"ends with signal 11", segfaults},
    {"ends with signal", traps},
    {"ends with signal 8", divides_by_zero},
    {"ends with signal 11", recurses_for_ever},
    {"leaves another signal mask", blocks_a_signal},
#if defined(__x86_64__)
    {"leaves another floating-point mode", leaves_another_mode},
    {"does not preserve a register", spoils_a_register},
    {"leaves another direction flag", turns_the_direction},
#endif
};

/* Each wrong kernel is reported by tier, name and kind; the cases behind it still run, and a right
 * kernel passes afterwards. */
START_TEST(a_wrong_kernel_is_seen)
{
    gw_kernels_t table = *gw__kernels_of("ref");
    const kernel_body_t *body = body_named("sum.add");
    table.tier = "wrong";
    table.sum.add = wrong[_i].add;
    kernel_report_t r = kernel_check(body, gw__kernels_of("ref"), &table, 0, body->cases);
    ck_assert_uint_eq(r.cases, body->cases);
    if (!r.failures || strncmp(r.first, "wrong sum.add: ", 15))
        ck_abort_msg("%zu failures: %s", r.failures, r.first);
    bool named = false;
    for (size_t number = 0; number < body->cases && !named; number++) {
        r = kernel_check(body, gw__kernels_of("ref"), &table, number, number + 1);
        named = strstr(r.first, wrong[_i].says) != NULL;
    }
    if (!named)
        ck_abort_msg("'%s' was never said; last: %s", wrong[_i].says, r.first);
    r = kernel_check(body, gw__kernels_of("ref"), gw__kernels_of("ref"), 0, body->cases);
    ck_assert_uint_eq(r.failures, 0);
}
END_TEST

static size_t never_poisoned(const gw_quant_spec_t *spec, const float *src, float *residual,
                             size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    gw__kernels_of("ref")->quant.encode(spec, src, residual, count, first, key, dst);
    return 0;
}

START_TEST(a_wrong_result_is_seen)
{
    gw_kernels_t table = *gw__kernels_of("ref");
    const kernel_body_t *body = body_named("quant.encode");
    table.tier = "wrong";
    table.quant.encode = never_poisoned;
    kernel_report_t r = kernel_check(body, gw__kernels_of("ref"), &table, 0, body->cases);
    ck_assert_uint_gt(r.failures, 0);
    ck_assert_ptr_nonnull(strstr(r.first, "returns 0, ref "));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("kernel check");
    TCase *t = tcase_create("kernels");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, every_kernel_gives_the_bytes_of_ref, 0, (int)bodies() * (TIERS + 1));
    tcase_add_loop_test(t, reduce_is_its_chain, 0, TIERS + 1);
    tcase_add_test(t, every_kernel_has_a_body);
    tcase_add_loop_test(t, a_wrong_kernel_is_seen, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(t, a_wrong_result_is_seen);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
