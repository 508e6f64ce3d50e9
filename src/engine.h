/* SPDX-License-Identifier: Apache-2.0 */
/* The host engine: runs the tasks of a plan over one link. Knows no codec and no transport by name.
 */
#ifndef GW_ENGINE_H
#define GW_ENGINE_H

#include <gradwire/codec.h>
#include <gradwire/comm.h>
#include <gradwire/transport.h>

#include "plan.h"
#include "pool.h"
#include "timeline.h"

enum { GW__WINDOW = 6 }; /* rounds under way at once, at most */
enum { GW__HANDS = 16 }; /* workers of one call, at most */

/* What computes on a GPU: engine_gpu.h. */
typedef struct gw__gpu gw__gpu_t;

/* One call, filled by the communicator. */
typedef struct gw__engine_call {
    const gw_coder_t *coder;
    gw__plan_t plan;
    const void *send; /* own elements; equal to recv when in place */
    void *recv;
    gw__gpu_t *gpu; /* not NULL: send, recv and residual are in device memory, and tasks run there
                     */
    gw_dtype_t dtype;
    float scale;         /* of the sum before it is encoded or stored; 1: none */
    float *residual;     /* plan.count floats or NULL. The own shard of a direct call: of the pull
                            stage; all else: of the push stage. */
    void *half_residual; /* the same in bfloat16, instead; NULL: none */
    float *momentum;     /* plan.count floats or NULL: of the rank's own elements */
    uint64_t number;     /* of the call on its communicator */
    uint64_t key; /* of all randomness of this call; rank and stage are mixed in by the engine */
} gw__engine_call_t;

/* What a call cost. Times in microseconds: encode and decode of computing, added over all threads;
 * wait until every peer had entered the call; wire for the rest in which the thread that runs the
 * engine did not compute. Without workers they add up to the whole call. */
typedef struct gw__engine_figures {
    uint64_t wire_bytes, encode_us, decode_us, wait_us, wire_us, time_us, poisoned;
} gw__engine_figures_t;

/* A computing task that runs on the GPU. */
typedef struct gw__gpu_task {
    uint32_t words[3]; /* a gw_cuda_result_t, which kernels add to */
    uint32_t mark;     /* the task is done when the stream has been so often where it counts */
} gw__gpu_task_t;

/* How far a task is. */
enum { GW__TASK_WAITING, GW__TASK_RUNNING, GW__TASK_DONE };

/* One round under way. */
typedef struct gw__round {
    uint32_t number, tasks, open; /* open: tasks before it are done */
    uint32_t done;
    gw__task_t *task;
    uint8_t *state;
    gw_request_t *request;
    int64_t *began_ns; /* of messages, when there is a timeline */
    uint8_t *frames;   /* `frame_stride` bytes each; of calls on device memory: pinned, and known to
                          the device */
    size_t *frame_length;
    gw__gpu_task_t *on_gpu;  /* per task; NULL: none runs there */
    float *sum;              /* one per channel. NULL: the plan adds without it */
    const uint8_t **payload; /* of a reduction, likewise NULL without one */
    size_t *payload_length;
} gw__round_t;

/* What a computing task came to. */
typedef struct gw__result {
    gw_status_t status;
    int peer; /* status is an error: whose frame is at fault; -1: nobody's */
    size_t poisoned;
    int64_t begin_ns, end_ns;
} gw__result_t;

/* A borrowed worker and the task that it has. */
typedef struct gw__hand {
    struct gw__engine *engine;
    gw__worker_t *worker;
    gw__round_t *round;
    uint32_t task; /* of the round */
    bool busy;
    gw__result_t outcome;
} gw__hand_t;

/* What a rank that failed tells the others: why, and whom it blames (-1: nobody, or its own self).
 */
typedef struct gw__notice {
    int32_t status, blamed;
    uint32_t check; /* CRC32C of the two: a damaged notice must not accuse anybody */
} gw__notice_t;

/* The end of a call with one peer. */
typedef struct gw__closing {
    gw_request_t send, recv;
    gw_request_t greeting, greeted; /* sent; received. Of plans that relay */
    bool takes_part, told, heard;   /* in this call; closing message sent; theirs received */
    bool noticed;                   /* the message sent was a notice */
    bool greets, hello, came;       /* they greet each other; greeting sent; theirs taken in */
    gw__notice_t in, out;
} gw__closing_t;

