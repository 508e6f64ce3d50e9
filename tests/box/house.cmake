# SPDX-License-Identifier: Apache-2.0
# Scripts that look at the tree and the built library from outside.
if(NOT GRADWIRE_SANITIZE)
  gw_box_test(structure)
  gw_box_test(layout_python)
  gw_box_test(cuda_report)

  add_executable(kernels_probe box/progs/kernels_probe.c ${GW_KERNEL_CHECK}
                 $<TARGET_OBJECTS:gw_kernels> $<TARGET_OBJECTS:gw_codecs>)
  target_include_directories(kernels_probe PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/kernels
                             ${PROJECT_SOURCE_DIR}/kernels/x86 unit)
  target_link_libraries(kernels_probe PRIVATE Threads::Threads m)
  set_target_properties(kernels_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gw_box_test(qemu)
  gw_box_test(driver_abi)
  gw_box_test(devices)
  gw_box_test(gpu_run)
endif()
