/* SPDX-License-Identifier: Apache-2.0 */
/* The death of peers on this node: MPI does not tell, so their processes are looked at now and
 * then. */
#include "mpi_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

/* At most size - 1 bytes of a small file; false when it cannot be read. */
static bool read_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, size - 1) : -1;
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/*
 * When a process began, in the kernel's ticks, so that another one of the same number is told from
 * it; 0: it has ended, or its parent has not fetched it yet. False: cannot be told. No descriptor
 * stays open for it, as links are many and descriptors may be few.
 */
static bool process_began(int64_t pid, uint64_t *out)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    *out = 0;
    if (access(path, F_OK) != 0)
        return true;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (!read_file(path, text, sizeof text))
        return access(path, F_OK) != 0;
    /* The name in the second field may hold anything; the state is the third, the beginning the
     * 22nd. */
    char *at = strrchr(text, ')');
    if (!at || strlen(at) < 4)
        return false;
    at += 2;
    if (*at == 'Z' || *at == 'X')
        return true;
    for (int field = 3; field < 22 && at; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return false;
    *out = strtoull(at, NULL, 10);
    return *out != 0;
}

/* Equal for processes that see each other's numbers: of this boot, in one namespace. 0: unknown. */
static uint64_t process_space(void)
{
    char boot[64];
    struct stat space;
    if (!read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) ||
        stat("/proc/self/ns/pid", &space) != 0)
        return 0;
    uint64_t hash = 14695981039346656037u ^ (uint64_t)space.st_ino;
    for (const char *c = boot; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return hash ? hash : 1;
}

void gw__mpi_watch_describe(gw__mpi_process_t *out)
{
    *out = (gw__mpi_process_t){.pid = getpid(), .space = process_space()};
    if (!process_began(out->pid, &out->began))
        out->space = 0;
}

void gw__mpi_watch_begin(gw__mpi_peer_t *peer, const gw__mpi_process_t *its,
                         const gw__mpi_process_t *own)
{
    uint64_t began;
    bool near = its->space != 0 && its->space == own->space && its->pid > 0;
    peer->process = (gw__mpi_process_t){0};
    if (near && process_began(its->pid, &began) && began == its->began && began != 0)
        peer->process = *its;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What a peer sent before its end may still be in MPI: it is lost at the second look. */
void gw__mpi_watch(gw_link_t *link)
{
    int64_t now = now_ms();
    if (now < link->next_watch)
        return;
    link->next_watch = now + LOOK_MS;
    for (int i = 0; i < link->params.size; i++) {
        gw__mpi_peer_t *peer = &link->peers[i];
        uint64_t began;
        if (peer->process.pid == 0 || peer->lost != GW_OK)
            continue;
        if (!process_began(peer->process.pid, &began) || began == peer->process.began)
            continue;
        if (peer->ended)
            gw__mpi_peer_lose(link, i, GW_ERR_PEER_FAILED);
        peer->ended = true;
    }
}
