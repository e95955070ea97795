/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of GYRE_ALGO_FILE or --algo-file, as `gyre schedule` prints them, take the place of
 * built-in algorithms. They are always proved before they run, others with GYRE_CHECK=programs.
 */
#ifndef GYRE_PLAN_GIVEN_H
#define GYRE_PLAN_GIVEN_H

#include "algorithms/algorithm.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/program_file.h"
#include "core/engine/links/rank.h"
#include "core/engine/plan/tuner/filter.h"

#include <limits.h>

/** A step that moves a range counts once for each chunk. */
static inline uint64_t gyre_proof_steps(const struct gyre_program *program)
{
    uint64_t n_steps = 0;
    for (uint32_t i = 0; i < program->n_steps; i++)
        n_steps += program->steps[i].n_chunks;
    return n_steps;
}

/** NULL = not too large for a communicator to wait for: at most a ring all-reduce of 406 ranks
 * (docs/schedule.md). @n_steps: gyre_proof_steps(), and @n_workers: of one rank. */
const char *gyre_proof_obstacle(uint32_t n_ranks, uint64_t n_steps, uint64_t n_workers);

/** Out of place and in place. @programs: by rank, of one variant of one shape. @any_order: ranks
 * may reduce in different orders. @same_bits_out: they all reduce in one. Errors: INVALID_ARGUMENT
 * with the verifier's finding; OUT_OF_MEMORY. */
gyre_status gyre_proof_run(const struct gyre_program *const *programs, int n_ranks, bool any_order,
                           bool *same_bits_out);

/** Prove one variant. Errors: as gyre_algorithm_emit() and gyre_proof_run(). */
gyre_status gyre_proof_of_shape(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, bool any_order);

/* Zeros = there is none. */
struct gyre_algo_file {
    char name[PATH_MAX + 32]; /* for messages: "GYRE_ALGO_FILE mine.gyre" */
    struct gyre_program_file content;
};

/** Checks programs' structure. @source: "GYRE_ALGO_FILE" or "--algo-file". Errors: SYSTEM,
 * OUT_OF_MEMORY, INVALID_ARGUMENT naming source, file, line and what is wrong. */
gyre_status gyre_algo_file_load(const char *path, const char *source,
                                struct gyre_algo_file *file_out);
void gyre_algo_file_free(struct gyre_algo_file *file);

/* A communicator's limits, the same on all ranks. */
struct gyre_algo_limits {
    uint32_t n_ranks;
    gyre_device_kind device_kind;
    struct gyre_fifo_spec spec;
    uint32_t max_blocks; /* of a call on a GPU; UINT32_MAX = no limit */
    bool any_order;      /* GYRE_ANY_ORDER */
    const struct gyre_grouping *grouping;
};

struct gyre_file_shape {
    struct gyre_given_programs given;
    struct gyre_algorithm algorithm;
    bool same_bits; /* in one order on all ranks */
    struct gyre_file_shape *next;
};

/** Make algorithms and prove them. @file: must live as long as the shapes. @shapes_out: NULL = none
 * for so many ranks. Errors: INVALID_ARGUMENT (programs are missing or refuted), UNSUPPORTED (more
 * lanes, depth or workers than there are, or too large to be proved), naming file and shape. */
gyre_status gyre_file_shapes_open(const struct gyre_algo_file *file,
                                  const struct gyre_algo_limits *limits,
                                  struct gyre_file_shape **shapes_out);
void gyre_file_shapes_close(struct gyre_file_shape *shapes);

struct gyre_algo_use {
    const struct gyre_algo_file *file; /* NULL = none */
    struct gyre_file_shape *shapes;
    bool is_paused;
    struct gyre_algo_file own;       /* of gyre_algo_use_replace() */
    struct gyre_file_shape *retired; /* loaded programs may refer to them */
};

/** @file: outlives the use; may have no programs. Errors: as gyre_file_shapes_open(). */
gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_limits *limits, int rank);
void gyre_algo_use_close(struct gyre_algo_use *use);

/** Collective; once in a communicator's life. Errors: as gyre_plan_use_file(). */
gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_limits *limits,
                                  const struct gyre_rank *self);

/** NULL if the filter allows no path of the file's. @root: -1 without one. @in_window: the result
 * lies in a window. */
const struct gyre_algorithm *gyre_algo_use_find(const struct gyre_algo_use *use,
                                                const struct gyre_filter *filter,
                                                enum gyre_collective coll, int root,
                                                bool in_window);

/** As gyre_plan_check_file(). */
gyre_status gyre_algo_use_check(const struct gyre_algo_use *use, const struct gyre_filter *filter,
                                enum gyre_collective coll, bool in_window, uint32_t n_ranks);

#endif
