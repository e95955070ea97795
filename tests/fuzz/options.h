/* SPDX-License-Identifier: Apache-2.0
 *
 * All options are numbers, so that one table reads them, explains them and writes the command that
 * repeats a run.
 */
#ifndef GYRE_TESTS_FUZZ_OPTIONS_H
#define GYRE_TESTS_FUZZ_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum { FUZZ_MAX_RANKS = 64 };

enum fuzz_exit {
    FUZZ_RIGHT = 0,
    FUZZ_WRONG = 1,
    FUZZ_HANG = 2,    /* no rank went on for --timeout seconds */
    FUZZ_FAILED = 3,  /* a call of gyre's failed */
    FUZZ_CRASHED = 4, /* a rank ended by a signal */
    FUZZ_USAGE = 64,
    FUZZ_SKIPPED = 77
};

enum fuzz_device_choice { FUZZ_ON_HOST, FUZZ_ON_CUDA };
enum fuzz_mode_choice { FUZZ_THREADS, FUZZ_PROCESSES };

/** Constant after fuzz_options_read(). */
struct fuzz_options {
    long device, mode, checks_calls; /* choices */
    long n_ranks, n_hosts, seed, n_calls, max_bytes, timeout_s;
    long stop_at, only_first, only_last, break_at, skip_at;
    long is_verbose;
};
extern struct fuzz_options fuzz_options;

/** Returns -1, or the status to exit with: FUZZ_USAGE after a message, 0 after --help. */
int fuzz_options_read(int argc, char **argv);

/** With the environment's GYRE_* variables. @text_out: n_bytes with its NUL. */
void fuzz_options_command(char *text_out, size_t n_bytes);

/** --only and --stop-at leave calls out. */
bool fuzz_options_makes(long call);

#endif
