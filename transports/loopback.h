/* SPDX-License-Identifier: Apache-2.0 */
/* The world that the loopback's ranks share: their boxes, and the meeting point of the all-gather.
 */
#ifndef GW_LOOPBACK_H
#define GW_LOOPBACK_H

#include <gradwire/transport.h>

#include <pthread.h>

/*
 * A send or a receive under way, or a message that was copied. Those under way lie in the private
 * words of their request, so that nothing is allocated.
 */
typedef struct __attribute__((may_alias)) item {
    struct item *next;
    gw_request_t *req; /* of the owner; NULL for a message whose send is done already */
    uint64_t tag;
    unsigned char *data; /* where the bytes come from, or go to */
    size_t length;       /* of the message, or the capacity of the receive */
    int owner;
    gw_status_t status; /* the final one; valid on the done list */
} item_t;

_Static_assert(sizeof(item_t) <= sizeof(((gw_request_t *)0)->priv),
               "an item must fit into a request");

typedef struct list {
    item_t *head, *tail;
} list_t;

typedef struct lane {
    list_t messages, receives;
    bool gone; /* the sender has closed */
} lane_t;

/* Buffers for messages that came before their receive: as many as there are from the beginning. A
 * sender that finds none keeps its message. */
typedef struct shelf {
    list_t free;
    unsigned char *memory;
} shelf_t;

enum { LOOPBACK_NOTE = 64, LOOPBACK_EAGER = 8192 }; /* longest messages of the two shelves */

typedef struct box {
    pthread_mutex_t lock;
    pthread_cond_t event;
    bool open, closed;
    list_t done;
    shelf_t notes, letters;
    lane_t *lanes; /* one per sender */
} box_t;

struct gw_loopback {
    int size;
    uint32_t id; /* tells worlds apart in addresses */
    box_t *boxes;
    /* The all-gather: ranks arrive, the last one opens the door, all leave, the last one shuts it.
     */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int arrived, left;
    bool leaving;
    gw_status_t verdict;
    size_t bytes;
    unsigned char *gathered;
};

/* Adds to the end of a list. */
void gw__loopback_list_add(list_t *list, item_t *item);

#endif
