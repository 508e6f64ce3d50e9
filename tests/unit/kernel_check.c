/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel checker's machinery: places, guards, signals, comparison. */
#include "kernel_bodies_float.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { RED_ZONE_BYTES = 128, RED = 0xC3, TABLES = 2 };
static const uint8_t poison[TABLES] = {0xA5, 0x5A};

/* ---- Memory -------------------------------------------------------------------------------------
 */

/* Memory between two pages that cannot be touched. */
typedef struct slot {
    uint8_t *start;
    size_t bytes; /* whole pages */
} slot_t;

static slot_t slots[KERNEL_REGIONS];
static uint8_t *scratch[KERNEL_REGIONS]; /* initial contents */
static size_t scratch_bytes[KERNEL_REGIONS];

static void out_of_memory(void)
{
    fprintf(stderr, "kernel_check: no memory\n");
    exit(99);
}

__attribute__((weak)) void kernel_pages_made(void *at, size_t bytes)
{
}

__attribute__((weak)) void kernel_pages_gone(void *at)
{
}

static void grow_slot(slot_t *slot, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    if (bytes <= slot->bytes)
        return;
    if (slot->start) {
        kernel_pages_gone(slot->start);
        munmap(slot->start - page, slot->bytes + 2 * page);
    }
    uint8_t *at = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, bytes, PROT_READ | PROT_WRITE))
        out_of_memory();
    *slot = (slot_t){at + page, bytes};
    kernel_pages_made(slot->start, bytes);
}

uint8_t *kernel_add(kernel_call_t *call, const char *name, kernel_role_t role, size_t bytes,
                    size_t unit)
{
    size_t i = call->regions++;
    if (bytes > scratch_bytes[i] || !scratch[i]) {
        free(scratch[i]);
        scratch_bytes[i] = bytes + 1;
        scratch[i] = malloc(scratch_bytes[i]);
        if (!scratch[i])
            out_of_memory();
    }
    call->region[i] = (kernel_region_t){name, role, bytes, unit, scratch[i], NULL};
    return scratch[i];
}

/* Against the page behind, against the page before, or at an odd place between red zones. */
static void place(kernel_region_t *r, slot_t *slot, uint64_t dice)
{
    grow_slot(slot, r->bytes + 4 * RED_ZONE_BYTES);
    size_t room = slot->bytes - r->bytes;
    if (dice % 3 == 0)
        r->at = slot->start + room / r->unit * r->unit;
    else if (dice % 3 == 1)
        r->at = slot->start;
    else
        r->at = slot->start + RED_ZONE_BYTES + dice / 3 % 64 * r->unit;
}

static size_t before(const kernel_region_t *r, const slot_t *slot)
{
    size_t room = (size_t)(r->at - slot->start);
    return room < RED_ZONE_BYTES ? room : RED_ZONE_BYTES;
}

static size_t behind(const kernel_region_t *r, const slot_t *slot)
{
    size_t room = slot->bytes - (size_t)(r->at - slot->start) - r->bytes;
    return room < RED_ZONE_BYTES ? room : RED_ZONE_BYTES;
}

static void lay_out(kernel_call_t *call, int table)
{
    uint64_t seed = call->seed;
    for (size_t i = 0; i < call->regions; i++) {
        kernel_region_t *r = &call->region[i];
        place(r, &slots[i], gw_test_random(&seed));
        memset(r->at - before(r, &slots[i]), RED, before(r, &slots[i]));
        memset(r->at + r->bytes, RED, behind(r, &slots[i]));
        if (r->role == KERNEL_OUT)
            memset(r->at, poison[table], r->bytes);
        else
            memcpy(r->at, r->initial, r->bytes);
    }
}

/* ---- The call -----------------------------------------------------------------------------------
 */

/* What a function must leave as it was, apart from memory. */
typedef struct state {
    sigset_t mask;
    unsigned mxcsr;
    uint16_t x87;
} state_t;

static state_t state_now(void)
{
    state_t s = {.mxcsr = 0};
#if defined(__x86_64__)
    __asm__ volatile("fnstcw %0" : "=m"(s.x87));
    s.mxcsr = _mm_getcsr() & 0xFFC0;
#endif
    sigprocmask(SIG_SETMASK, NULL, &s.mask);
    return s;
}

