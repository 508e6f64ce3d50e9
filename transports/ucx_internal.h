/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the UCX module share: contexts, links, peers and the operations under way. */
#ifndef GW_UCX_INTERNAL_H
#define GW_UCX_INTERNAL_H

#include <gradwire/transport.h>

#include "ucx_filter.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

/* A ucp_context, shared by all links of this process that use the same devices and ports. */
typedef struct ucx_context {
    struct ucx_context *next;
    char *key;
    pid_t pid; /* the process that made it: a forked child must not touch it */
    int users;
    ucp_context_h ucp;
    bool shared_memory, network; /* what UCX can use */
} ucx_context_t;

typedef struct ucx_peer ucx_peer_t;
typedef struct ucx_slab ucx_slab_t;

/* A send or receive that UCX has not finished. */
typedef struct ucx_op {
    struct ucx_op *prev, *next; /* in the peer's list, or (next only) in the link's free list */
    ucx_peer_t *peer;
    gw_request_t *req;
    void *request; /* UCX's */
    bool receive;
    struct ucx_op *after; /* in the link's `done` list */
    bool done;            /* UCX has finished it; its owner does not know yet */
    gw_status_t result;   /* what it ended with; when done */
    gw_status_t verdict;  /* what the request ends with when UCX calls it cancelled */
} ucx_op_t;

struct ucx_peer {
    gw_link_t *link;
    int rank;
    ucp_ep_h ep;         /* NULL before the first message and after a failure */
    gw_status_t lost;    /* GW_OK, or why this peer can no longer be used */
    bool news;           /* `lost` was set by UCX's callback and not acted upon yet */
    bool local;          /* shares memory with us: see gw__ucx_peer_open */
    bool eager;          /* over TCP: no rendezvous, see configure_tcp */
    int watch;           /* descriptor that is readable once the peer's process ended; -1: none */
    const void *address; /* its ucp worker address */
    ucx_source_t *hosts; /* addresses of its host, as far as it told; in the link's `addresses` */
    int host_count;
    ucx_op_t *ops;
    char carrier[64];
};

enum {
    GW__UCX_LISTENERS_MAX = 16,     /* listening sockets of one worker that are guarded */
    GW__UCX_LISTENERS_BEFORE = 1024 /* those of the program that are remembered meanwhile */
};

typedef struct ucx_listener {
    int fd;
    struct sockaddr_storage address;
} ucx_listener_t;

/* What keeps strangers from the listening sockets of a link. ucx_guard.c */
typedef struct ucx_guard {
    ucx_listener_t listener[GW__UCX_LISTENERS_MAX];
    int count;
    struct sockaddr_storage *before; /* listening sockets there were before the worker */
    int before_count;
    ucx_source_t *sources; /* where peers come from */
    int source_count;      /* -1: anywhere */
    bool loopback;         /* some peer is on this host */
    bool undecided;        /* after sealing: some connection may be a peer's or a stranger's */
    uint64_t patience;     /* ... until then, ns */
} ucx_guard_t;

struct gw_link {
    gw_link_params_t params;
    uint64_t tag_key; /* part of all tags: strangers cannot guess it */
    ucx_guard_t guard;
    char *devices; /* a copy of params.devices, or NULL */
    pid_t pid;
    ucx_context_t *context;
    ucp_worker_h worker; /* NULL after gw__ucx_link_break */
    int event_fd;
    ucx_peer_t *peers;
    void *addresses; /* memory behind the peers' `address` */
    ucx_op_t *free_ops;
    ucx_op_t *done;      /* see put_aside */
    ucx_slab_t *slabs;   /* memory of all ops */
    int events;          /* completions since the last progress() */
    int closing;         /* flushes and closes of endpoints under way */
    bool news;           /* some peer has news */
    uint64_t next_watch; /* when to look at the watches again, ns */
};

/* The one place that translates UCX's status codes. */
gw_status_t gw__ucx_status(ucs_status_t status);

/* UCX's text for an error and, where the cause is likely known, what to do about it. */
void gw__ucx_explain(ucs_status_t status, char *out, size_t size);

/* A context for these devices and ports; give it back with gw__ucx_context_put. GW_ERR_NO_MODULE
 * when UCX has no support for threads, GW_ERR_NO_DEVICE, GW_ERR_NO_MEMORY, GW_ERR_IO. Any thread.
 */
gw_status_t gw__ucx_context_get(const gw_link_params_t *params, ucx_context_t **out);
void gw__ucx_context_put(ucx_context_t *context);

/* This rank's address for others, and the check of what others sent. ucx_address.c */
gw_status_t gw__ucx_address_pack(gw_link_t *link, void *out, size_t *length);
gw_status_t gw__ucx_address_unpack(gw_link_t *link, const gw_address_t *addresses);

/*
 * The guard, in the order of its use: before the worker is made; after that, when it closes the
 * ports; when peers may connect, with `sources` and `loopback` filled; when all have. What fails is
 * logged: a port that cannot be guarded is no reason not to run. A link without params.guard calls
 * none of them.
 */
void gw__ucx_guard_begin(ucx_guard_t *guard);
void gw__ucx_guard_close(gw_link_t *link);
void gw__ucx_guard_open(gw_link_t *link);
void gw__ucx_guard_seal(gw_link_t *link);

/* Decides about connections that were `undecided`. */
void gw__ucx_guard_sweep(gw_link_t *link);

/* The endpoint of a peer, made on first use. */
gw_status_t gw__ucx_peer_open(ucx_peer_t *peer);

/* Sends what is left to all peers, drops their endpoints; not later than `until`. */
void gw__ucx_peers_close(gw_link_t *link, uint64_t until);

/* What carries the data to a peer, as far as UCX tells. */
const char *gw__ucx_peer_describe(ucx_peer_t *peer);

/* Calls `visit` with every descriptor of this process. */
void gw__ucx_each_descriptor(void (*visit)(void *arg, int fd), void *arg);

/* Whether the host of a peer still answers: see gw_transport_t.reach. ucx_reach.c */
gw_status_t gw__ucx_reach(gw_link_t *link, int peer, double seconds);

/* A descriptor that becomes readable when this process ends; -1 where the kernel has none. */
int gw__ucx_watch(pid_t pid);

/* A peer is lost: ends what waits for it and drops its endpoint. */
void gw__ucx_peer_lose(ucx_peer_t *peer, gw_status_t why);

/* Ends all operations at once by giving up the worker: the last resort. Every peer is lost
 * afterwards. */
void gw__ucx_link_break(gw_link_t *link);

/* Ends an operation without UCX: its owner sees its result or verdict, and a late callback finds
 * nobody. */
void gw__ucx_op_abandon(ucx_op_t *op);

/* Acts upon what UCX's error callbacks and the watches told. */
void gw__ucx_peers_check(gw_link_t *link);

uint64_t gw__ucx_now(void); /* nanoseconds, monotonic */

/* The operations of the contract. ucx_traffic.c */
gw_status_t gw__ucx_send(gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length,
                         gw_request_t *req);
gw_status_t gw__ucx_recv(gw_link_t *link, int peer, uint64_t tag, void *data, size_t capacity,
                         gw_request_t *req);
int gw__ucx_progress(gw_link_t *link);
void gw__ucx_wait(gw_link_t *link, int timeout_us);
void gw__ucx_cancel(gw_link_t *link, gw_request_t *req);
void gw__ucx_slabs_free(gw_link_t *link);

#endif
