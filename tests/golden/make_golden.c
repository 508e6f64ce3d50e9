/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the golden frames: make_golden DIR. A file that exists is left alone, since golden frames
 * must decode (or fail) for ever; a new one is added by a line in the tables below. frames.txt says
 * what to expect of each file: good FILE VALUES SPEC DTYPE COUNT FIRST     decodes to VALUES
 * (binary32, exact bytes) bad  FILE STATUS SPEC DTYPE COUNT FIRST     fails with STATUS
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/codec.h>

#include "frame.h"

enum { COUNT_MAX = 1100, ROOM = 65536 };

typedef enum fill { PLAIN, POISONED, EXTREME, INFINITE, ROWS, STRIPES, THIRDS } fill_t;

typedef struct good {
    const char *name, *spec;
    gw_dtype_t dtype;
    size_t count, first;
    bool checksum;
    fill_t fill;
} good_t;

static const good_t goods[] = {
    {"raw-f32", "raw", GW_F32, 100, 64, false, POISONED},
    {"raw-f16", "raw", GW_F16, 100, 0, false, POISONED},
    {"raw-bf16-crc", "raw", GW_BF16, 33, 128, true, PLAIN},
    {"raw-empty", "raw", GW_F32, 0, 0, false, PLAIN},
    {"q1-b64", "q1:bucket=64", GW_F32, 200, 64, false, PLAIN},
    {"q2", "q2", GW_F32, 600, 512, false, PLAIN},
    {"q3-b96", "q3:bucket=96", GW_F32, 301, 0, false, PLAIN},
    {"q4", "q4", GW_F32, 1100, 1024, false, PLAIN},
    {"q4-crc", "q4", GW_F32, 513, 0, true, PLAIN},
    {"q4-stochastic", "q4:round=stochastic", GW_F32, 700, 0, false, PLAIN},
    {"q4-zero-off", "q4:zero=off", GW_F32, 100, 0, false, PLAIN},
    {"q4-f16", "q4:bucket=32", GW_F16, 65, 32, false, PLAIN},
    {"q5-bf16", "q5:bucket=32", GW_BF16, 99, 0, false, PLAIN},
    {"q6-poisoned", "q6:bucket=32", GW_F32, 130, 0, false, POISONED},
    {"q7", "q7:bucket=128", GW_F32, 257, 0, false, PLAIN},
    {"q8-extreme", "q8:bucket=32", GW_F32, 192, 0, false, EXTREME},
    {"q1-extreme", "q1:bucket=32", GW_F32, 192, 0, false, EXTREME},
    {"fp16-poisoned", "fp16", GW_F32, 133, 64, false, POISONED},
    {"fp16-extreme", "fp16", GW_BF16, 192, 0, true, EXTREME},
    {"bf16", "bf16", GW_F16, 100, 0, false, PLAIN},
    {"bf16-extreme", "bf16", GW_F32, 192, 0, false, EXTREME},
    {"fp8e4m3", "fp8e4m3", GW_F32, 401, 128, false, PLAIN},
    {"fp8e4m3-poisoned", "fp8e4m3:block=32", GW_BF16, 130, 0, false, POISONED},
    {"fp8e4m3-extreme", "fp8e4m3:block=32", GW_F32, 192, 0, false, EXTREME},
    {"fp8e5m2-crc", "fp8e5m2", GW_F32, 300, 0, true, PLAIN},
    {"fp8e5m2-extreme", "fp8e5m2:block=96", GW_F32, 192, 96, false, EXTREME},
    {"mxfp4", "mxfp4", GW_F32, 1027, 1024, false, PLAIN},
    {"mxfp4-poisoned", "mxfp4:group=512", GW_F16, 600, 512, false, POISONED},
    {"mxfp4-extreme", "mxfp4:group=512", GW_F32, 192, 0, false, EXTREME},
    {"nvfp4", "nvfp4", GW_F32, 1027, 0, false, PLAIN},
    {"nvfp4-poisoned", "nvfp4:group=512", GW_F32, 600, 512, true, POISONED},
    {"nvfp4-extreme", "nvfp4:group=512", GW_F32, 192, 0, false, EXTREME},
    {"lossless-bf16", "lossless", GW_BF16, 1100, 1024, false, PLAIN},
    {"lossless-f16-crc", "lossless", GW_F16, 1099, 0, true, PLAIN},
    {"lossless-f32", "lossless", GW_F32, 700, 512, false, POISONED},
    {"lossless-extreme", "lossless", GW_F32, 192, 0, false, EXTREME},
    {"lossless-rows", "lossless", GW_BF16, 1100, 0, false, ROWS},
    {"lossless-one", "lossless", GW_BF16, 1, 0, false, PLAIN},
    {"lossless2-bf16", "lossless2", GW_BF16, 1099, 4096, false, PLAIN},
    {"lossless2-f16", "lossless2", GW_F16, 1100, 0, false, PLAIN},
    {"lossless2-f32", "lossless2", GW_F32, 1100, 0, false, POISONED},
    {"topk", "topk:block=256,ratio=0.1", GW_F32, 700, 256, false, PLAIN},
    {"topk-odd", "topk:block=512,ratio=0.02", GW_BF16, 600, 0, false, PLAIN},
    {"topk-fp16", "topk+fp16:block=128,ratio=0.05", GW_F32, 300, 128, false, EXTREME},
    {"topk-q8", "topk+q8:block=1024,ratio=0.2", GW_F16, 1100, 0, false, PLAIN},
    {"topk-q4", "topk+q4:block=64,ratio=0.25", GW_F32, 65, 64, false, POISONED},
    {"topk-poisoned", "topk:block=64,ratio=0.01", GW_F32, 130, 0, false, INFINITE},
    {"randomk", "randomk:block=256,ratio=0.05", GW_F32, 700, 256, false, PLAIN},
    {"randomk-wire", "randomk:block=128,ratio=0.3,values=wire,seed=7", GW_BF16, 300, 0, true,
     PLAIN},
    {"block", "block:size=16,domain=128", GW_F32, 300, 128, false, STRIPES},
    {"block-dense", "block:size=32,domain=64", GW_BF16, 100, 0, true, POISONED},
    {"topblock", "topblock:size=16,domain=256,ratio=0.2", GW_F32, 600, 0, false, PLAIN},
    {"topblock-f16", "topblock:size=64,domain=512,ratio=0.1", GW_F16, 1000, 512, false, POISONED},
    {"randomk-poisoned", "randomk:block=64,ratio=0.1", GW_F16, 130, 64, false, POISONED},
    {"sign", "sign", GW_F32, 1100, 512, false, PLAIN},
    {"sign-b96-bf16-crc", "sign:bucket=96", GW_BF16, 333, 96, true, PLAIN},
    {"sign-extreme", "sign:bucket=32", GW_F32, 192, 0, false, EXTREME},
    {"sign-rows", "sign:bucket=256", GW_F32, 700, 0, false, THIRDS},
    {"q4r", "q4r", GW_F32, 1100, 512, false, PLAIN},
    {"q1r-b64-seed-crc", "q1r:block=64,seed=77", GW_F32, 200, 64, true, PLAIN},
    {"q2r-unbiased", "q2r:block=128,scale=unbiased", GW_F32, 300, 0, false, PLAIN},
    {"q3r-bf16", "q3r:block=64", GW_BF16, 99, 0, false, PLAIN},
    {"q5r-f16", "q5r:block=256", GW_F16, 257, 256, false, PLAIN},
    {"q6r-poisoned", "q6r:block=64", GW_F32, 130, 0, false, POISONED},
    {"q7r", "q7r:block=1024", GW_F32, 1025, 0, false, PLAIN},
    {"q8r-extreme", "q8r:block=64", GW_F32, 192, 0, false, EXTREME},
    {"q4r-extreme", "q4r:block=64", GW_F32, 193, 0, false, EXTREME},
    {"sign-poisoned", "sign:bucket=64", GW_F16, 130, 0, false, POISONED},
    {"natural", "natural", GW_F32, 1100, 512, false, PLAIN},
    {"natural-nearest-f16", "natural:bucket=64,ef=on", GW_F16, 333, 64, false, PLAIN},
    {"natural-extreme", "natural:bucket=32", GW_F32, 192, 0, false, EXTREME},
    {"natural-poisoned-crc", "natural:bucket=96", GW_BF16, 130, 0, true, POISONED},
    {"nuqsgd", "nuqsgd", GW_F32, 1100, 512, false, PLAIN},
    {"nuqsgd-b3", "nuqsgd:bits=3,bucket=64", GW_F32, 301, 0, false, PLAIN},
    {"nuqsgd-b5-max", "nuqsgd:bits=5,norm=max,ef=on", GW_F16, 700, 512, false, PLAIN},
    {"nuqsgd-extreme", "nuqsgd:bucket=32", GW_F32, 193, 0, false, EXTREME},
    {"nuqsgd-poisoned", "nuqsgd:bucket=32", GW_F32, 130, 0, false, POISONED},
    {"ternary", "ternary", GW_F32, 1099, 512, false, PLAIN},
    {"ternary-extreme", "ternary:bucket=32,ef=on", GW_F32, 192, 0, false, EXTREME},
    {"ternary-poisoned-crc", "ternary:bucket=64", GW_BF16, 131, 0, true, POISONED},
    {"lowrank", "lowrank", GW_F32, 1100, 65536, false, PLAIN},
    {"lowrank-rank1-bf16-crc", "lowrank:rank=1", GW_BF16, 513, 0, true, PLAIN},
    {"lowrank-extreme", "lowrank:rank=3", GW_F32, 1099, 0, false, EXTREME},
    {"lowrank-poisoned", "lowrank:rank=2", GW_F16, 700, 0, false, POISONED},
    {"lowrank-plain", "lowrank", GW_F32, 130, 0, false, POISONED},
};

