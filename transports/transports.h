/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the built-in transports and the module loader. */
#ifndef GW_TRANSPORTS_H
#define GW_TRANSPORTS_H

#include <gradwire/transport.h>

/* Ranks are threads of one process: loopback.c. */
extern const gw_transport_t gw__loopback;

/* A tool for testing: another transport, with faults. fault.c. */
extern const gw_transport_t gw__fault;

/*
 * Loads lib/gradwire/<name>.so for good and asks it for its transport. The signal actions and the
 * environment of the process are the same afterwards as before. The caller serialises. On error the
 * reason in `why` (never NULL here). GW_ERR_NO_MODULE.
 */
gw_status_t gw__module_load(const char *name, const gw_transport_t **out, char *why,
                            size_t why_size);

#endif
