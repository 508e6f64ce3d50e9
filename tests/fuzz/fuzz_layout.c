/* SPDX-License-Identifier: Apache-2.0 */
/* The layout file: any bytes are refused with line and column, or give layouts whose text gives the
 * same ones, and which can be split under rules. */
#include "fuzz.h"

#include "context_internal.h"
#include "layouts.h"
#include "parts.h"

/* The layouts as a file again. */
static char *print(const gw__layouts_t *layouts, size_t *length)
{
    char *text = NULL, shape[GW__SHAPE_TEXT_MAX];
    FILE *out = open_memstream(&text, length);
    fuzz_require(out);
    for (int i = 0; i < layouts->count; i++) {
        const gw__layout_entry_t *entry = &layouts->entry[i];
        fprintf(out, "buffer %zu", gw_layout_elements(entry->layout));
        if (entry->slot > 0)
            fprintf(out, " slot=%ld", entry->slot);
        fputc('\n', out);
        gw_tensor_t tensor;
        for (size_t t = 0; gw_layout_tensor(entry->layout, t, &tensor) == GW_OK; t++) {
            gw__tensor_shape(&tensor, shape, sizeof shape);
            fprintf(out, "tensor \"%s\" %s at=%zu\n", tensor.name, shape, tensor.offset);
        }
    }
    fclose(out);
    return text;
}

/* A split takes memory by tensors, never by elements. */
static void check_splits(const gw_context_t *context, const gw__layouts_t *layouts)
{
    gw_coder_t raw;
    fuzz_require(gw_coder_parse("raw", &raw, NULL, 0) == GW_OK);
    for (int i = 0; i < layouts->count && i < 8; i++) {
        const gw__layout_entry_t *entry = &layouts->entry[i];
        const gw_layout_t *layout = entry->layout;
        gw_call_t call = {GW_ALLREDUCE, i % 3, GW_SUM, gw_layout_elements(layout), NULL, NULL, 0};
        gw_comm_facts_t facts = {.size = 2 + i, .slot = entry->slot};
        size_t covered = 0;
        fuzz_require(gw__layouts_find(layouts, call.count, facts.slot) == layout);
        gw__split_t *split = gw__split_make(context, layout, &call, &facts, &raw);
        fuzz_require(split);
        for (size_t p = 0; p < split->parts; p++)
            covered += split->part[p].count;
        fuzz_require(covered == call.count);
        gw__split_free(split);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gw_context_t *context;
    char *text = fuzz_alloc(size), why[512] = "";
    gw__layouts_t layouts, again;
    size_t length = 0;
    if (!context)
        fuzz_require(gw_context_create(NULL, 0, &context, NULL, 0) == GW_OK);
    if (size)
        memcpy(text, data, size);
    gw_status_t status = gw__layouts_parse(text, size, &layouts, why, sizeof why);
    if (status == GW_OK) {
        char *printed = print(&layouts, &length);
        fuzz_require(gw__layouts_parse(printed, length, &again, why, sizeof why) == GW_OK);
        fuzz_require(again.count == layouts.count && again.digest == layouts.digest);
        check_splits(context, &layouts);
        gw__layouts_free(&again);
        gw__layouts_free(&layouts);
        free(printed);
    } else {
        fuzz_require(status == GW_ERR_BAD_SETTING);
        fuzz_require(strncmp(why, "line ", 5) == 0);
    }
    free(text);
    return 0;
}
