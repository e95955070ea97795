/* SPDX-License-Identifier: Apache-2.0
 *
 * What all processes of a run must have been told alike. Ranks with other sizes, counts or phases
 * than their peers would wait for them for ever, or measure something else.
 */
#ifndef GYRE_BENCH_OPTION_AGREEMENT_H
#define GYRE_BENCH_OPTION_AGREEMENT_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"

#define BENCH_N_AGREED_OPTIONS  38
#define BENCH_OPTION_TEXT_BYTES 32

/* One process's options, as texts. Exchanged between processes: fixed size, NUL-padded; of a longer
 * word the beginning and a hash. */
struct bench_option_texts {
    char texts[BENCH_N_AGREED_OPTIONS][BENCH_OPTION_TEXT_BYTES];
};

/** bench_option_texts_of - the terms of a process. Not among them: paths of files that rank 0 alone
 * opens (of --json, --csv and --from it matters whether they are given), -S, which rank 0 alone
 * reads,
 * --nccl-lib, which may lie elsewhere on another host, and --device, which communicators compare
 * once it is known what "auto" means. Pure. */
void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out);

/** bench_option_texts_compare - with those of process 0, in the order of the table. Pure.
 * @all: by process. Errors: INVALID_ARGUMENT naming the first option that differs and who has what.
 */
gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes);

/** bench_options_agree - exchange and compare; collective over the processes, and the same answer
 * on all. Sizes of later exchanges may depend on options. Errors: as bench_option_texts_compare().
 */
gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options);

#endif
