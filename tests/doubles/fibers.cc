// SPDX-License-Identifier: Apache-2.0
// The context switch: registers that a call keeps, the floating-point modes, and ASan's view of the
// stack.
#include "fibers.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gw_double.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(fake, bottom, size)  (void)0
#define __sanitizer_finish_switch_fiber(fake, bottom, size) (void)0
#define __asan_unpoison_memory_region(at, size)             (void)0
#endif

// System V ABI: rbx, rbp, r12 to r15, MXCSR and the x87 control word are the callee's to keep.
// swapcontext would also change the signal mask, by a system call for each switch.
extern "C" void gw_double_switch(void **save, void *load);
asm(".text\n"
    ".hidden gw_double_switch\n"
    ".globl gw_double_switch\n"
    ".type gw_double_switch, @function\n"
    "gw_double_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  subq $8, %rsp\n  stmxcsr (%rsp)\n  fnstcw 4(%rsp)\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  ldmxcsr (%rsp)\n  fldcw 4(%rsp)\n  addq $8, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size gw_double_switch, .-gw_double_switch\n");

static const size_t STACK = 128 * 1024;
static fiber_t fibers[GW_DOUBLE_THREADS_MOST];
static unsigned reserved;
static fiber_t caller, *running;

bool fibers_reserve(unsigned n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (; reserved < n; reserved++) {
        void *at =
            mmap(NULL, page + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return false;
        mprotect(at, page, PROT_NONE);
        fibers[reserved].stack = (char *)at + page;
        fibers[reserved].size = STACK;
    }
    return true;
}

fiber_t *fiber_of(unsigned i)
{
    return &fibers[i];
}

static void (*begin)(void);

static void first(void)
{
    __sanitizer_finish_switch_fiber(NULL, (const void **)&caller.stack, &caller.size);
    begin();
    __builtin_trap();
}

// What gw_double_switch() pops: modes (round to nearest, no traps, denormals kept), six registers,
// the address. A function begins 8 bytes below a multiple of 16, as after a call, with an address
// that ends backtraces.
void fiber_reset(fiber_t *fiber, void (*run)(void))
{
    begin = run;
    __asan_unpoison_memory_region(fiber->stack, fiber->size);
    uint64_t *top = (uint64_t *)(fiber->stack + fiber->size) - 1;
    *top = 0;
    *--top = (uint64_t)first;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    *--top = UINT64_C(0x037F) << 32 | 0x1F80;
    fiber->at = top;
}

void fiber_enter(fiber_t *fiber)
{
    void *fake = NULL;
    (void)fake;
    running = fiber;
    __sanitizer_start_switch_fiber(&fake, fiber->stack, fiber->size);
    gw_double_switch(&caller.at, fiber->at);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
}

void fiber_leave(bool ends)
{
    void *fake = NULL;
    (void)fake;
    (void)ends;
    fiber_t *self = running;
    __sanitizer_start_switch_fiber(ends ? NULL : &fake, caller.stack, caller.size);
    gw_double_switch(&self->at, caller.at);
    __sanitizer_finish_switch_fiber(fake, (const void **)&caller.stack, &caller.size);
}
