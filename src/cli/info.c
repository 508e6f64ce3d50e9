/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire info`: what this build can do and which settings are in effect. */
#include <string.h>

#include "cli.h"
#include "info_matrix.h"

/* What a setting's value stands for, where that is another text: `auto:bits=4` is a codec. */
static const char *resolved(const gw_setting_info_t *s, gw_coder_t *coder)
{
    if (strcmp(s->name, "GRADWIRE_CODEC") != 0 || gw_coder_parse(s->value, coder, NULL, 0) != GW_OK)
        return NULL;
    return strcmp(coder->spec, s->value) == 0 ? NULL : coder->spec;
}

static void print_settings(const gw_context_t *context)
{
    gw_setting_info_t s;
    gw_coder_t coder;
    puts("\nsettings (value, origin):");
    for (size_t i = 0; gw_setting_at(context, i, &s) == GW_OK; i++) {
        const char *meant = resolved(&s, &coder);
        printf("  %-24s %s%s%s", s.name, s.value[0] ? s.value : "-", meant ? " = " : "",
               meant ? meant : "");
        printf("  (%s)\n  %-24s   %s: %s\n", s.origin, "", s.type, s.help);
    }
}

static void print_rules(const gw_context_t *context)
{
    char text[GW_RULE_TEXT_MAX];
    int line;
    for (size_t i = 0; gw_rule_at(context, i, &line, text, sizeof text) == GW_OK; i++)
        printf("%s  line %-4d %s\n", i ? "" : "\nrules (first match wins):\n", line, text);
}

/* The call of a layout that its choices are shown for; rules may say otherwise of others. */
static gw_call_t call_of(const gw_layout_t *layout)
{
    return (gw_call_t){GW_ALLREDUCE, GW_F32, GW_SUM, gw_layout_elements(layout), NULL, NULL, 0};
}

static void print_tensors(const gw_context_t *context, const gw_layout_t *layout, long slot)
{
    const gw_call_t call = call_of(layout);
    const gw_comm_facts_t facts = {.size = 2, .slot = slot};
    gw_tensor_choice_t choice;
    gw_tensor_t tensor;
    for (size_t i = 0; gw_layout_tensor(layout, i, &tensor) == GW_OK; i++) {
        if (gw_layout_choice(context, layout, &call, &facts, i, &choice) != GW_OK)
            continue;
        printf("    %-40s ", tensor.name);
        for (int d = 0; d < tensor.ndim; d++)
            printf(d ? "x%zu" : "%zu", tensor.dim[d]);
        printf("%s at %zu: %s (%s)\n", tensor.ndim ? "" : "scalar", tensor.offset,
               choice.coder ? choice.coder->spec : "exact", choice.why);
    }
}

static void print_layouts(const gw_context_t *context)
{
    const gw_layout_t *layout;
    long slot;
    int line;
    for (size_t i = 0; gw_layout_at(context, i, &layout, &line, &slot) == GW_OK; i++) {
        printf("%s  line %-4d buffer of %zu elements", i ? "" : "\nlayouts (f32, 2 ranks):\n", line,
               gw_layout_elements(layout));
        if (slot > 0)
            printf(", place %ld", slot);
        printf(", %zu tensors\n", gw_layout_count(layout));
        print_tensors(context, layout, slot);
    }
}

static void print_params(const gw_codec_t *codec)
{
    for (const gw_codec_param_t *p = codec->params; p && p->name; p++) {
        printf("      %s=%s  ", p->name, p->def);
        if (p->type == GW_PARAM_INT)
            printf("%.0f to %.0f: ", p->min, p->max);
        else if (p->type == GW_PARAM_REAL)
            printf("%.9g to %.9g: ", p->min, p->max);
        else if (p->type == GW_PARAM_CHOICE)
            printf("%s: ", p->choices);
        else
            printf("on|off: ");
        printf("%s\n", p->help);
    }
}

static void print_budgets(void)
{
    double bits;
    const char *spec;
    puts("\ndefaults by budget (auto:bits=N is that of the largest one that is not above N bits an "
         "element):");
    for (size_t i = 0; (spec = gw_codec_budget_at(i, &bits)); i++)
        printf("  bits=%-7.9g %s\n", bits, spec);
}

/* The versions of CUDA that the driver counts as 13000 are called 13.0. */
static void print_devices(void)
{
    char why[256] = "";
    int count = 0, version = 0;
    gw_device_info_t device;
    const char *kernels = gw_device_kernels();
    printf("\nGPU kernels: %s; ", kernels[0] ? kernels : "none in this build");
    if (gw_device_count(&count, &version, why, sizeof why) != GW_OK) {
        printf("no GPU: %s\n", why);
        return;
    }
    printf("%d GPU%s, driver for CUDA %d.%d\n", count, count == 1 ? "" : "s", version / 1000,
           version % 1000 / 10);
    for (int i = 0; i < count; i++)
        if (gw_device_at(i, &device, why, sizeof why) == GW_OK)
            printf("  %d: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", i,
                   device.name, device.major, device.minor, device.multiprocessors,
                   (double)device.bytes / (1 << 30));
        else
            printf("  %d: %s\n", i, why);
}

static void print_text(const gw_context_t *context)
{
    printf("gradwire %s (wire revision %d)\n\nkernels: %s in use;", gw_version(), GW_WIRE_REVISION,
           gw_kernel_tier());
    bool available;
    const char *tier;
    for (size_t i = 0; (tier = gw_kernel_tier_at(i, &available)); i++)
        printf(" %s%s", tier, available ? "" : " (not on this machine)");
    puts("");
    print_devices();
    puts("\ncodecs:");
    const gw_codec_t *codec;
    for (size_t i = 0; (codec = gw_codec_at(i)); i++) {
        printf("  %-12s %s, id %u: %s\n", codec->names, codec->family, codec->id, codec->summary);
        print_params(codec);
    }
    puts("");
    gw_matrix_print(stdout, GW_MATRIX_TEXT);
    print_budgets();
    puts("\ntransports:");
    const char *name;
    for (size_t i = 0; (name = gw_transport_name_at(i)); i++) {
        const gw_transport_t *t;
        char why[256] = "";
        if (gw_transport_find(name, &t, why, sizeof why) == GW_OK &&
            (!t->probe || t->probe(why, sizeof why) == GW_OK))
            printf("  %-12s %s\n", name, t->summary);
        else
            printf("  %-12s not usable here: %s\n", name, why);
    }
    print_settings(context);
    print_rules(context);
    print_layouts(context);
}

static void json_param(const gw_codec_param_t *p, bool first)
{
    static const char *const types[] = {"int", "real", "switch", "choice"};
    printf("%s{\"name\": \"%s\", \"type\": \"%s\", \"default\": \"%s\"", first ? "" : ", ", p->name,
           types[p->type], p->def);
    if (p->type == GW_PARAM_INT)
        printf(", \"min\": %.0f, \"max\": %.0f", p->min, p->max);
    else if (p->type == GW_PARAM_REAL)
        printf(", \"min\": %.9g, \"max\": %.9g", p->min, p->max);
    if (p->type == GW_PARAM_CHOICE)
        printf(", \"choices\": \"%s\"", p->choices);
    printf(", \"help\": ");
    gw_json_string(stdout, p->help);
    putchar('}');
}

static void json_codecs(void)
{
    const gw_codec_t *codec;
    for (size_t i = 0; (codec = gw_codec_at(i)); i++) {
        printf("%s{\"names\": \"%s\", \"family\": \"%s\", \"id\": %u, \"lossy\": %s, \"summary\": ",
               i ? ", " : "", codec->names, codec->family, codec->id,
               codec->flags & GW_CODEC_LOSSY ? "true" : "false");
        gw_json_string(stdout, codec->summary);
        printf(", \"params\": [");
        for (const gw_codec_param_t *p = codec->params; p && p->name; p++)
            json_param(p, p == codec->params);
        printf("]}");
    }
}

static void json_transports(void)
{
    const char *name;
    for (size_t i = 0; (name = gw_transport_name_at(i)); i++) {
        const gw_transport_t *t = NULL;
        char why[256] = "";
        bool usable = gw_transport_find(name, &t, why, sizeof why) == GW_OK &&
                      (!t->probe || t->probe(why, sizeof why) == GW_OK);
        printf("%s{\"name\": \"%s\", \"usable\": %s, \"%s\": ", i ? ", " : "", name,
               usable ? "true" : "false", usable ? "summary" : "reason");
        gw_json_string(stdout, usable ? t->summary : why);
        putchar('}');
    }
}

static void json_devices(void)
{
    char why[256] = "";
    int count = 0, version = 0;
    gw_device_info_t device;
    gw_status_t status = gw_device_count(&count, &version, why, sizeof why);
    printf("{\"kernels\": ");
    gw_json_string(stdout, gw_device_kernels());
    printf(", \"count\": %d, ", status == GW_OK ? count : 0);
    if (status != GW_OK) {
        printf("\"reason\": ");
        gw_json_string(stdout, why);
    } else {
        printf("\"driver\": \"%d.%d\"", version / 1000, version % 1000 / 10);
    }
    printf(", \"list\": [");
    const char *comma = "";
    for (int i = 0; status == GW_OK && i < count; i++) {
        if (gw_device_at(i, &device, why, sizeof why) != GW_OK)
            continue;
        printf("%s{\"ordinal\": %d, \"name\": ", comma, i);
        comma = ", ";
        gw_json_string(stdout, device.name);
        printf(", \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"bytes\": %llu}",
               device.major, device.minor, device.multiprocessors,
               (unsigned long long)device.bytes);
    }
    printf("]}");
}

static void json_budgets(void)
{
    double bits;
    const char *spec;
    for (size_t i = 0; (spec = gw_codec_budget_at(i, &bits)); i++)
        printf("%s{\"bits\": %.9g, \"codec\": \"%s\"}", i ? ", " : "", bits, spec);
}

static void json_settings(const gw_context_t *context)
{
    gw_setting_info_t s;
    gw_coder_t coder;
    for (size_t i = 0; gw_setting_at(context, i, &s) == GW_OK; i++) {
        printf("%s{\"name\": \"%s\", \"value\": ", i ? ", " : "", s.name);
        gw_json_string(stdout, s.value);
        const char *meant = resolved(&s, &coder);
        if (meant) {
            printf(", \"resolved\": ");
            gw_json_string(stdout, meant);
        }
        printf(", \"default\": ");
        gw_json_string(stdout, s.def);
        printf(", \"type\": \"%s\", \"origin\": \"%s\", \"help\": ", s.type, s.origin);
        gw_json_string(stdout, s.help);
        putchar('}');
    }
}

static void json_rules(const gw_context_t *context)
{
    char text[GW_RULE_TEXT_MAX];
    int line;
    for (size_t i = 0; gw_rule_at(context, i, &line, text, sizeof text) == GW_OK; i++) {
        printf("%s{\"line\": %d, \"rule\": ", i ? ", " : "", line);
        gw_json_string(stdout, text);
        putchar('}');
    }
}

static void json_tensors(const gw_context_t *context, const gw_layout_t *layout, long slot)
{
    const gw_call_t call = call_of(layout);
    const gw_comm_facts_t facts = {.size = 2, .slot = slot};
    gw_tensor_choice_t choice;
    gw_tensor_t tensor;
    for (size_t i = 0; gw_layout_tensor(layout, i, &tensor) == GW_OK; i++) {
        if (gw_layout_choice(context, layout, &call, &facts, i, &choice) != GW_OK)
            continue;
        printf("%s{\"name\": ", i ? ", " : "");
        gw_json_string(stdout, tensor.name);
        printf(", \"offset\": %zu, \"shape\": [", tensor.offset);
        for (int d = 0; d < tensor.ndim; d++)
            printf(d ? ", %zu" : "%zu", tensor.dim[d]);
        printf("], \"codec\": \"%s\", \"why\": \"%s\"}", choice.coder ? choice.coder->spec : "raw",
               choice.why);
    }
}

static void json_layouts(const gw_context_t *context)
{
    const gw_layout_t *layout;
    long slot;
    int line;
    for (size_t i = 0; gw_layout_at(context, i, &layout, &line, &slot) == GW_OK; i++) {
        printf("%s{\"line\": %d, \"elements\": %zu, \"slot\": %ld, \"tensors\": [", i ? ", " : "",
               line, gw_layout_elements(layout), slot);
        json_tensors(context, layout, slot);
        printf("]}");
    }
}

static void print_json(const gw_context_t *context)
{
    printf("{\"version\": \"%s\", \"wire_revision\": %d, \"kernels\": {\"in_use\": \"%s\", "
           "\"tiers\": [",
           gw_version(), GW_WIRE_REVISION, gw_kernel_tier());
    bool available;
    const char *tier;
    for (size_t i = 0; (tier = gw_kernel_tier_at(i, &available)); i++)
        printf("%s{\"name\": \"%s\", \"available\": %s}", i ? ", " : "", tier,
               available ? "true" : "false");
    printf("]}, \"devices\": ");
    json_devices();
    printf(", \"codecs\": [");
    json_codecs();
    printf("], \"matrix\": [");
    gw_matrix_print(stdout, GW_MATRIX_JSON);
    printf("], \"budgets\": [");
    json_budgets();
    printf("], \"transports\": [");
    json_transports();
    printf("], \"settings\": [");
    json_settings(context);
    printf("], \"rules\": [");
    json_rules(context);
    printf("], \"layouts\": [");
    json_layouts(context);
    puts("]}");
}

/* The settings table as Markdown, for the README. */
static void markdown_settings(void)
{
    gw_setting_info_t s;
    puts("| setting | default | values | meaning |\n|---|---|---|---|");
    for (size_t i = 0; gw_setting_at(NULL, i, &s) == GW_OK; i++) {
        printf("| %s | %s | ", s.name, s.def);
        for (const char *c = s.type; *c; c++)
            printf(*c == '|' ? "\\%c" : "%c", *c);
        printf(" | %s |\n", s.help);
    }
}

/* Tables as Markdown; `which` is "settings", "codecs" or NULL for both. */
static int print_markdown(const char *which)
{
    bool settings = !which || strcmp(which, "settings") == 0;
    bool codecs = !which || strcmp(which, "codecs") == 0;
    if (!settings && !codecs) {
        fprintf(stderr, "gradwire info --markdown %.100s: must be settings or codecs\n", which);
        return 2;
    }
    if (settings)
        markdown_settings();
    if (!which)
        puts("");
    if (codecs)
        gw_matrix_print(stdout, GW_MATRIX_MARKDOWN);
    return 0;
}

static int usage(bool help)
{
    fputs("usage: gradwire info [--json | --markdown [settings | codecs]]\n"
          "  --json      one JSON object\n"
          "  --markdown  the settings table as the README has it, and the matrix of codecs as "
          "codecs/README.md has it\n",
          help ? stdout : stderr);
    return help ? 0 : 2;
}

int gw_cli_info(int argc, char **argv)
{
    const char *form = argc >= 2 ? argv[1] : "";
    if (argc <= 3 && strcmp(form, "--markdown") == 0)
        return print_markdown(argc == 3 ? argv[2] : NULL);
    if (argc > 2 || (argc == 2 && strcmp(form, "--json") != 0))
        return usage(argc == 2 && strcmp(form, "--help") == 0);
    gw_context_t *context;
    char why[256] = "";
    if (gw_context_create(NULL, 0, &context, why, sizeof why) != GW_OK) {
        fprintf(stderr, "gradwire info: %s\n", why);
        return 1;
    }
    if (argc == 2)
        print_json(context);
    else
        print_text(context);
    gw_context_free(context);
    return 0;
}
