/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking all-reduce, worker threads, the timeline: order, bits, errors, what is left behind.
 */
#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm_internal.h"
#include "comm_peers.h"
#include "gw_world.h"
#include "timeline.h"

enum { WORKS = 12, COUNT = 300 * 1000 };

/* What a world of ranks computes: results of rank r in out[r]. */
typedef struct run {
    bool blocking;
    float *out[8];
} run_t;

static void fill(float *x, size_t count, int rank, int work)
{
    uint64_t state = (uint64_t)rank * 1000 + (uint64_t)work;
    for (size_t i = 0; i < count; i++)
        x[i] = gw_test_normal(&state);
}

static size_t count_of(int work)
{
    static const size_t counts[] = {COUNT, 1, 70001, 0, 513};
    return counts[work % 5];
}

static float *slice(float *all, int work)
{
    return all + (size_t)work * COUNT;
}

/* Some are posted, some block; they are waited for in another order than that of posting. */
static void reduce_many(gw_rank_t *rank)
{
    run_t *run = rank->arg;
    float *out = run->out[rank->rank];
    gw_work_t *work[WORKS] = {NULL};
    for (int i = 0; i < WORKS; i++)
        fill(slice(out, i), count_of(i), rank->rank, i);
    for (int i = 0; i < WORKS; i++) {
        bool here = run->blocking || i % 4 == 3;
        gw_status_t status =
            here ? gw_allreduce(rank->comm, NULL, slice(out, i), count_of(i), GW_F32, GW_SUM)
                 : gw_iallreduce(rank->comm, NULL, slice(out, i), count_of(i), GW_F32, GW_SUM,
                                 &work[i]);
        ck_assert_int_eq(status, GW_OK);
    }
    for (int i = WORKS - 1; i >= 0; i--) {
        bool done = false;
        while (work[i] && i % 2 && !done) {
            ck_assert_int_eq(gw_work_test(&work[i], &done), GW_OK);
            ck_assert(done == (work[i] == NULL));
        }
        ck_assert_int_eq(gw_work_wait(&work[i]), GW_OK);
        ck_assert_ptr_null(work[i]);
    }
}

static void run_world(run_t *run, int ranks, const char *threads, const char *codec,
                      const char *plan, const char *transport)
{
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"},
                               {"GRADWIRE_THREADS", threads},
                               {"GRADWIRE_CODEC", codec},
                               {"GRADWIRE_PLAN", plan},
                               {"GRADWIRE_CHECKSUM", "on"}};
    for (int r = 0; r < ranks; r++)
        run->out[r] = calloc((size_t)WORKS * COUNT, sizeof(float));
    gw_world_t world = {.size = ranks,
                        .transport = transport,
                        .settings = settings,
                        .setting_count = sizeof settings / sizeof *settings,
                        .body = reduce_many,
                        .arg = run};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++)
        ck_assert_msg(world.created[r] == GW_OK, "%s", world.why[r]);
}

static void release(run_t *run, int ranks)
{
    for (int r = 0; r < ranks; r++)
        free(run->out[r]);
}

/* However it is posted and by however many threads it is computed: the same bits everywhere. */
START_TEST(posting_and_threads_change_no_bit)
{
    static const char *const plans[] = {"direct", "gather"}, *const threads[] = {"0", "1", "3"};
    for (int p = 0; p < 2; p++) {
        run_t expected = {.blocking = true};
        run_world(&expected, 3, "0", "q4:round=stochastic", plans[p], "loopback");
        for (int t = 0; t < 3; t++) {
            run_t got = {.blocking = false};
            run_world(&got, 3, threads[t], "q4:round=stochastic", plans[p], "loopback");
            for (int r = 0; r < 3; r++)
                gw_check(memcmp(got.out[r], expected.out[0], (size_t)WORKS * COUNT * 4) == 0,
                         "%s, %s threads: rank %d differs", plans[p], threads[t], r);
            release(&got, 3);
        }
        release(&expected, 3);
    }
}
END_TEST

/* A family like quant that cannot reduce: the sum is added step by step. */
static gw_codec_t stepwise;

static bool is_stepwise(const char *name, gw_coder_t *coder)
{
    return strcmp(name, "stepwise") == 0 && gw_codec_by_id(1)->match("q4", coder);
}

