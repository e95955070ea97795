/* SPDX-License-Identifier: Apache-2.0
 *
 * Parser, refusals and help read the same rows; man pages and bash completion are made from the
 * help.
 */
#ifndef GYRE_BENCH_OPTION_TABLE_H
#define GYRE_BENCH_OPTION_TABLE_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define BENCH_ALL         (-1) /* "all" */
#define BENCH_MAX_TEXTS   16
#define BENCH_NOTES_BYTES 1024
#define BENCH_NO_SUCH     "no such option, or its value is missing"

enum bench_option_type {
    BENCH_FLAG,    /* bool, without a value */
    BENCH_BOOL,    /* bool: 0 to high, all but 0 are true */
    BENCH_NUMBER,  /* int, low to high */
    BENCH_AMOUNT,  /* double above 0, at most high */
    BENCH_BYTES,   /* size_t from low, high 0 = no limit */
    BENCH_WORD,    /* int: index of a word, low to high - 1 */
    BENCH_DTYPE,   /* int: gyre_dtype */
    BENCH_TEXT,    /* const char * of argv, or one of the row's words */
    BENCH_TEXTS,   /* struct bench_texts: may be repeated */
    BENCH_IGNORED, /* 0 to high, not kept */
};

enum bench_agreement {
    BENCH_SAME,
    BENCH_PRESENT, /* all or none give it, rank 0 opens the file */
    BENCH_OWN
};

/* An unnamed row ends the table. */
struct bench_option {
    int letter; /* 0 = none */
    const char *name;
    const char *value;
    const char *help; /* NULL = shared with the next row */
    enum bench_option_type type;
    size_t at; /* field's offset */
    long low, high;
    const char *const *words;
    const char *expected; /* in refusals, NULL = by type */
    const char *why;      /* BENCH_IGNORED: the reason */
    bool has_all;         /* accepts "all" */
    enum bench_agreement agreement;
};

struct bench_texts {
    int n;
    const char *at[BENCH_MAX_TEXTS];
};

struct bench_command_line {
    const struct bench_option *options;
    const char *user; /* begins refusals, NULL = a bench */
    /* Refusals, NULL = getopt_long()'s. */
    const char *unknown, *valueless;
    bool has_arguments; /* from argv[optind] */
};

/** Reads argv into the program's struct, up to --help. @notes: NULL, or BENCH_NOTES_BYTES of "",
 * gets a line for each option without effect or with another one. Errors: INVALID_ARGUMENT with
 * legal values. */
gyre_status bench_options_read(const struct bench_command_line *line, int argc, char **argv,
                               void *fields, char *notes);

/** False after printing a refusal. */
bool bench_options_take(const struct bench_command_line *line, int argc, char **argv, void *fields);

/** For tools: as bench_options_take(), also for --help. Returns -1 to go on, else the exit status.
 * Without arguments, and after a refusal that the line words, the usage is printed as an error. */
int bench_options_start(const struct bench_command_line *line, int argc, char **argv, void *fields,
                        void (*print_usage)(const char *program, FILE *out));

/** The text begins in `column`. */
void bench_options_print(const struct bench_option *options, int column, FILE *out);

/** Reads "8", "64K", "1M", "2G" (powers of 1024), with or without B or iB. Pure. */
gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out);

/** One file, or the same text. */
bool bench_is_same_file(const char *a, const char *b);

/** Opens closed streams on /dev/null, or a socket would get their number and printed text. First in
 * main(). */
void bench_streams_open(void);

/** Errors: SYSTEM. */
gyre_status bench_streams_flush(void);

/** Last in main(). Returns @exit_status, or 1 for 0 if output was lost, after printing so. */
int bench_streams_close(const char *program, int exit_status);

#endif
