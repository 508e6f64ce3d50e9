/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one fuzz target on what is kept of it, without a fuzzer: every file of a directory as it is,
 * cut short at every length, and with every bit of its first bytes changed. Prints TAP. */
#include "fuzz.h"

#include <dirent.h>
#include <time.h>

enum { FILE_MAX = 1 << 20, HEAD = 64 };

static uint8_t data[FILE_MAX];
static long runs;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(size_t size)
{
    LLVMFuzzerTestOneInput(data, size);
    runs++;
}

static size_t load(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    fuzz_require(f);
    size_t size = fread(data, 1, sizeof data, f);
    fuzz_require(size < sizeof data);
    fclose(f);
    return size;
}

/* As many of the variants as there is time for, evenly; at least a hundred. */
static void run_variants(size_t size, double until)
{
    size_t bits = (size < HEAD ? size : HEAD) * 8, all = size + bits;
    size_t step = 1, most = now() < until ? 4000 : 100;
    while (all / step > most)
        step++;
    for (size_t i = 0; i < all; i += step) {
        if (i < size) {
            run(i);
            continue;
        }
        size_t bit = i - size;
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        run(size);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(int argc, char **argv)
{
    struct dirent *entry;
    int files = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: %s NAME DIRECTORY\n", argv[0]);
        return 2;
    }
    DIR *directory = opendir(argv[2]);
    fuzz_require(directory);
    double until = now() + 5;
    while ((entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        size_t size = load(argv[2], entry->d_name);
        run(size);
        run_variants(size, until);
        files++;
    }
    closedir(directory);
    bool enough = files >= 5;
    printf("%s - %s: %d kept inputs, %ld runs with their variants\n", enough ? "ok" : "not ok",
           argv[1], files, runs);
    return enough ? 0 : 1;
}
