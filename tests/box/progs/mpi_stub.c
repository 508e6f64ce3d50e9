/* SPDX-License-Identifier: Apache-2.0 */
/* A tiny MPI of another family, with integers as handles: one rank, and all-reduce is a copy of
 * ints. Built as a library (MPI_STUB_LIBRARY) and as a program on it. */
#include <stdio.h>
#include <string.h>

int MPI_Init(int *argc, char ***argv);
int MPI_Allreduce(const void *send, void *recv, int count, int type, int op, int comm);
int MPI_Comm_free(int *comm);
int MPI_Finalize(void);

#ifdef MPI_STUB_LIBRARY
int MPI_Get_library_version(char *text, int *length);

int MPI_Get_library_version(char *text, int *length)
{
    strcpy(text, "MPICH Version: 4.0.2");
    *length = (int)strlen(text);
    return 0;
}

int MPI_Init(int *argc, char ***argv)
{
    return 0;
}

int MPI_Allreduce(const void *send, void *recv, int count, int type, int op, int comm)
{
    if (type != 0x4c000405 || op != 0x58000003 || comm != 0x44000000)
        return 1;
    memcpy(recv, send, (size_t)count * sizeof(int));
    return 0;
}

int MPI_Comm_free(int *comm)
{
    *comm = 0x04000000;
    return 0;
}

int MPI_Finalize(void)
{
    return 0;
}
#else
int main(int argc, char **argv)
{
    int in[3] = {1, 2, 3}, out[3] = {0}, comm = 0x44000000;
    MPI_Init(&argc, &argv);
    int rc = MPI_Allreduce(in, out, 3, 0x4c000405, 0x58000003, comm);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    printf("rc %d out %d %d %d comm %x\n", rc, out[0], out[1], out[2], (unsigned)comm);
    return 0;
}
#endif
