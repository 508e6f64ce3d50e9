# SPDX-License-Identifier: Apache-2.0
gw_unit_test(kernels LABELS tsan)
# Compiled once for the three programs that only take it as it is.
add_library(gw_kernel_check OBJECT ${GW_KERNEL_CHECK})
target_include_directories(gw_kernel_check PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/kernels
                           ${PROJECT_SOURCE_DIR}/codecs ${PROJECT_SOURCE_DIR}/tests/unit)
gw_unit_test(kernel_check BESIDE SOURCES $<TARGET_OBJECTS:gw_kernel_check>)
foreach(test cuda_kernels cuda_planted)
  gw_unit_test(${test} BESIDE SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/cuda_table.c $<TARGET_OBJECTS:gw_kernel_check>)
  if(TARGET gw_cuda_double)
    target_link_libraries(test_${test} PRIVATE gw_cuda_double gw_double)
  else()
    target_compile_definitions(test_${test} PRIVATE GW_NO_DOUBLE)
  endif()
endforeach()
gw_unit_test(cast BESIDE)
gw_unit_test(rng BESIDE)

# Speed beside memcpy, by hand: make bench_kernels && build/bin/bench_kernels
add_executable(bench_kernels EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/bench_kernels.c ${GW_KERNEL_CHECK})
target_link_libraries(bench_kernels PRIVATE gradwire_static)
target_include_directories(bench_kernels PRIVATE ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/tests/unit)
