/* SPDX-License-Identifier: Apache-2.0 */
/* The codec benchmark's table for people and its JSON lines. */
#ifndef GW_BENCH_CODEC_PRINT_H
#define GW_BENCH_CODEC_PRINT_H

#include "bench_codec.h"

/* `data` is a line about the data; `width` that of the column of codecs. */
void gw_bench_print_head(FILE *out, const gw_bench_codec_t *bench, const char *data, int repeats,
                         int width);

/* The codec's spec or the library's name. */
const char *gw_bench_row_name(const gw_bench_codec_t *bench);

/* One row of the table, of bench->coder on the kernels in use. */
void gw_bench_print_row(FILE *out, const gw_bench_codec_t *bench, const gw_bench_row_t *row,
                        int width);

/* The same as one JSON object in one line of stdout; `data` as the user named it. */
void gw_bench_print_json(const gw_bench_codec_t *bench, const gw_bench_row_t *row,
                         const char *data);

/* The line and the JSON member of a codec that sums factors; of others nothing, and null. */
void gw_bench_print_factors(FILE *out, const gw_bench_codec_t *bench,
                            const gw_bench_factors_t *factors);
void gw_bench_json_factors(const gw_bench_codec_t *bench, const gw_bench_factors_t *factors);

#endif
