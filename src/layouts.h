/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts inside: the object, and the file of GRADWIRE_LAYOUT. */
#ifndef GW_LAYOUTS_H
#define GW_LAYOUTS_H

#include <stdatomic.h>

#include <gradwire/layout.h>

/* Bounds of a file: more than anybody writes, and little enough to be read in no time. */
enum {
    GW__LAYOUTS_FILE_MAX = 8 * 1024 * 1024, /* bytes */
    GW__LAYOUTS_MAX = 1024                  /* buffers */
};

struct gw_layout {
    atomic_int holds;
    size_t elements, count;
    uint64_t digest;
    char *names;
    gw_tensor_t tensor[];
};

/* One more hold on it. */
gw_layout_t *gw__layout_hold(gw_layout_t *layout);

/* Elements of a tensor that was checked. */
size_t gw__tensor_elements(const gw_tensor_t *tensor);

/* "64x3x7x7", or "scalar". */
enum { GW__SHAPE_TEXT_MAX = 21 * GW_TENSOR_DIMS_MAX + 1 };
void gw__tensor_shape(const gw_tensor_t *tensor, char *out, size_t size);

/* A layout and the calls that it is for. */
typedef struct gw__layout_entry {
    gw_layout_t *layout; /* held */
    int line;            /* of its file */
    long slot;           /* 0: any place */
} gw__layout_entry_t;

typedef struct gw__layouts {
    gw__layout_entry_t *entry;
    int count;
    bool slots;      /* one of them asks for a place */
    uint64_t digest; /* of all of them, in their order */
} gw__layouts_t;

/*
 * Parses the text of a file; any bytes give layouts or an error. GW_ERR_BAD_SETTING with line,
 * column and reason in `why`; GW_ERR_NO_MEMORY. Free with gw__layouts_free; nothing to free after
 * an error.
 */
gw_status_t gw__layouts_parse(const char *text, size_t length, gw__layouts_t *out, char *why,
                              size_t why_size);

/* The same of a file. Anything but a regular file is refused, for it could make us wait. */
gw_status_t gw__layouts_read(const char *path, gw__layouts_t *out, char *why, size_t why_size);

void gw__layouts_free(gw__layouts_t *layouts);

/* Puts a layout in place of the one for the same calls, or at the end; NULL takes that one out.
 * GW_ERR_NO_MEMORY: nothing was changed. The hold goes over to the list. */
gw_status_t gw__layouts_set(gw__layouts_t *layouts, size_t elements, long slot,
                            gw_layout_t *layout);

/* The layout of a call of so many elements in this place: the one for that place, or the one for
 * any, or NULL. */
const gw_layout_t *gw__layouts_find(const gw__layouts_t *layouts, size_t elements, long slot);

#endif
