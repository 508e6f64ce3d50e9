/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes and reads one text per rank through PMIx, which every launcher of Open MPI serves. */
#define _GNU_SOURCE
#include "preload.h"
#include "preload_pmix.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "gradwire.agreement";
enum { TIMEOUT_SECONDS = 5 };

static struct {
    bool open;
    gw__pmix_proc_t self;
    gw__pmix_init_fn init;
    gw__pmix_finalize_fn finalize;
    gw__pmix_put_fn put;
    gw__pmix_commit_fn commit;
    gw__pmix_get_fn get;
} pmix;

bool gw__pmix_offered(void)
{
    return getenv("PMIX_NAMESPACE") != NULL;
}

static bool bind_functions(void)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    pmix.init = (gw__pmix_init_fn)dlsym(library, "PMIx_Init");
    pmix.finalize = (gw__pmix_finalize_fn)dlsym(library, "PMIx_Finalize");
    pmix.put = (gw__pmix_put_fn)dlsym(library, "PMIx_Put");
    pmix.commit = (gw__pmix_commit_fn)dlsym(library, "PMIx_Commit");
    pmix.get = (gw__pmix_get_fn)dlsym(library, "PMIx_Get");
    return pmix.init && pmix.finalize && pmix.put && pmix.commit && pmix.get;
}

bool gw__pmix_put(const char *text, char *why, size_t size)
{
    if (!bind_functions()) {
        snprintf(why, size, "libpmix.so.2 cannot be used");
        return false;
    }
    int rc = pmix.init(&pmix.self, NULL, 0);
    if (rc != GW__PMIX_SUCCESS) {
        snprintf(why, size, "PMIx_Init failed (%d)", rc);
        return false;
    }
    pmix.open = true;
    gw__pmix_value_t value = {.type = GW__PMIX_STRING, .data.string = (char *)text};
    rc = pmix.put(GW__PMIX_GLOBAL, key, &value);
    if (rc == GW__PMIX_SUCCESS)
        rc = pmix.commit();
    if (rc != GW__PMIX_SUCCESS)
        snprintf(why, size, "PMIx_Put failed (%d)", rc);
    return rc == GW__PMIX_SUCCESS;
}

/* MPI_Init has met all ranks, so what a rank published is with the servers by now: ask them, do not
 * wait. */
char *gw__pmix_get(int rank)
{
    if (!pmix.open)
        return NULL;
    gw__pmix_proc_t peer = pmix.self;
    peer.rank = (uint32_t)rank;
    gw__pmix_info_t info[2];
    memset(info, 0, sizeof info);
    snprintf(info[0].key, sizeof info[0].key, "%s", GW__PMIX_IMMEDIATE);
    info[0].value.type = GW__PMIX_BOOL;
    info[0].value.data.flag = true;
    snprintf(info[1].key, sizeof info[1].key, "%s", GW__PMIX_TIMEOUT);
    info[1].value.type = GW__PMIX_INT;
    info[1].value.data.integer = TIMEOUT_SECONDS;
    gw__pmix_value_t *value = NULL;
    if (pmix.get(&peer, key, info, 2, &value) != GW__PMIX_SUCCESS || !value)
        return NULL;
    char *text = value->type == GW__PMIX_STRING ? value->data.string : NULL;
    free(value);
    return text;
}

void gw__pmix_done(void)
{
    if (pmix.open)
        pmix.finalize(NULL, 0);
    pmix.open = false;
}
