/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums through the shim against exact sums: inside the declared bound, guards intact, the same bits
 * on every rank. mpi_sweep SPEC           every count, in place and not, on fresh residuals
 *   mpi_sweep SPEC poison    Inf and NaN on one rank, then 20 clean calls
 * SPEC is what GRADWIRE_CODEC says.
 */
#include "mpi_prog.h"

#include <float.h>

#include <gradwire/codec.h>

enum { GUARD = 64, MAX_COUNT = 1000003 };
#define GUARD_VALUE 12345.5f

static int rank, size;
static gw_coder_t coder;
static size_t bucket;
static double levels; /* steps of the grid */
static float send[MAX_COUNT], scratch[MAX_COUNT], bound[MAX_COUNT], guarded[MAX_COUNT + 2 * GUARD];
static double sum[MAX_COUNT], allowed[MAX_COUNT];
static float *const recv = guarded + GUARD;

/* Data of a rank in one call: seed makes calls differ. */
static float value(int r, size_t i, int seed)
{
    return prog_value(r + 16 * seed, i) * (1.0f + (float)(i / 5000 % 7));
}

/*
 * The exact sum, and the end-to-end bound on fresh residuals: all ranks' push bounds, the pull
 * bound of the sum, and the rounding of fp32 sums. The sum that is really encoded is off by the
 * push errors, so its bucket may be wider by twice the largest of them, and its unit by that
 * divided by the levels.
 */
static void expect(size_t count, int seed)
{
    memset(sum, 0, count * sizeof sum[0]);
    memset(allowed, 0, count * sizeof allowed[0]);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < count; i++) {
            scratch[i] = value(r, i, seed);
            sum[i] += scratch[i];
        }
        coder.family->error_bound(&coder, scratch, count, bound);
        for (size_t i = 0; i < count; i++)
            allowed[i] += bound[i];
    }
    for (size_t i = 0; i < count; i++)
        scratch[i] = (float)sum[i];
    coder.family->error_bound(&coder, scratch, count, bound);
    for (size_t first = 0; first < count; first += bucket) {
        double widest = 0;
        size_t end = first + bucket < count ? first + bucket : count;
        for (size_t i = first; i < end; i++)
            widest = fmax(widest, allowed[i]);
        for (size_t i = first; i < end; i++)
            allowed[i] += bound[i] + widest / levels + (size + 2) * FLT_EPSILON * 8.0 * size;
    }
}

static void set_guards(size_t count)
{
    for (size_t i = 0; i < count + 2 * GUARD; i++)
        guarded[i] = GUARD_VALUE;
}

static bool guards_intact(size_t count)
{
    for (int i = 0; i < GUARD; i++)
        if (guarded[i] != GUARD_VALUE || recv[count + i] != GUARD_VALUE)
            return false;
    return true;
}

/* One all-reduce. False: MPI returned an error, a guard or the send buffer changed, or ranks
 * differ. */
static bool reduce(size_t count, int seed, bool in_place, MPI_Comm comm)
{
    set_guards(count);
    for (size_t i = 0; i < count; i++)
        (in_place ? recv : send)[i] = value(rank, i, seed);
    uint64_t before = prog_hash(send, count * sizeof send[0]);
    int rc =
        MPI_Allreduce(in_place ? MPI_IN_PLACE : send, recv, (int)count, MPI_FLOAT, MPI_SUM, comm);
    bool kept = before == prog_hash(send, count * sizeof send[0]);
    bool same = prog_same(prog_hash(recv, count * sizeof recv[0]), comm);
    return rc == MPI_SUCCESS && kept && same && guards_intact(count);
}

/* Largest error in units of what is allowed. */
static double worst(size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)recv[i] - sum[i]);
        most = error <= 0 ? most : fmax(most, isfinite(error) ? error / allowed[i] : INFINITY);
    }
    return most;
}

static void sweep(const char *spec)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 255, 513, MAX_COUNT};
    MPI_Comm comm[2];
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm[1]);
    double most = 0;
    bool good = true;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        expect(counts[c], 0);
        /* A communicator sees each count once, so every call starts without a residual. */
        for (int in_place = 0; in_place < 2; in_place++) {
            bool fine = reduce(counts[c], 0, in_place, comm[in_place]);
            double ratio = worst(counts[c]);
            if (!fine || ratio > 1)
                printf("# rank %d: count %zu in_place %d fine %d error/bound %g\n", rank, counts[c],
                       in_place, fine, ratio);
            good = good && fine && ratio <= 1;
            most = fmax(most, ratio);
        }
    }
    /* A sum that is exact was not compressed, and then nothing was tested. */
    bool lossy = size == 1 ? most == 0 : most > 0;
    prog_report(good && lossy,
                "np=%d %s: bound, guards, same bits (largest error %.2f of the bound)", size, spec,
                most);
    MPI_Comm_free(&comm[0]);
    MPI_Comm_free(&comm[1]);
}

static void poison(const char *spec)
{
    enum { COUNT = 100003, AT_INF = 777, AT_NAN = 50001 };
    set_guards(COUNT);
    for (size_t i = 0; i < COUNT; i++)
        send[i] = value(rank, i, 0);
    if (rank == size - 1) {
        send[AT_INF] = INFINITY;
        send[AT_NAN] = NAN;
    }
    MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    prog_report(!isfinite(recv[AT_INF]) && !isfinite(recv[AT_NAN]),
                "%s: Inf and NaN of one rank reach every rank", spec);
    bool elsewhere = true;
    for (size_t i = 0; i < COUNT; i++)
        if (i / bucket != AT_INF / bucket && i / bucket != AT_NAN / bucket)
            elsewhere = elsewhere && isfinite(recv[i]);
    prog_report(elsewhere, "%s: other buckets stay finite", spec);
    /* With feedback a rank encodes value + residual; a residual is inside one bound of what was
     * encoded, and widens the bucket that it is added to. Both together stay under 2.5 times the
     * fresh bound for 3 and more bits. */
    double most = 0;
    bool good = true;
    for (int call = 1; call <= 20; call++) {
        good = reduce(COUNT, call, false, MPI_COMM_WORLD) && good;
        expect(COUNT, call);
        most = fmax(most, worst(COUNT));
    }
    prog_report(good && most > 0 && most <= 2.5,
                "%s: the next 20 calls are finite and inside the bound with residuals (%.2f)", spec,
                most);
}

int main(int argc, char **argv)
{
    char why[200];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2 || gw_coder_parse(argv[1], &coder, why, sizeof why) != GW_OK)
        MPI_Abort(MPI_COMM_WORLD, 2);
    bucket = (size_t)gw_coder_get(&coder, "bucket", 512);
    levels = exp2(gw_coder_get(&coder, "bits", 4)) - 1;
    if (argc > 2 && strcmp(argv[2], "poison") == 0)
        poison(argv[1]);
    else
        sweep(argv[1]);
    MPI_Finalize();
    return 0;
}
