/* SPDX-License-Identifier: Apache-2.0 */
/* gradwire run: starts a command with the shim in front of it, on this node or through an MPI
 * launcher. */
#define _GNU_SOURCE
#include "cli.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "launcher.h"

extern char **environ;

enum { EXIT_USAGE = 2, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };
enum { MAX_VARIABLES = 128 };

static const char usage[] =
    "usage: gradwire run [--codec SPEC] [--min-bytes N] [--stats FILE] "
    "[--log off|warn|info|debug]\n"
    "                    [--config FILE] [--layout FILE] [--] CMD [ARGUMENT "
    "...]\n"
    "Runs CMD with compressed all-reduce. CMD is an MPI program (mpirun "
    "... gradwire run -- prog) or Open MPI's\n"
    "launcher itself (gradwire run -- mpirun ...), whose ranks then get "
    "the settings on every node.\n";

static const struct {
    const char *option, *setting;
} options[] = {
    {"--codec", "GRADWIRE_CODEC"},   {"--min-bytes", "GRADWIRE_MIN_BYTES"},
    {"--stats", "GRADWIRE_STATS"},   {"--log", "GRADWIRE_LOG"},
    {"--config", "GRADWIRE_CONFIG"}, {"--layout", "GRADWIRE_LAYOUT"},
};

static int complain(const char *format, ...) GW_PRINTF(1, 2);
static int complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("gradwire run: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return EXIT_USAGE;
}

/* ---- Options ---- */

/* A file to read is named by its whole path: ranks may run in another directory. */
static void set_option(const char *setting, const char *value)
{
    char path[PATH_MAX];
    bool file = strcmp(setting, "GRADWIRE_CONFIG") == 0 || strcmp(setting, "GRADWIRE_LAYOUT") == 0;
    setenv(setting, file && realpath(value, path) ? path : value, 1);
}

/* Takes one option with its value ("--codec q4" or "--codec=q4"). Returns the arguments used up, 0
 * when it is none, -1 when it is said what is wrong. */
static int take_option(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        size_t length = strlen(options[i].option);
        if (strncmp(argv[0], options[i].option, length) != 0)
            continue;
        bool joined = argv[0][length] == '=';
        if (!joined && (argv[0][length] != '\0' || argc < 2))
            continue;
        const char *value = joined ? argv[0] + length + 1 : argv[1];
        if (!*value) { /* a variable of the shell that is not set: the default is not meant */
            complain("%s has an empty value", options[i].option);
            return -1;
        }
        set_option(options[i].setting, value);
        return joined ? 1 : 2;
    }
    return 0;
}

/* Reads the options into the environment. Returns the index of CMD, or -1. */
static int read_options(int argc, char **argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        int used = take_option(argc - i, argv + i);
        if (used < 0)
            return -1;
        if (used == 0) {
            complain("unknown option or missing value: %s", argv[i]);
            return -1;
        }
        i += used;
    }
    if (i < argc)
        return i;
    complain("no command given");
    return -1;
}

/* Whether there is such a tier at all; whether it can run is for the rank's machine to say. */
static bool kernels_known(const char *name)
{
    bool available;
    const char *tier;
    if (!name || !name[0] || strcmp(name, "best") == 0)
        return true;
    for (size_t i = 0; (tier = gw_kernel_tier_at(i, &available)); i++)
        if (strcmp(tier, name) == 0)
            return true;
    char all[128] = "best";
    for (size_t i = 0; (tier = gw_kernel_tier_at(i, &available)); i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, ", %s", tier);
    }
    complain("GRADWIRE_KERNELS=%s: no such tier; there are %s", name, all);
    return false;
}

/*
 * Finds a wrong setting here, once, and not on every rank after the job was started. What belongs
 * to the machine of a rank (its kernels, files to write) is not looked at.
 */
static bool settings_usable(void)
{
    static const gw_setting_t neutral[] = {{"GRADWIRE_STATS", ""},
                                           {"GRADWIRE_LOG_FILE", ""},
                                           {"GRADWIRE_LOG", "off"},
                                           {"GRADWIRE_KERNELS", "best"}};
    char why[512] = "";
    const char *log = getenv("GRADWIRE_LOG");
    if (log && log[0] && strcmp(log, "off") && strcmp(log, "warn") && strcmp(log, "info") &&
        strcmp(log, "debug")) {
        complain("GRADWIRE_LOG=%s: must be one of off, warn, info, debug", log);
        return false;
    }
    if (!kernels_known(getenv("GRADWIRE_KERNELS")))
        return false;
    gw_context_t *context = NULL;
    gw_status_t status =
        gw_context_create(neutral, sizeof neutral / sizeof neutral[0], &context, why, sizeof why);
    if (status != GW_OK) {
        complain("%s", why[0] ? why : gw_status_text(status));
        return false;
    }
    gw_context_free(context);
    return true;
}

