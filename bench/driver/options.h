/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the benches: nccl-tests' letters and long names, and gyre's own as long names only.
 */
#ifndef GYRE_BENCH_OPTIONS_H
#define GYRE_BENCH_OPTIONS_H

#include "bench/driver/bench.h"
#include "core/base/status.h"
#include "core/model/types.h"
#include "core/plan/plan.h"

#define BENCH_ALL (-1) /* of -o, -d, -r: try each */

enum bench_average { BENCH_RANK_0, BENCH_AVERAGE, BENCH_MIN, BENCH_MAX };

/* Over which buffers --compare nccl measures: those of gyre's calls, its own in symmetric windows,
 * or both, of which the faster counts. */
enum bench_nccl_mode { BENCH_NCCL_PLAIN, BENCH_NCCL_WINDOW, BENCH_NCCL_BEST };
extern const char *const bench_nccl_mode_names[3];

struct bench_options {
    int n_threads; /* -t; ranks of a process are n_threads * n_gpus threads */
    int n_gpus;    /* -g */
    size_t min_bytes;
    size_t max_bytes;
    size_t step_bytes;
    int step_factor; /* > 1: used instead of step_bytes */
    int n_iters;
    int n_warmup; /* at every size */
    int n_aggregated;
    int n_cycles; /* 0 = until interrupted */
    int n_checks;
    int average; /* enum bench_average: over ranks */
    int op;      /* gyre_op or BENCH_ALL */
    int dtype;   /* gyre_dtype or BENCH_ALL */
    int root;    /* or BENCH_ALL */
    int n_graph_launches;
    int timeout_s; /* per operation; 0 = none */
    bool is_blocking;
    bool is_stream_null;
    bool is_cputime;
    bool has_timestamps;
    bool is_unaligned; /* buffers start one element off */
    int registration;  /* of buffers: 0 none, 1 local, 2 windows */
    int device;        /* gyre_device_kind */
    const char *algo;  /* strings are argv's */
    const char *proto;
    const char *result_path;
    bool is_sweep;        /* every algo x proto x channels of the lists by itself */
    const char *channels; /* a list with --sweep; NULL = the tuner's */
    int n_channels;       /* forced now; 0 = the tuner's */
    bool is_predict;
    bool is_accuracy;
    const char *from_folder; /* of tune; NULL = measure */
    const char *output_path; /* of tune; NULL = stdout */
    const char *compare;
    const char *nccl_library; /* of --compare nccl; NULL = the loader's libnccl.so.2 */
    const char *nccl_algo;
    const char *nccl_proto;
    int nccl_mode;           /* enum bench_nccl_mode */
    const char *limits_path; /* of build/bench/limits; NULL = no column "% of limit" */
    const char *json_path;
    const char *csv_path;
    int n_rounds; /* of --compare */
    bool wants_help;
    bool wants_variables;
};

/** bench_options_parse - from argv; defaults as nccl-tests, or the kind's.
 * Errors: INVALID_ARGUMENT naming the option and what is legal. */
gyre_status bench_options_parse(int argc, char **argv, const struct bench_kind *kind,
                                struct bench_options *options_out);

/** bench_options_check - whether the options go together, and whether all that is given is used.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, naming the option. */
gyre_status bench_options_check(const struct bench_options *options, const struct bench_kind *kind);

/** bench_options_allowed - the algorithms, protocols and paths that --algo, --proto and --path
 * allow in every communicator of the run. With --sweep the lists of --algo and --proto name
 * combinations, each of which has a communicator of its own, so that they are not among these
 * words. Pure. */
struct gyre_filter_words bench_options_allowed(const struct bench_options *options);

/** bench_options_next_bytes - the size after n_bytes, by -i or -f. Pure. */
size_t bench_options_next_bytes(const struct bench_options *options, size_t n_bytes);

/** bench_options_print_help - the usage text, on stdout. */
void bench_options_print_help(const char *program);

/** bench_parse_bytes - "8", "64K", "1M", "2G" (powers of 1024). Pure. */
gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out);

#endif