static void stepwise_name(const gw_coder_t *coder, char *out, size_t size)
{
    (void)coder;
    snprintf(out, size, "stepwise");
}

START_TEST(reducing_in_one_task_changes_no_bit)
{
    stepwise = *gw_codec_by_id(1);
    ck_assert_ptr_nonnull(stepwise.reduce);
    stepwise.id = 199;
    stepwise.family = stepwise.names = "stepwise";
    stepwise.match = is_stepwise;
    stepwise.name = stepwise_name;
    stepwise.reduce = NULL;
    ck_assert_int_eq(gw_codec_register(&stepwise), GW_OK);
    run_t one = {.blocking = true}, steps = {.blocking = true};
    run_world(&one, 5, "0", "q4", "direct", "loopback");
    run_world(&steps, 5, "0", "stepwise", "direct", "loopback");
    for (int r = 0; r < 5; r++)
        gw_check(memcmp(one.out[r], steps.out[0], (size_t)WORKS * COUNT * 4) == 0,
                 "rank %d differs", r);
    release(&one, 5);
    release(&steps, 5);
}
END_TEST

/* The caller's own library gets its turns on the caller's thread, whoever drives the calls. */
typedef struct turns {
    pthread_t caller;
    int here, elsewhere;
} turns_t;

static void take_turn(void *arg)
{
    turns_t *turns = arg;
    ++*(pthread_equal(pthread_self(), turns->caller) ? &turns->here : &turns->elsewhere);
}

static void give_turns(gw_rank_t *rank)
{
    turns_t turns = {.caller = pthread_self()};
    rank->comm->engine.idle = take_turn;
    rank->comm->engine.idle_arg = &turns;
    float *x = calloc(COUNT, sizeof *x);
    for (int i = 0; i < 5; i++) {
        gw_work_t *work = NULL;
        if (rank->rank == 0)
            usleep(20000); /* the others wait */
        ck_assert_int_eq(gw_iallreduce(rank->comm, NULL, x, COUNT, GW_F32, GW_SUM, &work), GW_OK);
        ck_assert_int_eq(gw_work_wait(&work), GW_OK);
    }
    ck_assert_int_eq(turns.elsewhere, 0);
    ck_assert(rank->rank == 0 || turns.here > 0);
    free(x);
}

START_TEST(the_idle_hook_stays_on_the_callers_thread)
{
    static const char *const threads[] = {"0", "2"};
    for (int t = 0; t < 2; t++) {
        gw_setting_t settings[] = {{"GRADWIRE_THREADS", threads[t]}};
        gw_world_t world = {.size = 3,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 1,
                            .body = give_turns};
        gw_world_run(&world);
    }
}
END_TEST

static void misuse(gw_rank_t *rank)
{
    float x[64] = {1}, y[64];
    gw_work_t *work = NULL;
    bool done = false;
    ck_assert_int_eq(gw_iallreduce(rank->comm, NULL, NULL, 64, GW_F32, GW_SUM, &work),
                     GW_ERR_INVALID);
    ck_assert_int_eq(gw_iallreduce(rank->comm, x, x + 1, 63, GW_F32, GW_SUM, &work),
                     GW_ERR_INVALID);
    ck_assert_int_eq(gw_iallreduce(rank->comm, x, y, 64, GW_F32, GW_SUM, NULL), GW_ERR_INVALID);
    ck_assert_int_eq(gw_iallreduce(rank->comm, x, y, 64, GW_F64, GW_SUM, &work),
                     GW_ERR_UNSUPPORTED);
    ck_assert_ptr_null(work);
    ck_assert_int_eq(gw_work_wait(&work), GW_OK);
    ck_assert_int_eq(gw_work_test(&work, &done), GW_OK);
    ck_assert(done);
    ck_assert_int_eq(gw_work_wait(NULL), GW_ERR_INVALID);
    ck_assert_int_eq(gw_work_test(&work, NULL), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce(rank->comm, x, y, 64, GW_F32, GW_SUM), GW_OK);
}

START_TEST(wrong_calls_post_nothing)
{
    gw_world_t world = {.size = 2, .transport = "loopback", .body = misuse};
    gw_world_run(&world);
}
END_TEST

