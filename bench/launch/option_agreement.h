/* SPDX-License-Identifier: Apache-2.0
 *
 * The check that all processes of a run were given the same options. Ranks with other sizes, counts
 * or phases than their peers would wait for those peers for ever, or would measure something else.
 */
#ifndef GYRE_BENCH_OPTION_AGREEMENT_H
#define GYRE_BENCH_OPTION_AGREEMENT_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

#define BENCH_N_AGREED_OPTIONS  40
#define BENCH_OPTION_TEXT_BYTES 32

/* The options of one process as texts, in the form in which the processes gather them: of fixed
 * size and padded with NUL. A word that does not fit is cut, and a hash of it follows. */
struct bench_option_texts {
    char texts[BENCH_N_AGREED_OPTIONS][BENCH_OPTION_TEXT_BYTES];
};

/** bench_option_texts_of - write a process's options as texts. Pure.
 * These options may differ, so they are left out: -S, --limits and --output, which only rank 0
 * reads;
 * --nccl-lib, because the library may lie elsewhere on another host; and --device, which the
 * communicators compare once "auto" is resolved. Of --json, --csv and --from only the presence
 * counts, because rank 0 alone opens the files. */
void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out);

/** bench_option_texts_compare - compare the options of each process with those of process 0, in the
 * order of the table. Pure.
 * @all: by process.
 * Errors: INVALID_ARGUMENT with the first option that differs and the values of the processes. */
gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes);

/** bench_options_agree - gather the options of all processes and compare them. Collective over the
 * processes, which all get the same answer. It comes before every other gather, because the size of
 * a later gather may depend on an option. Errors: as bench_option_texts_compare(). */
gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options);

#endif
