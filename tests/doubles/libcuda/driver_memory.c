/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the driver's double: an arena whose red zones and freed parts nobody may touch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_double.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define NOT_ASAN __attribute__((no_sanitize_address))
#else
#define __asan_poison_memory_region(at, size)   (void)(at)
#define __asan_unpoison_memory_region(at, size) (void)(at)
#define NOT_ASAN
#endif

/*
 * An allocation lies in pages of its own: a red zone of 512 bytes (to which the driver aligns), the
 * bytes, a red zone to the end of the pages, then a page that is never there. Red zones hold a
 * pattern that is checked after each kernel, and are poisoned for AddressSanitizer, which sees a
 * kernel's access at once. Pages of devices are PROT_NONE while nothing executes: that stops the
 * host's own code, libc and the kernel's system calls in every build, where poison stops only
 * instrumented code and would stop it in kernels too. Freed pages stay PROT_NONE until the whole
 * arena has been used.
 */
enum { RED = 512, PATTERN = 0xC5, FRESH = 0xFF, FREED_KEPT = 1024 };
static const size_t ARENA = (size_t)64 << 30;

static memory_t **all;
static size_t all_count, all_room;
static char *arena, *next_place;
static bool is_open;
static uint64_t last_id;

/* ---- Finding -----------------------------------------------------------------------------------
 */

memory_t *memory_find(const void *at)
{
    memory_t *found = NULL;
    for (size_t i = all_count; i--;) {
        memory_t *m = all[i];
        if ((const char *)at < m->at || (const char *)at > m->at + m->bytes)
            continue;
        bool inside = (const char *)at < m->at + m->bytes;
        if (inside && m->state != MEMORY_FREED)
            return m;
        if (!found || (found->state == MEMORY_FREED && m->state != MEMORY_FREED))
            found = m;
    }
    return found;
}

memory_t *memory_at_start(const void *at)
{
    for (size_t i = all_count; i--;)
        if (all[i]->at == at && all[i]->state != MEMORY_FREED)
            return all[i];
    return NULL;
}

bool memory_overlaps(const void *at, size_t bytes)
{
    const char *from = at, *to = from + bytes;
    for (size_t i = 0; i < all_count; i++)
        if (all[i]->state != MEMORY_FREED && all[i]->at < to && from < all[i]->at + all[i]->bytes)
            return true;
    return false;
}

size_t memory_used(CUcontext context)
{
    size_t used = 0;
    for (size_t i = 0; i < all_count; i++)
        if (all[i]->kind <= MEMORY_MANAGED && all[i]->state != MEMORY_FREED &&
            all[i]->context == context)
            used += all[i]->bytes;
    return used;
}

/* The allocation whose pages are nearest to the address. */
static memory_t *nearest(const char *at)
{
    memory_t *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < all_count; i++) {
        memory_t *m = all[i];
        size_t away = at < m->at               ? (size_t)(m->at - at)
                      : at >= m->at + m->bytes ? (size_t)(at - (m->at + m->bytes)) + 1
                                               : 0;
        if (away < least || (away == least && m->state != MEMORY_FREED)) {
            least = away;
            best = m;
        }
    }
    return best;
}

void memory_describe(const void *at, char *text, size_t size)
{
    static const char *const kinds[] = {"device memory", "managed memory", "pinned memory",
                                        "registered host memory"};
    const char *place = (const char *)at;
    const memory_t *m = nearest(place);
    bool near = m && place + 65536 > m->at && place < m->at + m->bytes + 65536;
    if (!near) {
        snprintf(text, size, "%p, which the driver never gave out", at);
        return;
    }
    char where[96] = "inside of";
    if (place < m->at)
        snprintf(where, sizeof where, "%zu bytes before", (size_t)(m->at - place));
    else if (place >= m->at + m->bytes)
        snprintf(where, sizeof where, "%zu bytes behind the end of",
                 (size_t)(place - (m->at + m->bytes)));
    snprintf(text, size, "%p, %s %s allocation %llu of %zu bytes (%s)", at, where,
             m->state == MEMORY_FREED ? "the freed" : "the", (unsigned long long)m->id, m->bytes,
             kinds[m->kind]);
}

bool memory_is_mapped(const void *at)
{
    unsigned char there;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return (uintptr_t)at >= 65536 && !mincore((void *)((uintptr_t)at & ~(page - 1)), 1, &there);
}

bool memory_is_ours(const void *at)
{
    return arena && (const char *)at >= arena && (const char *)at < arena + ARENA;
}

/* ---- Protection --------------------------------------------------------------------------------
 */

