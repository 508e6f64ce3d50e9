# SPDX-License-Identifier: Apache-2.0
# What tests the doubles themselves.
if(TARGET gw_double)
  gw_unit_test(double BESIDE)
  target_link_libraries(test_double PRIVATE gw_double gw_double_probes)
  foreach(name driver driver_streams)
    gw_unit_test(${name} LABELS tsan)
    target_link_libraries(test_${name} PRIVATE gw_driver)
  endforeach()
else()
  gw_unit_test(double BESIDE)
  target_compile_definitions(test_double PRIVATE GW_NO_DOUBLE)
  target_include_directories(test_double PRIVATE doubles)
endif()
