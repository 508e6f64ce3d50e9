/* SPDX-License-Identifier: Apache-2.0 */
/* Compressors of other libraries beside the codecs, where the machine has them at run time. */
#ifndef GW_BENCH_CODEC_LIBRARY_H
#define GW_BENCH_CODEC_LIBRARY_H

#include <gradwire/types.h>

typedef struct gw_bench_library gw_bench_library_t;

/* One compressor at one setting. It sees bytes where it is lossless, binary32 where it is lossy. */
struct gw_bench_library {
    const char *name; /* "zstd:3" */
    bool lossy;
    const char *stage;            /* blosc: the compressor behind the shuffle */
    int level;                    /* zfp: bits an element */
    size_t limit;                 /* bytes of input it takes at most */
    bool (*open)(void);           /* loads it; false: not on this machine */
    const char *(*version)(void); /* "zstd 1.5.4"; after open() */
    size_t (*bound)(const gw_bench_library_t *self, size_t bytes);
    /* `element`: bytes of one. Bytes written, or 0 for a failure. */
    size_t (*encode)(const gw_bench_library_t *self, size_t element, const void *src, size_t bytes,
                     void *dst, size_t capacity);
    bool (*decode)(const gw_bench_library_t *self, const void *src, size_t length, void *dst,
                   size_t bytes);
};

/* The i-th of those that this program can use, or NULL behind the last one. All work on the thread
 * that calls them, one at a time. */
const gw_bench_library_t *gw_bench_library_at(size_t i);

/* Whether it is on this machine and takes that many bytes of such elements. */
bool gw_bench_library_takes(const gw_bench_library_t *library, gw_dtype_t dtype, size_t bytes);

#endif
