/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of codecs: flags come from the family's table, the rest from asking the codec itself.
 */
#include "info_matrix.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* SAMPLE: elements that a codec is tried with, whole grains of all families by default. SIZED: that
 * many elements make bits an element of a bound, so that headers of blocks are in it. */
enum { DTYPES = 3, SAMPLE = 1 << 17, SIZED = 1 << 24 };

static const gw_dtype_t dtypes[DTYPES] = {GW_F32, GW_F16, GW_BF16};

/* What becomes of elements that are exactly 0. */
typedef enum zeros { ZEROS_MOVE, ZEROS_RUNS, ZEROS_STAY } zeros_t;

typedef struct row {
    gw_coder_t coder;
    bool takes[DTYPES], merges[DTYPES], lossy, feedback;
    double bits[DTYPES]; /* of payload an element */
    zeros_t zeros;
} row_t;

/* Buffers of a codec's trial. */
typedef struct trial {
    float *src, *dst;
    uint8_t *frame, *other;
    size_t capacity, length;
} trial_t;

static bool has(const row_t *row, unsigned flag)
{
    return row->coder.family->flags & flag;
}

/* The first half: every third element is 0. The second half is 0. The bits are small enough to be
 * finite in all element types. */
static void fill(float *x)
{
    uint32_t state = 1;
    memset(x, 0, SAMPLE * sizeof *x);
    for (int i = 0; i < SAMPLE / 2; i++) {
        state = state * 1664525u + 1013904223u;
        if (i % 3)
            x[i] = ((float)(state >> 8) + 0.5f) * 0x1p-23f - 1.0f;
    }
}

static bool all_zero(const float *x, const float *y, int from, int to)
{
    for (int i = from; i < to; i++)
        if (x[i] == 0.0f && y[i] != 0.0f)
            return false;
    return true;
}

static gw_status_t encode(const gw_coder_t *coder, gw_dtype_t dtype, trial_t *t)
{
    gw_encode_t in = {.src = t->src,
                      .src_dtype = GW_F32,
                      .wire_dtype = dtype,
                      .count = SAMPLE,
                      .key = 1,
                      .shared_key = 1};
    return gw_frame_encode(coder, &in, t->frame, t->capacity, &t->length);
}

/* Needs the frame of the last encoding. */
static zeros_t try_zeros(const gw_coder_t *coder, gw_dtype_t dtype, trial_t *t)
{
    gw_decode_t io = {.payload = t->frame,
                      .length = t->length,
                      .wire_dtype = dtype,
                      .count = SAMPLE,
                      .dst = t->dst,
                      .dst_dtype = GW_F32};
    if (gw_frame_decode(coder, &io) != GW_OK || !all_zero(t->src, t->dst, SAMPLE / 2, SAMPLE))
        return ZEROS_MOVE;
    return all_zero(t->src, t->dst, 0, SAMPLE / 2) ? ZEROS_STAY : ZEROS_RUNS;
}

/* Needs the frame of the last encoding, and adds it to itself. */
static bool try_merge(const gw_coder_t *coder, gw_dtype_t dtype, trial_t *t)
{
    gw_merge_t io = {.from = t->other,
                     .from_length = t->length,
                     .into = t->frame,
                     .into_length = t->length,
                     .wire_dtype = dtype,
                     .count = SAMPLE};
    memcpy(t->other, t->frame, t->length);
    return gw_frame_merge(coder, &io) == GW_OK;
}

/* A family may have an exact member: lossy is what declares an error for the sample. */
static bool declares_error(const gw_coder_t *coder, trial_t *t)
{
    if (!(coder->family->flags & GW_CODEC_LOSSY))
        return false;
    coder->family->error_bound(coder, t->src, SAMPLE, t->dst);
    for (int i = 0; i < SAMPLE; i++)
        if (t->dst[i] != 0.0f)
            return true;
    return false;
}

static void try_dtypes(row_t *row, trial_t *t)
{
    const gw_coder_t *coder = &row->coder;
    for (int d = 0; d < DTYPES; d++) {
        row->takes[d] = encode(coder, dtypes[d], t) == GW_OK;
        if (!row->takes[d])
            continue;
        row->bits[d] = 8.0 * (double)coder->family->bound(coder, dtypes[d], SIZED) / SIZED;
        zeros_t zeros = try_zeros(coder, dtypes[d], t);
        row->zeros = zeros < row->zeros ? zeros : row->zeros;
        row->merges[d] = has(row, GW_CODEC_LINEAR) && try_merge(coder, dtypes[d], t);
    }
}

