/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks at Lloyd-Max levels, of device memory: encode, decode, and the sum of payloads
 * encoded. */
#define GW_ROTATE_TABLE static __device__ const
#include "../rotate_block.h"
#include "device.cuh"

#include "../rotate_levels.c"

/*
 * A block of m elements with its zeros lies in shared memory. Lane l has the elements l, l + 32,
 * l + 64 ... of it, which are those that it sums, from when they are there until they are coded:
 * lanes meet only where elements come and go by 16 bytes. Butterflies over less than 32 elements
 * are between lanes, those over more between the rows of 32 that a lane holds in registers.
 */
enum { ROWS = 16 };

/* What is the same for all blocks of a launch. A lane has the signs of 64 elements twice: those of
 * words `lane` and `lane` + 32. */
typedef struct job {
    unsigned bits, block, unbiased;
    uint32_t signs[4];
} job_t;

GW_DEVICE job_t job_of(unsigned bits, unsigned block, uint32_t seed, unsigned unbiased)
{
    job_t job = {bits, block, unbiased, {0, 0, 0, 0}};
    uint64_t start = gw__rotate_start(seed);
    GW_UNROLL(2)
    for (unsigned k = 0; k < 2; k++) {
        uint64_t word = gw__rotate_signs(start, gw_lane() + k * GW_LANES);
        job.signs[2 * k] = (uint32_t)word;
        job.signs[2 * k + 1] = (uint32_t)(word >> 32);
    }
    return job;
}

/* Turns the sign of this lane's element of a row, if it is to be turned. */
GW_DEVICE float turned(const job_t *job, unsigned row, float x)
{
    uint32_t low = row < 64 ? job->signs[0] : job->signs[2];
    uint32_t high = row < 64 ? job->signs[1] : job->signs[3];
    uint32_t signs = __shfl_sync(GW_ALL, row % 2 ? high : low, row / 2 % GW_LANES);
    return gw__float_of(gw__float_bits(x) ^ (signs >> gw_lane() & 1) << 31);
}

GW_DEVICE unsigned rows_of(unsigned m)
{
    return (m + GW_LANES - 1) / GW_LANES;
}

/* ---- The transform ------------------------------------------------------------------------------
 */

/* Butterflies over 1, 2, 4, 8 and 16 elements. */
GW_DEVICE float between_lanes(float x, unsigned m)
{
    GW_UNROLL(5)
    for (unsigned h = 1; h < GW_LANES; h *= 2) {
        float other = __shfl_xor_sync(GW_ALL, x, h);
        if (h < m)
            x = gw_lane() & h ? other - x : x + other;
    }
    return x;
}

/* Butterflies over 1, 2, 4 ... of the `have` elements that a lane has in registers. */
GW_DEVICE void between_rows(float x[ROWS], unsigned have)
{
    GW_UNROLL(4)
    for (unsigned h = 1; h < ROWS; h *= 2) {
        if (h >= have)
            return;
        GW_UNROLL(16)
        for (unsigned r = 0; r < ROWS; r++)
            if (!(r & h)) {
                float a = x[r], b = x[r + h];
                x[r] = a + b;
                x[r + h] = a - b;
            }
    }
}

/* Some rows of z, `step` rows apart: all butterflies between them, and those within them. */
GW_DEVICE void pass(float *z, unsigned have, unsigned step, bool within, unsigned m)
{
    float x[ROWS];
    GW_UNROLL(16)
    for (unsigned r = 0; r < ROWS; r++) {
        x[r] = r < have ? z[r * step * GW_LANES] : 0.0f;
        if (within && r < have)
            x[r] = between_lanes(x[r], m);
    }
    between_rows(x, have);
    GW_UNROLL(16)
    for (unsigned r = 0; r < ROWS; r++)
        if (r < have)
            z[r * step * GW_LANES] = x[r];
}

