/* SPDX-License-Identifier: Apache-2.0 */
/* The code for GPUs as data of the library: one fat binary a family. */
#include "cuda_kernels.h"

#ifdef GW_HAVE_CUDA_IMAGES

/* The assembler takes the file in as it is, so that no array of bytes is compiled. */
#define IMAGE(family)                                                                              \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 16\n"                                                                         \
            "gw__cuda_" #family "_image:\n"                                                        \
            ".incbin \"" #family "_cuda.fatbin\"\n"                                                \
            "gw__cuda_" #family "_image_end:\n"                                                    \
            ".byte 0\n"                                                                            \
            ".globl gw__cuda_" #family "_image, gw__cuda_" #family "_image_end\n"                  \
            ".hidden gw__cuda_" #family "_image, gw__cuda_" #family "_image_end\n"                 \
            ".popsection\n");                                                                      \
    extern const unsigned char gw__cuda_##family##_image[], gw__cuda_##family##_image_end[];

IMAGE(sum)
IMAGE(cast)
IMAGE(sign)
IMAGE(quant)
IMAGE(fp8)
IMAGE(fp4)
IMAGE(rotate)
IMAGE(natural)
IMAGE(randomk)
IMAGE(topk)
IMAGE(block)
IMAGE(lowrank)

#define ENTRY(family)                                                                              \
    {                                                                                              \
#family, gw__cuda_##family##_image, gw__cuda_##family##_image_end                          \
    }
static const gw_cuda_image_t images[] = {ENTRY(sum),     ENTRY(cast), ENTRY(sign),   ENTRY(quant),
                                         ENTRY(fp8),     ENTRY(fp4),  ENTRY(rotate), ENTRY(natural),
                                         ENTRY(randomk), ENTRY(topk), ENTRY(block),  ENTRY(lowrank)};
enum { IMAGES = sizeof images / sizeof *images };

const gw_cuda_image_t *gw__cuda_image(size_t i)
{
    return i < IMAGES ? &images[i] : NULL;
}

#else

const gw_cuda_image_t *gw__cuda_image(size_t i)
{
    return NULL;
}

#endif
