/* SPDX-License-Identifier: Apache-2.0 */
/* What every call of the driver's double begins and ends with, its sentences, settings and names.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver_double.h"

enum { DRIVER_VERSION = 13000, SAID = 16 * 1024 };

driver_settings_t driver_settings;
gw_driver_counts_t driver_counts;
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
__thread bool driver_in_host_function;

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[SAID];
static size_t said_length;
static pid_t started_by; /* 0: cuInit was not called */
static bool stopped;
static __thread const char *name_of_call = "";

/* ---- Sentences ---------------------------------------------------------------------------------
 */

void say(const char *format, ...)
{
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    fprintf(stderr, "libcuda double: %s\n", line);
    pthread_mutex_lock(&said_lock);
    size_t room = SAID - said_length;
    int length = snprintf(said + said_length, room, "%s\n", line);
    said_length += (size_t)length < room ? (size_t)length : room - 1;
    pthread_mutex_unlock(&said_lock);
}

/* A copy, as other threads may say something meanwhile. */
const char *gw_driver_said(void)
{
    static __thread char copy[SAID];
    pthread_mutex_lock(&said_lock);
    memcpy(copy, said, said_length + 1);
    pthread_mutex_unlock(&said_lock);
    return copy;
}

CUresult refuse(CUresult result, const char *format, ...)
{
    char line[900];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    say("%s: %s", name_of_call, line);
    return result;
}

const char *call_name(void)
{
    return name_of_call;
}

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t draw(void)
{
    static uint64_t drawn;
    uint64_t z = driver_settings.of.seed + ++drawn * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ---- Settings ----------------------------------------------------------------------------------
 */

static int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

static void read_settings(void)
{
    driver_settings_t *s = &driver_settings;
    s->of.seed = (uint64_t)number_of("GW_DOUBLE_SEED", 0);
    s->of.delay_ms = number_of("GW_DOUBLE_DELAY", 10);
    s->of.patience_ms = number_of("GW_DOUBLE_PATIENCE", 20000);
    s->devices = (int)number_of("GW_DOUBLE_DEVICES", 1);
    s->devices = s->devices > DEVICES_MOST ? DEVICES_MOST : s->devices;
    s->memory = (size_t)number_of("GW_DOUBLE_MEMORY", 1024) << 20;
    s->memops = number_of("GW_DOUBLE_MEMOPS", 1) != 0;
    const char *fail = getenv("GW_DOUBLE_FAIL"), *ignored = getenv("GW_DOUBLE_IGNORE");
    snprintf(s->ignored, sizeof s->ignored, "%s", ignored ? ignored : "");
    int with = 0;
    if (fail && sscanf(fail, "%63[^:]:%d:%d", s->fail, &s->fail_at, &with) == 3)
        s->fail_with = (CUresult)with;
}

static void have_settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
}

void gw_driver_get(gw_driver_setting_t *setting)
{
    have_settings();
    pthread_mutex_lock(&driver_lock);
    *setting = driver_settings.of;
    pthread_mutex_unlock(&driver_lock);
}

void gw_driver_set(const gw_driver_setting_t *setting)
{
    have_settings();
    pthread_mutex_lock(&driver_lock);
    driver_settings.of = *setting;
    pthread_mutex_unlock(&driver_lock);
}

void gw_driver_count(gw_driver_counts_t *counts)
{
    pthread_mutex_lock(&driver_lock);
    *counts = driver_counts;
    pthread_mutex_unlock(&driver_lock);
}

/* ---- Calls -------------------------------------------------------------------------------------
 */

static bool fails_now(const char *call)
{
    driver_settings_t *s = &driver_settings;
    return s->fail_at && !strcmp(call, s->fail) && !--s->fail_at;
}

/* A process that was forked from one that had called cuInit has no driver. */
static CUresult state(void)
{
    if (!started_by || started_by != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    return stopped ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;
}

CUresult enter(const char *call, CUcontext *context)
{
    name_of_call = call;
    if (driver_in_host_function)
        return refuse(CUDA_ERROR_NOT_PERMITTED,
                      "called by a host function, which may not call CUDA");
    CUresult result = state();
    if (result)
        return result;
    pthread_mutex_lock(&driver_lock);
    driver_counts.calls++;
    if (fails_now(call))
        return leave(refuse(driver_settings.fail_with, "fails because GW_DOUBLE_FAIL says so"));
    if (!context)
        return CUDA_SUCCESS;
    *context = context_current();
    if (!*context)
        return leave(refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread"));
    return (*context)->broken ? leave((*context)->broken) : CUDA_SUCCESS;
}

bool is_ignored(const char *call)
{
    return strcmp(call, driver_settings.ignored) == 0;
}

CUresult leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

static void at_exit(void)
{
    if (state())
        return;
    pthread_mutex_lock(&driver_lock);
    stopped = true;
    driver_stop();
    pthread_mutex_unlock(&driver_lock);
}

CUresult cuInit(unsigned flags)
{
    name_of_call = "cuInit";
    if (driver_in_host_function)
        return refuse(CUDA_ERROR_NOT_PERMITTED,
                      "called by a host function, which may not call CUDA");
    have_settings();
    pthread_mutex_lock(&driver_lock);
    if (flags)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (driver_settings.devices <= 0)
        return leave(CUDA_ERROR_NO_DEVICE);
    if (started_by)
        return leave(state());
    if (fails_now("cuInit"))
        return leave(driver_settings.fail_with);
    if (!driver_start())
        return leave(CUDA_ERROR_OPERATING_SYSTEM);
    started_by = getpid();
    atexit(at_exit);
    return leave(CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/* ---- Names -------------------------------------------------------------------------------------
 */

static const struct {
    CUresult result;
    const char *name, *sentence;
} results[] = {
#define RESULT(name, number, sentence) {name, #name, sentence},
    GW_CU_RESULTS(RESULT)
#undef RESULT
};

CUresult cuGetErrorName(CUresult result, const char **name)
{
    for (size_t i = 0; name && i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) {
            *name = results[i].name;
            return CUDA_SUCCESS;
        }
    if (name)
        *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **sentence)
{
    for (size_t i = 0; sentence && i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) {
            *sentence = results[i].sentence;
            return CUDA_SUCCESS;
        }
    if (sentence)
        *sentence = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

typedef struct entry {
    const char *name;
    int since;
    void *fn;
} entry_t;

static const entry_t entries[] = {
#define ENTRY(name, since, params) {#name, since, (void *)name},
    GW_CU_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* From these versions on the driver gives another function for the name, which is not here. */
static const entry_t superseded[] = {{"cuStreamGetCaptureInfo", 12030, NULL},
                                     {"cuEventElapsedTime", 12080, NULL}};

static bool is_base_of(const char *base, const char *name)
{
    size_t length = strlen(base);
    return !strncmp(base, name, length) && (!name[length] || !strncmp(name + length, "_v", 2));
}

CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!name || !fn || flags > 1 || version > DRIVER_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *fn = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (!is_base_of(name, entries[i].name))
            continue;
        found = version < entries[i].since ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                           : CU_GET_PROC_ADDRESS_SUCCESS;
        *fn = version < entries[i].since ? NULL : entries[i].fn;
    }
    for (size_t i = 0; *fn && i < sizeof superseded / sizeof *superseded; i++)
        if (!strcmp(name, superseded[i].name) && version >= superseded[i].since) {
            say("cuGetProcAddress: at version %d %s is a newer function than the double has",
                version, name);
            *fn = NULL;
            found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        }
    if (status)
        *status = found;
    return CUDA_SUCCESS;
}
