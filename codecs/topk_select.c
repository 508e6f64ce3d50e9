/* SPDX-License-Identifier: Apache-2.0 */
/* Codec topk: which elements of a block are sent. */
#include "topk.h"

#include <math.h>
#include <string.h>

#include "bytes.h"
#include "sparse.h"
#include "splitmix.h"

/*
 * Exact selection has three ways to the same result. The quick one guesses a lower bound for the
 * k-th magnitude from a sample, collects all candidates above it in one pass and finds the exact
 * bound among them. Candidates that are too many for the stack are collected only near the bound.
 * Where a guess fails, the digits of the exact bound are counted: one pass for each of at most
 * three, then one that writes.
 */

/* The elements of a block as they are to be sent: in memory as floats (`direct`), or made tile by
 * tile. With feedback they lie in the residual, but for those that are not finite. */
typedef struct view {
    const gw_encode_t *in;
    size_t at, n;
    const float *direct;
    const float *residual; /* of the block; NULL: elements are those of the source */
    float tile[GW_BLOCK];
} view_t;

static const float *source(const gw_encode_t *in, size_t at, size_t n, float *tile)
{
    if (in->src_dtype == GW_F32)
        return (const float *)in->src + at;
    gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * at, tile, n);
    return tile;
}

/* The elements from i on: *n of them, `most` or fewer. */
static const float *look(view_t *v, size_t i, size_t most, size_t *n)
{
    *n = v->n - i < most ? v->n - i : most;
    if (v->direct)
        return v->direct + i;
    *n = *n < GW_BLOCK ? *n : GW_BLOCK;
    const float *src = source(v->in, v->at + i, *n, v->tile);
    if (!v->residual)
        return src;
    for (size_t j = 0; j < *n; j++)
        v->tile[j] =
            (gw__float_bits(src[j]) & GW_TOPK_INF) == GW_TOPK_INF ? src[j] : v->residual[i + j];
    return v->tile;
}

static size_t count_least(view_t *v, uint32_t least)
{
    size_t found = 0, n;
    for (size_t i = 0; i < v->n; i += n) {
        const float *x = look(v, i, v->n, &n);
        found += gw__kernels()->topk.count(x, n, least);
    }
    return found;
}

/* ---- Candidates ---------------------------------------------------------------------------------
 */

/* All elements of at least this magnitude into `p`; false when they are too many. */
static bool collect(view_t *v, uint32_t least, gw__topk_picked_t *p)
{
    size_t n;
    p->held = 0;
    for (size_t i = 0; i < v->n; i += n) {
        const float *x = look(v, i, v->n, &n);
        uint32_t *index = p->index + p->held;
        size_t room = GW__TOPK_ROOM - p->held;
        size_t found = gw__kernels()->topk.find(x, n, least, (uint32_t)i, index, room);
        if (found > room)
            return false;
        for (size_t j = 0; j < found; j++)
            p->value[p->held + j] = x[index[j] - i];
        p->held += found;
    }
    return true;
}

uint32_t gw__topk_bound(const float *x, size_t n, uint32_t least, size_t most, size_t enough)
{
    uint32_t low = least, high = 0x80000000u; /* reached by fewer */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        size_t found = gw__kernels()->topk.count(x, n, middle);
        if (found < most) {
            high = middle;
            continue;
        }
        low = middle;
        if (found <= enough)
            break;
    }
    return low;
}

/* Keeps what is above the bound, and the first `ties` that are equal to it. */
static void keep_ties(gw__topk_picked_t *p, uint32_t bound, size_t ties)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->held; i++) {
        uint32_t magnitude = gw__float_bits(p->value[i]) & 0x7FFFFFFFu;
        bool tie = magnitude == bound && ties > 0;
        p->index[kept] = p->index[i];
        p->value[kept] = p->value[i];
        kept += magnitude > bound || tie;
        ties -= tie;
    }
    p->held = kept;
}

