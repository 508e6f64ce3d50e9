/* SPDX-License-Identifier: Apache-2.0 */
/* The loopback transport: ranks are threads of one process, messages are copied between their
 * buffers. */
#include "loopback.h"
#include "transports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Each rank owns a box with one lane per sender. A lane holds the messages that found no receive
 * and the receives that found no message; one of the two lists is always empty of a given tag.
 * Whoever comes second does the copy, outside the lock. A request's status is written by its
 * owner's thread alone: the other side only puts the finished item on the owner's `done` list, and
 * progress() hands it out.
 *
 * Messages of a few KiB are copied when no receive waits and the receiver has a buffer left, so
 * that their send is done at once. Others stay in the sender's buffer until the receive comes, as
 * on a real wire: a plan that relies on unlimited buffering hangs here too. No message allocates.
 */
#define ADDRESS_MAGIC 0x4757424cu /* "LBWG" in memory */

struct gw_link {
    gw_loopback_t *world;
    int rank;
};

typedef struct address {
    uint32_t magic, world, rank, size;
} address_t;

/* Takes `wanted`, or with NULL the first item of this tag, out of the list; NULL when it is not
 * there. */
static item_t *list_take(list_t *list, const item_t *wanted, uint64_t tag)
{
    item_t *before = NULL;
    for (item_t *item = list->head; item; before = item, item = item->next) {
        if (wanted ? item != wanted : item->tag != tag)
            continue;
        if (before)
            before->next = item->next;
        else
            list->head = item->next;
        if (list->tail == item)
            list->tail = before;
        return item;
    }
    return NULL;
}

static item_t *list_first(list_t *list)
{
    return list->head ? list_take(list, list->head, 0) : NULL;
}

/* Gives an item back to its owner with its final status. */
static void finish(gw_loopback_t *world, item_t *item, gw_status_t status)
{
    box_t *box = &world->boxes[item->owner];
    pthread_mutex_lock(&box->lock);
    item->status = status;
    gw__loopback_list_add(&box->done, item);
    pthread_cond_broadcast(&box->event);
    pthread_mutex_unlock(&box->lock);
}

static gw_status_t settle(gw_request_t *req, gw_status_t status)
{
    req->handle = NULL;
    req->status = status;
    return status;
}

/* The item of a request that is to wait. */
static item_t *item_of(gw_link_t *link, gw_request_t *req, uint64_t tag, unsigned char *data,
                       size_t length)
{
    item_t *item = (item_t *)(void *)req->priv;
    *item = (item_t){.req = req,
                     .tag = tag,
                     .data = data,
                     .length = length,
                     .owner = link->rank,
                     .status = GW_IN_PROGRESS};
    req->handle = item;
    return item;
}

/* Where messages of this length are copied to. */
static shelf_t *shelf_for(box_t *box, size_t length)
{
    return length <= LOOPBACK_NOTE ? &box->notes : &box->letters;
}

/* A copy of a message in the receiver's box; NULL when it is too long or there is no room. Called
 * with the lock of the box. */
static item_t *copy_in(box_t *box, uint64_t tag, const void *data, size_t length)
{
    if (length > LOOPBACK_EAGER)
        return NULL;
    item_t *item = list_first(&shelf_for(box, length)->free);
    if (!item)
        return NULL;
    item->tag = tag;
    item->length = length;
    if (length)
        memcpy(item->data, data, length);
    return item;
}

/* Gives the buffer of a copied message back. */
static void put_back(box_t *box, item_t *item)
{
    pthread_mutex_lock(&box->lock);
    gw__loopback_list_add(&shelf_for(box, item->length)->free, item);
    pthread_mutex_unlock(&box->lock);
}

/* Whether the arguments of a send or receive can be used. */
static bool usable(const gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length)
{
    return peer >= 0 && peer < link->world->size && peer != link->rank && tag >> GW_TAG_BITS == 0 &&
           (data || length == 0);
}

static gw_status_t transfer(void *to, size_t capacity, const void *from, size_t length)
{
    if (length > capacity)
        return GW_ERR_FRAME_LENGTH;
    if (length)
        memcpy(to, from, length);
    return GW_OK;
}

/* Queues a message that no receive waits for. Called with the lock of the receiver's box. */
static gw_status_t queue_message(gw_link_t *link, box_t *box, uint64_t tag, const void *data,
                                 size_t length, gw_request_t *req)
{
    list_t *messages = &box->lanes[link->rank].messages;
    item_t *copy = copy_in(box, tag, data, length);
    if (copy) {
        gw__loopback_list_add(messages, copy);
        return settle(req, GW_OK);
    }
    /* The bytes of a message that stays where it is are only read. */
    gw__loopback_list_add(messages,
                          item_of(link, req, tag, (unsigned char *)(uintptr_t)data, length));
    return GW_IN_PROGRESS;
}

