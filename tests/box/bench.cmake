# SPDX-License-Identifier: Apache-2.0
# The benchmarks, from outside.
if(NOT GRADWIRE_SANITIZE)
  add_library(bench_extra_codec SHARED box/progs/bench_extra_codec.c)
  target_link_libraries(bench_extra_codec PRIVATE gradwire m)
  set_target_properties(bench_extra_codec PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gw_box_test(bench_codec)
endif()