static const char *state_difference(const state_t *a, const state_t *b)
{
    for (int signal = 1; signal < 32; signal++)
        if (sigismember(&a->mask, signal) != sigismember(&b->mask, signal))
            return "leaves another signal mask";
    if (a->mxcsr != b->mxcsr)
        return "leaves another floating-point mode";
    return a->x87 != b->x87 ? "leaves another x87 control word" : NULL;
}

static void restore(const state_t *s)
{
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
#if defined(__x86_64__)
    _mm_setcsr(s->mxcsr);
    __asm__ volatile("fldcw %0" : : "m"(s->x87));
#endif
}

#if defined(__x86_64__)
/*
 * Calls run with known values in the registers that it has to preserve; sets changed[0] where one
 * of them came back different, changed[1] when the direction flag is set, which is cleared at once:
 * all code counts on it. A body that uses such a register itself hides it.
 */
__asm__(".text\n"
        ".globl kernel_call_preserved\n"
        ".hidden kernel_call_preserved\n"
        ".type kernel_call_preserved, @function\n"
        "kernel_call_preserved:\n\t"
        "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "pushq %rcx\n\t"
        "movq %rdi, %rax\n\tmovq %rsi, %rdi\n\tmovq %rdx, %rsi\n\t"
        "movq $0x1B1B1B1B, %rbx\n\tmovq $0x1D1D1D1D, %rbp\n\tmovq $0x12121212, %r12\n\t"
        "movq $0x13131313, %r13\n\tmovq $0x14141414, %r14\n\tmovq $0x15151515, %r15\n\t"
        "call *%rax\n\t"
        "pushfq\n\tpopq %rdi\n\tcld\n\tandq $0x400, %rdi\n\t"
        "xorq $0x1B1B1B1B, %rbx\n\txorq $0x1D1D1D1D, %rbp\n\txorq $0x12121212, %r12\n\t"
        "xorq $0x13131313, %r13\n\txorq $0x14141414, %r14\n\txorq $0x15151515, %r15\n\t"
        "orq %rbx, %rbp\n\torq %rbp, %r12\n\torq %r12, %r13\n\torq %r13, %r14\n\torq %r14, %r15\n\t"
        "popq %rcx\n\tmovq %r15, (%rcx)\n\tmovq %rdi, 8(%rcx)\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\t"
        "ret\n\t"
        ".size kernel_call_preserved, .-kernel_call_preserved\n");
uint64_t kernel_call_preserved(uint64_t (*run)(const gw_kernels_t *, kernel_call_t *),
                               const gw_kernels_t *table, kernel_call_t *call, uint64_t *changed);
#else
static uint64_t kernel_call_preserved(uint64_t (*run)(const gw_kernels_t *, kernel_call_t *),
                                      const gw_kernels_t *table, kernel_call_t *call,
                                      uint64_t *changed)
{
    changed[0] = changed[1] = 0;
    return run(table, call);
}
#endif

static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
enum { FATAL = sizeof fatal / sizeof *fatal };
static sigjmp_buf escape;
static volatile sig_atomic_t inside;

static void on_fatal(int signal)
{
    if (inside)
        siglongjmp(escape, signal);
    raise(signal); /* not a kernel's: the default action, since the handler is set for one time */
}

/* The handlers have a stack of their own: a kernel may have used up the usual one. */
static void catch_signals(struct sigaction old[FATAL])
{
    static uint8_t stack[1 << 16];
    stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_fatal,
                               .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    sigaltstack(&alternative, NULL);
    for (int i = 0; i < FATAL; i++)
        sigaction(fatal[i], &action, &old[i]);
}

static void release_signals(const struct sigaction old[FATAL])
{
    for (int i = 0; i < FATAL; i++)
        sigaction(fatal[i], &old[i], NULL);
}

/* Calls with the handlers in place; returns the signal that ended it, or 0. */
static int call_safely(const kernel_body_t *body, const gw_kernels_t *table, kernel_call_t *call,
                       uint64_t *result, const char **complaint)
{
    struct sigaction old[FATAL];
    state_t entered = state_now();
    uint64_t changed[2] = {0, 0};
    catch_signals(old);
    int signal = sigsetjmp(escape, 1);
    if (!signal) {
        inside = 1;
        *result = kernel_call_preserved(body->run, table, call, changed);
    }
    inside = 0;
    state_t left = state_now();
    release_signals(old);
    *complaint = signal ? NULL : state_difference(&entered, &left);
    if (!signal && (changed[0] || changed[1]))
        *complaint = changed[0] ? "does not preserve a register" : "leaves another direction flag";
    restore(&entered);
    return signal;
}

