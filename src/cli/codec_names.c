/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a codec family, one after the other. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

const char *gw_cli_next_codec(const gw_codec_t *family, const char *from, gw_coder_t *out,
                              char *why, size_t size)
{
    for (const char *at = from ? from : family->names; *at;) {
        char name[GW_CODEC_SPEC_MAX];
        at += strspn(at, " ,");
        size_t length = strcspn(at, " ,");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        if (length > 0 && gw_coder_parse(name, out, why, size) == GW_OK)
            return at;
    }
    return NULL;
}
