/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0's text, CSV and JSON from the same rows. Files are complete after every row; until the
 * first, old files stay.
 */
#ifndef GYRE_BENCH_OUTPUT_H
#define GYRE_BENCH_OUTPUT_H

#include "bench/driver/rank.h"
#include "bench/engines/compare.h"
#include "bench/limits/limits.h"

#include <stdio.h>

struct gyre_nvml_clocks;

struct bench_machine {
    unsigned n_sms;       /* 0 = no GPU */
    char cuda_driver[16]; /* the driver's newest, "13.0", "" = unknown */
    char cuda_runtime[16];
    struct gyre_nvml_clocks *clocks; /* NULL = unknown */
};

struct bench_clocks {
    unsigned sm_mhz; /* 0 = unknown */
    unsigned memory_mhz;
};

void bench_machine_open(const struct bench_rank *rank, struct bench_machine *machine_out);
void bench_machine_close(struct bench_machine *machine);

/** The lowest, as the slowest GPU sets the pace. Unknown if they are so on any rank. Collective,
 * with one result on all ranks. */
gyre_status bench_machine_clocks(struct bench_rank *rank, const struct bench_machine *machine,
                                 struct bench_clocks *clocks_out);

/* Ranks all-gather it: texts have a fixed size and end with NUL. */
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
    const char *reference;            /* engine's name, version and mode, "" = none */
    const struct bench_machine *machine;
    struct bench_limit limit; /* of --limits, on rank 0 only */
};

struct bench_row {
    struct bench_case what;
    struct bench_timing out_of_place;
    struct bench_timing in_place;
    struct bench_comparison comparison;
    struct bench_comparison comparison_in_place;
    struct gyre_plan_summary plan; /* of calls out of place */
    struct bench_clocks clocks;    /* unknown without --json */
    int cycle;
};

struct bench_summary {
    int64_t n_wrong;
    double busbw; /* mean over rows */
    double time_us;
    double launch_us;   /* mean over rows, 0 = not measured */
    double least_busbw; /* NCCL_TESTS_MIN_BW, -1 = not set */
    bool is_interrupted;
    bool has_failed;
};

struct bench_output;

/** Errors: SYSTEM (a file), UNSUPPORTED (no JSON). */
gyre_status bench_output_open(const struct bench_setting *setting,
                              struct bench_output **output_out);
gyre_status bench_output_row(struct bench_output *output, const struct bench_row *row);

gyre_status bench_output_close(struct bench_output *output, const struct bench_summary *summary);

unsigned bench_n_hosts(const struct bench_setting *setting);

/** Of the engine's name and version in setting->reference. Modes follow a comma. Pure. */
int bench_n_reference_version(const struct bench_setting *setting);

struct bench_json;

/** The first row writes the file. Errors: UNSUPPORTED (no json-c). */
gyre_status bench_json_open(const struct bench_setting *setting, struct bench_json **json_out);
/** Replaces the file. */
gyre_status bench_json_row(struct bench_json *json, const struct bench_row *row);
/** @json: NULL does nothing. @comparison: with the first algorithm, NULL = this is the first. */
gyre_status bench_json_contender(struct bench_json *json, const struct bench_case *what,
                                 const struct bench_contender *contender, double time_us,
                                 const struct bench_comparison *comparison);
gyre_status bench_json_close(struct bench_json *json, const struct bench_summary *summary);

/** @variable: "NAME=value". Pure. */
bool bench_is_reported(const char *variable);
/** Must the value be hidden? Pure. */
bool bench_is_secret(const char *variable);

#endif
