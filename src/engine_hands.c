/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's workers: computing tasks that other threads do while the engine moves data. */
#include "engine.h"

#include <sched.h>

/* Elements of a call from which on it borrows workers: below, waking one takes as long as the
 * computing. */
enum { LEAST_ELEMENTS = 128 * 1024 };

void gw__hands_borrow(gw__engine_t *engine)
{
    const gw__plan_t *plan = &engine->call->plan;
    engine->hands = 0;
    if (!engine->pool || plan->count < LEAST_ELEMENTS || engine->call->gpu)
        return;
    int wanted = engine->hands_max < GW__HANDS ? engine->hands_max : GW__HANDS;
    while (engine->hands < wanted) {
        gw__worker_t *worker = gw__pool_borrow(engine->pool);
        if (!worker)
            return;
        engine->hand[engine->hands++] = (gw__hand_t){.engine = engine, .worker = worker};
    }
}

static void compute(void *arg)
{
    gw__hand_t *hand = arg;
    gw__engine_compute(hand->engine, hand->round, &hand->round->task[hand->task], &hand->outcome);
}

bool gw__hands_offer(gw__engine_t *engine, gw__round_t *round, uint32_t task)
{
    for (int h = 0; h < engine->hands; h++) {
        gw__hand_t *hand = &engine->hand[h];
        if (hand->busy)
            continue;
        hand->round = round;
        hand->task = task;
        hand->busy = true;
        gw__worker_start(hand->worker, compute, hand);
        return true;
    }
    return false;
}

bool gw__hands_collect(gw__engine_t *engine, gw_status_t *status)
{
    bool any = false;
    *status = GW_OK;
    for (int h = 0; h < engine->hands && *status == GW_OK; h++) {
        gw__hand_t *hand = &engine->hand[h];
        if (!hand->busy || !gw__worker_done(hand->worker))
            continue;
        hand->busy = false;
        any = true;
        *status = gw__engine_computed(engine, hand->round, hand->task, h + 1, &hand->outcome);
    }
    return any;
}

bool gw__hands_busy(const gw__engine_t *engine)
{
    for (int h = 0; h < engine->hands; h++)
        if (engine->hand[h].busy)
            return true;
    return false;
}

void gw__hands_dismiss(gw__engine_t *engine)
{
    for (int h = 0; h < engine->hands; h++) {
        gw__hand_t *hand = &engine->hand[h];
        while (hand->busy && !gw__worker_done(hand->worker))
            sched_yield();
        gw__worker_return(hand->worker);
    }
    engine->hands = 0;
}
