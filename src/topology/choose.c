/* SPDX-License-Identifier: Apache-2.0 */
/* Groups ranks by node and chooses the interface by which a rank reaches the other nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

gw_status_t gw_node_group(const gw_node_facts_t *facts, int size, int *node, int *nodes)
{
    if (!facts || size < 1 || !node || !nodes)
        return GW_ERR_INVALID;
    for (int i = 0; i < size; i++)
        if (gw__facts_check(&facts[i], i, NULL, 0) != GW_OK)
            return GW_ERR_INVALID;
    int count = 0;
    for (int i = 0; i < size; i++) {
        int same = 0;
        while (same < i && facts[same].node_id != facts[i].node_id)
            same++;
        node[i] = same < i ? node[same] : count++;
    }
    *nodes = count;
    return GW_OK;
}

/* An address by which other machines could be reached at all. */
static bool leads_out(const gw_node_iface_t *iface)
{
    return iface->family != 0 &&
           !(iface->flags & (GW_IFACE_LOOPBACK | GW_IFACE_BRIDGE | GW_IFACE_LINK_LOCAL));
}

static size_t addr_bytes(const gw_node_iface_t *iface)
{
    return iface->family == 4 ? 4 : 16;
}

typedef enum reach {
    REACH_SUBNET,  /* a network in common */
    REACH_DEFAULT, /* default routes on both sides */
    REACH_GUESS,   /* gateways on both sides, or the user named both */
    REACH_NONE,
    REACH_SAME_ADDRESS /* each node has a private network of the same numbers */
} reach_t;

static reach_t reach_iface(const gw_node_iface_t *mine, const gw_node_iface_t *theirs)
{
    const uint8_t routed = GW_IFACE_DEFAULT_ROUTE | GW_IFACE_GATEWAY | GW_IFACE_NAMED;
    /* each must see the other as a neighbour */
    int bits = mine->prefix > theirs->prefix ? mine->prefix : theirs->prefix;
    if (bits > 0 && gw__same_prefix(mine->addr, theirs->addr, bits))
        return REACH_SUBNET;
    if (mine->flags & theirs->flags & GW_IFACE_DEFAULT_ROUTE)
        return REACH_DEFAULT;
    if ((mine->flags & routed) && (theirs->flags & routed))
        return REACH_GUESS;
    return REACH_NONE;
}

/* How `mine` reaches the node of one peer rank. */
static reach_t reach_rank(const gw_node_iface_t *mine, const gw_node_facts_t *peer)
{
    reach_t best = REACH_NONE;
    for (int i = 0; i < peer->iface_count; i++) {
        const gw_node_iface_t *theirs = &peer->iface[i];
        if (theirs->family != mine->family)
            continue;
        if (memcmp(theirs->addr, mine->addr, addr_bytes(mine)) == 0)
            return REACH_SAME_ADDRESS;
        if (!leads_out(theirs))
            continue;
        reach_t reach = reach_iface(mine, theirs);
        if (reach < best)
            best = reach;
    }
    return best;
}

/* The worst reach over the other nodes; a node is reached by the best of its ranks. `lost` is a
 * rank of a node that is not reached. */
static reach_t reach_all(const gw_node_facts_t *facts, int size, int rank,
                         const gw_node_iface_t *mine, int *lost)
{
    reach_t worst = REACH_SUBNET;
    for (int i = 0; i < size; i++) {
        if (facts[i].node_id == facts[rank].node_id)
            continue;
        reach_t best = reach_rank(mine, &facts[i]);
        /* ranks of one node may have been given different interfaces */
        for (int j = 0; j < size && best == REACH_NONE; j++)
            if (j != i && facts[j].node_id == facts[i].node_id)
                best = reach_rank(mine, &facts[j]);
        if (best <= worst)
            continue;
        worst = best;
        *lost = i;
        if (worst >= REACH_NONE)
            break; /* one node out of reach is enough */
    }
    return worst;
}

/*
 * Whether `a` is better than `b` for one rank; on equality the earlier stays. A guess comes last.
 * IPv4 comes first: where a machine has both, it is what every transport can use. A subnet in
 * common is certain, a default route only likely.
 */
