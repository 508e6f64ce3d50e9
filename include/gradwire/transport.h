/* SPDX-License-Identifier: Apache-2.0 */
/* The transport contract: point-to-point messages between the ranks of one communicator. */
#ifndef GRADWIRE_TRANSPORT_H
#define GRADWIRE_TRANSPORT_H

#include <gradwire/types.h>

#define GW_TRANSPORT_ABI         4
#define GW_TRANSPORT_ADDRESS_MAX 4096 /* bytes of one rank's address */
#define GW_TAG_BITS              48   /* usable bits of a tag */
#define GW_TRANSPORT_SECRET      16   /* bytes of gw_link_params_t's secret */

/* One rank's end of a communicator: made by open(), used by one thread at a time, not always by the
 * same unless the transport says GW_TRANSPORT_CALLER_ONLY. */
typedef struct gw_link gw_link_t;

/*
 * A send or a receive under way. The caller owns the memory and leaves it in place until `status`
 * is no longer GW_IN_PROGRESS. All fields belong to the transport until then.
 */
typedef struct gw_request {
    gw_status_t status; /* GW_IN_PROGRESS, then GW_OK or an error */
    int peer;
    size_t length;    /* receive: bytes that arrived */
    void *handle;     /* private to the transport */
    uint64_t priv[6]; /* private to the transport */
} gw_request_t;

typedef struct gw_link_params {
    int rank, size;
    const char
        *devices; /* network interfaces to use, comma separated; NULL: the transport's choice */
    int port_min, port_max; /* of listening sockets; 0, 0: any */
    int local_ranks; /* ranks of the communicator on this node, which share them; 0: not known */
    double timeout;  /* seconds: bound of connect and close */
    bool one_node;   /* all ranks share this node */
    bool one_memory; /* ... and can share memory, so that no network is needed */
    /* Listening ports take connections from the ranks' nodes alone, and none before connect() and
     * after seal(). Who sets it calls seal(). */
    bool guard;
    const uint8_t *secret; /* random bytes that only the ranks of this communicator know; copied by
                              open(); NULL: none */
    void *arg;             /* loopback: the gw_loopback_t */
    gw_log_fn log;         /* never NULL */
    void *log_arg;
    const char *faults; /* fault, a tool for testing: what goes wrong, as GRADWIRE_FAULT has it;
                           `arg` goes to the transport below. NULL: nothing */
    void *mpi_comm; /* mpi: the address of an MPI_Comm whose ranks are those of the link, in their
                       order; open() is collective over it. NULL: none */
} gw_link_params_t;

/* One rank's address as it came back from the out-of-band all-gather. */
typedef struct gw_address {
    const void *bytes;
    size_t length;
} gw_address_t;

/*
 * A transport. Messages with equal (sender, receiver, tag) match in the order of posting; a message
 * never matches another tag or peer. A rank does not send to itself.
 *
 * A send is done when its buffer is free. Its last bytes may still need progress() on this rank to
 * leave: whoever sends goes on progressing until the receiver has confirmed, before it does
 * something else for long.
 *
 * Errors: GW_ERR_PEER_FAILED, GW_ERR_UNREACHABLE, GW_ERR_NO_MEMORY, GW_ERR_IO, GW_ERR_NO_DEVICE. An
 * error of one peer leaves the traffic with the others alone. Nothing here waits without bound,
 * ends the process, or touches signal actions and memory hooks of the process.
 */
