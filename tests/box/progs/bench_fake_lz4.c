/* SPDX-License-Identifier: Apache-2.0 */
/* A liblz4.so.1 that copies, for `gradwire bench codec --peers on`. BENCH_FAKE_LZ4 names what it
 * does wrong: "byte" changes one, "length" gives back too few, "refuse" compresses nothing. */
#include <stdlib.h>
#include <string.h>

int LZ4_compressBound(int bytes);
int LZ4_compress_default(const char *src, char *dst, int bytes, int capacity);
int LZ4_decompress_safe(const char *src, char *dst, int length, int capacity);
const char *LZ4_versionString(void);

static int lies(const char *what)
{
    const char *lie = getenv("BENCH_FAKE_LZ4");
    return lie && strcmp(lie, what) == 0;
}

int LZ4_compressBound(int bytes)
{
    return bytes;
}

int LZ4_compress_default(const char *src, char *dst, int bytes, int capacity)
{
    if (bytes > capacity || lies("refuse"))
        return 0;
    memcpy(dst, src, (size_t)bytes);
    return bytes;
}

int LZ4_decompress_safe(const char *src, char *dst, int length, int capacity)
{
    if (length > capacity)
        return -1;
    memcpy(dst, src, (size_t)length);
    if (lies("byte"))
        dst[length / 2] = (char)(dst[length / 2] ^ 1);
    return lies("length") ? length - 1 : length;
}

const char *LZ4_versionString(void)
{
    return "0.fake";
}
