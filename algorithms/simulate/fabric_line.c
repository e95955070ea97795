/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/fabric_line.h"

#include <ctype.h>
#include <string.h>

#define MAX_RATE 1e6 /* GB/s */

gyre_status gyre_fabric_line_cut(const char *text, size_t n_bytes, struct gyre_fabric_line *line)
{
    line->n_words = 0;
    if (n_bytes >= sizeof(line->text))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: longer than %zu characters",
                         line->number, sizeof(line->text) - 1);
    memcpy(line->text, text, n_bytes);
    line->text[n_bytes] = '\0';
    char *rest = line->text;
    for (;;) {
        rest += strspn(rest, " \t\r");
        if (*rest == '\0')
            return GYRE_SUCCESS;
        if (line->n_words == GYRE_FABRIC_LINE_WORDS)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: more than %d words",
                             line->number, GYRE_FABRIC_LINE_WORDS);
        line->words[line->n_words++] = rest;
        rest += strcspn(rest, " \t\r");
        if (*rest != '\0')
            *rest++ = '\0';
    }
}

/* Reads digits; returns the rest of the text, or NULL if there are none or the number is large. */
static const char *read_digits(const char *text, uint32_t *number_out)
{
    uint32_t number = 0;
    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        number = number * 10 + (uint32_t)(*text - '0');
        if (number > 1000000)
            return NULL;
    }
    *number_out = number;
    return text;
}

/* Reads "12" or "12.5". The locale does not matter. */
static bool read_decimal(const char *text, double *number_out)
{
    uint32_t whole;
    double unit = 1, part = 0;
    const char *rest = read_digits(text, &whole);
    if (rest != NULL && *rest == '.')
        for (rest++; isdigit((unsigned char)*rest); rest++) {
            unit /= 10;
            part += (*rest - '0') * unit;
        }
    if (rest == NULL || *rest != '\0')
        return false;
    *number_out = whole + part;
    return true;
}

/* Reads a word of a form: N is a count, R a number or a range of numbers, X a decimal number. */
static bool read_value(char kind, const char *word, struct gyre_fabric_value *value)
{
    if (kind == 'X')
        return read_decimal(word, &value->number);
    const char *rest = read_digits(word, &value->first);
    value->last = value->first;
    if (rest != NULL && kind == 'R' && *rest == '-')
        rest = read_digits(rest + 1, &value->last);
    return rest != NULL && *rest == '\0' && value->last >= value->first;
}

bool gyre_fabric_line_match(const struct gyre_fabric_line *line, const char *form,
                            struct gyre_fabric_value *values_out)
{
    int n_values = 0, word = 0;
    for (const char *at = form; *at != '\0'; word++) {
        const size_t n = strcspn(at, " ");
        if (word == line->n_words)
            return false;
        if (n == 1 && *at >= 'A' && *at <= 'Z') {
            if (!read_value(*at, line->words[word], &values_out[n_values++]))
                return false;
        } else if (strlen(line->words[word]) != n || strncmp(line->words[word], at, n) != 0) {
            return false;
        }
        at += n;
        at += *at == ' ';
    }
    return word == line->n_words;
}

gyre_status gyre_fabric_line_fail(const struct gyre_fabric_line *line, const char *forms)
{
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: \"%s ...\": expected %s, where N is a number, R a number or a "
                     "range like 0-3, X a decimal number above 0",
                     line->number, line->words[0], forms);
}

gyre_status gyre_fabric_line_check_range(const struct gyre_fabric_line *line, const char *what,
                                         const struct gyre_fabric_value *range, uint32_t n)
{
    if (range->last < n)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: there is no %s %u: there are %u, counted from 0", line->number, what,
                     range->last, n);
}

gyre_status gyre_fabric_line_check_rate(const struct gyre_fabric_line *line, double rate)
{
    if (rate > 0 && rate <= MAX_RATE)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: %g: expected a rate in GB/s, above 0 and at most %g", line->number,
                     rate, MAX_RATE);
}