/* Rank 1 leaves with its work undone; rank 0 is told, and nothing of it runs on. */
static void leave(gw_rank_t *rank)
{
    enum { N = 1 << 20 };
    float *x = calloc(3 * N, sizeof *x);
    gw_work_t *work[3] = {NULL};
    gw_status_t status = GW_OK;
    int posted = rank->rank == 0 ? 3 : 1;
    for (int i = 0; i < posted && status == GW_OK; i++)
        status = gw_iallreduce(rank->comm, NULL, x + i * N, N, GW_F32, GW_SUM, &work[i]);
    ck_assert(status == GW_OK || rank->rank == 0); /* rank 1 may be gone already */
    for (int i = 0; i < posted && rank->rank == 0 && work[i]; i++) {
        gw_status_t this = gw_work_wait(&work[i]);
        ck_assert(this != GW_OK && (status == GW_OK || this == status)); /* sticky */
        status = this;
    }
    if (rank->rank == 0) {
        ck_assert_int_ne(status, GW_OK);
        ck_assert_int_eq(gw_comm_failed_rank(rank->comm), 1);
        ck_assert_int_eq(gw_iallreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM, &work[0]), status);
    }
    gw_comm_free(rank->comm);
    rank->comm = NULL;
    free(x);
}

static void leave_with(const char *threads)
{
    gw_setting_t settings[] = {
        {"GRADWIRE_THREADS", threads}, {"GRADWIRE_TIMEOUT", "1"}, {"GRADWIRE_LOG", "off"}};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = leave};
    gw_world_run(&world);
}

START_TEST(a_freed_communicator_gives_its_work_up)
{
    for (int i = 0; i < 10; i++) {
        leave_with("0");
        leave_with("2");
    }
}
END_TEST

/* ---- No allocation per call
 * --------------------------------------------------------------------------- */

/* The linker sends every allocation of the program's own objects through here (--wrap). */
static _Thread_local volatile long allocations; /* the compiler knows malloc, and that it counts
                                                   nothing */
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    allocations++;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *block, size_t bytes)
{
    allocations++;
    return __real_realloc(block, bytes);
}

static void count_allocations(gw_rank_t *rank)
{
    static const size_t sizes[] = {COUNT, 70001, 16384};
    static const gw_tensor_t tensors[] = {{"w", 0, 2, {100, 300}},
                                          {"b", 30000, 1, {1000}},
                                          {"v", 31000, 2, {30, 1300}},
                                          {"c", 70000, 1, {1}}};
    float *x = calloc(COUNT, sizeof *x);
    long before = 0;
    if (*(bool *)rank->arg) { /* the call of 70001 elements goes in parts, both of them gathered */
        gw_layout_t *layout;
        ck_assert_int_eq(gw_layout_create(70001, tensors, 4, &layout, NULL, 0), GW_OK);
        ck_assert_int_eq(gw_comm_set_layout(rank->comm, 70001, 0, layout), GW_OK);
        gw_layout_free(layout);
    }
    for (int turn = 0; turn < 8; turn++) {
        if (turn == 4)
            before = allocations; /* residuals, their rhythm and the frames are there now */
        for (int s = 0; s < 3; s++) {
            gw_work_t *work; /* no assertion of Check's here: they allocate */
            gw_status_t status = gw_allreduce(rank->comm, NULL, x, sizes[s], GW_F32, GW_SUM);
            gw_check(status == GW_OK, "blocking: %d", status);
            status = gw_iallreduce(rank->comm, NULL, x, sizes[s], GW_F32, GW_SUM, &work);
            gw_check(status == GW_OK, "posting: %d", status);
            status = gw_work_wait(&work);
            gw_check(status == GW_OK, "waiting: %d", status);
        }
    }
    long in_calls = allocations - before;
    void *volatile one = malloc(1);
    free(one);
    ck_assert_int_eq(allocations - before - in_calls, 1); /* it does count */
    gw_check(in_calls == 0, "%ld allocations in 24 calls", in_calls);
    free(x);
}

START_TEST(calls_allocate_nothing)
{
    static const char *const plans[] = {"direct", "gather"};
    for (int p = 0; p < 4; p++) {
        gw_setting_t settings[] = {{"GRADWIRE_PLAN", plans[p % 2]}, {"GRADWIRE_THREADS", "0"}};
        bool with_layout = p >= 2;
        gw_world_t world = {.size = 3,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 2,
                            .body = count_allocations,
                            .arg = &with_layout};
        gw_world_run(&world);
    }
}
END_TEST