/* Leaves exactly k of the candidates. */
static void keep_largest(gw__topk_picked_t *p, uint32_t least, size_t k)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    if (p->held == k)
        return;
    uint32_t bound = gw__topk_bound(p->value, p->held, least, k, k);
    if (topk->count(p->value, p->held, bound) > k) {
        size_t above = bound < 0x7FFFFFFFu ? topk->count(p->value, p->held, bound + 1) : 0;
        keep_ties(p, bound, k - above);
        return;
    }
    topk->find(p->value, p->held, bound, 0, p->place, GW__TOPK_ROOM);
    for (size_t i = 0; i < k; i++) {
        p->index[i] = p->index[p->place[i]];
        p->value[i] = p->value[p->place[i]];
    }
    p->held = k;
}

/* ---- Samples ------------------------------------------------------------------------------------
 */

enum { LINE = 16, SAMPLES = 2048, SAMPLES_OF_BAND = GW__TOPK_ROOM };

/* Lines of a block at even distances, `samples` elements in all, into `out`. */
static void sample(view_t *v, size_t samples, size_t shift, float *out)
{
    size_t lines = samples / LINE, step = v->n / lines, n;
    for (size_t i = 0; i < lines; i++)
        memcpy(out + i * LINE, look(v, i * step + shift % (step - LINE + 1), LINE, &n),
               LINE * sizeof *out);
}

/* A magnitude that k elements or more are likely to reach, and not many more; 0 when a sample
 * cannot tell. Five deviations below the expected place. */
static uint32_t guess(view_t *v, size_t k, float *scratch)
{
    double expected = (double)k * SAMPLES / (double)v->n;
    double safe = expected + 5.0 * sqrt(expected) + 4.0;
    if (v->n < 2 * SAMPLES || safe * (double)v->n / SAMPLES > 0.8 * GW__TOPK_ROOM)
        return 0;
    size_t place = (size_t)safe;
    sample(v, SAMPLES, 0, scratch);
    return gw__topk_bound(scratch, SAMPLES, 0, place, place + place / 8);
}

/* ---- Digits -------------------------------------------------------------------------------------
 */

typedef struct bound {
    uint32_t least; /* k elements or more reach it */
    size_t reached; /* how many do */
    size_t above;   /* how many exceed it, where the bound is exact */
} bound_t;

/* One digit more of the bound; `above` have a higher prefix. */
static void next_digit(view_t *v, unsigned digit, size_t k, uint32_t *prefix, bound_t *b)
{
    uint32_t bin[GW_TOPK_BINS] = {0}, d = (1u << gw__topk_digit_bits(digit)) - 1;
    size_t n;
    for (size_t i = 0; i < v->n; i += n) {
        const float *x = look(v, i, v->n, &n);
        gw__kernels()->topk.histogram(x, n, digit, *prefix, bin);
    }
    for (; b->above + bin[d] < k; d--)
        b->above += bin[d];
    *prefix = *prefix << gw__topk_digit_bits(digit) | d;
    b->least = *prefix << gw__topk_shift(digit);
    b->reached = b->above + bin[d];
}

/* As many digits as it takes until the candidates fit. */
static bound_t find_bound(view_t *v, size_t k)
{
    bound_t b = {.above = 0};
    uint32_t prefix = 0;
    for (unsigned digit = 0; digit < GW_TOPK_DIGITS; digit++) {
        next_digit(v, digit, k, &prefix, &b);
        if (b.reached <= GW__TOPK_ROOM)
            break;
    }
    return b;
}

/* Writes all that an exact bound admits, in parts that fit. */
static void write_bound(view_t *v, const bound_t *b, size_t k, gw__topk_writer_t *w,
                        gw__topk_picked_t *p)
{
    enum { PART = GW__TOPK_ROOM / 2 };
    size_t ties = k - b->above, n;
    p->held = 0;
    for (size_t i = 0; i < v->n; i += n) {
        const float *x = look(v, i, PART, &n);
        if (p->held > PART)
            gw__topk_flush(w, p, false);
        size_t found = gw__kernels()->topk.find(x, n, b->least, (uint32_t)i, p->place, PART);
        for (size_t j = 0; j < found; j++) {
            float value = x[p->place[j] - i];
            bool tie = (gw__float_bits(value) & 0x7FFFFFFFu) == b->least;
            if (tie && ties == 0)
                continue;
            ties -= tie;
            p->index[p->held] = p->place[j];
            p->value[p->held++] = value;
        }
    }
    gw__topk_flush(w, p, true);
}

