/* SPDX-License-Identifier: Apache-2.0 */
/* The rhythm of a sequence: for every period, how long the sequence has repeated itself with it. */
#ifndef GW_RHYTHM_H
#define GW_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

enum { GW__PERIOD_MAX = 1024 };

/*
 * A sequence of numbers other than 0, of which the last GW__PERIOD_MAX are looked at. Starts as
 * zeros. Run GW__PERIOD_MAX - p belongs to period p, so that runs and the past lie in one order and
 * the compiler can take them in vectors.
 */
typedef struct gw__residual_rhythm {
    uint32_t past[3 * GW__PERIOD_MAX]; /* from GW__PERIOD_MAX on; zeros before */
    int32_t run[GW__PERIOD_MAX];       /* calls in a row that equal the one a period before */
    uint32_t count;                    /* numbers in past, behind the first GW__PERIOD_MAX */
} gw__rhythm_t;

/* Appends one number; returns true when what is older than GW__PERIOD_MAX was dropped, and the rest
 * moved to the front. */
bool gw__rhythm_add(gw__rhythm_t *rhythm, uint32_t value);

/* The number `back` calls ago, 1 the newest; back <= GW__PERIOD_MAX. Meaningless when not seen yet.
 */
uint32_t gw__rhythm_past(const gw__rhythm_t *rhythm, int back);

/* Forgets the repetitions, not the past. */
void gw__rhythm_break(gw__rhythm_t *rhythm);

/* The shortest period that has held for `repeats` periods and `least` calls; with `mixed` only one
 * whose numbers are not all equal. 0: none. */
int gw__rhythm_period(const gw__rhythm_t *rhythm, int repeats, int least, bool mixed);

/* How often `value` is among the last `period`. */
int gw__rhythm_count(const gw__rhythm_t *rhythm, uint32_t value, int period);

#endif
