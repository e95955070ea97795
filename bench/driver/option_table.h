/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser, the refusals and the help text of a program read the same rows; man pages and the
 * bash completion are made from the help.
 */
#ifndef GYRE_BENCH_OPTION_TABLE_H
#define GYRE_BENCH_OPTION_TABLE_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define BENCH_ALL         (-1) /* the value "all" */
#define BENCH_MAX_TEXTS   16
#define BENCH_NOTES_BYTES 1024
#define BENCH_NO_SUCH     "no such option, or its value is missing"

enum bench_option_type {
    BENCH_FLAG,    /* bool; takes no value */
    BENCH_BOOL,    /* bool: a number from 0 to high; all but 0 mean true */
    BENCH_NUMBER,  /* int from low to high */
    BENCH_AMOUNT,  /* double above 0, at most high */
    BENCH_BYTES,   /* size_t from low to high; high 0 = no limit */
    BENCH_WORD,    /* int: the index of one of the words, from low to high - 1 */
    BENCH_DTYPE,   /* int: gyre_dtype */
    BENCH_TEXT,    /* const char *: the text of argv or, where the row has words, one of these */
    BENCH_TEXTS,   /* struct bench_texts: the option may be given several times */
    BENCH_IGNORED, /* a number from 0 to high, which is not kept */
};

/* Between the processes of one run. */
enum bench_agreement {
    BENCH_SAME,    /* all have the same */
    BENCH_PRESENT, /* all or none give it; rank 0 alone opens the file */
    BENCH_OWN      /* it may differ */
};

/* A row without a name ends the table. */
struct bench_option {
    int letter; /* 0 = none */
    const char *name;
    const char *value; /* in the help */
    const char *help;  /* NULL = the row shares the text of the next one */
    enum bench_option_type type;
    size_t at; /* offset of the field */
    long low, high;
    const char *const *words;
    const char *expected; /* legal values in a refusal; NULL = as the type */
    const char *why;      /* BENCH_IGNORED: why the option has no effect */
    bool has_all;         /* "all" is legal, too */
    enum bench_agreement agreement;
};

struct bench_texts {
    int n;
    const char *at[BENCH_MAX_TEXTS];
};

struct bench_command_line {
    const struct bench_option *options;
    const char *user; /* refusals begin with it; NULL = a bench */
    /* For an unknown option and one without its value; NULL = as getopt_long(). */
    const char *unknown, *valueless;
    bool has_arguments; /* from argv[optind] on */
};

/** bench_options_read - argv into the fields of the program's struct. It ends behind --help.
 * @notes: NULL, or BENCH_NOTES_BYTES that begin with "": gets a line for each option that has no or
 *         another effect.
 * Errors: INVALID_ARGUMENT with the option and its legal values. */
gyre_status bench_options_read(const struct bench_command_line *line, int argc, char **argv,
                               void *fields, char *notes);

/** bench_options_take - for tools: a refusal is printed on standard error. Returns false after
 * one. */
bool bench_options_take(const struct bench_command_line *line, int argc, char **argv, void *fields);

/** bench_options_print - the help, whose text begins in `column`. */
void bench_options_print(const struct bench_option *options, int column, FILE *out);

/** bench_parse_bytes - "8", "64K", "1M", "2G" (powers of 1024), with B or iB behind it or not.
 * Pure. */
gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out);

/** bench_is_same_file - do both paths lead to one file, or are they the same text? */
bool bench_is_same_file(const char *a, const char *b);

#endif
