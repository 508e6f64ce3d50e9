# SPDX-License-Identifier: Apache-2.0
# The benchmarks, from outside.
if(NOT GRADWIRE_SANITIZE)
  add_library(bench_extra_codec SHARED box/progs/bench_extra_codec.c)
  target_link_libraries(bench_extra_codec PRIVATE gradwire m)
  set_target_properties(bench_extra_codec PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_library(bench_fake_lz4 SHARED box/progs/bench_fake_lz4.c)
  set_target_properties(bench_fake_lz4 PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake
                        OUTPUT_NAME lz4 SUFFIX .so.1 C_VISIBILITY_PRESET default)
  gw_box_test(bench_codec)
  gw_box_test(bench_plot)
endif()
