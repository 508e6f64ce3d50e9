/* SPDX-License-Identifier: Apache-2.0 */
/* A fault in device memory is put in words before it ends the process, as it would have anyway. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "driver_double.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static struct sigaction before[2];

static bool by_executor(void)
{
    return executor_runs && pthread_equal(pthread_self(), executor_thread);
}

/* Without the lock, which this very thread may hold. */
static void explain(const void *at)
{
    char where[200];
    if (!memory_is_ours(at) && !by_executor())
        return;
    memory_describe(at, where, sizeof where);
    if (by_executor())
        say("%s touched %s", executor_runs, where);
    else
        say("code of the host touched %s: only kernels and copies may", where);
}

/* Returns with the former action in place: the access happens again and takes its course. */
static void on_fault(int number, siginfo_t *info, void *registers)
{
    (void)registers;
    explain(info->si_addr);
    sigaction(number, &before[number == SIGBUS], NULL);
}

#if defined(__SANITIZE_ADDRESS__)
/* Poisoned memory makes no signal, and a signal no report with an address. */
static void on_report(const char *text)
{
    (void)text;
    if (__asan_report_present() && __asan_get_report_address())
        explain(__asan_get_report_address());
}
#endif

void faults_watch(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
#if defined(__SANITIZE_ADDRESS__)
    __asan_set_error_report_callback(on_report);
#endif
}