/* A bad frame: `base` with byte `at` set to `value`; at < 0: cut to that many bytes less; or one
 * more. */
typedef struct bad {
    const char *name, *base;
    int at, value;
    gw_status_t status;
} bad_t;

enum { CUT = -1, GROW = -2 };

static const bad_t bads[] = {
    {"bad-magic", "q4", 0, 'X', GW_ERR_FRAME_MAGIC},
    {"bad-revision", "q4", 4, 2, GW_ERR_FRAME_REVISION},
    {"bad-codec", "q4", 5, 63, GW_ERR_FRAME_HEADER},
    {"bad-dtype", "q4", 6, 3, GW_ERR_FRAME_HEADER},
    {"bad-flags", "q4", 7, 2, GW_ERR_FRAME_HEADER},
    {"bad-bits", "q4", 8, 9, GW_ERR_FRAME_HEADER},
    {"bad-bucket", "q4", 10, 1, GW_ERR_FRAME_HEADER},
    {"bad-parameter", "q4", 15, 1, GW_ERR_FRAME_HEADER},
    {"bad-count", "q4", 16, 0, GW_ERR_FRAME_HEADER},
    {"bad-count-huge", "q4", 23, 0x80, GW_ERR_FRAME_HEADER},
    {"bad-first", "q4", 24, 1, GW_ERR_FRAME_HEADER},
    {"bad-length", "q4", 32, 1, GW_ERR_FRAME_HEADER},
    {"bad-crc-unasked", "q4", 40, 1, GW_ERR_FRAME_HEADER},
    {"bad-reserved", "q4", 47, 1, GW_ERR_FRAME_HEADER},
    {"bad-other-first", "q4", 25, 6, GW_ERR_FRAME_MISMATCH},
    {"bad-other-bits", "raw-f32", 6, 1, GW_ERR_FRAME_HEADER},
    {"bad-crc", "q4-crc", 100, 0x55, GW_ERR_FRAME_CHECKSUM},
    {"bad-unit-negative", "q4", 48 + 7, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-min-nan", "q8-extreme", 48 + 2, 0xFF, GW_ERR_FRAME_PAYLOAD},
    {"bad-cut", "q4", CUT, 1, GW_ERR_FRAME_LENGTH},
    {"bad-cut-header", "q4", CUT, 600, GW_ERR_FRAME_LENGTH},
    {"bad-grown", "q4", GROW, 1, GW_ERR_FRAME_LENGTH},
    {"bad-padding", "q3-b96", 192, 0xFF, GW_ERR_FRAME_PAYLOAD},
    {"bad-cast-type", "bf16", 8, 2, GW_ERR_FRAME_HEADER},
    {"bad-cast-block", "bf16", 10, 64, GW_ERR_FRAME_HEADER},
    {"bad-cast-other", "bf16", 8, 0, GW_ERR_FRAME_MISMATCH},
    {"bad-fp8-type", "fp8e4m3", 8, 2, GW_ERR_FRAME_HEADER},
    {"bad-fp8-block", "fp8e4m3", 10, 1, GW_ERR_FRAME_HEADER},
    {"bad-fp8-scale-negative", "fp8e4m3", 48 + 1, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-fp8-scale-tail", "fp8e4m3", 48 + 3 * 130 + 1, 0x7F, GW_ERR_FRAME_PAYLOAD},
    {"bad-fp4-type", "mxfp4", 8, 2, GW_ERR_FRAME_HEADER},
    {"bad-fp4-group", "mxfp4", 11, 1, GW_ERR_FRAME_HEADER},
    {"bad-mx-scale", "mxfp4", 48 + 31, 253, GW_ERR_FRAME_PAYLOAD},
    {"bad-mx-padding", "mxfp4", 48 + 546, 0xF0, GW_ERR_FRAME_PAYLOAD},
    {"bad-nv-scale", "nvfp4", 48 + 4 + 63, 0x80, GW_ERR_FRAME_PAYLOAD},
    {"bad-nv-group-scale", "nvfp4", 48 + 3, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-nv-group-scale-tail", "nvfp4", 48 + 580 + 3, 0, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless-level", "lossless-bf16", 8, 3, GW_ERR_FRAME_HEADER},
    {"bad-lossless-far", "lossless-bf16", 48 + 1, 77, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless-raw", "lossless-bf16", 48 + 1, 255, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless-code", "lossless-bf16", 48 + 2, 0xFF, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless-rows", "lossless-rows", 48, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless-one", "lossless-one", 48, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless2-kind", "lossless2-bf16", 48, 2, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless2-codes", "lossless2-bf16", 48 + 1, 0x66, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless2-stream", "lossless2-bf16", 48 + 9, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless2-far", "lossless2-bf16", 48 + 18, 9, GW_ERR_FRAME_PAYLOAD},
    {"bad-lossless2-cut", "lossless2-bf16", CUT, 1, GW_ERR_FRAME_LENGTH},
    {"bad-topk-count", "topk", 48, 27, GW_ERR_FRAME_PAYLOAD},
    {"bad-topk-fewer", "topk", 48, 25, GW_ERR_FRAME_PAYLOAD},
    {"bad-topk-order", "topk", 52, 255, GW_ERR_FRAME_PAYLOAD},
    {"bad-topk-padding", "topk-odd", 48 + 4 + 11, 0x80, GW_ERR_FRAME_PAYLOAD},
    {"bad-topk-behind-poison", "topk-poisoned", 48 + 6, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-topk-values", "topk", 8, 4, GW_ERR_FRAME_HEADER},
    {"bad-topk-block", "topk", 9, 5, GW_ERR_FRAME_HEADER},
    {"bad-topk-ratio", "topk", 15, 0x50, GW_ERR_FRAME_HEADER},
    {"bad-randomk-behind-poison", "randomk-poisoned", 48 + 5, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-randomk-values", "randomk", 8, 2, GW_ERR_FRAME_HEADER},
    {"bad-randomk-block", "randomk", 9, 25, GW_ERR_FRAME_HEADER},
    {"bad-randomk-ratio", "randomk", 15, 0x90, GW_ERR_FRAME_HEADER},
    {"bad-block-form", "block", 48, 3, GW_ERR_FRAME_PAYLOAD},
    {"bad-block-map", "block", 49, 0x13, GW_ERR_FRAME_PAYLOAD},
    {"bad-block-empty", "block", 49, 0, GW_ERR_FRAME_PAYLOAD},
    {"bad-block-size", "block", 8, 13, GW_ERR_FRAME_HEADER},
    {"bad-block-domain", "block", 9, 3, GW_ERR_FRAME_HEADER},
    {"bad-block-long", "block", 32 + 4, 1, GW_ERR_FRAME_HEADER},
    {"bad-topk-scale", "topk-q8", 48 + 4 + 205 * 10 / 8 + 1 + 7, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-q4r-bits", "q4r", 8, 9, GW_ERR_FRAME_HEADER},
    {"bad-q4r-block", "q4r", 9, 13, GW_ERR_FRAME_HEADER},
    {"bad-q4r-block-small", "q4r", 9, 5, GW_ERR_FRAME_HEADER},
    {"bad-q4r-seed", "q4r", 15, 0x3C, GW_ERR_FRAME_HEADER},
    {"bad-q4r-other-seed", "q4r", 12, 1, GW_ERR_FRAME_MISMATCH},
    {"bad-q4r-scale", "q4r", 48 + 3, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-sign-parameter", "sign", 8, 1, GW_ERR_FRAME_HEADER},
    {"bad-sign-scale", "sign", 48 + 3, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-sign-mask", "sign-extreme", 48 + 4, 2, GW_ERR_FRAME_PAYLOAD},
    {"bad-natural-bits", "natural", 8, 8, GW_ERR_FRAME_HEADER},
    {"bad-natural-form", "natural", 9, 3, GW_ERR_FRAME_HEADER},
    {"bad-natural-other-form", "nuqsgd-b3", 9, 2, GW_ERR_FRAME_HEADER},
    {"bad-natural-parameter", "natural", 12, 1, GW_ERR_FRAME_HEADER},
    {"bad-natural-tail", "natural", 48 + 2 * 576 + 76 + 9, 0xF0, GW_ERR_FRAME_PAYLOAD},
    {"bad-nuqsgd-bits", "nuqsgd", 8, 2, GW_ERR_FRAME_HEADER},
    {"bad-nuqsgd-scale", "nuqsgd", 48 + 3, 0xBF, GW_ERR_FRAME_PAYLOAD},
    {"bad-nuqsgd-tail", "nuqsgd-b3", 48 + 4 * 28 + 4 + 16, 0x80, GW_ERR_FRAME_PAYLOAD},
    {"bad-ternary-scale", "ternary", 48 + 132 + 3, 0xFF, GW_ERR_FRAME_PAYLOAD},
    {"bad-ternary-tail", "ternary", 48 + 2 * 132 + 4 + 18, 0xC0, GW_ERR_FRAME_PAYLOAD},
    {"bad-lowrank-rank", "lowrank", 8, 33, GW_ERR_FRAME_HEADER},
    {"bad-lowrank-rank-0", "lowrank", 8, 0, GW_ERR_FRAME_HEADER},
    {"bad-lowrank-parameter", "lowrank", 9, 1, GW_ERR_FRAME_HEADER},
    {"bad-lowrank-p", "lowrank", 48 + 3, 0x40, GW_ERR_FRAME_PAYLOAD},
    {"bad-lowrank-p-nan", "lowrank", 48 + 4 * 23 + 3, 0x7F, GW_ERR_FRAME_PAYLOAD},
    {"bad-lowrank-q", "lowrank", 48 + 4 * 4 * 23 + 3, 0x7F, GW_ERR_FRAME_PAYLOAD},
    {"bad-lowrank-behind-poison", "lowrank-poisoned", 48 + 4, 1, GW_ERR_FRAME_PAYLOAD},
    {"bad-sign-tail", "sign", 48 + 2 * 70 + 14, 0xF0, GW_ERR_FRAME_PAYLOAD},
};

static const char *dir;

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "make_golden: %s: %s\n", name, what);
    exit(1);
}

/* Values that every machine makes alike: a linear generator, exact scalings. */
static void fill_values(fill_t fill, size_t count, float *x)
{
    static const float extremes[] = {FLT_MAX, -FLT_MAX, 0x1p126f, 1e-42f, 0.0f, -0.0f, 1.0f};
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ldexpf((float)((int32_t)state >> 8), -23 - (int)(state >> 3 & 7));
        if (i % 7 == 3)
            x[i] = 0.0f;
        if (fill == ROWS && i < 1024) /* one block of +0, one with a -0 in it */
            x[i] = i == 600 ? -0.0f : 0.0f;
        if (fill == STRIPES && i / 16 % 4)
            x[i] = 0.0f;
        if (fill == EXTREME)
            x[i] = i < 96 ? extremes[(state >> 16) % 7] : i < 128 ? ldexpf(x[i], -130) : x[i];
        if (fill == THIRDS && i / 100 % 3)
            x[i] = 0.0f;
    }
    if (fill == INFINITE)
        x[2] = x[3] = -INFINITY;
    if (fill == POISONED) {
        x[40] = INFINITY;
        x[70] = NAN;
    }
}

static FILE *open_new(const char *name, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, suffix);
    FILE *f = fopen(path, "wbx");
    if (f)
        printf("%s\n", path);
    return f;
}

static void write_new(const char *name, const char *suffix, const void *bytes, size_t length)
{
    FILE *f = open_new(name, suffix);
    if (f && (fwrite(bytes, 1, length, f) != length || fclose(f)))
        fail("cannot write", name);
}

static size_t make_frame(const good_t *g, uint8_t *frame, float *decoded)
{
    static float x[COUNT_MAX];
    gw_coder_t coder;
    char why[256];
    size_t length;
    fill_values(g->fill, g->count, x);
    if (gw_coder_parse(g->spec, &coder, why, sizeof why))
        fail(why, g->name);
    gw_encode_t in = {.src = x,
                      .wire_dtype = g->dtype,
                      .count = g->count,
                      .first = g->first,
                      .key = 4711,
                      .shared_key = 4712};
    gw_decode_t out = {.payload = frame,
                       .wire_dtype = g->dtype,
                       .count = g->count,
                       .first = g->first,
                       .dst = decoded};
    if (gw__frame_encode(&coder, &in, g->checksum, frame, ROOM, &length))
        fail("does not encode", g->name);
    out.length = length;
    if (gw_frame_decode(&coder, &out))
        fail("does not decode", g->name);
    return length;
}

static const good_t *find_good(const char *name)
{
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++)
        if (!strcmp(goods[i].name, name))
            return &goods[i];
    fail("no such base", name);
    return NULL;
}

static size_t spoil(const bad_t *b, uint8_t *frame, size_t length)
{
    if (b->at == CUT)
        return length - (size_t)b->value;
    if (b->at == GROW) {
        frame[length] = 0;
        return length + 1;
    }
    if (frame[b->at] == b->value)
        fail("is not changed", b->name);
    frame[b->at] = (uint8_t)b->value;
    return length;
}

int main(int argc, char **argv)
{
    static uint8_t frame[ROOM];
    static float decoded[COUNT_MAX];
    char path[4096];
    if (argc != 2)
        fail("usage: make_golden DIR", "DIR missing");
    dir = argv[1];
    snprintf(path, sizeof path, "%s/frames.txt", dir);
    FILE *list = fopen(path, "w");
    if (!list)
        fail("cannot write", path);
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const good_t *g = &goods[i];
        write_new(g->name, "gwf", frame, make_frame(g, frame, decoded));
        write_new(g->name, "f32", decoded, g->count * sizeof *decoded);
        fprintf(list, "good %s.gwf %s.f32 %s %d %zu %zu\n", g->name, g->name, g->spec, g->dtype,
                g->count, g->first);
    }
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        const bad_t *b = &bads[i];
        const good_t *g = find_good(b->base);
        size_t length = spoil(b, frame, make_frame(g, frame, decoded));
        write_new(b->name, "gwf", frame, length);
        fprintf(list, "bad %s.gwf %d %s %d %zu %zu\n", b->name, b->status, g->spec, g->dtype,
                g->count, g->first);
    }
    return fclose(list) ? 1 : 0;
}
