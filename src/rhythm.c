/* SPDX-License-Identifier: Apache-2.0 */
/* The rhythm of a sequence: for every period, how long the sequence has repeated itself with it. */
#include "rhythm.h"

#include <string.h>

enum { RUN_MAX = 0x3FFFFFFF };

/* Extends or ends all runs; `before` is the past of as many numbers as there are runs. */
static void extend(int32_t *restrict run, const uint32_t *restrict before, uint32_t value)
{
    for (int q = 0; q < GW__PERIOD_MAX; q++) {
        int32_t longer = run[q] + (run[q] < RUN_MAX);
        run[q] = before[q] == value ? longer : 0;
    }
}

bool gw__rhythm_add(gw__rhythm_t *r, uint32_t value)
{
    bool moved = r->count == 2 * GW__PERIOD_MAX;
    if (moved) {
        memmove(r->past + GW__PERIOD_MAX, r->past + 2 * GW__PERIOD_MAX,
                GW__PERIOD_MAX * sizeof r->past[0]);
        r->count = GW__PERIOD_MAX;
    }
    extend(r->run, r->past + r->count, value);
    r->past[GW__PERIOD_MAX + r->count++] = value;
    return moved;
}

uint32_t gw__rhythm_past(const gw__rhythm_t *r, int back)
{
    return r->past[GW__PERIOD_MAX + r->count - (uint32_t)back];
}

void gw__rhythm_break(gw__rhythm_t *r)
{
    memset(r->run, 0, sizeof r->run);
}

int gw__rhythm_period(const gw__rhythm_t *r, int repeats, int least, bool mixed)
{
    /* The last `equal` numbers are all the same. */
    int equal = mixed ? r->run[GW__PERIOD_MAX - 1] + 1 : 0;
    for (int p = equal + 1; p <= GW__PERIOD_MAX; p++) {
        int32_t run = r->run[GW__PERIOD_MAX - p];
        if (run >= least && run / repeats >= p)
            return p;
    }
    return 0;
}

int gw__rhythm_count(const gw__rhythm_t *r, uint32_t value, int period)
{
    int count = 0;
    for (int p = 1; p <= period; p++)
        count += gw__rhythm_past(r, p) == value;
    return count;
}
