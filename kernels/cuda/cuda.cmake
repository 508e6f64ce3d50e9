# SPDX-License-Identifier: Apache-2.0
# Kernels for device memory: launches are plain C and always there, code for GPUs where nvcc is found.
set(GRADWIRE_CUDA_ARCHS "80;90;100" CACHE STRING
    "GPU architectures to compile for, besides PTX of compute_75 for all others; empty: no code for GPUs")
find_program(GRADWIRE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(GW_CUDA_FAMILIES sum cast sign quant fp8 fp4 rotate natural randomk topk block lowrank)
set(GW_CUDA_DIR ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
list(APPEND GW_KERNELS_SOURCES cuda/quant_launch.c cuda/sign_launch.c cuda/cast_launch.c
     cuda/fp8_launch.c cuda/fp4_launch.c cuda/rotate_launch.c cuda/natural_launch.c
     cuda/randomk_launch.c cuda/topk_launch.c cuda/block_launch.c cuda/lowrank_launch.c cuda/cuda_images.c)

# The bytes of kernels/ref: no contraction, IEEE division and square root, denormals kept.
set(GW_NVCC_FLAGS -std=c++17 -O3 -fmad=false -prec-div=true -prec-sqrt=true -ftz=false
    -I${CMAKE_CURRENT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include)
# An older nvcc does not know the newest architectures: they get the PTX.
set(GW_CUDA_ARCHS "")
if(GRADWIRE_NVCC AND GRADWIRE_CUDA_ARCHS)
  execute_process(COMMAND ${GRADWIRE_NVCC} --list-gpu-code OUTPUT_VARIABLE GW_NVCC_KNOWS ERROR_QUIET)
  foreach(arch IN LISTS GRADWIRE_CUDA_ARCHS)
    if(GW_NVCC_KNOWS MATCHES "sm_${arch}\n")
      list(APPEND GW_CUDA_ARCHS ${arch})
      list(APPEND GW_NVCC_TARGETS -gencode arch=compute_${arch},code=sm_${arch})
    else()
      message(STATUS "GPU kernels: ${GRADWIRE_NVCC} does not know sm_${arch}")
    endif()
  endforeach()
  list(APPEND GW_NVCC_TARGETS -gencode arch=compute_75,code=compute_75)
endif()
# Other rooms and the tests ask what there is code for, not what was asked for.
set_property(GLOBAL PROPERTY GW_CUDA_ARCHS "${GW_CUDA_ARCHS}")

if(GW_CUDA_ARCHS)
  message(STATUS "GPU kernels: sm ${GW_CUDA_ARCHS} and PTX of compute_75 by ${GRADWIRE_NVCC}")
  foreach(family IN LISTS GW_CUDA_FAMILIES)
    set(image ${CMAKE_CURRENT_BINARY_DIR}/${family}_cuda.fatbin)
    add_custom_command(OUTPUT ${image}
      COMMAND ${GRADWIRE_NVCC} -fatbin ${GW_NVCC_FLAGS} ${GW_NVCC_TARGETS} -MD -MF ${image}.d -MT ${image}
              -o ${image} ${GW_CUDA_DIR}/${family}_cuda.cu
      DEPENDS ${GW_CUDA_DIR}/${family}_cuda.cu DEPFILE ${image}.d COMMENT "Compiling ${family} for GPUs" VERBATIM)
    list(APPEND GW_CUDA_IMAGES ${image})
  endforeach()
  add_custom_target(cuda_images DEPENDS ${GW_CUDA_IMAGES})
  set_source_files_properties(cuda/cuda_images.c PROPERTIES OBJECT_DEPENDS "${GW_CUDA_IMAGES}"
    COMPILE_DEFINITIONS GW_HAVE_CUDA_IMAGES=1 COMPILE_OPTIONS "-Wa,-I${CMAKE_CURRENT_BINARY_DIR}")
else()
  message(STATUS "GPU kernels: none, this build is for CPUs only (nvcc not found, or no architecture asked for)")
endif()
