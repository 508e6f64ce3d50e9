/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: sizes and counts of the command line, medians, numbers in JSON. */
#include "bench_tools.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

bool gw_bench_parse_size(const char *text, size_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' || *end == 'k'   ? 10
                : *end == 'M' || *end == 'm' ? 20
                : *end == 'G' || *end == 'g' ? 30
                                             : 0;
    if (text[0] < '0' || text[0] > '9' || errno || end[shift > 0] != '\0' ||
        value > (SIZE_MAX >> 4 >> shift))
        return false;
    *out = (size_t)value << shift;
    return true;
}

bool gw_bench_parse_count(const char *text, int least, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > 1000000)
        return false;
    *out = (int)value;
    return true;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gw_bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

void gw_bench_json_number(const char *key, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.6g", key, value);
    else
        printf(", \"%s\": null", key);
}
