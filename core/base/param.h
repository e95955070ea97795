/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of variables: name, NCCL's name where NCCL has the same knob, type, default, unit,
 * range, help. A variable X is read from GYRE_X, else from NCCL_X. An unknown GYRE_* name or a
 * value that does not parse is an error that names the nearest legal one. A communicator takes a
 * snapshot at init; nothing reads the environment later.
 */
#ifndef GYRE_BASE_PARAM_H
#define GYRE_BASE_PARAM_H

#include "core/base/status.h"

#include <stdio.h>

enum gyre_param_type {
    GYRE_PARAM_INT,    /* decimal, octal never; range-checked */
    GYRE_PARAM_BOOL,   /* 0 1 true false yes no on off */
    GYRE_PARAM_BYTES,  /* a number with K, M, G (powers of 1024) */
    GYRE_PARAM_CHOICE, /* one of the words in `words`, case-insensitive; the int value is its index
                        */
    GYRE_PARAM_STRING  /* checked by its user */
};

enum gyre_param_flag {
    GYRE_PARAM_PLAN = 1, /* a plan depends on it: all ranks must agree */
    GYRE_PARAM_NCCL = 2  /* NCCL_<name> is the fall-back */
};

/* The rows stand in core/base/param_table.h:
 * X(id, type, flags, default text ("" = unset), lowest, highest, unit, words, help) */
enum gyre_param_id {
#define GYRE_PARAM_ENUM(id, type, flags, fallback, low, high, unit, words, help) GYRE_PARAM_##id,
#define X                                                                        GYRE_PARAM_ENUM
#include "core/base/param_table.h"
#undef X
#undef GYRE_PARAM_ENUM
    GYRE_N_PARAMS
};

#define GYRE_PARAM_MAX_BYTES 256 /* of a string value, with its NUL; longer is an error */

struct gyre_param_value {
    bool is_set;    /* by the environment (not the default) */
    int64_t number; /* INT, BOOL, BYTES, CHOICE; INT64_MIN if unset and without default */
    char text[GYRE_PARAM_MAX_BYTES]; /* as given, or the default */
    char source[40];                 /* the variable's name it came from, "" = default */
};

struct gyre_params {
    struct gyre_param_value values[GYRE_N_PARAMS];
};

/** gyre_params_load - read and check the whole environment; configures the log on first use in
 * the process. Errors: INVALID_ARGUMENT naming the variable, the value and what is legal. */
gyre_status gyre_params_load(struct gyre_params *params_out);

/** gyre_params_from - as gyre_params_load, from a NULL-terminated "NAME=value" list; leaves the
 * log alone. */
gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out);

static inline int64_t gyre_param_number(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].number;
}

/** The text, "" when unset and without default. */
static inline const char *gyre_param_text(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].text;
}

static inline bool gyre_param_is_set(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].is_set;
}

/** gyre_param_source - what set it, as the user wrote it: a variable or a bench's option; "" when
 * unset. */
static inline const char *gyre_param_source(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].source;
}

/** gyre_param_name - without prefix, e.g. "IB_HCA". */
const char *gyre_param_name(enum gyre_param_id id);

/** gyre_param_flags - enum gyre_param_flag bits. */
unsigned gyre_param_flags(enum gyre_param_id id);

/** gyre_param_override - `text` instead of what the environment says. @source: named in messages.
 * Errors: INVALID_ARGUMENT naming what is legal. */
gyre_status gyre_param_override(struct gyre_params *params, enum gyre_param_id id,
                                const char *source, const char *text);

/** gyre_params_print_help - the table for people (--help-vars). */
void gyre_params_print_help(FILE *file);

/** gyre_param_master_address - MASTER_ADDR, which launchers give all ranks for their first meeting;
 * NULL or "" = none. */
const char *gyre_param_master_address(void);

#endif
