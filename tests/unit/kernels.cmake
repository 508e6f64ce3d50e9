# SPDX-License-Identifier: Apache-2.0
gw_unit_test(kernels LABELS tsan)
gw_unit_test(kernel_check SOURCES unit/kernel_check.c unit/kernel_bodies.c unit/kernel_bodies_sign.c
             unit/kernel_bodies_rotate.c)
gw_unit_test(cast)
gw_unit_test(rng)

# Speed beside memcpy, by hand: make bench_kernels && build/bin/bench_kernels
add_executable(bench_kernels EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/bench_kernels.c
               ${PROJECT_SOURCE_DIR}/tests/unit/kernel_check.c ${PROJECT_SOURCE_DIR}/tests/unit/kernel_bodies.c
               ${PROJECT_SOURCE_DIR}/tests/unit/kernel_bodies_sign.c
               ${PROJECT_SOURCE_DIR}/tests/unit/kernel_bodies_rotate.c)
target_link_libraries(bench_kernels PRIVATE gradwire_static)
target_include_directories(bench_kernels PRIVATE ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/tests/unit)
