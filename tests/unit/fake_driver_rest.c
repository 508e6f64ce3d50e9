/* SPDX-License-Identifier: Apache-2.0 */
/* All other functions of the driver: they are there, and cannot do anything. */
#include "fake_driver.h"

#pragma GCC visibility push(default)

/* cuGetProcAddress_v2 finds nothing, so that each function is found by its exported name. */
#define REST(name, since, params)                                                                  \
    CUresult name params;                                                                          \
    __attribute__((weak)) CUresult name params                                                     \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
GW_CU_FUNCTIONS(REST)
