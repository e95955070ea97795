/* SPDX-License-Identifier: Apache-2.0
 *
 * How a failure is reported: what, where, the calls of the round, and the command that repeats it.
 */
#ifndef GYRE_TESTS_FUZZ_REPORT_H
#define GYRE_TESTS_FUZZ_REPORT_H

#include "tests/fuzz/options.h"
#include "tests/fuzz/rank.h"

extern const char *const fuzz_collective_names[FUZZ_N_COLLECTIVES];

/** fuzz_fail - report a failure and end the process with `verdict`. The first rank to fail prints
 * everything; a later one prints a line, because its failure may be a consequence.
 * @rank: NULL when no rank has begun. */
_Noreturn void fuzz_fail(const struct fuzz_rank *rank, enum fuzz_exit verdict, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));

/** The call succeeds; else the run fails with gyre's cause. */
#define FUZZ_TRY(rank, expression)                                                               \
    do {                                                                                         \
        const gyre_status status_ = (expression);                                                \
        if (status_ != GYRE_SUCCESS)                                                             \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s: %s", #expression, gyre_status_name(status_), \
                      gyre_last_error());                                                        \
    } while (0)

/** The same for a function of the device's table. */
#define FUZZ_TRY_DEVICE(rank, expression)                                    \
    do {                                                                     \
        const char *failure_ = (expression);                                 \
        if (failure_ != NULL)                                                \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s", #expression, failure_); \
    } while (0)

/** fuzz_describe - a call in one line. */
void fuzz_describe(const struct fuzz_rank *rank, const struct fuzz_call *call, char *text_out,
                   size_t n_bytes);

/** fuzz_print_rank - where the rank is, and the calls of its round, to stderr. */
void fuzz_print_rank(const struct fuzz_rank *rank);

/** fuzz_print_command - how to repeat the run, to stderr. */
void fuzz_print_command(void);

#endif
