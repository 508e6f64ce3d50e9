/* SPDX-License-Identifier: Apache-2.0 */
/* What the contract is checked with: kinds of data, and the variants of a family. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

/* ---- Data ---------------------------------------------------------------------------------------
 */

typedef enum kind { PLAIN, SPIKE, BAD } kind_t;
static const struct {
    const char *name;
    test_fill_t fill;
    kind_t kind;
} fills[] = {
    {"normal", FILL_NORMAL, PLAIN},
    {"log-normal", FILL_HEAVY, PLAIN},
    {"zeros", FILL_ZEROS, PLAIN},
    {"signed zeros", FILL_NEGATIVE_ZERO, PLAIN},
    {"constant", FILL_CONSTANT, PLAIN},
    {"denormals", FILL_DENORMAL, PLAIN},
    {"FLT_MAX", FILL_BOTH_MAX, PLAIN},
    {"mixed", FILL_MIXED, PLAIN},
    {"one spike", FILL_NORMAL, SPIKE},
    {"few not finite", FILL_NORMAL, BAD},
    {"log-normal, not finite", FILL_HEAVY, BAD},
};
enum { FILLS = sizeof fills / sizeof *fills };

const char *contract_fill_name(size_t i)
{
    return i < FILLS ? fills[i].name : NULL;
}

/* The greatest finite number of a type. */
static float largest(gw_dtype_t dtype)
{
    return dtype == GW_F16 ? 65504.0f : dtype == GW_BF16 ? 0x1.FEp127f : FLT_MAX;
}

/* About one in 300 and at least one. */
static void spoil(float *x, size_t count, uint64_t seed)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (size_t i = 0; i < count; i += 300)
        x[gw_test_random(&seed) % count] = bad[(i / 300 + seed) % 4];
}

/* Rounds to the type of the wire; a denormal of binary16 lies 2^100 above those of binary32. */
static void round_to(gw_dtype_t dtype, test_fill_t fill, float *x, void *narrow, size_t count)
{
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    float limit = largest(dtype);
    for (size_t i = 0; i < count; i++) {
        if (dtype == GW_F16 && fill == FILL_DENORMAL)
            x[i] *= 0x1p117f;
        if (isfinite(x[i]))
            x[i] = fmaxf(-limit, fminf(limit, x[i]));
    }
    if (dtype != GW_F32) {
        (dtype == GW_F16 ? cast->f32_to_f16 : cast->f32_to_bf16)(x, narrow, count);
        (dtype == GW_F16 ? cast->f16_to_f32 : cast->bf16_to_f32)(narrow, x, count);
    }
}

contract_data_t contract_make(gw_dtype_t src_dtype, gw_dtype_t wire_dtype, size_t count,
                              size_t fill, uint64_t seed)
{
    contract_data_t d = {.src_dtype = src_dtype,
                         .wire_dtype = wire_dtype,
                         .count = count,
                         .fill = fills[fill].name,
                         .finite = fills[fill].kind != BAD || count == 0,
                         .x = malloc(4 * count + 4),
                         .src = malloc(4 * count + 4),
                         .residual = malloc(4 * count + 4)};
    test_fill(fills[fill].fill, seed, d.x, count);
    test_fill(fill % 2 ? FILL_NORMAL : FILL_SPARSE, seed + 1, d.residual, count);
    if (fills[fill].kind == SPIKE && count)
        d.x[seed % count] = -1e4f;
    if (fills[fill].kind == BAD && count)
        spoil(d.x, count, seed + 2);
    round_to(wire_dtype, fills[fill].fill, d.x, d.src, count);
    if (src_dtype == GW_F32)
        memcpy(d.src, d.x, 4 * count);
    return d;
}

void contract_release(contract_data_t *data)
{
    free(data->x);
    free(data->src);
    free(data->residual);
}

/* ---- Variants -----------------------------------------------------------------------------------
 */

/* What is worth trying of parameters that are known; an empty text: the names set it. Any other
 * parameter: both values of a switch, every choice, the limits of a number and twice its default.
 */
