/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BASE_PARAM_VALUE_H
#define GYRE_BASE_PARAM_VALUE_H

#include "core/foundation/base/param.h"

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

void gyre_param_describe_legal(const struct gyre_param_row *row, char *text_out, size_t text_bytes);

/** @source: a variable; "" = the default. Errors: INVALID_ARGUMENT. */
gyre_status gyre_param_set_value(const struct gyre_param_row *row, const char *source,
                                 const char *text, struct gyre_param_value *value_out);

/** Never fails. @note_out: tells the user of a changed value; else "". */
void gyre_param_take_nccl(const struct gyre_param_row *row, const char *source, const char *text,
                          struct gyre_param_value *value_out, char *note_out, size_t note_bytes);

#endif
