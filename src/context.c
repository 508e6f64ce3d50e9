/* SPDX-License-Identifier: Apache-2.0 */
/* The context: settings, log and statistics that the communicators of one rank share. */
#include "context_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "kernels.h"

/* All contexts, so that figures are written also when the program exits without freeing them. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_context_t *all;

/* The writer's: the figures as they are now. Tells once that the file cannot be written, and goes
 * on: figures are no reason to stop a job. */
static gw_status_t write_file(void *arg)
{
    gw_context_t *context = arg;
    char *bytes = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&bytes, &length);
    if (!memory)
        return GW_ERR_NO_MEMORY;
    pthread_mutex_lock(&context->lock);
    gw_status_t status =
        gw__stats_print(&context->stats, context->residual_bytes, context->residual_slots, memory);
    int rank = context->stats.rank, size = context->stats.size;
    pthread_mutex_unlock(&context->lock);
    if (fclose(memory) != 0 && status == GW_OK)
        status = GW_ERR_NO_MEMORY;
    if (status == GW_OK)
        status = gw__stats_replace(context->stats_file, rank, size, bytes, length);
    if (status != GW_OK && !context->told_unwritable)
        gw_context_log(context, GW_LOG_WARN, "GRADWIRE_STATS=%s: cannot be written: %s",
                       context->settings.text[GW__SETTING_STATS],
                       status == GW_ERR_IO ? strerror(errno) : gw_status_text(status));
    context->told_unwritable = status != GW_OK;
    free(bytes);
    return status;
}

static gw_status_t open_stats(gw_context_t *context)
{
    const char *pattern = context->settings.text[GW__SETTING_STATS];
    context->stats.size = 1;
    if (!pattern[0])
        return GW_OK;
    context->stats_file = gw__stats_absolute(pattern);
    if (!context->stats_file)
        return GW_ERR_NO_MEMORY;
    gw__stats_writer_init(&context->writer, write_file, context);
    return GW_OK;
}

