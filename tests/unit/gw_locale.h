/* SPDX-License-Identifier: Apache-2.0 */
/* A locale with a decimal comma, for the tests of whatever reads or prints numbers. */
#ifndef GW_LOCALE_H
#define GW_LOCALE_H

#include "gw_test.h"

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline bool gw_test_comma(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && strcmp(localeconv()->decimal_point, ",") == 0)
            return true;
    return false;
}

/* Sets one for this process, compiled for the purpose where the system has none; false when neither
 * can be had. */
static inline bool gw_test_locale_with_comma(void)
{
    if (gw_test_comma())
        return true;
    char dir[64], command[256];
    snprintf(dir, sizeof dir, "/tmp/gw_locale_%ld", (long)getpid());
    snprintf(command, sizeof command,
             "mkdir -p %s && localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir, dir);
    bool set = system(command) == 0 && setenv("LOCPATH", dir, 1) == 0 && gw_test_comma();
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 && set;
}

#endif
