/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fuzz_options fuzz_options;

static const char *program;
extern char **environ;

enum form { NUMBER, BYTES, CHOICE, RANGE, FLAG };

/* Where the value is stored (a range's first end), its default, and the legal values. */
static const struct option {
    const char *name;
    size_t offset;
    enum form form;
    long initial, least, most;
    const char *choices, *help;
} options[] = {
#define AT(field) offsetof(struct fuzz_options, field)
    {"--device", AT(device), CHOICE, FUZZ_ON_HOST, 0, 1, "host cuda", "where buffers lie"},
    {"--mode", AT(mode), CHOICE, FUZZ_THREADS, 0, 1, "threads processes", "what a rank is"},
    {"--check", AT(checks_calls), CHOICE, 0, 0, 1, "none calls", "calls: with GYRE_CHECK=calls"},
    {"--ranks", AT(n_ranks), NUMBER, 2, 1, FUZZ_MAX_RANKS, "", "ranks"},
    {"--hosts", AT(n_hosts), NUMBER, 0, 0, FUZZ_MAX_RANKS, "",
     "rank r is on host r % H by name, sockets between hosts (needs --mode processes); 0: no "
     "names"},
    {"--seed", AT(seed), NUMBER, 1, 0, LONG_MAX, "", "the sequence follows from it"},
    {"--calls", AT(n_calls), NUMBER, 200, 1, LONG_MAX, "", "length of the sequence"},
    {"--max-bytes", AT(max_bytes), BYTES, 1 << 20, 64, 1L << 32, "",
     "largest buffer of a call; 64K, 1M"},
    {"--timeout", AT(timeout_s), NUMBER, 60, 1, 86400, "",
     "seconds without progress on any rank that count as a hang"},
    {"--stop-at", AT(stop_at), NUMBER, LONG_MAX, 0, LONG_MAX, "", "the last call that is made"},
    {"--only", AT(only_first), RANGE, 0, 0, LONG_MAX, "",
     "A-B: make these calls only; communicators are made and ended as ever"},
    {"--break", AT(break_at), NUMBER, -1, 0, LONG_MAX, "",
     "self-test: from that call on a byte of each result is changed: the run must end with status "
     "1"},
    {"--skip", AT(skip_at), NUMBER, -1, 0, LONG_MAX, "",
     "self-test: from that call on the last rank makes none, and waits: the run must end with "
     "status 2"},
    {"--verbose", AT(is_verbose), FLAG, 0, 0, 1, "", "print every call of every rank"},
#undef AT
};
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

static long *value_of(const struct option *option)
{
    return (long *)(void *)((char *)&fuzz_options + option->offset);
}

static void print_help(FILE *file)
{
    fprintf(file, "Random calls of gyre on several ranks; every result is checked.\n"
                  "Exit status: 0 right, 1 wrong data, 2 a hang, 3 a call failed, 4 a crash.\n");
    for (int i = 0; i < N_OPTIONS; i++)
        fprintf(file, "  %-12s %s%s%s%s\n", options[i].name, options[i].choices,
                options[i].form == CHOICE ? ": " : "", options[i].help,
                options[i].form == CHOICE ? " (the first is the default)" : "");
}

/* "host cuda" names 0 and 1. */
static bool read_choice(const struct option *option, const char *text, long *value_out)
{
    const size_t n_chars = strlen(text);
    const char *at = option->choices;
    for (long i = 0; at != NULL; i++) {
        if (strncmp(at, text, n_chars) == 0 && (at[n_chars] == ' ' || at[n_chars] == '\0')) {
            *value_out = i;
            return n_chars > 0;
        }
        at = strchr(at, ' ');
        at = at == NULL ? NULL : at + 1;
    }
    return false;
}

static bool read_number(const char *text, const char *ends, long *value_out, const char **end_out)
{
    char *end = NULL;
    errno = 0;
    *value_out = strtol(text, &end, 10);
    *end_out = end;
    return errno == 0 && end != text && text[0] >= '0' && text[0] <= '9' &&
           strchr(ends, *end) != NULL;
}

