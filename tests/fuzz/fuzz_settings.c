/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: lines of NAME=VALUE as overrides. Each is refused with a reason that names it, or has a
 * value within its bounds. */
#include "fuzz.h"

#include "settings.h"

enum { LINES = 32 };

/* Cuts the text up in place. */
static size_t split(char *text, gw_setting_t *out)
{
    size_t count = 0;
    for (char *line = text, *next; line && count < LINES; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        out[count++] = (gw_setting_t){line, equals + 1};
    }
    return count;
}

static void check_bounds(const gw__settings_t *s)
{
    fuzz_require(s->timeout >= 0.1 && s->timeout <= 1e6);
    fuzz_require(s->threads >= -1 && s->threads <= GW__THREADS_MAX);
    fuzz_require(s->port_min >= 0 && s->port_min <= s->port_max && s->port_max <= 65535);
    fuzz_require(s->coder.family && memchr(s->coder.spec, '\0', sizeof s->coder.spec));
    fuzz_require(s->log_level <= GW_LOG_DEBUG && s->plan <= GW__PLAN_ONLY_GATHER);
    for (int i = 0; i < GW__SETTING_COUNT; i++)
        fuzz_require(memchr(s->text[i], '\0', sizeof s->text[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gw__settings_t settings;
    gw_setting_t overrides[LINES];
    char *text = fuzz_text(data, size), why[400] = "";
    size_t count = split(text, overrides);
    why[sizeof why - 1] = '#';
    gw_status_t status = gw__settings_read(&settings, overrides, count, why, sizeof why - 1);
    fuzz_require(why[sizeof why - 1] == '#');
    if (status == GW_OK) {
        check_bounds(&settings);
    } else {
        fuzz_require(status == GW_ERR_BAD_SETTING);
        fuzz_require(memchr(why, '\0', sizeof why) && why[0]);
    }
    free(text);
    return 0;
}
