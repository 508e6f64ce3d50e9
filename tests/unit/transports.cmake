# SPDX-License-Identifier: Apache-2.0
gw_unit_test(loopback SOURCES unit/transport_body.c unit/transport_ranks.c LABELS tsan)
if(TARGET gw_ucx)
  gw_unit_test(ucx SOURCES unit/transport_body.c unit/transport_ranks.c)
  add_dependencies(test_ucx gw_ucx)
endif()
