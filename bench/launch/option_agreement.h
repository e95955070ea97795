/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses a run whose processes were given different options: ranks with other sizes, counts or
 * phases than their peers would wait for ever, or measure something else.
 */
#ifndef GYRE_BENCH_OPTION_AGREEMENT_H
#define GYRE_BENCH_OPTION_AGREEMENT_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

#define BENCH_MAX_AGREED_OPTIONS 48
#define BENCH_OPTION_TEXT_BYTES  32

/* Texts of one process, of fixed size and padded with NUL. A word that does not fit is cut, and a
 * hash of it follows. */
struct bench_option_texts {
    char texts[BENCH_MAX_AGREED_OPTIONS][BENCH_OPTION_TEXT_BYTES];
};

/** bench_option_texts_of - those that the table says must agree (enum bench_agreement). Pure. */
void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out);

/** bench_option_texts_compare - with process 0's. Pure. @all: by process. Errors: INVALID_ARGUMENT
 * with the first option that differs and the values of the processes. */
gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes);

/** bench_options_agree - collective over the processes, which all get the same answer. It comes
 * before every other gather, whose size may depend on an option. Errors: as
 * bench_option_texts_compare(). */
gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options);

#endif
