# SPDX-License-Identifier: Apache-2.0
gw_unit_test(loopback SOURCES unit/transport_body.c LABELS tsan)
gw_unit_test(ucx SOURCES unit/transport_body.c)
