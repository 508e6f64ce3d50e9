/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that must reach MPI untouched: prints results as hashes and errors as classes, to be
 * compared with a run without the shim. Every buffer is large enough that only the kind of call
 * keeps it from being compressed. */
#include "mpi_prog.h"

enum { COUNT = 50000 };

static int rank, size;
static float send[2 * COUNT], recv[2 * COUNT];
static int op_calls;

static void fill(void)
{
    for (int i = 0; i < 2 * COUNT; i++) {
        send[i] = prog_value(rank, (size_t)i);
        recv[i] = -1;
    }
}

static void print_result(const char *name, int rc)
{
    int class = rc;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    if (rank == 0)
        printf("%s rc %d %016llx\n", name, class, (unsigned long long)prog_hash(recv, sizeof recv));
}

static void add_twice(void *in, void *inout, int *count, MPI_Datatype *type)
{
    op_calls++;
    for (int i = 0; i < *count; i++)
        ((float *)inout)[i] += 2 * ((float *)in)[i];
}

static void add_pairs(void *in, void *inout, int *count, MPI_Datatype *type)
{
    for (int i = 0; i < 2 * *count; i++)
        ((float *)inout)[i] += ((float *)in)[i];
}

static void user_things(void)
{
    MPI_Op twice, pairs;
    MPI_Datatype pair;
    MPI_Op_create(add_twice, 0, &twice);
    MPI_Op_create(add_pairs, 1, &pairs);
    MPI_Type_contiguous(2, MPI_FLOAT, &pair);
    MPI_Type_commit(&pair);
    fill();
    print_result("user-op", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, twice, MPI_COMM_WORLD));
    if (rank == 0)
        printf("user-op called %d times\n", op_calls);
    fill();
    print_result("derived", MPI_Allreduce(send, recv, COUNT, pair, pairs, MPI_COMM_WORLD));
    MPI_Op_free(&twice);
    MPI_Op_free(&pairs);
    MPI_Type_free(&pair);
}

static void predefined(void)
{
    MPI_Op float_ops[] = {MPI_MAX, MPI_MIN, MPI_PROD};
    MPI_Op integer_ops[] = {MPI_SUM, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_MAX};
    MPI_Datatype integers[] = {MPI_INT, MPI_UNSIGNED, MPI_LONG_LONG, MPI_SHORT, MPI_UINT8_T};
    char name[32];
    for (int i = 0; i < 3; i++) {
        fill();
        snprintf(name, sizeof name, "float-op-%d", i);
        print_result(name,
                     MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, float_ops[i], MPI_COMM_WORLD));
    }
    for (int t = 0; t < 5; t++) {
        for (int i = 0; i < 7; i++) {
            fill();
            snprintf(name, sizeof name, "integer-%d-op-%d", t, i);
            print_result(name, MPI_Allreduce(send, recv, COUNT / 4, integers[t], integer_ops[i],
                                             MPI_COMM_WORLD));
        }
    }
    fill();
    print_result("double", MPI_Allreduce(send, recv, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    fill();
    print_result("maxloc",
                 MPI_Allreduce(send, recv, COUNT, MPI_FLOAT_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    fill();
    print_result("self", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF));
}

static void intercomm(void)
{
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 5, &inter);
    fill();
    print_result("intercomm", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_SUM, inter));
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Errors return on one communicator and are fatal on the world: each must come to the handler of
 * its own call. */
static void errors(void)
{
    MPI_Comm comm;
    MPI_Datatype alias;
    MPI_Type_dup(MPI_FLOAT, &alias);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    fill();
    print_result("negative", MPI_Allreduce(send, recv, -1, MPI_FLOAT, MPI_SUM, comm));
    print_result("null-type", MPI_Allreduce(send, recv, COUNT, MPI_DATATYPE_NULL, MPI_SUM, comm));
    print_result("null-op", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_OP_NULL, comm));
    print_result("wrong-op", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_BAND, comm));
    /* Open MPI has no sum of a duplicated type. */
    print_result("type-dup", MPI_Allreduce(send, recv, COUNT, alias, MPI_SUM, comm));
    print_result("zero", MPI_Allreduce(NULL, NULL, 0, MPI_FLOAT, MPI_SUM, comm));
    /* These Open MPI always takes to the world's handler. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    print_result("recv-in-place",
                 MPI_Allreduce(send, MPI_IN_PLACE, COUNT, MPI_FLOAT, MPI_SUM, comm));
    print_result("same-buffer", MPI_Allreduce(recv, recv, COUNT, MPI_FLOAT, MPI_SUM, comm));
    print_result("null-comm", MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_NULL));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&alias);
    MPI_Comm_free(&comm);
}

/* SUM and MAX in turn on one buffer: state of the one must not reach the other. */
static void alternate(void)
{
    bool exact = true;
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < COUNT; k++)
            recv[k] = prog_value(rank + i, (size_t)k);
        MPI_Allreduce(MPI_IN_PLACE, recv, COUNT, MPI_FLOAT, i % 2 ? MPI_SUM : MPI_MAX,
                      MPI_COMM_WORLD);
        for (int k = 0; k < COUNT && i % 2 == 0; k++) {
            float largest = prog_value(i, (size_t)k);
            for (int r = 1; r < size; r++)
                largest = fmaxf(largest, prog_value(r + i, (size_t)k));
            exact = exact && largest == recv[k];
        }
    }
    if (rank == 0)
        printf("alternate max-exact %d\n", exact);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    user_things();
    predefined();
    intercomm();
    errors();
    alternate();
    MPI_Finalize();
    return 0;
}
