/* SPDX-License-Identifier: Apache-2.0 */
/* The rule file: any bytes are refused with line and column, or give rules that print to the same
 * rules. */
#include "fuzz.h"

#include "rules.h"

static void check_canonical(const gw__rules_t *rules)
{
    size_t room = (size_t)rules->count * (GW__RULES_TEXT_MAX + 1) + 1, used = 0;
    char *text = fuzz_alloc(room), why[512];
    gw__rules_t again;
    for (int i = 0; i < rules->count; i++) {
        char line[GW__RULES_TEXT_MAX];
        gw__rule_print(&rules->rule[i], line, sizeof line);
        fuzz_require(strlen(line) < sizeof line - 1);
        used += (size_t)snprintf(text + used, room - used, "%s\n", line);
    }
    fuzz_require(gw__rules_parse(text, used, &again, why, sizeof why) == GW_OK);
    fuzz_require(again.count == rules->count && again.digest == rules->digest);
    gw__rules_free(&again);
    free(text);
}

static void check_matches(const gw__rules_t *rules)
{
    static const char *const names[] = {NULL, "", "MPI_COMM_WORLD", "tp 3"};
    for (int i = 0; i < 64; i++) {
        gw_call_t call = {GW_ALLREDUCE, i % 3, GW_SUM, (size_t)1 << i % 48, NULL, NULL, 0};
        gw_comm_facts_t facts = {
            .size = 2 + i % 9, .order = (unsigned)i % 5, .name = names[i % 4], .slot = i % 6};
        const gw__rule_t *rule = gw__rules_match(rules, &call, &facts);
        fuzz_require(!rule || rule->exclude || rule->coder.family);
        fuzz_require(!rule || (rule >= rules->rule && rule < rules->rule + rules->count));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_alloc(size), why[512] = "";
    gw__rules_t rules;
    if (size)
        memcpy(text, data, size);
    gw_status_t status = gw__rules_parse(text, size, &rules, why, sizeof why);
    if (status == GW_OK) {
        check_canonical(&rules);
        check_matches(&rules);
        gw__rules_free(&rules);
    } else {
        fuzz_require(status == GW_ERR_BAD_SETTING);
        fuzz_require(strncmp(why, "line ", 5) == 0);
    }
    free(text);
    return 0;
}
