/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of variables: name, type, default, unit, range, help, and whether NCCL has the same
 * variable. A variable X is read from GYRE_X, and from NCCL_X if NCCL has it and GYRE_X is unset.
 * Both come from the environment or, if they are not in it, from NCCL's configuration files. An
 * unknown GYRE_* name or a value that does not parse is an error that names the nearest legal one.
 * A value of NCCL_* is never an error: it is taken, changed to the nearest legal one, or ignored.
 * A communicator reads all variables at init and never again.
 */
#ifndef GYRE_BASE_PARAM_H
#define GYRE_BASE_PARAM_H

#include "core/foundation/base/status.h"

#include <stdio.h>

enum gyre_param_type {
    GYRE_PARAM_INT,    /* decimal, also with leading zeros; checked against the range */
    GYRE_PARAM_BOOL,   /* 0 1 true false yes no on off */
    GYRE_PARAM_BYTES,  /* a number with K, M, G (powers of 1024) */
    GYRE_PARAM_CHOICE, /* one of the words in `words`, case-insensitive; the int value is its index
                        */
    GYRE_PARAM_SET,    /* a comma-separated list of the words in `words`, case-insensitive; the int
                        * value has bit i for the i-th word */
    GYRE_PARAM_STRING  /* checked by the code that uses it */
};

enum gyre_param_flag {
    GYRE_PARAM_PLAN = 1, /* plans depend on it, so all ranks must have the same value */
    GYRE_PARAM_NCCL = 2, /* NCCL_<name> is read if GYRE_<name> is unset */
    /* The number names something, so no other one can stand for it: out of range, NCCL's is ignored
     */
    GYRE_PARAM_EXACT = 4
};

/* The rows stand in core/foundation/base/param_table.h:
 * X(id, type, flags, default text ("" = unset), lowest, highest, unit, words, help) */
enum gyre_param_id {
#define GYRE_PARAM_ENUM(id, type, flags, fallback, low, high, unit, words, help) GYRE_PARAM_##id,
#define X                                                                        GYRE_PARAM_ENUM
#include "core/foundation/base/param_table.h"
#undef X
#undef GYRE_PARAM_ENUM
    GYRE_N_PARAMS
};

/* The words of GYRE_CHECK. */
enum gyre_check { GYRE_CHECK_CALLS, GYRE_CHECK_PROGRAMS };

#define GYRE_PARAM_MAX_BYTES 1024 /* of a value's text, with its NUL; a longer one is an error */

struct gyre_param_value {
    bool is_set;    /* true: by the environment; false: the default */
    int64_t number; /* INT, BOOL, BYTES, CHOICE, SET; INT64_MIN if unset and without default */
    char text[GYRE_PARAM_MAX_BYTES]; /* as in the environment, or the default */
    char source[40];                 /* the name of the variable that set it; "" = default */
};

struct gyre_params {
    struct gyre_param_value values[GYRE_N_PARAMS];
    char notes[4096]; /* a line for each NCCL_* variable that is not used as it is written, and for
                       * a file of variables that cannot be read */
};

/* A place that variables come from: the environment, or a file. */
struct gyre_param_source {
    char *const *entries; /* "NAME=value", ends with NULL */
    const char *file;     /* its path; NULL = the environment */
    void *owned;          /* what gyre_param_sources_close() frees */
};

/* All places; the first one that has a variable counts. */
struct gyre_param_sources {
    struct gyre_param_source list[3]; /* the environment, the user's file, /etc/nccl.conf */
    int n;
    char problem[GYRE_CAUSE_MAX_BYTES]; /* why a file is not read; "" = none */
};

/** gyre_param_sources_open - the environment, and the lines NCCL_X=value and GYRE_X=value of
 * NCCL's files: NCCL_CONF_FILE, or else ~/.nccl.conf; then /etc/nccl.conf. Files that are not there
 * are left out. To be closed in any case. */
void gyre_param_sources_open(struct gyre_param_sources *sources_out);
void gyre_param_sources_close(struct gyre_param_sources *sources);

