/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI in this process: its functions and handles by name, and whether it is the right one. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "mpi_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef OMPI_MAJOR_VERSION
#error this module is for Open MPI
#endif

gw__mpi_t gw__mpi;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool bound;

static const char soname[] = "libmpi.so.40";

/*
 * Looked for from the executable on: data objects of a library move there where the executable
 * refers to them. Python opens libmpi RTLD_LOCAL, where only its name finds it.
 */
static void *find(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol)
        return symbol;
    void *library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return NULL;
    symbol = dlsym(library, name);
    dlclose(library);
    return symbol;
}

/* The first symbol that is missing, or NULL. */
static const char *bind_symbols(void)
{
#define BIND(name)                                                                                 \
    if (!(gw__mpi.name = (__typeof__(PMPI_##name) *)find("PMPI_" #name)))                          \
        return "PMPI_" #name;
    GW_MPI_FUNCTIONS(BIND)
#undef BIND
    gw__mpi.comm_null = find("ompi_mpi_comm_null");
    gw__mpi.byte = find("ompi_mpi_byte");
    gw__mpi.errors_return = find("ompi_mpi_errors_return");
    return gw__mpi.comm_null && gw__mpi.byte && gw__mpi.errors_return ? NULL : "a handle";
}

static gw_status_t check_library(char *why, size_t size)
{
    static const char prefix[] = "Open MPI v";
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    __typeof__(PMPI_Get_library_version) *version = find("PMPI_Get_library_version");
    if (!version) {
        snprintf(why, size, "there is no MPI in this process");
        return GW_ERR_NO_MODULE;
    }
    version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    if (strncmp(text, prefix, sizeof prefix - 1) != 0 ||
        atoi(text + sizeof prefix - 1) != OMPI_MAJOR_VERSION) {
        snprintf(why, size, "built for Open MPI %d, the process has %s", OMPI_MAJOR_VERSION, text);
        return GW_ERR_NO_MODULE;
    }
    const char *missing = bind_symbols();
    if (missing) {
        snprintf(why, size, "%s lacks %s", text, missing);
        return GW_ERR_NO_MODULE;
    }
    memcpy(gw__mpi.version, text, sizeof gw__mpi.version);
    bound = true;
    return GW_OK;
}

bool gw__mpi_alive(void)
{
    int begun = 0, over = 1;
    gw__mpi.Initialized(&begun);
    gw__mpi.Finalized(&over);
    return begun && !over;
}

gw_status_t gw__mpi_bind(char *why, size_t size)
{
    pthread_mutex_lock(&lock);
    gw_status_t status = bound ? GW_OK : check_library(why, size);
    pthread_mutex_unlock(&lock);
    if (status == GW_OK && !gw__mpi_alive()) {
        snprintf(why, size, "MPI is not running: before MPI_Init or after MPI_Finalize");
        status = GW_ERR_NO_MODULE;
    }
    return status;
}