/* ---- The environment of the ranks ---- */

/* The shim lies beside libgradwire. */
static bool find_shim(const char *name, char out[PATH_MAX])
{
    Dl_info library;
    char path[PATH_MAX];
    void *symbol = dlsym(RTLD_DEFAULT, "gw_version");
    if (!symbol || !dladdr(symbol, &library) || !realpath(library.dli_fname, path))
        return false;
    char *slash = strrchr(path, '/');
    int written = snprintf(out, PATH_MAX, "%.*s/%s", (int)(slash - path), path, name);
    return written < PATH_MAX && access(out, R_OK) == 0;
}

static bool has_infiniband(void)
{
    DIR *directory = opendir("/sys/class/infiniband");
    bool found = false;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        found = found || entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return found;
}

/*
 * UCX and hwloc read these when they are loaded, so nobody can set them later. Without them UCX
 * takes over the signal handlers of the process and patches its memory functions, and hwloc looks
 * for X servers and GPUs' libraries. On InfiniBand the application's own MPI needs the memory
 * functions patched: they are left to it.
 */
static const struct {
    const char *name, *value;
    bool memory;
} presets[] = {
    {"UCX_ERROR_SIGNALS", "", false},
    {"UCX_WARN_UNUSED_ENV_VARS", "n", false},
    {"UCX_MEM_EVENTS", "n", true},
    {"UCX_MEMTYPE_CACHE", "n", true},
    {"HWLOC_PLUGINS_BLACKLIST", "hwloc_gl.so,hwloc_opencl.so", false},
};

static size_t set_presets(gw__variable_t *out)
{
    size_t used = 0;
    bool infiniband = has_infiniband();
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (getenv(presets[i].name) || (presets[i].memory && infiniband))
            continue;
        setenv(presets[i].name, presets[i].value, 0);
        out[used++] = (gw__variable_t){presets[i].name, presets[i].value};
    }
    return used;
}

static size_t collect_settings(gw__variable_t *out, size_t capacity)
{
    size_t used = 0;
    for (char **entry = environ; entry && *entry && used < capacity; entry++) {
        char *equals = strchr(*entry, '=');
        if (!equals || strncmp(*entry, "GRADWIRE_", 9) != 0)
            continue;
        char *name = strndup(*entry, (size_t)(equals - *entry));
        if (name)
            out[used++] = (gw__variable_t){name, equals + 1};
    }
    return used;
}

/* ---- Starting ---- */

static int start(char **command)
{
    execvp(command[0], command);
    int error = errno;
    complain("%s: %s", command[0], strerror(error));
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* The launcher itself is not preloaded: it gets arguments that make it set the variables for the
 * ranks. */
static int start_launcher(char **command, const char *shim)
{
    gw__variable_t variables[MAX_VARIABLES];
    char why[256];
    char *preload = gw__launcher_preload(shim, getenv("LD_PRELOAD"));
    if (!preload)
        return complain("out of memory");
    size_t count = 0;
    variables[count++] = (gw__variable_t){"LD_PRELOAD", preload};
    count += set_presets(variables + count);
    count += collect_settings(variables + count, MAX_VARIABLES - count);
    char **arguments = gw__launcher_arguments(command, variables, count, why, sizeof why);
    return arguments ? start(arguments) : complain("%s", why);
}

static int start_program(char **command, const char *shim)
{
    gw__variable_t variables[MAX_VARIABLES];
    char *preload = gw__launcher_preload(shim, getenv("LD_PRELOAD"));
    if (!preload)
        return complain("out of memory");
    set_presets(variables);
    setenv("LD_PRELOAD", preload, 1);
    return start(command);
}

int gw_cli_run(int argc, char **argv)
{
    char shim[PATH_MAX], about[256] = "";
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    int first = read_options(argc, argv);
    if (first < 0) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (!settings_usable())
        return EXIT_USAGE;
    char **command = argv + first;
    gw__launcher_t launcher = gw__launcher_recognise(command[0], about, sizeof about);
    if (launcher == GW__LAUNCHER_OTHER) {
        complain("no shim for this MPI (%s): it runs uncompressed", about);
        return start(command);
    }
    if (!find_shim("libgradwire-openmpi.so", shim)) {
        complain(
            "libgradwire-openmpi.so was not built or installed: the command runs uncompressed");
        return start(command);
    }
    return launcher == GW__LAUNCHER_OPENMPI ? start_launcher(command, shim)
                                            : start_program(command, shim);
}
