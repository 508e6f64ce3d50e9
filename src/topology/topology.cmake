# SPDX-License-Identifier: Apache-2.0
set(GW_TOPOLOGY_SOURCES)
