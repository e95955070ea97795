/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/text.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* Allocates nothing in glibc and musl. Elsewhere, without memory, the caller's locale stays. */
static locale_t open_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static void close_c_locale(locale_t c_locale)
{
    if (c_locale != (locale_t)0)
        freelocale(c_locale);
}

int gyre_text_vformat(char *text_out, size_t n_bytes, const char *format, va_list args)
{
    const locale_t c_locale = open_c_locale();
    const locale_t before = uselocale(c_locale);
    const int n = vsnprintf(text_out, n_bytes, format, args);
    uselocale(before);
    close_c_locale(c_locale);
    return n;
}

int gyre_text_format(char *text_out, size_t n_bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = gyre_text_vformat(text_out, n_bytes, format, args);
    va_end(args);
    return n;
}

void gyre_text_vappend(char *text, size_t n_bytes, const char *format, va_list args)
{
    const size_t n_used = strlen(text);
    const int n = vsnprintf(text + n_used, n_bytes - n_used, format, args);
    if (n > 0 && n_used + (size_t)n >= n_bytes && n_bytes > 4)
        memcpy(text + n_bytes - 4, "...", 4);
}

void gyre_text_append(char *text, size_t n_bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gyre_text_vappend(text, n_bytes, format, args);
    va_end(args);
}

double gyre_text_to_double(const char *text, char **end_out)
{
    const locale_t c_locale = open_c_locale();
    const locale_t before = uselocale(c_locale);
    const double number = strtod(text, end_out);
    uselocale(before);
    close_c_locale(c_locale);
    return number;
}

const char *gyre_text_error(int error_number)
{
    const locale_t c_locale = open_c_locale();
    const char *words = c_locale == (locale_t)0 ? "?" : strerror_l(error_number, c_locale);
    close_c_locale(c_locale);
    return words;
}

char gyre_text_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

char gyre_text_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

bool gyre_text_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool gyre_text_is_printable(char c)
{
    return c >= ' ' && c <= '~';
}

bool gyre_text_same_n(const char *a, const char *b, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (gyre_text_lower(a[i]) != gyre_text_lower(b[i]))
            return false;
        if (a[i] == '\0')
            return true;
    }
    return true;
}

bool gyre_text_same(const char *a, const char *b)
{
    return gyre_text_same_n(a, b, (size_t)-1);
}

/* Bytes of the first character, or of part of one, or 1. The second byte's limits exclude overlong
 * forms, surrogates and values above U+10FFFF (Unicode 15, table 3-7). */
static size_t scan_character(const char *text, size_t n_left, bool *is_whole_out)
{
    const unsigned char lead = (unsigned char)text[0];
    size_t n = 0, i = 1;
    if (lead < 0x80)
        n = 1;
    else if (lead >= 0xc2 && lead <= 0xdf)
        n = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        n = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        n = 4;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (; i < n && i < n_left; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (byte < low || byte > high)
            break;
        low = 0x80;
        high = 0xbf;
    }
    *is_whole_out = i == n;
    return i;
}

static const char replacement[] = "\xef\xbf\xbd";

size_t gyre_text_to_utf8(const char *text, char *text_out, size_t n_bytes)
{
    size_t used = 0, n_left = strlen(text);
    while (n_left > 0) {
        bool is_whole;
        const size_t n_read = scan_character(text, n_left, &is_whole);
        const size_t n_written = is_whole ? n_read : sizeof(replacement) - 1;
        if (used + n_written >= n_bytes)
            break;
        memcpy(text_out + used, is_whole ? text : replacement, n_written);
        used += n_written;
        text += n_read;
        n_left -= n_read;
    }
    text_out[used] = '\0';
    return used;
}

static size_t take_character(FILE *file, const char **text, size_t *n_left, const char **taken_out)
{
    bool is_whole;
    const size_t n_read = scan_character(*text, *n_left, &is_whole);
    *taken_out = *text;
    *text += n_read;
    *n_left -= n_read;
    if (!is_whole)
        fputs(replacement, file);
    return is_whole ? n_read : 0;
}

void gyre_text_put_json(FILE *file, const char *text, size_t n_bytes)
{
    size_t n_left = strnlen(text, n_bytes);
    fputc('"', file);
    while (n_left > 0) {
        const char *at;
        const size_t n = take_character(file, &text, &n_left, &at);
        if (n == 1 && ((unsigned char)*at < ' ' || strchr("\"\\<&", *at) != NULL))
            fprintf(file, "\\u%04x", (unsigned char)*at);
        else
            fwrite(at, 1, n, file);
    }
    fputc('"', file);
}

bool gyre_text_finish(FILE *file, char **text)
{
    const bool is_whole = ferror(file) == 0;
    if (fclose(file) == 0 && is_whole)
        return true;
    free(*text);
    *text = NULL;
    return false;
}

void gyre_text_put_csv(FILE *file, const char *text)
{
    const char *quote = text[strcspn(text, ",\"\r\n")] != '\0' ? "\"" : "";
    fputs(quote, file);
    for (size_t n_left = strlen(text); n_left > 0;) {
        const char *at;
        const size_t n = take_character(file, &text, &n_left, &at);
        if (n == 1 && *at == '"')
            fputc('"', file);
        fwrite(at, 1, n, file);
    }
    fputs(quote, file);
}

void gyre_text_put_markup(FILE *file, const char *text)
{
    static const char *const entities[] = {"<&lt;", ">&gt;", "&&amp;", "\"&quot;"};
    for (size_t n_left = strlen(text); n_left > 0;) {
        const char *at, *entity = NULL;
        const size_t n = take_character(file, &text, &n_left, &at);
        for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]) && n == 1; i++)
            entity = *at == entities[i][0] ? entities[i] + 1 : entity;
        if (entity != NULL)
            fputs(entity, file);
        else
            fwrite(n == 1 && (unsigned char)*at < ' ' ? " " : at, 1, n, file);
    }
}
