/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator and its collectives. */
#ifndef GRADWIRE_COMM_H
#define GRADWIRE_COMM_H

#include <gradwire/context.h>

/*
 * The out-of-band all-gather: `bytes` bytes of every rank, in order of rank, to `all`. Collective
 * and blocking; called only inside gw_comm_create, on the calling thread.
 */
typedef gw_status_t (*gw_allgather_fn)(void *arg, const void *mine, void *all, size_t bytes);

typedef struct gw_comm_params {
    int rank, size;
    gw_allgather_fn allgather;
    void *allgather_arg;
    const char *name;      /* for rules, logs and statistics; rank 0's counts; NULL: a number */
    const char *transport; /* NULL: GRADWIRE_TRANSPORT */
    void *transport_arg;   /* loopback: the gw_loopback_t */
    /* Called on the calling thread while a call waits for peers, at least every millisecond or so;
     * NULL: nothing. Lets the caller progress a library whose progress a peer may need before it
     * enters the call. Must not call Gradwire, and should return within microseconds. */
    void (*idle)(void *arg);
    void *idle_arg;
    /* The address of an MPI_Comm whose ranks are these, in their order, for the transport "mpi"; it
     * must not change before gw_comm_create returns. NULL: without MPI. All ranks give one, or
     * none. */
    void *mpi_comm;
} gw_comm_params_t;

typedef struct gw_comm gw_comm_t;

/*
 * Makes a communicator; collective over its ranks. Compares versions and settings, exchanges the
 * hardware facts, chooses network interfaces, exchanges addresses. Every rank returns the same
 * status: when one rank fails, all do, and say which. GW_ERR_SETTINGS_DIFFER, GW_ERR_PEER_REFUSED,
 * GW_ERR_NO_DEVICE, GW_ERR_NO_MODULE, GW_ERR_NO_MEMORY, GW_ERR_INVALID (before anything was
 * exchanged), or what allgather returned.
 *
 * A communicator is used by one thread at a time; different communicators may be used at the same
 * time. `context` must outlive it.
 */
GW_API gw_status_t gw_comm_create(gw_context_t *context, const gw_comm_params_t *params,
                                  gw_comm_t **out);

/* Closes and frees; bounded by GRADWIRE_TIMEOUT also with dead peers. NULL is fine. */
GW_API void gw_comm_free(gw_comm_t *comm);

/*
 * All-reduce of `count` elements of `dtype`: recv becomes the sum (GW_SUM) or mean (GW_AVG) over
 * the ranks of their `send` buffers (`send` NULL: of their `recv` buffers, in place). All ranks
 * call it with equal count, dtype and op and end with the same bits. The buffers must not overlap
 * otherwise, and are free again on return. Blocking. A call that is not eligible for the codec runs
 * uncompressed and is counted with its reason.
 *
 * GW_ERR_INVALID (buffers), GW_ERR_UNSUPPORTED (dtype or op): nothing was sent, and other ranks
 * that made the call rightly wait for this one. GW_ERR_PEER_FAILED, GW_ERR_TIMEOUT,
 * GW_ERR_UNREACHABLE, GW_ERR_FRAME_*: recv is undefined, residuals of the call are reset, and every
 * later call on this communicator returns the same status; free it. gw_comm_error tells the reason.
 */
GW_API gw_status_t gw_allreduce(gw_comm_t *comm, const void *send, void *recv, size_t count,
                                gw_dtype_t dtype, gw_op_t op);

/* The same, with codec and plan given: for those who asked gw_decide() with facts of their own, for
 * benchmarks and tests. All ranks give the same. GW_ERR_UNSUPPORTED also for GW_PLAN_RING and
 * GW_PLAN_TREE with a codec whose payloads of this dtype cannot be summed without decoding. */
struct gw_coder;
GW_API gw_status_t gw_allreduce_with(gw_comm_t *comm, const struct gw_coder *coder,
                                     gw_plan_kind_t plan, const void *send, void *recv,
                                     size_t count, gw_dtype_t dtype, gw_op_t op);

