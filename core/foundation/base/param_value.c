/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/param_value.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
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

/* 010 is ten. */
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
            return false;
    }
    *end_out = at;
    *number_out = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

static const char units[] = "KMG";

static bool parse_bytes(const char *text, int64_t *number_out)
{
    const char *end = NULL;
    int64_t number = 0;
    if (!parse_decimal(text, &end, &number) || number < 0)
        return false;
    const char *letter = *end != '\0' ? strchr(units, gyre_text_upper(*end)) : NULL;
    const int shift = letter != NULL ? (int)(letter - units + 1) * 10 : 0;
    if (end[letter != NULL] != '\0' || number > INT64_MAX >> shift)
        return false;
    *number_out = number * (int64_t)(1ULL << shift);
    return true;
}

static int64_t find_word(const char *words, const char *text, size_t n_text)
{
    int64_t index = 0;
    for (const char *at = words; *at != '\0'; index++) {
        const size_t n_word = strcspn(at, " ");
        if (n_word == n_text && gyre_text_same_n(at, text, n_word))
            return index;
        at += n_word + (at[n_word] == ' ');
    }
    return -1;
}

static const char bool_words[] = "0 1 false true no yes off on";

static bool parse_number(const struct gyre_param_row *row, const char *text, int64_t *number_out)
{
    const char *end = NULL, *word;
    size_t n_word;
    int64_t index = -1;
    switch (row->type) {
    case GYRE_PARAM_INT:
        return parse_decimal(text, &end, number_out) && *end == '\0' && *number_out >= row->low &&
               *number_out <= row->high;
    case GYRE_PARAM_BYTES:
        return parse_bytes(text, number_out) && *number_out >= row->low && *number_out <= row->high;
    case GYRE_PARAM_BOOL:
        index = find_word(bool_words, text, strlen(text));
        *number_out = index & 1;
        return index >= 0;
    case GYRE_PARAM_CHOICE:
        index = find_word(row->words, text, strlen(text));
        *number_out = index;
        return index >= 0;
    case GYRE_PARAM_SET:
        *number_out = 0;
        for (const char *at = text; gyre_list_next(&at, &word, &n_word);) {
            index = find_word(row->words, word, n_word);
            if (index < 0)
                return false;
            *number_out |= (int64_t)1 << index;
        }
        return *number_out != 0;
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

/* Drops blanks and quotation marks around it. False if it is too long. */
static bool copy_bare(const char *text, char copy_out[GYRE_PARAM_MAX_BYTES])
{
    const char *end = text + strlen(text);
    for (bool goes_on = true; goes_on;) {
        while (gyre_text_is_space(*text))
            text++;
        while (end > text && gyre_text_is_space(end[-1]))
            end--;
        goes_on = end - text >= 2 && (*text == '"' || *text == '\'') && end[-1] == *text;
        text += goes_on;
        end -= goes_on;
    }
    const size_t n_bytes = (size_t)(end - text);
    if (n_bytes >= GYRE_PARAM_MAX_BYTES)
        return false;
    memcpy(copy_out, text, n_bytes);
    copy_out[n_bytes] = '\0';
    return true;
}

/* As NCCL: base 0, without what follows. Bytes may have K, M or G, with B or iB. */
static bool read_number(enum gyre_param_type type, const char *text, int64_t *number_out,
                        bool *is_whole_out)
{
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, 0);
    if (end == text || errno != 0)
        return false;
    int shift = 0;
    const char *letter =
        type == GYRE_PARAM_BYTES && *end != '\0' ? strchr(units, gyre_text_upper(*end)) : NULL;
    if (letter != NULL) {
        shift = (int)(letter - units + 1) * 10;
        end++;
        end += gyre_text_same(end, "B") ? 1 : gyre_text_same(end, "iB") ? 2 : 0;
    }
    const bool is_large = number > INT64_MAX >> shift;
    *number_out = is_large ? INT64_MAX : number < 0 ? number : number * (int64_t)(1ULL << shift);
    *is_whole_out = *end == '\0';
    return true;
}

/* Into a number that the row takes, or into "". NCCL's -1 and -2 mostly mean "not set", as does 0
 * where at least 1 is legal. */
static void rewrite_number(const struct gyre_param_row *row, char *text, char *remark_out,
                           size_t remark_bytes)
{
    int64_t number = 0;
    bool is_whole = false;
    if (row->type == GYRE_PARAM_BOOL && find_word(bool_words, text, strlen(text)) >= 0)
        return;
    if (!read_number(row->type, text, &number, &is_whole)) {
        snprintf(remark_out, remark_bytes, "is ignored: it is no number");
        text[0] = '\0';
        return;
    }
    const bool is_unset = number == -1 || number == -2 || (number == 0 && row->low > 0);
    const int64_t legal = number < row->low ? row->low : number > row->high ? row->high : number;
    const bool is_nothing = legal != number && (row->flags & GYRE_PARAM_EXACT) != 0;
    if (number < 0 || is_unset || is_nothing)
        text[0] = '\0';
    else
        snprintf(text, GYRE_PARAM_MAX_BYTES, "%lld", (long long)legal);
    if (number == -1 || number == -2)
        return;
    if (is_nothing)
        snprintf(remark_out, remark_bytes, "is ignored: it is outside of %lld..%lld",
                 (long long)row->low, (long long)row->high);
    else if (text[0] == '\0')
        snprintf(remark_out, remark_bytes, "is ignored: at least %lld is legal here",
                 (long long)row->low);
    else if (legal != number)
        snprintf(remark_out, remark_bytes, "is outside of %lld..%lld: %.24s is used instead",
                 (long long)row->low, (long long)row->high, text);
    else if (!is_whole)
        snprintf(remark_out, remark_bytes, "is read as %.24s", text);
}

void gyre_param_take_nccl(const struct gyre_param_row *row, const char *source, const char *text,
                          struct gyre_param_value *value_out, char *note_out, size_t note_bytes)
{
    char bare[GYRE_PARAM_MAX_BYTES] = "";
    char remark[320] = "";
    if (!copy_bare(text, bare))
        snprintf(remark, sizeof(remark), "is ignored: it has more than %d bytes",
                 GYRE_PARAM_MAX_BYTES - 1);
    else if (bare[0] != '\0' &&
             (row->type == GYRE_PARAM_INT || row->type == GYRE_PARAM_BOOL ||
              row->type == GYRE_PARAM_BYTES ||
              (row->type == GYRE_PARAM_STRING && row->high > 0 && /* may be a number */
               isdigit((unsigned char)bare[bare[0] == '-']))))
        rewrite_number(row, bare, remark, sizeof(remark));
    else if (row->type == GYRE_PARAM_STRING && row->words[0] != '\0') {
        const size_t remark_bytes = sizeof(remark);
        char kept[GYRE_PARAM_MAX_BYTES];
        const bool inverts = bare[0] == '^';
        size_t n_kept = 0, n_remark = 0;
        const char *word;
        size_t n_bytes;
        for (const char *at = bare + inverts; gyre_list_next(&at, &word, &n_bytes);) {
            if (find_word(row->words, word, n_bytes) >= 0)
                n_kept += (size_t)snprintf(kept + n_kept, sizeof(kept) - n_kept, "%s%.*s",
                                           n_kept > 0 ? ","
                                           : inverts  ? "^"
                                                      : "",
                                           (int)n_bytes, word);
            else if (n_remark < remark_bytes)
                n_remark += (size_t)snprintf(
                    remark + n_remark, remark_bytes - n_remark, "%s%.*s",
                    n_remark > 0 ? ", " : "names what gyre does not have: ", (int)n_bytes, word);
        }
        kept[n_kept] = '\0';
        memcpy(bare, kept, n_kept + 1);
    } else if (row->type == GYRE_PARAM_CHOICE && bare[0] != '\0' &&
               find_word(row->words, bare, strlen(bare)) < 0) {
        snprintf(remark, sizeof(remark), "is ignored: expected one of %s", row->words);
        bare[0] = '\0';
    }
    (void)gyre_param_set_value(row, bare[0] != '\0' ? source : "",
                               bare[0] != '\0' ? bare : row->fallback, value_out);
    note_out[0] = '\0';
    if (remark[0] != '\0')
        snprintf(note_out, note_bytes, "%s=%.64s %s", source, text, remark);
}
