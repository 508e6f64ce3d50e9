# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: with the preset `fuzz` programs of libFuzzer, in every other build programs that replay corpus/.
set(GW_FUZZ_TARGETS frame spec rules layout settings topology peer)

function(gw_fuzz_program name source)
  add_executable(${name} fuzz/fuzz_${source}.c ${ARGN})
  target_link_libraries(${name} PRIVATE gradwire_static m)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/codecs
                             ${PROJECT_SOURCE_DIR}/transports ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

if(GRADWIRE_FUZZ)
  add_custom_target(fuzz_programs)
  foreach(name IN LISTS GW_FUZZ_TARGETS)
    gw_fuzz_program(fuzz_${name} ${name})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_programs fuzz_${name})
  endforeach()
  # The frame target with a defect in it, which the machinery must find.
  gw_fuzz_program(fuzz_planted frame)
  target_compile_definitions(fuzz_planted PRIVATE GW_FUZZ_PLANTED)
  target_link_options(fuzz_planted PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_programs fuzz_planted)
  add_test(NAME fuzz COMMAND ${PROJECT_SOURCE_DIR}/tests/tap fuzz ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz --minute)
  set_tests_properties(fuzz PROPERTIES LABELS fuzz TIMEOUT 600 ENVIRONMENT
    "GW_SOURCE=${PROJECT_SOURCE_DIR};GW_BUILD=${CMAKE_BINARY_DIR};GRADWIRE_BUILD_FUZZ=${CMAKE_BINARY_DIR}")
else()
  foreach(name IN LISTS GW_FUZZ_TARGETS)
    gw_fuzz_program(replay_${name} ${name} fuzz/replay.c)
    add_test(NAME replay_${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/tap replay_${name} $<TARGET_FILE:replay_${name}>
             ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(replay_${name} PROPERTIES LABELS unit TIMEOUT 300
      ENVIRONMENT "GW_SOURCE=${PROJECT_SOURCE_DIR};GW_BUILD=${CMAKE_BINARY_DIR}")
  endforeach()
endif()
