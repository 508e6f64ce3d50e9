/* SPDX-License-Identifier: Apache-2.0 */
/* UCX contexts: how UCX is configured, one context per set of devices, and the translation of its
 * status codes. */
#include "ucx_internal.h"

#include <net/if.h>
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

/* The variables by which the user has chosen what UCX may use, with their values; "" when none. */
static void chosen_by_user(char *out, size_t size)
{
    static const char *const names[] = {"GRADWIRE_UCX_TLS", "UCX_TLS", "GRADWIRE_UCX_NET_DEVICES",
                                        "UCX_NET_DEVICES"};
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && used < size; i++)
        if (getenv(names[i]))
            used += (size_t)snprintf(out + used, size - used, "%s%s=%s", used ? " " : "", names[i],
                                     getenv(names[i]));
}

void gw__ucx_explain(ucs_status_t status, char *out, size_t size)
{
    char chosen[128];
    chosen_by_user(chosen, sizeof(chosen));
    if ((status == UCS_ERR_NO_DEVICE || status == UCS_ERR_UNREACHABLE) && chosen[0])
        snprintf(out, size, "%s; likely because of %s", ucs_status_string(status), chosen);
    else if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE)
        snprintf(out, size,
                 "%s; if /dev/shm is small, enlarge it (docker run --shm-size) or set "
                 "UCX_TLS=tcp,self",
                 ucs_status_string(status));
    else
        snprintf(out, size, "%s", ucs_status_string(status));
}

/* Our default of an option; the user's own value wins. */
static void prefer(ucp_config_t *config, const char *option, const char *value)
{
    if (!user_has_set(option))
        ucp_config_modify(config, option, value);
}

/* The same for an option of UCX's TCP transport, whose name ucp_config_modify() takes without
 * "TCP_" before UCX 1.17. */
static void prefer_tcp(ucp_config_t *config, const char *option, const char *value)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    bool prefixed = UCP_VERSION(major, minor) >= UCP_VERSION(1, 17);
    if (!user_has_set(option))
        ucp_config_modify(config, prefixed ? option : option + strlen("TCP_"), value);
}

/*
 * Messages over TCP are sent eagerly whatever their length (with FAST_CMPL, see gw__ucx_send). In a
 * rendezvous the receiver's "go" waits behind the data that it sends itself, in the same socket:
 * with both directions busy a shaped 1 Gbit/s link carried 500 to 620 Mbit/s each way, and carries
 * 954 like this. Segments of 64 KiB fit the receiving side's default and save system calls.
 */
static void configure_tcp(ucp_config_t *config)
{
    prefer(config, "RNDV_SEND_NBR_THRESH", "inf");
    if (!user_has_set("TCP_RX_SEG_SIZE"))
        prefer_tcp(config, "TCP_TX_SEG_SIZE", "64k");
    prefer_tcp(config, "TCP_CONN_NB", "y"); /* else making an endpoint waits for the peer's host */
}

/* Whether TCP is left out: ranks that share memory need no port that others could connect to. */
static bool leaves_tcp_out(const gw_link_params_t *params)
{
    return params->one_memory && !user_has_set("TLS");
}

/* The interfaces to use; NULL: UCX's choice. Ranks of one node need no other than the loopback. */
static const char *devices_of(const gw_link_params_t *params)
{
    bool loopback = params->one_node && !params->devices && if_nametoindex("lo") > 0;
    return loopback ? "lo" : params->devices;
}

static void configure(ucp_config_t *config, const gw_link_params_t *params, bool tcp)
{
    char ports[32];
    snprintf(ports, sizeof(ports), "%d-%d", params->port_min, params->port_max);
    if (!tcp)
        prefer(config, "TLS", "^tcp");
    else if (devices_of(params))
        prefer(config, "NET_DEVICES", devices_of(params));
    if (params->port_max > 0)
        prefer_tcp(config, "TCP_PORT_RANGE", ports);
    configure_tcp(config);
}

/* What UCX found on this machine, read from the list it prints for people: there is no call that
 * tells. */
static void context_inspect(ucx_context_t *context)
{
    static const char *const shared[] = {"sysv/", "posix/", "xpmem/"};
    static const char *const local[] = {"self/", "sysv/", "posix/", "xpmem/", "cma/", "knem/"};
    char *text = NULL, *position;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return;
    ucp_context_print_info(context->ucp, stream);
    fclose(stream);
    for (char *line = strtok_r(text, "\n", &position); line;
         line = strtok_r(NULL, "\n", &position)) {
        const char *resource = strstr(line, "resource") ? strstr(line, "-- ") : NULL;
        bool is_local = false;
        for (size_t i = 0; resource && i < sizeof(local) / sizeof(local[0]); i++)
            is_local |= !strncmp(resource + 3, local[i], strlen(local[i]));
        for (size_t i = 0; resource && i < sizeof(shared) / sizeof(shared[0]); i++)
            context->shared_memory |= !strncmp(resource + 3, shared[i], strlen(shared[i]));
        context->network |= resource && !is_local;
    }
    free(text);
}

static gw_status_t refuse(const gw_link_params_t *params, gw_status_t status, const char *what,
                          const char *detail)
{
    params->log(params->log_arg, GW_LOG_WARN, "ucx: %s%s%s", what, detail ? ": " : "",
                detail ? detail : "");
    return status;
}

/* Whether this context can serve: threads, and a network where one was asked for. */
static gw_status_t context_check(ucx_context_t *context, const gw_link_params_t *params)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE};
    if (ucp_context_query(context->ucp, &attr) != UCS_OK ||
        attr.thread_mode == UCS_THREAD_MODE_SINGLE)
        return refuse(params, GW_ERR_NO_MODULE, "this UCX was built without support for threads",
                      NULL);
    context_inspect(context);
    if (params->devices && !context->network && !params->one_node && !user_has_set("TLS"))
        return refuse(params, GW_ERR_NO_DEVICE, "none of these interfaces can be used",
                      params->devices);
    return GW_OK;
}

static gw_status_t refuse_status(const gw_link_params_t *params, ucs_status_t status,
                                 const char *what)
{
    char text[224];
    gw__ucx_explain(status, text, sizeof(text));
    return refuse(params, gw__ucx_status(status), what, text);
}

static gw_status_t context_init(ucx_context_t *context, const gw_link_params_t *params, bool tcp)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read("GRADWIRE", NULL, &config);
    if (status != UCS_OK)
        return refuse_status(params, status, "cannot read its settings");
    configure(config, params, tcp);
    ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .mt_workers_shared = 1,
                           .estimated_num_eps = (size_t)params->size,
                           .name = "gradwire"};
    status = ucp_init(&wanted, config, &context->ucp);
    ucp_config_release(config);
    if (status != UCS_OK)
        return refuse_status(params, status, "no context");
    gw_status_t result = context_check(context, params);
    if (result != GW_OK || tcp || context->shared_memory) {
        if (result != GW_OK)
            ucp_cleanup(context->ucp);
        return result;
    }
    ucp_cleanup(context->ucp); /* this UCX has no shared memory: ranks need TCP */
    return context_init(context, params, true);
}

static char *context_key(const gw_link_params_t *params)
{
    const char *devices = devices_of(params) ? devices_of(params) : "";
    size_t size = strlen(devices) + 48;
    char *key = malloc(size);
    if (key)
        snprintf(key, size, "%d-%d %s%s", params->port_min, params->port_max,
                 leaves_tcp_out(params) ? "no tcp " : "", devices);
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
        status =
            context ? context_init(context, params, !leaves_tcp_out(params)) : GW_ERR_NO_MEMORY;
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
