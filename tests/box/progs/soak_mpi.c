/* SPDX-License-Identifier: Apache-2.0 */
/* Long lives under the shim: soak_mpi WHAT [memory|descriptor|thread]. Prints TAP; the second word
 * is a leak in every cycle, which must be seen.
 *   comms    500 communicators, one after the other
 *   alive    communicators at the same time, more than there are descriptors for
 *   calls    10,000 calls of changing sizes
 *   others   fork, exec, system and popen between calls
 *   leave    no MPI_Finalize: exit behind a call
 *   threads  two threads on two communicators */
#include "mpi_prog.h"

#include <sys/wait.h>
#include <unistd.h>

#include "soak.h"

/* MPI itself keeps a little for each communicator and each size of message that it meets. */
enum { COUNT = 20000, LONGEST = 60000, RSS_KIB = 8192 };

static int rank, size;
static soak_leak_t leak;

/* All elements of a call are equal, so that every codec sums them exactly. */
static bool sum(MPI_Comm comm, int count, int seed)
{
    static __thread float x[LONGEST];
    float expected = 0;
    for (int r = 0; r < size; r++)
        expected += (float)(1 + r + seed % 13);
    for (int i = 0; i < count; i++)
        x[i] = (float)(1 + rank + seed % 13);
    bool right = MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS;
    for (int i = 0; i < count && right; i++)
        right = fabsf(x[i] - expected) < 1e-3f;
    return right;
}

/* Runs cycles and tells what grew after the first `warm` of them. */
static void soak(const char *what, bool (*cycle)(int), int warm, int cycles)
{
    bool good = true;
    soak_usage_t before = {0};
    for (int i = 0; i < cycles; i++) {
        if (i == warm)
            before = soak_usage();
        good = cycle(i) && good;
        soak_leak(i >= warm ? leak : LEAK_NOTHING);
    }
    soak_usage_t after = soak_usage();
    const char *grown = soak_growth(before, after, RSS_KIB);
    if (grown)
        printf("# rank %d: %s\n", rank, grown);
    prog_report(good, "%s: the sums are right", what);
    prog_report(!grown, "%s: nothing grew (rank 0: %+ld KiB)", what,
                after.rss_kib - before.rss_kib);
}

static bool comm_cycle(int i)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    bool good = sum(copy, COUNT, i);
    MPI_Comm_free(&copy);
    return good;
}

enum { ALIVE = 60 };

static bool alive_cycle(int i)
{
    MPI_Comm copy[ALIVE];
    bool good = true;
    for (int k = 0; k < ALIVE; k++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy[k]);
        good = sum(copy[k], COUNT, k) && good;
    }
    for (int k = 0; k < ALIVE; k++)
        good = sum(copy[k], COUNT, k + i) && good;
    for (int k = 0; k < ALIVE; k++)
        MPI_Comm_free(&copy[k]);
    return good;
}

static bool calls_cycle(int i)
{
    bool good = true;
    for (int k = 0; k < 1000; k++) {
        uint64_t z = (uint64_t)(i * 1000 + k + 1) * 0x9E3779B97F4A7C15u;
        good = sum(MPI_COMM_WORLD, 1 + (int)(z >> 40) % 40 * (LONGEST / 40), k) && good;
    }
    return good;
}

static bool exited(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static bool others_cycle(int i)
{
    int status = -1;
    bool good = sum(MPI_COMM_WORLD, COUNT, i);
    pid_t child = fork();
    if (child == 0)
        exit(7); /* with exit handlers, whose figures would be a copy */
    good = waitpid(child, &status, 0) == child && exited(status, 7) && good;
    child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 6", (char *)NULL);
        _exit(1);
    }
    good = waitpid(child, &status, 0) == child && exited(status, 6) && good;
    good = exited(system("exit 5"), 5) && good;
    char line[16] = "";
    FILE *echo = popen("echo hello", "r");
    good = echo && fgets(line, sizeof line, echo) && strcmp(line, "hello\n") == 0 && good;
    good = echo && pclose(echo) == 0 && good;
    return sum(MPI_COMM_WORLD, COUNT, i + 1) && good;
}

static void *thread_main(void *comm)
{
    for (int i = 0; i < 200; i++)
        if (!sum(*(MPI_Comm *)comm, COUNT + 100 * (i % 9), i))
            return comm;
    return NULL;
}

static void threads(void)
{
    MPI_Comm comm[2];
    pthread_t thread[2];
    bool good = true;
    for (int i = 0; i < 2; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, thread_main, &comm[i]);
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(thread[i], &failed);
        good = !failed && good;
    }
    prog_report(good, "two threads on two communicators, 200 calls each");
    for (int i = 0; i < 2; i++)
        MPI_Comm_free(&comm[i]);
}

static void run(const char *what)
{
    if (strcmp(what, "comms") == 0)
        soak("500 communicators", comm_cycle, 100, leak ? 120 : 500);
    else if (strcmp(what, "alive") == 0)
        soak("more communicators than descriptors", alive_cycle, 2, 4);
    else if (strcmp(what, "calls") == 0)
        soak("10,000 calls of changing sizes", calls_cycle, 3, 10);
    else if (strcmp(what, "others") == 0)
        soak("fork, exec, system, popen", others_cycle, 3, 10);
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "leave") == 0)
        prog_report(sum(MPI_COMM_WORLD, COUNT, 1), "a sum before leaving");
}

int main(int argc, char **argv)
{
    static const char *const leaks[] = {"", "memory", "descriptor", "thread"};
    int provided;
    const char *what = argc > 1 ? argv[1] : "";
    for (int k = 1; argc > 2 && k < 4; k++)
        if (strcmp(argv[2], leaks[k]) == 0)
            leak = (soak_leak_t)k;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "threads") == 0 && provided < MPI_THREAD_MULTIPLE) {
        if (rank == 0)
            printf("ok - two threads # SKIP MPI_THREAD_MULTIPLE not provided\n");
    } else {
        run(what);
    }
    if (strcmp(what, "leave") == 0)
        exit(0);
    MPI_Finalize();
    return 0;
}
