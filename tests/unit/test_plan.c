/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as data: what every rank's tasks say, whether they fit together, and what any order of
 * execution makes of them. */
#include <string.h>

#include "gw_test.h"
#include "plan.h"

enum { RANKS = 64, TASKS = 7 * RANKS + 3, WINDOW = 6 };

/* All ranks' tasks of one round. */
typedef struct round_tasks {
    uint32_t count[RANKS];
    gw__task_t task[RANKS][TASKS];
    bool before[TASKS][TASKS]; /* of the rank under check: before[i][j]: j comes before i */
} round_tasks_t;

typedef struct shape {
    gw_plan_kind_t kind;
    int size;
    size_t count, grain, chunk;
    bool reduces;
} shape_t;

/* The plan kinds, and whether a shard is added and encoded by one task. */
static const struct variant {
    gw_plan_kind_t kind;
    bool reduces;
} variants[] = {{GW_PLAN_DIRECT, false},
                {GW_PLAN_DIRECT, true},
                {GW_PLAN_GATHER, false},
                {GW_PLAN_RING, false},
                {GW_PLAN_TREE, false}};
enum { VARIANTS = 5 };

static char message[512];
#define WRONG(...) (snprintf(message, sizeof message, __VA_ARGS__), message)

static bool produces(const gw__task_t *t)
{
    return t->kind == GW__TASK_ENCODE || t->kind == GW__TASK_SUM_ENCODE ||
           t->kind == GW__TASK_REDUCE_ENCODE || t->kind == GW__TASK_RECV;
}

static bool adds(const gw__task_t *t)
{
    return t->kind == GW__TASK_COPY || t->kind == GW__TASK_DECODE_ADD;
}

static bool stores(const gw__task_t *t)
{
    return t->kind == GW__TASK_SUM_STORE || t->kind == GW__TASK_DECODE_STORE ||
           t->kind == GW__TASK_MERGED_STORE;
}

static bool reads_own(const gw__task_t *t)
{
    return t->kind == GW__TASK_ENCODE || t->kind == GW__TASK_COPY ||
           t->kind == GW__TASK_REDUCE_ENCODE;
}

/* The tasks that come before, however they are written down. */
static uint32_t deps(const gw__task_t *t)
{
    return t->span ? t->dep[1] - t->dep[0] + 1 : 2;
}

static uint32_t dep(const gw__task_t *t, uint32_t d)
{
    return t->span ? t->dep[0] + d : t->dep[d];
}

