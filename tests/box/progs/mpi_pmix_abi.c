/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the shim's few PMIx declarations against PMIx's own header; compiled only, where that
 * header exists. */
#include <pmix.h>

#include "preload_pmix.h"

#define SAME(theirs, ours) _Static_assert((theirs) == (ours), #ours)

SAME(sizeof(pmix_proc_t), sizeof(gw__pmix_proc_t));
SAME(offsetof(pmix_proc_t, rank), offsetof(gw__pmix_proc_t, rank));
SAME(sizeof(pmix_value_t), sizeof(gw__pmix_value_t));
SAME(offsetof(pmix_value_t, data), offsetof(gw__pmix_value_t, data));
SAME(sizeof(pmix_info_t), sizeof(gw__pmix_info_t));
SAME(offsetof(pmix_info_t, flags), offsetof(gw__pmix_info_t, flags));
SAME(offsetof(pmix_info_t, value), offsetof(gw__pmix_info_t, value));
SAME(sizeof(pmix_scope_t), sizeof(uint8_t));
SAME(PMIX_SUCCESS, (int)GW__PMIX_SUCCESS);
SAME(PMIX_BOOL, (int)GW__PMIX_BOOL);
SAME(PMIX_STRING, (int)GW__PMIX_STRING);
SAME(PMIX_INT, (int)GW__PMIX_INT);
SAME(PMIX_GLOBAL, (int)GW__PMIX_GLOBAL);
SAME(sizeof(PMIX_IMMEDIATE), sizeof(GW__PMIX_IMMEDIATE));
SAME(sizeof(PMIX_TIMEOUT), sizeof(GW__PMIX_TIMEOUT));

int main(void)
{
    return 0;
}
