/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of `gradwire`: each takes its own argc and argv (argv[0] is the command's name) and
 * returns the exit status: 0, 1 for a failure, 2 for wrong usage. */
#ifndef GW_CLI_H
#define GW_CLI_H

#include <stdio.h>

#include <gradwire/gradwire.h>

int gw_cli_run(int argc, char **argv);
int gw_cli_info(int argc, char **argv);
int gw_cli_topo(int argc, char **argv);
int gw_cli_bench(int argc, char **argv);
int gw_cli_bench_codec(int argc, char **argv);
int gw_cli_bench_allreduce(int argc, char **argv);

/* Path of a file that lies beside libgradwire.so or below its directory
 * ("gradwire/mpi-openmpi.so"). False when it does not fit or the library's path is not known. */
bool gw_cli_library_path(const char *relative, char *out, size_t size);

/* Parses the next name in family->names that is a codec by itself, from the start (NULL) or from
 * where the call before ended. Returns where it ends; NULL: none is left. `why` (may be NULL) says
 * what is wrong with a name that was passed over. */
const char *gw_cli_next_codec(const gw_codec_t *family, const char *from, gw_coder_t *out,
                              char *why, size_t size);

#endif