static bool examine(const gw_coder_t *coder, row_t *row)
{
    *row = (row_t){.coder = *coder, .zeros = ZEROS_STAY};
    trial_t t = {.capacity = gw_frame_bound(coder, GW_F32, SAMPLE)};
    t.src = malloc(2 * SAMPLE * sizeof *t.src);
    t.frame = malloc(2 * t.capacity);
    bool good = t.src && t.frame;
    if (good) {
        t.dst = t.src + SAMPLE;
        t.other = t.frame + t.capacity;
        fill(t.src);
        row->lossy = declares_error(coder, &t);
        row->feedback = has(row, GW_CODEC_FEEDBACK) && gw_coder_get(coder, "ef", 1) != 0;
        try_dtypes(row, &t);
    }
    free(t.src);
    free(t.frame);
    return good;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* "f32 bf16": the types of the list, or "-". */
static const char *merge_list(const row_t *row, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "-");
    for (int d = 0; d < DTYPES; d++)
        if (row->merges[d] && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "",
                                     gw_dtype_name(dtypes[d]));
    return out;
}

static const char *bits_text(const row_t *row, int d, char *out, size_t size)
{
    if (row->takes[d])
        snprintf(out, size, "%.4g", row->bits[d]);
    else
        snprintf(out, size, "-");
    return out;
}

static const char *yes(bool value)
{
    return value ? "yes" : "-";
}

static const char *const zeros_words[] = {"move", "runs", "stay"};

/* Column by column, in both forms of a table. */
static void print_table_row(FILE *out, const row_t *row, bool markdown)
{
    char merge[32], bits[DTYPES][16], name[GW_CODEC_SPEC_MAX + 2];
    for (int d = 0; d < DTYPES; d++)
        bits_text(row, d, bits[d], sizeof bits[d]);
    const char *quote = markdown ? "`" : "";
    snprintf(name, sizeof name, "%s%s%s", quote, row->coder.spec, quote);
    fprintf(out,
            markdown ? "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n"
                     : "  %-12s %-9s %6s %6s %6s  %-7s %-5s %-8s %-8s %-12s %s\n",
            name, row->coder.family->family, bits[0], bits[1], bits[2],
            has(row, GW_CODEC_FIXED) ? "fixed" : "at most", yes(row->lossy), yes(row->feedback),
            yes(row->coder.family->reduce != NULL), merge_list(row, merge, sizeof merge),
            zeros_words[row->zeros]);
}

static void print_head(FILE *out, gw_matrix_form_t form)
{
    if (form == GW_MATRIX_MARKDOWN)
        fputs("| codec | family | f32 | f16 | bf16 | size | lossy | feedback | one pass | merge "
              "| zeros |\n"
              "|---|---|---|---|---|---|---|---|---|---|---|\n",
              out);
    if (form == GW_MATRIX_TEXT)
        fprintf(out,
                "payload bits an element by element type, and features (at most: the size follows "
                "from the data;\none pass: sums and encodes in one; merge: sums without decoding; "
                "zeros: stay everywhere, only in\nlong runs, or move):\n"
                "  %-12s %-9s %6s %6s %6s  %-7s %-5s %-8s %-8s %-12s %s\n",
                "codec", "family", "f32", "f16", "bf16", "size", "lossy", "feedback", "one pass",
                "merge", "zeros");
}

static void print_json_row(FILE *out, const row_t *row, bool first)
{
    char text[16];
    const char *comma = "";
    fprintf(out, "%s{\"codec\": ", first ? "" : ", ");
    gw_json_string(out, row->coder.spec);
    fprintf(out, ", \"family\": ");
    gw_json_string(out, row->coder.family->family);
    fprintf(out, ", \"bits\": {");
    for (int d = 0; d < DTYPES; d++)
        fprintf(out, "%s\"%s\": %s", d ? ", " : "", gw_dtype_name(dtypes[d]),
                row->takes[d] ? bits_text(row, d, text, sizeof text) : "null");
    fprintf(out, "}, \"fixed\": %s, \"lossy\": %s, \"feedback\": %s, \"reduce\": %s, \"merge\": [",
            has(row, GW_CODEC_FIXED) ? "true" : "false", row->lossy ? "true" : "false",
            row->feedback ? "true" : "false", row->coder.family->reduce ? "true" : "false");
    for (int d = 0; d < DTYPES; d++)
        if (row->merges[d]) {
            fprintf(out, "%s\"%s\"", comma, gw_dtype_name(dtypes[d]));
            comma = ", ";
        }
    fprintf(out, "], \"zeros\": \"%s\"}", zeros_words[row->zeros]);
}

void gw_matrix_print(FILE *out, gw_matrix_form_t form)
{
    const gw_codec_t *family;
    gw_coder_t coder;
    row_t row;
    bool first = true;
    print_head(out, form);
    for (size_t i = 0; (family = gw_codec_at(i)); i++)
        for (const char *at = NULL; (at = gw_cli_next_codec(family, at, &coder, NULL, 0));) {
            if (!examine(&coder, &row)) {
                fputs("gradwire info: no memory for the matrix of codecs\n", stderr);
                return;
            }
            if (form == GW_MATRIX_JSON)
                print_json_row(out, &row, first);
            else
                print_table_row(out, &row, form == GW_MATRIX_MARKDOWN);
            first = false;
        }
}
