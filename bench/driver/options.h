/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters and long names of nccl-tests, and gyre's own long names.
 */
#ifndef GYRE_BENCH_OPTIONS_H
#define GYRE_BENCH_OPTIONS_H

#include "bench/driver/option_table.h"
#include "core/gyre_model.h"

/* A bench is one struct bench_kind and one call of bench_main(). */
struct bench_rank;

struct bench_kind {
    const char *name;
    enum gyre_collective coll;
    bool is_in_place_checkable; /* else in place is only timed */
    /* NULL = the table of sizes. */
    gyre_status (*run)(struct bench_rank *rank);
    size_t min_bytes; /* defaults of -b, -e, -f; 0 = nccl-tests' */
    size_t max_bytes;
    int step_factor;
};

/** Exit status 0 if the run succeeded, every checked value was right and all output was written. */
int bench_main(int argc, char **argv, const struct bench_kind *kind);

#define BENCH_MULSUM          GYRE_N_OPS /* -o: products with the factor 1 */
#define BENCH_MAX_CONTENDERS  8
#define BENCH_CONTENDER_BYTES 48 /* of a name with its protocol */

enum bench_average { BENCH_RANK_0, BENCH_AVERAGE, BENCH_MIN, BENCH_MAX };

enum bench_nccl_mode {
    BENCH_NCCL_PLAIN,   /* on gyre's buffers */
    BENCH_NCCL_WINDOW,  /* on its own symmetric windows */
    BENCH_NCCL_BEST,    /* all modes, the fastest counts */
    BENCH_NCCL_BUFFERS, /* on its own registered buffers */
    BENCH_NCCL_ZERO_SM, /* windows, and copy engines in place of multiprocessors */
    BENCH_NCCL_DEFAULT, /* plain */
    BENCH_N_NCCL_MODES
};
extern const char *const bench_nccl_mode_names[BENCH_N_NCCL_MODES];

extern const char *const bench_op_names[GYRE_N_OPS + 1]; /* with nccl-tests' mulsum */

struct bench_options {
    int n_threads; /* -t; n_threads * n_gpus ranks a process, each a thread */
    int n_gpus;    /* -g */
    size_t min_bytes;
    size_t max_bytes;
    size_t step_bytes;
    int step_factor; /* above 1: replaces step_bytes */
    int n_iters;
    int n_warmup;
    int n_aggregated;
    int n_cycles; /* 0 = until interrupted */
    int n_checks;
    int average; /* enum bench_average: over ranks */
    int op;      /* gyre_op, BENCH_MULSUM or BENCH_ALL */
    int dtype;   /* gyre_dtype or BENCH_ALL */
    int root;    /* or BENCH_ALL */
    int n_graph_launches;
    int timeout_s; /* an operation, 0 = no limit */
    bool is_blocking;
    bool is_stream_null;
    bool is_cputime;
    bool has_timestamps;
    bool has_host_time;
    bool is_unaligned; /* by one element */
    int registration;  /* 2 = in windows */
    int device;        /* gyre_device_kind */
    const char *algo;  /* texts are argv's */
    const char *algo_file;
    const char *proto;
    const char *result_path;
    bool is_sweep;
    const char *channels; /* NULL = tuner's choice */
    int n_channels;       /* of this combination, 0 = tuner's choice */
    bool is_predict;
    bool is_accuracy;
    const char *from_folder; /* of tune; NULL = measure */
    const char *output_path; /* of tune, NULL = standard output */
    const char *compare;
    const char *compare_algos;
    const char *sizes;        /* of --compare-algos, in order, NULL = by -b, -e, -i, -f */
    const char *nccl_library; /* NULL = the loader's libnccl.so.2 */
    const char *nccl_algo;
    const char *nccl_proto;
    const char *nccl_channels; /* as text */
    int nccl_mode;             /* enum bench_nccl_mode */
    const char *old_library;
    const char *limits_path;
    const char *json_path;
    const char *csv_path;
    const char *sweep_csv_path; /* of all of --sweep, NULL = none */
    bool appends_to_sweep;      /* an earlier combination wrote it */
    int n_rounds;
    bool wants_help;
    bool wants_variables;
    char notes[BENCH_NOTES_BYTES]; /* of bench_options_read() */
};

extern const struct bench_option bench_option_rows[]; /* of struct bench_options */

/** Reads argv, and checks that options are consistent and used. Defaults are nccl-tests' or the
 * kind's. Errors: INVALID_ARGUMENT with legal values, UNSUPPORTED. */
gyre_status bench_options_parse(int argc, char **argv, const struct bench_kind *kind,
                                struct bench_options *options_out);

/** What --algo, --proto and --path allow to every communicator. With --sweep, --algo and --proto
 * name combinations and are left out. Pure. */
struct gyre_filter_words bench_options_allowed(const struct bench_options *options);

size_t bench_options_next_bytes(const struct bench_options *options, size_t n_bytes);

/** Reads a list's first size and moves @at behind its comma. Errors: INVALID_ARGUMENT. */
gyre_status bench_options_take_size(const char **at, size_t *n_bytes_out);

void bench_options_print_help(const char *program);

#endif