GW_DEVICE void hadamard(float *z, unsigned m)
{
    unsigned rows = rows_of(m);
    for (unsigned r = 0; r < rows; r += ROWS)
        pass(z + r * GW_LANES + gw_lane(), rows - r < ROWS ? rows - r : ROWS, 1, true, m);
    for (unsigned r = 0; rows > ROWS && r < ROWS; r++)
        pass(z + r * GW_LANES + gw_lane(), rows / ROWS, ROWS, false, m);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* What codes stand for, in place of them in z: rotated back, with their signs. */
GW_DEVICE void rotate_back(const job_t *job, float scale, float *z, unsigned m)
{
    gw_rotate_decoding_t d = gw__rotate_decoding(scale, m);
    const float *levels = gw__rotate_level[job->bits - 1];
    for (unsigned i = gw_lane(); i < m; i += GW_LANES)
        z[i] = gw__rotate_value(levels, d.factor, job->bits, gw__float_bits(z[i]));
    hadamard(z, m);
    for (unsigned r = 0; r < rows_of(m); r++) {
        float *x = z + r * GW_LANES + gw_lane();
        *x = turned(job, r, *x);
        if (d.back != 1.0f)
            *x = gw__rotate_limited(*x * d.back);
    }
}

/* The codes of a payload to z, each in the place of an element. */
GW_DEVICE void unpack(const job_t *job, const uint8_t *codes, float *z, unsigned m)
{
    uint32_t mask = (1u << job->bits) - 1;
    for (unsigned i = gw_lane(); i < m; i += GW_LANES) {
        unsigned bit = i * job->bits;
        z[i] = gw__float_of(gw_shared_word(codes + bit / 8) >> bit % 8 & mask);
    }
}

/* The values of a payload in shared memory to z, those of a lane to where it reads them; all NaN
 * where the block is poisoned. */
GW_DEVICE void decode_block(const job_t *job, const uint8_t *at, float *z, unsigned m)
{
    float scale = gw__float_of(gw_shared_word(at));
    if (scale > 0.0f) {
        unpack(job, at + GW_ROTATE_META_BYTES, z, m);
        rotate_back(job, scale, z, m);
        return;
    }
    for (unsigned i = gw_lane(); i < m; i += GW_LANES)
        z[i] = scale;
}

GW_DEVICE bool block_valid(const uint8_t *at)
{
    return gw__rotate_scale_valid(gw_shared_word(at));
}

GW_DEVICE void finish_block(const float *z, unsigned n, bool add, float *dst)
{
    bool wide = gw_wide(dst);
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        float4 v = *(const float4 *)(z + i);
        if (add)
            v = gw_quad_sum(gw_quad(dst, i, n, wide), v);
        gw_put_quad(
            dst, i, n, wide,
            make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w)));
    }
}

/* A payload as it lies at `from`, by a warp. */
GW_DEVICE const uint8_t *stage(const job_t *job, const uint8_t *from, unsigned n, uint8_t *room)
{
    uint8_t *at = gw_like(room, from);
    gw_copy_bytes(at, from, (unsigned)gw__rotate_bytes(job->bits, n));
    __syncwarp();
    return at;
}

extern "C" __global__ void gw_cuda_rotate_decode(unsigned bits, unsigned block, uint32_t seed,
                                                 unsigned add, const uint8_t *payload,
                                                 uint64_t count, float *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    job_t job = job_of(bits, block, seed, 0);
    uint64_t stride = gw__rotate_bytes(bits, block), blocks = (count + block - 1) / block;
    float *z =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_rotate_room(bits, block, 1));
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < blocks; k += gw_warps()) {
        unsigned n = gw_part(count, k, block);
        const uint8_t *at = stage(&job, payload + k * stride, n, (uint8_t *)(z + block));
        bool valid = block_valid(at);
        if (valid)
            decode_block(&job, at, z, (unsigned)gw__rotate_padded(n));
        __syncwarp();
        if (valid)
            finish_block(z, n, add != 0, dst + k * block);
        else
            invalid += gw_lane() == 0;
    } /* the next payload does not lie where this one's elements are read */
    gw_report(result + GW_CUDA_INVALID, invalid);
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* The sum of squares of p, each times a power of two first, in the order of the reference. */
GW_DEVICE float squares_of(const float *p, unsigned m, double power)
{
    float sum = 0.0f;
    for (unsigned i = gw_lane(); i < m; i += GW_LANES) {
        float x = power == 1.0 ? p[i] : (float)((double)p[i] * power);
        sum += x * x;
    }
    return gw_warp_fold(sum);
}

GW_DEVICE uint32_t greatest_of(const float *p, unsigned m)
{
    uint32_t top = 0;
    for (unsigned i = gw_lane(); i < m; i += GW_LANES) {
        uint32_t magnitude = gw__float_bits(p[i]) & 0x7FFFFFFFu;
        top = magnitude > top ? magnitude : top;
    }
    return gw_warp_most(top);
}

