/* SPDX-License-Identifier: Apache-2.0 */
/* What silence in a call means, and whose it is. */
#include "clock.h"
#include "context_internal.h"
#include "engine.h"

enum {
    REACH_MS = 250,            /* between two looks at the hosts of late peers */
    LATE_WARNING_S = 10,       /* a peer that has not entered the call earns a warning after this */
    TELL_STANDSTILL_MS = 1000, /* beyond any time that computing takes between two looks */
    STANDSTILL_MS = 500        /* longer between two looks: this process was stopped or computing */
};

/* Of those that owe a message the one heard longest ago:
 * the others wait for it too, and went on a little longer. Without such, one that takes no message.
 */
int gw__engine_silent_peer(gw__engine_t *engine)
{
    int owes = -1, takes = -1;
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        const gw__round_t *round = gw__engine_round(engine, k);
        for (uint32_t i = 0; i < round->tasks; i++) {
            int peer = round->task[i].peer;
            if (round->state[i] != GW__TASK_RUNNING)
                continue;
            if (round->task[i].kind == GW__TASK_SEND)
                takes = peer;
            else if (round->task[i].kind != GW__TASK_RECV)
                continue;
            else if (owes < 0 || engine->heard[peer] < engine->heard[owes])
                owes = peer;
        }
    }
    if (owes >= 0 || takes >= 0)
        return owes >= 0 ? owes : takes;
    int open = -1; /* has had all and said so, but does not take our last message */
    for (int r = 0; r < engine->size; r++) {
        if (engine->closing[r].takes_part && !engine->closing[r].heard)
            return r;
        if (engine->closing[r].takes_part)
            open = r;
    }
    return open;
}

static void warn_late(gw__engine_t *engine, double silence)
{
    int rank = 0;
    while (rank < engine->size - 1 && (!engine->expected[rank] || engine->arrived[rank]))
        rank++;
    gw_context_log(engine->context, GW_LOG_WARN,
                   "all-reduce %llu of %zu elements: rank %d%s not entered it for %.0f s; waiting",
                   (unsigned long long)engine->call->number, engine->call->plan.count, rank,
                   engine->missing > 1 ? " and others have" : " has", silence);
    engine->told_late = true;
}

double gw__engine_standstill(const gw__engine_t *engine)
{
    int64_t since = gw__now_ns() - engine->last_look;
    int64_t longest = since > engine->standstill_ns ? since : engine->standstill_ns;
    return longest > (int64_t)TELL_STANDSTILL_MS * 1000000 ? (double)longest * 1e-9 : 0.0;
}

/* Late is who has not entered the call; but a host that does not even acknowledge is no late one.
 */
static gw_status_t judge_reach(gw__engine_t *engine, int64_t now)
{
    if (!engine->transport->reach || now < engine->next_reach)
        return GW_OK;
    engine->next_reach = now + (int64_t)REACH_MS * 1000000;
    for (int r = 0; r < engine->size; r++) {
        if (!engine->expected[r] || engine->arrived[r])
            continue;
        gw_status_t status = engine->transport->reach(engine->link, r, engine->timeout);
        if (status != GW_OK)
            return gw__engine_fail(engine, status, r,
                                   "rank %d: %s: its host has acknowledged nothing for %.1f s", r,
                                   gw_status_text(status), engine->timeout);
    }
    return GW_OK;
}

/*
 * What silence means. While a peer has not entered the call it may be evaluating or loading data:
 * that earns a warning, and excuses the others too, since they may be waiting for the same peer.
 */
gw_status_t gw__engine_judge_silence(gw__engine_t *engine)
{
    int64_t now = gw__now_ns(), step = now - engine->last_look;
    int64_t most = (int64_t)STANDSTILL_MS * 1000000, quarter = (int64_t)(engine->timeout * 0.25e9);
    most = most < quarter ? most : quarter; /* whoever stood still hears the others first */
    engine->last_look = now;
    if (step > engine->standstill_ns)
        engine->standstill_ns = step;
    engine->silence_ns += step < most ? step : most;
    double silence = (double)engine->silence_ns * 1e-9;
    if (engine->missing > 0) {
        double patience = engine->timeout < LATE_WARNING_S ? engine->timeout : LATE_WARNING_S;
        if (!engine->told_late && silence > patience)
            warn_late(engine, silence);
        return silence < engine->timeout ? GW_OK : judge_reach(engine, now);
    }
    if (silence < engine->timeout)
        return GW_OK;
    return gw__closing_blame(engine, gw__engine_silent_peer(engine), silence);
}
