/* SPDX-License-Identifier: Apache-2.0
 *
 * The outputs of rank 0: the text table, CSV and JSON, from the same rows. The files are complete
 * after every row, so they are valid however the run ends. Until the first row the old files stay.
 */
#ifndef GYRE_BENCH_OUTPUT_H
#define GYRE_BENCH_OUTPUT_H

#include "bench/driver/measure.h"
#include "bench/engines/compare.h"
#include "bench/limits/limits.h"
#include "bench/report/machine.h"
#include "core/engine/plan/plan.h"

#include <stdio.h>

/* Where one rank runs. Ranks all-gather it, so all texts have a fixed size and end with NUL. */
struct bench_place {
    int rank;
    int pid;
    int device;
    char host[64];
    char pci[24];
    char device_text[64];
};

struct bench_setting {
    const struct bench_options *options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    int n_ranks;
    const struct bench_place *places; /* by rank */
    const char *device;               /* "host", "cuda" */
    const char *reference;            /* name, version and mode of the compared engine; "" = none */
    const struct bench_machine *machine;
    struct bench_limit limit; /* of --limits; set on rank 0 only */
};

struct bench_row {
    struct bench_case what;
    struct bench_timing out_of_place;
    struct bench_timing in_place;
    struct bench_comparison comparison;
    struct bench_comparison comparison_in_place;
    struct gyre_plan_summary plan; /* the plan of the calls out of place */
    struct bench_clocks clocks;    /* unknown without --json */
    int cycle;
};

struct bench_summary {
    int64_t n_wrong;
    double busbw; /* mean over all rows */
    double time_us;
    double launch_us;   /* mean over the same; 0 = not measured */
    double least_busbw; /* NCCL_TESTS_MIN_BW; -1 = not set */
    bool is_interrupted;
    bool has_failed; /* an error ended the run */
};

struct bench_output;

/** bench_output_open - errors: SYSTEM (a file cannot be written), UNSUPPORTED (this build has no
 * JSON). */
gyre_status bench_output_open(const struct bench_setting *setting,
                              struct bench_output **output_out);
gyre_status bench_output_row(struct bench_output *output, const struct bench_row *row);

gyre_status bench_output_close(struct bench_output *output, const struct bench_summary *summary);

unsigned bench_n_hosts(const struct bench_setting *setting);

/** bench_n_reference_version - the length of the engine's name and version in setting->reference.
 * Its modes follow behind a comma. Pure. */
int bench_n_reference_version(const struct bench_setting *setting);

struct bench_json;

/** bench_json_open - the first row writes the file. Errors: UNSUPPORTED (this build has no
 * json-c). */
gyre_status bench_json_open(const struct bench_setting *setting, struct bench_json **json_out);
/** bench_json_row - replaces the file. */
gyre_status bench_json_row(struct bench_json *json, const struct bench_row *row);
/** bench_json_contender - one algorithm of --compare-algos. NULL does nothing. @comparison: with
 * the first algorithm; NULL = this is the first one. */
gyre_status bench_json_contender(struct bench_json *json, const struct bench_case *what,
                                 const struct bench_contender *contender, double time_us,
                                 const struct bench_comparison *comparison);
gyre_status bench_json_close(struct bench_json *json, const struct bench_summary *summary);

/** bench_is_reported - @variable: "NAME=value". Pure. */
bool bench_is_reported(const char *variable);
/** bench_is_secret - must the value be hidden? Pure. */
bool bench_is_secret(const char *variable);

#endif
