# SPDX-License-Identifier: Apache-2.0
gw_unit_test(kernels LABELS tsan)
gw_unit_test(kernel_check BESIDE SOURCES ${GW_KERNEL_CHECK})
gw_unit_test(cast BESIDE)
gw_unit_test(rng BESIDE)

# Speed beside memcpy, by hand: make bench_kernels && build/bin/bench_kernels
add_executable(bench_kernels EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/bench_kernels.c ${GW_KERNEL_CHECK})
target_link_libraries(bench_kernels PRIVATE gradwire_static)
target_include_directories(bench_kernels PRIVATE ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/tests/unit)
