// SPDX-License-Identifier: Apache-2.0
// Kernels that ask the driver's double for memory, order and arguments; test_driver.c knows the
// answers.

struct driver_list_t {
    const uint32_t *at[3];
    uint64_t count;
};

extern "C" __global__ void driver_add(uint32_t *data, uint32_t count, uint32_t value)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        data[i] += value;
}

// to = from * factor + 1: two of them in another order give another number.
extern "C" __global__ void driver_scale(uint32_t *to, const uint32_t *from, uint32_t count,
                                        uint32_t factor)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = from[i] * factor + 1;
}

extern "C" __global__ void driver_sum(driver_list_t list, uint32_t *to, uint32_t count)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
        uint32_t sum = 0;
        for (uint64_t k = 0; k < list.count; k++)
            sum += list.at[k][i];
        to[i] = sum;
    }
}

// ---- What must be an error
// ------------------------------------------------------------------------------------------

// One element more than there are.
extern "C" __global__ void driver_one_more(uint32_t *data, uint32_t count)
{
    if (threadIdx.x <= count)
        data[threadIdx.x] = threadIdx.x;
}

// Writes where an address says that no parameter shows.
extern "C" __global__ void driver_through(uint32_t *const *table, uint32_t value)
{
    table[0][0] = value;
}

extern "C" __global__ void driver_no_barrier(uint32_t *out)
{
    if (threadIdx.x < 7)
        __syncthreads();
    out[threadIdx.x] = 1;
}