static bool overlap(const gw__task_t *a, const gw__task_t *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

/* What a single task must hold, and the order that the dependencies make. */
static const char *check_order(const gw__plan_t *plan, round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    uint32_t n = r->count[rank];
    for (uint32_t i = 0; i < n; i++) {
        const gw__task_t *t = &task[i];
        memset(r->before[i], 0, n);
        if (t->count == 0 || t->count > plan->chunk || t->first % plan->grain != 0 ||
            t->first > plan->count || t->count > plan->count - t->first)
            return WRONG("task %u: elements %zu + %zu", i, t->first, t->count);
        if (t->count % plan->grain != 0 && t->first + t->count != plan->count)
            return WRONG("task %u: %zu elements are no multiple of the grain", i, t->count);
        if (t->buffer >= gw__plan_max_buffers(plan->kind, plan->size) ||
            t->from >= gw__plan_max_buffers(plan->kind, plan->size))
            return WRONG("task %u: buffer %u", i, t->buffer);
        if (t->channel >= plan->channels)
            return WRONG("task %u: channel %u", i, t->channel);
        bool message_task = t->kind == GW__TASK_SEND || t->kind == GW__TASK_RECV;
        if (message_task && (t->peer < 0 || t->peer >= plan->size || t->peer == rank))
            return WRONG("task %u: peer %d", i, t->peer);
        for (uint32_t d = 0; d < deps(t); d++) {
            uint32_t before = dep(t, d);
            if (before == GW__NO_TASK)
                continue;
            if (before >= i)
                return WRONG("task %u comes after %u", i, before);
            r->before[i][before] = true;
            for (uint32_t j = 0; j < before; j++)
                r->before[i][j] |= r->before[before][j];
        }
    }
    return NULL;
}

static bool uses_frame(const gw__task_t *t)
{
    return t->kind == GW__TASK_SEND || t->kind == GW__TASK_DECODE_ADD ||
           t->kind == GW__TASK_DECODE_STORE || t->kind == GW__TASK_MERGE ||
           t->kind == GW__TASK_MERGED_STORE;
}

/* What is merged was received from that rank; merges into a frame come one after the other, and
 * before it is sent or stored. */
static const char *check_merges(const round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    for (uint32_t i = 0; i < r->count[rank]; i++) {
        bool received = false;
        if (task[i].kind != GW__TASK_MERGE)
            continue;
        for (uint32_t j = 0; j < r->count[rank]; j++) {
            if (task[j].kind == GW__TASK_RECV && task[j].buffer == task[i].from)
                received |= r->before[i][j] && task[j].peer == task[i].peer &&
                            task[j].stage == GW__PUSH && task[j].first == task[i].first &&
                            task[j].count == task[i].count;
            bool uses = uses_frame(&task[j]) && task[j].buffer == task[i].buffer && i != j;
            if (uses && !r->before[j][i] && !(task[j].kind == GW__TASK_MERGE && r->before[i][j]))
                return WRONG("task %u uses the frame that task %u merges into", j, i);
        }
        if (!received)
            return WRONG("task %u merges what was not received", i);
    }
    return NULL;
}

/* Every frame is made once, before it is used, and of the elements that its users mean. Merged ones
 * pass from one stage to the other as they are. */
static const char *check_frames(const gw__plan_t *plan, const round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    bool merges = gw__plan_merges(plan->kind);
    for (uint32_t i = 0; i < r->count[rank]; i++) {
        int producers = 0;
        bool uses = uses_frame(&task[i]);
        if (!uses && !produces(&task[i]))
            continue;
        for (uint32_t j = 0; j < r->count[rank]; j++) {
            if (!produces(&task[j]) || task[j].buffer != task[i].buffer)
                continue;
            producers++;
            if (uses &&
                (!r->before[i][j] || task[j].first != task[i].first ||
                 task[j].count != task[i].count || (!merges && task[j].stage != task[i].stage)))
                return WRONG("task %u uses the frame of task %u wrongly", i, j);
        }
        if (producers != 1)
            return WRONG("task %u: its frame is made by %d tasks", i, producers);
    }
    return NULL;
}

/* One sum: every rank once, in order, each after the one before; used only when complete. */
static const char *check_sum(const gw__plan_t *plan, const round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    int next = 0;
    uint32_t last = GW__NO_TASK;
    for (uint32_t i = 0; i < r->count[rank]; i++) {
        bool uses = task[i].kind == GW__TASK_SUM_ENCODE || task[i].kind == GW__TASK_SUM_STORE;
        if (uses &&
            (next != plan->size || !r->before[i][last] || task[i].first != task[last].first))
            return WRONG("task %u uses a sum of %d ranks", i, next);
        if (!adds(&task[i]))
            continue;
        int from = task[i].kind == GW__TASK_COPY ? rank : task[i].peer;
        if (from != next || task[i].opens != (next == 0))
            return WRONG("task %u adds rank %d as number %d", i, from, next);
        if (last != GW__NO_TASK && (!r->before[i][last] || task[i].first != task[last].first ||
                                    task[i].count != task[last].count))
            return WRONG("task %u does not continue the sum of task %u", i, last);
        last = i;
        next++;
    }
    return next == 0 || next == plan->size ? NULL : WRONG("a sum of %d ranks", next);
}

/* One that adds and encodes: what it comes after are the contributions of all others, in order. */
static const char *check_reductions(const gw__plan_t *plan, const round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    for (uint32_t i = 0; i < r->count[rank]; i++) {
        if (task[i].kind == GW__TASK_COPY && plan->reduces)
            return WRONG("task %u adds beside a reduction", i);
        if (task[i].kind != GW__TASK_REDUCE_ENCODE)
            continue;
        if (!task[i].span || deps(&task[i]) != (uint32_t)plan->size - 1)
            return WRONG("task %u adds %u frames", i, deps(&task[i]));
        for (uint32_t d = 0; d < deps(&task[i]); d++) {
            const gw__task_t *from = &task[dep(&task[i], d)];
            if (from->kind != GW__TASK_RECV || from->stage != GW__PUSH ||
                from->peer != (int)d + ((int)d >= rank) || from->first != task[i].first ||
                from->count != task[i].count)
                return WRONG("task %u adds frame %u wrongly", i, d);
        }
    }
    return NULL;
}

/* In place, the output lies where the own elements lie: they are read before. */
static const char *check_in_place(const round_tasks_t *r, int rank)
{
    const gw__task_t *task = r->task[rank];
    for (uint32_t i = 0; i < r->count[rank]; i++)
        for (uint32_t j = 0; j < r->count[rank] && stores(&task[i]); j++)
            if (reads_own(&task[j]) && overlap(&task[i], &task[j]) && !r->before[i][j])
                return WRONG("task %u stores before task %u has read", i, j);
    return NULL;
}

/* How many messages of this kind there are; *found is one of them. */
static int find_messages(const round_tasks_t *r, int rank, gw__task_kind_t kind, int peer,
                         const gw__task_t *like, const gw__task_t **found)
{
    int count = 0;
    for (uint32_t i = 0; i < r->count[rank]; i++) {
        const gw__task_t *t = &r->task[rank][i];
        if (t->kind != kind || t->peer != peer || t->stage != like->stage ||
            t->channel != like->channel)
            continue;
        *found = t;
        count++;
    }
    return count;
}

/* A message is known by sender, receiver, round, stage and channel: one send, one receive, same
 * elements. */
static const char *check_messages(const gw__plan_t *plan, const round_tasks_t *r)
{
    for (int rank = 0; rank < plan->size; rank++)
        for (uint32_t i = 0; i < r->count[rank]; i++) {
            const gw__task_t *t = &r->task[rank][i], *other = NULL;
            if (t->kind != GW__TASK_SEND && t->kind != GW__TASK_RECV)
                continue;
            gw__task_kind_t back = t->kind == GW__TASK_SEND ? GW__TASK_RECV : GW__TASK_SEND;
            int same = find_messages(r, rank, t->kind, t->peer, t, &other);
            int answers = find_messages(r, t->peer, back, rank, t, &other);
            if (same != 1 || answers != 1)
                return WRONG("rank %d has %d %s for rank %d, which has %d", rank, same,
                             gw__task_kind_name(t->kind), t->peer, answers);
            if (other->first != t->first || other->count != t->count)
                return WRONG("rank %d and rank %d mean other elements", rank, t->peer);
        }
    return NULL;
}

static const char *check_round(const gw__plan_t *plan, round_tasks_t *r)
{
    const char *wrong = check_messages(plan, r);
    for (int rank = 0; rank < plan->size && !wrong; rank++) {
        wrong = check_order(plan, r, rank);
        wrong = wrong ? wrong : check_frames(plan, r, rank);
        wrong = wrong ? wrong : check_merges(r, rank);
        wrong = wrong ? wrong : check_sum(plan, r, rank);
        wrong = wrong ? wrong : check_reductions(plan, r, rank);
        wrong = wrong ? wrong : check_in_place(r, rank);
    }
    return wrong;
}

static void generate(const shape_t *s, uint32_t k, gw__plan_t *plan, round_tasks_t *out)
{
    for (int rank = 0; rank < s->size; rank++) {
        gw__plan_init(plan, s->kind, rank, s->size, s->count, s->grain, s->chunk);
        plan->reduces = s->reduces;
        gw_check(plan->rounds > 0 && plan->rounds * (uint64_t)plan->channels < GW__PLAN_MAX_ROUNDS,
                 "%u rounds", plan->rounds);
        gw_check(plan->chunk > 0 && plan->chunk % s->grain == 0, "chunk %zu", plan->chunk);
        /* Longer than the limits would overwrite what stands behind. */
        uint32_t limit = gw__plan_max_tasks(s->kind, s->size);
        gw_check(limit <= TASKS, "%u tasks", limit);
        out->count[rank] = gw__plan_round(plan, k, out->task[rank]);
        gw_check(out->count[rank] <= limit, "%u tasks, limit %u", out->count[rank], limit);
    }
}

static void describe(const shape_t *s, char *out, size_t size)
{
    snprintf(out, size, "%s%s of %d, count %zu, grain %zu, chunk %zu", gw_plan_name(s->kind),
             s->reduces ? ", reducing," : "", s->size, s->count, s->grain, s->chunk);
}

/* Marks an element range in a map of rounds; every element may be marked once. */
static void mark(uint32_t *map, const gw__task_t *t, uint32_t round, const char *what)
{
    for (size_t i = t->first; i < t->first + t->count; i++) {
        gw_check(map[i] == 0, "element %zu %s twice", i, what);
        map[i] = round + 1;
    }
}

/* Every round, and that each rank reads and writes each element once, both in the same round. */
static void check_all(const shape_t *s)
{
    static round_tasks_t r;
    gw__plan_t plan;
    char name[160];
    describe(s, name, sizeof name);
    uint32_t *maps = calloc(2 * (size_t)s->size * s->count, sizeof *maps);
    generate(s, 0, &plan, &r);
    for (uint32_t k = 0; k < plan.rounds; k++) {
        generate(s, k, &plan, &r);
        const char *wrong = check_round(&plan, &r);
        gw_check(!wrong, "%s, round %u: %s", name, k, wrong);
        for (int rank = 0; rank < s->size; rank++)
            for (uint32_t i = 0; i < r.count[rank]; i++) {
                const gw__task_t *t = &r.task[rank][i];
                uint32_t *map = maps + 2 * (size_t)rank * s->count;
                if (stores(t))
                    mark(map, t, k, "written");
                if (reads_own(t))
                    mark(map + s->count, t, k, "read");
            }
    }
    for (int rank = 0; rank < s->size; rank++)
        for (size_t i = 0; i < s->count; i++) {
            const uint32_t *map = maps + 2 * (size_t)rank * s->count;
            gw_check(map[i] != 0, "%s: element %zu never written by rank %d", name, i, rank);
            gw_check(map[i] == map[s->count + i], "%s: element %zu read and written in two rounds",
                     name, i);
        }
    free(maps);
}

static void for_each_shape(int size, struct variant v, void (*visit)(const shape_t *))
{
    static const size_t grains[] = {1, 8, 512};
    for (size_t g = 0; g < 3; g++) {
        size_t grain = grains[g];
        size_t counts[] = {1,
                           2,
                           7,
                           grain - 1,
                           grain,
                           grain + 1,
                           2 * grain,
                           977,
                           9 * grain + 3,
                           64 * grain,
                           65 * grain - 1};
        size_t chunks[] = {0, grain, 3 * grain + 1, 1 << 20};
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t h = 0; h < 4; h++) {
                /* Many rounds of one element say the same as a few. */
                bool too_many = counts[c] / grain > 100 && chunks[h] < 8 * grain && size > 3;
                if (counts[c] > 0 && !too_many)
                    visit(&(shape_t){v.kind, size, counts[c], grain, chunks[h], v.reduces});
            }
    }
}

