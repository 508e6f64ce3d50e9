/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a peer's host still answers. A rank that has not entered a call and one whose link is
 * down look alike from above: nothing comes. The kernel knows better: the host of a late rank
 * acknowledges what it is sent, even when it has no room for it. UCX reports a connection only when
 * the kernel gives it up, after a quarter of an hour.
 */
#include "ucx_internal.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_A_ROW = 2 }; /* without an answer: one alone may be the network's business */

typedef struct question {
    const ucx_peer_t *peer;
    double seconds;
    bool dead;
} question_t;

/* Whether a socket leads to a host of this peer. */
static bool leads_to(int fd, const ucx_peer_t *peer)
{
    struct sockaddr_storage other;
    socklen_t length = sizeof(other);
    if (getpeername(fd, (struct sockaddr *)&other, &length) != 0)
        return false;
    for (int i = 0; i < peer->host_count; i++) {
        const ucx_source_t *host = &peer->hosts[i];
        if (host->family == 4 && other.ss_family == AF_INET &&
            !memcmp(host->addr, &((struct sockaddr_in *)&other)->sin_addr, 4))
            return true;
        if (host->family == 6 && other.ss_family == AF_INET6 &&
            !memcmp(host->addr, &((struct sockaddr_in6 *)&other)->sin6_addr, 16))
            return true;
    }
    return false;
}

static void look(void *arg, int fd)
{
    question_t *question = arg;
    struct tcp_info info;
    socklen_t length = sizeof(info);
    if (question->dead || !leads_to(fd, question->peer) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return;
    /* Retransmissions of what was sent; or probes, when nothing can be sent: because the other side
     * has no room, where an answer to a probe starts their count anew, or because our own interface
     * is down. */
    bool asks = (info.tcpi_unacked > 0 && info.tcpi_retransmits >= IN_A_ROW) ||
                info.tcpi_probes >= IN_A_ROW;
    question->dead = asks && info.tcpi_last_ack_recv >= question->seconds * 1e3;
}

gw_status_t gw__ucx_reach(gw_link_t *link, int rank, double seconds)
{
    const ucx_peer_t *peer = &link->peers[rank];
    question_t question = {.peer = peer, .seconds = seconds};
    if (rank == link->params.rank || peer->local || link->pid != getpid())
        return GW_OK;
    gw__ucx_each_descriptor(look, &question);
    return question.dead ? GW_ERR_UNREACHABLE : GW_OK;
}
