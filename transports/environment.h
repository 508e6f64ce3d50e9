/* SPDX-License-Identifier: Apache-2.0 */
/* Variables for the moment in which a foreign library reads them. */
#ifndef GW_ENVIRONMENT_H
#define GW_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* A variable and what it is to be: "NAME=value", which stays in use and unchanged for ever. */
typedef struct gw__preset {
    char *entry;
    bool yields; /* to a value that the user has given it */
} gw__preset_t;

typedef struct gw__environment gw__environment_t;

/*
 * Between enter and leave the environment has the presets; afterwards it has what it had before and
 * what was written meanwhile. NULL: no memory; nothing was done. One thread at a time is between
 * the two, others wait in enter. Readers in other threads, which POSIX allows, see a whole
 * environment in valid memory at any time. What another thread writes in the microsecond of the
 * exchange itself may be lost. `environ` is another array afterwards, with the same variables; a
 * few kilobytes stay in use for each visit, for threads that read it.
 */
gw__environment_t *gw__environment_enter(const gw__preset_t *presets, size_t count);
void gw__environment_leave(gw__environment_t *visit);

#endif
