/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for device memory: as those of kernels.h, put on a queue instead of done. */
#ifndef GW_CUDA_KERNELS_H
#define GW_CUDA_KERNELS_H

#include <gradwire/status.h>

#include "block_layout.h"
#include "cuda_rooms.h"
#include "kernels.h"
#include "randomk_places.h"
#include "topk_layout.h"

/*
 * Each function below computes one launch (those of randomk: up to three, one a stage) and hands it
 * to a queue. Pointers to elements, residuals
 * and payloads are device pointers: any address for `void` and `uint8_t`, a multiple of 4 for
 * float; at multiples of 16 (payloads: any address) accesses are widest. Nothing is waited for,
 * allocated or kept. The bytes are those of kernels/ref, whatever the shape of the launch.
 *
 * A count of 0 launches nothing. Status: that of the queue's launch, else GW_OK.
 *
 * What the host learns from the return values of CPU kernels is added to words of device memory,
 * which the caller has zeroed (one result may serve many launches) and reads when they are
 * done: see gw_cuda_result_t.
 *
 * Payloads that are not valid: a kernel reads no byte outside of a payload and writes none outside
 * of its destination, whatever bytes the payload holds. A bucket that valid() of the CPU kernels
 * would refuse is counted and left out: store and add leave its elements of dst as they were, while
 * other buckets are decoded. Whoever wants nothing written at all checks payloads in host memory by
 * valid() of the CPU kernels first; for payloads in device memory the call has failed once the word
 * is not 0.
 */

/* In device memory, at a multiple of 4. */
typedef struct gw_cuda_result {
    uint32_t poisoned; /* encode, reduce: + buckets (codecs cast, natural: elements) that are not
                          finite */
    uint32_t
        invalid;     /* decode: + buckets that are not valid; reduce: the greatest of payloads - k
                        over all k whose payload is not valid: the first such k, 0 if there is none */
    uint32_t length; /* encode of codecs whose payloads have no fixed length: bytes of the payload
                        (this word is not added to) */
} gw_cuda_result_t;

typedef struct gw_cuda_queue gw_cuda_queue_t;
struct gw_cuda_queue {
    /* Runs the kernel of this name, an `extern "C"` function of kernels/cuda, with args[i] pointing
     * to its i-th argument; these are copied before it returns. `shared` is at most
     * GW_CUDA_SHARED_MOST. */
    gw_status_t (*launch)(gw_cuda_queue_t *queue, const char *kernel, unsigned grid, unsigned block,
                          unsigned shared, void **args);
    unsigned block;  /* threads of a block, a multiple of 32 up to 1,024; 0: GW_CUDA_BLOCK. Less are
                        used where shared memory is short. */
    unsigned blocks; /* at most in a grid: some times the multiprocessors; 0: as many as there is
                        work for */
    void *scratch;   /* device memory for codecs that want it (gw__device_scratch), one task after
                        the other; NULL: none */
    void *state;     /* of whoever made the queue */
};

enum {
    GW_CUDA_BLOCK = 256,
    GW_CUDA_TOPK_THREADS = 512,     /* of topk, instead: they share a block of elements */
    GW_CUDA_SHARED_MOST = 48 * 1024 /* without an attribute of the function, on any device */
};

typedef struct gw_cuda_quant_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                          gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result);
    /* In one pass: every payload, own elements and the residual are read once. sum->payload is a
     * host array of device pointers, of at most GW_CUDA_PAYLOADS (else GW_ERR_UNSUPPORTED, and
     * nothing is launched). Buckets in which a payload is not valid are written as poisoned, are
     * not counted as such, and keep their residual; unlike on the CPU the work goes on behind them.
     */
    gw_status_t (*reduce)(gw_cuda_queue_t *queue, const gw_quant_spec_t *spec,
                          const gw_quant_sum_t *sum, float *residual, size_t count, uint64_t first,
                          uint64_t key, uint8_t *dst, gw_cuda_result_t *result);
} gw_cuda_quant_kernels_t;

