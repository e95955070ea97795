/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/option_table.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/gyre_model.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPTIONS 64
#define FIRST_LONG  256 /* plus the row */

/* Beside gyre_dtype_names. */
static const struct {
    const char *name;
    gyre_dtype dtype;
} dtype_aliases[] = {{"char", GYRE_INT8},
                     {"int", GYRE_INT32},
                     {"f16", GYRE_FLOAT16},
                     {"fp16", GYRE_FLOAT16},
                     {"float16", GYRE_FLOAT16},
                     {"f32", GYRE_FLOAT32},
                     {"fp32", GYRE_FLOAT32},
                     {"float32", GYRE_FLOAT32},
                     {"fp64", GYRE_FLOAT64},
                     {"float64", GYRE_FLOAT64},
                     {"bf16", GYRE_BFLOAT16},
                     {"fp8", GYRE_FLOAT8_E4M3},
                     {"fp8_e4m3", GYRE_FLOAT8_E4M3},
                     {"float8_e4m3", GYRE_FLOAT8_E4M3},
                     {"fp8_e5m2", GYRE_FLOAT8_E5M2},
                     {"float8_e5m2", GYRE_FLOAT8_E5M2}};

gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out)
{
    char *end = NULL;
    errno = 0;
    const double number = gyre_text_to_double(text, &end);
    double unit = 1;
    if (end != text && *end != '\0') {
        static const char letters[] = "KMG";
        const char *letter = strchr(letters, gyre_text_upper(*end));
        const char *rest = letter != NULL && *letter != '\0' ? end + 1 : end;
        if (*rest != '\0' && !gyre_text_same(rest, "B") &&
            !(rest > end && gyre_text_same(rest, "iB")))
            end = NULL;
        else if (rest > end)
            for (const char *at = letters; at <= letter; at++)
                unit *= 1024;
    }
    if (end == NULL || end == text || errno != 0 || !(number >= 0) || number * unit > 1e15)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "\"%s\" is not a size: a number, then nothing, K, M or G (KB and KiB, too)", text);
    *n_bytes_out = (size_t)(number * unit);
    return GYRE_SUCCESS;
}

bool bench_is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return strcmp(a, b) == 0 || (stat(a, &of_a) == 0 && stat(b, &of_b) == 0 &&
                                 of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino);
}

static bool read_number(const struct bench_option *option, const char *text, int *value_out)
{
    char *end = NULL;
    /* Decimal or 0x10 as in nccl-tests, never octal. */
    const bool is_hex = text[0] == '0' && gyre_text_lower(text[1]) == 'x';
    errno = 0;
    const long value = strtol(text, &end, is_hex ? 16 : 10);
    if (option->has_all && (gyre_text_same(text, "all") || strcmp(text, "-1") == 0)) {
        *value_out = BENCH_ALL;
        return true;
    }
    if (end == text || *end != '\0' || errno != 0 || value < option->low || value > option->high)
        return false;
    *value_out = (int)value;
    return true;
}

static bool read_word(const struct bench_option *option, const char *text, int *value_out)
{
    const bool is_dtype = option->type == BENCH_DTYPE;
    const int low = (int)option->low;
    int found = is_dtype ? gyre_name_find(gyre_dtype_names, GYRE_N_DTYPES, text)
                         : gyre_name_find(option->words + low, (int)option->high - low, text);
    for (size_t i = 0; is_dtype && found < 0 && i < GYRE_ARRAY_LENGTH(dtype_aliases); i++)
        if (gyre_text_same(dtype_aliases[i].name, text))
            found = (int)dtype_aliases[i].dtype;
    const bool is_all = option->has_all && gyre_text_same(text, "all");
    *value_out = is_all ? BENCH_ALL : found + low;
    return is_all || found >= 0;
}

