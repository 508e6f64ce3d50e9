/* SPDX-License-Identifier: Apache-2.0 */
/* UCX contexts: how UCX is configured, one context per set of devices, and the translation of its
 * status codes. */
#include "ucx_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static ucx_context_t *contexts;

gw_status_t gw__ucx_status(ucs_status_t status)
{
    /* UCX numbers its ranges of link and endpoint failures downwards. */
    if (status <= UCS_ERR_FIRST_LINK_FAILURE && status >= UCS_ERR_LAST_ENDPOINT_FAILURE)
        return GW_ERR_PEER_FAILED;
    switch (status) {
    case UCS_OK:
        return GW_OK;
    case UCS_INPROGRESS:
    case UCS_ERR_NO_PROGRESS:
    case UCS_ERR_BUSY:
        return GW_IN_PROGRESS;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
        return GW_ERR_NO_MEMORY;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return GW_ERR_FRAME_LENGTH;
    case UCS_ERR_CANCELED:
        return GW_ERR_CANCELED;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_REJECTED:
        return GW_ERR_UNREACHABLE;
    case UCS_ERR_NO_DEVICE:
        return GW_ERR_NO_DEVICE;
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
        return GW_ERR_PEER_FAILED;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
        return GW_ERR_UNSUPPORTED;
    default:
        return GW_ERR_IO;
    }
}

/* Whether the user has set this option of UCX, for all of UCX or for Gradwire alone. */
static bool user_has_set(const char *option)
{
    char name[128];
    snprintf(name, sizeof(name), "GRADWIRE_UCX_%s", option);
    return getenv(name) || getenv(name + strlen("GRADWIRE_"));
}

/* Our default of an option; the user's own value wins. An option that this UCX does not know is no
 * error. */
static void prefer(ucp_config_t *config, const char *option, const char *value)
{
    if (!user_has_set(option))
        ucp_config_modify(config, option, value);
}

static void configure(ucp_config_t *config, const gw_link_params_t *params)
{
    char ports[32];
    snprintf(ports, sizeof(ports), "%d-%d", params->port_min, params->port_max);
    if (params->devices)
        prefer(config, "NET_DEVICES", params->devices);
    if (params->port_max > 0)
        prefer(config, "TCP_PORT_RANGE", ports);
    prefer(config, "TCP_CONN_NB", "y"); /* else making an endpoint waits for the peer */
    if (getenv("GWX_SHM")) {
        prefer(config, "SYSV_ERROR_HANDLING", "y");
        prefer(config, "POSIX_ERROR_HANDLING", "y");
        prefer(config, "CMA_ERROR_HANDLING", "y");
    }
}

static gw_status_t context_init(ucx_context_t *context, const gw_link_params_t *params)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read("GRADWIRE", NULL, &config);
    if (status != UCS_OK) {
        params->log(params->log_arg, GW_LOG_WARN, "ucx: cannot read its settings: %s",
                    ucs_status_string(status));
        return gw__ucx_status(status);
    }
    configure(config, params);
    ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .mt_workers_shared = 1,
                           .estimated_num_eps = (size_t)params->size,
                           .name = "gradwire"};
    status = ucp_init(&wanted, config, &context->ucp);
    ucp_config_release(config);
    if (status != UCS_OK) {
        params->log(params->log_arg, GW_LOG_WARN, "ucx: no context for devices %s: %s",
                    params->devices ? params->devices : "of its own choice",
                    ucs_status_string(status));
        return gw__ucx_status(status);
    }
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE};
    if (ucp_context_query(context->ucp, &attr) == UCS_OK &&
        attr.thread_mode != UCS_THREAD_MODE_SINGLE)
        return GW_OK;
    params->log(params->log_arg, GW_LOG_WARN,
                "ucx: this UCX was built without support for threads");
    ucp_cleanup(context->ucp);
    return GW_ERR_NO_MODULE;
}

static char *context_key(const gw_link_params_t *params)
{
    const char *devices = params->devices ? params->devices : "";
    size_t size = strlen(devices) + 32;
    char *key = malloc(size);
    if (key)
        snprintf(key, size, "%d-%d %s", params->port_min, params->port_max, devices);
    return key;
}

static ucx_context_t *context_find(const char *key)
{
    ucx_context_t *context = contexts;
    while (context && (context->pid != getpid() || strcmp(context->key, key) != 0))
        context = context->next;
    return context;
}

gw_status_t gw__ucx_context_get(const gw_link_params_t *params, ucx_context_t **out)
{
    gw_status_t status = GW_OK;
    char *key = context_key(params);
    if (!key)
        return GW_ERR_NO_MEMORY;
    pthread_mutex_lock(&contexts_lock);
    ucx_context_t *context = context_find(key);
    if (context) {
        free(key);
    } else {
        context = calloc(1, sizeof(*context));
        status = context ? context_init(context, params) : GW_ERR_NO_MEMORY;
        if (status != GW_OK)
            goto fail;
        context->key = key;
        context->pid = getpid();
        context->next = contexts;
        contexts = context;
    }
    context->users++;
    pthread_mutex_unlock(&contexts_lock);
    *out = context;
    return GW_OK;
fail:
    pthread_mutex_unlock(&contexts_lock);
    free(context);
    free(key);
    return status;
}

void gw__ucx_context_put(ucx_context_t *context)
{
    pthread_mutex_lock(&contexts_lock);
    if (--context->users == 0) {
        ucx_context_t **link = &contexts;
        while (*link != context)
            link = &(*link)->next;
        *link = context->next;
        if (context->pid == getpid())
            ucp_cleanup(context->ucp);
        free(context->key);
        free(context);
    }
    pthread_mutex_unlock(&contexts_lock);
}
