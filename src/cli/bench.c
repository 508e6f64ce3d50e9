/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench`: the table of benchmarks. */
#include <string.h>

#include "cli.h"

int gw_cli_bench(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "allreduce") == 0)
        return gw_cli_bench_allreduce(argc - 1, argv + 1);
    bool help = argc >= 2 && strcmp(argv[1], "--help") == 0;
    fputs("usage: mpirun -np N gradwire bench allreduce [OPTIONS]   (--help tells them)\n",
          help ? stdout : stderr);
    return help ? 0 : 2;
}
