/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode, bucket by bucket: order of work and special buckets. Compiled for the baseline.
 */
#include "quant_reduce.h"

#include "fpmode.h"
#include "ref.h"

/* Whether a tier's own way can take this metadata; nothing else can be wrong with it then. */
static bool is_plain(uint32_t min, uint32_t unit, uint32_t low)
{
    uint32_t least = gw__float_bits(GW_QUANT_LEAST_UNIT);
    uint32_t great = gw__float_bits(GW_QUANT_GREAT_UNIT);
    bool small = (min & 0x7FFFFFFFu) < gw__float_bits(0x1p126f);
    return small && !(unit & low) && (unit - least < great - least || !unit);
}

/* A bucket with metadata out of the ordinary. A poisoned contribution poisons the sum. */
static __attribute__((noinline)) gw_quant_kind_t kind_of_odd(const gw_quant_task_t *t, size_t k)
{
    const gw_quant_sum_t *s = t->sum;
    size_t bucket = t->spec->bucket;
    if (gw__quant_ref_refused(t->spec, s, k * bucket, bucket) < s->payloads)
        return GW_QUANT_REFUSED;
    for (size_t j = 0; j < s->payloads; j++) {
        float min = gw__load_float(s->payload[j] + s->skip + k * t->stride);
        if (min != min)
            return GW_QUANT_POISONED;
    }
    return GW_QUANT_BY_REF;
}

static gw_quant_kind_t kind_of(const gw_quant_task_t *t, size_t k)
{
    const gw_quant_sum_t *s = t->sum;
    size_t at = s->skip + k * t->stride;
    uint32_t low = (1u << t->spec->bits) - 1;
    bool plain = true;
    for (size_t j = 0; j < s->payloads; j++) {
        const uint8_t *meta = s->payload[j] + at;
        plain &= is_plain(gw__load32(meta), gw__load32(meta + 4), low);
    }
    return plain ? GW_QUANT_QUICK : kind_of_odd(t, k);
}

static void poison(const gw_quant_task_t *t, uint8_t *dst)
{
    memset(dst, 0, t->stride);
    gw__store32(dst, GW_NAN_BITS);
}

/* Writes bucket k; returns whether it is finite. */
static bool write_bucket(const gw_quant_reducer_t *tier, const gw_quant_task_t *t,
                         const gw_quant_work_t *w, size_t k, uint8_t *dst)
{
    const gw_quant_spec_t *spec = t->spec;
    bool summed = w->kind == GW_QUANT_QUICK;
    if (w->kind == GW_QUANT_BY_REF || (summed && w->grid.finite && w->grid.wide))
        return gw__quant_ref_reduce_bucket(spec, t->sum, k * spec->bucket, w->residual,
                                           spec->bucket, w->noise, dst);
    if (!summed || !w->grid.finite) {
        poison(t, dst);
        return false;
    }
    gw__store_float(dst, w->grid.min);
    gw__store_float(dst + 4, w->grid.unit);
    tier->code[spec->bits - 1][spec->stochastic][w->residual != NULL](t, w,
                                                                      dst + GW_QUANT_META_BYTES);
    return true;
}

static void start_bucket(const gw_quant_reducer_t *tier, const gw_quant_task_t *t,
                         gw_quant_work_t *w, size_t k)
{
    w->kind = kind_of(t, k);
    w->residual = t->residual ? t->residual + k * t->spec->bucket : NULL;
    if (w->kind == GW_QUANT_QUICK)
        tier->sum[t->spec->bits - 1](t, k, w);
}

/* The sum and the grid of bucket k + 1 are made before the codes of bucket k are: the grid is a
 * long chain of divisions, which then runs beside them. Returns the number of buckets done. */
static GW_KERNEL_BODY size_t reduce_buckets(const gw_quant_reducer_t *tier,
                                            const gw_quant_task_t *t, size_t buckets,
                                            uint64_t bucket, uint64_t key, uint8_t *dst,
                                            size_t *poisoned)
{
    _Alignas(64) float p[2][GW_QUANT_BUCKET_MAX];
    gw_quant_work_t work[2] = {{.p = p[0]}, {.p = p[1]}};
    size_t k = 0;
    if (buckets)
        start_bucket(tier, t, &work[0], 0);
    for (; k < buckets; k++, dst += t->stride) {
        gw_quant_work_t *w = &work[k % 2];
        if (w->kind == GW_QUANT_REFUSED)
            break;
        if (k + 1 < buckets)
            start_bucket(tier, t, &work[(k + 1) % 2], k + 1);
        w->noise = gw__quant_noise(key, bucket + k);
        *poisoned += !write_bucket(tier, t, w, k, dst);
    }
    return k;
}

size_t gw__quant_reduce_by(const gw_quant_reducer_t *tier, const gw_quant_spec_t *spec,
                           const gw_quant_sum_t *sum, float *residual, size_t count, uint64_t first,
                           uint64_t key, uint8_t *dst, size_t *refused)
{
    size_t buckets = count / spec->bucket, poisoned = 0;
    gw_quant_task_t t = {spec, sum, residual, gw__quant_bytes(spec->bits, spec->bucket)};
    uint64_t mode = gw__fpmode_enter();
    size_t full = reduce_buckets(tier, &t, buckets, first / spec->bucket, key, dst, &poisoned);
    size_t done = full * spec->bucket;
    size_t rest = full < buckets ? spec->bucket : count - done; /* refused, or the tail */
    *refused = rest ? gw__quant_ref_refused(spec, sum, done, rest) : sum->payloads;
    if (rest && *refused == sum->payloads)
        poisoned += !gw__quant_ref_reduce_bucket(
            spec, sum, done, residual ? residual + done : NULL, rest,
            gw__quant_noise(key, (first + done) / spec->bucket), dst + full * t.stride);
    gw__fpmode_leave(mode);
    return poisoned;
}
