/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the device layer share: the fake driver, checks with the sentence. */
#ifndef DEVICE_HELP_H
#define DEVICE_HELP_H

#include <dlfcn.h>
#include <string.h>

#include "device/device_flag.h"
#include "device/device_pool.h"
#include "fake_driver.h"
#include "gw_test.h"

static gw__why_t device_why;

#define gives(expected, call)                                                                      \
    do {                                                                                           \
        gw_status_t gives_status = call;                                                           \
        gw_check(gives_status == (expected), "%s:%d: %s gives %s, not %s: %s", __FILE__, __LINE__, \
                 #call, gw_status_name(gives_status), gw_status_name(expected), device_why.text);  \
    } while (0)

#define well(call) gives(GW_OK, call)

#define says(part)                                                                                 \
    gw_check(strstr(device_why.text, part), "%s:%d: no \"%s\" in: %s", __FILE__, __LINE__, part,   \
             device_why.text)

/* "full", "plain" (CUDA 11.0: no libraries, no memory operations, no search), "old". It is then the
 * process's libcuda.so.1. */
static inline fake_driver_t *device_fake(const char *which)
{
    char path[512];
    const char *build = getenv("GW_BUILD");
    snprintf(path, sizeof path, "%s/fakes/%s/libcuda.so.1", build ? build : ".", which);
    void *library = dlopen(path, RTLD_NOW);
    gw_check(library, "%s", dlerror());
    return ((fake_driver_fn)(uintptr_t)dlsym(library, "fake_driver"))();
}

/* A context of somebody else's, which must be current before and after. */
#define device_other   ((CUcontext)(uintptr_t)0xABC)
#define device_primary ((CUcontext)(uintptr_t)0x1000) /* of the fake's first device */

static inline fake_driver_t *device_begin(const char *which)
{
    fake_driver_t *fake = device_fake(which);
    fake->stack[fake->depth++] = device_other;
    return fake;
}

/* What is not as it was; NULL: nothing. */
static inline const char *device_left(const fake_driver_t *fake)
{
    static const char *const things[] = {
        "the device is retained", "libraries", "modules", "device memory",
        "pinned memory",          "streams",   "events"};
    if (fake->depth != 1 || fake->stack[0] != device_other)
        return "another context is current";
    if (fake->relaxed)
        return "captures are relaxed";
    for (int i = 0; i < FAKE_THINGS; i++)
        if (fake->alive[i])
            return things[i];
    return NULL;
}

static inline void device_end(const fake_driver_t *fake)
{
    const char *left = device_left(fake);
    gw_check(!left, "left behind: %s", left);
}

#endif