/* ---- The pool
 * ----------------------------------------------------------------------------------------- */

static void add_one(void *arg)
{
    ++*(int *)arg;
}

START_TEST(workers_are_lent_to_one_call_at_a_time)
{
    gw__pool_t *pool = gw__pool_create(2);
    ck_assert_int_eq(gw__pool_started(pool), 0);
    gw__worker_t *a = gw__pool_borrow(pool), *b = gw__pool_borrow(pool);
    ck_assert(a && b && a != b);
    ck_assert_ptr_null(gw__pool_borrow(pool));
    int value = 0;
    for (int i = 0; i < 2000; i++) {
        if (i % 500 == 0)
            usleep(2000); /* it sleeps meanwhile */
        gw__worker_start(a, add_one, &value);
        while (!gw__worker_done(a))
            sched_yield();
        gw_check(value == i + 1, "job %d", i);
    }
    gw__worker_return(b);
    ck_assert_ptr_eq(gw__pool_borrow(pool), b);
    ck_assert_int_eq(gw__pool_started(pool), 2);
    gw__worker_return(a);
    gw__worker_return(b);
    gw__pool_free(pool);
    pool = gw__pool_create(0);
    ck_assert_ptr_null(gw__pool_borrow(pool));
    gw__pool_free(pool);
}
END_TEST

static int threads_of_process(void)
{
    int count = 0;
    usleep(20000); /* one that was joined is listed a moment longer */
    DIR *dir = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void *nothing(void *arg)
{
    return arg;
}

START_TEST(threads_start_late_and_end_with_the_context)
{
    /* ThreadSanitizer makes one of its own beside the first. */
    pthread_t first;
    ck_assert_int_eq(pthread_create(&first, NULL, nothing, NULL), 0);
    pthread_join(first, NULL);
    int before = threads_of_process();
    gw_setting_t settings[] = {{"GRADWIRE_THREADS", "3"}};
    gw_context_t *context;
    ck_assert_int_eq(gw_context_create(settings, 1, &context, NULL, 0), GW_OK);
    gw__pool_t *pool = gw__context_pool(context);
    ck_assert_int_eq(threads_of_process(), before);
    gw__worker_t *worker = gw__pool_borrow(pool);
    ck_assert_int_eq(threads_of_process(), before + 1);
    gw__worker_return(worker);
    /* A child has no threads to wait for. */
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        gw__pool_free(pool);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gw_context_free(context);
    ck_assert_int_eq(threads_of_process(), before);
}
END_TEST

/* ---- The chunk
 * ---------------------------------------------------------------------------------------- */

START_TEST(chunks_follow_the_pace)
{
    gw__pace_t slow = {1e-10, 1e-10, 8e-9, 15e-6}, fast = {1e-10, 1e-10, 2e-10, 3e-6};
    size_t mega = 1 << 20, small = gw__pace_chunk(&slow, GW_PLAN_GATHER, 2, mega / 4, mega / 8),
           large = gw__pace_chunk(&slow, GW_PLAN_GATHER, 2, 64 * mega, 32 * mega);
    ck_assert_uint_lt(small, large);
    for (int size = 2; size <= 64; size *= 2)
        for (size_t count = 1; count <= 1024 * mega; count *= 4)
            for (gw_plan_kind_t kind = GW_PLAN_DIRECT; kind <= GW_PLAN_TREE; kind++) {
                size_t a = gw__pace_chunk(&slow, kind, size, count, count / 2 + 48);
                size_t b = gw__pace_chunk(&fast, kind, size, count, count / 2 + 48);
                gw_check(a >= 16384 && a <= 262144 && b >= 16384 && b <= 262144,
                         "chunks of %zu and %zu", a, b);
            }
    gw__hello_t *all = calloc(3, sizeof *all);
    gw__pace_t pace;
    int local = -1;
    memset(all, 0xFF, 3 * sizeof *all); /* as a hostile peer would */
    all[1].facts.node_id = 1;
    gw__pace_of(all, 3, 0, false, &pace, &local);
    ck_assert_int_eq(local, 2);
    ck_assert(pace.wire_s > 0 && pace.encode_s > 0 && pace.decode_s > 0);
    ck_assert_uint_ge(gw__pace_chunk(&pace, GW_PLAN_DIRECT, 3, 1000, 500), 16384);
    free(all);
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("q4", &coder, NULL, 0), GW_OK);
    gw__speed_t speed = gw__speed_measure(&coder);
    ck_assert_uint_gt(speed.encode_ps, 0);
    ck_assert_uint_gt(speed.decode_ps, 0);
}
END_TEST

