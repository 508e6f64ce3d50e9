/* SPDX-License-Identifier: Apache-2.0 */
/* The secret of a communicator: random bytes that its ranks share, and proofs of knowing them. */
#ifndef GW_SECRET_H
#define GW_SECRET_H

#include <gradwire/types.h>

enum {
    GW__SECRET_BYTES = 32, /* the key of proofs, then what the transport gets */
    GW__PROOF_BYTES = 16,
    GW__NONCE_BYTES = 16
};

/* Random bytes of the kernel; waits for it in the first moments of a machine. GW_ERR_IO. */
gw_status_t gw__secret_draw(void *out, size_t size);

/*
 * SipHash-2-4 with a result of 128 bits (Aumasson, Bernstein: SipHash: a fast short-input PRF,
 * 2012, and the authors' later 128-bit variant): who does not know the 16 bytes of `key` cannot
 * tell the result for a message that he has not seen it for.
 */
void gw__mac(const uint8_t key[16], const void *message, size_t size, uint8_t out[GW__PROOF_BYTES]);

/* Whether two proofs are equal, in a time that does not tell where they differ. */
bool gw__proof_equal(const uint8_t a[GW__PROOF_BYTES], const uint8_t b[GW__PROOF_BYTES]);

#endif