/* Whether the plan that is set can serve the codec of every rule. */
static gw_status_t allow_rules(const gw_context_t *context, char *why, size_t why_size)
{
    for (int i = 0; i < context->rules.count; i++) {
        const gw__rule_t *rule = &context->rules.rule[i];
        char reason[320];
        if (rule->exclude ||
            gw__settings_allow(&context->settings, &rule->coder, reason, sizeof reason) == GW_OK)
            continue;
        snprintf(why, why_size, "line %d: GRADWIRE_PLAN=%s: %s", rule->line,
                 context->settings.plan == GW__PLAN_ONLY_RING ? "ring" : "tree", reason);
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

/* What is wrong with the file of a setting. A long path is cut in front, so that there is room for
 * the reason. */
static void tell_file(const char *setting, const char *path, const char *reason, char *why,
                      size_t why_size)
{
    size_t length = strlen(path), shown = length > 100 ? 97 : length;
    snprintf(why, why_size, "%s=%s%s: %s", setting, shown < length ? "..." : "",
             path + length - shown, reason);
}

/* The rules of GRADWIRE_CONFIG, and the layouts of GRADWIRE_LAYOUT. */
static gw_status_t read_files(gw_context_t *context, char *why, size_t why_size)
{
    const char *rules = context->settings.text[GW__SETTING_CONFIG];
    const char *layouts = context->settings.text[GW__SETTING_LAYOUT];
    char reason[384] = "";
    gw_status_t status = GW_OK;
    if (rules[0])
        status = gw__rules_read(rules, &context->rules, reason, sizeof reason);
    if (rules[0] && status == GW_OK)
        status = allow_rules(context, reason, sizeof reason);
    if (status != GW_OK) {
        tell_file("GRADWIRE_CONFIG", rules, reason[0] ? reason : gw_status_text(status), why,
                  why_size);
        return status;
    }
    if (layouts[0])
        status = gw__layouts_read(layouts, &context->layouts, reason, sizeof reason);
    if (status != GW_OK)
        tell_file("GRADWIRE_LAYOUT", layouts, reason[0] ? reason : gw_status_text(status), why,
                  why_size);
    return status;
}

static gw_status_t select_kernels(gw_context_t *context, char *why, size_t why_size)
{
    const char *tier = context->settings.text[GW__SETTING_KERNELS];
    char reason[256] = "";
    if (gw__kernels_select(tier, reason, sizeof reason) == GW_OK)
        return GW_OK;
    snprintf(why, why_size, "GRADWIRE_KERNELS=%s: %s", tier, reason);
    return GW_ERR_BAD_SETTING;
}

gw_status_t gw_context_create(const gw_setting_t *overrides, size_t count, gw_context_t **out,
                              char *why, size_t why_size)
{
    char unused[1];
    if (!why) {
        why = unused;
        why_size = sizeof unused;
    }
    if (!out || (count > 0 && !overrides))
        return GW_ERR_INVALID;
    gw_context_t *context = aligned_alloc(_Alignof(gw_context_t), sizeof *context);
    if (!context)
        return GW_ERR_NO_MEMORY;
    memset(context, 0, sizeof *context);
    gw_status_t status = gw__settings_read(&context->settings, overrides, count, why, why_size);
    if (status == GW_OK)
        status = read_files(context, why, why_size);
    if (status == GW_OK)
        status = select_kernels(context, why, why_size);
    if (status != GW_OK)
        goto undo_context;
    const char *file = context->settings.text[GW__SETTING_LOG_FILE];
    status = gw__log_open(&context->log, context->settings.log_level, file);
    if (status != GW_OK) {
        snprintf(why, why_size, "GRADWIRE_LOG_FILE=%s: cannot be opened for writing", file);
        status = GW_ERR_BAD_SETTING;
        goto undo_context;
    }
    status = open_stats(context);
    if (status != GW_OK) {
        snprintf(why, why_size, "GRADWIRE_STATS: %s", gw_status_text(status));
        goto undo_log;
    }
    pthread_mutex_init(&context->lock, NULL);
    if (context->settings.unknown[0])
        gw_context_log(context, GW_LOG_WARN, "unknown setting: %s", context->settings.unknown);
    pthread_mutex_lock(&all_lock);
    context->next = all;
    all = context;
    pthread_mutex_unlock(&all_lock);
    *out = context;
    return GW_OK;

undo_log:
    gw__log_close(&context->log);
undo_context:
    gw__rules_free(&context->rules);
    gw__layouts_free(&context->layouts);
    free(context);
    return status;
}

void gw_context_free(gw_context_t *context)
{
    if (!context)
        return;
    pthread_mutex_lock(&all_lock);
    for (gw_context_t **p = &all; *p; p = &(*p)->next)
        if (*p == context) {
            *p = context->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
    if (context->stats_file)
        gw__stats_writer_close(&context->writer);
    free(context->stats_file);
    gw__stats_book_clear(&context->stats);
    gw__pool_free(context->pool);
    gw__rules_free(&context->rules);
    gw__layouts_free(&context->layouts);
    free(context->facts);
    pthread_mutex_destroy(&context->lock);
    gw__log_close(&context->log);
    free(context);
}

/* At exit: the last figures of contexts that nobody freed. Those of a forked child are copies, and
 * are not written. */
__attribute__((destructor)) static void write_last_figures(void)
{
    if (!all || pthread_mutex_trylock(&all_lock) != 0)
        return;
    for (gw_context_t *c = all; c; c = c->next)
        gw_context_write_stats(c);
    pthread_mutex_unlock(&all_lock);
}

bool gw_context_disabled(const gw_context_t *context)
{
    return context->settings.disabled;
}

void gw_context_log(gw_context_t *context, gw_log_level_t level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gw__log_write(&context->log, level, format, args);
    va_end(args);
}

gw_status_t gw_setting_at(const gw_context_t *context, size_t i, gw_setting_info_t *out)
{
    static const struct gw_setting_info rows[] = {
#define ROW(id, name_, def_, type_, help_)                                                         \
    {.name = name_, .value = def_, .def = def_, .type = type_, .help = help_, .origin = "default"},
        GW__SETTINGS_TABLE(ROW)
#undef ROW
    };
    static const char *const origins[] = {"default", "environment", "override"};
    if (i >= GW__SETTING_COUNT)
        return GW_ERR_NOT_FOUND;
    *out = rows[i];
    if (context) {
        out->value = context->settings.text[i];
        out->origin = origins[context->settings.origin[i]];
    }
    return GW_OK;
}

gw_status_t gw_rule_at(const gw_context_t *context, size_t i, int *line, char *out, size_t size)
{
    if (!context || i >= (size_t)context->rules.count)
        return GW_ERR_NOT_FOUND;
    *line = context->rules.rule[i].line;
    gw__rule_print(&context->rules.rule[i], out, size);
    return GW_OK;
}

unsigned gw_rule_facts(const gw_context_t *context)
{
    return gw__rules_facts(&context->rules) | (context->layouts.slots ? GW_RULE_SLOT : 0u);
}

gw_status_t gw_layout_at(const gw_context_t *context, size_t i, const gw_layout_t **out, int *line,
                         long *slot)
{
    if (!context || i >= (size_t)context->layouts.count)
        return GW_ERR_NOT_FOUND;
    *out = context->layouts.entry[i].layout;
    *line = context->layouts.entry[i].line;
    *slot = context->layouts.entry[i].slot;
    return GW_OK;
}

const char *gw_kernel_tier(void)
{
    return gw__kernels_tier();
}

const char *gw_kernel_tier_at(size_t i, bool *available)
{
    const char *tier = gw__kernels_known(i);
    *available = tier && gw__kernels_of(tier) != NULL;
    return tier;
}

void gw_context_set_rank(gw_context_t *context, int rank, int size)
{
    pthread_mutex_lock(&context->lock);
    context->stats.rank = rank;
    context->stats.size = size;
    pthread_mutex_unlock(&context->lock);
    gw__log_set_rank(&context->log, size > 1 ? rank : -1);
}

void gw_context_stats(const gw_context_t *context, gw_stats_t *out)
{
    pthread_mutex_lock((pthread_mutex_t *)&context->lock);
    gw__stats_sum(&context->stats, out);
    pthread_mutex_unlock((pthread_mutex_t *)&context->lock);
}

gw_status_t gw_context_write_stats(gw_context_t *context)
{
    return context->stats_file ? gw__stats_writer_now(&context->writer) : GW_OK;
}

/* Notes what a call failed of. True when it is the first one of this communicator. */
static bool note_failure(gw_context_t *context, gw__stats_page_t *page,
                         const gw__stats_call_t *call)
{
    if (!page)
        return atomic_load(&context->stats.loose.errors) == 1;
    pthread_mutex_lock(&context->lock);
    page->failed_rank = call->error ? call->failed_rank : -1;
    snprintf(page->error, sizeof page->error, "%s", call->error ? call->error : "");
    pthread_mutex_unlock(&context->lock);
    return atomic_load(&page->counters.errors) == 1;
}

void gw__context_count(gw_context_t *context, gw__stats_page_t *page, const gw__stats_call_t *call)
{
    if (page)
        gw__stats_page_add(page, call);
    else
        gw__stats_loose_add(&context->stats, call);
    bool first = call->failed && note_failure(context, page, call);
    if (!context->stats_file)
        return;
    if (first)
        gw__stats_writer_now(&context->writer);
    else
        gw__stats_writer_changed(&context->writer);
}

void gw_context_count_passed(gw_context_t *context, gw_reason_t reason)
{
    gw__context_count(context, NULL, &(gw__stats_call_t){.reason = reason});
}

void gw__context_warn_once(gw_context_t *context, const char *text)
{
    uint64_t hash = gw__hash_text(text);
    bool told = false;
    pthread_mutex_lock(&context->lock);
    for (unsigned i = 0; i < context->told_count && i < GW__TOLD; i++)
        told |= context->told[i] == hash;
    if (!told)
        context->told[context->told_count++ % GW__TOLD] = hash;
    pthread_mutex_unlock(&context->lock);
    if (!told)
        gw_context_log(context, GW_LOG_WARN, "%s", text);
}

bool gw__context_take_residual(gw_context_t *context, size_t bytes)
{
    pthread_mutex_lock(&context->lock);
    bool fits = bytes <= context->settings.residual_bytes &&
                context->residual_bytes <= context->settings.residual_bytes - bytes;
    if (fits) {
        context->residual_bytes += bytes;
        context->residual_slots++;
    }
    pthread_mutex_unlock(&context->lock);
    return fits;
}

void gw__context_give_residual(gw_context_t *context, size_t bytes)
{
    pthread_mutex_lock(&context->lock);
    context->residual_bytes -= bytes;
    context->residual_slots--;
    pthread_mutex_unlock(&context->lock);
}

/* Caller holds the lock. A map that cannot be read costs the distances only; facts without an
 * interface cost all. */
static void read_facts(gw_context_t *context)
{
    gw_topology_t *topology = NULL;
    char why[256] = "";
    if (gw_topology_load(NULL, &topology, why, sizeof why) != GW_OK)
        gw_context_log(context, GW_LOG_WARN, "hardware map: %s", why);
    context->facts = calloc(1, sizeof *context->facts);
    context->facts_status = GW_ERR_NO_MEMORY;
    if (context->facts)
        context->facts_status =
            gw_node_facts_collect(topology, context->settings.text[GW__SETTING_INTERFACES],
                                  context->facts, context->facts_why, sizeof context->facts_why);
    gw_topology_free(topology);
}

gw_status_t gw__context_facts(gw_context_t *context, gw_node_facts_t *out, char *why,
                              size_t why_size)
{
    pthread_mutex_lock(&context->lock);
    if (!context->facts)
        read_facts(context);
    gw_status_t status = context->facts_status;
    if (status == GW_OK)
        *out = *context->facts;
    else
        snprintf(why, why_size, "%s", context->facts_why);
    pthread_mutex_unlock(&context->lock);
    return status;
}

gw__pool_t *gw__context_pool(gw_context_t *context)
{
    enum { AUTO_MAX = 3 }; /* a call takes no more either: then the memory is the limit */
    int setting = context->settings.threads, others = gw__cpus_allowed() - 1;
    int threads = setting >= 0 ? setting : others < AUTO_MAX ? others : AUTO_MAX;
    if (setting < 0 && threads < 1)
        threads = 1; /* for calls in the order of a stream, which nobody waits for */
    pthread_mutex_lock(&context->lock);
    if (!context->pool)
        context->pool = gw__pool_create(threads);
    gw__pool_t *pool = context->pool;
    pthread_mutex_unlock(&context->lock);
    return pool;
}

gw__speed_t gw__context_speed(gw_context_t *context)
{
    pthread_mutex_lock(&context->lock);
    if (context->speed.encode_ps == 0)
        context->speed = gw__speed_measure(&context->settings.coder);
    gw__speed_t speed = context->speed;
    pthread_mutex_unlock(&context->lock);
    return speed;
}