static gw_status_t loopback_send(gw_link_t *link, int peer, uint64_t tag, const void *data,
                                 size_t length, gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = peer};
    if (!usable(link, peer, tag, data, length))
        return settle(req, GW_ERR_INVALID);
    box_t *box = &link->world->boxes[peer];
    pthread_mutex_lock(&box->lock);
    lane_t *lane = &box->lanes[link->rank];
    if (box->closed) {
        pthread_mutex_unlock(&box->lock);
        return settle(req, GW_ERR_PEER_FAILED);
    }
    item_t *receive = list_take(&lane->receives, NULL, tag);
    if (!receive) {
        gw_status_t status = queue_message(link, box, tag, data, length, req);
        pthread_mutex_unlock(&box->lock);
        return status;
    }
    pthread_mutex_unlock(&box->lock);
    gw_status_t status = transfer(receive->data, receive->length, data, length);
    receive->length = length;
    finish(link->world, receive, status);
    return settle(req, GW_OK);
}

/* Takes a message that came before its receive. */
static gw_status_t take_message(gw_link_t *link, item_t *message, void *data, size_t capacity,
                                gw_request_t *req)
{
    gw_status_t status = transfer(data, capacity, message->data, message->length);
    req->length = message->length;
    if (message->req)
        finish(link->world, message, GW_OK);
    else
        put_back(&link->world->boxes[link->rank], message);
    return settle(req, status);
}

static gw_status_t loopback_recv(gw_link_t *link, int peer, uint64_t tag, void *data,
                                 size_t capacity, gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = peer};
    if (!usable(link, peer, tag, data, capacity))
        return settle(req, GW_ERR_INVALID);
    box_t *box = &link->world->boxes[link->rank];
    pthread_mutex_lock(&box->lock);
    lane_t *lane = &box->lanes[peer];
    item_t *message = list_take(&lane->messages, NULL, tag);
    if (message) {
        pthread_mutex_unlock(&box->lock);
        return take_message(link, message, data, capacity, req);
    }
    gw_status_t status = lane->gone ? GW_ERR_PEER_FAILED : GW_IN_PROGRESS;
    if (status == GW_IN_PROGRESS)
        gw__loopback_list_add(&lane->receives, item_of(link, req, tag, data, capacity));
    pthread_mutex_unlock(&box->lock);
    return status == GW_IN_PROGRESS ? status : settle(req, status);
}

static void hand_out(item_t *item)
{
    item->req->length = item->length;
    settle(item->req, item->status);
}

static int loopback_progress(gw_link_t *link)
{
    box_t *box = &link->world->boxes[link->rank];
    pthread_mutex_lock(&box->lock);
    item_t *item = box->done.head;
    box->done = (list_t){0};
    pthread_mutex_unlock(&box->lock);
    int events = 0;
    for (item_t *next; item; item = next, events++) {
        next = item->next;
        hand_out(item);
    }
    return events;
}

static void loopback_wait(gw_link_t *link, int timeout_us)
{
    box_t *box = &link->world->boxes[link->rank];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (timeout_us > 0 ? timeout_us : 0) * INT64_C(1000);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&box->lock);
    while (!box->done.head)
        if (pthread_cond_timedwait(&box->event, &box->lock, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&box->lock);
}

static void loopback_cancel(gw_link_t *link, gw_request_t *req)
{
    item_t *item = req->handle;
    if (req->status != GW_IN_PROGRESS || !item)
        return;
    /* The item waits in a lane of its own box (a receive) or of the peer's (a send): try both. */
    gw_loopback_t *world = link->world;
    box_t *own = &world->boxes[link->rank], *other = &world->boxes[req->peer];
    pthread_mutex_lock(&own->lock);
    item_t *taken = list_take(&own->lanes[req->peer].receives, item, 0);
    pthread_mutex_unlock(&own->lock);
    if (!taken) {
        pthread_mutex_lock(&other->lock);
        taken = list_take(&other->lanes[link->rank].messages, item, 0);
        pthread_mutex_unlock(&other->lock);
    }
    if (taken) {
        settle(req, GW_ERR_CANCELED);
        return;
    }
    /* The other side has claimed it: the copy ends in a moment. */
    while (req->status == GW_IN_PROGRESS) {
        loopback_wait(link, 1000);
        loopback_progress(link);
    }
}