START_TEST(plans_of_all_ranks_fit_together)
{
    for (int size = 2; size <= 9; size++)
        for (int v = 0; v < VARIANTS; v++)
            for_each_shape(size, variants[v], check_all);
}
END_TEST

START_TEST(plans_of_many_ranks_fit_together)
{
    for (int v = 0; v < VARIANTS; v++) {
        gw_plan_kind_t kind = variants[v].kind;
        check_all(&(shape_t){kind, 64, 1, 512, 4096, variants[v].reduces});
        check_all(&(shape_t){kind, 64, 63 * 8 + 1, 8, 8, variants[v].reduces});
        check_all(&(shape_t){kind, 64, 65 * 8 + 5, 8, 8, variants[v].reduces});
    }
}
END_TEST

/* No rounds are run here: the first, some in the middle and the last say whether anything
 * overflows. */
static void check_huge(struct variant v, int size, size_t count, size_t grain, size_t chunk)
{
    static round_tasks_t r;
    gw_plan_kind_t kind = v.kind;
    shape_t s = {kind, size, count, grain, chunk, v.reduces};
    gw__plan_t plan;
    generate(&s, 0, &plan, &r);
    uint32_t n = plan.rounds, rounds[] = {0, 1, n / 3, n / 2, n - 2, n - 1, n, n + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        generate(&s, rounds[i], &plan, &r);
        const char *wrong = check_round(&plan, &r);
        gw_check(!wrong, "count %zu round %u of %u: %s", count, rounds[i], n, wrong);
        for (int rank = 0; rank < size && rounds[i] >= n; rank++)
            gw_check(r.count[rank] == 0, "tasks behind the last round");
    }
    /* Chunks of a shard follow each other without a gap up to the next shard. */
    bool shards = kind == GW_PLAN_DIRECT || kind == GW_PLAN_RING;
    for (int shard = 0; shard < (shards ? size : 1); shard++) {
        size_t end = shards ? gw__plan_shard(&plan, shard + 1) : count;
        size_t at = shards ? gw__plan_shard(&plan, shard) : 0, first, length;
        for (uint32_t k = 0; gw__plan_chunk(&plan, shard, k, &first, &length); k++) {
            gw_check(first == at && length > 0, "shard %d chunk %u", shard, k);
            at += length;
        }
        gw_check(at == end, "shard %d ends at %zu, not %zu", shard, at, end);
    }
    gw_check(gw__plan_shard(&plan, size) == count, "the last shard ends early");
}

