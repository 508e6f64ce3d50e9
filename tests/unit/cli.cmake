# SPDX-License-Identifier: Apache-2.0
# What the command-line tool has of its own: it sees the public headers only, and so do these tests.
set(cli ${PROJECT_SOURCE_DIR}/src/cli)
gw_unit_test(bench_data SOURCES ${cli}/bench_codec_data.c ${cli}/bench_codec_file.c)
target_include_directories(test_bench_data PRIVATE ${cli})

# Writes tests/golden/ratio.csv anew: build/tests/test_ratio --write tests/golden/ratio.csv
gw_unit_test(ratio SOURCES unit/contract_data.c ${cli}/bench_codec_data.c ${cli}/bench_codec_file.c)
target_include_directories(test_ratio PRIVATE ${cli})