static const char *loopback_describe(gw_link_t *link, int peer)
{
    return "loopback";
}

static gw_status_t loopback_probe(char *why, size_t size)
{
    if (size)
        why[0] = '\0';
    return GW_OK;
}

/* Tells the other ranks that this one is there, or no longer there. */
static void announce(gw_loopback_t *world, int rank, bool gone)
{
    for (int i = 0; i < world->size; i++) {
        box_t *box = &world->boxes[i];
        if (i == rank)
            continue;
        pthread_mutex_lock(&box->lock);
        lane_t *lane = &box->lanes[rank];
        lane->gone = gone;
        for (item_t *item; gone && (item = list_first(&lane->receives));) {
            item->status = GW_ERR_PEER_FAILED;
            item->length = 0;
            gw__loopback_list_add(&box->done, item);
        }
        pthread_cond_broadcast(&box->event);
        pthread_mutex_unlock(&box->lock);
    }
}

static gw_status_t loopback_open(const gw_link_params_t *params, gw_link_t **out)
{
    gw_loopback_t *world = params->arg;
    if (!world || params->size != world->size || params->rank < 0 || params->rank >= world->size) {
        params->log(params->log_arg, GW_LOG_WARN,
                    "loopback: rank %d of %d does not fit the world passed as argument",
                    params->rank, params->size);
        return GW_ERR_INVALID;
    }
    gw_link_t *link = malloc(sizeof(*link));
    if (!link)
        return GW_ERR_NO_MEMORY;
    *link = (gw_link_t){.world = world, .rank = params->rank};
    box_t *box = &world->boxes[link->rank];
    pthread_mutex_lock(&box->lock);
    bool taken = box->open;
    box->open = true;
    box->closed = false;
    pthread_mutex_unlock(&box->lock);
    if (taken) {
        params->log(params->log_arg, GW_LOG_WARN, "loopback: rank %d is open already",
                    params->rank);
        free(link);
        return GW_ERR_INVALID;
    }
    announce(world, link->rank, false);
    *out = link;
    return GW_OK;
}

static gw_status_t loopback_address(gw_link_t *link, void *out, size_t *length)
{
    address_t address = {ADDRESS_MAGIC, link->world->id, (uint32_t)link->rank,
                         (uint32_t)link->world->size};
    size_t room = *length;
    *length = sizeof(address);
    if (room < sizeof(address))
        return GW_ERR_NO_SPACE;
    memcpy(out, &address, sizeof(address));
    return GW_OK;
}

static gw_status_t loopback_connect(gw_link_t *link, const gw_address_t *addresses)
{
    for (int i = 0; i < link->world->size; i++) {
        address_t address;
        if (addresses[i].length != sizeof(address))
            return GW_ERR_UNREACHABLE;
        memcpy(&address, addresses[i].bytes, sizeof(address));
        if (address.magic != ADDRESS_MAGIC || address.world != link->world->id ||
            address.rank != (uint32_t)i || address.size != (uint32_t)link->world->size)
            return GW_ERR_UNREACHABLE;
    }
    return GW_OK;
}

static gw_status_t loopback_close(gw_link_t *link)
{
    gw_loopback_t *world = link->world;
    box_t *box = &world->boxes[link->rank];
    pthread_mutex_lock(&box->lock);
    box->open = false;
    box->closed = true;
    list_t left = {0};
    for (int i = 0; i < world->size; i++)
        for (item_t *item; (item = list_first(&box->lanes[i].messages));)
            gw__loopback_list_add(&left, item);
    pthread_mutex_unlock(&box->lock);
    for (item_t *item = left.head, *next; item; item = next) {
        next = item->next;
        if (item->req)
            finish(world, item, GW_ERR_PEER_FAILED);
        else
            put_back(box, item);
    }
    announce(world, link->rank, true);
    free(link);
    return GW_OK;
}

const gw_transport_t gw__loopback = {
    .abi = GW_TRANSPORT_ABI,
    .name = "loopback",
    .summary = "ranks are threads of one process",
    .probe = loopback_probe,
    .open = loopback_open,
    .address = loopback_address,
    .connect = loopback_connect,
    .send = loopback_send,
    .recv = loopback_recv,
    .progress = loopback_progress,
    .wait = loopback_wait,
    .cancel = loopback_cancel,
    .describe = loopback_describe,
    .close = loopback_close,
};