START_TEST(huge_counts_do_not_overflow)
{
    static const size_t counts[] = {((size_t)1 << 31) + 5, ((size_t)1 << 33), ((size_t)1 << 33) + 1,
                                    SIZE_MAX >> 4};
    for (size_t c = 0; c < 4; c++)
        for (int size = 2; size <= 5; size += 3)
            for (int v = 0; v < VARIANTS; v++) {
                check_huge(variants[v], size, counts[c], 512, 256 * 1024);
                check_huge(variants[v], size, counts[c], 1, 1);
                check_huge(variants[v], size, counts[c], 384, 1000);
            }
}
END_TEST

START_TEST(rounds_stay_below_the_limit_at_its_edges)
{
    for (size_t d = 0; d < 5; d++) {
        gw__plan_t plan;
        gw__plan_init(&plan, GW_PLAN_GATHER, 0, 2, (size_t)GW__PLAN_MAX_ROUNDS + d - 2, 1, 1);
        ck_assert_uint_lt(plan.rounds, GW__PLAN_MAX_ROUNDS);
        gw__plan_init(&plan, GW_PLAN_GATHER, 0, 2, 3 * ((size_t)GW__PLAN_MAX_ROUNDS + d - 2), 1, 3);
        ck_assert_uint_lt(plan.rounds, GW__PLAN_MAX_ROUNDS);
        for (int size = 2; size <= 7; size++) {
            gw__plan_init(&plan, GW_PLAN_RING, 0, size, (size_t)GW__PLAN_MAX_ROUNDS + d - 2, 1, 1);
            ck_assert_uint_lt(plan.rounds * plan.channels, GW__PLAN_MAX_ROUNDS);
        }
    }
}
END_TEST

