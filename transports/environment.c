/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges the environment as a whole, so that threads that read it are never disturbed. */
#include "environment.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/*
 * Presets come in by an exchange of the whole array, not by setenv(): setenv() may move the array
 * under a thread that is just in getenv(). The new array stays in use and both are kept, so a
 * thread in getenv() always reads valid memory.
 */
struct gw__environment {
    struct gw__environment *earlier;
    const gw__preset_t *presets;
    size_t preset_count;
    char **users;   /* per preset: the entry that it hides, or NULL */
    char *inside[]; /* the new array and its NULL; behind it `users` */
};

enum { ATTEMPTS = 100 }; /* each fails only when a writer makes a new array in that moment */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gw__environment_t *visits; /* all that were ever made */

/* Bytes of "NAME=" of a preset. */
static size_t name_of(const char *preset)
{
    return (size_t)(strchr(preset, '=') - preset) + 1;
}

/* The place of the entry of the same name, or of the final NULL. */
static char **find(char **entries, const char *preset)
{
    size_t name = name_of(preset);
    while (*entries && strncmp(*entries, preset, name) != 0)
        entries++;
    return entries;
}

/* The new array: the entries of before, presets in the places of what they hide, or at the end. */
static void fill(gw__environment_t *visit, char *const *before, size_t count)
{
    memcpy(visit->inside, before, count * sizeof before[0]);
    visit->inside[count] = NULL;
    for (size_t i = 0; i < visit->preset_count; i++) {
        const gw__preset_t *preset = &visit->presets[i];
        char **place = find(visit->inside, preset->entry);
        visit->users[i] = *place;
        if (*place && preset->yields)
            continue;
        if (!*place)
            place[1] = NULL;
        *place = preset->entry;
    }
}

static gw__environment_t *visit_new(const gw__preset_t *presets, size_t preset_count)
{
    static char *nothing[] = {NULL};
    char **before = environ ? environ : nothing;
    size_t count = 0;
    while (before[count])
        count++;
    size_t inside = count + preset_count + 1;
    gw__environment_t *visit =
        malloc(sizeof *visit + (inside + preset_count) * sizeof visit->inside[0]);
    if (!visit)
        return NULL;
    *visit = (gw__environment_t){visits, presets, preset_count, visit->inside + inside};
    fill(visit, before, count);
    visits = visit;
    return visit;
}

static bool is_inside(const gw__preset_t *preset)
{
    const char *now = environ ? *find(environ, preset->entry) : NULL;
    return preset->yields ? now != NULL : now == preset->entry;
}

static bool has_come(const gw__environment_t *visit)
{
    size_t i = 0;
    while (i < visit->preset_count && is_inside(&visit->presets[i]))
        i++;
    return i == visit->preset_count;
}

/*
 * Writers hold the C library's lock from their look at `environ` to their last store. Once that
 * lock was free, all of them work on the new array, unless one that added a variable meanwhile has
 * put an array of its own in place: then all is done again. The old array is not looked at any
 * more, for the C library may free it.
 */
gw__environment_t *gw__environment_enter(const gw__preset_t *presets, size_t count)
{
    pthread_mutex_lock(&lock);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        gw__environment_t *visit = visit_new(presets, count);
        if (!visit)
            break;
        __atomic_store_n(&environ, visit->inside, __ATOMIC_RELEASE);
        unsetenv("GRADWIRE_NEVER_SET");
        if (has_come(visit))
            return visit;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void unset(const char *preset)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)name_of(preset) - 1, preset);
    unsetenv(name);
}

/* Takes out the presets, unless somebody has meanwhile given such a name a value of his own. What
 * the user had before is put back. */
void gw__environment_leave(gw__environment_t *visit)
{
    for (size_t i = 0; i < visit->preset_count; i++) {
        char *preset = visit->presets[i].entry;
        if (!environ || *find(environ, preset) != preset)
            continue;
        if (visit->users[i])
            putenv(visit->users[i]);
        else
            unset(preset);
    }
    pthread_mutex_unlock(&lock);
}
