# SPDX-License-Identifier: Apache-2.0
# The hardware map and the facts that ranks exchange, as sources of src.
set(GW_TOPOLOGY_SOURCES
    topology/topology.c topology/devices.c topology/quiet.c
    topology/xmlread.c topology/xmlmap.c topology/xmlemit.c
    topology/netif.c topology/ifilter.c topology/facts.c topology/choose.c)
