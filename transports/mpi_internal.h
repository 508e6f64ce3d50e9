/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the MPI module share: MPI's functions, fragments, peers and links. */
#ifndef GW_MPI_INTERNAL_H
#define GW_MPI_INTERNAL_H

#include <mpi.h>

#include <gradwire/transport.h>

#include <sys/types.h>

/* ---- MPI as it is in this process (mpi_library.c) ---- */

/* By their PMPI names, so that no tool sees what is not the application's. */
#define GW_MPI_FUNCTIONS(X)                                                                        \
    X(Comm_create)                                                                                 \
    X(Comm_free)                                                                                   \
    X(Comm_group)                                                                                  \
    X(Comm_rank)                                                                                   \
    X(Comm_set_errhandler)                                                                         \
    X(Comm_size)                                                                                   \
    X(Finalized)                                                                                   \
    X(Get_count)                                                                                   \
    X(Get_library_version)                                                                         \
    X(Group_free)                                                                                  \
    X(Improbe)                                                                                     \
    X(Imrecv)                                                                                      \
    X(Initialized)                                                                                 \
    X(Isend)                                                                                       \
    X(Testsome)

/* Functions and handles. The handles are addresses of objects in libmpi, looked up by name: a
 * module that refers to them cannot be opened where libmpi was opened RTLD_LOCAL. */
typedef struct gw__mpi {
#define GW_MPI_MEMBER(name) __typeof__(PMPI_##name) *name;
    GW_MPI_FUNCTIONS(GW_MPI_MEMBER)
#undef GW_MPI_MEMBER
    MPI_Comm comm_null;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
    char version[MPI_MAX_LIBRARY_VERSION_STRING]; /* "Open MPI v4.1.4" */
} gw__mpi_t;
extern gw__mpi_t gw__mpi;

/* Finds them. GW_ERR_NO_MODULE with a sentence in `why`: no MPI here, another one than this module
 * was built for, or one that is not between MPI_Init and MPI_Finalize. Any thread. */
gw_status_t gw__mpi_bind(char *why, size_t size);

/* Whether MPI may be called. */
bool gw__mpi_alive(void);

/* ---- Fragments (mpi_fragment.c) ---- */

enum {
    /* Under the 64 KiB up to which Open MPI sends at once over TCP, its own header included. */
    GW__MPI_FRAGMENT = 63 * 1024,
    GW__MPI_IN_FLIGHT = 8, /* fragments to one peer that MPI works on at once */
    GW__MPI_TAG = 1        /* of all our messages */
};

typedef enum gw__mpi_kind {
    GW__MPI_FIRST = 1, /* of a message, perhaps its only one */
    GW__MPI_MORE,      /* of the message under way */
    GW__MPI_TAKE_BACK, /* the message under way ends here, and was none */
    GW__MPI_BYE        /* the sender closes its link */
} gw__mpi_kind_t;

/* What precedes the bytes of a fragment. */
typedef struct gw__mpi_header {
    uint32_t magic, kind;
    uint64_t tag;    /* of the message */
    uint64_t length; /* of the whole message */
    uint64_t number; /* of the fragment, from this sender to this receiver */
} gw__mpi_header_t;

#define GW__MPI_MAGIC 0x4757504du /* "MPWG" in memory */
enum { GW__MPI_PAYLOAD = GW__MPI_FRAGMENT - (int)sizeof(gw__mpi_header_t) };

/*
 * The memory that MPI reads and writes. It is never the caller's: MPI takes back neither a send nor
 * a receive that has been matched, so a peer that stops in the middle would leave MPI with a hold
 * on it.
 */
typedef struct gw__mpi_fragment {
    struct gw__mpi_fragment *next;    /* in the pool, a peer's stream, or a message */
    struct gw__mpi_fragment *message; /* first of a message: that of the next message */
    size_t length;                    /* bytes from `header` on */
    bool done;                        /* MPI has finished with it */
    gw__mpi_header_t header;
    uint8_t payload[GW__MPI_PAYLOAD];
} gw__mpi_fragment_t;

/* From the pool of this process, which grows to what was needed at once and then stays; NULL: no
 * memory. Any thread. */
gw__mpi_fragment_t *gw__mpi_fragment_get(void);
void gw__mpi_fragment_put(gw__mpi_fragment_t *fragment);
/* MPI may still read or write it: it stays as it is for ever. */
void gw__mpi_fragment_park(gw__mpi_fragment_t *fragment);

/* ---- Peers and links ---- */

/* A process, as others on its node can find it. */
typedef struct gw__mpi_process {
    int64_t pid;    /* 0: not to be found */
    uint64_t began; /* when */
    uint64_t space; /* who sees it under this number; 0: nobody knows */
} gw__mpi_process_t;

typedef struct gw__mpi_queue {
    gw_request_t *head, *tail; /* joined by `handle` */
} gw__mpi_queue_t;

