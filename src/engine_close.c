/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a call: closing messages to and from every peer that took part. */
#include <stddef.h>
#include <string.h>

#include "clock.h"
#include "engine.h"
#include "frame.h"

enum {
    TURN_US = 1000,     /* longest sleep while waiting for last messages */
    ABORT_MS = 100,     /* how long abort waits until its own are out */
    ROLL_CALL_MS = 400, /* how long a rank that waits in vain listens who else does */
};

static int64_t after_ms(int ms)
{
    return gw__now_ns() + (int64_t)ms * 1000000;
}

/* Of this call, or of a later one: a round that no plan has. */
static uint64_t closing_tag(const gw__engine_t *engine, uint64_t calls_later)
{
    gw__engine_call_t call = {.number = engine->call->number + calls_later};
    return gw__engine_tag(&call, 2 * GW__PLAN_MAX_ROUNDS - 1, GW__PULL);
}

/* The same with the other stage, which it does not have either. */
static uint64_t greeting_tag(const gw__engine_t *engine)
{
    return gw__engine_tag(engine->call, 2 * GW__PLAN_MAX_ROUNDS - 1, GW__PUSH);
}

/* Awaits the greeting of a peer: until it has entered the call it is late. */
static void await_greeting(gw__engine_t *engine, int peer)
{
    gw__closing_t *c = &engine->closing[peer];
    c->greets = true;
    engine->expected[peer] = true;
    engine->missing++;
    engine->transport->recv(engine->link, peer, greeting_tag(engine), &c->in, 0, &c->greeted);
}

void gw__closing_greet(gw__engine_t *engine)
{
    for (int j = 1; j < engine->size && !engine->greeted; j++) {
        int peer = (engine->rank + j) % engine->size;
        gw__closing_t *c = &engine->closing[peer];
        if (!c->greets)
            continue;
        c->hello = true;
        engine->transport->send(engine->link, peer, greeting_tag(engine), &c->out, 0, &c->greeting);
    }
    engine->greeted = true;
}

void gw__closing_begin(gw__engine_t *engine)
{
    engine->open = 0;
    for (int r = 0; r < engine->size; r++) {
        gw__closing_t *c = &engine->closing[r];
        memset(c, 0, sizeof *c);
        c->takes_part = r != engine->rank && gw__plan_exchanges(&engine->call->plan, r);
        if (!c->takes_part)
            continue;
        engine->open++;
        engine->transport->recv(engine->link, r, closing_tag(engine, 0), &c->in, sizeof c->in,
                                &c->recv);
        if (gw__plan_relays(engine->call->plan.kind))
            await_greeting(engine, r);
    }
}

/* An empty message: all is well. */
void gw__closing_tell(gw__engine_t *engine)
{
    gw__closing_greet(engine);
    for (int j = 1; j < engine->size && engine->open > 0; j++) {
        int peer = (engine->rank + j) % engine->size;
        gw__closing_t *c = &engine->closing[peer];
        if (!c->takes_part || c->told)
            continue;
        c->told = true;
        engine->transport->send(engine->link, peer, closing_tag(engine, 0), &c->out, 0, &c->send);
    }
}

static uint32_t check_of(const gw__notice_t *notice)
{
    return gw__crc32c(0, (const uint8_t *)notice, offsetof(gw__notice_t, check));
}

static void send_notice(gw__engine_t *engine, int peer, gw_status_t status, int blamed,
                        uint64_t calls_later)
{
    gw__closing_t *c = &engine->closing[peer];
    c->told = c->noticed = true;
    c->out = (gw__notice_t){.status = status, .blamed = blamed};
    c->out.check = check_of(&c->out);
    engine->transport->send(engine->link, peer, closing_tag(engine, calls_later), &c->out,
                            sizeof c->out, &c->send);
}

/* Tells the others that this rank gives up, each once. */
static void give_notice(gw__engine_t *engine, gw_status_t status, int blamed)
{
    for (int r = 0; r < engine->size; r++)
        if (engine->closing[r].takes_part && !engine->closing[r].told)
            send_notice(engine, r, status, blamed, 0);
}

