/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver what a pointer is to. */
#include "device_memory.h"

#include <stdbool.h>
#include <stdlib.h>

const char *gw__memory_kind_name(gw__memory_kind_t kind)
{
    static const char *const names[] = {"host", "pinned", "managed", "device"};
    return names[kind];
}

/* A process that was not started, or is a fork, and a pointer that the driver will not look at:
 * whatever it points to, the host can read it. */
static bool means_host(gw_status_t status)
{
    return status == GW_ERR_NO_MODULE || status == GW_ERR_INVALID;
}

gw_status_t gw__device_kind(const void *pointer, gw__memory_t *out, gw__why_t *why)
{
    const gw__memory_t host = {.kind = GW__MEMORY_HOST, .ordinal = -1};
    const gw__driver_t *cu = pointer ? gw__driver_loaded() : NULL;
    if (!cu || !cu->cuPointerGetAttributes) {
        *out = host;
        return GW_OK;
    }
    unsigned type = 0, managed = 0; /* the driver writes one byte of `managed`, or four */
    int ordinal = -1;
    CUcontext context = NULL;
    CUdeviceptr at = 0;
    CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *answers[] = {&type, &managed, &ordinal, &context, &at};
    gw_status_t status = GW__CU(cu, why, cuPointerGetAttributes, sizeof asked / sizeof *asked,
                                asked, answers, (CUdeviceptr)(uintptr_t)pointer);
    if (status != GW_OK && !means_host(status))
        return status;
    if (status != GW_OK || type == 0) {
        *out = host;
        return GW_OK;
    }
    out->kind = managed                        ? GW__MEMORY_MANAGED
                : type == CU_MEMORYTYPE_DEVICE ? GW__MEMORY_DEVICE
                                               : GW__MEMORY_PINNED;
    out->ordinal = ordinal < 0 ? -1 : ordinal;
    out->at = at ? at : (CUdeviceptr)(uintptr_t)pointer;
    out->context = context;
    return GW_OK;
}
