/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point mode that kernels run in: to nearest even, denormals kept. */
#ifndef GW_FPMODE_H
#define GW_FPMODE_H

#include <stdint.h>

/*
 * An application may have switched flush-to-zero or another rounding on in its threads (torch has a
 * call for that). A kernel entry saves the mode, sets the default one, calls its body (a function
 * that is not inlined, so that the compiler moves no arithmetic across), and restores the mode.
 */
#define GW_KERNEL_BODY __attribute__((noinline))

#if defined(__x86_64__)
#include <xmmintrin.h>

static inline uint64_t gw__fpmode_enter(void)
{
    uint64_t mode = _mm_getcsr();
    if ((mode & 0xFFC0) != 0x1F80)
        _mm_setcsr(0x1F80);
    return mode;
}

static inline void gw__fpmode_leave(uint64_t mode)
{
    if ((mode & 0xFFC0) != 0x1F80)
        _mm_setcsr((unsigned)mode);
}

#elif defined(__aarch64__)

static inline uint64_t gw__fpmode_enter(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    if (mode)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return mode;
}

static inline void gw__fpmode_leave(uint64_t mode)
{
    if (mode)
        __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#else

static inline uint64_t gw__fpmode_enter(void)
{
    return 0;
}

static inline void gw__fpmode_leave(uint64_t mode)
{
    (void)mode;
}

#endif
#endif
