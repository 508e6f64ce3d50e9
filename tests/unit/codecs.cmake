# SPDX-License-Identifier: Apache-2.0
gw_unit_test(spec)
gw_unit_test(frame)
gw_unit_test(raw)
gw_unit_test(quant_codec)
gw_unit_test(quant_bound)
gw_unit_test(reduce)
gw_unit_test(blockwise)
gw_unit_test(sign)
gw_unit_test(rotate)

# Writes golden frames that do not exist yet: make make_golden && build/bin/make_golden tests/golden
add_executable(make_golden EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/golden/make_golden.c)
target_link_libraries(make_golden PRIVATE gradwire_static)
target_include_directories(make_golden PRIVATE ${PROJECT_SOURCE_DIR}/codecs)
