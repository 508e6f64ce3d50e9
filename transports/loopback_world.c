/* SPDX-License-Identifier: Apache-2.0 */
/* The loopback's world: made once for all ranks, with an all-gather that threads can use as
 * out-of-band channel. */
#include "loopback.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES = 16, LETTERS = 8, LETTERS_MOST = 64 }; /* per sender; per sender; in all */

void gw__loopback_list_add(list_t *list, item_t *item)
{
    item->next = NULL;
    if (list->tail)
        list->tail->next = item;
    else
        list->head = item;
    list->tail = item;
}

/* `count` buffers of `bytes` each. */
static gw_status_t shelf_init(shelf_t *shelf, size_t count, size_t bytes)
{
    size_t step = sizeof(item_t) + bytes;
    shelf->memory = calloc(count, step);
    if (!shelf->memory)
        return GW_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        item_t *item = (item_t *)(void *)(shelf->memory + i * step);
        item->data = (unsigned char *)(item + 1);
        gw__loopback_list_add(&shelf->free, item);
    }
    return GW_OK;
}

static gw_status_t box_init(box_t *box, int size)
{
    pthread_condattr_t monotonic;
    size_t notes = NOTES * (size_t)size, letters = LETTERS * (size_t)size;
    letters = letters < LETTERS_MOST ? letters : LETTERS_MOST;
    box->lanes = calloc((size_t)size, sizeof(*box->lanes));
    if (!box->lanes || shelf_init(&box->notes, notes, LOOPBACK_NOTE) != GW_OK ||
        shelf_init(&box->letters, letters, LOOPBACK_EAGER) != GW_OK) {
        free(box->notes.memory);
        free(box->letters.memory);
        free(box->lanes);
        return GW_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&box->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&box->event, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return GW_OK;
}

static void box_free(box_t *box)
{
    free(box->notes.memory);
    free(box->letters.memory);
    free(box->lanes);
    pthread_cond_destroy(&box->event);
    pthread_mutex_destroy(&box->lock);
}

gw_status_t gw_loopback_create(int size, gw_loopback_t **out)
{
    static atomic_uint worlds;
    if (size < 1 || !out)
        return GW_ERR_INVALID;
    gw_loopback_t *world = calloc(1, sizeof(*world));
    if (!world)
        return GW_ERR_NO_MEMORY;
    world->boxes = calloc((size_t)size, sizeof(*world->boxes));
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->turn, NULL);
    world->id = atomic_fetch_add(&worlds, 1);
    /* `size` counts the boxes that gw_loopback_free has to undo. */
    while (world->boxes && world->size < size &&
           box_init(&world->boxes[world->size], size) == GW_OK)
        world->size++;
    if (world->size < size) {
        gw_loopback_free(world);
        return GW_ERR_NO_MEMORY;
    }
    *out = world;
    return GW_OK;
}

void gw_loopback_free(gw_loopback_t *world)
{
    if (!world)
        return;
    for (int i = 0; i < world->size; i++)
        box_free(&world->boxes[i]);
    pthread_cond_destroy(&world->turn);
    pthread_mutex_destroy(&world->lock);
    free(world->gathered);
    free(world->boxes);
    free(world);
}

/* The first rank to arrive brings the table, the others must want the same size. */
static void arrive(gw_loopback_t *world, int rank, const void *mine, size_t bytes)
{
    if (world->arrived++ == 0) {
        world->verdict = GW_OK;
        world->bytes = bytes;
        world->gathered = malloc(bytes * (size_t)world->size + 1);
        if (!world->gathered)
            world->verdict = GW_ERR_NO_MEMORY;
    }
    if (world->bytes != bytes)
        world->verdict = GW_ERR_INVALID;
    if (world->verdict == GW_OK && bytes)
        memcpy(world->gathered + bytes * (size_t)rank, mine, bytes);
}

gw_status_t gw_loopback_allgather(void *loopback_rank, const void *mine, void *all, size_t bytes)
{
    const gw_loopback_rank_t *me = loopback_rank;
    gw_loopback_t *world = me->world;
    pthread_mutex_lock(&world->lock);
    while (world->leaving)
        pthread_cond_wait(&world->turn, &world->lock);
    arrive(world, me->rank, mine, bytes);
    if (world->arrived == world->size) {
        world->leaving = true;
        pthread_cond_broadcast(&world->turn);
    }
    while (!world->leaving)
        pthread_cond_wait(&world->turn, &world->lock);
    gw_status_t status = world->verdict;
    if (status == GW_OK && bytes)
        memcpy(all, world->gathered, bytes * (size_t)world->size);
    if (++world->left == world->size) {
        free(world->gathered);
        world->gathered = NULL;
        world->arrived = world->left = 0;
        world->leaving = false;
        pthread_cond_broadcast(&world->turn);
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}
