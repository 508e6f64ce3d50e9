/* SPDX-License-Identifier: Apache-2.0 */
/* A transport module of another version, which the loader must refuse. */
#include <gradwire/transport.h>

GW_API const gw_transport_t *gw_transport_module(void);

const gw_transport_t *gw_transport_module(void)
{
    static const gw_transport_t old = {.abi = GW_TRANSPORT_ABI + 1, .name = "ucx"};
    return &old;
}
