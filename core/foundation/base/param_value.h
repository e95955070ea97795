/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of the table of variables, how a text becomes its value, and the files that texts come
 * from. For param.c alone.
 */
#ifndef GYRE_BASE_PARAM_VALUE_H
#define GYRE_BASE_PARAM_VALUE_H

#include "core/foundation/base/param.h"

/* The columns of core/foundation/base/param_table.h. */
struct gyre_param_row {
    const char *name;
    enum gyre_param_type type;
    unsigned flags;
    const char *fallback;
    int64_t low;
    int64_t high;
    const char *unit;
    const char *words;
    const char *help;
};

/** gyre_param_describe_legal - the legal values of a row, in words. */
void gyre_param_describe_legal(const struct gyre_param_row *row, char *text_out, size_t text_bytes);

/** gyre_param_set_value - parse and check a value. @source: the variable that the text comes from;
 * "" for the row's default. Errors: INVALID_ARGUMENT, naming the legal values. */
gyre_status gyre_param_set_value(const struct gyre_param_row *row, const char *source,
                                 const char *text, struct gyre_param_value *value_out);

/** gyre_param_take_nccl - as gyre_param_set_value() for a value that was written for NCCL. It never
 * fails: numbers are read as C reads them (0x10, 010), values out of range become the nearest legal
 * one, and what means nothing here leaves the row at its default.
 * @note_out: the line for the user if the value is not used as it is written; else "". */
void gyre_param_take_nccl(const struct gyre_param_row *row, const char *source, const char *text,
                          struct gyre_param_value *value_out, char *note_out, size_t note_bytes);

#endif
