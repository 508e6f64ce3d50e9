# SPDX-License-Identifier: Apache-2.0
# Whether the headers of Open MPI are here: sets GRADWIRE_OPENMPI, and MPI_C_INCLUDE_DIRS for it. What is built with them is linked with no
# MPI. (The transport's module is in transports/, the shim and the adapter in plugins/.)
set(GRADWIRE_OPENMPI OFF)
if(GRADWIRE_MPI)
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${MPI_C_INCLUDE_DIRS})
    check_c_source_compiles("#include <mpi.h>
#ifndef OMPI_MAJOR_VERSION
#error not Open MPI
#endif
int main(void) { return 0; }" GRADWIRE_MPI_IS_OPENMPI)
    unset(CMAKE_REQUIRED_INCLUDES)
  endif()
  if(MPI_C_FOUND AND GRADWIRE_MPI_IS_OPENMPI)
    set(GRADWIRE_OPENMPI ON)
  endif()
endif()
