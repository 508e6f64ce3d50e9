/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the MPI shim share: the real functions, libgradwire's functions, the job's
 * state. */
#ifndef GW_PRELOAD_H
#define GW_PRELOAD_H

#include <mpi.h>

#include <gradwire/comm.h>
#include <gradwire/context.h>
#include <gradwire/layout.h>

#include "preload_abi.h"

/* ---- The real MPI (preload_symbols.c) ---- */

/* A function, and a data object, of the MPI in this process, also when its library was opened
 * RTLD_LOCAL; NULL when absent. */
void *gw__symbol(const char *name);
void *gw__object(const char *name);

/*
 * The function that a wrapper hands over to. The next one in line comes first, so that other
 * preloaded tools see the call as well. `direct` is set when that is MPI's own. A nested call (the
 * tool behind us came back to the first one in line) goes straight to MPI.
 */
typedef struct gw__target {
    void *function;
    bool direct;
} gw__target_t;
typedef struct gw__link {
    const char *name; /* "MPI_Allreduce" */
    void *_Atomic next, *_Atomic real;
} gw__link_t;
gw__target_t gw__target(gw__link_t *link, bool nested);

/* MPI functions that the shim calls for itself; by their PMPI names, so that no tool sees them. */
#define GW_PMPI_TABLE(X)                                                                           \
    X(Add_error_code)                                                                              \
    X(Add_error_string)                                                                            \
    X(Allgather)                                                                                   \
    X(Bcast)                                                                                       \
    X(Comm_call_errhandler)                                                                        \
    X(Comm_create_keyval)                                                                          \
    X(Comm_get_attr)                                                                               \
    X(Comm_get_name)                                                                               \
    X(Comm_group)                                                                                  \
    X(Comm_rank)                                                                                   \
    X(Comm_set_attr)                                                                               \
    X(Comm_size)                                                                                   \
    X(Comm_test_inter)                                                                             \
    X(Get_library_version)                                                                         \
    X(Group_free)                                                                                  \
    X(Group_translate_ranks)                                                                       \
    X(Iprobe)                                                                                      \
    X(Type_get_envelope)

typedef struct gw__pmpi {
#define GW_PMPI_MEMBER(name) __typeof__(PMPI_##name) *name;
    GW_PMPI_TABLE(GW_PMPI_MEMBER)
#undef GW_PMPI_MEMBER
} gw__pmpi_t;
extern gw__pmpi_t gw__pmpi;

/* Fills gw__pmpi. Returns the name of a function that is missing, or NULL. */
const char *gw__pmpi_bind(void);

/* ---- libgradwire (preload_library.c) ---- */

#define GW_LIBRARY_TABLE(X)                                                                        \
    X(version)                                                                                     \
    X(status_text)                                                                                 \
    X(context_create)                                                                              \
    X(context_free)                                                                                \
    X(context_disabled)                                                                            \
    X(context_log)                                                                                 \
    X(context_agreement)                                                                           \
    X(context_count_passed)                                                                        \
    X(context_write_stats)                                                                         \
    X(context_set_rank)                                                                            \
    X(agreement_compare)                                                                           \
    X(rule_facts)                                                                                  \
    X(call_order_create)                                                                           \
    X(call_order_next)                                                                             \
    X(call_order_free)                                                                             \
    X(decide)                                                                                      \
    X(comm_create)                                                                                 \
    X(comm_error)                                                                                  \
    X(comm_free)                                                                                   \
    X(allreduce_decided)

typedef struct gw__library {
#define GW_LIBRARY_MEMBER(name) __typeof__(gw_##name) *name;
    GW_LIBRARY_TABLE(GW_LIBRARY_MEMBER)
#undef GW_LIBRARY_MEMBER
} gw__library_t;
extern gw__library_t gw__library;

/* Opens the libgradwire.so beside the shim; false with a sentence in `why`. */
bool gw__library_open(char *why, size_t size);

/* ---- PMIx, the job's key-value store (preload_pmix.c) ---- */

/* Whether the launcher of this process offers PMIx. Meaningful only before MPI_Init. */
bool gw__pmix_offered(void);

/* Publishes this rank's text; before MPI_Init. False with a sentence in `why`. */
bool gw__pmix_put(const char *text, char *why, size_t size);

/* The text of another rank of this job, malloc'ed; NULL when it published none. After MPI_Init.
 * Never waits for that rank. */
char *gw__pmix_get(int rank);

/* Lets go of PMIx; MPI keeps its own hold on it. */
void gw__pmix_done(void);

/* ---- The job (preload_job.c) ---- */

typedef struct gw__job {
    gw_context_t *context;
    int rank, size;
    int keyval;        /* of the attribute that holds a communicator's state */
    bool mismatch;     /* ranks do not agree: nothing is compressed */
    bool device_aware; /* this MPI takes device memory, which this build cannot read */
} gw__job_t;
extern gw__job_t gw__job;

/* Between MPI_Init and MPI_Finalize, in the process that called MPI_Init, with nothing in the way.
 */
bool gw__job_active(void);

/* Before the real MPI_Init. False when MPI_Init was seen before. */
bool gw__job_prepare(void);
/* After it succeeded. */
void gw__job_start(void);
/* Before the real MPI_Finalize. */
void gw__job_finish(void);
/* Before the real MPI_Abort, from any thread or handler: writes the figures, in 2 s or not. */
void gw__job_abort(void);

/* A warning on stderr, for as long as there is no context with a log. */
void gw__warn(const char *format, ...) GW_PRINTF(1, 2);

/* Compares the settings of all ranks (preload_agreement.c). Publish: before MPI_Init; `defect`: why
 * this rank cannot run, or NULL. */
void gw__agreement_publish(const char *defect);
/* After MPI_Init. True when every rank of the job runs with the same settings; otherwise the reason
 * was logged. */
bool gw__agreement_reached(void);

/* ---- Communicators (preload_comm.c) ---- */

typedef struct gw__comm_state {
    gw_comm_facts_t facts;
    gw_call_order_t *calls; /* NULL: no rule asks for the place of a call */
    bool identified;        /* whether the ranks have agreed on order and name */
    gw_comm_t *comm;        /* NULL until the first call that is compressed */
    gw_reason_t refusal;    /* why it cannot be opened; GW_REASON_NONE: not tried, or open */
    MPI_Comm handle;
    uint64_t order; /* equal on all ranks, different for every communicator: the order of closing */
    char name[MPI_MAX_OBJECT_NAME]; /* rank 0's, of the time when they agreed */
    struct gw__comm_state *previous, *next;
} gw__comm_state_t;

/* Makes the attribute key. False when MPI refuses. */
bool gw__comm_states_open(void);
/* Closes all communicators of libgradwire; their states stay with MPI's communicators. */
void gw__comm_states_close(void);

/* The state of a communicator, made on its first use. NULL: no memory. */
gw__comm_state_t *gw__comm_state(MPI_Comm handle);
/* Opens libgradwire's communicator; collective, the same result on every rank. GW_REASON_NONE, or
 * why this communicator runs plain from now on; the library has logged more. */
gw_reason_t gw__comm_open(gw__comm_state_t *state);
/* Before MPI frees the communicator. */
void gw__comm_close(MPI_Comm handle);

/* ---- Errors (preload_error.c) ---- */

/* Calls the user's error handler and returns what it was called with: an error code of class
 * MPI_ERR_OTHER whose MPI_Error_string is the sentence of this failure, until the next failure. */
int gw__error_raise(const gw__comm_state_t *state, gw_status_t status);

#endif