typedef struct gw_transport {
    int abi;             /* GW_TRANSPORT_ABI */
    const char *name;    /* "ucx" */
    const char *summary; /* one line for people */

    /* GW_OK when the transport can be used in this process; else the reason in `why`. */
    gw_status_t (*probe)(char *why, size_t size);

    gw_status_t (*open)(const gw_link_params_t *params, gw_link_t **out);

    /* This rank's address: at most *length bytes to `out`, *length set to the true size. */
    gw_status_t (*address)(gw_link_t *link, void *out, size_t *length);

    /* Hands over all ranks' addresses (`size` entries, own one included; copied). Connections are
     * opened on first use. Addresses come from peers: validate them. */
    gw_status_t (*connect)(gw_link_t *link, const gw_address_t *addresses);

    /* Start a message of `length` >= 0 bytes (send) or a receive of at most `capacity` bytes
     * (recv). A message longer than `capacity` completes the receive with GW_ERR_FRAME_LENGTH. The
     * result is in req->status, which may be final on return; the returned status is the same as
     * req->status. */
    gw_status_t (*send)(gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length,
                        gw_request_t *req);
    gw_status_t (*recv)(gw_link_t *link, int peer, uint64_t tag, void *data, size_t capacity,
                        gw_request_t *req);

    /* Moves data. Returns the number of events seen; 0 when there was nothing to do. */
    int (*progress)(gw_link_t *link);

    /* Sleeps until progress() may have something to do, at most `timeout_us` microseconds. */
    void (*wait)(gw_link_t *link, int timeout_us);

    /* Ends a request that is in progress: on return its status is final (GW_ERR_CANCELED unless it
     * was done in time) and the transport does not touch its buffer any more. */
    void (*cancel)(gw_link_t *link, gw_request_t *req);

    /* What carries the data to this peer, for people: "tcp/eth0", "sysv". Static until close. */
    const char *(*describe)(gw_link_t *link, int peer);

    /* Sends what is left, closes, frees; also with dead peers within `timeout` of open(). No
     * request may be in progress. `link` is gone afterwards whatever is returned. */
    gw_status_t (*close)(gw_link_t *link);

    unsigned flags; /* GW_TRANSPORT_* */

    /* Every rank has had a message from and to every other: no new connection is to be let in. Call
     * it before anything long is sent. NULL: nothing to do. */
    void (*seal)(gw_link_t *link);

    /* GW_ERR_UNREACHABLE when the host of `peer` has acknowledged nothing for `seconds` of what was
     * sent to it; GW_OK otherwise, also when nothing is known. Takes system calls: to be asked a
     * few times a second at most. NULL: nothing is ever known. */
    gw_status_t (*reach)(gw_link_t *link, int peer, double seconds);
} gw_transport_t;

/* What a transport needs or offers. */
enum {
    GW_TRANSPORT_CALLER_ONLY =
        1 << 0, /* to be used only on a thread that is in the user's call, open and close too */
    GW_TRANSPORT_NETWORK = 1 << 1, /* wants `devices` and `one_node` to be found out */
    GW_TRANSPORT_OVER_MPI = 1 << 2 /* needs `mpi_comm` */
};

/* The symbol that a transport module exports: `const gw_transport_t *gw_transport_module(void)`. */
typedef const gw_transport_t *(*gw_transport_module_fn)(void);
#define GW_TRANSPORT_MODULE_SYMBOL "gw_transport_module"

/* The i-th built-in transport or module name, or NULL behind the last one. */
GW_API const char *gw_transport_name_at(size_t i);

/* The transport of this name; a module is loaded on first use and stays loaded. On error the reason
 * in `why`. GW_ERR_NOT_FOUND, GW_ERR_NO_MODULE. Any thread. */
GW_API gw_status_t gw_transport_find(const char *name, const gw_transport_t **out, char *why,
                                     size_t why_size);

/*
 * The loopback: ranks are threads of this process. One gw_loopback_t joins `size` ranks; pass it as
 * transport_arg of each rank's communicator, and gw_loopback_allgather with a gw_loopback_rank_t as
 * the out-of-band all-gather. Free it after the last rank closed its communicator.
 */
typedef struct gw_loopback gw_loopback_t;
typedef struct gw_loopback_rank {
    gw_loopback_t *world;
    int rank;
} gw_loopback_rank_t;
GW_API gw_status_t gw_loopback_create(int size, gw_loopback_t **out);
GW_API void gw_loopback_free(gw_loopback_t *world);
GW_API gw_status_t gw_loopback_allgather(void *loopback_rank, const void *mine, void *all,
                                         size_t bytes);

#endif
