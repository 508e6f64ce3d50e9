# SPDX-License-Identifier: Apache-2.0
gw_unit_test(topology)
gw_unit_test(topology_facts LABELS tsan)
gw_unit_test(topology_live)
gw_box_test(topo)
