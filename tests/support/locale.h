/* SPDX-License-Identifier: Apache-2.0
 *
 * A locale with a decimal comma, in which "i" and "I" are two letters.
 */
#ifndef GYRE_TESTS_LOCALE_H
#define GYRE_TESTS_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/** False, and says so, if there is none and none can be made. Leave it with setlocale(LC_ALL, "C").
 */
static inline bool test_enter_locale(void)
{
    char folder[] = "/tmp/gyre-test-locale-XXXXXX", command[160], number[8];
    if (setlocale(LC_ALL, "tr_TR.UTF-8") == NULL && mkdtemp(folder) != NULL) {
        snprintf(command, sizeof(command),
                 "localedef -i tr_TR -f UTF-8 %s/tr_TR.UTF-8 >%s/out 2>&1", folder, folder);
        (void)!system(command); /* warnings count as failures there */
        setenv("LOCPATH", folder, 1);
        (void)setlocale(LC_ALL, "tr_TR.UTF-8");
        unsetenv("LOCPATH");
        snprintf(command, sizeof(command), "rm -rf %s", folder);
        (void)!system(command);
    }
    snprintf(number, sizeof(number), "%.1f", 0.5);
    if (strcmp(number, "0,5") == 0 && strcasecmp("i", "I") != 0)
        return true;
    printf("not tried: there is no locale tr_TR.UTF-8 here\n");
    setlocale(LC_ALL, "C");
    return false;
}

#endif