static void protect(const memory_t *m, bool open)
{
    if (m->kind == MEMORY_DEVICE && m->state != MEMORY_FREED)
        mprotect(m->pages, m->span, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void protect_all(bool open)
{
    for (size_t i = 0; i < all_count && open != is_open; i++)
        protect(all[i], open);
    is_open = open;
}

void memory_open(void)
{
    protect_all(true);
}

void memory_close(void)
{
    protect_all(false);
}

NOT_ASAN static size_t damaged(const unsigned char *from, const unsigned char *to)
{
    for (const unsigned char *at = from; at < to; at++)
        if (*at != PATTERN)
            return (size_t)(at - from) + 1;
    return 0;
}

NOT_ASAN static void paint(char *from, char *to)
{
    for (volatile char *at = from; at < to; at++)
        *at = (char)PATTERN;
}

static bool check(const memory_t *m, const char *who)
{
    char *end = m->at + m->bytes, *last = m->pages + m->span, where[200];
    size_t before = damaged((unsigned char *)m->pages, (unsigned char *)m->at),
           behind = damaged((unsigned char *)end, (unsigned char *)last);
    if (!before && !behind)
        return true;
    memory_describe(before ? m->pages + before - 1 : end + behind - 1, where, sizeof where);
    say("%s wrote to %s", who, where);
    paint(m->pages, m->at);
    paint(end, last);
    return false;
}

bool memory_check(const char *who)
{
    bool right = true;
    for (size_t i = 0; i < all_count; i++)
        if (all[i]->kind <= MEMORY_MANAGED && all[i]->state != MEMORY_FREED)
            right &= check(all[i], who);
    return right;
}

/* ---- Allocating --------------------------------------------------------------------------------
 */

static memory_t *add(memory_kind_t kind, CUcontext context, char *at, size_t bytes)
{
    if (all_count == all_room) {
        size_t room = all_room ? 2 * all_room : 64;
        memory_t **more = realloc(all, room * sizeof *more);
        if (!more)
            return NULL;
        all = more;
        all_room = room;
    }
    memory_t *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *m = (memory_t){.kind = kind, .context = context, .at = at, .bytes = bytes, .id = ++last_id};
    all[all_count++] = m;
    driver_counts.allocations++;
    return m;
}

static void forget(memory_t *m)
{
    for (size_t i = 0; i < all_count; i++)
        if (all[i] == m) {
            memmove(all + i, all + i + 1, (--all_count - i) * sizeof *all);
            break;
        }
    free(m);
}

static memory_t *in_the_way(const char *from, const char *to, bool freed)
{
    for (size_t i = 0; i < all_count; i++) {
        memory_t *m = all[i];
        if (m->pages && (m->state == MEMORY_FREED) == freed && m->pages < to &&
            from < m->pages + m->span + RED)
            return m;
    }
    return NULL;
}

/* Behind what was given out last; when the arena is at its end, where something was freed. */
static char *place_for(size_t span)
{
    char *place = next_place;
    bool again = false;
    for (memory_t *m;;) {
        if (place + span > arena + ARENA) {
            if (again)
                return NULL;
            again = true;
            place = arena;
        }
        if (!(m = in_the_way(place, place + span, false)))
            break;
        place = m->pages + m->span + (size_t)sysconf(_SC_PAGESIZE);
    }
    for (memory_t *m; (m = in_the_way(place, place + span, true));)
        forget(m);
    next_place = place + span + (size_t)sysconf(_SC_PAGESIZE);
    return place;
}

static bool have_arena(void)
{
    if (arena)
        return true;
    void *at = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    arena = next_place = at;
    return true;
}

static memory_t *new_pages(memory_kind_t kind, CUcontext context, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), span = (bytes + 2 * RED + page - 1) / page * page;
    if (memory_used(context) + bytes > driver_settings.memory || !have_arena())
        return NULL;
    char *pages = place_for(span);
    if (!pages || mprotect(pages, span, PROT_READ | PROT_WRITE))
        return NULL;
    memory_t *m = add(kind, context, pages + RED, bytes);
    if (!m)
        return NULL;
    m->pages = pages;
    m->span = span;
    __asan_unpoison_memory_region(pages, span);
    paint(pages, m->at);
    memset(m->at, FRESH, bytes);
    paint(m->at + bytes, pages + span);
    __asan_poison_memory_region(pages, RED);
    __asan_poison_memory_region(m->at + bytes, span - RED - bytes);
    driver_counts.live_bytes += bytes;
    protect(m, is_open);
    return m;
}

static memory_t *new_pinned(CUcontext context, size_t bytes)
{
    void *at = NULL;
    if (posix_memalign(&at, (size_t)sysconf(_SC_PAGESIZE), bytes))
        return NULL;
    memory_t *m = add(MEMORY_PINNED, context, at, bytes);
    if (m)
        memset(at, FRESH, bytes);
    else
        free(at);
    return m;
}

memory_t *memory_new(memory_kind_t kind, CUcontext context, size_t bytes)
{
    return kind == MEMORY_PINNED ? new_pinned(context, bytes) : new_pages(kind, context, bytes);
}

memory_t *memory_register(CUcontext context, void *at, size_t bytes)
{
    return add(MEMORY_REGISTERED, context, at, bytes);
}

/* Records of what was freed long ago serve no sentence any more; their pages stay closed. */
static void forget_oldest_freed(void)
{
    size_t freed = 0;
    for (size_t i = 0; i < all_count; i++)
        freed += all[i]->state == MEMORY_FREED;
    for (size_t i = 0; i < all_count && freed > FREED_KEPT; i++)
        if (all[i]->state == MEMORY_FREED) {
            forget(all[i]);
            return;
        }
}

void memory_free(memory_t *m)
{
    if (m->kind > MEMORY_MANAGED) {
        if (m->kind == MEMORY_PINNED)
            free(m->at);
        forget(m);
        return;
    }
    driver_counts.live_bytes -= m->bytes;
    __asan_unpoison_memory_region(m->pages, m->span);
    madvise(m->pages, m->span, MADV_DONTNEED);
    mprotect(m->pages, m->span, PROT_NONE);
    __asan_poison_memory_region(m->pages, m->span);
    m->state = MEMORY_FREED;
    forget_oldest_freed();
}

void memory_free_of(CUcontext context)
{
    for (size_t i = all_count; i--;)
        if (all[i]->context == context && all[i]->state != MEMORY_FREED)
            memory_free(all[i]);
}
