/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of every kernel of every tier beside memcpy, by the bodies of the kernel checker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_check.h"

static void bench_body(const kernel_body_t *body, const char *tier, size_t count)
{
    const gw_kernels_t *table = gw__kernels_of(tier);
    for (const char *const *setting = body->bench; *setting; setting++) {
        kernel_speed_t s = kernel_bench(body, table, *setting, count);
        printf("%-6s %-17s %-18s %7.2f GB/s  memcpy %6.2f GB/s  %5.2f x\n", tier, body->name,
               *setting, s.gbps, s.memcpy_gbps, s.ratio);
        fflush(stdout);
    }
}

/* bench_kernels [MiB of binary32 input, 64 by default] [part of a kernel's name] [tier] */
int main(int argc, char **argv)
{
    double mib = argc > 1 ? atof(argv[1]) : 64;
    size_t count = (size_t)(mib * 262144);
    if (count < 4096 || count > (size_t)1 << 30) {
        fprintf(stderr, "usage: bench_kernels [MiB of input, 0.016 to 4096] [KERNEL] [TIER]\n");
        return 2;
    }
    printf("%.3g MiB of binary32 input, buckets of 512; decoding and reduce check their payloads "
           "first unless 'alone'\n",
           mib);
    for (size_t i = 0; gw__kernels_available(i); i++)
        for (size_t b = 0; kernel_bodies[b].name; b++)
            if ((argc < 3 || strstr(kernel_bodies[b].name, argv[2])) &&
                (argc < 4 || !strcmp(gw__kernels_available(i), argv[3])))
                bench_body(&kernel_bodies[b], gw__kernels_available(i), count);
    return 0;
}
