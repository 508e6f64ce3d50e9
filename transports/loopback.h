/* SPDX-License-Identifier: Apache-2.0 */
/* The world that the loopback's ranks share: their boxes, and the meeting point of the all-gather.
 */
#ifndef GW_LOOPBACK_H
#define GW_LOOPBACK_H

#include <gradwire/transport.h>

#include <pthread.h>

/* A send or a receive under way. */
typedef struct item {
    struct item *next;
    gw_request_t *req; /* of the owner; NULL for a message whose send is done already */
    int owner;
    uint64_t tag;
    unsigned char *data; /* where the bytes come from, or go to */
    size_t length;       /* of the message, or the capacity of the receive */
    gw_status_t status;  /* the final one; valid on the done list */
    unsigned char copy[];
} item_t;

typedef struct list {
    item_t *head, *tail;
} list_t;

typedef struct lane {
    list_t messages, receives;
    bool gone; /* the sender has closed */
} lane_t;

typedef struct box {
    pthread_mutex_t lock;
    pthread_cond_t event;
    bool open, closed;
    list_t done;
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

#endif
