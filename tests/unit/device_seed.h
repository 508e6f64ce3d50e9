/* SPDX-License-Identifier: Apache-2.0 */
/* What only the double of libcuda.so.1 has, for programs that run on a GPU too. */
#ifndef DEVICE_SEED_H
#define DEVICE_SEED_H

#include <dlfcn.h>

#include "gw_driver.h"
#include "gw_test.h"

/* The order of streams, and how long work waits in them. False: this is a GPU. */
static inline bool device_seed(uint64_t seed, int64_t delay_ms)
{
    void (*get)(gw_driver_setting_t *) =
        (void (*)(gw_driver_setting_t *))(uintptr_t)dlsym(RTLD_DEFAULT, "gw_driver_get");
    void (*set)(const gw_driver_setting_t *) =
        (void (*)(const gw_driver_setting_t *))(uintptr_t)dlsym(RTLD_DEFAULT, "gw_driver_set");
    gw_driver_setting_t setting;
    if (!get || !set)
        return false;
    get(&setting);
    setting.seed = seed;
    setting.delay_ms = delay_ms;
    set(&setting);
    return true;
}

/* Bytes of devices that are allocated; 0 on a GPU. */
static inline uint64_t device_live_bytes(void)
{
    void (*count)(gw_driver_counts_t *) =
        (void (*)(gw_driver_counts_t *))(uintptr_t)dlsym(RTLD_DEFAULT, "gw_driver_count");
    gw_driver_counts_t counts = {0};
    if (count)
        count(&counts);
    return counts.live_bytes;
}

#endif