/* ---- Execution in any order
 * --------------------------------------------------------------------------- */

/* A symbolic frame: what it holds. */
typedef struct frame {
    bool full;
    int origin; /* rank of a contribution; -1: a complete sum */
    size_t first, count;
    uint32_t ranks; /* a bit for each whose contribution it holds */
} frame_t;

typedef struct sim_round {
    uint32_t tasks, left;
    int summed; /* ranks added so far */
    size_t sum_first, sum_count;
    bool done[TASKS];
    gw__task_t task[TASKS];
    frame_t frame[3 * 9];
} sim_round_t;

typedef struct sim_rank {
    gw__plan_t plan;
    uint32_t next, finished; /* rounds admitted, rounds done */
    sim_round_t round[WINDOW];
    uint8_t *written; /* per element: 1 when the output is there */
} sim_rank_t;

typedef struct sim {
    int size;
    uint32_t rounds, window;
    sim_rank_t rank[9];
    frame_t *wire; /* [from][to][round][channel][stage] */
    uint32_t channels;
} sim_t;

static frame_t *on_wire(sim_t *s, int from, int to, uint32_t round, const gw__task_t *t)
{
    size_t pair = (size_t)from * (size_t)s->size + (size_t)to;
    return &s->wire[((pair * s->rounds + round) * s->channels + t->channel) * 2 + (size_t)t->stage];
}

static bool intact(const sim_rank_t *rank, const gw__task_t *t)
{
    for (size_t i = t->first; i < t->first + t->count; i++)
        if (rank->written[i])
            return false;
    return true;
}

static const char *put(sim_rank_t *rank, const gw__task_t *t)
{
    for (size_t i = t->first; i < t->first + t->count; i++) {
        if (rank->written[i])
            return "an element is written twice";
        rank->written[i] = 1;
    }
    return NULL;
}

static const char *add_to_sum(sim_round_t *round, const gw__task_t *t, int from)
{
    if (t->opens) {
        round->summed = 0;
        round->sum_first = t->first;
        round->sum_count = t->count;
    }
    if (round->summed != from || round->sum_first != t->first || round->sum_count != t->count)
        return "a rank is added out of order";
    round->summed++;
    return NULL;
}

