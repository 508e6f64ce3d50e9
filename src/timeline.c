/* SPDX-License-Identifier: Apache-2.0 */
/* What happened when in one call: recorded by the engine, drawn as text. */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 512 };

gw__timeline_t *gw__timeline_new(size_t capacity)
{
    if (capacity > (SIZE_MAX - sizeof(gw__timeline_t)) / sizeof(gw__event_t))
        return NULL;
    gw__timeline_t *timeline = calloc(1, sizeof *timeline + capacity * sizeof(gw__event_t));
    if (timeline)
        timeline->capacity = capacity;
    return timeline;
}

void gw__timeline_begin(gw__timeline_t *timeline, int64_t now_ns, bool relays)
{
    timeline->relays = relays;
    timeline->count = timeline->dropped = 0;
    timeline->begin_ns = now_ns;
    timeline->end_ns = 0;
}

void gw__timeline_add(gw__timeline_t *timeline, const gw__event_t *event)
{
    if (timeline->count == timeline->capacity)
        timeline->dropped++;
    else
        timeline->event[timeline->count++] = *event;
}

static bool is_message(const gw__event_t *e)
{
    return e->kind == GW__TASK_SEND || e->kind == GW__TASK_RECV;
}

static bool is_encode(const gw__event_t *e)
{
    return e->kind == GW__TASK_ENCODE || e->kind == GW__TASK_SUM_ENCODE ||
           e->kind == GW__TASK_REDUCE_ENCODE;
}

/* The rows of the drawing: computing by lane and direction, messages by peer and direction. */
typedef struct row {
    const char *name;
    bool (*takes)(const gw__event_t *e);
    int number; /* lane or peer */
} row_t;

static bool takes_encode(const gw__event_t *e)
{
    return is_encode(e);
}

static bool takes_decode(const gw__event_t *e)
{
    return !is_message(e) && !is_encode(e);
}

static bool takes_send(const gw__event_t *e)
{
    return e->kind == GW__TASK_SEND;
}

static bool takes_recv(const gw__event_t *e)
{
    return e->kind == GW__TASK_RECV;
}

static int number_of(const gw__event_t *e)
{
    return is_message(e) ? e->peer : e->lane;
}

static int column(const gw__timeline_t *t, int64_t ns, int width)
{
    int64_t at = (ns - t->begin_ns) * width / (t->end_ns - t->begin_ns);
    return at < 0 ? 0 : at >= width ? width - 1 : (int)at;
}

/* Nothing when the row has no event. */
static void print_row(const gw__timeline_t *t, const row_t *row, int width, FILE *out)
{
    char line[WIDTH_MAX + 1];
    bool any = false;
    memset(line, '.', (size_t)width);
    line[width] = '\0';
    for (size_t i = 0; i < t->count; i++) {
        const gw__event_t *e = &t->event[i];
        if (!row->takes(e) || number_of(e) != row->number)
            continue;
        any = true;
        int from = column(t, e->begin_ns, width), to = column(t, e->end_ns, width);
        if (e->kind == GW__TASK_RECV)
            from = to; /* it was posted long before: when it came is what tells */
        memset(line + from, '0' + (int)(e->round % 10), (size_t)(to - from + 1));
    }
    if (any)
        fprintf(out, "%-8s %3d |%s|\n", row->name, row->number, line);
}

static int highest_number(const gw__timeline_t *t)
{
    int highest = 0;
    for (size_t i = 0; i < t->count; i++)
        highest = number_of(&t->event[i]) > highest ? number_of(&t->event[i]) : highest;
    return highest;
}

