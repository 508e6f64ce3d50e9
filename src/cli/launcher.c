/* SPDX-License-Identifier: Apache-2.0 */
/* Knows MPI launchers: recognises them and adds variables to the arguments of Open MPI's. */
#define _GNU_SOURCE
#include "launcher.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char env_list[] = "mca_base_env_list";
static const char env_list_variable[] = "OMPI_MCA_mca_base_env_list";

/* ---- Recognising ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The file that execvp would run, symbolic links resolved. */
static bool find_file(const char *command, char out[PATH_MAX])
{
    char candidate[PATH_MAX];
    const char *path = getenv("PATH");
    if (strchr(command, '/'))
        return realpath(command, out) != NULL;
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, command);
        if (access(candidate, X_OK) == 0 && realpath(candidate, out))
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

/* The first bytes that `file --version` prints. */
static void ask_version(const char *file, char *out, size_t size)
{
    int ends[2];
    out[0] = '\0';
    if (pipe(ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(file, file, "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < size && (got = read(ends[0], out + used, size - 1 - used)) > 0)
        used += (size_t)got;
    out[used] = '\0';
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
}

gw__launcher_t gw__launcher_recognise(const char *command, char *about, size_t size)
{
    const char *name = base_name(command);
    char file[PATH_MAX], text[1024];
    bool own_name = starts_with(name, "orterun") || starts_with(name, "prterun");
    if (!own_name && !starts_with(name, "mpirun") && !starts_with(name, "mpiexec"))
        return GW__LAUNCHER_NONE;
    if (!find_file(command, file))
        return own_name ? GW__LAUNCHER_OPENMPI : GW__LAUNCHER_NONE;
    name = base_name(file);
    if (starts_with(name, "orterun") || starts_with(name, "prterun"))
        return GW__LAUNCHER_OPENMPI;
    ask_version(file, text, sizeof text);
    if (strstr(text, "Open MPI") || strstr(text, "OpenRTE") || strstr(text, "PRRTE"))
        return GW__LAUNCHER_OPENMPI;
    text[strcspn(text, "\r\n")] = '\0';
    snprintf(about, size, "%s", text[0] ? text : file);
    return GW__LAUNCHER_OTHER;
}

/* ---- LD_PRELOAD ---- */

static bool is_sanitizer(const char *entry, size_t length)
{
    static const char *const marks[] = {"libasan", "libtsan", "libubsan", "libclang_rt"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *found = strstr(entry, marks[i]);
        if (found && found < entry + length)
            return true;
    }
    return false;
}

/* Bytes of the leading entries of sanitizers, with their separators. */
static size_t sanitizer_prefix(const char *list)
{
    size_t used = 0;
    for (;;) {
        size_t length = strcspn(list + used, ": ");
        if (length == 0 || !is_sanitizer(list + used, length))
            return used;
        used += length + (list[used + length] != '\0');
    }
}

static bool contains(const char *list, const char *library)
{
    size_t length = strlen(library);
    for (const char *at = list; (at = strstr(at, library)); at += length) {
        bool begins = at == list || at[-1] == ':' || at[-1] == ' ';
        if (begins && (at[length] == '\0' || at[length] == ':' || at[length] == ' '))
            return true;
    }
    return false;
}

char *gw__launcher_preload(const char *library, const char *old)
{
    old = old ? old : "";
    if (contains(old, library))
        return strdup(old);
    size_t front = sanitizer_prefix(old);
    const char *separator = front > 0 && old[front - 1] != ':' && old[front - 1] != ' ' ? ":" : "";
    char *list = NULL;
    if (asprintf(&list, "%.*s%s%s%s%s", (int)front, old, separator, library, old[front] ? ":" : "",
                 old + front) < 0)
        return NULL;
    return list;
}

/* ---- Arguments ---- */

/* The user's own list of variables: where in the arguments its value stands; 0: not there. */
static size_t find_env_list(char **command)
{
    for (size_t i = 1; command[i] && command[i + 1]; i++)
        if (strcmp(command[i], env_list) == 0)
            return i + 1;
    return 0;
}

/* `list` with the variables appended, joined by Open MPI's separator. */
static char *extended_list(const char *list, const gw__variable_t *variables, size_t count,
                           char *why, size_t size)
{
    char *result = strdup(list);
    for (size_t i = 0; result && i < count; i++) {
        char *longer = NULL;
        if (strchr(variables[i].value, ';')) {
            snprintf(why, size, "%s=%s has a ';', which %s cannot carry: use -x instead of it",
                     variables[i].name, variables[i].value, env_list);
            free(result);
            return NULL;
        }
        if (asprintf(&longer, "%s%s%s=%s", result, result[0] ? ";" : "", variables[i].name,
                     variables[i].value) < 0)
            longer = NULL;
        free(result);
        result = longer;
    }
    return result;
}

static char *merged_preload(const gw__variable_t *variables, size_t count, const char *users)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(variables[i].name, "LD_PRELOAD") != 0)
            continue;
        /* The list begins with our library or a sanitizer; everything in it was preloaded before as
         * well. */
        size_t front = sanitizer_prefix(variables[i].value);
        char *ours = strndup(variables[i].value + front, strcspn(variables[i].value + front, ": "));
        char *list = ours ? gw__launcher_preload(ours, users) : NULL;
        char *argument = NULL;
        if (list && asprintf(&argument, "LD_PRELOAD=%s", list) < 0)
            argument = NULL;
        free(ours);
        free(list);
        return argument;
    }
    return NULL;
}

/* The user's argument behind -x, with our library in it if it sets LD_PRELOAD. */
static char *users_variable(char *argument, const gw__variable_t *variables, size_t count)
{
    static const char preload[] = "LD_PRELOAD";
    size_t length = sizeof preload - 1;
    if (strncmp(argument, preload, length) != 0 ||
        (argument[length] != '=' && argument[length] != '\0'))
        return argument;
    char *merged = merged_preload(variables, count,
                                  argument[length] ? argument + length + 1 : getenv(preload));
    return merged ? merged : argument;
}

static size_t add_variables(char **out, const gw__variable_t *variables, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        char *argument = NULL;
        if (asprintf(&argument, "%s=%s", variables[i].name, variables[i].value) < 0)
            continue;
        out[used++] = "-x";
        out[used++] = argument;
    }
    return used;
}

/* The user's list gets the variables. */
static char **with_env_list(char **command, size_t position, const gw__variable_t *variables,
                            size_t count, char *why, size_t size)
{
    const char *old = position ? command[position] : getenv(env_list_variable);
    char *list = extended_list(old, variables, count, why, size);
    if (!list)
        return NULL;
    if (position)
        command[position] = list;
    else
        setenv(env_list_variable, list, 1);
    return command;
}

char **gw__launcher_arguments(char **command, const gw__variable_t *variables, size_t count,
                              char *why, size_t size)
{
    const char *from_environment = getenv(env_list_variable);
    size_t position = find_env_list(command), length = 0, contexts = 1;
    snprintf(why, size, "out of memory");
    if (position || (from_environment && from_environment[0]))
        return with_env_list(command, position, variables, count, why, size);
    for (; command[length]; length++)
        contexts += strcmp(command[length], ":") == 0;
    char **out = calloc(length + 2 * count * contexts + 1, sizeof *out);
    if (!out)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        bool variable = i > 0 && strcmp(command[i - 1], "-x") == 0;
        out[used++] = variable ? users_variable(command[i], variables, count) : command[i];
        if (i == 0 || strcmp(command[i], ":") == 0)
            used += add_variables(out + used, variables, count);
    }
    return out;
}