/* ---- Comparison ---------------------------------------------------------------------------------
 */

static __attribute__((format(printf, 5, 6))) void
fail(kernel_report_t *report, const kernel_body_t *body, const gw_kernels_t *table,
     const kernel_call_t *c, const char *format, ...)
{
    char what[200];
    va_list arguments;
    if (report->failures++)
        return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(report->first, sizeof report->first,
             "%s %s: %s; case %zu: q%u bucket %u count %zu ef %d stochastic %d zero %d fill %d "
             "payloads %zu own_at %zu scale %g float %d block %u",
             table->tier, body->name, what, c->number, c->spec.bits, c->spec.bucket, c->count,
             c->ef, c->spec.stochastic, c->spec.zero, c->fill, c->payloads, c->own_at,
             (double)c->scale, (int)c->floats.format, c->floats.block);
}

static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && a[i] == b[i])
        i++;
    return i;
}

static bool all_red(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != RED)
            return false;
    return true;
}

/* Red zones and inputs after a call. Returns whether they are as they were. */
static bool untouched(kernel_report_t *report, const kernel_body_t *body, const gw_kernels_t *table,
                      const kernel_call_t *call)
{
    for (size_t i = 0; i < call->regions; i++) {
        const kernel_region_t *r = &call->region[i];
        if (!all_red(r->at - before(r, &slots[i]), before(r, &slots[i])) ||
            !all_red(r->at + r->bytes, behind(r, &slots[i]))) {
            fail(report, body, table, call, "writes into the red zone of %s", r->name);
            return false;
        }
        if (r->role == KERNEL_IN && memcmp(r->at, r->initial, r->bytes)) {
            fail(report, body, table, call, "writes to its input %s", r->name);
            return false;
        }
    }
    return true;
}

/* What ref wrote, one region after the other. */
static uint8_t *expected[KERNEL_REGIONS];

static void keep(const kernel_call_t *call)
{
    for (size_t i = 0; i < call->regions; i++) {
        free(expected[i]);
        expected[i] = malloc(call->region[i].bytes + 1);
        if (!expected[i])
            out_of_memory();
        memcpy(expected[i], call->region[i].at, call->region[i].bytes);
    }
}

static void compare(kernel_report_t *report, const kernel_body_t *body, const gw_kernels_t *table,
                    const kernel_call_t *call, size_t regions)
{
    for (size_t i = 0; i < regions; i++) {
        const kernel_region_t *r = &call->region[i];
        if (r->role == KERNEL_IN || !memcmp(r->at, expected[i], r->bytes))
            continue;
        fail(report, body, table, call, "%s differs from ref at byte %zu of %zu", r->name,
             first_difference(r->at, expected[i], r->bytes), r->bytes);
        return;
    }
}

/* One call on one table; false when there is nothing to compare after it. */
static bool call_one(kernel_report_t *report, const kernel_body_t *body, const gw_kernels_t *table,
                     int which, kernel_call_t *call, uint64_t *result)
{
    const char *complaint;
    lay_out(call, which);
    int signal = call_safely(body, table, call, result, &complaint);
    if (signal) {
        report->crashes++;
        fail(report, body, table, call, "ends with signal %d (%s)", signal, strsignal(signal));
        return false;
    }
    if (complaint) {
        fail(report, body, table, call, "%s", complaint);
        return false;
    }
    return untouched(report, body, table, call);
}

/* One side of a comparison. */
typedef struct side {
    const kernel_body_t *body;
    const gw_kernels_t *table;
} side_t;

