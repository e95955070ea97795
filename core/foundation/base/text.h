/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that programs read and write: numbers and words that are the same in every locale of the
 * caller, and valid UTF-8 whatever bytes a name has.
 */
#ifndef GYRE_BASE_TEXT_H
#define GYRE_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** gyre_text_format, gyre_text_vformat - as snprintf() and vsnprintf(), in the locale "C". The
 * caller's locale is in force again when they return. */
int gyre_text_format(char *text_out, size_t n_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gyre_text_vformat(char *text_out, size_t n_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/** gyre_text_to_double - as strtod(), in the locale "C". @end_out: may be NULL. */
double gyre_text_to_double(const char *text, char **end_out);

/** gyre_text_error - the words for an errno value, in English. */
const char *gyre_text_error(int error_number);

/** gyre_text_same, gyre_text_same_n - are two words equal, but for upper and lower case of ASCII
 * letters? strcasecmp() takes "i" and "I" for two letters in a Turkish locale. */
bool gyre_text_same(const char *a, const char *b);
bool gyre_text_same_n(const char *a, const char *b, size_t n_bytes);

/* ASCII only; every other byte is returned as it is, or is in no class. */
char gyre_text_lower(char c);
char gyre_text_upper(char c);
bool gyre_text_is_space(char c);
bool gyre_text_is_letter(char c);
bool gyre_text_is_printable(char c);

/** gyre_text_to_utf8 - copy a text as valid UTF-8. U+FFFD takes the place of bytes that are no
 * character, of a character that was cut off too. What does not fit is left out; no character is
 * cut. Returns the length of the copy. @text: must not overlap text_out. */
size_t gyre_text_to_utf8(const char *text, char *text_out, size_t n_bytes);

/** GYRE_TEXT_UTF8_BYTES - room for every text of a buffer after gyre_text_to_utf8(). */
#define GYRE_TEXT_UTF8_BYTES(n_bytes) (3 * (n_bytes) + 1)

/** gyre_text_put_json - write a JSON string with its quotation marks, as gyre_text_to_utf8(). It
 * may stand in a <script>, which "<" could end. @n_bytes: at most so many of the text. */
void gyre_text_put_json(FILE *file, const char *text, size_t n_bytes);

/** gyre_text_put_csv - write a field of CSV, as gyre_text_to_utf8(). A text with a comma, a
 * quotation mark or the end of a line stands in quotation marks, and those in it are doubled. */
void gyre_text_put_csv(FILE *file, const char *text);

/** gyre_text_put_markup - write a text so that it can stand in HTML, in XML and in a quoted
 * attribute, as gyre_text_to_utf8(). Control characters, which XML has not, become blanks. */
void gyre_text_put_markup(FILE *file, const char *text);

#endif
