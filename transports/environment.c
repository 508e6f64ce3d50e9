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

enum { ATTEMPTS = 100 }; /* each fails only when a writer changes the array in that moment */
enum { LOOKS = 8 };      /* each misses only what a writer moves in that moment */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gw__environment_t *visits; /* all that were ever made */

/* ---- The array that other threads may be writing to ---------------------------------------------
 */

/*
 * A writer may move entries and even free the array while it is looked at: nobody outside of the C
 * library can lock it. So entries are copied and compared, never followed, before it is known that
 * the array has stayed. Sanitizers cannot know that.
 */
#define UNLOCKED __attribute__((noinline, no_sanitize("address", "thread")))

/* Until whoever was writing is done: writers hold the C library's lock from their look at `environ`
 * to their last store. Nobody sets this variable. */
static void wait_for_writers(void)
{
    unsetenv("GRADWIRE_NEVER_SET");
}

static char **array_now(void)
{
    static char *nothing[] = {NULL};
    char **now = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
    return now ? now : nothing;
}

UNLOCKED static size_t count_of(char *const *entries)
{
    size_t count = 0;
    while (__atomic_load_n(&entries[count], __ATOMIC_RELAXED))
        count++;
    return count;
}

UNLOCKED static void copy(char **to, char *const *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    to[count] = NULL;
}

UNLOCKED static bool is_same(char *const *copied, char *const *entries, size_t count)
{
    size_t i = 0;
    while (i <= count && copied[i] == __atomic_load_n(&entries[i], __ATOMIC_RELAXED))
        i++;
    return i > count;
}

UNLOCKED static bool has(char *const *entries, const char *entry)
{
    const char *now;
    while ((now = __atomic_load_n(entries, __ATOMIC_RELAXED)) != NULL && now != entry)
        entries++;
    return now != NULL;
}

/* Whether the environment has this very entry. */
static bool is_there(const char *entry)
{
    for (int look = 0; look < LOOKS; look++) {
        if (has(array_now(), entry))
            return true;
        wait_for_writers();
    }
    return false;
}

/* ---- Visits -------------------------------------------------------------------------------------
 */

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

/* What a preset hides; at an attempt that is not the first it may find itself there. */
static char *hidden_by(const gw__environment_t *visit, size_t preset, char *entry)
{
    const gw__environment_t *earlier = visit->earlier;
    if (entry != visit->presets[preset].entry)
        return entry;
    return earlier && earlier->presets == visit->presets ? earlier->users[preset] : NULL;
}

/* Puts presets in the places of what they hide, or at the end. */
static void put_presets(gw__environment_t *visit)
{
    for (size_t i = 0; i < visit->preset_count; i++) {
        const gw__preset_t *preset = &visit->presets[i];
        char **place = find(visit->inside, preset->entry);
        visit->users[i] = hidden_by(visit, i, *place);
        if (*place && preset->yields)
            continue;
        if (!*place)
            place[1] = NULL;
        *place = preset->entry;
    }
}

static gw__environment_t *visit_new(const gw__preset_t *presets, size_t preset_count, size_t count)
{
    size_t inside = count + preset_count + 1;
    gw__environment_t *visit =
        malloc(sizeof *visit + (inside + preset_count) * sizeof visit->inside[0]);
    if (visit)
        *visit = (gw__environment_t){visits, presets, preset_count, visit->inside + inside};
    return visit;
}

/* Whether the new array is in use and has all that belongs into it. */
static bool has_come(const gw__environment_t *visit)
{
    bool all = true;
    for (size_t i = 0; i < visit->preset_count && all; i++) {
        const gw__preset_t *preset = &visit->presets[i];
        all = is_there(preset->yields && visit->users[i] ? visit->users[i] : preset->entry);
    }
    return all;
}

/*
 * The old array was whole, and in use, when all who had been writing were done; the exchange fails
 * if it is not in use any more. Writers that come then work on the new array; one that had looked
 * at the old one may still put an array of its own in place, which is seen once it is done.
 */
static bool exchange(gw__environment_t *visit, char **before, size_t count)
{
    char **seen = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
    copy(visit->inside, before, count);
    wait_for_writers();
    if (array_now() != before || !is_same(visit->inside, before, count))
        return false;
    put_presets(visit);
    visits = visit;
    return __atomic_compare_exchange_n(&environ, &seen, visit->inside, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

gw__environment_t *gw__environment_enter(const gw__preset_t *presets, size_t preset_count)
{
    pthread_mutex_lock(&lock);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        char **before = array_now();
        size_t count = count_of(before);
        gw__environment_t *visit = visit_new(presets, preset_count, count);
        if (!visit)
            break;
        bool done = exchange(visit, before, count);
        wait_for_writers();
        if (done && has_come(visit))
            return visit;
        if (visits != visit)
            free(visit);
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
        if (!is_there(preset))
            continue;
        if (visit->users[i])
            putenv(visit->users[i]);
        else
            unset(preset);
    }
    pthread_mutex_unlock(&lock);
}
