/* SPDX-License-Identifier: Apache-2.0 */
/* The setting GRADWIRE_INTERFACES: names and address ranges to use, or after ^ to avoid. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

bool gw__same_prefix(const uint8_t *a, const uint8_t *b, int bits)
{
    int bytes = bits / 8, rest = bits % 8;
    if (memcmp(a, b, (size_t)bytes) != 0)
        return false;
    return rest == 0 || ((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

/* "10.0.0.0/8", "fd00::/64", or an address that stands for itself. */
static const char *parse_range(char *text, gw__ifilter_item_t *item)
{
    char *slash = strchr(text, '/');
    if (slash)
        *slash = '\0';
    if (inet_pton(AF_INET, text, item->addr) == 1)
        item->family = 4;
    else if (inet_pton(AF_INET6, text, item->addr) == 1)
        item->family = 6;
    else
        return "not an address";
    int most = item->family == 4 ? 32 : 128, prefix = most;
    if (slash) {
        char *end = slash + 1;
        size_t digits = strspn(end, "0123456789");
        if (digits == 0 || digits > 3 || end[digits] != '\0')
            return "no number of bits after /";
        prefix = atoi(end);
        if (prefix > most)
            return "more bits after / than the address has";
    }
    item->prefix = (uint8_t)prefix;
    return NULL;
}

static const char *parse_item(char *text, gw__ifilter_item_t *item)
{
    struct in_addr unused;
    if (text[0] == '\0')
        return "empty item";
    if (strchr(text, '^'))
        return "^ may stand only once, in front of the whole list";
    if (strpbrk(text, "/:") || inet_pton(AF_INET, text, &unused) == 1)
        return parse_range(text, item);
    if (strlen(text) >= sizeof item->name)
        return "longer than the name of an interface can be";
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127)
            return "not the name of an interface";
    strcpy(item->name, text);
    return NULL;
}

gw_status_t gw__ifilter_parse(const char *text, gw__ifilter_t *out, char *why, size_t why_size)
{
    gw__ifilter_t filter = {0};
    if (!text || text[0] == '\0') {
        *out = filter;
        return GW_OK;
    }
    const char *all = text;
    filter.avoid = text[0] == '^';
    text += filter.avoid;
    for (bool more = true; more;) {
        char item[64];
        size_t len = strcspn(text, ",");
        if (filter.count == GW__IFILTER_MAX)
            return gw__why(why, why_size, GW_ERR_BAD_SETTING,
                           "GRADWIRE_INTERFACES: more than %d items", GW__IFILTER_MAX);
        snprintf(item, sizeof item, "%.*s", (int)(len < sizeof item ? len : sizeof item - 1), text);
        char shown[64];
        strcpy(shown, item);
        const char *reason = parse_item(item, &filter.item[filter.count++]);
        if (reason)
            return gw__why(why, why_size, GW_ERR_BAD_SETTING,
                           "GRADWIRE_INTERFACES=%.80s: \"%s\": %s (wanted: names or ranges such as "
                           "eth0,10.0.0.0/8, or ^docker0,192.168.0.0/16 to avoid some)",
                           all, shown, reason);
        more = text[len] == ',';
        text += len + more;
    }
    *out = filter;
    return GW_OK;
}

static bool matches(const gw__ifilter_item_t *item, const char *name, int family,
                    const uint8_t *addr)
{
    if (item->family == 0)
        return strcmp(item->name, name) == 0;
    return item->family == family && gw__same_prefix(item->addr, addr, item->prefix);
}

bool gw__ifilter_pass(const gw__ifilter_t *filter, const char *name, int family,
                      const uint8_t *addr)
{
    bool hit = false;
    for (int i = 0; !hit && i < filter->count; i++)
        hit = matches(&filter->item[i], name, family, addr);
    return filter->count == 0 || hit != filter->avoid;
}