/* Makes the call of each side; what `first` wrote is what `second` has to write. */
static void check_case(kernel_report_t *report, side_t first, side_t second, size_t number)
{
    kernel_call_t call = {.number = number, .seed = number * 0x9E3779B97F4A7C15u + 1};
    kernel_call_t again = call;
    uint64_t result[TABLES] = {0, 0};
    report->cases++;
    first.body->draw(&call);
    first.body->prepare(&call);
    if (!call_one(report, first.body, first.table, 0, &call, &result[0]))
        return;
    keep(&call);
    size_t common = call.regions;
    second.body->draw(&again);
    second.body->prepare(&again);
    if (!call_one(report, second.body, second.table, 1, &again, &result[1]))
        return;
    compare(report, second.body, second.table, &again, common);
    if (result[0] != result[1])
        fail(report, second.body, second.table, &again, "returns %llu, ref %llu",
             (unsigned long long)result[1], (unsigned long long)result[0]);
}

kernel_report_t kernel_check(const kernel_body_t *body, const gw_kernels_t *ref,
                             const gw_kernels_t *tier, size_t from, size_t to)
{
    kernel_report_t report = {.first = ""};
    for (size_t number = from; number < to; number++)
        check_case(&report, (side_t){body, ref}, (side_t){body, tier}, number);
    return report;
}

kernel_report_t kernel_check_pair(const kernel_body_t *one, const kernel_body_t *other,
                                  const gw_kernels_t *table, size_t number)
{
    kernel_report_t report = {.first = ""};
    check_case(&report, (side_t){one, table}, (side_t){other, table}, number);
    return report;
}

/* ---- Speed --------------------------------------------------------------------------------------
 */

enum { ROUNDS = 9 };

/* Processor time of this thread: what other programs take of a shared machine does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, ROUNDS, sizeof *x, by_size);
    return x[ROUNDS / 2];
}

/* "q4 7 peers ef": width, what else, in buckets of 512. */
static void read_setting(const char *setting, kernel_call_t *c)
{
    const char *peers = strstr(setting, " peers");
    c->spec = (gw_quant_spec_t){4, 512, strstr(setting, "stochastic") != NULL, true};
    if (setting[0] == 'q')
        c->spec.bits = (unsigned)(setting[1] - '0');
    c->floats = kernel_float_setting(setting);
    c->ef = strstr(setting, "ef") != NULL;
    c->alone = strstr(setting, "alone") != NULL;
    c->payloads = peers ? (size_t)(peers[-1] - '0') : 1;
    c->own_at = c->payloads / 2;
    c->scale = 1.0f;
}

static void lay_out_at_pages(kernel_call_t *call)
{
    for (size_t i = 0; i < call->regions; i++) {
        kernel_region_t *r = &call->region[i];
        grow_slot(&slots[i], r->bytes);
        r->at = slots[i].start;
        if (r->role == KERNEL_OUT)
            memset(r->at, 0, r->bytes);
        else
            memcpy(r->at, r->initial, r->bytes);
    }
}

static double rate(size_t bytes, size_t repeat, const kernel_body_t *body, const gw_kernels_t *tier,
                   kernel_call_t *call, uint8_t *copy[2])
{
    double start = seconds();
    for (size_t i = 0; i < repeat; i++) {
        if (body)
            body->run(tier, call);
        else
            memcpy(copy[1], copy[0], bytes);
    }
    return 1e-9 * (double)(bytes * repeat) / (seconds() - start);
}

kernel_speed_t kernel_bench(const kernel_body_t *body, const gw_kernels_t *tier,
                            const char *setting, size_t count)
{
    kernel_call_t call = {.number = 602, .seed = 1, .count = count};
    size_t bytes = 4 * count, repeat = 1 + ((size_t)32 << 20) / bytes;
    double own[ROUNDS], copied[ROUNDS], ratio[ROUNDS];
    uint8_t *copy[2] = {malloc(bytes), malloc(bytes)};
    if (!copy[0] || !copy[1])
        out_of_memory();
    memset(copy[0], 1, bytes);
    memset(copy[1], 0, bytes);
    read_setting(setting, &call);
    body->prepare(&call);
    lay_out_at_pages(&call);
    body->run(tier, &call);
    for (int r = 0; r < ROUNDS; r++) {
        copied[r] = rate(bytes, repeat, NULL, NULL, NULL, copy);
        own[r] = rate(bytes, repeat, body, tier, &call, copy);
        ratio[r] = own[r] / copied[r];
    }
    free(copy[0]);
    free(copy[1]);
    return (kernel_speed_t){median(own), median(copied), median(ratio)};
}
