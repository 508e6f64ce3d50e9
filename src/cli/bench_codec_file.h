/* SPDX-License-Identifier: Apache-2.0 */
/* Files of recorded gradients: NumPy's .npy of <f4 or <f2, or raw little-endian binary32. */
#ifndef GW_BENCH_CODEC_FILE_H
#define GW_BENCH_CODEC_FILE_H

#include <gradwire/types.h>

/* An open file whose header and length were found to be right. */
typedef struct gw_bench_file {
    int fd;
    size_t offset;    /* of the first element, in bytes */
    size_t count;     /* elements; at least 1 */
    gw_dtype_t dtype; /* GW_F32 or GW_F16 */
    bool npy;
} gw_bench_file_t;

/*
 * Opens `path`. What begins with NumPy's magic, or is named *.npy, must be an .npy file of format 1
 * to 3 with descr '<f4' or '<f2', fortran_order False and exactly the bytes that its shape needs;
 * anything else is raw binary32. False writes one sentence into `why` that names the file, what is
 * wrong and what would be right; nothing is open then.
 */
bool gw_bench_file_open(const char *path, gw_bench_file_t *out, char *why, size_t size);
void gw_bench_file_close(gw_bench_file_t *file);

/* Reads `count` elements from element `first` on, as they lie in the file. False: the system's
 * error, or the file has become shorter; errno says which (0: shorter). */
bool gw_bench_file_read(const gw_bench_file_t *file, size_t first, size_t count, void *dst);

#endif
