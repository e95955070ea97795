/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the benches: letters and long names of nccl-tests, and gyre's own as long names only.
 */
#ifndef GYRE_BENCH_OPTIONS_H
#define GYRE_BENCH_OPTIONS_H

#include "bench/driver/bench.h"
#include "bench/driver/option_table.h"
#include "core/foundation/model/types.h"
#include "core/engine/plan/plan.h"

#define BENCH_MULSUM          GYRE_N_OPS /* value of -o: a sum of products with the factor 1 */
#define BENCH_MAX_CONTENDERS  8          /* of --compare-algos */
#define BENCH_CONTENDER_BYTES 48         /* of one of their names, with its protocol */

enum bench_average { BENCH_RANK_0, BENCH_AVERAGE, BENCH_MIN, BENCH_MAX };

/* How --compare nccl runs NCCL. */
enum bench_nccl_mode {
    BENCH_NCCL_PLAIN,   /* over the buffers of gyre's calls */
    BENCH_NCCL_WINDOW,  /* over NCCL's own in symmetric windows */
    BENCH_NCCL_BEST,    /* in every way that it has; the fastest one counts */
    BENCH_NCCL_BUFFERS, /* over registered buffers of its own */
    BENCH_NCCL_ZERO_SM, /* over windows, with copy engines in place of multiprocessors */
    BENCH_NCCL_DEFAULT, /* another name for plain */
    BENCH_N_NCCL_MODES
};
extern const char *const bench_nccl_mode_names[BENCH_N_NCCL_MODES];

extern const char *const bench_op_names[GYRE_N_OPS + 1]; /* with nccl-tests' mulsum */

struct bench_options {
    int n_threads; /* -t; a process has n_threads * n_gpus ranks, each a thread */
    int n_gpus;    /* -g */
    size_t min_bytes;
    size_t max_bytes;
    size_t step_bytes;
    int step_factor; /* above 1: multiplies sizes, and step_bytes is not used */
    int n_iters;
    int n_warmup;
    int n_aggregated;
    int n_cycles; /* 0 = until interrupted */
    int n_checks;
    int average; /* enum bench_average: how times of ranks are combined */
    int op;      /* gyre_op, BENCH_MULSUM or BENCH_ALL */
    int dtype;   /* gyre_dtype or BENCH_ALL */
    int root;    /* or BENCH_ALL */
    int n_graph_launches;
    int timeout_s; /* of one operation; 0 = none */
    bool is_blocking;
    bool is_stream_null;
    bool is_cputime;
    bool has_timestamps;
    bool has_host_time;
    bool is_unaligned; /* buffers start one element after an aligned address */
    int registration;  /* 2 = in windows */
    int device;        /* gyre_device_kind */
    const char *algo;  /* all texts are those of argv */
    const char *algo_file;
    const char *proto;
    const char *result_path;
    bool is_sweep;
    const char *channels; /* NULL = the tuner chooses */
    int n_channels;       /* of the combination that runs; 0 = the tuner chooses */
    bool is_predict;
    bool is_accuracy;
    const char *from_folder; /* of tune; NULL = measure */
    const char *output_path; /* of tune; NULL = standard output */
    const char *compare;
    const char *compare_algos;
    const char *sizes;        /* of --compare-algos, in this order; NULL = by -b, -e, -i and -f */
    const char *nccl_library; /* NULL = libnccl.so.2 as the loader finds it */
    const char *nccl_algo;
    const char *nccl_proto;
    const char *nccl_channels; /* a number, as text */
    int nccl_mode;             /* enum bench_nccl_mode */
    const char *old_library;
    const char *limits_path;
    const char *json_path;
    const char *csv_path;
    const char *sweep_csv_path; /* of all combinations of --sweep; NULL = none */
    bool appends_to_sweep;      /* an earlier combination has written that file */
    int n_rounds;
    bool wants_help;
    bool wants_variables;
    char notes[BENCH_NOTES_BYTES]; /* of bench_options_read() */
};

extern const struct bench_option bench_option_rows[]; /* of struct bench_options */

/** bench_options_parse - read argv, and check that the options go together and that each is used.
 * Defaults are those of nccl-tests or of the kind.
 * Errors: INVALID_ARGUMENT with the option and its legal values; UNSUPPORTED. */
gyre_status bench_options_parse(int argc, char **argv, const struct bench_kind *kind,
                                struct bench_options *options_out);

/** bench_options_try_algo_file - read the file of --algo-file before the ranks meet. Errors: as
 * gyre_algo_file_load(). */
gyre_status bench_options_try_algo_file(const struct bench_options *options);

/** bench_options_allowed - what --algo, --proto and --path allow in every communicator of the run.
 * With
 * --sweep the lists of --algo and --proto name combinations instead, and are left out. Pure. */
struct gyre_filter_words bench_options_allowed(const struct bench_options *options);

/** bench_options_next_bytes - by -i or -f. Pure. */
size_t bench_options_next_bytes(const struct bench_options *options, size_t n_bytes);

/** bench_options_take_size - read the first size of a list, and move @at behind it and its comma.
 * Errors: INVALID_ARGUMENT. */
gyre_status bench_options_take_size(const char **at, size_t *n_bytes_out);

void bench_options_print_help(const char *program);

#endif