typedef struct gw__engine {
    gw_context_t *context;
    const gw_transport_t *transport;
    gw_link_t *link;
    int rank, size;
    double timeout;          /* seconds */
    bool checksum;           /* on every frame sent */
    void (*idle)(void *arg); /* see gw_comm_params_t; NULL: none */
    void *idle_arg;
    bool elsewhere;   /* a worker runs the calls: the hook is for the caller's thread only */
    gw__pool_t *pool; /* NULL: the thread that runs the engine does everything */
    int hands_max;    /* workers to borrow for a call */
    gw_coder_t raw;   /* for elements that are only copied, converted and added */

    /* Working memory: grows to the largest call, then stays. */
    void *memory;
    size_t memory_bytes;
    size_t memory_limit; /* fewer rounds at once rather than more bytes than this */
    uint32_t window;     /* rounds under way at once in this call; ranks may differ */
    size_t frame_capacity; /* bytes that a frame may have */
    size_t frame_stride;   /* from one frame of a round to the next */
    gw__round_t rounds[GW__WINDOW];

    /* The call under way. */
    const gw__engine_call_t *call;
    gw_status_t status; /* GW_IN_PROGRESS while it runs */
    gw__hand_t hand[GW__HANDS];
    int hands;
    gw__round_t *kept; /* round of the task that this thread does at the end of the pass, or NULL */
    uint32_t kept_task;
    int idle_steps, steps; /* without an event; since the last look */
    gw__engine_figures_t figures;
    uint32_t next_round, done_rounds;
    gw__closing_t *closing;     /* per rank */
    int open;                   /* peers whose closing is not over */
    bool *arrived, *expected;   /* peers that have sent something in this call; peers that will */
    int missing;                /* peers expected and not arrived */
    int64_t *heard;             /* when a message of each peer came last */
    int64_t started, last_look; /* monotonic nanoseconds */
    int64_t
        silence_ns; /* spent listening since the last event; not while this process stood still */
    int64_t standstill_ns;                 /* the longest time between two looks */
    int64_t encode_ns, decode_ns, wait_ns; /* spent so far */
    int64_t own_ns;                        /* of these, computing by the thread itself */
    bool told_late, greeted;
    int64_t next_reach;       /* when to ask again whether the hosts of late peers answer */
    gw__timeline_t *timeline; /* takes down what happens when; NULL: nobody wants to know */

    /* The last failure. */
    int failed_rank;
    char error[256];
} gw__engine_t;

/* GW_ERR_NO_MEMORY. Before the first call, attach gives it the link, which stays the caller's. */
gw_status_t gw__engine_init(gw__engine_t *engine, gw_context_t *context, int rank, int size);
void gw__engine_attach(gw__engine_t *engine, const gw_transport_t *transport, gw_link_t *link);
void gw__engine_free(gw__engine_t *engine);

/*
 * A call: begin it, then step until the status is no longer GW_IN_PROGRESS; `call` and the buffers
 * stay in place until then. begin and step do not wait. After an error no request is in progress
 * and no worker busy any more, `error` and `failed_rank` tell what happened, and recv is undefined.
 * The figures of a call that has ended are in `figures`.
 *
 * By one thread at a time. rest() is for a caller that has nothing else to do between two steps: it
 * yields or sleeps until there may be something to do, for a millisecond at most.
 */
void gw__engine_begin(gw__engine_t *engine, const gw__engine_call_t *call);
gw_status_t gw__engine_step(gw__engine_t *engine);
void gw__engine_rest(gw__engine_t *engine);

/* Ends a call that is under way with GW_ERR_CANCELED; the peers are told. */
void gw__engine_abandon(gw__engine_t *engine);

/* Ends a call that has just begun, because of this rank; the peers are told. */
void gw__engine_give_up(gw__engine_t *engine, gw_status_t status, const char *why);

/* Notes the first failure of a call: its sentence and the rank it is about (-1: none). */
gw_status_t gw__engine_fail(gw__engine_t *engine, gw_status_t status, int peer, const char *format,
                            ...) GW_PRINTF(4, 5);