/* Formats GW_FLOAT_FP16 and GW_FLOAT_BF16. */
typedef struct gw_cuda_cast_kernels {
    gw_status_t (*f16_to_f32)(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count);
    gw_status_t (*f32_to_f16)(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count);
    gw_status_t (*bf16_to_f32)(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count);
    gw_status_t (*f32_to_bf16)(gw_cuda_queue_t *queue, const void *src, void *dst, size_t count);
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst);
    gw_status_t (*bf16_stochastic)(gw_cuda_queue_t *queue, const float *src, void *dst,
                                   size_t count, uint64_t first, uint64_t key);
} gw_cuda_cast_kernels_t;

typedef struct gw_cuda_sum_kernels {
    gw_status_t (*add)(gw_cuda_queue_t *queue, float *dst, const void *src, size_t count);
    gw_status_t (*scale)(gw_cuda_queue_t *queue, float *dst, float factor, size_t count);
    gw_status_t (*copy)(gw_cuda_queue_t *queue, void *dst, const void *src, size_t bytes);
    gw_status_t (*zero)(gw_cuda_queue_t *queue, void *dst, size_t bytes);
    /* Each of `count` words becomes the sum of those before it, and *total that of all. */
    gw_status_t (*offsets)(gw_cuda_queue_t *queue, uint32_t *words, size_t count, uint32_t *total);
} gw_cuda_sum_kernels_t;

typedef struct gw_cuda_sign_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const uint8_t *payload,
                         size_t count, float *dst, gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_sign_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result);
} gw_cuda_sign_kernels_t;

/* fp8: formats GW_FLOAT_E4M3 and GW_FLOAT_E5M2; fp4: GW_FLOAT_MXFP4 and GW_FLOAT_NVFP4, where a
 * group that is not valid is left out as a whole. */
typedef struct gw_cuda_float_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_float_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_float_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result);
} gw_cuda_float_kernels_t;

/* reduce: as that of quant, with the bytes of decoding each payload in order, adding the own
 * elements among them, scaling and encoding. */
typedef struct gw_cuda_rotate_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec, const float *src,
                          float *residual, size_t count, uint8_t *dst, gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec, const uint8_t *payload,
                       size_t count, float *dst, gw_cuda_result_t *result);
    gw_status_t (*reduce)(gw_cuda_queue_t *queue, const gw_rotate_spec_t *spec,
                          const gw_quant_sum_t *sum, float *residual, size_t count, uint8_t *dst,
                          gw_cuda_result_t *result);
} gw_cuda_rotate_kernels_t;

/* With GW_NATURAL_POWERS, `poisoned` counts elements. */
typedef struct gw_cuda_natural_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t key, uint8_t *dst,
                          gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_natural_spec_t *spec,
                       const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result);
} gw_cuda_natural_kernels_t;

/*
 * Codec randomk, of binary32 elements. `marks` is working memory on the device, a word for each
 * block, at a multiple of 4: encode wants zeros in it, and whoever comes next finds what it likes.
 * `first` is a multiple of the block.
 */
typedef struct gw_cuda_randomk_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec, const float *src,
                          float *residual, size_t count, uint64_t first, uint64_t shared_key,
                          uint8_t *dst, uint32_t *marks, gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                         const uint8_t *payload, size_t count, float *dst, uint32_t *marks,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec,
                       const uint8_t *payload, size_t count, float *dst, uint32_t *marks,
                       gw_cuda_result_t *result);
    /* into = into + from, without decoding: GW_F32 values only (else GW_ERR_UNSUPPORTED). Blocks
     * that are not valid in both, or that drew other places, are counted as invalid and left. */
    gw_status_t (*merge)(gw_cuda_queue_t *queue, const gw_randomk_spec_t *spec, const uint8_t *from,
                         size_t count, uint8_t *into, uint32_t *marks, gw_cuda_result_t *result);
} gw_cuda_randomk_kernels_t;

