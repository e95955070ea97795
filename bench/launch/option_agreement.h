/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses processes with different options, whose ranks would wait for ever or measure something
 * else.
 */
#ifndef GYRE_BENCH_OPTION_AGREEMENT_H
#define GYRE_BENCH_OPTION_AGREEMENT_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

#define BENCH_MAX_AGREED_OPTIONS 48
#define BENCH_OPTION_TEXT_BYTES  32

/* Texts of one process, padded with NUL. A cut word ends with its hash. */
struct bench_option_texts {
    char texts[BENCH_MAX_AGREED_OPTIONS][BENCH_OPTION_TEXT_BYTES];
};

/** Writes the options that must agree (enum bench_agreement). Pure. */
void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out);

/** Compares all processes with process 0. Pure. @all: by process. Errors: INVALID_ARGUMENT with the
 * first difference. */
gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes);

/** Runs before other gathers, whose size may depend on options. Collective, with one answer for all
 * processes. Errors: as bench_option_texts_compare(). */
gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options);

#endif
