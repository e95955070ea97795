/* SPDX-License-Identifier: Apache-2.0
 *
 * What HTML and XML take for markup is written as entities.
 */
#include "bench/report/markup.h"

void bench_markup_escape(const char *text, FILE *file)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default: /* XML has no other control characters */
            fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
        }
}