/* ---- The timeline
 * ------------------------------------------------------------------------------------- */

START_TEST(a_timeline_shows_what_ran_under_the_wire)
{
    gw__timeline_t *t = gw__timeline_new(5);
    gw__timeline_begin(t, 1000, false);
    /* Sent at 2000, at once copied away; the peer's frame of that round comes at 9000. */
    gw__event_t events[] = {
        {GW__TASK_ENCODE, GW__PUSH, 0, -1, 0, 1000, 2000},
        {GW__TASK_SEND, GW__PUSH, 0, 1, 0, 2000, 2100},
        {GW__TASK_RECV, GW__PUSH, 0, 1, 0, 1000, 9000},
        {GW__TASK_ENCODE, GW__PUSH, 1, -1, 1, 2000, 5000},
        {GW__TASK_DECODE_ADD, GW__PUSH, 0, 1, 0, 9000, 9500},
        {GW__TASK_SEND, GW__PUSH, 0, 1, 1, 9500, 9600},
    };
    for (int i = 0; i < 6; i++)
        gw__timeline_add(t, &events[i]);
    t->end_ns = 11000;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    gw__timeline_print(t, 20, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "encode     0 |000.................|\n"));
    ck_assert_ptr_nonnull(strstr(text, "encode     1 |..1111111...........|\n"));
    ck_assert_ptr_nonnull(strstr(text, "recv of    1 |................0...|\n"));
    ck_assert_ptr_nonnull(strstr(text, "encode: 0.004 ms, 75 % of it while"));
    ck_assert_ptr_nonnull(strstr(text, "decode: 0.001 ms, 0 % of it while"));
    ck_assert_ptr_nonnull(strstr(text, "1 later events had no room"));
    free(text);
    free(t);
}
END_TEST

static void draw(gw_rank_t *rank)
{
    float *x = calloc(COUNT, sizeof *x);
    ck_assert_int_eq(gw_comm_timeline(rank->comm, 4096), GW_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, COUNT, GW_F32, GW_SUM), GW_OK);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    gw_comm_timeline_print(rank->comm, 60, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "\nencode     0 |"));
    ck_assert_ptr_nonnull(strstr(text, "\nsend to "));
    ck_assert_ptr_nonnull(strstr(text, "\nrecv of "));
    ck_assert_ptr_nonnull(strstr(text, "\ndecode     0 |"));
    free(text);
    ck_assert_int_eq(gw_comm_timeline(rank->comm, 0), GW_OK);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, COUNT, GW_F32, GW_SUM), GW_OK);
    free(x);
}

START_TEST(a_call_can_be_drawn)
{
    gw_setting_t settings[] = {{"GRADWIRE_THREADS", "0"}};
    gw_world_t world = {
        .size = 3, .transport = "loopback", .settings = settings, .setting_count = 1, .body = draw};
    gw_world_run(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("work");
    TCase *tc = tcase_create("work");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, posting_and_threads_change_no_bit);
    tcase_add_test(tc, reducing_in_one_task_changes_no_bit);
    tcase_add_test(tc, the_idle_hook_stays_on_the_callers_thread);
    tcase_add_test(tc, wrong_calls_post_nothing);
    tcase_add_test(tc, a_freed_communicator_gives_its_work_up);
    tcase_add_test(tc, calls_allocate_nothing);
    tcase_add_test(tc, workers_are_lent_to_one_call_at_a_time);
    tcase_add_test(tc, threads_start_late_and_end_with_the_context);
    tcase_add_test(tc, chunks_follow_the_pace);
    tcase_add_test(tc, a_timeline_shows_what_ran_under_the_wire);
    tcase_add_test(tc, a_call_can_be_drawn);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
