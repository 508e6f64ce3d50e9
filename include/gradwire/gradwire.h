/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradwire: gradient-compression communication middleware.
 *
 * A staircase. One call:
 *
 *     gw_context_t *context;
 *     gw_comm_t *comm;
 *     gw_context_create(NULL, 0, &context, why, sizeof why);
 *     gw_comm_create(context, &(gw_comm_params_t){ .rank = rank, .size = size, .allgather = f,
 * .allgather_arg = arg }, &comm); gw_allreduce(comm, NULL, gradient, count, GW_F32, GW_SUM);
 *
 * then settings, decisions and statistics (context.h), what a buffer is made of (layout.h), the
 * hardware map (topology.h), and last the
 * contracts of codecs (codec.h) and transports (transport.h).
 */
#ifndef GRADWIRE_GRADWIRE_H
#define GRADWIRE_GRADWIRE_H

#include <gradwire/status.h>
#include <gradwire/types.h>
#include <gradwire/context.h>
#include <gradwire/comm.h>
#include <gradwire/layout.h>
#include <gradwire/topology.h>
#include <gradwire/codec.h>
#include <gradwire/transport.h>

#endif
