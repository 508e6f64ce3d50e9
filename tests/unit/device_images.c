/* SPDX-License-Identifier: Apache-2.0 */
/* Images of kernels for builds without nvcc: none of the doubles looks at what is in them. */
#include <string.h>

#include "cuda/cuda_kernels.h"
#include "gw_driver.h"

static const char *const families[] = {GW_FAMILIES};
enum { FAMILIES = sizeof families / sizeof *families };

const gw_cuda_image_t *gw__cuda_image(size_t i)
{
    static gw_cuda_image_t images[FAMILIES];
    static const char data[] = GW_DRIVER_IMAGE;
    if (i >= FAMILIES)
        return NULL;
    images[i] = (gw_cuda_image_t){families[i], data, data + sizeof data};
    return &images[i];
}
