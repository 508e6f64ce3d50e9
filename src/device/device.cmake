# SPDX-License-Identifier: Apache-2.0
# The device layer. Kernels are known by name from their sources, with or without nvcc.
set(GW_DEVICE_SOURCES device/driver.c device/device_memory.c device/device.c device/device_kernels.c
    device/device_pool.c device/device_flag.c device/device_info.c)

file(GLOB cu_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*_cuda.cu)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cu_files})
set(kernel_names)
foreach(file IN LISTS cu_files)
  file(STRINGS ${file} lines REGEX "extern \"C\" __global__")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*[ )](gw_cuda_[A-Za-z0-9_]+)\\(.*" "\\1" name "${line}")
    list(APPEND kernel_names ${name})
  endforeach()
endforeach()
list(SORT kernel_names COMPARE STRING)
list(TRANSFORM kernel_names REPLACE "(.+)" "    \"\\1\"")
list(JOIN kernel_names ",\\\n" kernel_names)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernel_names/gradwire_kernel_names.h CONTENT
     "#define GW_CUDA_KERNEL_NAMES \\\n${kernel_names}\n" @ONLY)
set_source_files_properties(device/device_kernels.c PROPERTIES
  COMPILE_OPTIONS "-I${CMAKE_CURRENT_BINARY_DIR}/kernel_names")

# What GPU kernels were compiled for, for people; "": none.
get_property(kernel_targets GLOBAL PROPERTY GW_CUDA_ARCHS)
if(kernel_targets)
  list(TRANSFORM kernel_targets REPLACE "(.+)" "sm_\\1")
  list(APPEND kernel_targets compute_75)
  list(JOIN kernel_targets " " kernel_targets)
endif()
set_source_files_properties(device/device_info.c PROPERTIES COMPILE_DEFINITIONS
  "GW_DEVICE_KERNELS=\"${kernel_targets}\"")