/* Own elements and the frames of all others, in order. */
static const char *reduce(const sim_rank_t *rank, int r, sim_round_t *round, const gw__task_t *t)
{
    for (uint32_t d = 0; d < deps(t); d++) {
        const frame_t *f = &round->frame[round->task[dep(t, d)].buffer];
        int origin = (int)d + ((int)d >= r);
        if (!f->full || f->origin != origin || f->first != t->first || f->count != t->count)
            return "a frame is added that is not there";
    }
    round->frame[t->buffer] = (frame_t){true, -1, t->first, t->count, 0};
    return intact(rank, t) ? NULL : "own elements were overwritten";
}

/* No contribution twice. */
static const char *merge(sim_round_t *round, const gw__task_t *t)
{
    const frame_t *from = &round->frame[t->from];
    frame_t *into = &round->frame[t->buffer];
    if (!from->full || !into->full || from->ranks & into->ranks || from->first != into->first ||
        from->count != into->count)
        return "frames are merged that do not belong together";
    into->ranks |= from->ranks;
    return NULL;
}

/* Computes one task on symbols; an error says what would have become of real numbers. */
static const char *execute(sim_t *s, int r, sim_round_t *round, uint32_t k, const gw__task_t *t)
{
    sim_rank_t *rank = &s->rank[r];
    frame_t *frame = &round->frame[t->buffer];
    frame_t fitting = {true, t->kind == GW__TASK_DECODE_STORE ? -1 : t->peer, t->first, t->count,
                       0};
    bool fits = frame->full && frame->origin == fitting.origin && frame->first == t->first &&
                frame->count == t->count;
    switch (t->kind) {
    case GW__TASK_ENCODE:
        *frame = (frame_t){true, r, t->first, t->count, 1u << r};
        return intact(rank, t) ? NULL : "own elements are encoded after they were overwritten";
    case GW__TASK_COPY:
        return intact(rank, t) ? add_to_sum(round, t, r) : "own elements were overwritten";
    case GW__TASK_DECODE_ADD:
        return fits ? add_to_sum(round, t, t->peer) : "a frame is added that is not there";
    case GW__TASK_SUM_ENCODE:
        *frame = (frame_t){true, -1, t->first, t->count, 0};
        return round->summed == s->size ? NULL : "an incomplete sum is encoded";
    case GW__TASK_REDUCE_ENCODE:
        return reduce(rank, r, round, t);
    case GW__TASK_SUM_STORE:
        return round->summed == s->size ? put(rank, t) : "an incomplete sum is stored";
    case GW__TASK_DECODE_STORE:
        return fits ? put(rank, t) : "a frame is stored that is not there";
    case GW__TASK_MERGE:
        return merge(round, t);
    case GW__TASK_MERGED_STORE:
        if (!frame->full || frame->ranks != (1u << s->size) - 1 || frame->first != t->first)
            return "an incomplete sum is stored";
        return put(rank, t);
    case GW__TASK_SEND:
        if (!frame->full)
            return "an empty frame is sent";
        *on_wire(s, r, t->peer, k, t) = *frame;
        return NULL;
    case GW__TASK_RECV:
        *frame = *on_wire(s, t->peer, r, k, t);
        return NULL;
    case GW__TASK_KINDS:
        break;
    }
    return "no such task";
}

static bool may_run(sim_t *s, int r, const sim_round_t *round, uint32_t k, uint32_t i)
{
    const gw__task_t *t = &round->task[i];
    if (round->done[i])
        return false;
    for (uint32_t d = 0; d < deps(t); d++)
        if (dep(t, d) != GW__NO_TASK && !round->done[dep(t, d)])
            return false;
    return t->kind != GW__TASK_RECV || on_wire(s, t->peer, r, k, t)->full;
}

static void admit_rounds(sim_t *s, sim_rank_t *rank)
{
    while (rank->finished < rank->next && rank->round[rank->finished % WINDOW].left == 0)
        rank->finished++;
    while (rank->next < s->rounds && rank->next < rank->finished + s->window) {
        sim_round_t *round = &rank->round[rank->next % WINDOW];
        memset(round, 0, sizeof *round);
        round->tasks = round->left = gw__plan_round(&rank->plan, rank->next++, round->task);
    }
}

