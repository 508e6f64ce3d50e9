/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the real MPI functions, lazily and wherever the program's MPI library was opened. */
#define _GNU_SOURCE
#include "preload.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

gw__pmpi_t gw__pmpi;

/* Python opens extension modules RTLD_LOCAL: our wrappers still come first, but neither RTLD_NEXT
 * nor RTLD_DEFAULT sees the library behind them. It is mapped, so RTLD_NOLOAD finds it. */
static void *symbol_of_mapped(const char *name)
{
    void *library = dlopen(gw__abi_soname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return NULL;
    void *symbol = dlsym(library, name);
    dlclose(library);
    return symbol;
}

void *gw__symbol(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    return symbol ? symbol : symbol_of_mapped(name);
}

/* Data objects of a library move into the executable where that refers to them (copy relocations),
 * so their search must begin there: RTLD_NEXT would find the dead original. */
void *gw__object(const char *name)
{
    void *object = dlsym(RTLD_DEFAULT, name);
    return object ? object : symbol_of_mapped(name);
}

static void *real_function(const char *name)
{
    char profiling[64];
    snprintf(profiling, sizeof profiling, "P%s", name);
    return gw__symbol(profiling);
}

gw__target_t gw__target(gw__link_t *link, bool nested)
{
    void *next = atomic_load_explicit(&link->next, memory_order_acquire);
    if (!next) {
        /* Two threads may do this at once; they find the same. */
        next = gw__symbol(link->name);
        atomic_store_explicit(&link->real, real_function(link->name), memory_order_release);
        atomic_store_explicit(&link->next, next, memory_order_release);
    }
    void *real = atomic_load_explicit(&link->real, memory_order_acquire);
    if (nested && real)
        next = real;
    return (gw__target_t){next, next == real};
}

const char *gw__pmpi_bind(void)
{
#define BIND(name)                                                                                 \
    if (!(gw__pmpi.name = (__typeof__(PMPI_##name) *)gw__symbol("PMPI_" #name)))                   \
        return "PMPI_" #name;
    GW_PMPI_TABLE(BIND)
#undef BIND
    return NULL;
}
