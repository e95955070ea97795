/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BASE_TEXT_H
#define GYRE_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** In the locale "C", which is not the caller's. */
int gyre_text_format(char *text_out, size_t n_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gyre_text_vformat(char *text_out, size_t n_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/** A text that does not fit is cut and ends with "...". */
void gyre_text_append(char *text, size_t n_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gyre_text_vappend(char *text, size_t n_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/** In the locale "C". @end_out: may be NULL. */
double gyre_text_to_double(const char *text, char **end_out);

const char *gyre_text_error(int error_number);

/** ASCII alone ignores case. For strcasecmp() "i" and "I" differ in a Turkish locale. */
bool gyre_text_same(const char *a, const char *b);
bool gyre_text_same_n(const char *a, const char *b, size_t n_bytes);

/* ASCII only; other bytes stay, and are in no class. */
char gyre_text_lower(char c);
char gyre_text_upper(char c);
bool gyre_text_is_space(char c);
bool gyre_text_is_printable(char c);

/** U+FFFD replaces bytes that are no character; no character is cut. The texts must not overlap. */
size_t gyre_text_to_utf8(const char *text, char *text_out, size_t n_bytes);

#define GYRE_TEXT_UTF8_BYTES(n_bytes) (3 * (n_bytes) + 1)

/** Closes a file of open_memstream(). If memory was short, frees the text and returns false. */
bool gyre_text_finish(FILE *file, char **text);

/** With its quotation marks; safe inside <script>. @n_bytes: the most that are read. */
void gyre_text_put_json(FILE *file, const char *text, size_t n_bytes);

void gyre_text_put_csv(FILE *file, const char *text);

/** For HTML, XML and quoted attributes. Control characters become blanks. */
void gyre_text_put_markup(FILE *file, const char *text);

#endif
