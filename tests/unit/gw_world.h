/* SPDX-License-Identifier: Apache-2.0 */
/* A world of ranks that are threads of the test: each runs the same function with its own context
 * and communicator. */
#ifndef GW_WORLD_H
#define GW_WORLD_H

#include <pthread.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "gw_test.h"

typedef struct gw_rank {
    int rank, size;
    gw_context_t *context;
    gw_comm_t *comm;
    void *arg;
    struct gw_world *world;
} gw_rank_t;

typedef struct gw_world {
    int size;
    const char *transport;        /* "loopback", "ucx", or "fault" over the loopback */
    const gw_setting_t *settings; /* of every rank */
    size_t setting_count;
    const gw_setting_t *odd; /* one more setting, of rank odd_rank only; NULL: none */
    int odd_rank;
    void (*body)(gw_rank_t *rank);
    void *arg;
    gw_loopback_t *loopback;
    gw_status_t created[64]; /* what gw_comm_create returned on each rank */
    char why[64][512];
} gw_world_t;

typedef struct gw__world_thread {
    gw_world_t *world;
    int rank;
} gw__world_thread_t;

static inline void *gw__world_main(void *pointer)
{
    gw__world_thread_t *self = pointer;
    gw_world_t *world = self->world;
    gw_rank_t rank = {.rank = self->rank, .size = world->size, .arg = world->arg, .world = world};
    gw_setting_t settings[32];
    size_t n = world->setting_count;
    if (n > 0)
        memcpy(settings, world->settings, n * sizeof *settings);
    if (world->odd && self->rank == world->odd_rank)
        settings[n++] = *world->odd;
    ck_assert_int_eq(gw_context_create(settings, n, &rank.context, world->why[self->rank], 512),
                     GW_OK);
    gw_loopback_rank_t oob = {world->loopback, self->rank};
    bool loopback = strcmp(world->transport, "ucx") != 0;
    gw_comm_params_t params = {.rank = self->rank,
                               .size = world->size,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &oob,
                               .transport = world->transport,
                               .transport_arg = loopback ? world->loopback : NULL};
    world->created[self->rank] = gw_comm_create(rank.context, &params, &rank.comm);
    if (world->created[self->rank] == GW_OK && world->body)
        world->body(&rank);
    gw_comm_free(rank.comm);
    gw_context_free(rank.context);
    return NULL;
}

/* Runs world->body on `size` ranks and waits for all of them. */
static inline void gw_world_run(gw_world_t *world)
{
    pthread_t threads[64];
    gw__world_thread_t self[64];
    ck_assert_int_le(world->size, 64);
    ck_assert_int_eq(gw_loopback_create(world->size, &world->loopback), GW_OK);
    for (int r = 0; r < world->size; r++) {
        self[r] = (gw__world_thread_t){world, r};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, gw__world_main, &self[r]), 0);
    }
    for (int r = 0; r < world->size; r++)
        pthread_join(threads[r], NULL);
    gw_loopback_free(world->loopback);
}

#endif
