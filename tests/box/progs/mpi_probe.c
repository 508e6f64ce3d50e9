/* SPDX-License-Identifier: Apache-2.0 */
/* A program without MPI that tells what its process looks like when main begins: a preloaded shim
 * must not show. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

int main(void)
{
    int error = errno, handlers = 0;
    struct sigaction action;
    printf("errno %d\n", error);
    for (int i = 1; i < 32; i++)
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN)
            handlers++;
    printf("handlers %d\n", handlers);
    printf("threads %d\n", entries("/proc/self/task"));
    printf("descriptors %d\n", entries("/proc/self/fd"));
    return 0;
}
