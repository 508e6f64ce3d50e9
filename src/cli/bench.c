/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench`: the table of benchmarks. */
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage, *help;
} benches[] = {
    {"codec", gw_cli_bench_codec, "gradwire bench codec [OPTIONS]",
     "speed beside memcpy, size and error of each codec"},
    {"allreduce", gw_cli_bench_allreduce, "mpirun -np N gradwire bench allreduce [OPTIONS]",
     "time, bytes and error beside MPI's own all-reduce"},
};

enum { BENCHES = sizeof benches / sizeof benches[0] };

static void usage(FILE *out)
{
    for (int i = 0; i < BENCHES; i++)
        fprintf(out, "%s %-52s %s\n", i ? "      " : "usage:", benches[i].usage, benches[i].help);
    fputs("\n--help behind the benchmark's name tells its options.\n", out);
}

int gw_cli_bench(int argc, char **argv)
{
    for (int i = 0; argc >= 2 && i < BENCHES; i++)
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc >= 2 && !help)
        fprintf(stderr, "gradwire bench: no such benchmark: %s\n", argv[1]);
    usage(help ? stdout : stderr);
    return help ? 0 : 2;
}
