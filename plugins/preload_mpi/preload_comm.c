/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State per communicator, held as an attribute of MPI's communicator. MPI then tells when the
 * communicator goes, by whatever call, so a new one at the same address never meets old state; and
 * as the attribute has no copy function that copies, duplicates start afresh.
 */
#include "preload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gw__comm_state_t *first; /* all states, for MPI_Finalize */
static uint32_t identified; /* communicators identified so far with this process as their rank 0 */

static void enlist(gw__comm_state_t *state)
{
    pthread_mutex_lock(&lock);
    state->next = first;
    if (first)
        first->previous = state;
    first = state;
    pthread_mutex_unlock(&lock);
}

static void delist(gw__comm_state_t *state)
{
    pthread_mutex_lock(&lock);
    if (state->next)
        state->next->previous = state->previous;
    if (state->previous)
        state->previous->next = state->next;
    else
        first = state->next;
    pthread_mutex_unlock(&lock);
}

static void close_state(gw__comm_state_t *state)
{
    gw_comm_t *comm = state->comm;
    state->comm = NULL;
    if (comm)
        gw__library.comm_free(comm);
}

static int no_copy(MPI_Comm old, int keyval, void *extra, void *in, void *out, int *flag)
{
    *flag = 0;
    return MPI_SUCCESS;
}

static int delete_state(MPI_Comm comm, int keyval, void *value, void *extra)
{
    gw__comm_state_t *state = value;
    delist(state);
    close_state(state);
    gw__library.call_order_free(state->calls);
    free(state);
    return MPI_SUCCESS;
}

bool gw__comm_states_open(void)
{
    return gw__pmpi.Comm_create_keyval(no_copy, delete_state, &gw__job.keyval, NULL) == MPI_SUCCESS;
}

/*
 * Closing may wait a moment for the peers to close as well. Threads may have opened communicators
 * in another order elsewhere; all ranks close in one order, so no circle of waiting comes about.
 */
void gw__comm_states_close(void)
{
    for (;;) {
        gw__comm_state_t *lowest = NULL;
        pthread_mutex_lock(&lock);
        for (gw__comm_state_t *state = first; state; state = state->next)
            if (state->comm && (!lowest || state->order < lowest->order))
                lowest = state;
        pthread_mutex_unlock(&lock);
        if (!lowest)
            return;
        close_state(lowest);
    }
}

/* Whether all ranks belong to this job's MPI_COMM_WORLD, whose settings were compared. Ranks of a
 * spawned job were not. */
