/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes and the message authentication code SipHash-2-4-128, written after the paper. */
#include "secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

gw_status_t gw__secret_draw(void *out, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = getrandom((uint8_t *)out + done, size - done, 0);
        if (got < 0 && errno != EINTR)
            return GW_ERR_IO;
        done += got > 0 ? (size_t)got : 0;
    }
    return GW_OK;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t word_at(const uint8_t *at, size_t bytes)
{
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

static void squeeze(uint64_t v[4], uint8_t out[8])
{
    mix(v, 4);
    uint64_t word = v[0] ^ v[1] ^ v[2] ^ v[3];
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(word >> (8 * i));
}

void gw__mac(const uint8_t key[16], const void *message, size_t size, uint8_t out[GW__PROOF_BYTES])
{
    const uint8_t *bytes = message;
    uint64_t k0 = word_at(key, 8), k1 = word_at(key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736F6D6570736575u, k1 ^ 0x646F72616E646F6Du ^ 0xEE,
                     k0 ^ 0x6C7967656E657261u, k1 ^ 0x7465646279746573u};
    size_t whole = size / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        absorb(v, word_at(bytes + i, 8));
    absorb(v, (uint64_t)size << 56 | word_at(bytes + whole, size - whole));
    v[2] ^= 0xEE;
    squeeze(v, out);
    v[1] ^= 0xDD;
    squeeze(v, out + 8);
}

bool gw__proof_equal(const uint8_t a[GW__PROOF_BYTES], const uint8_t b[GW__PROOF_BYTES])
{
    uint8_t difference = 0;
    for (int i = 0; i < GW__PROOF_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}