/* Gives the caller's own library a turn; to be called whenever the engine has nothing to do. */
void gw__engine_idle(const gw__engine_t *engine);

/* Something came from `peer`: it has entered the call, and is not silent. */
void gw__engine_heard(gw__engine_t *engine, int peer);

/* A message tag: call, message of the call, stage. Messages are numbered round by round, channel by
 * channel. */
uint64_t gw__engine_tag(const gw__engine_call_t *call, uint32_t message, gw__stage_t stage);

/* Executes one computing task (everything but SEND and RECV) of a round. Changes nothing but the
 * task's outputs and `out`: several threads may do so at once, for different tasks. */
void gw__engine_compute(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                        gw__result_t *out);

/* Computing by other threads: a call borrows workers at its beginning when it is large enough;
 * offer() gives a task to one that is free, or returns false; collect() hands a done one to
 * gw__engine_computed, and returns whether there was any; dismiss() waits for all and returns them.
 */
void gw__hands_borrow(gw__engine_t *engine);
bool gw__hands_offer(gw__engine_t *engine, gw__round_t *round, uint32_t task);
bool gw__hands_collect(gw__engine_t *engine, gw_status_t *status);
bool gw__hands_busy(const gw__engine_t *engine);
void gw__hands_dismiss(gw__engine_t *engine);

/* Takes in what a computing task came to; `lane` 0 is the engine's own thread. */
gw_status_t gw__engine_computed(gw__engine_t *engine, gw__round_t *round, uint32_t task, int lane,
                                const gw__result_t *outcome);

/* The peer to blame for silence, or -1. */
int gw__engine_silent_peer(gw__engine_t *engine);

/* Judges how long nothing has come. GW_OK, or the error of the peer that is to blame. */
gw_status_t gw__engine_judge_silence(gw__engine_t *engine);

uint8_t *gw__engine_frame(const gw__engine_t *engine, const gw__round_t *round,
                          const gw__task_t *task);

/* Seconds for which this process was stopped in the call; 0 when there is no sign of that. */
double gw__engine_standstill(const gw__engine_t *engine);

/* A round under way, by number. */
gw__round_t *gw__engine_round(gw__engine_t *engine, uint32_t k);

/* Lays out the working memory for a call. */
gw_status_t gw__engine_reserve(gw__engine_t *engine, const gw__engine_call_t *call);

/* Bytes of pinned and of device memory that a call on device memory wants at best: it can do with
 * those of one round. A function of its arguments. */
typedef struct gw__engine_room {
    size_t pinned, device;
} gw__engine_room_t;
gw__engine_room_t gw__engine_room(const gw__engine_t *engine, const gw__engine_call_t *call);

/* Where the residual of a task's elements lies in call->half_residual. */
static inline void *gw__engine_half(const gw__engine_call_t *call, const gw__task_t *task)
{
    return (uint8_t *)call->half_residual + 2 * task->first;
}

/* Of the randomness of one encoding: ranks and stages never share it. */
uint64_t gw__engine_key(const gw__engine_t *engine, const gw__task_t *task);

/*
 * How a call ends. A transport may call a message done while its last bytes still need this rank to
 * leave, so a rank stays until every peer has said that it has everything. The receives for that
 * stand from the beginning: a peer that fails says so in the same message, and nobody waits for it
 * or takes a result that it does not have.
 *
 * begin posts the receives. greet, where frames come through others, tells all once that this rank
 * has entered the call: the first time that it has nothing else to do, and before it ends.
 * tell, once all rounds are done, sends the closing messages. step takes
 * in what came; *moved tells whether anything did. blame, when silence has lasted too long, finds
 * out whose it is. heed, when the transport reports that a peer is gone, looks for a notice that
 * tells why; GW_OK when there is none. abort, after a failure, tells the others with `status` and
 * ends all requests.
 */
void gw__closing_begin(gw__engine_t *engine);
void gw__closing_greet(gw__engine_t *engine);
void gw__closing_tell(gw__engine_t *engine);
gw_status_t gw__closing_step(gw__engine_t *engine, bool *moved);
gw_status_t gw__closing_heed(gw__engine_t *engine, int peer);
gw_status_t gw__closing_blame(gw__engine_t *engine, int suspect, double silence);
void gw__closing_abort(gw__engine_t *engine, gw_status_t status);

#endif
