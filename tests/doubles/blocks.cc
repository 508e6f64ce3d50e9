// SPDX-License-Identifier: Apache-2.0
// The executor of blocks: whose turn it is, where threads meet, and what is wrong when one does not
// come.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "cuda_host.h"
#include "fibers.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(at, size)   (void)0
#define __asan_unpoison_memory_region(at, size) (void)0
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Of all __shared__ variables in the program; absent without any.
extern "C" char __start_gw_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_gw_shared[] __attribute__((weak, visibility("hidden")));

enum { LANES = 32, THREADS = GW_DOUBLE_THREADS_MOST };
enum state_t { READY, WAITS, ENDED };

struct lane_t {
    state_t state;
    gw_double_meet_t kind;
    uint32_t mask;
    unsigned source;
    uint64_t value, result;
    const char *file;
    int line;
};

static struct {
    lane_t lane[THREADS];
    unsigned order[THREADS], threads, self;
    const gw_double_kernel_t *kernel;
    void *const *args;
    char *shared;
    uint64_t seed, drawn;
    char why[512];
} now;

static gw_double_kernel_t *kernels;
// A test's signal handler may jump out of a kernel: whoever holds this then launches again.
static pthread_mutex_t one_launch = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static const char *left_out_file;
static int left_out_line;

void gw_double_register(gw_double_kernel_t *kernel)
{
    kernel->next = kernels;
    kernels = kernel;
}

const gw_double_kernel_t *gw_double_find(const char *name)
{
    const gw_double_kernel_t *k = kernels;
    while (k && strcmp(k->name, name))
        k = k->next;
    return k;
}

unsigned gw_double_lane(void)
{
    return now.self % LANES;
}

void *gw_double_shared(void)
{
    return now.shared;
}

// ---- Orders
// ---------------------------------------------------------------------------------------------------------