static bool within_job(MPI_Comm comm, int size)
{
    MPI_Group group, world;
    if (comm == gw__abi.world)
        return true;
    if (gw__pmpi.Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    bool within = gw__pmpi.Comm_group(gw__abi.world, &world) == MPI_SUCCESS;
    if (within) {
        for (int rank = 0; within && rank < size; rank++) {
            int translated = MPI_UNDEFINED;
            gw__pmpi.Group_translate_ranks(group, 1, &rank, world, &translated);
            within = translated != MPI_UNDEFINED;
        }
        gw__pmpi.Group_free(&world);
    }
    gw__pmpi.Group_free(&group);
    return within;
}

static void collect_facts(MPI_Comm comm, gw_comm_facts_t *facts)
{
    int inter = 0;
    gw__pmpi.Comm_test_inter(comm, &inter);
    gw__pmpi.Comm_size(comm, &facts->size);
    facts->intercomm = inter != 0;
    facts->mismatch = gw__job.mismatch || (!inter && !within_job(comm, facts->size));
}

/*
 * Order and name of the communicator, equal on all ranks: names and counts of a rank's own may
 * differ between ranks and change later, so rank 0's count, those of the communicator's first call.
 * All ranks are in the same call here. Rank 0's place in the job and its count make a number that
 * no other communicator has.
 */
static void identify(gw__comm_state_t *state)
{
    struct {
        uint64_t order;
        uint32_t number;
        char name[MPI_MAX_OBJECT_NAME];
    } identity = {0};
    int length = 0;
    if (state->identified)
        return;
    pthread_mutex_lock(&lock);
    identity.number = identified++;
    pthread_mutex_unlock(&lock);
    identity.order = (uint64_t)(uint32_t)gw__job.rank << 32 | identity.number;
    if (gw__pmpi.Comm_get_name(state->handle, identity.name, &length) != MPI_SUCCESS)
        identity.name[0] = '\0';
    gw__pmpi.Bcast(&identity, (int)sizeof identity, gw__abi.byte, 0, state->handle);
    memcpy(state->name, identity.name, sizeof state->name);
    state->order = identity.order;
    state->facts.order = identity.number;
    state->facts.name = state->name;
    state->identified = true;
}

/* What the rules want to know of a communicator and its calls. False: no memory. */
static bool meet_rules(gw__comm_state_t *state)
{
    unsigned facts = gw__library.rule_facts(gw__job.context);
    if (state->facts.intercomm || state->facts.mismatch || state->facts.size <= 1)
        return true;
    if ((facts & GW_RULE_SLOT) && gw__library.call_order_create(&state->calls) != GW_OK)
        return false;
    if (facts & GW_RULE_COMM)
        identify(state);
    return true;
}

gw__comm_state_t *gw__comm_state(MPI_Comm handle)
{
    void *value = NULL;
    int found = 0;
    gw__pmpi.Comm_get_attr(handle, gw__job.keyval, &value, &found);
    if (found)
        return value;
    gw__comm_state_t *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->handle = handle;
    collect_facts(handle, &state->facts);
    enlist(state);
    if (gw__pmpi.Comm_set_attr(handle, gw__job.keyval, state) != MPI_SUCCESS) {
        delist(state);
        free(state);
        return NULL;
    }
    return meet_rules(state) ? state : NULL;
}

/* All ranks of the user's communicator are inside the same call of his, so its own all-gather is
 * safe here. */
static gw_status_t allgather(void *arg, const void *own, void *all, size_t bytes)
{
    gw__comm_state_t *state = arg;
    int rc = gw__pmpi.Allgather(own, (int)bytes, gw__abi.byte, all, (int)bytes, gw__abi.byte,
                                state->handle);
    return rc == MPI_SUCCESS ? GW_OK : GW_ERR_PEER_FAILED;
}

/*
 * While this rank waits inside a call of ours, a peer may wait for MPI on this rank before it
 * enters the call: for the rest of a message, for a step of a non-blocking collective. Any call of
 * MPI that looks for something makes it go on; this one takes nothing away, as nobody else can send
 * here.
 */
static void progress_mpi(void *arg)
{
    int found;
    (void)arg;
    gw__pmpi.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, gw__abi.self, &found, MPI_STATUS_IGNORE);
}

gw_reason_t gw__comm_open(gw__comm_state_t *state)
{
    gw_comm_params_t params = {.size = state->facts.size,
                               .allgather = allgather,
                               .allgather_arg = state,
                               .idle = progress_mpi,
                               .mpi_comm = &state->handle};
    gw__pmpi.Comm_rank(state->handle, &params.rank);
    identify(state);
    if (state->name[0])
        params.name = state->name;
    gw_status_t status = gw__library.comm_create(gw__job.context, &params, &state->comm);
    if (status == GW_OK)
        return GW_REASON_NONE;
    /* All ranks got the same status, so all take this way. */
    state->comm = NULL;
    state->refusal = status == GW_ERR_SETTINGS_DIFFER ? GW_REASON_MISMATCH : GW_REASON_DISABLED;
    return state->refusal;
}

void gw__comm_close(MPI_Comm handle)
{
    void *value = NULL;
    int found = 0;
    gw__pmpi.Comm_get_attr(handle, gw__job.keyval, &value, &found);
    if (found)
        close_state(value);
}