/* The private words of a request. */
enum { GW__REQ_TAG, GW__REQ_DATA, GW__REQ_SIZE, GW__REQ_DONE };

typedef struct gw__mpi_peer {
    gw_status_t lost; /* GW_OK, or what requests to it end with */
    bool left;        /* its BYE came: it sends no more */
    bool ended;       /* its process is gone */
    gw__mpi_process_t process;

    /* To it. */
    gw__mpi_queue_t sends;     /* not wholly in fragments */
    bool take_back, bye;       /* owed to it */
    bool waiting;              /* in the link's list */
    struct gw__mpi_peer *next; /* there */
    int in_flight;             /* fragments that MPI is sending */
    uint64_t sent;             /* fragments so far */

    /* From it. */
    gw__mpi_fragment_t *stream, *stream_end; /* as it sent them; MPI may still be receiving */
    uint64_t taken;                          /* fragments so far */
    gw__mpi_queue_t receives;                /* posted and not done */
    gw__mpi_fragment_t *early, *early_end;   /* messages that came before their receive */

    /* The message whose fragments are coming. */
    bool assembling;
    uint64_t length, got;
    gw_request_t *target;     /* the receive that takes it, still in `receives`; or NULL */
    gw__mpi_fragment_t *kept; /* without a target: the last of `early`; or NULL, it is dropped */
    gw__mpi_fragment_t *kept_end;
} gw__mpi_peer_t;

/* What MPI works on. */
typedef struct gw__mpi_slot {
    gw__mpi_fragment_t *fragment;
    int peer;
    bool sending;
    bool over, failed; /* what MPI said of it */
} gw__mpi_slot_t;

struct gw_link {
    gw_link_params_t params;
    pid_t owner;
    MPI_Comm comm;
    gw__mpi_peer_t *peers;
    gw__mpi_peer_t *waiting, *waiting_end; /* peers with something to send and room in flight */

    /* Of equal length: MPI's request and what it is about. */
    MPI_Request *requests;
    gw__mpi_slot_t *slots;
    int active, capacity, receiving;
    int *indices; /* what MPI_Testsome writes */
    MPI_Status *statuses;
    gw__mpi_slot_t *finished; /* those of one test */

    int events;         /* since progress() began */
    unsigned calm;      /* waits since the last event */
    unsigned turns;     /* of progress without an event */
    int64_t next_watch; /* ms */
    bool broken;        /* MPI said something that cannot be gone on from */
    bool canceled;      /* a request was taken back: peers may be gone */
};

/* Ends what waits for this peer, and whatever will (mpi_arrival.c). */
void gw__mpi_peer_lose(gw_link_t *link, int peer, gw_status_t status);

/* The final status of a request. */
static inline gw_status_t gw__mpi_settle(gw_request_t *req, gw_status_t status)
{
    req->handle = NULL;
    req->status = status;
    return status;
}

void gw__mpi_queue_add(gw__mpi_queue_t *queue, gw_request_t *req);
bool gw__mpi_queue_take(gw__mpi_queue_t *queue, gw_request_t *req);

/* Notes that MPI works on a fragment. There is room: each direction has its share. */
void gw__mpi_track(gw_link_t *link, MPI_Request request, gw__mpi_fragment_t *fragment, int peer,
                   bool sending);

/* mpi_departure.c: sends what is owed to a peer, as far as there is room in flight. */
void gw__mpi_push(gw_link_t *link, int peer);
/* The same for all peers that wait, by turns. */
void gw__mpi_push_all(gw_link_t *link);

/* mpi_arrival.c: takes in what MPI has, at most a few fragments. */
void gw__mpi_look(gw_link_t *link);
/* A fragment of this peer is complete: hands out what has become deliverable. */
void gw__mpi_deliver(gw_link_t *link, int peer);

gw_status_t gw__mpi_send(gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length,
                         gw_request_t *req);
gw_status_t gw__mpi_recv(gw_link_t *link, int peer, uint64_t tag, void *data, size_t capacity,
                         gw_request_t *req);
void gw__mpi_cancel_send(gw_link_t *link, gw_request_t *req);
void gw__mpi_cancel_recv(gw_link_t *link, gw_request_t *req);

/* mpi_watch.c: this process for the others; a peer, if it can be watched; a look at all that are.
 */
void gw__mpi_watch_describe(gw__mpi_process_t *out);
void gw__mpi_watch_begin(gw__mpi_peer_t *peer, const gw__mpi_process_t *its,
                         const gw__mpi_process_t *own);
void gw__mpi_watch(gw_link_t *link);

/* mpi_traffic.c */
bool gw__mpi_usable(const gw_link_t *link, int peer, uint64_t tag, const void *data, size_t size);
int gw__mpi_progress(gw_link_t *link);
void gw__mpi_wait(gw_link_t *link, int timeout_us);

#endif