/* ---- A band -------------------------------------------------------------------------------------
 */

/* Those of at least `low` into `p` when they are below `high`, otherwise into *above, which counts.
 * False when they are too many. */
static bool collect_band(view_t *v, uint32_t low, uint32_t high, gw__topk_picked_t *p,
                         size_t *above)
{
    size_t n;
    *above = p->held = 0;
    for (size_t i = 0; i < v->n; i += n) {
        const float *x = look(v, i, GW__TOPK_ROOM, &n);
        size_t found = gw__kernels()->topk.find(x, n, low, (uint32_t)i, p->place, GW__TOPK_ROOM);
        size_t room = GW__TOPK_ROOM - p->held, used = 0;
        for (size_t j = 0; j < found; j++) {
            float value = x[p->place[j] - i];
            bool inside = (gw__float_bits(value) & 0x7FFFFFFFu) < high;
            p->sent[used] = value; /* free so far, and a store is cheaper than a branch */
            used += inside;
        }
        if (used > room)
            return false;
        memcpy(p->value + p->held, p->sent, used * sizeof *p->value);
        p->held += used;
        *above += found - used;
    }
    return true;
}

/*
 * For more entries than there is room for candidates: the k-th magnitude lies in a band whose ends
 * a sample gives, three and a half deviations to either side. What is above it is only counted, and
 * the exact bound is found among what is inside.
 */
static bool find_in_band(view_t *v, size_t k, gw__topk_picked_t *p, bound_t *b)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    double part = (double)k / (double)v->n, expected = part * SAMPLES_OF_BAND;
    double margin = 3.5 * sqrt(expected * (1 - part)) + 2;
    if (v->n < 2 * SAMPLES_OF_BAND || expected < 2 * margin ||
        2.2 * margin * (double)v->n > (double)GW__TOPK_ROOM * SAMPLES_OF_BAND)
        return false;
    sample(v, SAMPLES_OF_BAND, 0, p->value);
    size_t far = (size_t)(expected + margin), near = (size_t)(expected - margin);
    uint32_t low = gw__topk_bound(p->value, SAMPLES_OF_BAND, 0, far, far + far / 64);
    uint32_t high = gw__topk_bound(p->value, SAMPLES_OF_BAND, low, near, near + near / 64);
    size_t above;
    if (low == high || !collect_band(v, low, high, p, &above) || above >= k || above + p->held < k)
        return false;
    b->least = gw__topk_bound(p->value, p->held, low, k - above, k - above);
    b->above = above + topk->count(p->value, p->held, b->least + 1);
    b->reached = above + topk->count(p->value, p->held, b->least);
    return true;
}

/* ---- The block ----------------------------------------------------------------------------------
 */

/* The quick way: all of at least *least into `p`, k of them or more. False when its guess fails. */
static bool pick(view_t *v, size_t k, gw__topk_picked_t *p, uint32_t *least)
{
    bool all = v->n <= GW__TOPK_ROOM;
    *least = all ? 0 : guess(v, k, p->value);
    return (all || *least > 0) && collect(v, *least, p) && p->held >= k;
}

/* The others. False when they have written all entries themselves. */
static bool pick_slowly(view_t *v, size_t k, gw__topk_writer_t *w, gw__topk_picked_t *p,
                        uint32_t *least)
{
    bound_t b;
    if (!find_in_band(v, k, p, &b))
        b = find_bound(v, k);
    if (b.reached > GW__TOPK_ROOM) {
        write_bound(v, &b, k, w, p);
        return false;
    }
    *least = b.least;
    return collect(v, *least, p);
}