static const struct {
    const char *param, *values;
} known[] = {
    {"bits", ""},
    {"level", ""},
    {"form", ""},
    {"force", ""},
    {"seed", "5"},
    {"bucket", "32 96 4096"},
    {"block", "64 1024 4096"},
    {"group", "512 1536"},
    {"size", "16 64"},
    {"domain", "1024 4096"},
    {"ratio", "0.1 0.25"},
};

/* Combinations that one change at a time does not reach. */
static const char *const combined[] = {
    "topk:block=4096,ratio=0.05,select=sampled",
    "topk+q4:block=8192,ratio=0.25",
    "topk+q8:block=256,ratio=0.2",
    "topk+fp16:block=256,ratio=0.2",
    "randomk:block=256,ratio=0.5,values=wire",
    "randomk:block=512,ratio=0.2,scale=on,ef=off,force=1",
    "randomk:block=64,ratio=0.1,scale=on,values=wire,ef=off,force=1",
    "block:size=16,domain=64,ef=on",
    "topblock:size=16,domain=256,ratio=0.5",
    "q3:round=stochastic,bucket=96",
    "q1r:block=64,scale=unbiased",
    "natural:round=stochastic,ef=on,bucket=96",
    "nuqsgd:round=stochastic,ef=on",
    "nuqsgd:bits=3,bucket=64",
    "nuqsgd:bits=3,bucket=96,norm=max",
    "nuqsgd:bits=5,norm=max,ef=on",
    "nuqsgd:bits=5,bucket=160",
    "ternary:ef=on,clip=1.22,bucket=96",
};

static const char *values_of(const gw_codec_param_t *p, char *room, size_t size)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].param, p->name))
            return known[i].values;
    if (p->type == GW_PARAM_SWITCH)
        return "on off";
    if (p->type == GW_PARAM_CHOICE)
        snprintf(room, size, "%s", p->choices);
    else
        snprintf(room, size, "%.9g %.9g %.9g", p->min, p->max, 2 * strtod(p->def, NULL));
    for (char *c = room; *c; c++)
        *c = *c == '|' ? ' ' : *c;
    return room;
}

typedef struct list {
    const gw_codec_t *family;
    gw_coder_t *out;
    size_t n, room;
} list_t;

static bool forces(const gw_codec_t *family)
{
    for (size_t i = 0; family->params[i].name; i++)
        if (!strcmp(family->params[i].name, "force"))
            return true;
    return false;
}

/* Adds a specification that this family accepts and that is not there. */
static void add(list_t *l, const char *spec, bool forced)
{
    gw_coder_t coder;
    char with[GW_CODEC_SPEC_MAX];
    gw_status_t status = gw_coder_parse(spec, &coder, NULL, 0);
    if (status == GW_ERR_BAD_SETTING && forced && forces(l->family)) {
        snprintf(with, sizeof with, "%.100s,force=1", spec);
        status = gw_coder_parse(with, &coder, NULL, 0);
    }
    bool fresh = status == GW_OK && coder.family == l->family && l->n < l->room;
    for (size_t i = 0; fresh && i < l->n; i++)
        fresh = strcmp(l->out[i].spec, coder.spec) != 0;
    if (fresh)
        l->out[l->n++] = coder;
}

static void add_name(list_t *l, const char *name)
{
    char values[256], spec[GW_CODEC_SPEC_MAX];
    add(l, name, false);
    for (const gw_codec_param_t *p = l->family->params; p->name; p++) {
        const char *value = values_of(p, values, sizeof values);
        for (size_t n; *value; value += n + (value[n] == ' ')) {
            n = strcspn(value, " ");
            snprintf(spec, sizeof spec, "%.40s:%.40s=%.*s", name, p->name, (int)n, value);
            add(l, spec, true);
        }
    }
}

size_t contract_variants(const gw_codec_t *family, gw_coder_t *out, size_t room)
{
    list_t l = {.family = family, .out = out, .room = room};
    char name[64];
    for (const char *at = family->names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        add_name(&l, name);
        at += n;
    }
    for (size_t i = 0; i < sizeof combined / sizeof *combined; i++)
        add(&l, combined[i], false);
    return l.n;
}