/*
 * Tells those whom this rank had told that all is well: they may have ended this call, and would
 * take this rank for late in the next one.
 */
static void give_late_notice(gw__engine_t *engine, gw_status_t status, int blamed)
{
    for (int r = 0; r < engine->size; r++) {
        const gw__closing_t *c = &engine->closing[r];
        if (r != engine->rank && !c->noticed && c->send.status != GW_IN_PROGRESS)
            send_notice(engine, r, status, blamed, 1);
    }
}

/* One turn of progress, or a short sleep. */
static void turn(gw__engine_t *engine)
{
    if (engine->transport->progress(engine->link) > 0)
        return;
    gw__engine_idle(engine);
    engine->transport->wait(engine->link, TURN_US);
}

/*
 * Somebody is silent. Who waits for the silent one is itself heard no more, so the last message
 * tells little: all who wait say so, and whoever says nothing is the one. `suspect` is blamed if
 * that leaves several, or nobody.
 */
gw_status_t gw__closing_blame(gw__engine_t *engine, int suspect, double silence)
{
    give_notice(engine, GW_ERR_TIMEOUT, -1);
    for (int64_t until = after_ms(ROLL_CALL_MS); gw__now_ns() < until;)
        turn(engine);
    int blamed = -1;
    for (int r = 0; r < engine->size; r++) {
        const gw__closing_t *c = &engine->closing[r];
        bool quiet = c->takes_part && !c->heard && c->recv.status != GW_OK;
        if (quiet && (blamed < 0 || r == suspect))
            blamed = r;
    }
    if (blamed < 0)
        blamed = suspect;
    return gw__engine_fail(engine, GW_ERR_TIMEOUT, blamed,
                           "rank %d: entered the call, then silent for %.1f s", blamed, silence);
}

/* A peer has given up. Whom it blames is blamed here too. */
static gw_status_t take_notice(gw__engine_t *engine, int peer, const gw__closing_t *c)
{
    gw_status_t why = (gw_status_t)c->in.status;
    int blamed = c->in.blamed;
    if (c->recv.length != sizeof c->in || c->in.check != check_of(&c->in))
        return gw__engine_fail(engine, GW_ERR_PEER_FAILED, peer,
                               "rank %d: gave the call up, with a damaged message", peer);
    if (why == GW_ERR_TIMEOUT && blamed < 0) {
        int suspect = gw__engine_silent_peer(engine);
        return gw__closing_blame(engine, suspect >= 0 ? suspect : peer, engine->timeout);
    }
    if (blamed < 0 || blamed >= engine->size || blamed == peer)
        return gw__engine_fail(engine, GW_ERR_PEER_FAILED, peer, "rank %d: gave the call up: %s",
                               peer, gw_status_text(why));
    bool of_peer = why <= GW_ERR_PEER_FAILED && why > GW_ERR_INTERNAL;
    return gw__engine_fail(
        engine, of_peer ? why : GW_ERR_PEER_FAILED, blamed, "rank %d%s: %s, says rank %d", blamed,
        blamed == engine->rank ? ", which is this one" : "", gw_status_text(why), peer);
}

static bool has_notice(const gw__closing_t *c)
{
    return c->takes_part && !c->heard && c->recv.status == GW_OK && c->recv.length > 0;
}

gw_status_t gw__closing_heed(gw__engine_t *engine, int peer)
{
    for (int j = 0; j < engine->size; j++) {
        int r = (peer + j) % engine->size;
        gw__closing_t *c = &engine->closing[r];
        if (!has_notice(c))
            continue;
        c->heard = true;
        return take_notice(engine, r, c);
    }
    return GW_OK;
}

/* A closing message that the transport could not carry. */
static gw_status_t take_error(gw__engine_t *engine, int peer, gw_status_t error)
{
    gw_status_t status = gw__closing_heed(engine, peer);
    if (status != GW_OK)
        return status;
    return gw__engine_fail(engine, error, peer, "rank %d: %s", peer, gw_status_text(error));
}

