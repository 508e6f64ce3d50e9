/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli polynomial), eight bytes a step by tables. */
#include "frame.h"

#include <pthread.h>

#include "bytes.h"

#define POLYNOMIAL 0x82F63B78u /* bits reversed: least significant first */

/* table[k][b]: the remainder of byte b with k zero bytes behind it. */
static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xFF];
}

uint32_t gw__crc32c(uint32_t crc, const uint8_t *data, size_t length)
{
    pthread_once(&once, fill_table);
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word = gw__load64(data) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= table[7 - k][word >> 8 * k & 0xFF];
    }
    for (; length; data++, length--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}
