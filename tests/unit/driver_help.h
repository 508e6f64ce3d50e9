/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the driver's double share: a context, modules, a child whose end is looked at. */
#ifndef DRIVER_HELP_H
#define DRIVER_HELP_H

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gw_driver.h"
#include "gw_test.h"

#define must(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = call;                                                               \
        gw_check(!must_result, "%s:%d: %s gives %d\n%s", __FILE__, __LINE__, #call,                \
                 (int)must_result, gw_driver_said());                                              \
    } while (0)

#define must_give(expected, call)                                                                  \
    do {                                                                                           \
        CUresult must_result = call;                                                               \
        gw_check(must_result == expected, "%s:%d: %s gives %d, not %s\n%s", __FILE__, __LINE__,    \
                 #call, (int)must_result, #expected, gw_driver_said());                            \
    } while (0)

#define must_say(part)                                                                             \
    gw_check(strstr(gw_driver_said(), part), "%s:%d: no word of \"%s\" in:\n%s", __FILE__,         \
             __LINE__, part, gw_driver_said())

enum { DRIVER_NEVER = 1000000 }; /* a delay, in ms */

static CUcontext driver_context;
static CUmodule driver_module;

static inline void driver_seed(uint64_t seed, int64_t delay_ms)
{
    gw_driver_setting_t setting;
    gw_driver_get(&setting);
    setting.seed = seed;
    setting.delay_ms = delay_ms;
    gw_driver_set(&setting);
}

/* The first device's context is current, the module is loaded. */
static inline void driver_begin(uint64_t seed, int64_t delay_ms)
{
    driver_seed(seed, delay_ms);
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&driver_context, 0));
    must(cuCtxSetCurrent(driver_context));
    must(cuModuleLoadData(&driver_module, GW_DRIVER_IMAGE));
}

static inline CUfunction driver_function(const char *name)
{
    CUfunction function;
    must(cuModuleGetFunction(&function, driver_module, name));
    return function;
}

static inline CUstream driver_stream(unsigned flags)
{
    CUstream stream;
    must(cuStreamCreate(&stream, flags));
    return stream;
}

static inline CUevent driver_event(void)
{
    CUevent event;
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* Words of device memory, all `value`, there for all streams. */
static inline CUdeviceptr driver_words(uint32_t value, size_t count)
{
    CUdeviceptr at;
    must(cuMemAlloc_v2(&at, 4 * count));
    must(cuMemsetD32_v2(at, value, count));
    must(cuCtxSynchronize());
    return at;
}

static inline uint32_t driver_word(CUdeviceptr at)
{
    uint32_t word;
    must(cuMemcpyDtoH_v2(&word, at, 4));
    return word;
}

/* data[0] = from[0] * factor + 1, later. */
static inline CUresult driver_scale(CUdeviceptr to, CUdeviceptr from, uint32_t factor,
                                    CUstream stream)
{
    uint32_t count = 1;
    void *args[] = {&to, &from, &count, &factor};
    return cuLaunchKernel(driver_function("driver_scale"), 1, 1, 1, 32, 1, 1, 0, stream, args,
                          NULL);
}

/* Runs body() in a child and keeps what it wrote to stderr. Gives waitpid's status. */
static inline int driver_child(void (*body)(void), char *text, size_t size)
{
    int ends[2], status = 0;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    char rest[4096];
    for (ssize_t got = 1; got > 0;) {
        bool room = length + 1 < size;
        got = read(ends[0], room ? text + length : rest, room ? size - 1 - length : sizeof rest);
        length += room && got > 0 ? (size_t)got : 0;
    }
    text[length] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

#endif
