/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless all-reduces: the bits of raw, on every rank, over frames whose length nobody knows
 * before; and fewer bytes. */
#include <stdlib.h>

#include "gw_world.h"

#include "lossless_fill.h"

static const size_t counts[] = {0, 1, 3, 511, 513, 4097, 20001, 150001};
static const char *const names[] = {"lossless", "lossless2"};
enum {
    COUNTS = sizeof counts / sizeof *counts,
    NAMES = 2,
    RANKS_MAX = 4,
    CASES = COUNTS * 3 * 2, /* types, plans */
    MOST = 150001,
    EVEN = 3 * 12 * GW_LOSSLESS_GROUP /* three shards of the same size with every codec */
};

typedef struct run {
    int variant; /* of settings, and which law comes first */
    uint8_t *out[RANKS_MAX][CASES];
} run_t;

typedef struct call {
    size_t count;
    const lossless_type_t *type;
    gw_plan_kind_t plan;
    gw_op_t op;
} call_t;

static call_t call_at(int i)
{
    return (call_t){.count = counts[i / 6],
                    .type = &lossless_types[i % 3],
                    .plan = i / 3 % 2 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                    .op = i % 5 == 0 ? GW_AVG : GW_SUM};
}

static void reduce(gw_rank_t *rank, const char *name, const call_t *c, const uint8_t *x,
                   uint8_t *out, bool inplace)
{
    gw_coder_t coder;
    size_t bytes = c->count * c->type->bytes;
    ck_assert_int_eq(gw_coder_parse(name, &coder, NULL, 0), GW_OK);
    memset(out, 0xA5, bytes);
    if (inplace)
        memcpy(out, x, bytes);
    gw_status_t status = gw_allreduce_with(rank->comm, &coder, c->plan, inplace ? NULL : x, out,
                                           c->count, c->type->dtype, c->op);
    gw_check(status == GW_OK, "%s: %s", name, gw_comm_error(rank->comm));
}

/* Every case with raw, then with both levels. */
static void reduce_all(gw_rank_t *rank)
{
    run_t *run = rank->arg;
    uint8_t *x = malloc(4 * MOST), *out = malloc(4 * MOST + 1);
    for (int i = 0; i < CASES; i++) {
        call_t c = call_at(i);
        size_t bytes = c.count * c.type->bytes;
        uint8_t *expected = run->out[rank->rank][i] = malloc(bytes + 1);
        lossless_fill((lossless_fill_t)((i / 6 + run->variant) % LOSSLESS_FILLS), c.type,
                      (uint64_t)(i * 10 + rank->rank), x, c.count);
        reduce(rank, "raw", &c, x, expected, false);
        for (int k = 0; k < NAMES; k++) {
            reduce(rank, names[k], &c, x, out, (i + k) % 2);
            gw_check(memcmp(out, expected, bytes) == 0,
                     "%s %s count %zu plan %d: rank %d of %d has other bits than with raw",
                     names[k], gw_dtype_name(c.type->dtype), c.count, c.plan, rank->rank,
                     rank->size);
        }
    }
    free(x);
    free(out);
}

static bool usable(const char *transport, const char *test)
{
    const gw_transport_t *found;
    char why[256] = "";
    if (strcmp(transport, "ucx") != 0)
        return true;
    if (GW_THREAD_SANITIZED || gw_transport_find("ucx", &found, why, sizeof why) != GW_OK) {
        gw_test_skip(test, GW_THREAD_SANITIZED ? "UCX under ThreadSanitizer" : why);
        return false;
    }
    return true;
}

static gw_world_t world_of(const char *transport, int size, int variant)
{
    static const gw_setting_t settings[2][4] = {
        {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_TIMEOUT", "30"}, {"GRADWIRE_THREADS", "0"}},
        {{"GRADWIRE_MIN_BYTES", "0"},
         {"GRADWIRE_TIMEOUT", "30"},
         {"GRADWIRE_THREADS", "2"},
         {"GRADWIRE_CHECKSUM", "on"}}};
    return (gw_world_t){.size = size,
                        .transport = transport,
                        .settings = settings[variant],
                        .setting_count = variant ? 4 : 3};
}

static void check_ranks(const run_t *run, int size)
{
    for (int i = 0; i < CASES; i++) {
        call_t c = call_at(i);
        for (int r = 1; r < size; r++)
            gw_check(memcmp(run->out[r][i], run->out[0][i], c.count * c.type->bytes) == 0,
                     "case %d: rank %d differs", i, r);
    }
}

static void check_transport(const char *transport, const char *test)
{
    for (int size = 2; size <= RANKS_MAX && usable(transport, test); size++)
        for (int variant = 0; variant < 2; variant++) {
            run_t run = {.variant = variant};
            gw_world_t world = world_of(transport, size, variant);
            world.body = reduce_all;
            world.arg = &run;
            gw_world_run(&world);
            for (int r = 0; r < size; r++)
                ck_assert_int_eq(world.created[r], GW_OK);
            check_ranks(&run, size);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < CASES; i++)
                    free(run.out[r][i]);
        }
}

START_TEST(same_bits_as_raw_over_the_loopback)
{
    check_transport("loopback", "same_bits_as_raw_over_the_loopback");
}
END_TEST

START_TEST(same_bits_as_raw_over_ucx)
{
    check_transport("ucx", "same_bits_as_raw_over_ucx");
}
END_TEST

/* ---- Bytes --------------------------------------------------------------------------------------
 */

/* Bytes that this rank sends for one call. */
static uint64_t wire_of(gw_rank_t *rank, const char *name, const uint8_t *x, uint8_t *out)
{
    gw_stats_t before, after;
    call_t c = {EVEN, &lossless_types[2], GW_PLAN_DIRECT, GW_SUM};
    gw_comm_stats(rank->comm, &before);
    reduce(rank, name, &c, x, out, false);
    gw_comm_stats(rank->comm, &after);
    return after.wire_bytes - before.wire_bytes;
}

static void count_bytes(gw_rank_t *rank)
{
    uint8_t *x = malloc(4 * MOST), *out = malloc(4 * MOST);
    for (int k = 0; k < NAMES; k++) {
        lossless_fill(LOSSLESS_NEAR, &lossless_types[2], (uint64_t)rank->rank, x, EVEN);
        double raw = (double)wire_of(rank, "raw", x, out);
        double coded = (double)wire_of(rank, names[k], x, out);
        gw_check(raw / coded > 1.30, "%s: %.3f", names[k], raw / coded);
        /* What cannot be coded costs two bytes for 512 elements and one for 4096. */
        lossless_fill(LOSSLESS_ANY, &lossless_types[2], (uint64_t)rank->rank, x, EVEN);
        double any = (double)wire_of(rank, names[k], x, out);
        gw_check(any / raw < 1.003, "%s: %.4f of raw", names[k], any / raw);
    }
    free(x);
    free(out);
}

START_TEST(frames_are_as_long_as_they_need_to_be)
{
    static const char *const transports[] = {"loopback", "ucx"};
    if (!usable(transports[_i], "frames_are_as_long_as_they_need_to_be"))
        return;
    gw_world_t world = world_of(transports[_i], 3, 0);
    world.body = count_bytes;
    gw_world_run(&world);
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(world.created[r], GW_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lossless_allreduce");
    TCase *tc = tcase_create("lossless_allreduce");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, same_bits_as_raw_over_the_loopback);
    tcase_add_test(tc, same_bits_as_raw_over_ucx);
    tcase_add_loop_test(tc, frames_are_as_long_as_they_need_to_be, 0, 2);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
