/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other while a communicator is made, and the checks of what came from peers:
 * pure functions that any bytes may be given to. */
#ifndef GW_COMM_PEERS_H
#define GW_COMM_PEERS_H

#include <gradwire/context.h>
#include <gradwire/topology.h>

#include "pace.h"
#include "secret.h"

enum { GW__COMM_NAME_MAX = 64 };

/*
 * The first message: GW_AGREEMENT_MAX bytes of text, in every version for ever, because ranks of
 * versions that cannot understand each other meet here. Everything after it may change with
 * GW_WIRE_REVISION.
 */
typedef struct gw__roll_call {
    char agreement[GW_AGREEMENT_MAX];
} gw__roll_call_t;

/* The second: what the communicator is made from. */
typedef struct gw__hello {
    char magic[8];
    int32_t status; /* of the local preparations */
    uint32_t comms_created;
    char name[GW__COMM_NAME_MAX]; /* rank 0's counts for all */
    char why[256];
    gw__speed_t speed;                /* any values are safe */
    uint8_t secret[GW__SECRET_BYTES]; /* this rank's part of it */
    uint64_t memory; /* hash of the namespaces that bound shared memory; 0: not known */
    gw_node_facts_t facts;
} gw__hello_t;

/* What a rank tells once its link is open or has failed. */
typedef struct gw__outcome {
    int32_t status;
    uint32_t address_length;
    char why[256];
} gw__outcome_t;

void gw__hello_init(gw__hello_t *hello);

/*
 * The checks of what `size` ranks sent. They end the texts and make them printable in place, and
 * come to the same result on every rank that was given the same bytes. On an error the sentence is
 * in `why`; `failed_rank` is set where one rank is at fault. GW_ERR_NO_MEMORY.
 */

/* GW_ERR_SETTINGS_DIFFER. */
gw_status_t gw__roll_calls_check(gw__roll_call_t *all, int size, char *why, size_t why_size);

/* GW_ERR_NO_DEVICE, GW_ERR_PEER_REFUSED. */
gw_status_t gw__hellos_check(gw__hello_t *all, int size, int *failed_rank, char *why,
                             size_t why_size);

/* GW_ERR_NO_DEVICE, GW_ERR_NO_MODULE, GW_ERR_PEER_REFUSED. After GW_OK no address_length is more
 * than GW_TRANSPORT_ADDRESS_MAX. */
gw_status_t gw__outcomes_check(gw__outcome_t *all, int size, int *failed_rank, char *why,
                               size_t why_size);

/* Whether all ranks share a node; if not, the interface that `rank` uses, else "". GW_ERR_INVALID
 * for facts that no Gradwire makes, GW_ERR_NO_DEVICE. */
gw_status_t gw__hellos_route(const gw__hello_t *all, int size, int rank, bool *one_node,
                             char *device, size_t device_size, char *why, size_t why_size);

#endif