static bool better(const gw_node_iface_t *a, reach_t ra, const gw_node_iface_t *b, reach_t rb)
{
    if ((ra == REACH_GUESS) != (rb == REACH_GUESS))
        return rb == REACH_GUESS;
    if (a->family != b->family)
        return a->family < b->family;
    if (ra != rb)
        return ra < rb;
    if (a->distance != b->distance)
        return a->distance < b->distance;
    return a->speed_mbit > b->speed_mbit;
}

static const char *refusal(const gw_node_iface_t *iface, reach_t reach)
{
    if (iface->flags & GW_IFACE_LOOPBACK)
        return "loopback";
    if (iface->flags & GW_IFACE_BRIDGE)
        return "bridge inside its node";
    if (iface->flags & GW_IFACE_LINK_LOCAL)
        return "link-local address";
    return reach == REACH_SAME_ADDRESS ? "same address there, not the same network"
                                       : "no network in common and no route to";
}

static void explain(const gw_node_facts_t *facts, int size, int rank, char *why, size_t why_size)
{
    char tried[1024];
    size_t len = 0;
    tried[0] = '\0';
    for (int i = 0; i < facts[rank].iface_count && len < sizeof tried; i++) {
        const gw_node_iface_t *iface = &facts[rank].iface[i];
        if (iface->family == 0)
            continue;
        char addr[64], peer[96] = "";
        int lost = rank;
        reach_t reach = REACH_NONE;
        gw__addr_print(iface->family, iface->addr, iface->prefix, addr, sizeof addr);
        if (leads_out(iface)) {
            reach = reach_all(facts, size, rank, iface, &lost);
            snprintf(peer, sizeof peer, " rank %d on %s", lost, facts[lost].host);
        }
        len += (size_t)snprintf(tried + len, sizeof tried - len, "%s%s %s (%s%s)", len ? ", " : "",
                                iface->name, addr, refusal(iface, reach), peer);
    }
    gw__why(why, why_size, GW_ERR_NO_DEVICE,
            "rank %d on %s has no interface that reaches all other nodes; tried: %s", rank,
            facts[rank].host, tried[0] ? tried : "none, no interface is up");
}

/* All ranks on one node: the loopback, or what the setting left of the interfaces. */
static const gw_node_iface_t *choose_local(const gw_node_facts_t *mine)
{
    const gw_node_iface_t *best = NULL;
    for (int i = 0; i < mine->iface_count; i++) {
        const gw_node_iface_t *iface = &mine->iface[i];
        if (iface->family == 0 || (iface->flags & GW_IFACE_LINK_LOCAL))
            continue;
        if (iface->flags & GW_IFACE_LOOPBACK)
            return iface;
        if (!best || better(iface, REACH_SUBNET, best, REACH_SUBNET))
            best = iface;
    }
    return best;
}

static const gw_node_iface_t *choose_remote(const gw_node_facts_t *facts, int size, int rank)
{
    const gw_node_iface_t *best = NULL;
    reach_t best_reach = REACH_NONE;
    for (int i = 0; i < facts[rank].iface_count; i++) {
        const gw_node_iface_t *iface = &facts[rank].iface[i];
        int lost;
        if (!leads_out(iface))
            continue;
        reach_t reach = reach_all(facts, size, rank, iface, &lost);
        if (reach >= REACH_NONE)
            continue;
        if (!best || better(iface, reach, best, best_reach)) {
            best = iface;
            best_reach = reach;
        }
    }
    return best;
}

gw_status_t gw_node_choose_iface(const gw_node_facts_t *facts, int size, int rank, char *name,
                                 size_t name_size, char *why, size_t why_size)
{
    if (!facts || rank < 0 || rank >= size || !name || name_size == 0)
        return gw__why(why, why_size, GW_ERR_INVALID, "no such rank");
    bool alone = true;
    for (int i = 0; i < size; i++) {
        gw_status_t status = gw__facts_check(&facts[i], i, why, why_size);
        if (status != GW_OK)
            return status;
        alone = alone && facts[i].node_id == facts[rank].node_id;
    }
    const gw_node_iface_t *chosen =
        alone ? choose_local(&facts[rank]) : choose_remote(facts, size, rank);
    if (!chosen) {
        explain(facts, size, rank, why, why_size);
        return GW_ERR_NO_DEVICE;
    }
    if (strlen(chosen->name) >= name_size)
        return gw__why(why, why_size, GW_ERR_NO_SPACE, "no room for the name %s", chosen->name);
    strcpy(name, chosen->name);
    return GW_OK;
}
