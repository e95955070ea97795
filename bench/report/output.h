/* SPDX-License-Identifier: Apache-2.0
 *
 * What rank 0 writes: the text table (nccl-tests' header, columns and footer), CSV and JSON. All
 * three read the same rows. CSV and JSON are complete after every row, so whatever ends the run
 * leaves valid files.
 */
#ifndef GYRE_BENCH_OUTPUT_H
#define GYRE_BENCH_OUTPUT_H

#include "bench/engines/compare.h"
#include "bench/report/machine.h"
#include "bench/limits/limits.h"
#include "bench/driver/measure.h"
#include "core/plan/plan.h"

#include <stdio.h>

/* Where one rank runs. Exchanged between ranks: fixed size, NUL-terminated texts. */
struct bench_place {
    int rank;
    int pid;
    int device;
    char host[64];
    char pci[24];
    char device_text[64]; /* the device, for people */
};

/* What stays the same over the run. */
struct bench_setting {
    const struct bench_options *options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    int n_ranks;
    const struct bench_place *places; /* by rank */
    const char *device;               /* "host", "cuda" */
    const char *reference; /* "" or the reference engine's name and version, and how it runs */
    const struct bench_machine *machine;
    struct bench_limit limit; /* of --limits; rank 0 only */
};

struct bench_row {
    struct bench_case what;
    struct bench_timing out_of_place;
    struct bench_timing in_place;
    struct bench_comparison comparison;
    struct bench_comparison comparison_in_place; /* of references on the stream */
    struct gyre_plan_summary plan;               /* of the calls out of place */
    struct bench_clocks clocks; /* after the row's last call; unknown without --json */
    int cycle;
};

struct bench_summary {
    int64_t n_wrong;
    double busbw;       /* mean over rows, both halves */
    double time_us;     /* likewise */
    double launch_us;   /* likewise; 0 = not known */
    double least_busbw; /* NCCL_TESTS_MIN_BW, or -1 */
    bool is_interrupted;
    bool has_failed; /* an error ended the run */
};

struct bench_output;

/** bench_output_open - open the files and print the header. Errors: SYSTEM (a file cannot be
 * written), UNSUPPORTED (JSON not built in). */
gyre_status bench_output_open(const struct bench_setting *setting,
                              struct bench_output **output_out);
gyre_status bench_output_row(struct bench_output *output, const struct bench_row *row);

/** bench_output_close - the footer; frees. NULL does nothing. */
gyre_status bench_output_close(struct bench_output *output, const struct bench_summary *summary);

/* ---- the file formats ------------------------------------------------------------------- */

void bench_csv_header(FILE *file);
void bench_csv_row(FILE *file, const struct bench_row *row);

struct bench_json;

/** bench_json_open - UNSUPPORTED where the build has no json-c. */
gyre_status bench_json_open(const struct bench_setting *setting, struct bench_json **json_out);
/** bench_json_row - add a row and write the file anew (a new file takes the old one's place). */
gyre_status bench_json_row(struct bench_json *json, const struct bench_row *row);
gyre_status bench_json_close(struct bench_json *json, const struct bench_summary *summary);

/** bench_is_reported - may this environment variable ("NAME=value") stand in a report? Only names
 * of an allow-list. Pure. */
bool bench_is_reported(const char *variable);
/** bench_is_secret - is its value to be hidden? Pure. */
bool bench_is_secret(const char *variable);

#endif
