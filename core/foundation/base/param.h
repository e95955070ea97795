/* SPDX-License-Identifier: Apache-2.0
 *
 * X is read from GYRE_X, else from NCCL_X if NCCL has it. An unknown GYRE_* name or value is an
 * error that names the nearest legal one; NCCL_* is taken, changed to a legal value, or ignored. A
 * communicator reads variables only at init.
 */
#ifndef GYRE_BASE_PARAM_H
#define GYRE_BASE_PARAM_H

#include "core/foundation/base/status.h"

#include <stdio.h>

enum gyre_param_type {
    GYRE_PARAM_INT,    /* decimal, also with leading zeros */
    GYRE_PARAM_BOOL,   /* 0 1 true false yes no on off */
    GYRE_PARAM_BYTES,  /* with K, M, G (powers of 1024) */
    GYRE_PARAM_CHOICE, /* one of `words`, in any case, by index */
    GYRE_PARAM_SET,    /* a list of `words`, one bit each */
    GYRE_PARAM_STRING
};

enum gyre_param_flag {
    GYRE_PARAM_PLAN = 1, /* the same on all ranks, for plans */
    GYRE_PARAM_NCCL = 2,
    /* an NCCL value out of range is ignored, because no other number can stand for it */
    GYRE_PARAM_EXACT = 4
};

/* X(id, type, flags, default text ("" = unset), lowest, highest, unit, words, help) */
enum gyre_param_id {
#define GYRE_PARAM_ENUM(id, type, flags, fallback, low, high, unit, words, help) GYRE_PARAM_##id,
#define X                                                                        GYRE_PARAM_ENUM
#include "core/foundation/base/param_table.h"
#undef X
#undef GYRE_PARAM_ENUM
    GYRE_N_PARAMS
};

enum gyre_check { GYRE_CHECK_CALLS, GYRE_CHECK_PROGRAMS };

#define GYRE_PARAM_MAX_BYTES 1024

struct gyre_param_value {
    bool is_set;
    int64_t number; /* INT64_MIN: unset without default, or STRING */
    char text[GYRE_PARAM_MAX_BYTES];
    char source[40]; /* a variable; "" = default */
};

struct gyre_params {
    struct gyre_param_value values[GYRE_N_PARAMS];
    char notes[4096]; /* on changed values of NCCL_* */
};

struct gyre_param_source {
    char *const *entries; /* "NAME=value", NULL at the end */
    const char *file;     /* NULL = the environment */
    void *owned;
};

/* The first list that has a variable counts. */
struct gyre_param_sources {
    struct gyre_param_source list[3];
    int n;
    char problem[GYRE_CAUSE_MAX_BYTES];
};

/** The environment, NCCL_CONF_FILE or else ~/.nccl.conf, /etc/nccl.conf. Always close it. */
void gyre_param_sources_open(struct gyre_param_sources *sources_out);
void gyre_param_sources_close(struct gyre_param_sources *sources);

/** Errors: INVALID_ARGUMENT naming the legal values. */
gyre_status gyre_params_take(const struct gyre_param_sources *sources,
                             struct gyre_params *params_out);

gyre_status gyre_param_take(const struct gyre_param_sources *sources, enum gyre_param_id id,
                            struct gyre_params *params);

/** The process's first call configures the log. */
gyre_status gyre_params_load(struct gyre_params *params_out);

gyre_status gyre_params_from(char *const *environment, struct gyre_params *params_out);

/** For code that checks a text itself. @status: of that check. A text from NCCL_* makes it SUCCESS,
 * after one warning in the process that the text is ignored. */
gyre_status gyre_param_forgive(const struct gyre_params *params, enum gyre_param_id id,
                               gyre_status status);

static inline int64_t gyre_param_number(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].number;
}

static inline bool gyre_param_has(const struct gyre_params *params, enum gyre_param_id id,
                                  unsigned index)
{
    return params->values[id].number > 0 && (params->values[id].number >> index & 1) != 0;
}

/** "" = unset without default. */
static inline const char *gyre_param_text(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].text;
}

static inline bool gyre_param_is_set(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].is_set;
}

static inline const char *gyre_param_source(const struct gyre_params *params, enum gyre_param_id id)
{
    return params->values[id].source;
}

const char *gyre_param_called(const struct gyre_params *params, enum gyre_param_id id);

const char *gyre_param_name(enum gyre_param_id id);

unsigned gyre_param_flags(enum gyre_param_id id);

const char *gyre_param_help(enum gyre_param_id id);

void gyre_param_legal(enum gyre_param_id id, char *text_out, size_t text_bytes);

struct gyre_param_guess {
    bool is_error;
    bool is_close;
    char nearest[40];
};

/** What was an unknown "NAME=value" meant to be? False = known, or not GYRE_* or NCCL_*. */
bool gyre_param_guess(const char *entry, struct gyre_param_guess *guess_out);

/** Errors: INVALID_ARGUMENT. */
gyre_status gyre_param_override(struct gyre_params *params, enum gyre_param_id id,
                                const char *source, const char *text);

void gyre_params_print_help(FILE *file);

/** NULL or "" = none. */
const char *gyre_param_master_address(void);

char *const *gyre_param_environment(void);

#endif
