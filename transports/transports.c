/* SPDX-License-Identifier: Apache-2.0 */
/* The table of transports: those of the library itself and those that lie in modules. */
#include "transports.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A new transport is one line here. `transport` NULL: a module of that name, loaded on first use.
 */
static struct entry {
    const char *name;
    const gw_transport_t *transport;
} table[] = {
    {"loopback", &gw__loopback},
    {"ucx", NULL},
    {"mpi", NULL}, /* built for one MPI's ABI; mpi_library.c looks whether it meets that */
    {"fault", &gw__fault},
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

const char *gw_transport_name_at(size_t i)
{
    return i < sizeof(table) / sizeof(table[0]) ? table[i].name : NULL;
}

static struct entry *entry_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof(table) / sizeof(table[0]); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

gw_status_t gw_transport_find(const char *name, const gw_transport_t **out, char *why,
                              size_t why_size)
{
    char unused[1];
    if (!why || why_size == 0) {
        why = unused;
        why_size = sizeof(unused);
    }
    why[0] = '\0';
    struct entry *entry = entry_of(name);
    if (!entry) {
        snprintf(why, why_size, "there is no transport named \"%s\"", name ? name : "(null)");
        return GW_ERR_NOT_FOUND;
    }
    /* A failed load is tried again at the next call: the reason may be gone, and it must be told
     * again. */
    gw_status_t status = GW_OK;
    pthread_mutex_lock(&table_lock);
    if (!entry->transport)
        status = gw__module_load(entry->name, &entry->transport, why, why_size);
    if (status == GW_OK)
        *out = entry->transport;
    pthread_mutex_unlock(&table_lock);
    return status;
}