/*
 * The non-blocking all-reduce: posts the call and returns; the buffers stay in place, and are not
 * read or written by the caller, until the work is done. Work of a communicator runs in the order
 * of posting, blocking calls included; all ranks post the same calls in the same order. It goes on
 * by itself where a worker thread is free for it (GRADWIRE_THREADS), otherwise inside test, wait
 * and the communicator's blocking calls.
 *
 * GW_OK: *work is to be given to gw_work_wait, or to gw_work_test until that says done. Otherwise
 * nothing was posted: the errors of gw_allreduce that are known at once, or GW_ERR_NO_MEMORY.
 *
 * test and wait return the status of the call once it is done, and set *work to NULL then; test
 * returns GW_OK before. With *work NULL they are done at once. They are calls of the communicator:
 * one thread at a time. A communicator that is freed gives up what is not done; its works are gone.
 */
typedef struct gw_work gw_work_t;
GW_API gw_status_t gw_iallreduce(gw_comm_t *comm, const void *send, void *recv, size_t count,
                                 gw_dtype_t dtype, gw_op_t op, gw_work_t **work);
GW_API gw_status_t gw_work_test(gw_work_t **work, bool *done);
GW_API gw_status_t gw_work_wait(gw_work_t **work);

/*
 * The all-reduce of device memory in the order of a CUDA stream (a CUstream or cudaStream_t; NULL
 * and the other default streams of the current context too): elements are read when all that is on
 * the stream now has ended, and what is put there afterwards finds the result. The host does not
 * wait for either. gw_allreduce and gw_iallreduce take device memory too; there elements must be
 * ready, and the result is, when they return and when the work is done.
 *
 * A codec that has kernels for it computes on the device; all others go through pinned host memory.
 * The bytes are the same either way, and those of ranks whose buffers are in host memory.
 *
 * It goes on by itself where a worker thread is free for it (GRADWIRE_THREADS) and streams can wait
 * for memory; otherwise this call waits until it is over. What becomes of it is told by
 * gw_comm_query, or by the next call of the communicator. Ranks that share a process have streams
 * of their own: one that waits for its peer on the peer's stream is in its way. A stream never
 * waits for ever: it goes on also when the call fails, and recv is undefined then. gw_comm_free
 * releases it too.
 *
 * GW_ERR_UNSUPPORTED: also a buffer that is not the device's, a stream that is being captured (make
 * the call outside of the graph), a build without GPU kernels, GRADWIRE_DEVICE=off.
 * GW_ERR_INVALID: not a stream of this device. Nothing was sent then.
 */
GW_API gw_status_t gw_allreduce_on(gw_comm_t *comm, void *stream, const void *send, void *recv,
                                   size_t count, gw_dtype_t dtype, gw_op_t op);

/* How it is with the calls of gw_allreduce_on: the first one's failure, GW_IN_PROGRESS while one is
 * under way, else GW_OK. Does not wait. A call of the communicator: one thread at a time. */
GW_API gw_status_t gw_comm_query(gw_comm_t *comm);

/*
 * Takes down when each task of the next calls begins and ends, at most `events` of a call; 0 stops
 * that. GW_ERR_NO_MEMORY. Print draws the last call as text, `width` columns: a line for what each
 * thread computed and for the messages with each peer, and how much computing ran while frames
 * were on their way. Between calls only.
 */
GW_API gw_status_t gw_comm_timeline(gw_comm_t *comm, size_t events);
GW_API void gw_comm_timeline_print(const gw_comm_t *comm, int width, FILE *out);

/* The sentence that belongs to the last error of this communicator ("rank 3 ..."); "" when none. */
GW_API const char *gw_comm_error(const gw_comm_t *comm);

/* Rank that failed, or -1. */
GW_API int gw_comm_failed_rank(const gw_comm_t *comm);

/* Drops all residuals (the next call starts without feedback). */
GW_API void gw_comm_reset_residuals(gw_comm_t *comm);

/* What carries the data to `peer` ("ucx tcp/eth0"); valid until the next call of this function on
 * the communicator. */
GW_API const char *gw_comm_describe(gw_comm_t *comm, int peer);

GW_API void gw_comm_stats(const gw_comm_t *comm, gw_stats_t *out);

#endif