/* One task of this rank that may run now, chosen by lot; false: there is none. */
static bool step(sim_t *s, int r, uint64_t *lot, const char **wrong)
{
    sim_rank_t *rank = &s->rank[r];
    admit_rounds(s, rank);
    sim_round_t *chosen = NULL;
    uint32_t index = 0, number = 0, seen = 0;
    for (uint32_t k = rank->finished; k < rank->next; k++) {
        sim_round_t *round = &rank->round[k % WINDOW];
        for (uint32_t i = 0; i < round->tasks; i++)
            if (may_run(s, r, round, k, i) && gw_test_random(lot) % ++seen == 0) {
                chosen = round;
                index = i;
                number = k;
            }
    }
    if (!chosen)
        return false;
    *wrong = execute(s, r, chosen, number, &chosen->task[index]);
    chosen->done[index] = true;
    chosen->left--;
    return true;
}

static void simulate(const shape_t *shape, uint32_t window, uint64_t seed)
{
    static sim_t s;
    char name[160];
    describe(shape, name, sizeof name);
    s = (sim_t){.size = shape->size, .window = window};
    for (int r = 0; r < s.size; r++) {
        gw__plan_init(&s.rank[r].plan, shape->kind, r, s.size, shape->count, shape->grain,
                      shape->chunk);
        s.rank[r].plan.reduces = shape->reduces;
        s.rank[r].written = calloc(shape->count, 1);
    }
    s.rounds = s.rank[0].plan.rounds;
    s.channels = s.rank[0].plan.channels;
    s.wire = calloc((size_t)s.size * (size_t)s.size * s.rounds * s.channels * 2, sizeof *s.wire);
    for (int stuck = 0, r = 0; stuck < s.size; r = (r + 1) % s.size) {
        /* A rank drawn by lot; when none has moved for a while, each in turn. */
        const char *wrong = NULL;
        if (stuck == 0)
            r = (int)(gw_test_random(&seed) % (uint64_t)s.size);
        stuck = step(&s, r, &seed, &wrong) ? 0 : stuck + 1;
        gw_check(!wrong, "%s: %s", name, wrong);
    }
    for (int r = 0; r < s.size; r++) {
        gw_check(s.rank[r].finished == s.rounds,
                 "%s, window %u: rank %d is stuck in round %u of %u", name, window, r,
                 s.rank[r].finished, s.rounds);
        for (size_t i = 0; i < shape->count; i++)
            gw_check(s.rank[r].written[i], "%s: element %zu of rank %d", name, i, r);
        free(s.rank[r].written);
    }
    free(s.wire);
}

static void simulate_all(const shape_t *shape)
{
    if (shape->count > 5000 || shape->count / shape->grain > 100)
        return;
    simulate(shape, 1, shape->count);
    simulate(shape, 2, shape->count + 1);
    simulate(shape, WINDOW, shape->count + 2);
}

START_TEST(any_order_of_execution_ends_with_the_sum)
{
    for (int size = 2; size <= 9; size++)
        for (int v = 0; v < VARIANTS; v++)
            for_each_shape(size, variants[v], simulate_all);
}
END_TEST

/* ---- The checks above can fail
 * ------------------------------------------------------------------------ */

static gw__task_t *first_of(round_tasks_t *r, int rank, gw__task_kind_t kind)
{
    for (uint32_t i = 0; i < r->count[rank]; i++)
        if (r->task[rank][i].kind == kind)
            return &r->task[rank][i];
    ck_abort_msg("no %s", gw__task_kind_name(kind));
    return NULL;
}

