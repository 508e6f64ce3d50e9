/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is one function that takes any bytes: libFuzzer calls it
 * with what it thinks of, replay.c with what is kept in corpus/. */
#ifndef GW_FUZZ_H
#define GW_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the input is; ends the process, as a finding does. */
#define fuzz_require(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Memory of exactly this size, so that one byte more is one too many. */
static inline void *fuzz_alloc(size_t size)
{
    void *memory = malloc(size ? size : 1);
    fuzz_require(memory);
    return memory;
}

/* The input as a text that ends where its memory ends. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = fuzz_alloc(size + 1);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Takes up to `most` bytes off the front of the input into `out`; the rest of it becomes zeros. */
static inline void fuzz_take(const uint8_t **data, size_t *size, void *out, size_t most)
{
    size_t n = *size < most ? *size : most;
    memset(out, 0, most);
    if (n)
        memcpy(out, *data, n);
    *data += n;
    *size -= n;
}

#endif
