/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of a UCX link: endpoints, what carries them, and how their loss is noticed and spread. */
#include "ucx_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DROP_NS UINT64_C(200000000) /* how long the close of an endpoint by force may take */

/* Called by UCX from inside progress: only takes a note, for endpoints must not be closed here. */
static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ucx_peer_t *peer = arg;
    if (peer->lost == GW_OK) {
        peer->lost = GW_ERR_PEER_FAILED;
        peer->news = true;
        peer->link->news = true;
        peer->link->params.log(peer->link->params.log_arg, GW_LOG_INFO,
                               "ucx: connection to rank %d ended: %s", peer->rank,
                               ucs_status_string(status));
    }
}

int gw__ucx_watch(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    return -1;
#endif
}

/*
 * Two ways to open an endpoint:
 *
 * With peer failure handling UCX reports a broken connection and lets us close by force, which ends
 * every operation of the endpoint. So it is for all peers on other nodes.
 *
 * But UCX leaves shared memory out of such endpoints (1.13: sysv and posix altogether, and cma even
 * where sysv is told to take part; a fifth of the speed remains). So peers on this node get
 * endpoints without it. Their death is seen by the watch on their process, and what they leave
 * unfinished is abandoned: a dead process touches no buffer.
 */
gw_status_t gw__ucx_peer_open(ucx_peer_t *peer)
{
    if (peer->ep || peer->lost != GW_OK)
        return peer->lost;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = peer->local ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = peer}};
    ucs_status_t status = ucp_ep_create(peer->link->worker, &params, &peer->ep);
    if (status == UCS_OK) {
        peer->eager = !strncmp(gw__ucx_peer_describe(peer), "tcp/", 4);
        return GW_OK;
    }
    peer->ep = NULL;
    peer->lost = gw__ucx_status(status);
    if (peer->lost == GW_ERR_IO || peer->lost == GW_ERR_CANCELED)
        peer->lost = GW_ERR_UNREACHABLE;
    char text[224];
    gw__ucx_explain(status, text, sizeof(text));
    peer->link->params.log(peer->link->params.log_arg, GW_LOG_WARN,
                           "ucx: no connection to rank %d: %s", peer->rank, text);
    return peer->lost;
}

static void on_closed(void *request, ucs_status_t status, void *link)
{
    ((gw_link_t *)link)->closing--;
    ucp_request_free(request);
}

/* Counts a flush or close that UCX has not finished at once. */
static void count(gw_link_t *link, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request))
        link->closing++;
}

/* Closes an endpoint by force where UCX allows that; else it stays until the worker goes. */
static void ep_drop(ucx_peer_t *peer)
{
    if (peer->ep && !peer->local) {
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                     .cb.send = on_closed,
                                     .user_data = peer->link};
        count(peer->link, ucp_ep_close_nbx(peer->ep, &param));
    }
    peer->ep = NULL;
}

/* Takes in what a dead peer had written before it died. */
static void drain(gw_link_t *link)
{
    for (int i = 0; i < 1000 && ucp_worker_progress(link->worker) > 0; i++)
        ;
}

static void progress_closing(gw_link_t *link, uint64_t until)
{
    while (link->closing > 0 && gw__ucx_now() < until)
        if (ucp_worker_progress(link->worker) == 0)
            gw__ucx_wait(link, 1000);
}

void gw__ucx_peer_lose(ucx_peer_t *peer, gw_status_t why)
{
    peer->news = false;
    if (peer->lost == GW_OK)
        peer->lost = why;
    if (peer->local)
        drain(peer->link);
    for (ucx_op_t *op = peer->ops, *next; op; op = next) {
        next = op->next; /* the cancel may finish `op` at once */
        if (op->verdict != GW_ERR_CANCELED)
            op->verdict = peer->lost;
        if (op->receive && !op->done)
            ucp_request_cancel(peer->link->worker, op->request);
    }
    ep_drop(peer);
    progress_closing(peer->link, gw__ucx_now() + DROP_NS);
    /* What is left are receives of half a message: UCX waits for the rest for ever, and nothing can
     * bring it. */
    while (peer->ops)
        gw__ucx_op_abandon(peer->ops);
}