/*
 * Deep Gradient Compression (Lin et al. 2018): a threshold from a sample, accepted when 0.7 to 1.3
 * times the wanted number reach it, else enlarged or reduced by these factors. Wanted is slots /
 * 1.3, so that what is accepted has room. False when ten turns were not enough.
 */
static bool select_sampled(view_t *v, size_t slots, uint64_t dice, gw__topk_writer_t *w,
                           gw__topk_picked_t *p)
{
    size_t wanted = (size_t)((double)slots / 1.3), turns = 10, low = (wanted * 7 + 9) / 10;
    if (v->n < 2 * SAMPLES || slots > GW__TOPK_ROOM || wanted == 0)
        return false;
    size_t place = (wanted * SAMPLES + v->n - 1) / v->n;
    sample(v, SAMPLES, (size_t)dice, p->value);
    float threshold = gw__float_of(gw__topk_bound(p->value, SAMPLES, 0, place, place));
    for (; turns > 0 && threshold > 0.0f && isfinite(threshold); turns--) {
        size_t found = count_least(v, gw__float_bits(threshold));
        if (found >= low && found <= slots)
            break;
        threshold *= found < low ? 0.7f : 1.3f;
    }
    if (turns == 0 || !(threshold > 0.0f) || !isfinite(threshold))
        return false;
    collect(v, gw__float_bits(threshold), p);
    gw__topk_flush(w, p, true);
    return true;
}

/* The residual takes up the source, or its momentum, which then is what the residual holds. */
static void take_up(const gw__topk_spec_t *spec, const gw_encode_t *in, size_t at, size_t n,
                    float *tile)
{
    size_t step = in->src_dtype == GW_F32 ? n : GW_BLOCK;
    for (size_t i = 0; i < n; i += step) {
        size_t m = n - i < step ? n - i : step;
        const float *src = source(in, at + i, m, tile);
        float *residual = in->residual + at + i;
        if (in->momentum)
            gw__kernels()->topk.correct(src, spec->momentum, in->momentum + at + i, residual, m);
        else
            gw__kernels()->topk.fold(src, residual, m);
    }
}

bool gw__topk_encode_block(const gw__topk_spec_t *spec, const gw_encode_t *in, size_t at, size_t n,
                           gw__topk_picked_t *scratch, uint8_t *dst)
{
    view_t v = {.in = in, .at = at, .n = n};
    float *residual = in->residual ? in->residual + at : NULL;
    gw__topk_writer_t w = gw__topk_begin(spec, residual, n, dst);
    if (in->src_dtype == GW_F32)
        v.direct = (const float *)in->src + at;
    uint32_t least = 0;
    /* Where the source itself is sent, the pass that picks has also seen what is not finite. */
    bool early = !residual && !spec->sampled;
    bool picked = early && pick(&v, w.slots, scratch, &least);
    size_t lost = picked && least <= GW_TOPK_INF
                      ? gw__kernels()->topk.count(scratch->value, scratch->held, GW_TOPK_INF)
                      : count_least(&v, GW_TOPK_INF); /* also brings the block into the cache */
    if (lost > w.slots) {
        gw__topk_poison(&w);
        return true;
    }
    if (residual) {
        take_up(spec, in, at, n, v.tile);
        w.momentum = in->momentum && spec->masking ? in->momentum + at : NULL;
        v.residual = residual;
        v.direct = lost ? NULL : residual;
    }
    if (spec->sampled &&
        select_sampled(&v, w.slots, (in->first + at) * GW_SPLITMIX_STEP >> 32, &w, scratch))
        return lost > 0;
    /* Exactly as many as there are slots: largest first, of equal ones the lowest index. */
    picked = picked || (!early && pick(&v, w.slots, scratch, &least));
    if (picked || pick_slowly(&v, w.slots, &w, scratch, &least)) {
        keep_largest(scratch, least, w.slots);
        gw__topk_flush(&w, scratch, true);
    }
    return lost > 0;
}
