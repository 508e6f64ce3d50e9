/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernels of codecs cast, fp8 and fp4: rows for the table in kernel_bodies.c. */
#ifndef KERNEL_BODIES_FLOAT_H
#define KERNEL_BODIES_FLOAT_H

#include "kernel_check.h"

void kernel_float_draw_cast(kernel_call_t *c);
void kernel_float_draw_fp8(kernel_call_t *c);
void kernel_float_draw_fp4(kernel_call_t *c);
void kernel_float_prepare_encode(kernel_call_t *c);
void kernel_float_prepare_valid(kernel_call_t *c);
void kernel_float_prepare_store(kernel_call_t *c);
void kernel_float_prepare_add(kernel_call_t *c);

#define KERNEL_FLOAT_MEMBER(family, member)                                                        \
    uint64_t kernel_float_##family##_##member(const gw_kernels_t *k, kernel_call_t *c);            \
    void (*kernel_float_##family##_##member##_of(const gw_kernels_t *k))(void);
KERNEL_FLOAT_MEMBER(cast, encode)
KERNEL_FLOAT_MEMBER(cast, add)
KERNEL_FLOAT_MEMBER(fp8, encode)
KERNEL_FLOAT_MEMBER(fp8, valid)
KERNEL_FLOAT_MEMBER(fp8, store)
KERNEL_FLOAT_MEMBER(fp8, add)
KERNEL_FLOAT_MEMBER(fp4, encode)
KERNEL_FLOAT_MEMBER(fp4, valid)
KERNEL_FLOAT_MEMBER(fp4, store)
KERNEL_FLOAT_MEMBER(fp4, add)

/* What a bench setting such as "e4m3 ef" says of the format, in the codec's default block. */
gw_float_spec_t kernel_float_setting(const char *setting);

extern const char *const kernel_float_cast_encodings[], *const kernel_float_cast_decodings[];
extern const char *const kernel_float_fp8_encodings[], *const kernel_float_fp8_decodings[];
extern const char *const kernel_float_fp4_encodings[], *const kernel_float_fp4_decodings[];

#define KERNEL_FLOAT_ROW(family, member, cases, settings)                                          \
    {                                                                                              \
#family "." #member, kernel_float_draw_##family, kernel_float_prepare_##member,            \
            kernel_float_##family##_##member, kernel_float_##family##_##member##_of, cases,        \
            kernel_float_##family##_##settings                                                     \
    }
#define KERNEL_BODIES_FLOAT                                                                        \
    KERNEL_FLOAT_ROW(cast, encode, 600, encodings), KERNEL_FLOAT_ROW(cast, add, 400, decodings),   \
        KERNEL_FLOAT_ROW(fp8, encode, 1200, encodings),                                            \
        KERNEL_FLOAT_ROW(fp8, valid, 400, decodings),                                              \
        KERNEL_FLOAT_ROW(fp8, store, 600, decodings), KERNEL_FLOAT_ROW(fp8, add, 600, decodings),  \
        KERNEL_FLOAT_ROW(fp4, encode, 1200, encodings),                                            \
        KERNEL_FLOAT_ROW(fp4, valid, 400, decodings),                                              \
        KERNEL_FLOAT_ROW(fp4, store, 600, decodings), KERNEL_FLOAT_ROW(fp4, add, 600, decodings),

#endif
