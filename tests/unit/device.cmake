# SPDX-License-Identifier: Apache-2.0
# The device layer: on a fake driver, every call of which can fail, and on the double of libcuda.so.1.
# gw_fake_driver(name version missing...): build/fakes/<name>/libcuda.so.1, which lacks some functions.
function(gw_fake_driver name version)
  add_library(gw_fake_${name} SHARED unit/fake_driver.c unit/fake_driver_rest.c)
  target_include_directories(gw_fake_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device)
  target_compile_definitions(gw_fake_${name} PRIVATE FAKE_VERSION=${version})
  foreach(missing IN LISTS ARGN)
    target_compile_definitions(gw_fake_${name} PRIVATE ${missing}=${missing}_that_is_missing)
  endforeach()
  set_target_properties(gw_fake_${name} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fakes/${name})
endfunction()
gw_fake_driver(full 12080)
gw_fake_driver(plain 11000 cuGetProcAddress_v2 cuLibraryLoadData cuLibraryGetModule cuLibraryUnload
               cuStreamWaitValue32_v2 cuStreamWriteValue32_v2)
gw_fake_driver(old 10020 cuGetProcAddress_v2 cuDevicePrimaryCtxRelease_v2)

# Where nvcc made no images of kernels, tests have some in name.
file(GLOB families RELATIVE ${PROJECT_SOURCE_DIR}/kernels/cuda CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/kernels/cuda/*_cuda.cu)
list(TRANSFORM families REPLACE "(.+)_cuda\\.cu" "\"\\1\"")
list(JOIN families "," families)
function(gw_images_in_name target)
  get_property(archs GLOBAL PROPERTY GW_CUDA_ARCHS)
  if(NOT archs)
    target_sources(${target} PRIVATE unit/device_images.c)
    target_include_directories(${target} PRIVATE doubles/libcuda)
    set_property(SOURCE unit/device_images.c PROPERTY COMPILE_DEFINITIONS "GW_FAMILIES=${families}")
  endif()
endfunction()
function(gw_device_test name)
  gw_unit_test(${name} LABELS tsan)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device)
  gw_images_in_name(test_${name})
endfunction()
foreach(name device device_faults)
  gw_device_test(${name})
  add_dependencies(test_${name} gw_fake_full gw_fake_plain gw_fake_old)
endforeach()

# Kernels beside a copy, on a GPU; tests/gpu/run runs it.
add_executable(bench_gpu ${PROJECT_SOURCE_DIR}/bench/bench_gpu.c)
target_include_directories(bench_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/device ${PROJECT_SOURCE_DIR}/kernels)
target_link_libraries(bench_gpu PRIVATE gradwire_static)
gw_images_in_name(bench_gpu)

# The tests of kernels and of codecs on device memory once more, by the driver: on a GPU, or on the double of libcuda.
# No tests of their own here; tests/gpu/run runs them.
function(gw_gpu_twin name)
  add_executable(test_gpu_${name} unit/test_${name}.c unit/cuda_queue_gpu.c ${ARGN} $<TARGET_OBJECTS:gw_kernel_check>)
  target_link_libraries(test_gpu_${name} PRIVATE gradwire_static gw_driver PkgConfig::CHECK m)
  target_include_directories(test_gpu_${name} PRIVATE ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/codecs
                             ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/device doubles/libcuda unit)
  set_target_properties(test_gpu_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gw_images_in_name(test_gpu_${name})
endfunction()

if(TARGET gw_driver AND NOT GRADWIRE_SANITIZE)
  gw_gpu_twin(cuda_kernels unit/cuda_table.c)
  gw_gpu_twin(device_ops unit/contract_data.c)
  foreach(name device_double device_allreduce device_calls)
    gw_device_test(${name})
    target_include_directories(test_${name} PRIVATE doubles/libcuda)
    target_link_libraries(test_${name} PRIVATE gw_driver)
  endforeach()
  if(TARGET gw_ucx)
    target_compile_definitions(test_device_allreduce PRIVATE GW_WITH_UCX)
    add_dependencies(test_device_allreduce gw_ucx)
  endif()
endif()
