/* SPDX-License-Identifier: Apache-2.0 */
/* The few types and values of the PMIx ABI (PMIx Standard 4.1, libpmix.so.2) that the shim uses:
 * the headers of PMIx are seldom installed where MPI is. tests/box/progs/mpi_pmix_abi.c holds them
 * against pmix.h. */
#ifndef GW_PRELOAD_PMIX_H
#define GW_PRELOAD_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw__pmix_proc {
    char nspace[256];
    uint32_t rank;
} gw__pmix_proc_t;

typedef struct gw__pmix_value {
    uint16_t type;
    union {
        bool flag;
        int integer;
        char *string;
        uint64_t space[3];
    } data;
} gw__pmix_value_t;

typedef struct gw__pmix_info {
    char key[512];
    uint32_t flags;
    gw__pmix_value_t value;
} gw__pmix_info_t;

enum { GW__PMIX_SUCCESS = 0 };
enum { GW__PMIX_BOOL = 1, GW__PMIX_STRING = 3, GW__PMIX_INT = 6 };
enum { GW__PMIX_GLOBAL = 3 };
#define GW__PMIX_IMMEDIATE "pmix.immediate"
#define GW__PMIX_TIMEOUT   "pmix.timeout"

typedef int (*gw__pmix_init_fn)(gw__pmix_proc_t *self, gw__pmix_info_t *info, size_t count);
typedef int (*gw__pmix_finalize_fn)(const gw__pmix_info_t *info, size_t count);
typedef int (*gw__pmix_put_fn)(uint8_t scope, const char *key, gw__pmix_value_t *value);
typedef int (*gw__pmix_commit_fn)(void);
typedef int (*gw__pmix_get_fn)(const gw__pmix_proc_t *proc, const char *key,
                               const gw__pmix_info_t *info, size_t count, gw__pmix_value_t **value);

#endif
