/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that MPI reads and writes for us: fragments, pooled for the whole process. */
#include "mpi_internal.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * One pool, so that hundreds of communicators hold no memory of their own while they are idle. Its
 * lock is taken for a few instructions per 63 KiB; the MPI behind it takes heavier ones.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gw__mpi_fragment_t *pool, *parked;

gw__mpi_fragment_t *gw__mpi_fragment_get(void)
{
    pthread_mutex_lock(&lock);
    gw__mpi_fragment_t *fragment = pool;
    if (fragment)
        pool = fragment->next;
    pthread_mutex_unlock(&lock);
    if (!fragment)
        fragment = malloc(sizeof *fragment);
    if (fragment) {
        fragment->next = fragment->message = NULL;
        fragment->done = false;
    }
    return fragment;
}

void gw__mpi_fragment_put(gw__mpi_fragment_t *fragment)
{
    pthread_mutex_lock(&lock);
    fragment->next = pool;
    pool = fragment;
    pthread_mutex_unlock(&lock);
}

void gw__mpi_fragment_park(gw__mpi_fragment_t *fragment)
{
    pthread_mutex_lock(&lock);
    fragment->next = parked;
    parked = fragment;
    pthread_mutex_unlock(&lock);
}
