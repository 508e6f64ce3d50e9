/* SPDX-License-Identifier: Apache-2.0 */
/* The command-line tool: a table of commands. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", gw_cli_run, "run a program with the right shim in front of it"},
    {"info", gw_cli_info, "version, codecs, transports, kernel tiers, settings"},
    {"topo", gw_cli_topo, "the hardware map of this machine or of an hwloc XML file"},
    {"bench", gw_cli_bench,
     "benchmarks: `bench codec`, and `mpirun -np N gradwire bench allreduce`"},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

bool gw_cli_library_path(const char *relative, char *out, size_t size)
{
    Dl_info info;
    const char *slash = NULL;
    if (dladdr(dlsym(RTLD_DEFAULT, "gw_version"), &info) && info.dli_fname)
        slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return false;
    int used =
        snprintf(out, size, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, relative);
    return used > 0 && (size_t)used < size;
}

static void usage(FILE *out)
{
    fputs("usage: gradwire COMMAND [ARGUMENTS]\n\n", out);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\n`gradwire COMMAND --help` tells more.\n", out);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                      strcmp(argv[1], "help") == 0)) {
        usage(stdout);
        return 0;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("gradwire %s\n", gw_version());
        return 0;
    }
    for (int i = 0; argc >= 2 && i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            int status = commands[i].run(argc - 1, argv + 1);
            if (fflush(stdout) != 0 && status == 0)
                status = 1;
            return status;
        }
    if (argc >= 2)
        fprintf(stderr, "gradwire: no such command: %s\n", argv[1]);
    usage(stderr);
    return 2;
}