/* The codes of p times a power of two to z, each in the place of an element; returns the scale. */
GW_DEVICE float code_block(const job_t *job, const float *p, double power, float squares, float *z,
                           unsigned m)
{
    const float *levels = gw__rotate_level[job->bits - 1];
    const uint32_t *cells = gw__rotate_cell[job->bits - 1];
    float last = gw__rotate_last_cell[job->bits - 1], r = sqrtf(squares), inverse = 1.0f / r;
    float ct = 0.0f, cc = 0.0f;
    for (unsigned row = 0; row < rows_of(m); row++) {
        unsigned i = row * GW_LANES + gw_lane();
        float x = power == 1.0 ? p[i] : (float)((double)p[i] * power);
        z[i] = turned(job, row, x);
    }
    hadamard(z, m);
    for (unsigned i = gw_lane(); i < m; i += GW_LANES) {
        uint32_t t = gw__float_bits(z[i] * inverse), sign = t >> 31;
        float magnitude = gw__float_of(t & 0x7FFFFFFFu);
        uint32_t q = gw__rotate_code(cells, last, job->bits, magnitude);
        ct += levels[q] * magnitude;
        cc += levels[q] * levels[q];
        z[i] = gw__float_of(q | sign << (job->bits - 1));
    }
    return gw__rotate_scale(r, gw_warp_fold(ct), gw_warp_fold(cc), m, job->unbiased != 0);
}

/* The codes in z, together. */
GW_DEVICE void pack(const job_t *job, const float *z, unsigned m, uint8_t *codes)
{
    for (unsigned o = gw_lane(); 8 * o < m; o += GW_LANES) {
        float4 low = *(const float4 *)(z + 8 * o), high = *(const float4 *)(z + 8 * o + 4);
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        uint64_t word = 0;
        GW_UNROLL(8)
        for (unsigned j = 0; j < 8; j++)
            word |= (uint64_t)gw__float_bits(x[j]) << j * job->bits;
        gw_put_octet(codes + o * job->bits, word, job->bits);
    }
}

GW_DEVICE void put_scale_alone(const job_t *job, uint32_t scale, unsigned m, uint8_t *out)
{
    for (unsigned i = gw_lane(); i < GW_ROTATE_META_BYTES + m * job->bits / 8; i += GW_LANES)
        out[i] = i < 4 ? (uint8_t)(scale >> 8 * i) : 0;
}

/* The block of the m elements in p, into shared memory. With `keep`, p becomes what is lost, which
 * stays finite; else z may be p. Returns whether all were finite, in every lane. */
GW_DEVICE bool encode_block(const job_t *job, float *p, float *z, unsigned m, bool keep,
                            uint8_t *out)
{
    uint32_t top = greatest_of(p, m);
    float squares = squares_of(p, m, 1.0), scale;
    if (top >= 0x7F800000u || top == 0) {
        put_scale_alone(job, top ? GW_NAN_BITS : 0, m, out);
        return top == 0;
    }
    if (gw__rotate_is_ordinary(squares)) {
        scale = code_block(job, p, 1.0, squares, z, m);
    } else {
        int exponent = gw__rotate_exponent(top);
        double power = gw__rotate_wide_power(-exponent);
        scale = code_block(job, p, power, squares_of(p, m, power), z, m);
        scale = gw__rotate_scale_times(scale, exponent);
    }
    if (gw_lane() == 0)
        gw__store_float(out, scale);
    __syncwarp(); /* of memory: so far there were shuffles */
    pack(job, z, m, out + GW_ROTATE_META_BYTES);
    __syncwarp();
    if (!keep)
        return true;
    if (scale > 0.0f)
        rotate_back(job, scale, z, m);
    for (unsigned i = gw_lane(); i < m; i += GW_LANES)
        p[i] = gw__rotate_limited(p[i] - (scale > 0.0f ? z[i] : 0.0f));
    return true;
}

/* Up to whole rows: their lanes take part in everything. */
GW_DEVICE void fill_up(float *p, unsigned n, unsigned m)
{
    for (unsigned i = n + gw_lane(); i < rows_of(m) * GW_LANES; i += GW_LANES)
        p[i] = 0.0f;
}