static bool read_value(const struct bench_option *option, const char *text, void *field)
{
    int number = 0;
    size_t n_bytes = 0;
    char *end = NULL;
    switch (option->type) {
    case BENCH_FLAG:
        *(bool *)field = true;
        return true;
    case BENCH_BOOL:
        if (!read_number(option, text, &number))
            return false;
        *(bool *)field = number != 0;
        return true;
    case BENCH_NUMBER:
        return read_number(option, text, field);
    case BENCH_AMOUNT: {
        const double amount = gyre_text_to_double(text, &end);
        if (end == text || *end != '\0' || !(amount > 0) || amount > (double)option->high)
            return false;
        *(double *)field = amount;
        return true;
    }
    case BENCH_BYTES:
        if (bench_parse_bytes(text, &n_bytes) != GYRE_SUCCESS || n_bytes < (size_t)option->low ||
            (option->high > 0 && n_bytes > (size_t)option->high))
            return false;
        *(size_t *)field = n_bytes;
        return true;
    case BENCH_WORD:
    case BENCH_DTYPE:
        return read_word(option, text, field);
    case BENCH_TEXT:
        if (option->words != NULL && !read_word(option, text, &number))
            return false;
        *(const char **)field = option->words != NULL ? option->words[number] : text;
        return true;
    case BENCH_TEXTS: {
        struct bench_texts *texts = field;
        if (texts->n == BENCH_MAX_TEXTS)
            return false;
        texts->at[texts->n++] = text;
        return true;
    }
    case BENCH_IGNORED:
        return read_number(option, text, &number);
    }
    return false;
}

static gyre_status refuse(const struct bench_option *option, const char *text, bool is_bench)
{
    const bool is_dtype = option->type == BENCH_DTYPE;
    const char *const *words = is_dtype ? gyre_dtype_names : option->words;
    char legal[256] = "";
    if (option->expected != NULL)
        snprintf(legal, sizeof(legal), "%s", option->expected);
    else if (words != NULL)
        for (long i = option->low; i < (is_dtype ? GYRE_N_DTYPES : option->high); i++)
            gyre_text_append(legal, sizeof(legal), " %s", words[i]);
    else if (option->type == BENCH_BYTES)
        snprintf(legal, sizeof(legal),
                 "a size: a number, then nothing, K, M or G (KB and KiB, too)");
    else if (option->type == BENCH_AMOUNT)
        snprintf(legal, sizeof(legal), "a number above 0, at most %g", (double)option->high);
    else if (option->type == BENCH_TEXTS)
        snprintf(legal, sizeof(legal), "at most %d files", BENCH_MAX_TEXTS);
    else
        snprintf(legal, sizeof(legal), "a number from %ld to %ld", option->low, option->high);
    const bool is_list = words != NULL && option->expected == NULL;
    if (is_bench)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is %s%s%s", text,
                         is_list ? "none of" : "not ", legal,
                         option->has_all && is_list ? " all" : "");
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--%s %s: expected %s%s", option->name, text,
                     is_list ? "one of" : "", legal);
}

/* Drops lines that do not fit. */
static void note(const struct bench_option *option, const char *text, char *notes)
{
    const size_t used = strlen(notes);
    int value = 0;
    if (!read_number(option, text, &value))
        return;
    if (option->type == BENCH_BOOL && value > 1)
        snprintf(notes + used, BENCH_NOTES_BYTES - used, "-%c %d is taken as -%c 1\n",
                 option->letter, value, option->letter);
    if (option->type == BENCH_IGNORED && value != 0 && option->why != NULL)
        snprintf(notes + used, BENCH_NOTES_BYTES - used, "-%c %d has no effect: %s\n",
                 option->letter, value, option->why);
}

