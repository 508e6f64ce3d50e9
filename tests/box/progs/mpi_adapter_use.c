/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the MPI adapter as the command-line tool does and uses all of it. mpi_adapter_use MODULE */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/mpi_adapter.h>

enum { COUNT = 1000 };

static const gw_mpi_adapter_t *open_adapter(const char *module)
{
    gw_mpi_adapter_module_fn get;
    if (!dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL))
        return NULL;
    void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    *(void **)&get = library ? dlsym(library, GW_MPI_ADAPTER_SYMBOL) : NULL;
    return get ? get() : NULL;
}

static int sums_right(const gw_mpi_adapter_t *mpi)
{
    float f[COUNT], g[COUNT];
    double d[COUNT];
    int right = 1, size = mpi->size(), expected = size * (size - 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        f[i] = (float)(i + mpi->rank());
        d[i] = f[i];
    }
    right &= mpi->allreduce_f32_sum(f, g, COUNT) == GW_OK;
    right &= mpi->allreduce_sum(NULL, d, COUNT, GW_F64) == GW_OK;
    right &= mpi->allreduce_sum(NULL, f, COUNT, GW_F32) == GW_OK;
    right &= mpi->allreduce_sum(NULL, f, COUNT, GW_F16) == GW_ERR_UNSUPPORTED;
    right &= mpi->allreduce_sum(NULL, f, (size_t)1 << 40, GW_F32) == GW_ERR_INVALID;
    for (int i = 0; i < COUNT; i++)
        right &= g[i] == (float)(size * i + expected) && f[i] == g[i] && d[i] == (double)g[i];
    return right;
}

static int gather_right(const gw_mpi_adapter_t *mpi)
{
    int size = mpi->size(), right = 1, mine = 100 + mpi->rank();
    int *all = calloc((size_t)size, sizeof *all);
    right &= mpi->allgather(NULL, &mine, all, sizeof mine) == GW_OK;
    for (int i = 0; i < size; i++)
        right &= all[i] == 100 + i;
    free(all);
    return right;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    const gw_mpi_adapter_t *mpi = argc > 1 ? open_adapter(argv[1]) : NULL;
    if (!mpi || mpi->abi != GW_MPI_ADAPTER_ABI || mpi->init(why, sizeof why) != GW_OK) {
        printf("not ok - open the adapter: %s\n", mpi ? why : dlerror());
        return 1;
    }
    int right = mpi->init(NULL, 0) == GW_OK && mpi->barrier() == GW_OK;
    double began = mpi->wtime();
    int sums = sums_right(mpi), gather = gather_right(mpi);
    right &= mpi->max_double(mpi->rank()) == mpi->size() - 1 && mpi->wtime() >= began;
    double wrong = mpi->max_double(!(right && sums && gather));
    if (mpi->rank() == 0)
        printf("%s, %d ranks: %s\n", mpi->library_version(), mpi->size(),
               wrong > 0 ? "wrong" : "right");
    return mpi->finalize() == GW_OK && wrong <= 0 ? 0 : 1;
}