void gw__ucx_link_break(gw_link_t *link)
{
    /* UCX ends most operations from inside this call. */
    ucp_worker_destroy(link->worker);
    link->worker = NULL;
    link->closing = 0;
    link->event_fd = -1;
    for (int i = 0; i < link->params.size; i++) {
        ucx_peer_t *peer = &link->peers[i];
        peer->ep = NULL;
        if (peer->lost == GW_OK)
            peer->lost = GW_ERR_PEER_FAILED;
        while (peer->ops)
            gw__ucx_op_abandon(peer->ops);
    }
}

static bool process_ended(ucx_peer_t *peer)
{
    struct pollfd poller = {.fd = peer->watch, .events = POLLIN};
    return peer->watch >= 0 && poll(&poller, 1, 0) > 0;
}

void gw__ucx_peers_check(gw_link_t *link)
{
    link->news = false;
    for (int i = 0; i < link->params.size; i++) {
        ucx_peer_t *peer = &link->peers[i];
        if (peer->lost == GW_OK && process_ended(peer)) {
            link->params.log(link->params.log_arg, GW_LOG_INFO, "ucx: the process of rank %d ended",
                             i);
            peer->news = true;
        }
        if (peer->news)
            gw__ucx_peer_lose(peer, GW_ERR_PEER_FAILED);
    }
}

void gw__ucx_peers_close(gw_link_t *link, uint64_t until)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_closed,
                                 .user_data = link};
    for (int i = 0; i < link->params.size; i++)
        if (link->peers[i].ep && link->peers[i].lost == GW_OK)
            count(link, ucp_ep_flush_nbx(link->peers[i].ep, &param));
    /* A flush can need the peer's help, who may be elsewhere; who keeps the contract has nothing
     * left to send. */
    uint64_t soon = gw__ucx_now() + DROP_NS;
    progress_closing(link, until < soon ? until : soon);
    for (int i = 0; i < link->params.size; i++)
        ep_drop(&link->peers[i]);
    /* Closing by force needs no peer, but some turns of progress. */
    progress_closing(link, gw__ucx_now() + DROP_NS);
}

/* Adds "tcp/eth0" of a line like "lane[0]:  1:tcp/eth0.0 md[1] -> ..." unless it is there already.
 */
static void add_lane(char *out, size_t size, const char *line)
{
    char name[48];
    const char *from = strstr(line, "lane[");
    from = from ? strchr(from, ' ') : NULL;
    from = from ? strchr(from, ':') : NULL;
    if (!from || sscanf(from + 1, "%47[^ .]", name) != 1)
        return;
    char *slash = strchr(name, '/');
    if (slash && !strcmp(slash, "/memory"))
        *slash = '\0';
    size_t used = strlen(out);
    if (!strstr(out, name))
        snprintf(out + used, size - used, "%s%s", used ? "+" : "", name);
}

const char *gw__ucx_peer_describe(ucx_peer_t *peer)
{
    if (!peer->ep) {
        if (!peer->carrier[0])
            snprintf(peer->carrier, sizeof(peer->carrier), "ucx%s%s",
                     peer->link->devices ? "/" : "",
                     peer->link->devices ? peer->link->devices : "");
        return peer->carrier;
    }
    char *text = NULL, *position, carrier[sizeof(peer->carrier)] = "";
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (stream) {
        ucp_ep_print_info(peer->ep, stream);
        fclose(stream);
        for (char *line = strtok_r(text, "\n", &position); line;
             line = strtok_r(NULL, "\n", &position))
            add_lane(carrier, sizeof(carrier), line);
        free(text);
    }
    if (carrier[0])
        memcpy(peer->carrier, carrier, sizeof(carrier));
    return peer->carrier;
}