gyre_status bench_options_read(const struct bench_command_line *line, int argc, char **argv,
                               void *fields, char *notes)
{
    struct option names[MAX_OPTIONS] = {{NULL, 0, NULL, 0}};
    char letters[2 * MAX_OPTIONS] = "";
    /* A leading : lets the program word refusals. */
    char *end = letters;
    if (line->unknown != NULL)
        *end++ = ':';
    for (int i = 0; line->options[i].name != NULL; i++) {
        const struct bench_option *option = &line->options[i];
        const bool has_value = option->type != BENCH_FLAG;
        names[i] = (struct option){option->name, has_value, NULL, FIRST_LONG + i};
        if (option->letter != 0)
            *end++ = (char)option->letter;
        if (option->letter != 0 && has_value)
            *end++ = ':';
    }
    opterr = line->unknown == NULL;
    optind = 1;
    for (;;) {
        const int at = optind;
        const int id = getopt_long(argc, argv, letters, names, NULL);
        if (id == -1)
            break;
        if ((id == '?' || id == ':') && line->unknown == NULL) {
            gyre_set_cause(""); /* said by getopt_long() */
            return GYRE_ERROR_INVALID_ARGUMENT;
        }
        if (id == '?' || id == ':')
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: %s", argv[at],
                             id == '?' ? line->unknown : line->valueless);
        const struct bench_option *option = line->options;
        while (id < FIRST_LONG && option->letter != id)
            option++;
        option += id < FIRST_LONG ? 0 : id - FIRST_LONG;
        if (!read_value(option, optarg, (char *)fields + option->at)) {
            const gyre_status status = refuse(option, optarg, line->user == NULL);
            return line->user == NULL ? gyre_fail_context(status, "%s", argv[at]) : status;
        }
        if (option->type == BENCH_FLAG && strcmp(option->name, "help") == 0)
            return GYRE_SUCCESS;
        if (notes != NULL && (option->type == BENCH_BOOL || option->type == BENCH_IGNORED))
            note(option, optarg, notes);
    }
    if (!line->has_arguments && optind < argc)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "unexpected argument \"%s\"", argv[optind]);
    return GYRE_SUCCESS;
}

bool bench_options_take(const struct bench_command_line *line, int argc, char **argv, void *fields)
{
    if (bench_options_read(line, argc, argv, fields, NULL) == GYRE_SUCCESS)
        return true;
    if (gyre_cause()[0] != '\0')
        fprintf(stderr, "%s: %s\n", line->user, gyre_cause());
    return false;
}

int bench_options_start(const struct bench_command_line *line, int argc, char **argv, void *fields,
                        void (*print_usage)(const char *program, FILE *out))
{
    const bool has_words = line->unknown != NULL;
    const bool is_right = (argc > 1 || has_words) && bench_options_take(line, argc, argv, fields);
    const struct bench_option *help = line->options;
    while (strcmp(help->name, "help") != 0)
        help++;
    if (is_right && !*(const bool *)((const char *)fields + help->at))
        return -1;
    if (!is_right && has_words)
        fputs("\n", stderr);
    if (is_right || has_words || argc == 1)
        print_usage(argv[0], is_right ? stdout : stderr);
    return is_right ? 0 : 2;
}

void bench_options_print(const struct bench_option *options, int column, FILE *out)
{
    bool has_letters = false; /* beside -h */
    for (const struct bench_option *row = options; row->name != NULL; row++)
        has_letters |= row->letter != 0 && row->type != BENCH_FLAG;
    for (const struct bench_option *row = options; row->name != NULL; row++) {
        int n = row->letter != 0 ? fprintf(out, "  -%c, ", row->letter)
                                 : fprintf(out, "%*s", has_letters ? 6 : 2, "");
        for (;; row++) {
            n += fprintf(out, "--%s%s%s", row->name, row->value != NULL ? " " : "",
                         row->value != NULL ? row->value : "");
            if (row->help != NULL)
                break;
            n += fprintf(out, ", ");
        }
        fprintf(out, "%*s", n + 2 <= column ? column - n : 3, "");
        for (const char *at = row->help; at != NULL; at = strchr(at, '\n')) {
            at += *at == '\n';
            fprintf(out, "%*s%.*s\n", at == row->help ? 0 : column, "", (int)strcspn(at, "\n"), at);
        }
    }
}

void bench_streams_open(void)
{
    int fd;
    do /* open() takes the lowest free number */
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    /* A write beyond ulimit -f then fails with a message instead of ending the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

gyre_status bench_streams_flush(void)
{
    return fflush(stdout) == 0 ? GYRE_SUCCESS : gyre_fail_errno(errno, "standard output");
}

int bench_streams_close(const char *program, int exit_status)
{
    bool is_lost = fflush(stdout) != 0;
    const char *why = strerror(errno);
    if (!is_lost && ferror(stdout) != 0 && exit_status == 0) { /* else reported earlier */
        /* The stream keeps no reason, so one more line finds it. */
        is_lost = true;
        why = putchar('\n') == EOF || fflush(stdout) != 0 ? strerror(errno) : "was interrupted";
    }
    if (!is_lost)
        return exit_status;
    fprintf(stderr, "%s: standard output: %s\n", program, why);
    return exit_status != 0 ? exit_status : 1;
}
