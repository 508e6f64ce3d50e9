/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped functions that begin and end things: Init, Finalize, the freeing of communicators. */
#include "preload.h"

#define WRAPPED __attribute__((visibility("default")))

/*
 * Calls the function next in line. `nested` is this thread's mark that it is inside that function
 * already: set only where a foreign tool is next, as MPI itself does not come back.
 */
#define HAND_OVER(result, link, nested, type, ...)                                                 \
    do {                                                                                           \
        gw__target_t target = gw__target(link, nested);                                            \
        bool outer = nested;                                                                       \
        nested = outer || !target.direct;                                                          \
        result =                                                                                   \
            target.function ? ((__typeof__(type) *)target.function)(__VA_ARGS__) : MPI_ERR_INTERN; \
        nested = outer;                                                                            \
    } while (0)

WRAPPED int MPI_Init(int *argc, char ***argv)
{
    static gw__link_t link = {.name = "MPI_Init"};
    static __thread bool nested;
    int rc;
    bool ours = gw__job_prepare();
    HAND_OVER(rc, &link, nested, MPI_Init, argc, argv);
    if (ours && rc == MPI_SUCCESS)
        gw__job_start();
    return rc;
}

WRAPPED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    static gw__link_t link = {.name = "MPI_Init_thread"};
    static __thread bool nested;
    int rc;
    bool ours = gw__job_prepare();
    HAND_OVER(rc, &link, nested, MPI_Init_thread, argc, argv, required, provided);
    if (ours && rc == MPI_SUCCESS)
        gw__job_start();
    return rc;
}

WRAPPED int MPI_Finalize(void)
{
    static gw__link_t link = {.name = "MPI_Finalize"};
    static __thread bool nested;
    int rc;
    gw__job_finish();
    HAND_OVER(rc, &link, nested, MPI_Finalize, );
    return rc;
}

/* The process may end inside, without the exit handlers that write the figures otherwise. */
WRAPPED int MPI_Abort(MPI_Comm comm, int code)
{
    static gw__link_t link = {.name = "MPI_Abort"};
    static __thread bool nested;
    int rc;
    gw__job_abort();
    HAND_OVER(rc, &link, nested, MPI_Abort, comm, code);
    return rc;
}

/* MPI deletes our attribute under a lock of all its attributes, and closing may wait for peers:
 * close first. */
static void close_comm(const MPI_Comm *comm)
{
    if (gw__job_active() && comm && *comm != gw__abi.comm_null)
        gw__comm_close(*comm);
}

WRAPPED int MPI_Comm_free(MPI_Comm *comm)
{
    static gw__link_t link = {.name = "MPI_Comm_free"};
    static __thread bool nested;
    int rc;
    close_comm(comm);
    HAND_OVER(rc, &link, nested, MPI_Comm_free, comm);
    return rc;
}

WRAPPED int MPI_Comm_disconnect(MPI_Comm *comm)
{
    static gw__link_t link = {.name = "MPI_Comm_disconnect"};
    static __thread bool nested;
    int rc;
    close_comm(comm);
    HAND_OVER(rc, &link, nested, MPI_Comm_disconnect, comm);
    return rc;
}
