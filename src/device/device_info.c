/* SPDX-License-Identifier: Apache-2.0 */
/* What `gradwire info` tells of GPUs. */
#include <stdio.h>

#include <gradwire/context.h>

#include "driver.h"

const char *gw_device_kernels(void)
{
    return GW_DEVICE_KERNELS;
}

static gw_status_t told(gw_status_t status, const gw__why_t *sentence, char *why, size_t size)
{
    if (status != GW_OK && why && size > 0)
        snprintf(why, size, "%s", sentence->text);
    return status;
}

gw_status_t gw_device_count(int *count, int *version, char *why, size_t why_size)
{
    const gw__driver_t *cu;
    gw__why_t sentence = {""};
    int devices = 0, number = 0;
    gw_status_t status = gw__driver_start(&cu, &sentence);
    if (status == GW_OK)
        status = GW__CU(cu, &sentence, cuDeviceGetCount, &devices);
    if (status == GW_OK)
        status = GW__CU(cu, &sentence, cuDriverGetVersion, &number);
    if (status == GW_OK) {
        *count = devices;
        *version = number;
    }
    return told(status, &sentence, why, why_size);
}

static gw_status_t attributes(const gw__driver_t *cu, CUdevice device, gw_device_info_t *info,
                              gw__why_t *why)
{
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } asked[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->major},
                 {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->minor},
                 {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->multiprocessors}};
    gw_status_t status = GW_OK;
    for (size_t i = 0; status == GW_OK && i < sizeof asked / sizeof *asked; i++)
        status = GW__CU(cu, why, cuDeviceGetAttribute, asked[i].value, asked[i].attribute, device);
    return status;
}

gw_status_t gw_device_at(int ordinal, gw_device_info_t *out, char *why, size_t why_size)
{
    const gw__driver_t *cu;
    gw__why_t sentence = {""};
    CUdevice device;
    size_t bytes = 0;
    gw_device_info_t info = {.ordinal = ordinal};
    gw_status_t status = gw__driver_start(&cu, &sentence);
    if (status == GW_OK)
        status = GW__CU(cu, &sentence, cuDeviceGet, &device, ordinal);
    if (status == GW_OK)
        status = GW__CU(cu, &sentence, cuDeviceGetName, info.name, sizeof info.name, device);
    if (status == GW_OK)
        status = GW__CU(cu, &sentence, cuDeviceTotalMem_v2, &bytes, device);
    if (status == GW_OK)
        status = attributes(cu, device, &info, &sentence);
    info.bytes = bytes;
    if (status == GW_OK)
        *out = info;
    return told(status, &sentence, why, why_size);
}
