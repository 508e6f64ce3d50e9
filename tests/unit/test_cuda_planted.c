/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs that only the executor of CUDA blocks can show are planted in the library's own kernels, one
 * at a time: the comparison with ref must see each. */
#include "gw_test.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bytes.h"
#include "cuda_queue.h"
#include "cuda_table.h"
#include "device_ops.h"
#include "kernel_check.h"
#include "reduce.h"

#if !defined(GW_NO_DOUBLE)
#include "gw_double.h"

static const char *const files[] = {"sum",  "cast",  "sign",    "quant",  "fp8",    "fp4",
                                    "topk", "block", "natural", "rotate", "randomk"};
enum { FILES = sizeof files / sizeof *files, BARRIERS_MOST = 200, CASES = 60 };

/* Few warps, so that each does many buckets; then many of them. */
static const unsigned shapes[][2] = {{32, 1}, {64, 1}, {128, 7}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- Whether anyone sees it ---------------------------------------------------------------------
 */

enum { MOST = 3000, SPECS = 3 };

/* Families whose kernels have not the signatures of the CPU's: the codec is the judge. */
static const struct {
    const char *family, *specs[SPECS];
} judged[] = {
    {"topk",
     {"topk:block=64,ratio=0.1", "topk:block=1024,ratio=0.2",
      "topk:block=2048,ratio=0.25,values=fp16"}},
    {"block",
     {"block:size=16,domain=2048,ef=on", "topblock:size=16,domain=1024,ratio=0.3",
      "topblock:size=512,domain=2048,ratio=0.5"}},
    {"natural", {"natural", "nuqsgd:bits=4", "ternary"}},
    {"rotate", {"q3r", "q8r", "q2r:block=1024"}},
    {"randomk",
     {"randomk:block=64,ratio=0.1", "randomk:block=1024,ratio=0.2",
      "randomk:block=256,ratio=0.5,values=wire"}},
};
enum { JUDGED = sizeof judged / sizeof *judged };

/* Few different magnitudes, so that many are equal, and runs of zeros; some that are not finite, or
 * more than fit. */
static void fill(float *x, size_t count, size_t number)
{
    uint64_t seed = number + 1;
    for (size_t i = 0; i < count; i++)
        x[i] = ldexpf((float)(gw_test_random(&seed) % 7) - 3,
                      (int)(gw_test_random(&seed) % 4 - number % 4 * 3));
    for (size_t i = 0; number % 2 && i < count; i++)
        x[i] = i / 48 % 3 ? 0.0f : x[i];
    if (number % 3 == 1)
        x[count / 2] = INFINITY;
    for (size_t i = 0; number % 5 == 4 && i < count; i += 2)
        x[i] = NAN;
}

/* What a payload decodes to, and what that adds. */
static bool decodes_right(gw_cuda_queue_t *queue, const gw_coder_t *coder, gw_decode_t io,
                          float out[2][MOST], uint8_t *payload)
{
    gw_cuda_result_t result = {0};
    bool right = gw__device_index(coder, GW_F32, io.count, payload, io.length) == GW_OK;
    for (int mode = 0; mode < 2 && right; mode++) {
        io.mode = mode ? GW_DECODE_STORE : GW_DECODE_ADD;
        io.dst = out[0];
        right = coder->family->decode(coder, &io) == GW_OK;
        io.dst = out[1];
        right = right && gw__device_decode(queue, coder, &io, NULL, &result) == GW_OK &&
                !memcmp(out[0], out[1], 4 * io.count) && !result.invalid;
    }
    return right;
}

/* A payload of topk that is not valid leaves its block alone. */
static bool refuses_right(gw_cuda_queue_t *queue, const gw_coder_t *coder, gw_decode_t io,
                          float out[2][MOST], uint8_t *payload)
{
    gw_cuda_result_t result = {0};
    if (strcmp(coder->family->family, "topk"))
        return true;
    gw__store32(payload, 0x7FFFFFFF);
    io.dst = out[1];
    return gw__device_decode(queue, coder, &io, NULL, &result) == GW_OK && result.invalid == 1 &&
           !memcmp(out[0], out[1], 4 * io.count);
}

/* The sum of three payloads and own elements, encoded again. */
static bool reduces_right(gw_cuda_queue_t *queue, const gw_coder_t *coder, const float *own,
                          size_t count, size_t number)
{
    static float x[MOST], kept[2][MOST], wide[8 * MOST];
    static uint8_t payload[3][8 * MOST], out[2][8 * MOST];
    const uint8_t *list[] = {payload[0], payload[1], payload[2]};
    size_t lengths[3], length;
    gw_cuda_result_t result = {0};
    for (size_t k = 0; k < 3; k++) {
        gw_encode_t one = {.src = x, .src_dtype = GW_F32, .wire_dtype = GW_F32, .count = count};
        fill(x, count, number % 3 == 1 ? 3 * k : number + k);
        coder->family->encode(coder, &one, payload[k], sizeof payload[k], &lengths[k]);
    }
    for (size_t i = 0; i < count; i++)
        kept[0][i] = kept[1][i] = (float)(i % 11) / 4;
    gw_reduce_t in = {.own = own,
                      .own_dtype = GW_F32,
                      .own_at = number % 4,
                      .payload = list,
                      .length = lengths,
                      .payloads = 3,
                      .scale = 0.5f,
                      .wire_dtype = GW_F32,
                      .residual = kept[0],
                      .count = count};
    if (!gw__device_is_fixed(coder))
        return true;
    if (coder->family->reduce)
        coder->family->reduce(coder, &in, out[0], sizeof out[0], &length);
    else
        gw__reduce_slices(coder, &in, wide, out[0], sizeof out[0], &length);
    in.residual = kept[1];
    return gw__device_reduce(queue, coder, &in, wide, out[1], &result) == GW_OK &&
           !memcmp(out[0], out[1], length) && !memcmp(kept[0], kept[1], 4 * count) &&
           result.poisoned == in.poisoned && !result.invalid;
}

static bool codec_is_right(gw_cuda_queue_t *queue, const char *spec, size_t number)
{
    static float x[MOST], kept[2][MOST], out[2][MOST];
    static uint8_t payload[2][8 * MOST], scratch[8 * MOST];
    size_t count = MOST - number * 37, length;
    gw_cuda_result_t result = {0};
    gw_coder_t coder;
    if (gw_coder_parse(spec, &coder, NULL, 0) != GW_OK)
        return false;
    fill(x, count, number);
    for (size_t i = 0; i < count; i++)
        kept[0][i] = kept[1][i] = out[0][i] = out[1][i] = (float)(i / 32 % 2 * i % 11) / 4;
    gw_encode_t in = {.src = x, .src_dtype = GW_F32, .wire_dtype = GW_F32, .count = count};
    in.residual = kept[0];
    coder.family->encode(&coder, &in, payload[0], sizeof payload[0], &length);
    in.residual = kept[1];
    queue->scratch = scratch;
    memset(payload[1], 0x5A, sizeof payload[1]);
    memset(scratch, 0x5A, sizeof scratch);
    bool right = gw__device_encode(queue, &coder, &in, NULL, payload[1], &result) == GW_OK &&
                 !memcmp(payload[0], payload[1], length) && !memcmp(kept[0], kept[1], 4 * count) &&
                 result.poisoned == in.poisoned &&
                 (gw__device_is_fixed(&coder) || result.length == length);
    gw_decode_t io = {.payload = payload[0],
                      .length = length,
                      .wire_dtype = GW_F32,
                      .count = count,
                      .dst_dtype = GW_F32};
    return right && decodes_right(queue, &coder, io, out, payload[0]) &&
           reduces_right(queue, &coder, x, count, number) &&
           refuses_right(queue, &coder, io, out, payload[0]);
}

static bool all_codecs_are_right(gw_cuda_queue_t *queue, const char *const specs[SPECS])
{
    static const unsigned threads[][2] = {{32, 1}, {96, 1}, {256, 2}, {1024, 1}};
    bool right = true;
    for (size_t i = 0; i < 60 && right; i++) {
        queue->block = threads[i % 4][0];
        queue->blocks = threads[i % 4][1];
        right = codec_is_right(queue, specs[i / 4 % SPECS], i / 4);
    }
    return right;
}

static bool offsets_are_right(gw_cuda_queue_t *queue)
{
    static uint32_t words[MOST];
    uint32_t total = 7, sum = 0;
    bool right = true;
    for (size_t number = 0; number < 12 && right; number++) {
        size_t count = MOST - 251 * number;
        for (size_t i = 0; i < count; i++)
            words[i] = (uint32_t)(i * number % 1000);
        queue->block = 32u << number % 6;
        right = gw__cuda_sum.offsets(queue, words, count, &total) == GW_OK;
        sum = 0;
        for (size_t i = 0; i < count; i++) {
            right &= words[i] == sum;
            sum += (uint32_t)(i * number % 1000);
        }
        right &= total == sum;
    }
    return right;
}

/* Every body of a family, until one case fails. */
static bool family_is_right(const char *family, gw_cuda_queue_t *queue)
{
    bool right = strcmp(family, "sum") || offsets_are_right(queue);
    size_t length = strlen(family);
    for (size_t i = 0; i < JUDGED; i++)
        if (!strcmp(family, judged[i].family))
            return all_codecs_are_right(queue, judged[i].specs);
    for (const kernel_body_t *body = kernel_bodies; body->name && right; body++) {
        bool ours = !strncmp(body->name, family, length) && body->name[length] == '.';
        for (size_t i = 0; ours && right && i < CASES * SHAPES && i / SHAPES < body->cases; i++) {
            queue->block = shapes[i % SHAPES][0];
            queue->blocks = shapes[i % SHAPES][1];
            size_t number = i / SHAPES * 7 % body->cases;
            right =
                !kernel_check(body, gw__kernels_of("ref"), cuda_table(queue), number, number + 1)
                     .failures;
        }
    }
    return right;
}

/* In a process of its own, which may die of what was planted. */
static bool is_seen(const char *family, gw_cuda_queue_t *queue)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        ck_assert(freopen("/dev/null", "w", stderr));
        _exit(family_is_right(family, queue) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status != 0;
}

START_TEST(without_a_bug_nothing_is_seen)
{
    ck_assert(!is_seen(files[_i], cuda_queue()));
}
END_TEST

/* ---- Barriers -----------------------------------------------------------------------------------
 */

typedef struct barrier {
    const char *family;
    char file[40];
    int line;
} barrier_t;

static barrier_t barriers[BARRIERS_MOST];
static int barrier_count;

/* A shuffle orders no memory on a device, but does so here: barriers that are said to be for that
 * alone cannot be missed. */
static bool is_barrier(const char *text)
{
    return (strstr(text, "__syncwarp(") || strstr(text, "__syncthreads(")) &&
           !strstr(text, "/* of memory: so far there were shuffles */");
}

static void read_barriers(const char *family)
{
    char path[512], text[300];
    barrier_t b = {.family = family};
    const char *source = getenv("GW_SOURCE");
    snprintf(b.file, sizeof b.file, "kernels/cuda/%s_cuda.cu", family);
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", b.file);
    FILE *f = fopen(path, "r");
    while (f && fgets(text, sizeof text, f)) {
        b.line++;
        if (is_barrier(text) && barrier_count < BARRIERS_MOST)
            barriers[barrier_count++] = b;
    }
    if (f)
        fclose(f);
}

START_TEST(each_barrier_that_is_left_out_is_seen)
{
    const barrier_t *b = &barriers[_i];
    gw_double_leave_out(b->file, b->line);
    ck_assert_msg(is_seen(b->family, cuda_queue()), "nobody sees that %s:%d is left out", b->file,
                  b->line);
}
END_TEST

START_TEST(there_are_barriers)
{
    ck_assert_int_ge(barrier_count, 20);
    ck_assert_int_lt(barrier_count, BARRIERS_MOST);
}
END_TEST

/* ---- Sizes --------------------------------------------------------------------------------------
 */

/* Half of the shared memory that the kernel counts on. */
static gw_status_t in_half_a_room(gw_cuda_queue_t *queue, const char *kernel, unsigned grid,
                                  unsigned block, unsigned shared, void **args)
{
    return cuda_queue()->launch(queue, kernel, grid, block, shared / 2, args);
}

/* The count of gw_cuda_sum_add and _scale is their last argument. */
static gw_status_t one_too_many(gw_cuda_queue_t *queue, const char *kernel, unsigned grid,
                                unsigned block, unsigned shared, void **args)
{
    uint64_t count = *(const uint64_t *)args[2] + 1;
    void *more[] = {args[0], args[1], &count};
    return cuda_queue()->launch(queue, kernel, grid, block, shared, more);
}

START_TEST(writes_behind_shared_memory_are_seen)
{
    gw_cuda_queue_t queue = {.launch = in_half_a_room};
    for (size_t i = 0; i < FILES; i++)
        if (strcmp(files[i], "sum") && strcmp(files[i], "cast") && strcmp(files[i], "randomk"))
            ck_assert_msg(is_seen(files[i], &queue), "%s", files[i]);
}
END_TEST

START_TEST(writes_behind_an_array_are_seen)
{
    gw_cuda_queue_t queue = {.launch = one_too_many};
    ck_assert(is_seen("sum", &queue));
}
END_TEST

static Suite *planted_suite(void)
{
    Suite *s = suite_create("planted bugs of CUDA kernels");
    TCase *t = tcase_create("bugs");
    for (size_t i = 0; i < FILES; i++)
        read_barriers(files[i]);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, without_a_bug_nothing_is_seen, 0, FILES);
    tcase_add_test(t, there_are_barriers);
    tcase_add_loop_test(t, each_barrier_that_is_left_out_is_seen, 0, barrier_count);
    tcase_add_test(t, writes_behind_shared_memory_are_seen);
    tcase_add_test(t, writes_behind_an_array_are_seen);
    suite_add_tcase(s, t);
    return s;
}

#else

START_TEST(no_double)
{
    gw_test_skip("bugs planted in CUDA kernels", "wants a C++ compiler and x86-64");
}
END_TEST

static Suite *planted_suite(void)
{
    Suite *s = suite_create("planted bugs of CUDA kernels");
    TCase *t = tcase_create("bugs");
    tcase_add_test(t, no_double);
    suite_add_tcase(s, t);
    return s;
}

#endif

int main(void)
{
    return gw_test_main(planted_suite());
}