START_TEST(wrong_plans_are_noticed)
{
    static round_tasks_t r;
    shape_t s = {GW_PLAN_DIRECT, 3, 600, 8, 64, false};
    gw__plan_t plan;
    for (int fault = 0; fault < 13; fault++) {
        s.reduces = fault >= 9;
        generate(&s, 1, &plan, &r);
        ck_assert_ptr_null(check_round(&plan, &r));
        gw__task_t *store = &r.task[0][r.count[0] - 1];
        switch (fault) {
        case 0: /* in place: stored while the own elements may still be read */
            store->dep[1] = GW__NO_TASK;
            break;
        case 1: /* decoded before it was received */
            store->dep[0] = 0;
            break;
        case 2:
            first_of(&r, 1, GW__TASK_SEND)->peer = 0;
            break;
        case 3:
            first_of(&r, 2, GW__TASK_RECV)->first += 8;
            break;
        case 4:
            first_of(&r, 2, GW__TASK_COPY)->opens ^= true;
            break;
        case 5:
            first_of(&r, 0, GW__TASK_DECODE_ADD)->dep[0] = GW__NO_TASK;
            break;
        case 6:
            first_of(&r, 0, GW__TASK_SUM_ENCODE)->dep[0] = GW__NO_TASK;
            break;
        case 7:
            first_of(&r, 0, GW__TASK_RECV)->buffer = first_of(&r, 0, GW__TASK_ENCODE)->buffer;
            break;
        case 8:
            first_of(&r, 0, GW__TASK_ENCODE)->count -= 1;
            break;
        case 9: /* before the last contribution */
            first_of(&r, 0, GW__TASK_REDUCE_ENCODE)->dep[1]--;
            break;
        case 10: /* other tasks than the receives */
            first_of(&r, 1, GW__TASK_REDUCE_ENCODE)->dep[0]--;
            first_of(&r, 1, GW__TASK_REDUCE_ENCODE)->dep[1]--;
            break;
        case 11:
            first_of(&r, 2, GW__TASK_REDUCE_ENCODE)->span = false;
            break;
        default: /* of other elements */
            first_of(&r, 2, GW__TASK_REDUCE_ENCODE)->first += 8;
        }
        ck_assert_msg(check_round(&plan, &r) != NULL, "fault %d was not noticed", fault);
    }
}
END_TEST

START_TEST(wrong_plans_that_merge_are_noticed)
{
    static round_tasks_t r;
    gw__plan_t plan;
    for (int fault = 0; fault < 12; fault++) {
        shape_t s = {fault % 2 ? GW_PLAN_TREE : GW_PLAN_RING, 4, 600, 8, 64, false};
        generate(&s, 1, &plan, &r);
        ck_assert_ptr_null(check_round(&plan, &r));
        gw__task_t *merge = first_of(&r, 2, GW__TASK_MERGE);
        gw__task_t *store = first_of(&r, 2, GW__TASK_MERGED_STORE);
        switch (fault / 2) {
        case 0: /* before it was received */
            merge->dep[1] = GW__NO_TASK;
            break;
        case 1: /* into what is not encoded yet */
            merge->dep[0] = GW__NO_TASK;
            break;
        case 2: /* somebody else's */
            merge->peer = 0;
            break;
        case 3: /* stored while the own elements may still be read */
            store->dep[1] = store->dep[0];
            break;
        case 4: { /* sent before all was merged */
            gw__task_t *send = merge;
            while (send->kind != GW__TASK_SEND || send->buffer != merge->buffer)
                send++;
            send->dep[0] = GW__NO_TASK;
            break;
        }
        default:
            first_of(&r, 2, GW__TASK_SEND)->channel++;
        }
        ck_assert_msg(check_round(&plan, &r) != NULL, "fault %d was not noticed", fault);
    }
}
END_TEST

START_TEST(a_plan_prints_every_task)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    gw__plan_t plan;
    gw__plan_init(&plan, GW_PLAN_DIRECT, 1, 3, 1000, 8, 128);
    gw__plan_print(&plan, out);
    fclose(out);
    uint32_t lines = 0, tasks = 0;
    static gw__task_t list[TASKS];
    for (uint32_t k = 0; k < plan.rounds; k++)
        tasks += gw__plan_round(&plan, k, list);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    ck_assert_uint_eq(lines, tasks + 1);
    ck_assert(strncmp(text, "direct rank 1 of 3: 1000 elements, chunks of 128, 3 rounds\n", 59) ==
              0);
    ck_assert(strstr(text, "0.0 ENCODE push [672,800) buffer 2") != NULL);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, plans_of_all_ranks_fit_together);
    tcase_add_test(tc, plans_of_many_ranks_fit_together);
    tcase_add_test(tc, huge_counts_do_not_overflow);
    tcase_add_test(tc, rounds_stay_below_the_limit_at_its_edges);
    tcase_add_test(tc, any_order_of_execution_ends_with_the_sum);
    tcase_add_test(tc, wrong_plans_are_noticed);
    tcase_add_test(tc, wrong_plans_that_merge_are_noticed);
    tcase_add_test(tc, a_plan_prints_every_task);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
