/* SPDX-License-Identifier: Apache-2.0 */
/* lz4, zstd, blosc and zfp by dlopen: the few functions that the benchmark calls are declared here,
 * as their manuals have them, so that nobody needs them to build or to run. */
#include "bench_codec_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

/* Whether all of `symbols` (NULL ends them) are in one of the libraries; `out` has their addresses.
 * The library stays open until the process ends. */
static bool load(const char *const *files, const char *const *symbols, void **out)
{
    void *library = NULL;
    for (; !library && *files; files++)
        library = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
    for (; library && *symbols; symbols++, out++)
        if (!(*out = dlsym(library, *symbols)))
            return false;
    return library != NULL;
}

/* ---- lz4 ------------------------------------------------------------------------------------- */

static union {
    void *address[4];
    struct {
        int (*bound)(int bytes);
        int (*compress)(const char *src, char *dst, int bytes, int capacity);
        int (*decompress)(const char *src, char *dst, int length, int capacity);
        const char *(*version)(void);
    } call;
} lz4;

static bool lz4_open(void)
{
    static const char *const files[] = {"liblz4.so.1", NULL};
    static const char *const symbols[] = {"LZ4_compressBound", "LZ4_compress_default",
                                          "LZ4_decompress_safe", "LZ4_versionString", NULL};
    return load(files, symbols, lz4.address);
}

static const char *lz4_version(void)
{
    static char text[32];
    snprintf(text, sizeof text, "lz4 %s", lz4.call.version());
    return text;
}

static size_t lz4_bound(const gw_bench_library_t *self, size_t bytes)
{
    (void)self;
    return (size_t)lz4.call.bound((int)bytes);
}

static size_t lz4_encode(const gw_bench_library_t *self, size_t element, const void *src,
                         size_t bytes, void *dst, size_t capacity)
{
    (void)element;
    (void)self;
    int room = capacity < INT_MAX ? (int)capacity : INT_MAX;
    int length = lz4.call.compress(src, dst, (int)bytes, room);
    return length > 0 ? (size_t)length : 0;
}

static bool lz4_decode(const gw_bench_library_t *self, const void *src, size_t length, void *dst,
                       size_t bytes)
{
    (void)self;
    return lz4.call.decompress(src, dst, (int)length, (int)bytes) == (int)bytes;
}

/* ---- zstd ------------------------------------------------------------------------------------ */

static union {
    void *address[7];
    struct {
        void *(*new_encoder)(void);
        void *(*new_decoder)(void);
        size_t (*bound)(size_t bytes);
        size_t (*compress)(void *encoder, void *dst, size_t capacity, const void *src, size_t bytes,
                           int level);
        size_t (*decompress)(void *decoder, void *dst, size_t capacity, const void *src,
                             size_t length);
        unsigned (*failed)(size_t result);
        const char *(*version)(void);
    } call;
} zstd;
static void *zstd_encoder, *zstd_decoder; /* as long as the process */

static bool zstd_open(void)
{
    static const char *const files[] = {"libzstd.so.1", NULL};
    static const char *const symbols[] = {
        "ZSTD_createCCtx",     "ZSTD_createDCtx", "ZSTD_compressBound", "ZSTD_compressCCtx",
        "ZSTD_decompressDCtx", "ZSTD_isError",    "ZSTD_versionString", NULL};
    if (zstd_encoder && zstd_decoder)
        return true;
    if (!load(files, symbols, zstd.address))
        return false;
    zstd_encoder = zstd.call.new_encoder();
    zstd_decoder = zstd.call.new_decoder();
    return zstd_encoder && zstd_decoder;
}

static const char *zstd_version(void)
{
    static char text[32];
    snprintf(text, sizeof text, "zstd %s", zstd.call.version());
    return text;
}

static size_t zstd_bound(const gw_bench_library_t *self, size_t bytes)
{
    (void)self;
    return zstd.call.bound(bytes);
}

static size_t zstd_encode(const gw_bench_library_t *self, size_t element, const void *src,
                          size_t bytes, void *dst, size_t capacity)
{
    (void)element;
    size_t length = zstd.call.compress(zstd_encoder, dst, capacity, src, bytes, self->level);
    return zstd.call.failed(length) ? 0 : length;
}

static bool zstd_decode(const gw_bench_library_t *self, const void *src, size_t length, void *dst,
                        size_t bytes)
{
    (void)self;
    return zstd.call.decompress(zstd_decoder, dst, bytes, src, length) == bytes;
}

/* ---- blosc: bytes of equal place are brought together, then lz4 or zstd ------------------------
 */

enum { BLOSC_OVERHEAD = 16, BLOSC_SHUFFLE_BYTES = 1 };

static union {
    void *address[3];
    struct {
        int (*compress)(int level, int shuffle, size_t element, size_t bytes, const void *src,
                        void *dst, size_t capacity, const char *compressor, size_t block,
                        int threads);
        int (*decompress)(const void *src, void *dst, size_t capacity, int threads);
        const char *(*version)(void);
    } call;
} blosc;

static bool blosc_open(void)
{
    static const char *const files[] = {"libblosc.so.1", NULL};
    static const char *const symbols[] = {"blosc_compress_ctx", "blosc_decompress_ctx",
                                          "blosc_get_version_string", NULL};
    return load(files, symbols, blosc.address);
}

static const char *blosc_version(void)
{
    static char text[32];
    snprintf(text, sizeof text, "blosc %s", blosc.call.version());
    return text;
}

static size_t blosc_bound(const gw_bench_library_t *self, size_t bytes)
{
    (void)self;
    return bytes + BLOSC_OVERHEAD;
}

