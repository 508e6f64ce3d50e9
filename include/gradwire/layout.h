/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: which parts of a flat buffer are which tensors, so that each can have its own codec. */
#ifndef GRADWIRE_LAYOUT_H
#define GRADWIRE_LAYOUT_H

#include <gradwire/comm.h>

#define GW_TENSOR_NAME_MAX    256   /* bytes of a name, with its final NUL */
#define GW_TENSOR_DIMS_MAX    8     /* dimensions */
#define GW_LAYOUT_TENSORS_MAX 65536 /* tensors of a layout */
#define GW_LAYOUT_TINY        1024 /* tensors of fewer elements stay exact unless a rule names them */

/* One tensor, whose elements lie side by side, the last dimension fastest. */
typedef struct gw_tensor {
    const char *name;               /* printable text, for rules and figures; NULL: none */
    size_t offset;                  /* of its first element in the buffer, in elements */
    int ndim;                       /* 0 (a single number) to GW_TENSOR_DIMS_MAX */
    size_t dim[GW_TENSOR_DIMS_MAX]; /* the outermost first; each at least 1 */
} gw_tensor_t;

/* What a buffer of so many elements is made of. Never changes once it is made: any number of
 * threads may read it. */
typedef struct gw_layout gw_layout_t;

/*
 * Describes a buffer of `elements` elements by `count` tensors in order of offset, which may leave
 * elements out (padding) but not overlap. Names and numbers are copied.
 *
 * GW_ERR_INVALID: a sentence that names the tensor and what is wrong with it is in `why` (may be
 * NULL). GW_ERR_NO_MEMORY. *out is written only on success; give it back with gw_layout_free.
 */
GW_API gw_status_t gw_layout_create(size_t elements, const gw_tensor_t *tensors, size_t count,
                                    gw_layout_t **out, char *why, size_t why_size);

/* Gives the caller's hold on it back; communicators that use it keep their own. NULL is fine. Any
 * thread. */
GW_API void gw_layout_free(gw_layout_t *layout);

GW_API size_t gw_layout_elements(const gw_layout_t *layout);
GW_API size_t gw_layout_count(const gw_layout_t *layout); /* tensors */

/* The i-th tensor; its name ("" when it has none) lives as long as the layout. GW_ERR_NOT_FOUND
 * behind the last one. */
GW_API gw_status_t gw_layout_tensor(const gw_layout_t *layout, size_t i, gw_tensor_t *out);

/* The same number for equal layouts, on every machine; another one, but for chance, otherwise. */
GW_API uint64_t gw_layout_digest(const gw_layout_t *layout);

/* The i-th layout of GRADWIRE_LAYOUT, owned by the context, the line of the file that it begins in,
 * and the place in the sequence of calls that it is for (0: any). GW_ERR_NOT_FOUND behind the last
 * one. */
GW_API gw_status_t gw_layout_at(const gw_context_t *context, size_t i, const gw_layout_t **out,
                                int *line, long *slot);

/*
 * From the next call on, gw_allreduce and gw_iallreduce of `elements` elements are carried out
 * tensor by tensor: those of one dimension or of fewer than GW_LAYOUT_TINY elements are summed
 * exactly, all others go with the codec of the call, unless a rule of GRADWIRE_CONFIG names
 * another. `slot` above 0: only the call in that place of the communicator's repeating sequence
 * (gw_call_order_t; it is known after the sequence was seen three times), for buffers of equal size
 * that hold different tensors. It comes before a layout for any place, and both before
 * GRADWIRE_LAYOUT. `layout` NULL: none any more. gw_allreduce_with is not concerned.
 *
 * Collective and blocking like a small all-reduce: all ranks call it at the same point of their
 * sequence of calls, and compare what they give. The communicator holds the layout itself, so the
 * caller may free his. Where a layout changes, the residuals of the calls that it is about start
 * anew, and the log has a line. By the thread that makes the communicator's calls, between them.
 *
 * After an error nothing has changed on any rank, and all ranks return one: GW_ERR_INVALID or
 * GW_ERR_NO_MEMORY on the rank that it belongs to, GW_ERR_SETTINGS_DIFFER on the others or where
 * ranks give different layouts; gw_comm_error names the rank. The communicator can be used on. The
 * errors of gw_allreduce end it as they do there.
 */
GW_API gw_status_t gw_comm_set_layout(gw_comm_t *comm, size_t elements, long slot,
                                      gw_layout_t *layout);

/* What a call does with one tensor. */
typedef struct gw_tensor_choice {
    const struct gw_coder *coder; /* owned by the context; NULL: exact, as codec raw sends it */
    char why[64];                 /* "one dimension", "line 3 of GRADWIRE_CONFIG" */
} gw_tensor_choice_t;

/* What becomes of the i-th tensor of `layout` in such a call. GW_ERR_NOT_FOUND behind the last one.
 * Pure like gw_decide. Any thread. */
GW_API gw_status_t gw_layout_choice(const gw_context_t *context, const gw_layout_t *layout,
                                    const gw_call_t *call, const gw_comm_facts_t *facts, size_t i,
                                    gw_tensor_choice_t *out);

/*
 * gw_allreduce after a decision that the caller asked gw_decide() for, with facts of his own; they
 * are those of the decision. All ranks give the same. A decision without `compress` runs
 * uncompressed.
 */
GW_API gw_status_t gw_allreduce_decided(gw_comm_t *comm, const gw_call_t *call,
                                        const gw_comm_facts_t *facts,
                                        const gw_decision_t *decision);

#endif
