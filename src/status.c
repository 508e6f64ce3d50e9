/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses, element types and reasons. */
#include <string.h>

#include <gradwire/context.h>
#include <gradwire/types.h>

const char *gw_status_text(gw_status_t status)
{
    switch (status) {
#define CASE(id, value, text)                                                                      \
    case id:                                                                                       \
        return text;
        GW_STATUS_TABLE(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *gw_status_name(gw_status_t status)
{
    switch (status) {
#define CASE(id, value, text)                                                                      \
    case id:                                                                                       \
        return #id;
        GW_STATUS_TABLE(CASE)
#undef CASE
    }
    return "GW_UNKNOWN";
}

const char *gw_reason_name(gw_reason_t reason)
{
    switch (reason) {
#define CASE(id, name, text)                                                                       \
    case id:                                                                                       \
        return name;
        GW_REASON_TABLE(CASE)
#undef CASE
    case GW_REASON_COUNT:
        break;
    }
    return "unknown";
}

static const struct {
    gw_dtype_t dtype;
    size_t size;
    const char *name;
} dtypes[] = {
    {GW_F32, 4, "f32"}, {GW_F16, 2, "f16"},           {GW_BF16, 2, "bf16"},
    {GW_F64, 8, "f64"}, {GW_DTYPE_OTHER, 0, "other"}, {GW_DTYPE_USER, 0, "user"},
};

enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

size_t gw_dtype_size(gw_dtype_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].size;
    return 0;
}

const char *gw_dtype_name(gw_dtype_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "unknown";
}

gw_status_t gw_dtype_parse(const char *name, gw_dtype_t *out)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].size > 0 && strcmp(dtypes[i].name, name) == 0) {
            *out = dtypes[i].dtype;
            return GW_OK;
        }
    return GW_ERR_NOT_FOUND;
}

const char *gw_version(void)
{
    return GW_VERSION;
}