static size_t blosc_encode(const gw_bench_library_t *self, size_t element, const void *src,
                           size_t bytes, void *dst, size_t capacity)
{
    int length = blosc.call.compress(self->level, BLOSC_SHUFFLE_BYTES, element, bytes, src, dst,
                                     capacity, self->stage, 0, 1);
    return length > 0 ? (size_t)length : 0;
}

static bool blosc_decode(const gw_bench_library_t *self, const void *src, size_t length, void *dst,
                         size_t bytes)
{
    (void)self;
    (void)length;
    return blosc.call.decompress(src, dst, bytes, 1) == (int)bytes;
}

/* ---- zfp: fixed rate, one dimension ------------------------------------------------------------
 */

enum { ZFP_TYPE_FLOAT = 3 };

static union {
    void *address[13];
    struct {
        void *(*stream_open)(void *bits);
        void (*stream_close)(void *stream);
        void *(*bits_open)(void *buffer, size_t bytes);
        void (*bits_close)(void *bits);
        void (*set_bits)(void *stream, void *bits);
        void (*rewind)(void *stream);
        double (*set_rate)(void *stream, double bits, int type, unsigned dimensions, int align);
        void *(*field)(void *values, int type, size_t count);
        void (*field_free)(void *field);
        size_t (*most)(const void *stream, const void *field);
        size_t (*compress)(void *stream, const void *field);
        size_t (*decompress)(void *stream, void *field);
        const char *const *version;
    } call;
} zfp;

static bool zfp_open(void)
{
    static const char *const files[] = {"libzfp.so.1", NULL};
    static const char *const symbols[] = {"zfp_stream_open",
                                          "zfp_stream_close",
                                          "stream_open",
                                          "stream_close",
                                          "zfp_stream_set_bit_stream",
                                          "zfp_stream_rewind",
                                          "zfp_stream_set_rate",
                                          "zfp_field_1d",
                                          "zfp_field_free",
                                          "zfp_stream_maximum_size",
                                          "zfp_compress",
                                          "zfp_decompress",
                                          "zfp_version_string",
                                          NULL};
    return load(files, symbols, zfp.address);
}

static const char *zfp_version(void)
{
    return *zfp.call.version;
}

static size_t zfp_bound(const gw_bench_library_t *self, size_t bytes)
{
    void *stream = zfp.call.stream_open(NULL);
    void *field = zfp.call.field(NULL, ZFP_TYPE_FLOAT, bytes / sizeof(float));
    zfp.call.set_rate(stream, self->level, ZFP_TYPE_FLOAT, 1, 0);
    size_t most = zfp.call.most(stream, field);
    zfp.call.field_free(field);
    zfp.call.stream_close(stream);
    return most;
}

static size_t zfp_turn(const gw_bench_library_t *self, bool pack, void *values, size_t bytes,
                       void *packed, size_t room)
{
    void *bits = zfp.call.bits_open(packed, room), *stream = zfp.call.stream_open(bits);
    void *field = zfp.call.field(values, ZFP_TYPE_FLOAT, bytes / sizeof(float));
    zfp.call.set_rate(stream, self->level, ZFP_TYPE_FLOAT, 1, 0);
    zfp.call.rewind(stream);
    size_t length = pack ? zfp.call.compress(stream, field) : zfp.call.decompress(stream, field);
    zfp.call.field_free(field);
    zfp.call.stream_close(stream);
    zfp.call.bits_close(bits);
    return length;
}

static size_t zfp_encode(const gw_bench_library_t *self, size_t element, const void *src,
                         size_t bytes, void *dst, size_t capacity)
{
    (void)element;
    return zfp_turn(self, true, (void *)(uintptr_t)src, bytes, dst, capacity);
}

static bool zfp_decode(const gw_bench_library_t *self, const void *src, size_t length, void *dst,
                       size_t bytes)
{
    return zfp_turn(self, false, dst, bytes, (void *)(uintptr_t)src, length) > 0;
}

/* ---- The list -------------------------------------------------------------------------------- */

#define LZ4                                                                                        \
    .limit = 0x7E000000, .open = lz4_open, .version = lz4_version, .bound = lz4_bound,             \
    .encode = lz4_encode, .decode = lz4_decode
#define ZSTD                                                                                       \
    .limit = SIZE_MAX / 2, .open = zstd_open, .version = zstd_version, .bound = zstd_bound,        \
    .encode = zstd_encode, .decode = zstd_decode
#define BLOSC                                                                                      \
    .limit = INT_MAX - BLOSC_OVERHEAD, .open = blosc_open, .version = blosc_version,               \
    .bound = blosc_bound, .encode = blosc_encode, .decode = blosc_decode
#define ZFP                                                                                        \
    .limit = SIZE_MAX / 2, .lossy = true, .open = zfp_open, .version = zfp_version,                \
    .bound = zfp_bound, .encode = zfp_encode, .decode = zfp_decode

static const gw_bench_library_t libraries[] = {
    {"lz4", LZ4},
    {"zstd:1", .level = 1, ZSTD},
    {"zstd:3", .level = 3, ZSTD},
    {"blosc+lz4:5", .stage = "lz4", .level = 5, BLOSC},
    {"blosc+zstd:1", .stage = "zstd", .level = 1, BLOSC},
    {"zfp:8", .level = 8, ZFP},
    {"zfp:4", .level = 4, ZFP},
};

const gw_bench_library_t *gw_bench_library_at(size_t i)
{
    return i < sizeof libraries / sizeof *libraries ? &libraries[i] : NULL;
}

bool gw_bench_library_takes(const gw_bench_library_t *library, gw_dtype_t dtype, size_t bytes)
{
    return (!library->lossy || dtype == GW_F32) && bytes <= library->limit && library->open();
}