/* Takes in the greeting of a peer; *moved is set when it is new. */
static gw_status_t look_for_greeting(gw__engine_t *engine, int peer, bool *moved)
{
    gw__closing_t *c = &engine->closing[peer];
    const gw_request_t *failed = c->greeted.status < GW_OK    ? &c->greeted
                                 : c->greeting.status < GW_OK ? &c->greeting
                                                              : NULL;
    if (failed)
        return take_error(engine, peer, failed->status);
    if (c->came || c->greeted.status == GW_IN_PROGRESS)
        return GW_OK;
    c->came = *moved = true;
    gw__engine_heard(engine, peer);
    return GW_OK;
}

/* Whether the greetings, where there are any, are there and gone. */
static bool greeted(const gw__closing_t *c)
{
    return !c->greets || (c->came && c->hello && c->greeting.status == GW_OK);
}

/* Said that all is well, and then took no message any more. */
static bool has_left(const gw__closing_t *c)
{
    return c->heard && c->told && c->send.status < GW_OK;
}

/*
 * Whether other peers than those that have left are still to be heard of. Whoever leaves before it
 * took the last message has most likely been failed by one of them, which then is to blame.
 */
static bool waits_for_others(const gw__engine_t *engine)
{
    for (int r = 0; r < engine->size; r++)
        if (engine->closing[r].takes_part && !has_left(&engine->closing[r]))
            return true;
    return false;
}

/* Looks at one peer's messages; *moved is set when one of them is new. */
static gw_status_t look(gw__engine_t *engine, int peer, bool *moved)
{
    gw__closing_t *c = &engine->closing[peer];
    bool heard = c->heard;
    gw_status_t status = c->greets ? look_for_greeting(engine, peer, moved) : GW_OK;
    if (status != GW_OK)
        return status;
    if (!c->heard && c->recv.status != GW_IN_PROGRESS) {
        if (c->recv.status != GW_OK)
            return take_error(engine, peer, c->recv.status);
        c->heard = true;
        gw__engine_heard(engine, peer);
        if (c->recv.length > 0)
            return take_notice(engine, peer, c);
    }
    if (has_left(c) && waits_for_others(engine))
        return GW_OK;
    if (c->told && c->send.status < GW_OK)
        return take_error(engine, peer, c->send.status);
    bool over = c->heard && c->told && c->send.status == GW_OK && greeted(c);
    *moved |= over || c->heard != heard;
    if (over) {
        c->takes_part = false;
        engine->open--;
    }
    return GW_OK;
}

gw_status_t gw__closing_step(gw__engine_t *engine, bool *moved)
{
    gw_status_t status = GW_OK;
    for (int r = 0; r < engine->size && status == GW_OK; r++)
        if (engine->closing[r].takes_part)
            status = look(engine, r, moved);
    return status;
}

static bool under_way(const gw__engine_t *engine)
{
    for (int r = 0; r < engine->size; r++)
        if (engine->closing[r].told && engine->closing[r].send.status == GW_IN_PROGRESS)
            return true;
    return false;
}

static void wait_for_notices(gw__engine_t *engine)
{
    for (int64_t until = after_ms(ABORT_MS); under_way(engine) && gw__now_ns() < until;)
        turn(engine);
}

/* Whoever failed is told as well: it may live and be the one with the broken route. */
void gw__closing_abort(gw__engine_t *engine, gw_status_t status)
{
    if (engine->open == 0)
        return;
    give_notice(engine, status, engine->failed_rank);
    wait_for_notices(engine);
    give_late_notice(engine, status, engine->failed_rank);
    wait_for_notices(engine);
    for (int r = 0; r < engine->size; r++) {
        gw__closing_t *c = &engine->closing[r];
        if (c->takes_part)
            engine->transport->cancel(engine->link, &c->recv);
        if (c->takes_part && c->greets)
            engine->transport->cancel(engine->link, &c->greeted);
        if (c->takes_part && c->hello)
            engine->transport->cancel(engine->link, &c->greeting);
        if (c->told)
            engine->transport->cancel(engine->link, &c->send);
    }
}
