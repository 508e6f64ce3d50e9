/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as objects: made, checked, held, found. */
#include "layouts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

/* ---- Checking ---- */

/* Where the sentence goes. */
typedef struct place {
    char *why;
    size_t size;
} place_t;

static gw_status_t refuse(const place_t *place, const char *format, ...) GW_PRINTF(2, 3);
static gw_status_t refuse(const place_t *place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (place->why)
        vsnprintf(place->why, place->size, format, args);
    va_end(args);
    return GW_ERR_INVALID;
}

/* "tensor 3 ('fc.weight')". */
static const char *about(const gw_tensor_t *tensor, size_t i, char *out, size_t size)
{
    bool named = tensor->name && tensor->name[0];
    snprintf(out, size, named ? "tensor %zu ('%.60s')" : "tensor %zu", i, tensor->name);
    return out;
}

/* UTF-8 is printable, control characters and quotation marks are not: rules and figures hold names.
 */
static bool printable(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7F || *name == '"')
            return false;
    return true;
}

/* Elements by the dimensions; 0 when there are none or too many. */
static size_t product(const gw_tensor_t *tensor)
{
    size_t elements = 1;
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->dim[d] == 0 || elements > (SIZE_MAX >> 4) / tensor->dim[d])
            return 0;
        elements *= tensor->dim[d];
    }
    return elements;
}

/* `end` is that of the tensors before, and becomes that of this one. */
static gw_status_t check_tensor(const gw_tensor_t *tensor, size_t i, size_t elements, size_t *end,
                                const place_t *place)
{
    char it[96];
    about(tensor, i, it, sizeof it);
    if (tensor->name && strlen(tensor->name) >= GW_TENSOR_NAME_MAX)
        return refuse(place, "tensor %zu: a name longer than %d bytes", i, GW_TENSOR_NAME_MAX - 1);
    if (tensor->name && !printable(tensor->name))
        return refuse(place, "tensor %zu: a name with a character that is not text", i);
    if (tensor->ndim < 0 || tensor->ndim > GW_TENSOR_DIMS_MAX)
        return refuse(place, "%s: %d dimensions; 0 to %d are possible", it, tensor->ndim,
                      GW_TENSOR_DIMS_MAX);
    size_t size = product(tensor);
    if (size == 0)
        return refuse(place, "%s: a dimension of 0, or more elements than memory has", it);
    if (tensor->offset < *end)
        return refuse(place, "%s begins at element %zu, before the end of those before it (%zu)",
                      it, tensor->offset, *end);
    if (tensor->offset > elements || size > elements - tensor->offset)
        return refuse(place, "%s: %zu elements from %zu on do not fit into a buffer of %zu", it,
                      size, tensor->offset, elements);
    *end = tensor->offset + size;
    return GW_OK;
}

static gw_status_t check(size_t elements, const gw_tensor_t *tensors, size_t count,
                         const place_t *place)
{
    size_t end = 0;
    if (elements == 0 || elements > SIZE_MAX >> 4)
        return refuse(place, "a buffer of %zu elements", elements);
    if (count == 0 || !tensors)
        return refuse(place, "a layout without tensors");
    if (count > GW_LAYOUT_TENSORS_MAX)
        return refuse(place, "more than %d tensors", GW_LAYOUT_TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        gw_status_t status = check_tensor(&tensors[i], i, elements, &end, place);
        if (status != GW_OK)
            return status;
    }
    return GW_OK;
}

/* ---- Making ---- */

static uint64_t digest_of(const gw_layout_t *layout)
{
    uint64_t hash = gw__mix64(layout->elements ^ gw__mix64(layout->count));
    for (size_t i = 0; i < layout->count; i++) {
        const gw_tensor_t *tensor = &layout->tensor[i];
        hash = gw__mix64(hash ^ tensor->offset);
        hash = gw__mix64(hash ^ (uint64_t)tensor->ndim);
        for (int d = 0; d < tensor->ndim; d++)
            hash = gw__mix64(hash ^ tensor->dim[d]);
        hash = gw__mix64(hash ^ gw__hash_text(tensor->name));
    }
    return hash;
}

