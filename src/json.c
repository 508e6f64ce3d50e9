/* SPDX-License-Identifier: Apache-2.0 */
/* JSON string literals, for the stats file and for the tool. */
#include <stdio.h>

#include <gradwire/context.h>

/* Bytes of the UTF-8 sequence at `c`, 0 when it is none: names come from applications, and may have
 * been cut. */
static int utf8_length(const unsigned char *c)
{
    int n = c[0] < 0x80 ? 1 : c[0] >= 0xC2 && c[0] < 0xE0 ? 2 : (c[0] & 0xF0) == 0xE0 ? 3 : 0;
    if (c[0] >= 0xF0 && c[0] <= 0xF4)
        n = 4;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xF0 && c[1] < 0x90);
    bool outside = (c[0] == 0xED && c[1] >= 0xA0) || (c[0] == 0xF4 && c[1] >= 0x90);
    return overlong || outside ? 0 : n;
}

void gw_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = utf8_length(c);
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else if (n == 0)
            fputs("\\ufffd", out);
        else
            fwrite(c, 1, (size_t)n, out);
        c += n > 0 ? n : 1;
    }
    fputc('"', out);
}
