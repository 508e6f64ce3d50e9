/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped MPI_Allreduce: describes the call, asks for the decision, then compresses or hands
 * over. */
#include "preload.h"

typedef struct arguments {
    const void *send;
    void *recv;
    int count;
    MPI_Datatype datatype;
    MPI_Op op;
    MPI_Comm comm;
} arguments_t;

/* This thread is in the tool next in line: what comes back from there is no call of the
 * application's. */
static __thread bool nested;

static int hand_over(const arguments_t *a)
{
    static gw__link_t link = {.name = "MPI_Allreduce"};
    gw__target_t target = gw__target(&link, nested);
    if (!target.function)
        return MPI_ERR_INTERN;
    bool outer = nested;
    nested = outer || !target.direct;
    int rc = ((__typeof__(MPI_Allreduce) *)target.function)(a->send, a->recv, a->count, a->datatype,
                                                            a->op, a->comm);
    nested = outer;
    return rc;
}

/* Types beyond MPI_FLOAT are told apart for the statistics only. */
static gw_dtype_t classify_dtype(MPI_Datatype datatype)
{
    if (datatype == gw__abi.float32)
        return GW_F32;
    /* The envelope of a null handle would be an error of its own, in another call than the user's.
     */
    if (datatype == gw__abi.datatype_null)
        return GW_DTYPE_OTHER;
    int integers, addresses, datatypes, combiner = MPI_COMBINER_NAMED;
    gw__pmpi.Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner);
    return combiner == MPI_COMBINER_NAMED ? GW_DTYPE_OTHER : GW_DTYPE_USER;
}

static gw_op_t classify_op(MPI_Op op)
{
    if (op == gw__abi.sum)
        return GW_SUM;
    return gw__abi_op_predefined(op) ? GW_OP_OTHER : GW_OP_USER;
}

/*
 * Calls that MPI refuses go there, so that its own error appears. Only those: a call that MPI
 * carries out would leave this rank in MPI and the others, whose buffers may be in order, in
 * Gradwire. So buffers that overlap in part, which MPI does not look for, are an error of
 * Gradwire's.
 */
static bool buffers_legal(const arguments_t *a)
{
    return a->send && a->recv && a->recv != MPI_IN_PLACE && a->send != a->recv;
}

static gw_call_t describe(const arguments_t *a)
{
    return (gw_call_t){.collective = GW_ALLREDUCE,
                       .dtype = classify_dtype(a->datatype),
                       .op = classify_op(a->op),
                       .count = (size_t)a->count,
                       .send = a->send == MPI_IN_PLACE ? NULL : a->send,
                       .recv = a->recv};
}

/* What is known of the communicator, with the place of this call. */
static gw_comm_facts_t facts_of(gw__comm_state_t *state, const gw_call_t *call)
{
    gw_comm_facts_t facts = state->facts;
    if (state->calls)
        facts.slot = gw__library.call_order_next(state->calls, call);
    return facts;
}

static gw_reason_t reason_to_pass(const arguments_t *a, const gw_decision_t *decision,
                                  gw__comm_state_t *state)
{
    if (!decision->compress)
        return decision->reason;
    if (gw__job.device_aware)
        return GW_REASON_DEVICE_MEMORY;
    if (!buffers_legal(a))
        return GW_REASON_UNSUPPORTED_CALL;
    if (state->comm || state->refusal != GW_REASON_NONE)
        return state->refusal;
    return gw__comm_open(state);
}

static int pass(const arguments_t *a, gw_reason_t reason)
{
    gw__library.context_count_passed(gw__job.context, reason);
    return hand_over(a);
}

/* An error becomes an MPI error, through the error handler that the user chose. The library has
 * logged which. */
static int compress(gw__comm_state_t *state, const gw_call_t *call, const gw_comm_facts_t *facts,
                    const gw_decision_t *decision)
{
    gw_status_t status = gw__library.allreduce_decided(state->comm, call, facts, decision);
    return status == GW_OK ? MPI_SUCCESS : gw__error_raise(state, status);
}

__attribute__((visibility("default"))) int MPI_Allreduce(const void *sendbuf, void *recvbuf,
                                                         int count, MPI_Datatype datatype,
                                                         MPI_Op op, MPI_Comm comm)
{
    arguments_t a = {sendbuf, recvbuf, count, datatype, op, comm};
    if (nested || !gw__job_active())
        return hand_over(&a);
    if (comm == gw__abi.comm_null || count < 0)
        return pass(&a, GW_REASON_UNSUPPORTED_CALL);
    gw__comm_state_t *state = gw__comm_state(comm);
    if (!state)
        return pass(&a, GW_REASON_DISABLED);
    gw_call_t call = describe(&a);
    gw_comm_facts_t facts = facts_of(state, &call);
    gw_decision_t decision = gw__library.decide(gw__job.context, &call, &facts);
    gw_reason_t reason = reason_to_pass(&a, &decision, state);
    if (reason == GW_REASON_NONE)
        return compress(state, &call, &facts, &decision);
    return pass(&a, reason);
}