/** gyre_params_take - read and check all variables.
 * Errors: INVALID_ARGUMENT naming the variable, its value and the legal values. */
gyre_status gyre_params_take(const struct gyre_param_sources *sources,
                             struct gyre_params *params_out);

/** gyre_param_take - as gyre_params_take(), one variable only. */
gyre_status gyre_param_take(const struct gyre_param_sources *sources, enum gyre_param_id id,
                            struct gyre_params *params);

/** gyre_params_load - gyre_params_take() of all sources. The first call in the process also
 * configures the log and logs what is ignored or changed. */
gyre_status gyre_params_load(struct gyre_params *params_out);

/** gyre_params_from - gyre_params_take() of one list of "NAME=value" that ends with NULL. */
gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out);

/** gyre_param_forgive - for code that checks the text of a variable itself. @status: of that check.
 * Returns it, unless the text comes from NCCL_*: then a warning, once in the process, says that the
 * variable is ignored and gives the cause, and the caller goes on as if it were unset. */
gyre_status gyre_param_forgive(const struct gyre_params *params, enum gyre_param_id id,
                               gyre_status status);

/** gyre_param_number - the value as a number; INT64_MIN if it is unset and has no default. */
static inline int64_t gyre_param_number(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].number;
}

/** gyre_param_has - is the word with this index in a SET? false if it is unset and has no default.
 */
static inline bool gyre_param_has(const struct gyre_params *params, enum gyre_param_id id,
                                  unsigned index)
{
    return params->values[id].number > 0 && (params->values[id].number >> index & 1) != 0;
}

/** gyre_param_text - the value as text; "" if it is unset and has no default. */
static inline const char *gyre_param_text(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].text;
}

/** gyre_param_is_set - was it set, or is it the default? */
static inline bool gyre_param_is_set(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].is_set;
}

/** gyre_param_source - the variable or the bench option that set it, as the user wrote it; "" if it
 * is unset. */
static inline const char *gyre_param_source(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].source;
}

/** gyre_param_called - as messages name it: as the user set it, or GYRE_X if it is unset. */
const char *gyre_param_called(const struct gyre_params *params, enum gyre_param_id id);

/** gyre_param_name - the name without prefix, e.g. "IB_HCA". */
const char *gyre_param_name(enum gyre_param_id id);

/** gyre_param_flags - enum gyre_param_flag bits. */
unsigned gyre_param_flags(enum gyre_param_id id);

/** gyre_param_help - what it does, in one line. */
const char *gyre_param_help(enum gyre_param_id id);

/** gyre_param_legal - its legal values and their unit, in words. */
void gyre_param_legal(enum gyre_param_id id, char *text_out, size_t text_bytes);

/* What an unknown variable may have been meant to be. */
struct gyre_param_guess {
    bool is_error;    /* GYRE_*: the library refuses it; NCCL_*: it is ignored */
    bool is_close;    /* the nearest name differs in two letters or less */
    char nearest[40]; /* with the prefix of the unknown name */
};

/** gyre_param_guess - look at one "NAME=value" of an environment.
 * Returns false if it has another prefix than GYRE_ and NCCL_, or is a variable of the table. */
bool gyre_param_guess(const char *entry, struct gyre_param_guess *guess_out);

/** gyre_param_override - use `text` instead of the environment's value. @source: for messages.
 * Errors: INVALID_ARGUMENT naming the legal values. */
gyre_status gyre_param_override(struct gyre_params *params, enum gyre_param_id id,
                                const char *source, const char *text);

/** gyre_params_print_help - print the table for people (--help-vars). */
void gyre_params_print_help(FILE *file);

/** gyre_param_master_address - MASTER_ADDR, an address at which all ranks can reach the first one.
 * Launchers set it. NULL or "" = none. */
const char *gyre_param_master_address(void);

/** gyre_param_environment - the environment of the process, a list that ends with NULL. */
char *const *gyre_param_environment(void);

#endif
