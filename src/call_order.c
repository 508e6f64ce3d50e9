/* SPDX-License-Identifier: Apache-2.0 */
/* The order of calls: the place of a call within the sequence of kinds of calls that repeats. */
#include <stdlib.h>
#include <string.h>

#include <gradwire/context.h>

#include "hash.h"
#include "rhythm.h"

/* A sequence counts when it has repeated itself twice, that is, was seen three times; one of calls
 * that are all alike only when it cannot be the beginning of another. */
enum { REPEATS = 2, ALL_ALIKE = GW__PERIOD_MAX - 1 };

struct gw_call_order {
    gw__rhythm_t rhythm;
    uint32_t kind[GW__PERIOD_MAX]; /* the numbered sequence */
    bool repeated[GW__PERIOD_MAX]; /* whether this kind occurs in it more than once */
    int period;                    /* its length; 0: none yet */
    int place;                     /* of the call that is expected next, from 0 */
    bool lost;                     /* whether `place` may be wrong */
    int64_t seen, strange;         /* calls; the last ones that are not of the sequence */
};

gw_status_t gw_call_order_create(gw_call_order_t **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? GW_OK : GW_ERR_NO_MEMORY;
}

void gw_call_order_free(gw_call_order_t *order)
{
    free(order);
}

/* Never 0, which the rhythm takes for nothing. */
static uint32_t kind_of(const gw_call_t *call)
{
    uint64_t h = gw__mix64((uint64_t)call->collective << 16 ^ (uint64_t)call->op << 8 ^
                           (uint64_t)call->dtype);
    return (uint32_t)gw__mix64(h ^ call->count) | 1;
}

/* Numbers the sequence of `period` calls that ends with the newest one. Its first call is where the
 * repetition began, `run` + `period` calls ago. */
static void adopt(gw_call_order_t *order, int period, int64_t run)
{
    int done = (int)(run % period); /* calls since the sequence began anew; 0: a whole one */
    order->period = period;
    for (int i = 0; i < period; i++)
        order->kind[i] = gw__rhythm_past(&order->rhythm, done - i + (i < done ? 0 : period));
    for (int i = 0; i < period; i++) {
        order->repeated[i] = false;
        for (int j = 0; j < period && !order->repeated[i]; j++)
            order->repeated[i] = j != i && order->kind[j] == order->kind[i];
    }
    order->place = done;
    order->lost = false;
    order->strange = 0;
}

/* Looks for a sequence, as long as none is known or the known one is not seen any more. */
static bool look(gw_call_order_t *order)
{
    int period = gw__rhythm_period(&order->rhythm, REPEATS, 1, true);
    if (period == 0)
        period = gw__rhythm_period(&order->rhythm, REPEATS, ALL_ALIKE, false);
    if (period == 0 || (order->period > 0 && order->strange < (REPEATS + 1) * (int64_t)period))
        return false;
    adopt(order, period, order->rhythm.run[GW__PERIOD_MAX - period]);
    return true;
}

/* Whether the last whole sequence ended with this call. */
static bool completed(const gw_call_order_t *order)
{
    for (int i = 0; i < order->period; i++)
        if (gw__rhythm_past(&order->rhythm, i + 1) != order->kind[order->period - 1 - i])
            return false;
    return order->seen >= order->period;
}

/* The place of a call in the sequence, from 0, or -1. */
static int place_of(gw_call_order_t *order, uint32_t kind)
{
    int found = -1;
    if (!order->lost && order->kind[order->place] == kind)
        return order->place;
    for (int i = 0; i < order->period && found < 0; i++)
        if (order->kind[i] == kind)
            found = i;
    if (found < 0) /* an extra call: what is expected is expected still */
        return -1;
    if (!order->repeated[found])
        return found;
    order->lost = !completed(order);
    return order->lost ? -1 : order->period - 1;
}

long gw_call_order_next(gw_call_order_t *order, const gw_call_t *call)
{
    if (!order)
        return 0;
    uint32_t kind = kind_of(call);
    gw__rhythm_add(&order->rhythm, kind);
    order->seen++;
    int place = order->period > 0 ? place_of(order, kind) : -1;
    if (place >= 0) {
        order->place = (place + 1) % order->period;
        order->lost = false;
        order->strange = 0;
        return place + 1;
    }
    order->strange++;
    return !look(order) ? 0 : order->place > 0 ? order->place : order->period;
}
