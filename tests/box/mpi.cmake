# SPDX-License-Identifier: Apache-2.0
# Tests of the Open MPI shim, its adapter and `gradwire run`: MPI programs in box/progs, scripts that run them.
find_package(MPI QUIET COMPONENTS C)
if(TARGET gradwire_openmpi)
  # gw_mpi_program(name [LIBRARIES ...]): builds $GW_BUILD/tests/<name>.
  function(gw_mpi_program name)
    cmake_parse_arguments(P "" "" "LIBRARIES" ${ARGN})
    add_executable(${name} box/progs/${name}.c)
    target_link_libraries(${name} PRIVATE ${P_LIBRARIES})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endfunction()
  gw_mpi_program(mpi_mixed LIBRARIES MPI::MPI_C m)
  gw_mpi_program(mpi_sweep LIBRARIES MPI::MPI_C gradwire m)
  gw_mpi_program(mpi_comms LIBRARIES MPI::MPI_C Threads::Threads m)
  gw_mpi_program(mpi_semantics LIBRARIES MPI::MPI_C m)
  gw_mpi_program(mpi_death LIBRARIES MPI::MPI_C m)
  gw_mpi_program(mpi_progress LIBRARIES MPI::MPI_C m)
  gw_mpi_program(mpi_spawn LIBRARIES MPI::MPI_C m)
  gw_mpi_program(mpi_probe)
  gw_mpi_program(mpi_local LIBRARIES ${CMAKE_DL_LIBS})
  gw_mpi_program(mpi_adapter_use LIBRARIES ${CMAKE_DL_LIBS})
  target_include_directories(mpi_adapter_use PRIVATE ${PROJECT_SOURCE_DIR}/include)

  # The mixed program as a module that mpi_local opens.
  add_library(mpi_mixed_module SHARED box/progs/mpi_mixed.c)
  target_compile_definitions(mpi_mixed_module PRIVATE main=prog_main)
  target_compile_options(mpi_mixed_module PRIVATE -Wno-missing-prototypes)
  target_link_libraries(mpi_mixed_module PRIVATE MPI::MPI_C m)

  # A second preloaded tool, and an MPI of another family.
  add_library(mpi_tool SHARED box/progs/mpi_tool.c)
  target_link_libraries(mpi_tool PRIVATE MPI::MPI_C ${CMAKE_DL_LIBS})
  add_library(mpi_no_probe SHARED box/progs/mpi_no_probe.c)
  target_link_libraries(mpi_no_probe PRIVATE MPI::MPI_C)
  add_library(mpi_stub SHARED box/progs/mpi_stub.c)
  target_compile_definitions(mpi_stub PRIVATE MPI_STUB_LIBRARY)
  add_executable(mpi_stub_program box/progs/mpi_stub.c)
  target_link_libraries(mpi_stub_program PRIVATE mpi_stub)
  set_target_properties(mpi_tool mpi_no_probe mpi_stub mpi_stub_program mpi_mixed_module PROPERTIES C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

  pkg_check_modules(GW_PMIX QUIET pmix)
  if(GW_PMIX_FOUND)
    add_executable(mpi_pmix_abi box/progs/mpi_pmix_abi.c)
    target_include_directories(mpi_pmix_abi PRIVATE ${PROJECT_SOURCE_DIR}/plugins/preload_mpi)
    target_include_directories(mpi_pmix_abi SYSTEM PRIVATE ${GW_PMIX_INCLUDE_DIRS})
    set_target_properties(mpi_pmix_abi PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endif()

  gw_box_test(mpi_quiet)
  gw_box_test(mpi_mixed)
  gw_box_test(mpi_sweep)
  gw_box_test(mpi_settings)
  gw_box_test(mpi_comms)
  gw_box_test(mpi_semantics)
  gw_box_test(mpi_death)
  gw_box_test(mpi_progress)
  gw_box_test(mpi_python)
  gw_box_test(mpi_tools)
  gw_box_test(mpi_run)
  gw_box_test(mpi_adapter)
else()
  add_test(NAME mpi_absent COMMAND ${PROJECT_SOURCE_DIR}/tests/tap mpi_absent
           echo "ok - the Open MPI shim # SKIP built without Open MPI's headers")
  set_tests_properties(mpi_absent PROPERTIES LABELS box ENVIRONMENT
    "GW_SOURCE=${PROJECT_SOURCE_DIR};GW_BUILD=${CMAKE_BINARY_DIR}")
endif()
