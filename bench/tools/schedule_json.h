/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --json: the results of --verify and --predict as a file (docs/schedule.md lists its
 * keys).
 */
#ifndef GYRE_BENCH_SCHEDULE_JSON_H
#define GYRE_BENCH_SCHEDULE_JSON_H

#include "algorithms/simulate/simulate.h"
#include "algorithms/verify/verify.h"

struct bench_schedule_json;

/* One proof, and the program of rank 0 that stands for the shape. */
struct bench_schedule_proof {
    const struct gyre_program *program;
    int variant;
    bool in_place;
    bool is_proved;
    const struct gyre_verify_report *report;
};

struct bench_schedule_prediction {
    const char *algorithm;
    bool is_from_file;
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned n_hosts;
    unsigned root;
    const char *constants;   /* as --cost says */
    const char *fabric_path; /* NULL = there is none */
    const char *net;         /* as --net says; NULL = it was not given */
    const char *busiest;     /* the resource, or the link of the fabric */
    uint64_t n_bytes;        /* of all blocks where buffers are made of blocks */
    enum gyre_proto proto;
    const char *net_proto; /* between hosts; NULL = there is one host */
    uint32_t n_channels;
    uint32_t tile_bytes;
    double percent_of_bound;
    struct gyre_prediction prediction;
};

/** bench_schedule_json_open - start the file's contents. @argv: lives as long as they do.
 * Errors: UNSUPPORTED if the build has no json-c, OUT_OF_MEMORY. */
gyre_status bench_schedule_json_open(int argc, char **argv, struct bench_schedule_json **json_out);

/** bench_schedule_json_proof / prediction - add one. NULL does nothing. */
void bench_schedule_json_proof(struct bench_schedule_json *json,
                               const struct bench_schedule_proof *proof);
void bench_schedule_json_prediction(struct bench_schedule_json *json,
                                    const struct bench_schedule_prediction *prediction);

/** bench_schedule_json_close - write the file and free the contents. NULL does nothing.
 * Errors: as gyre_file_replace(). */
gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path);

#endif
