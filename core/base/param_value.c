/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the text of a variable into its value by the type of its row, and describes the legal
 * values where the text is none of them.
 */
#include "core/base/param_value.h"

#include "core/base/text.h"

#include <ctype.h>
#include <string.h>

void gyre_param_describe_legal(const struct gyre_param_row *row, char *text_out, size_t text_bytes)
{
    const char *space = row->unit[0] == '\0' ? "" : " ";
    switch (row->type) {
    case GYRE_PARAM_INT:
        snprintf(text_out, text_bytes, "%lld..%lld%s%s", (long long)row->low, (long long)row->high,
                 space, row->unit);
        return;
    case GYRE_PARAM_BYTES:
        snprintf(text_out, text_bytes, "%lld..%lld%s%s, K M G allowed", (long long)row->low,
                 (long long)row->high, space, row->unit);
        return;
    case GYRE_PARAM_BOOL:
        snprintf(text_out, text_bytes, "0 1 true false yes no on off");
        return;
    case GYRE_PARAM_CHOICE:
        snprintf(text_out, text_bytes, "%s", row->words);
        return;
    case GYRE_PARAM_SET:
        snprintf(text_out, text_bytes, "a list of: %s", row->words);
        return;
    case GYRE_PARAM_STRING:
        snprintf(text_out, text_bytes, "text");
        return;
    }
}

/* Decimal digits with an optional sign; always decimal, so that 010 is ten. */
static bool parse_decimal(const char *text, const char **end_out, int64_t *number_out)
{
    const bool negative = *text == '-';
    uint64_t number = 0;
    const char *at = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at); at++) {
        number = number * 10 + (uint64_t)(*at - '0');
        if (number > (uint64_t)INT64_MAX / 16)
            return false; /* beyond every row's range, and far from overflow */
    }
    *end_out = at;
    *number_out = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

static bool parse_bytes(const char *text, int64_t *number_out)
{
    const char *end = NULL;
    int64_t number = 0;
    if (!parse_decimal(text, &end, &number) || number < 0)
        return false;
    unsigned shift = 0;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    case '\0':
        *number_out = number;
        return true;
    default:
        return false;
    }
    if (end[1] != '\0' || number > INT64_MAX >> shift)
        return false;
    *number_out = number * (int64_t)(1ULL << shift);
    return true;
}

/* The index of `text` in space-separated `words`, or -1. */
static int64_t find_word(const char *words, const char *text)
{
    const size_t n_text = strlen(text);
    int64_t index = 0;
    for (const char *at = words; *at != '\0'; index++) {
        const size_t n_word = strcspn(at, " ");
        if (n_word == n_text && gyre_text_same_n(at, text, n_word))
            return index;
        at += n_word + (at[n_word] == ' ');
    }
    return -1;
}

/* Sets a bit for each word of the list "a,b". */
static bool parse_set(const char *words, const char *list, int64_t *number_out)
{
    int64_t bits = 0;
    for (const char *at = list;; at++) {
        char word[32];
        const size_t n_bytes = strcspn(at, ",");
        if (n_bytes >= sizeof(word))
            return false;
        memcpy(word, at, n_bytes);
        word[n_bytes] = '\0';
        const int64_t index = find_word(words, word);
        if (index < 0)
            return false;
        bits |= (int64_t)1 << index;
        at += n_bytes;
        if (*at == '\0')
            break;
    }
    *number_out = bits;
    return true;
}

static bool parse_number(const struct gyre_param_row *row, const char *text, int64_t *number_out)
{
    const char *end = NULL;
    int64_t index = -1;
    switch (row->type) {
    case GYRE_PARAM_INT:
        return parse_decimal(text, &end, number_out) && *end == '\0' && *number_out >= row->low &&
               *number_out <= row->high;
    case GYRE_PARAM_BYTES:
        return parse_bytes(text, number_out) && *number_out >= row->low && *number_out <= row->high;
    case GYRE_PARAM_BOOL:
        index = find_word("0 1 false true no yes off on", text);
        *number_out = index & 1;
        return index >= 0;
    case GYRE_PARAM_CHOICE:
        index = find_word(row->words, text);
        *number_out = index;
        return index >= 0;
    case GYRE_PARAM_SET:
        return parse_set(row->words, text, number_out);
    case GYRE_PARAM_STRING:
        *number_out = INT64_MIN;
        return true;
    }
    return false;
}

gyre_status gyre_param_set_value(const struct gyre_param_row *row, const char *source,
                                 const char *text, struct gyre_param_value *value_out)
{
    char legal[160];
    int64_t number = INT64_MIN;
    memset(value_out, 0, sizeof(*value_out));
    if (strlen(text) >= sizeof(value_out->text))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is %zu bytes long; at most %zu are legal",
                         source, strlen(text), sizeof(value_out->text) - 1);
    if (text[0] != '\0' && !parse_number(row, text, &number)) {
        gyre_param_describe_legal(row, legal, sizeof(legal));
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%s is not legal: expected %s (%s)",
                         source, text, legal, row->help);
    }
    value_out->is_set = source[0] != '\0';
    value_out->number = number;
    memcpy(value_out->text, text, strlen(text) + 1);
    snprintf(value_out->source, sizeof(value_out->source), "%s", source);
    return GYRE_SUCCESS;
}
