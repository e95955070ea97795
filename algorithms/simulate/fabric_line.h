/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of the text form of a fabric: its words, and what they must look like.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FABRIC_LINE_H
#define GYRE_ALGORITHMS_SIMULATE_FABRIC_LINE_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GYRE_FABRIC_LINE_BYTES 128
#define GYRE_FABRIC_LINE_WORDS 16

struct gyre_fabric_line {
    int number;
    char text[GYRE_FABRIC_LINE_BYTES];
    const char *words[GYRE_FABRIC_LINE_WORDS];
    int n_words;
};

/* A number, or both ends of a range. */
struct gyre_fabric_value {
    uint32_t first, last;
    double number;
};

/** gyre_fabric_line_cut - cut a line into its words. Errors: INVALID_ARGUMENT (too long, or too
 * many words). */
gyre_status gyre_fabric_line_cut(const char *text, size_t n_bytes, struct gyre_fabric_line *line);

/** gyre_fabric_line_match - does the line have a form such as "leaves N"? A capital letter stands
 * for a value: N is a count, R a number or a range of numbers, X a decimal number.
 * @values_out: of the capital letters, in order. */
bool gyre_fabric_line_match(const struct gyre_fabric_line *line, const char *form,
                            struct gyre_fabric_value *values_out);

/** gyre_fabric_line_fail - the error of a line that has none of these forms. */
gyre_status gyre_fabric_line_fail(const struct gyre_fabric_line *line, const char *forms);

/** gyre_fabric_line_check_range - INVALID_ARGUMENT if a range goes beyond the n things there are.
 * @what: their name in the message. */
gyre_status gyre_fabric_line_check_range(const struct gyre_fabric_line *line, const char *what,
                                         const struct gyre_fabric_value *range, uint32_t n);

/** gyre_fabric_line_check_rate - INVALID_ARGUMENT if a rate in GB/s is out of range. */
gyre_status gyre_fabric_line_check_rate(const struct gyre_fabric_line *line, double rate);

#endif