// SplitMix64 (Steele, Lea, Flood 2014).
static uint64_t draw(void)
{
    uint64_t z = now.seed + ++now.drawn * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void put_in_order(unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = now.seed == 1 ? n - 1 - i : i;
    for (unsigned i = n; now.seed > 1 && i > 1; i--)
        std::swap(order[i - 1], order[draw() % i]);
}

// ---- Rendezvous
// -----------------------------------------------------------------------------------------------------

// The threads that have to come: first, how many, and which of them.
struct party_t {
    unsigned first, count;
    uint32_t mask;
    bool named(unsigned i) const
    {
        return count > LANES || !mask || mask >> i & 1;
    }
};

static party_t party_of(unsigned thread)
{
    const lane_t *l = &now.lane[thread];
    if (l->kind == GW_DOUBLE_BLOCK)
        return {0, now.threads, 0};
    return {thread / LANES * LANES, LANES, l->mask};
}

static bool same_place(const lane_t *a, const lane_t *b)
{
    return a->kind == b->kind && a->mask == b->mask && a->line == b->line &&
           !strcmp(a->file, b->file);
}

static bool has_come(unsigned thread, const lane_t *to)
{
    return thread < now.threads && now.lane[thread].state == WAITS &&
           same_place(&now.lane[thread], to);
}

static const char *verb_of(const lane_t *l)
{
    static const char *const verbs[] = {"the barrier of the block", "the barrier of the warp",
                                        "the shuffle", "the vote"};
    return verbs[l->kind];
}

// Whatever a lane gets is computed when the last one has come.
static void give(const party_t &party)
{
    uint64_t bits = 0, count = 0;
    for (unsigned i = 0; i < party.count; i++)
        if (party.named(i) && now.lane[party.first + i].value) {
            count++;
            bits |= UINT64_C(1) << i % LANES;
        }
    for (unsigned i = 0; i < party.count; i++) {
        lane_t *l = &now.lane[party.first + i];
        if (!party.named(i))
            continue;
        if (l->kind == GW_DOUBLE_SHUFFLE && !party.named(l->source))
            snprintf(
                now.why, sizeof now.why,
                "%s: block %u, thread %u reads lane %u at %s:%d, which is not in the mask %08x",
                now.kernel->name, blockIdx.x, party.first + i, l->source, l->file, l->line,
                l->mask);
        else
            l->result = l->kind == GW_DOUBLE_SHUFFLE  ? now.lane[party.first + l->source].value
                        : l->kind == GW_DOUBLE_BALLOT ? bits
                                                      : count;
        l->state = READY;
    }
}

static void give_if_all_came(unsigned thread)
{
    const lane_t *l = &now.lane[thread];
    party_t party = party_of(thread);
    for (unsigned i = 0; i < party.count; i++)
        if (party.named(i) && !has_come(party.first + i, l))
            return;
    give(party);
}

void gw_double_leave_out(const char *file, int line)
{
    left_out_file = file;
    left_out_line = line;
}

static bool is_left_out(gw_double_meet_t kind, const char *file, int line)
{
    return left_out_file && line == left_out_line && kind <= GW_DOUBLE_WARP &&
           strstr(file, left_out_file);
}

uint64_t gw_double_meet(gw_double_meet_t kind, uint32_t mask, uint64_t value, unsigned source,
                        const char *file, int line)
{
    if (is_left_out(kind, file, line))
        return 0;
    unsigned self = now.self;
    lane_t *l = &now.lane[self];
    *l = {WAITS, kind, mask, source, value, 0, file, line};
    if (kind != GW_DOUBLE_BLOCK && !(mask >> self % LANES & 1)) {
        snprintf(
            now.why, sizeof now.why,
            "%s: block %u, thread %u waits at %s:%d with the mask %08x, which lacks its own lane",
            now.kernel->name, blockIdx.x, self, file, line, mask);
        fiber_leave(true);
    }
    give_if_all_came(self);
    fiber_leave(false);
    return l->result;
}

// The first thread that has not come to where this one waits.
static unsigned late_for(unsigned waits)
{
    party_t party = party_of(waits);
    unsigned late = 0;
    while (!party.named(late) || has_come(party.first + late, &now.lane[waits]))
        late++;
    return party.first + late;
}

static bool never_comes(unsigned thread)
{
    return thread >= now.threads || now.lane[thread].state == ENDED;
}

// Nobody can go on: names one who waits for somebody that will never come, else the first one who
// waits.
static void blame(void)
{
    unsigned waits = 0, first = THREADS;
    for (; waits < now.threads; waits++) {
        if (now.lane[waits].state != WAITS)
            continue;
        first = waits < first ? waits : first;
        if (never_comes(late_for(waits)))
            break;
    }
    waits = waits < now.threads ? waits : first;
    unsigned late = late_for(waits);
    const lane_t *l = &now.lane[waits], *other = &now.lane[late % THREADS];
    char where[160] = "which is not in the block";
    if (late < now.threads && other->state == ENDED)
        snprintf(where, sizeof where, "which has ended");
    else if (late < now.threads)
        snprintf(where, sizeof where, "which waits at %s of %s:%d with the mask %08x",
                 verb_of(other), other->file, other->line, other->mask);
    snprintf(now.why, sizeof now.why,
             "%s: block %u, thread %u waits at %s of %s:%d with the mask %08x for thread %u, %s",
             now.kernel->name, blockIdx.x, waits, verb_of(l), l->file, l->line, l->mask, late,
             where);
}

// ---- Blocks
// ---------------------------------------------------------------------------------------------------------

static void thread_main(void)
{
    unsigned self = now.self;
    now.kernel->call(now.args);
    now.lane[self].state = ENDED;
    fiber_leave(true);
}

// A turn for a thread, if it can go on.
static bool turn_of(unsigned thread)
{
    if (now.lane[thread].state != READY || *now.why)
        return false;
    now.self = thread;
    threadIdx = {thread, 0, 0};
    fiber_enter(fiber_of(thread));
    return true;
}

// With odd seeds a warp runs as far ahead of the others as it can.
static void run_ahead(unsigned warp)
{
    bool any = true;
    while (any) {
        any = false;
        for (unsigned t = warp * LANES; t < (warp + 1) * LANES && t < now.threads; t++)
            any |= turn_of(t);
    }
}

// One turn for everyone who can go on; false: there was none.
static bool turn(void)
{
    bool any = false;
    put_in_order(now.order, now.threads);
    for (unsigned i = 0; i < now.threads && !*now.why; i++) {
        any |= turn_of(now.order[i]);
        if (now.seed > 1 && now.seed % 2)
            run_ahead(now.order[i] / LANES);
    }
    return any;
}

static bool run_block(unsigned block, size_t shared_bytes)
{
    blockIdx = {block, 0, 0};
    memset(now.shared, 0xFF, shared_bytes);
    if (__start_gw_shared)
        memset(__start_gw_shared, 0xFF, (size_t)(__stop_gw_shared - __start_gw_shared));
    for (unsigned t = 0; t < now.threads; t++) {
        now.lane[t].state = READY;
        fiber_reset(fiber_of(t), thread_main);
    }
    while (!*now.why && turn())
        continue;
    for (unsigned t = 0; t < now.threads && !*now.why; t++)
        if (now.lane[t].state != ENDED)
            blame();
    return !*now.why;
}

// Dynamic shared memory ends at a guard page, as near as a multiple of 16 allows; ASan sees the
// rest to the byte.
static bool place_shared(size_t bytes)
{
    static char *room;
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           size = (GW_DOUBLE_SHARED_MOST + page - 1) / page * page;
    if (!room) {
        void *at =
            mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return false;
        room = (char *)at;
        mprotect(room + size, page, PROT_NONE);
    }
    now.shared = room + size - (bytes + 15) / 16 * 16;
    __asan_poison_memory_region(room, size);
    __asan_unpoison_memory_region(now.shared, bytes);
    return true;
}

static bool prepare(unsigned grid, unsigned block, size_t shared_bytes)
{
    if (!grid || grid > INT32_MAX || !block || block > THREADS ||
        shared_bytes > GW_DOUBLE_SHARED_MOST) {
        snprintf(now.why, sizeof now.why,
                 "%s: no device runs %u blocks of %u threads with %zu bytes of shared memory",
                 now.kernel->name, grid, block, shared_bytes);
        return false;
    }
    if (fibers_reserve(block) && place_shared(shared_bytes))
        return true;
    snprintf(now.why, sizeof now.why, "%s: no memory for %u threads", now.kernel->name, block);
    return false;
}

static bool run_grid(unsigned grid, size_t shared_bytes)
{
    unsigned *order = new unsigned[grid];
    bool ok = true;
    put_in_order(order, grid);
    for (unsigned i = 0; i < grid && ok; i++)
        ok = run_block(order[i], shared_bytes);
    delete[] order;
    return ok;
}

bool gw_double_launch(const gw_double_kernel_t *kernel, unsigned grid, unsigned block,
                      size_t shared_bytes, uint64_t seed, void *const *args, char *why,
                      size_t why_size)
{
    pthread_mutex_lock(&one_launch);
    now.kernel = kernel;
    now.args = args;
    now.threads = block;
    now.seed = seed;
    now.drawn = 0;
    now.why[0] = 0;
    gridDim = {grid, 1, 1};
    blockDim = {block, 1, 1};
    bool ok = prepare(grid, block, shared_bytes) && run_grid(grid, shared_bytes);
    if (why && why_size)
        snprintf(why, why_size, "%s", now.why);
    pthread_mutex_unlock(&one_launch);
    return ok;
}
