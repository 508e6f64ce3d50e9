/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether all ranks of the job run the same Gradwire with the same settings. Every rank publishes
 * its settings before MPI_Init and reads those of all others after it. That needs no collective of
 * ours, so a rank without the shim cannot make the others hang, and all ranks see the same texts
 * and come to the same result.
 */
#include "preload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFECT = '!' }; /* first character of what a rank publishes that cannot run */

static struct {
    char text[GW_AGREEMENT_MAX]; /* what this rank published */
    char failure[160];           /* why it could not publish; "" when it could */
    bool offered;                /* the launcher has PMIx */
} mine;

void gw__agreement_publish(const char *defect)
{
    if (defect)
        snprintf(mine.text, sizeof mine.text, "%c%s", DEFECT, defect);
    else if (gw__library.context_agreement(gw__job.context, mine.text, sizeof mine.text) != GW_OK)
        snprintf(mine.text, sizeof mine.text, "%csettings have no text", DEFECT);
    mine.offered = gw__pmix_offered();
    if (mine.offered)
        gw__pmix_put(mine.text, mine.failure, sizeof mine.failure);
}

static void report(const char *sentence)
{
    if (gw__job.context)
        gw__library.context_log(gw__job.context, GW_LOG_WARN, "%s; nothing is compressed",
                                sentence);
    else
        gw__warn("%s; nothing is compressed", sentence);
}

/* Names the first rank that published a defect. */
static bool defect_found(const char *const *texts, char *why, size_t size)
{
    for (int rank = 0; rank < gw__job.size; rank++) {
        if (texts[rank][0] == DEFECT) {
            snprintf(why, size, "rank %d cannot run Gradwire: %s", rank, texts[rank] + 1);
            return true;
        }
    }
    return false;
}

static bool compare(const char *const *texts)
{
    char why[GW_AGREEMENT_MAX + 128];
    if (defect_found(texts, why, sizeof why) ||
        gw__library.agreement_compare(texts, gw__job.size, why, sizeof why) != GW_OK) {
        report(why);
        return false;
    }
    return true;
}

/* Texts equal to this rank's are not kept twice: a job may have a hundred thousand ranks. */
static const char *text_of(int rank)
{
    char *text = gw__pmix_get(rank);
    if (!text)
        return "";
    if (strcmp(text, mine.text) != 0)
        return text;
    free(text);
    return mine.text;
}

static bool compare_all(void)
{
    const char **texts = calloc((size_t)gw__job.size, sizeof *texts);
    if (!texts) {
        report("no memory to compare settings");
        return false;
    }
    for (int rank = 0; rank < gw__job.size; rank++)
        texts[rank] = text_of(rank);
    bool agreed = compare(texts);
    for (int rank = 0; rank < gw__job.size; rank++)
        if (texts[rank] != mine.text && texts[rank][0])
            free((char *)texts[rank]);
    free(texts);
    return agreed;
}

/* A job of one rank compares with nobody: so does a program that was started without a launcher. */
static bool compare_alone(void)
{
    const char *text = mine.text;
    return compare(&text);
}

bool gw__agreement_reached(void)
{
    if (gw__job.size == 1)
        return compare_alone();
    if (!mine.offered) {
        if (gw__job.rank == 0)
            report("settings cannot be compared: the launcher offers no PMIx");
        return false;
    }
    if (mine.failure[0]) {
        char why[256];
        snprintf(why, sizeof why, "settings cannot be compared: %s", mine.failure);
        report(why);
        return false;
    }
    return compare_all();
}