extern "C" __global__ void gw_cuda_rotate_encode(unsigned bits, unsigned block, uint32_t seed,
                                                 unsigned unbiased, const float *src,
                                                 float *residual, uint64_t count, uint8_t *dst,
                                                 uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    job_t job = job_of(bits, block, seed, unbiased);
    unsigned copies = residual ? 2 : 1;
    uint64_t stride = gw__rotate_bytes(bits, block), blocks = (count + block - 1) / block;
    float *p = (float *)(shared + (size_t)(threadIdx.x / GW_LANES) *
                                      gw__cuda_rotate_room(bits, block, copies));
    float *z = p + (copies - 1) * block;
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < blocks; k += gw_warps()) {
        unsigned n = gw_part(count, k, block), m = (unsigned)gw__rotate_padded(n);
        float *kept = residual ? residual + k * block : NULL;
        uint8_t *out = gw_like((uint8_t *)(z + block), dst + k * stride);
        gw_load_sum(src + k * block, kept, n, p);
        fill_up(p, n, m);
        __syncwarp();
        bool finite = encode_block(&job, p, z, m, kept != NULL, out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__rotate_bytes(bits, n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        poisoned += !finite && gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

/* p = z, or p + z. Which NaN that gives does not matter: such a block is poisoned. */
GW_DEVICE void add_rows(float *p, const float *z, unsigned n, bool add)
{
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        p[i] = add ? p[i] + z[i] : z[i];
}

/* Whoever changes z next puts a barrier before that. */
GW_DEVICE void add_own(const float *own, unsigned n, bool add, float *p, float *z)
{
    gw_load_sum(own, NULL, n, z);
    __syncwarp();
    add_rows(p, z, n, add);
}

/* The sum of a block, in order of rank, in p. Returns the first payload that is not valid, or their
 * number. */
GW_DEVICE unsigned sum_block(const job_t *job, const gw_cuda_list_t *list, unsigned payloads,
                             unsigned own_at, uint64_t skip, const float *own, unsigned n, float *p,
                             float *z, uint8_t *room)
{
    unsigned m = (unsigned)gw__rotate_padded(n);
    for (unsigned k = 0; k <= payloads; k++) {
        if (k == own_at)
            add_own(own, n, k > 0, p, z);
        if (k == payloads)
            break;
        const uint8_t *at = stage(job, list->payload[k] + skip, n, room);
        if (!block_valid(at))
            return k;
        decode_block(job, at, z, m);
        add_rows(p, z, n, k || own_at == 0);
        __syncwarp();
    }
    return payloads;
}

/* What comes behind the sum: its scale, and what was lost before. */
GW_DEVICE void finish_sum(float scale, const float *kept, unsigned n, float *p, float *z)
{
    if (kept)
        gw_load_sum(kept, NULL, n, z);
    __syncwarp();
    for (unsigned i = gw_lane(); i < n; i += GW_LANES) {
        float x = scale != 1.0f ? p[i] * scale : p[i];
        p[i] = kept ? x + z[i] : x;
    }
}

extern "C" __global__ void gw_cuda_rotate_reduce(unsigned bits, unsigned block, uint32_t seed,
                                                 unsigned unbiased, gw_cuda_list_t list,
                                                 unsigned payloads, unsigned own_at, uint64_t skip,
                                                 const float *own, float scale, float *residual,
                                                 uint64_t count, uint8_t *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    job_t job = job_of(bits, block, seed, unbiased);
    uint64_t stride = gw__rotate_bytes(bits, block), blocks = (count + block - 1) / block;
    float *p =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_rotate_room(bits, block, 2));
    float *z = p + block;
    uint8_t *room = (uint8_t *)(z + block);
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < blocks; k += gw_warps()) {
        unsigned n = gw_part(count, k, block), m = (unsigned)gw__rotate_padded(n);
        float *kept = residual ? residual + k * block : NULL;
        uint8_t *out = gw_like(room, dst + k * stride);
        unsigned refused = sum_block(&job, &list, payloads, own_at, skip + k * stride,
                                     own + k * block, n, p, z, room);
        bool finite = false;
        __syncwarp();
        if (refused < payloads) {
            put_scale_alone(&job, GW_NAN_BITS, m, out);
        } else {
            finish_sum(scale, kept, n, p, z);
            fill_up(p, n, m);
            __syncwarp();
            finite = encode_block(&job, p, z, m, kept != NULL, out);
        }
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__rotate_bytes(bits, n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        if (refused < payloads && gw_lane() == 0)
            atomicMax(result + GW_CUDA_INVALID, payloads - refused);
        poisoned += refused == payloads && !finite && gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}
