/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the driver's double share. One lock guards all of it. */
#ifndef DRIVER_DOUBLE_H
#define DRIVER_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gw_double.h"
#include "gw_driver.h"

enum { DEVICES_MOST = 8, NUMBER = 256 };

/* ---- Calls (driver_calls.c) --------------------------------------------------------------------
 */

typedef struct driver_settings {
    gw_driver_setting_t of;
    int devices;
    size_t memory;
    bool memops;
    char ignored[64]; /* a call's name; and here: */
    char fail[64];
    int fail_at;
    CUresult fail_with;
} driver_settings_t;

extern driver_settings_t driver_settings;
extern gw_driver_counts_t driver_counts;
extern pthread_mutex_t driver_lock;
extern __thread bool driver_in_host_function;

/*
 * Every call is enter(), then leave() with the result. A result other than 0 of enter() goes to the
 * caller at once, without leave(). Whoever needs no context passes NULL. The lock is held between.
 */
CUresult enter(const char *call, CUcontext *context);

/* Whether GW_DOUBLE_IGNORE names it. */
bool is_ignored(const char *call);
CUresult leave(CUresult result);
/* An error of this call that says why: gives `result` back. */
CUresult refuse(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A sentence for whoever reads the test's output. Any state of the lock. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The name of the call that this thread is in. */
const char *call_name(void);
uint64_t draw(void); /* at random, by the seed */
int64_t clock_ns(void);
/* Called once by cuInit: false, no memory or no thread. */
bool driver_start(void);
/* At exit: nothing new begins, and what runs comes to its end. */
void driver_stop(void);

/* ---- Contexts (driver_contexts.c) --------------------------------------------------------------
 */

struct CUctx_st {
    CUdevice device;
    unsigned retained;
    CUresult broken; /* by a kernel: every later call gives it */
    CUstream streams, legacy;
};

CUcontext context_current(void);
CUcontext context_of(CUdevice device);

/* ---- Memory (driver_memory.c) ------------------------------------------------------------------
 */

typedef enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_PINNED,
    MEMORY_REGISTERED
} memory_kind_t;
/* Stream-ordered memory is EARLY until its stream comes to the allocation. */
typedef enum memory_state { MEMORY_LIVE, MEMORY_EARLY, MEMORY_FREED } memory_state_t;

typedef struct memory {
    memory_kind_t kind;
    memory_state_t state;
    char *at;
    size_t bytes;
    char *pages; /* with the red zones; of devices and managed */
    size_t span;
    CUcontext context;
    uint64_t id;
    bool ordered;
} memory_t;

/* NULL: no room. Device memory is filled with 0xFF. */
memory_t *memory_new(memory_kind_t kind, CUcontext context, size_t bytes);
memory_t *memory_register(CUcontext context, void *at, size_t bytes);
/* The addresses are not used again soon. */
void memory_free(memory_t *memory);
void memory_free_of(CUcontext context);
/* Whose bytes (or whose end) the address is; NULL: none. Freed memory only when nothing else is
 * there. */
memory_t *memory_find(const void *at);
memory_t *memory_at_start(const void *at);
/* Whether some of these bytes are the driver's. */
bool memory_overlaps(const void *at, size_t bytes);
size_t memory_used(CUcontext context);
/* While it is open, this process may touch device memory; opening twice is opening once. */
void memory_open(void);
void memory_close(void);
/* Whether red zones are as they were; a damaged one is put in words, once. */
bool memory_check(const char *who);
/* Where the address lies with respect to what was allocated, as the end of a sentence. */
void memory_describe(const void *at, char *text, size_t size);
bool memory_is_mapped(const void *at);
/* Whether the address is the arena's, used or not. */
bool memory_is_ours(const void *at);
/* From now on a fault at an address of the arena gets a sentence before the process ends
 * (driver_faults.c). */
void faults_watch(void);

/* ---- Streams and their work (driver_streams.c, driver_executor.c) ------------------------------
 */

/* A point in a stream: what events record. */
typedef struct mark {
    unsigned refs;
    bool done;
    int64_t at; /* nanoseconds */
    uint64_t seq;
    CUstream stream; /* while it is not done */
    uint64_t capture;
} mark_t;

typedef enum work_kind {
    WORK_COPY,
    WORK_SET,
    WORK_KERNEL,
    WORK_HOST,
    WORK_RECORD,
    WORK_WAIT_MARK,
    WORK_WAIT_VALUE,
    WORK_WRITE_VALUE,
    WORK_ALLOCATE,
    WORK_FREE,
} work_kind_t;