/*
 * Codec topk, of binary32 elements: exact selection, values that are no buckets. `picked` is
 * working memory on the device, two words for each slot of all blocks as if all were whole, at a
 * multiple of 4; its contents are anything. `poisoned` counts blocks in which anything is not
 * finite.
 */
typedef struct gw_cuda_topk_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout, const float *src,
                          float *residual, size_t count, uint8_t *dst, uint32_t *picked,
                          gw_cuda_result_t *result);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout,
                         const uint8_t *payload, size_t count, float *dst,
                         gw_cuda_result_t *result);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_topk_layout_t *layout,
                       const uint8_t *payload, size_t count, float *dst, gw_cuda_result_t *result);
} gw_cuda_topk_kernels_t;

/*
 * Codec block. Elements are those of `from`: GW_F32, or the type of the wire. `work` is working
 * memory on the device of gw__cuda_block_work() words, at a multiple of 4; its contents are
 * anything. `poisoned` counts domains in which anything is not finite, where there is a residual or
 * the largest are sent.
 *
 * Reading, the payload is one that the codec's decoder on the CPU accepts, and starts[i] is where
 * its domain i begins.
 */
typedef struct gw_cuda_block_kernels {
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_block_layout_t *layout, gw_dtype_t from,
                          const void *src, float *residual, size_t count, uint8_t *dst,
                          uint32_t *work, gw_cuda_result_t *result);
    /* Elements of `to`: GW_F32, or the type of the wire. */
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                         const uint8_t *payload, const uint32_t *starts, size_t count,
                         gw_dtype_t to, void *dst);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_block_layout_t *layout,
                       const uint8_t *payload, const uint32_t *starts, size_t count, float *dst);
} gw_cuda_block_kernels_t;

/* Words for encoding: a bitmap and a length for each domain. */
static inline size_t gw__cuda_block_work(const gw_block_layout_t *layout, size_t count)
{
    size_t domains = (count + ((size_t)1 << layout->log2_domain) - 1) >> layout->log2_domain;
    return domains * (gw__cuda_block_words(layout->log2_size, layout->log2_domain) + 1);
}

/* As the CPU's: a panel is in host memory, matrices and factors on the device. */
typedef struct gw_cuda_lowrank_kernels {
    gw_status_t (*project)(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel,
                           const float *src, const float *residual, float scale, const float *q,
                           float *p);
    gw_status_t (*collect)(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel,
                           const float *src, const float *residual, float scale, const float *p,
                           float *q);
    gw_status_t (*store)(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                         const float *q, float factor, float *dst);
    gw_status_t (*add)(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                       const float *q, float factor, float *dst);
    gw_status_t (*keep)(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                        const float *q, float factor, const float *src, float *residual);
} gw_cuda_lowrank_kernels_t;

extern const gw_cuda_quant_kernels_t gw__cuda_quant;
extern const gw_cuda_cast_kernels_t gw__cuda_cast;
extern const gw_cuda_sum_kernels_t gw__cuda_sum;
extern const gw_cuda_sign_kernels_t gw__cuda_sign;
extern const gw_cuda_float_kernels_t gw__cuda_fp8, gw__cuda_fp4;
extern const gw_cuda_rotate_kernels_t gw__cuda_rotate;
extern const gw_cuda_natural_kernels_t gw__cuda_natural;
extern const gw_cuda_randomk_kernels_t gw__cuda_randomk;
extern const gw_cuda_topk_kernels_t gw__cuda_topk;
extern const gw_cuda_block_kernels_t gw__cuda_block;
extern const gw_cuda_lowrank_kernels_t gw__cuda_lowrank;

/* A fat binary for cuModuleLoadData, with the kernels gw_cuda_<family>_*. */
typedef struct gw_cuda_image {
    const char *family;
    const void *data, *end;
} gw_cuda_image_t;

/* The i-th; NULL behind the last one. A build without nvcc has none. */
const gw_cuda_image_t *gw__cuda_image(size_t i);

#endif
