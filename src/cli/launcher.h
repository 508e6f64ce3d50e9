/* SPDX-License-Identifier: Apache-2.0 */
/* Knows MPI launchers: tells them from programs, and hands variables to the ranks on all nodes. */
#ifndef GW_LAUNCHER_H
#define GW_LAUNCHER_H

#include <stddef.h>

typedef enum gw__launcher {
    GW__LAUNCHER_NONE,    /* not a launcher: the program itself, a script, srun (which forwards the
                             environment) */
    GW__LAUNCHER_OPENMPI, /* mpirun and its names, of Open MPI */
    GW__LAUNCHER_OTHER    /* mpirun or mpiexec of another MPI */
} gw__launcher_t;

/* What `command` is: by its name, by the file behind it, and where both leave it open by what its
 * --version prints. `about` gets a word for people about GW__LAUNCHER_OTHER. */
gw__launcher_t gw__launcher_recognise(const char *command, char *about, size_t size);

/* One variable for the ranks. */
typedef struct gw__variable {
    const char *name, *value;
} gw__variable_t;

/*
 * The arguments of an Open MPI launcher, with the variables added to every application context
 * (contexts are separated by ":"). What the user himself passes by -x wins, but for LD_PRELOAD:
 * there the first library of ours is put before his. Where he uses mca_base_env_list, with which
 * Open MPI refuses -x, the variables go into that list instead. Returns a new NULL-terminated
 * array; NULL with a sentence in `why` when it cannot be done. May change the environment.
 */
char **gw__launcher_arguments(char **command, const gw__variable_t *variables, size_t count,
                              char *why, size_t size);

/* `library` put in front of the LD_PRELOAD list `old` (NULL or "": alone), not twice. The runtimes
 * of the sanitizers stay first, as they insist on. malloc'ed; NULL: no memory. */
char *gw__launcher_preload(const char *library, const char *old);

#endif