gw_status_t gw_layout_create(size_t elements, const gw_tensor_t *tensors, size_t count,
                             gw_layout_t **out, char *why, size_t why_size)
{
    place_t place = {why_size ? why : NULL, why_size};
    if (!out)
        return refuse(&place, "nowhere to put the layout");
    gw_status_t status = check(elements, tensors, count, &place);
    if (status != GW_OK)
        return status;
    size_t names = 0;
    for (size_t i = 0; i < count; i++)
        names += (tensors[i].name ? strlen(tensors[i].name) : 0) + 1;
    gw_layout_t *layout = calloc(1, sizeof *layout + count * sizeof *tensors + names);
    if (!layout)
        return GW_ERR_NO_MEMORY;
    atomic_init(&layout->holds, 1);
    layout->elements = elements;
    layout->count = count;
    char *name = layout->names = (char *)&layout->tensor[count];
    for (size_t i = 0; i < count; i++) {
        const char *given = tensors[i].name ? tensors[i].name : "";
        layout->tensor[i] = tensors[i];
        layout->tensor[i].name = name;
        memcpy(name, given, strlen(given) + 1);
        name += strlen(given) + 1;
    }
    layout->digest = digest_of(layout);
    *out = layout;
    return GW_OK;
}

gw_layout_t *gw__layout_hold(gw_layout_t *layout)
{
    atomic_fetch_add(&layout->holds, 1);
    return layout;
}

void gw_layout_free(gw_layout_t *layout)
{
    if (layout && atomic_fetch_sub(&layout->holds, 1) == 1)
        free(layout);
}

/* ---- Asking ---- */

size_t gw_layout_elements(const gw_layout_t *layout)
{
    return layout->elements;
}

size_t gw_layout_count(const gw_layout_t *layout)
{
    return layout->count;
}

uint64_t gw_layout_digest(const gw_layout_t *layout)
{
    return layout->digest;
}

gw_status_t gw_layout_tensor(const gw_layout_t *layout, size_t i, gw_tensor_t *out)
{
    if (!layout || i >= layout->count)
        return GW_ERR_NOT_FOUND;
    *out = layout->tensor[i];
    return GW_OK;
}

size_t gw__tensor_elements(const gw_tensor_t *tensor)
{
    return product(tensor);
}

void gw__tensor_shape(const gw_tensor_t *tensor, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "scalar");
    for (int d = 0; d < tensor->ndim && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, d ? "x%zu" : "%zu", tensor->dim[d]);
}

/* ---- Lists ---- */

void gw__layouts_free(gw__layouts_t *layouts)
{
    for (int i = 0; i < layouts->count; i++)
        gw_layout_free(layouts->entry[i].layout);
    free(layouts->entry);
    *layouts = (gw__layouts_t){0};
}

static int index_of(const gw__layouts_t *layouts, size_t elements, long slot)
{
    for (int i = 0; i < layouts->count; i++)
        if (layouts->entry[i].layout->elements == elements && layouts->entry[i].slot == slot)
            return i;
    return -1;
}

static void summarize(gw__layouts_t *layouts)
{
    layouts->slots = false;
    layouts->digest = (uint64_t)layouts->count;
    for (int i = 0; i < layouts->count; i++) {
        const gw__layout_entry_t *entry = &layouts->entry[i];
        layouts->slots |= entry->slot > 0;
        layouts->digest = gw__mix64(layouts->digest ^ entry->layout->digest);
        layouts->digest = gw__mix64(layouts->digest ^ (uint64_t)entry->slot);
    }
}

static void take_out(gw__layouts_t *layouts, int i)
{
    gw_layout_free(layouts->entry[i].layout);
    layouts->count--;
    memmove(&layouts->entry[i], &layouts->entry[i + 1],
            (size_t)(layouts->count - i) * sizeof *layouts->entry);
}

gw_status_t gw__layouts_set(gw__layouts_t *layouts, size_t elements, long slot, gw_layout_t *layout)
{
    int i = index_of(layouts, elements, slot);
    if (!layout) {
        if (i >= 0)
            take_out(layouts, i);
    } else if (i >= 0) {
        gw_layout_free(layouts->entry[i].layout);
        layouts->entry[i].layout = layout;
    } else {
        size_t size = (size_t)(layouts->count + 1) * sizeof *layouts->entry;
        gw__layout_entry_t *more = realloc(layouts->entry, size);
        if (!more)
            return GW_ERR_NO_MEMORY;
        layouts->entry = more;
        more[layouts->count++] = (gw__layout_entry_t){.layout = layout, .slot = slot};
    }
    summarize(layouts);
    return GW_OK;
}

const gw_layout_t *gw__layouts_find(const gw__layouts_t *layouts, size_t elements, long slot)
{
    int i = slot > 0 && layouts->slots ? index_of(layouts, elements, slot) : -1;
    if (i < 0 && layouts->count > 0)
        i = index_of(layouts, elements, 0);
    return i < 0 ? NULL : layouts->entry[i].layout;
}
