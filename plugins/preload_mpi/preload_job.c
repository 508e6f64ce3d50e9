/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the shim in one process: asleep until MPI_Init, then active or inert until
 * MPI_Finalize. */
#include "preload.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gw__job_t gw__job;
static atomic_bool active;
static atomic_flag seen = ATOMIC_FLAG_INIT;
static bool published;

bool gw__job_active(void)
{
    return atomic_load_explicit(&active, memory_order_acquire);
}

void gw__warn(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "gradwire: %s\n", line);
}

/* The child of a fork has no part in the job: it must neither communicate nor overwrite the
 * statistics. */
static void leave_child(void)
{
    atomic_store(&active, false);
}

/* Whether this process holds the MPI that the shim was built for; warns when not. */
static bool mpi_usable(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    __typeof__(PMPI_Get_library_version) *get_version = gw__symbol("PMPI_Get_library_version");
    if (!get_version)
        get_version = gw__symbol("MPI_Get_library_version");
    if (get_version)
        get_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    if (!gw__abi_matches(version)) {
        gw__warn("this shim is for %s, the program runs %s; nothing is compressed", gw__abi_family,
                 version[0] ? version : "another MPI");
        return false;
    }
    const char *missing = gw__pmpi_bind();
    if (!missing && !gw__abi_bind(gw__object))
        missing = "a handle";
    if (missing)
        gw__warn("%s lacks %s; nothing is compressed", version, missing);
    return !missing;
}

static bool mpi_device_aware(void)
{
    int (*query)(void) = (int (*)(void))gw__symbol("MPIX_Query_cuda_support");
    return query && query() == 1;
}

bool gw__job_prepare(void)
{
    char why[512] = "";
    if (atomic_flag_test_and_set(&seen))
        return false;
    const char *disable = getenv("GRADWIRE_DISABLE");
    if ((disable && strcmp(disable, "1") == 0) || !mpi_usable())
        return true;
    if (!gw__library_open(why, sizeof why)) {
        gw__warn("%s; nothing is compressed", why);
        return true;
    }
    gw_status_t status = gw__library.context_create(NULL, 0, &gw__job.context, why, sizeof why);
    if (status != GW_OK)
        gw__job.context = NULL;
    if (status == GW_OK && gw__library.context_disabled(gw__job.context)) {
        gw__library.context_free(gw__job.context);
        gw__job.context = NULL;
        return true;
    }
    const char *defect = why[0] ? why : gw__library.status_text(status);
    gw__agreement_publish(status == GW_OK ? NULL : defect);
    published = true;
    return true;
}

/* One line of proof for those who ask for it. */
static void announce(void)
{
    char agreement[GW_AGREEMENT_MAX];
    if (gw__job.rank != 0 || gw__job.mismatch ||
        gw__library.context_agreement(gw__job.context, agreement, sizeof agreement) != GW_OK)
        return;
    gw__library.context_log(gw__job.context, GW_LOG_INFO, "active on %s, %d ranks: %s",
                            gw__abi_family, gw__job.size, agreement);
}

void gw__job_start(void)
{
    if (!published)
        return;
    gw__pmpi.Comm_rank(gw__abi.world, &gw__job.rank);
    gw__pmpi.Comm_size(gw__abi.world, &gw__job.size);
    if (gw__job.context)
        gw__library.context_set_rank(gw__job.context, gw__job.rank, gw__job.size);
    gw__job.mismatch = !gw__agreement_reached();
    gw__pmix_done();
    if (!gw__job.context || !gw__comm_states_open())
        return;
    gw__job.device_aware = mpi_device_aware();
    pthread_atfork(NULL, NULL, leave_child);
    announce();
    atomic_store_explicit(&active, true, memory_order_release);
}

void gw__job_abort(void)
{
    if (gw__job_active())
        gw__library.context_write_stats(gw__job.context);
}

void gw__job_finish(void)
{
    if (!atomic_exchange(&active, false))
        return;
    gw__comm_states_close();
    gw__library.context_free(gw__job.context);
    gw__job.context = NULL;
}
