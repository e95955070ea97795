/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms from a file: GYRE_ALGO_FILE of the library and --algo-file of the benches. The file
 * holds programs as build/bench/schedule prints them. Programs that fit a communicator become
 * algorithms, and the communicator's plans use them in place of the built-in algorithms.
 */
#ifndef GYRE_PLAN_ALGO_FILE_H
#define GYRE_PLAN_ALGO_FILE_H

#include "algorithms/algorithm.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/program_file.h"

#include <limits.h>

/* A file that was read. Zeros = there is none. */
struct gyre_algo_file {
    char name[PATH_MAX + 32]; /* for messages: "GYRE_ALGO_FILE mine.gyre" */
    struct gyre_program_file content;
};

/** gyre_algo_file_load - read a file of programs; the structure of each is checked.
 * @source: how the user named the file: "GYRE_ALGO_FILE" or "--algo-file".
 * Errors: SYSTEM, OUT_OF_MEMORY, INVALID_ARGUMENT naming source, file, line and what is wrong. */
gyre_status gyre_algo_file_load(const char *path, const char *source,
                                struct gyre_algo_file *file_out);
void gyre_algo_file_free(struct gyre_algo_file *file);

/* The limits that a communicator sets to programs. They are the same on all ranks. */
struct gyre_algo_terms {
    uint32_t n_ranks;
    gyre_device_kind device_kind;
    struct gyre_fifo_spec spec;
    uint32_t max_blocks; /* thread blocks of a call on a GPU; UINT32_MAX = no limit */
    const struct gyre_grouping *grouping;
};

struct gyre_file_shape {
    struct gyre_given_programs given;
    struct gyre_algorithm algorithm;
    struct gyre_file_shape *next;
};

/** gyre_file_shapes_open - make algorithms of the file's shapes for as many ranks as the
 * communicator has, and prove their programs.
 * @file: must live as long as the shapes.
 * @shapes_out: NULL when the file has none for so many ranks.
 * Errors: INVALID_ARGUMENT (programs are missing, or the verifier refuses them), UNSUPPORTED
 * (lanes, depth or workers that the communicator cannot give, or too large to be proved); all
 * naming the file and the shape. */
gyre_status gyre_file_shapes_open(const struct gyre_algo_file *file,
                                  const struct gyre_algo_terms *terms,
                                  struct gyre_file_shape **shapes_out);
void gyre_file_shapes_close(struct gyre_file_shape *shapes);

/** gyre_file_shapes_find - the algorithm for a call, or NULL.
 * @root: -1 where the collective has none. @is_placed: wanted. */
const struct gyre_algorithm *gyre_file_shapes_find(const struct gyre_file_shape *shapes,
                                                   enum gyre_collective coll, int root,
                                                   bool is_placed);

/** gyre_algo_file_describe - the shapes of a file for people: "ring all_reduce of 4 ranks, tree
 * broadcast of 8 ranks from root 0". */
void gyre_algo_file_describe(const struct gyre_algo_file *file, char *text_out, size_t text_bytes);

#endif
