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

void gw__timeline_begin(gw__timeline_t *timeline, int64_t now_ns)
{
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

/*
 * Nanoseconds of `part` while a sent frame was on its way. The sends' times are joined to stretches
 * first, for they overlap; events are in order of their beginning.
 */
static int64_t under_wire(const gw__event_t *event, size_t count, bool (*part)(const gw__event_t *),
                          int64_t *whole)
{
    int64_t covered = 0;
    *whole = 0;
    for (size_t i = 0; i < count; i++)
        *whole += part(&event[i]) ? event[i].end_ns - event[i].begin_ns : 0;
    for (size_t s = 0; s < count;) {
        if (!takes_send(&event[s])) {
            s++;
            continue;
        }
        int64_t from = event[s].begin_ns, to = event[s].end_ns;
        for (s++; s < count && (!takes_send(&event[s]) || event[s].begin_ns <= to); s++)
            if (takes_send(&event[s]) && event[s].end_ns > to)
                to = event[s].end_ns;
        for (size_t i = 0; i < count; i++) {
            int64_t a = event[i].begin_ns > from ? event[i].begin_ns : from;
            int64_t b = event[i].end_ns < to ? event[i].end_ns : to;
            covered += part(&event[i]) && b > a ? b - a : 0;
        }
    }
    return covered;
}

static void print_share(const gw__event_t *event, size_t count, const char *name,
                        bool (*part)(const gw__event_t *), FILE *out)
{
    int64_t whole, covered = under_wire(event, count, part, &whole);
    fprintf(out, "%s: %.3f ms, %.0f %% of it while a frame of this rank was on its way\n", name,
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
    gw__event_t *sorted = malloc(t->count * sizeof *sorted);
    if (!sorted)
        return;
    memcpy(sorted, t->event, t->count * sizeof *sorted);
    qsort(sorted, t->count, sizeof *sorted, by_begin);
    print_share(sorted, t->count, "encode", takes_encode, out);
    print_share(sorted, t->count, "decode", takes_decode, out);
    free(sorted);
    if (t->dropped)
        fprintf(out, "%zu later events had no room\n", t->dropped);
}