static int by_begin(const void *a, const void *b)
{
    const gw__event_t *x = a, *y = b;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

static int by_exchange(const void *a, const void *b)
{
    const gw__event_t *x = a, *y = b;
    if (x->peer != y->peer)
        return x->peer < y->peer ? -1 : 1;
    return x->round < y->round ? -1 : x->round > y->round;
}

/*
 * An exchange: from the first frame that this rank sends a peer in a round until the last one of
 * the round from there has come; in plans that relay, of all peers together. A transport calls a
 * send done when it has a copy, so its end says nothing of the wire; the peer's frame does. Writes
 * the exchanges over the events, returns their number.
 */
static size_t find_exchanges(gw__event_t *event, size_t count)
{
    size_t messages = 0, exchanges = 0;
    for (size_t i = 0; i < count; i++)
        if (is_message(&event[i]))
            event[messages++] = event[i];
    qsort(event, messages, sizeof *event, by_exchange);
    for (size_t i = 0; i < messages;) {
        gw__event_t whole = {.begin_ns = INT64_MAX};
        size_t first = i;
        for (; i < messages && by_exchange(&event[first], &event[i]) == 0; i++) {
            if (takes_send(&event[i]) && event[i].begin_ns < whole.begin_ns)
                whole.begin_ns = event[i].begin_ns;
            if (event[i].end_ns > whole.end_ns)
                whole.end_ns = event[i].end_ns;
        }
        if (whole.begin_ns < whole.end_ns)
            event[exchanges++] = whole;
    }
    qsort(event, exchanges, sizeof *event, by_begin);
    return exchanges;
}

/* Nanoseconds of `e` inside the exchanges, which overlap and are in order of their beginning. */
static int64_t inside(const gw__event_t *e, const gw__event_t *exchange, size_t count)
{
    int64_t at = e->begin_ns, sum = 0;
    for (size_t i = 0; i < count && at < e->end_ns; i++) {
        int64_t from = exchange[i].begin_ns > at ? exchange[i].begin_ns : at;
        int64_t to = exchange[i].end_ns < e->end_ns ? exchange[i].end_ns : e->end_ns;
        if (to > from) {
            sum += to - from;
            at = to;
        }
    }
    return sum;
}

static void print_share(const gw__timeline_t *t, const gw__event_t *exchange, size_t exchanges,
                        const char *name, bool (*part)(const gw__event_t *), FILE *out)
{
    int64_t whole = 0, covered = 0;
    for (size_t i = 0; i < t->count; i++) {
        const gw__event_t *e = &t->event[i];
        if (!part(e))
            continue;
        whole += e->end_ns - e->begin_ns;
        covered += inside(e, exchange, exchanges);
    }
    fprintf(out, "%s: %.3f ms, %.0f %% of it while frames were on their way\n", name,
            (double)whole * 1e-6, whole ? 100.0 * (double)covered / (double)whole : 0.0);
}

void gw__timeline_print(const gw__timeline_t *t, int width, FILE *out)
{
    static const row_t rows[] = {{"encode", takes_encode, 0},
                                 {"send to", takes_send, 0},
                                 {"recv of", takes_recv, 0},
                                 {"decode", takes_decode, 0}};
    if (t->count == 0 || t->end_ns <= t->begin_ns) {
        fputs("timeline: nothing was recorded\n", out);
        return;
    }
    width = width < 16 ? 16 : width > WIDTH_MAX ? WIDTH_MAX : width;
    fprintf(out, "timeline of %.3f ms; a column is %.1f us, a digit the round\n",
            (double)(t->end_ns - t->begin_ns) * 1e-6,
            (double)(t->end_ns - t->begin_ns) * 1e-3 / width);
    int highest = highest_number(t);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int n = 0; n <= highest; n++) {
            row_t row = rows[r];
            row.number = n;
            print_row(t, &row, width, out);
        }
    gw__event_t *exchange = malloc(t->count * sizeof *exchange);
    if (!exchange)
        return;
    memcpy(exchange, t->event, t->count * sizeof *exchange);
    for (size_t i = 0; i < t->count && t->relays; i++)
        exchange[i].peer = 0;
    size_t exchanges = find_exchanges(exchange, t->count);
    print_share(t, exchange, exchanges, "encode", takes_encode, out);
    print_share(t, exchange, exchanges, "decode", takes_decode, out);
    free(exchange);
    if (t->dropped)
        fprintf(out, "%zu later events had no room\n", t->dropped);
}