typedef struct work {
    struct work *next, *next_host;
    work_kind_t kind;
    CUstream stream;
    uint64_t seq; /* one order of all work of the process, as it was submitted */
    int64_t born;
    char *to;
    const char *from;
    size_t bytes, unit; /* of a value: 1, 4 or 8 */
    uint64_t value;
    unsigned flags;
    mark_t *mark;
    CUhostFn fn;
    void *argument;
    const gw_double_kernel_t *kernel;
    unsigned grid, block;
    size_t shared;
    void **args; /* copies; they lie behind */
    void *owned; /* freed with it */
    bool warned;
} work_t;

struct CUstream_st {
    CUstream next;
    CUcontext context;
    unsigned flags;
    int priority;
    bool legacy, destroyed, busy; /* busy: its head is under way */
    pthread_t owner;              /* of a per-thread stream */
    bool per_thread;
    work_t *head, *tail;
    uint64_t wanted; /* somebody waits for all work up to this number */
    unsigned waiters;
    uint64_t capture; /* 0: none */
};

work_t *work_new(work_kind_t kind);
void work_free(work_t *work);
/* Takes the work. In a capture it is only counted. */
CUresult submit(CUcontext context, CUstream handle, work_t *work);
/* The stream that a handle means; NULL: none of this context. */
CUstream stream_of(CUcontext context, CUstream handle);
/* enter() for calls about one stream. */
CUresult enter_of_stream(const char *call, CUstream handle, CUstream *stream);
bool stream_is_done(CUstream stream, uint64_t seq);
/* Lets the lock go until the stream has done all work up to seq. */
void stream_wait(CUstream stream, uint64_t seq);
void stream_wait_all(CUcontext context);
void stream_want(CUstream stream, uint64_t seq);
void stream_free_if_done(CUstream stream);
uint64_t stream_last(CUstream stream);
bool stream_waits_for_legacy(CUstream stream);
void mark_drop(mark_t *mark);

bool executor_start(void);
void executor_wake(void);
/* Lets the lock go until something has ended. */
void executor_await(void);
/* The work of a stream's head has ended. */
void work_end(work_t *work);
/* Takes all further work of the context out of the world. */
void context_break(CUcontext context, CUresult result);

/* ---- What executes one piece of work; the lock is let go meanwhile -----------------------------
 */

/* Where bytes lie that a call names; WRONG: nowhere, not all of them, or freed. */
typedef enum place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGEABLE, PLACE_WRONG } place_t;

place_t bytes_place(const void *at, size_t bytes);
/* Says so; gives CUDA_ERROR_INVALID_VALUE. */
CUresult wrong_place(const void *at, size_t bytes);
/* Of a copy: which sides are the driver's memory, and have to be still when it runs. */
enum { TO_DRIVER = 1, FROM_DRIVER = 2 };

/* Whether memory of the driver is not, or no longer, there when work comes to it. */
bool is_lost(const char *at, size_t bytes);
void lose(const work_t *work, const char *at);

void copy_run(work_t *work);
void value_write(const work_t *work);
void kernel_run(work_t *work);
bool value_is_there(const work_t *work);
/* Gives executor_start() and host_start() their threads. */
bool thread_start(void *(*run)(void *), pthread_t *thread);
bool host_start(void);
void host_run(work_t *work); /* ends by itself */
/* What runs now, for those who wait too long and for faults; NULL: nothing. */
extern const char *volatile executor_runs;
extern pthread_t executor_thread;
extern int64_t executor_since;

/* ---- Kernels (driver_modules.c, driver_launches.c) ---------------------------------------------
 */

struct CUfunc_st {
    CUfunction next;
    const gw_double_kernel_t *kernel;
    int shared_most; /* bytes that a launch may ask for */
};

struct CUmod_st {
    CUmodule next;
    CUcontext context;
    CUfunction functions;
    CUlibrary library; /* NULL: loaded by itself */
};

/* NULL: no function of any module. */
CUmodule module_of(CUfunction function);

/* ---- Captures (driver_capture.c) ---------------------------------------------------------------
 */

/* Whether work may go to the stream: 0 with `captured` set when a capture has taken it. */
CUresult capture_submit(CUstream stream, work_t *work, bool *captured);
/* Calls that no capture may see in this thread. */
CUresult capture_forbids(void);
CUresult capture_forbids_stream(CUstream stream);
CUresult capture_forbids_event(const mark_t *mark);
void capture_leave(CUstream stream);

#endif