static bool read_bytes(const char *text, long *value_out)
{
    const char *end;
    if (!read_number(text, "KMG", value_out, &end))
        return false;
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (*value_out > LONG_MAX >> shift || (*end != '\0' && end[1] != '\0'))
        return false;
    *value_out <<= shift;
    return true;
}

static bool read_value(const struct option *option, const char *text)
{
    long *value = value_of(option);
    const char *end;
    bool is_right;
    switch (option->form) {
    case CHOICE:
        return read_choice(option, text, value);
    case BYTES:
        is_right = read_bytes(text, value);
        break;
    case RANGE:
        is_right = read_number(text, "-", &fuzz_options.only_first, &end) && *end == '-' &&
                   read_number(end + 1, "", &fuzz_options.only_last, &end);
        break;
    default:
        is_right = read_number(text, "", value, &end);
    }
    return is_right && *value >= option->least && *value <= option->most;
}

static int refuse(const char *what, const char *which)
{
    fprintf(stderr, "fuzz: %s%s; --help explains the options\n", what, which);
    return FUZZ_USAGE;
}

int fuzz_options_read(int argc, char **argv)
{
    program = argv[0];
    for (int i = 0; i < N_OPTIONS; i++)
        *value_of(&options[i]) = options[i].initial;
    fuzz_options.only_last = LONG_MAX;
    for (int i = 1; i < argc; i++) {
        int row = 0;
        if (strcmp(argv[i], "--help") == 0) {
            print_help(stdout);
            return 0;
        }
        while (row < N_OPTIONS && strcmp(argv[i], options[row].name) != 0)
            row++;
        if (row == N_OPTIONS)
            return refuse("there is no option ", argv[i]);
        if (options[row].form == FLAG)
            *value_of(&options[row]) = 1;
        else if (++i == argc || !read_value(&options[row], argv[i]))
            return refuse("no value, or not a legal one, of ", options[row].name);
    }
    if (fuzz_options.n_hosts > 0 && fuzz_options.mode == FUZZ_THREADS)
        return refuse("--hosts needs --mode processes: a host's name belongs to a process", "");
    return -1;
}

static void append(char *text, size_t n_bytes, const char *format, const char *a, const char *b)
{
    const size_t used = strlen(text);
    snprintf(text + used, n_bytes - used, format, a, b);
}

static void append_option(char *text, size_t n_bytes, const struct option *option)
{
    char number[64];
    const long value = *value_of(option);
    if (option->form == CHOICE) {
        const char *name = option->choices;
        for (long i = 0; i < value; i++)
            name = strchr(name, ' ') + 1;
        snprintf(number, sizeof(number), "%.*s", (int)strcspn(name, " "), name);
    } else if (option->form == RANGE) {
        if (fuzz_options.only_last == LONG_MAX)
            return;
        snprintf(number, sizeof(number), "%ld-%ld", value, fuzz_options.only_last);
    } else {
        snprintf(number, sizeof(number), "%ld", value);
    }
    if (option->form == FLAG)
        append(text, n_bytes, value ? " %s%s" : "%.0s%.0s", option->name, "");
    else if (option->form == RANGE || value != option->initial ||
             option->offset <= offsetof(struct fuzz_options, max_bytes))
        append(text, n_bytes, " %s %s", option->name, number);
}

void fuzz_options_command(char *text_out, size_t n_bytes)
{
    text_out[0] = '\0';
    for (char **entry = environ; *entry != NULL; entry++)
        if (strncmp(*entry, "GYRE_", 5) == 0 && strncmp(*entry, "GYRE_CHECK=", 11) != 0 &&
            strncmp(*entry, "GYRE_HOSTID=fuzz", 16) != 0)
            append(text_out, n_bytes, "'%s'%s ", *entry, "");
    append(text_out, n_bytes, "%s%s", program, "");
    for (int i = 0; i < N_OPTIONS; i++)
        append_option(text_out, n_bytes, &options[i]);
}

bool fuzz_options_makes(long call)
{
    return call <= fuzz_options.stop_at && call < fuzz_options.n_calls &&
           call >= fuzz_options.only_first && call <= fuzz_options.only_last;
}
