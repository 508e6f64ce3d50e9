/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: sizes and counts of the command line, medians, numbers in JSON. */
#ifndef GW_BENCH_TOOLS_H
#define GW_BENCH_TOOLS_H

#include <stdbool.h>
#include <stddef.h>

/* "4096", "64K", "2M", "1G" (powers of 1024) to bytes; false for anything else. */
bool gw_bench_parse_size(const char *text, size_t *out);

/* A whole number from `least` to a million; false for anything else. */
bool gw_bench_parse_count(const char *text, int least, int *out);

/* Sorts the n >= 1 values. */
double gw_bench_median(double *values, int n);

/* Prints `, "key": value` to stdout; null for a value that is no number. */
void gw_bench_json_number(const char *key, double value);

#endif
