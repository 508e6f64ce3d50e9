# SPDX-License-Identifier: Apache-2.0
# The network lab and the demo, from outside.
gw_box_test(netlab LABELS netlab)
gw_box_test(netlab_demo LABELS netlab)
if(TARGET gw_ucx)
  add_executable(strangers_job box/progs/strangers_job.c)
  target_link_libraries(strangers_job PRIVATE gradwire)
  set_target_properties(strangers_job PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(strangers_job gw_ucx)
  gw_box_test(strangers)
endif()
