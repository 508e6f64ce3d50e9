/* SPDX-License-Identifier: Apache-2.0 */
/* The default codec for a budget of bits an element: what `auto:bits=N` stands for. */
#include "codecs.h"

/* By bits, rising: about as many an element are sent, in float32. Chosen by training runs and by
 * the error and speed of each codec; the figures and the reasons are in codecs/README.md. */
static const struct {
    double bits;
    const char *spec;
} table[] = {
    {0.25, "topk+q8"}, {1, "q1r"}, {2, "q2r"},   {3, "q3"},
    {4, "q4"},         {8, "q8"},  {16, "bf16"}, {32, "lossless"},
};
enum { COUNT = sizeof table / sizeof *table };

const char *gw_codec_budget_at(size_t i, double *bits)
{
    if (i >= COUNT)
        return NULL;
    *bits = table[i].bits;
    return table[i].spec;
}

const char *gw__budget_find(double bits)
{
    const char *found = NULL;
    for (size_t i = 0; i < COUNT && table[i].bits <= bits; i++)
        found = table[i].spec;
    return found;
}
