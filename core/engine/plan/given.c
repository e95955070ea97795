/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rank proves the programs of all ranks, so all reach the same verdict without a message.
 */
#include "core/engine/plan/plan.h"

#include "algorithms/verify/verify.h"
#include "core/engine/links/links.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* (steps of all ranks) x (workers of all ranks): a ring of 406 ranks, 0.64 s on one core,
 * 2026-11. */
#define MOST_WORK (1ULL << 27)

const char *gyre_proof_obstacle(uint32_t n_ranks, uint64_t n_steps, uint64_t n_workers)
{
    const uint64_t most = MOST_WORK / ((uint64_t)n_ranks * n_ranks);
    return n_steps * n_workers <= most ? NULL
                                       : "it has too many steps to be proved while a communicator "
                                         "waits (gyre schedule --verify has no limit)";
}

/* @any_order: ranks may reduce in different orders. @same_bits_out: they all reduce in one. */
static gyre_status prove(const struct gyre_program *const *programs, int n_ranks, bool any_order,
                         bool *same_bits_out)
{
    *same_bits_out = true;
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1,
                                                    .any_order = any_order};
        struct gyre_verify_report report;
        const gyre_status status = gyre_verify(programs, n_ranks, &options, &report);
        if (status != GYRE_SUCCESS)
            return gyre_fail(status, "the verifier refuses it %s: %s",
                             in_place == 1 ? "in place" : "out of place", report.reason);
        *same_bits_out = *same_bits_out && report.same_bits;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_proof_of_shape(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, bool any_order)
{
    const int n_ranks = shape->n_ranks;
    bool same_bits;
    struct gyre_program **programs = calloc((size_t)n_ranks, sizeof(struct gyre_program *));
    gyre_status status = GYRE_SUCCESS;
    if (programs == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to prove %d programs", n_ranks);
    for (int rank = 0; rank < n_ranks && status == GYRE_SUCCESS; rank++)
        status = gyre_algorithm_emit(algorithm, shape, rank, &programs[rank]);
    if (status == GYRE_SUCCESS)
        status =
            prove((const struct gyre_program *const *)programs, n_ranks, any_order, &same_bits);
    for (int rank = 0; rank < n_ranks; rank++)
        gyre_program_free(programs[rank]);
    free(programs);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s %s of %d ranks", algorithm->name,
                                 gyre_collectives[shape->coll].name, n_ranks);
    return GYRE_SUCCESS;
}

/* A ring all-reduce of 406 ranks has 13 MB, and larger rings cannot be proved. */
#define MAX_FILE_BYTES ((size_t)64 << 20)

gyre_status gyre_algo_file_load(const char *path, const char *source,
                                struct gyre_algo_file *file_out)
{
    GYRE_FREED char *text = NULL;
    gyre_status status = gyre_file_read(path, MAX_FILE_BYTES, &text, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_program_file_parse(text, path, &file_out->content);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s", source);
    snprintf(file_out->name, sizeof(file_out->name), "%s %s", source, path);
    return GYRE_SUCCESS;
}

void gyre_algo_file_free(struct gyre_algo_file *file)
{
    gyre_program_file_free(&file->content);
    file->name[0] = '\0';
}

static void describe_set(const struct gyre_program *program, char *text_out, size_t text_bytes)
{
    char root[32] = "";
    if (gyre_collectives[program->coll].has_root)
        snprintf(root, sizeof(root), ", root %u", program->root);
    snprintf(text_out, text_bytes, "%s %s of %u ranks%s", program->algorithm,
             gyre_collectives[program->coll].name, program->n_ranks, root);
}

static void describe(const struct gyre_algo_file *file, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < file->content.n_sets; i++) {
        char one[96];
        describe_set(gyre_program_file_set(&file->content, i)[0], one, sizeof(one));
        gyre_text_append(text_out, text_bytes, "%s%s", i == 0 ? "" : "; ", one);
    }
}

static gyre_status finish_shape(struct gyre_file_shape *shape,
                                const struct gyre_algo_limits *limits)
{
    GYRE_TRY(gyre_algorithm_give(&shape->given, limits->grouping, &shape->algorithm));
    const struct gyre_given_programs *given = shape->algorithm.given;
    const struct gyre_program *first = given->programs[0][0];
    const bool is_cuda = limits->device_kind == GYRE_DEVICE_CUDA;
    uint64_t n_steps = 0;
    uint32_t n_workers = 0;
    for (unsigned v = 0; v < given->n_variants; v++)
        for (unsigned rank = 0; rank < given->n_ranks; rank++) {
            n_steps = gyre_max_u64(n_steps, gyre_proof_steps(given->programs[v][rank]));
            n_workers = (uint32_t)gyre_max_u64(n_workers, given->programs[v][rank]->n_workers);
        }
    if (first->min_depth > limits->spec.depth)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "it says \"depth %u\", but FIFOs of a communicator have %u slots, which no "
            "variable changes; order its steps so that %u are enough",
            first->min_depth, limits->spec.depth, limits->spec.depth);
    const uint32_t n_fifos =
        gyre_fifo_size_of(&limits->spec, given->ability.reach == GYRE_REACH_ALL).n_fifos;
    if (first->n_lanes > n_fifos)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "it says \"lanes %u\", but a pair of ranks of this communicator has %u "
                         "FIFOs; %s",
                         first->n_lanes, n_fifos,
                         is_cuda ? "a larger GYRE_MAX_NCHANNELS or GYRE_SMS, where one of them is "
                                   "set, gives more"
                                 : "no variable gives the host device more");
    if (is_cuda && n_workers > limits->max_blocks)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "it has %u workers, each a thread block, but a call may use %u blocks; set "
            "GYRE_SMS (and GYRE_MAX_NCHANNELS) to %u or more, or leave them unset",
            n_workers, limits->max_blocks, n_workers);
    const char *obstacle = gyre_proof_obstacle(given->n_ranks, n_steps, n_workers);
    if (obstacle != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s", obstacle);
    shape->same_bits = true;
    for (unsigned v = 0; v < shape->given.n_variants; v++) {
        bool same_bits;
        GYRE_TRY(
            prove(shape->given.programs[v], (int)limits->n_ranks, limits->any_order, &same_bits));
        shape->same_bits = shape->same_bits && same_bits;
    }
    return GYRE_SUCCESS;
}

static gyre_status add_set(const struct gyre_algo_file *file, int set,
                           struct gyre_file_shape **shapes)
{
    const struct gyre_program *const *programs = gyre_program_file_set(&file->content, set);
    const struct gyre_program *first = programs[0];
    const int n_programs = file->content.sets[set].n_programs;
    bool is_placed = false;
    for (int i = 0; i < n_programs; i++)
        is_placed = is_placed || programs[i]->is_placed != 0;
    if (first->coll == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "send_recv is not run from a file");
    if (n_programs != first->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it has the programs of %d ranks; it needs those of all %u, by rank",
                         n_programs, first->n_ranks);
    struct gyre_file_shape *shape = *shapes;
    while (shape != NULL && (shape->given.programs[0][0]->coll != first->coll ||
                             shape->given.programs[0][0]->root != first->root ||
                             shape->given.is_placed != is_placed))
        shape = shape->next;
    if (shape == NULL) {
        shape = calloc(1, sizeof(*shape));
        if (shape == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for its programs");
        shape->given.is_placed = is_placed;
        shape->next = *shapes;
        *shapes = shape;
    } else if (strcmp(shape->given.programs[0][0]->algorithm, first->algorithm) != 0) {
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "another algorithm for the same calls stands before it: %s",
                         shape->given.programs[0][0]->algorithm);
    } else if (shape->given.n_variants == GYRE_MAX_VARIANTS) {
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "it stands there more than %d times",
                         GYRE_MAX_VARIANTS);
    }
    shape->given.programs[shape->given.n_variants++] = programs;
    return GYRE_SUCCESS;
}

static gyre_status name_failure(const struct gyre_algo_file *file,
                                const struct gyre_program *program, gyre_status status)
{
    char text[96];
    describe_set(program, text, sizeof(text));
    return gyre_fail_context(status, "%s: %s", file->name, text);
}

gyre_status gyre_file_shapes_open(const struct gyre_algo_file *file,
                                  const struct gyre_algo_limits *limits,
                                  struct gyre_file_shape **shapes_out)
{
    struct gyre_file_shape *shapes = NULL;
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < file->content.n_sets && status == GYRE_SUCCESS; i++) {
        const struct gyre_program *first = gyre_program_file_set(&file->content, i)[0];
        if (first->n_ranks != limits->n_ranks || limits->n_ranks < 2)
            continue;
        status = add_set(file, i, &shapes);
        if (status != GYRE_SUCCESS)
            status = name_failure(file, first, status);
    }
    for (struct gyre_file_shape *at = shapes; at != NULL && status == GYRE_SUCCESS; at = at->next) {
        status = finish_shape(at, limits);
        if (status != GYRE_SUCCESS)
            status = name_failure(file, at->given.programs[0][0], status);
    }
    if (status != GYRE_SUCCESS) {
        gyre_file_shapes_close(shapes);
        return status;
    }
    *shapes_out = shapes;
    return GYRE_SUCCESS;
}

void gyre_file_shapes_close(struct gyre_file_shape *shapes)
{
    while (shapes != NULL) {
        struct gyre_file_shape *shape = shapes;
        shapes = shape->next;
        free(shape);
    }
}

/* Or NULL. @root: -1 without one. @is_placed: wanted. */
static const struct gyre_algorithm *find_shape(const struct gyre_file_shape *shapes,
                                               enum gyre_collective coll, int root, bool is_placed)
{
    for (; shapes != NULL; shapes = shapes->next)
        if (shapes->given.coll == coll && shapes->given.is_placed == is_placed &&
            (!gyre_collectives[coll].has_root || shapes->given.root == root))
            return &shapes->algorithm;
    return NULL;
}

gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_limits *limits, int rank)
{
    if (file->content.n_programs == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_file_shapes_open(file, limits, &use->shapes));
    use->file = file;
    if (rank == 0) {
        char all[512], used[384] = "none";
        size_t n_used = 0;
        for (const struct gyre_file_shape *at = use->shapes; at != NULL; at = at->next)
            if (!at->same_bits)
                GYRE_WARN(
                    "%s: %s %s reduces in different orders on different ranks, so the last bits "
                    "of results may differ between ranks (GYRE_ANY_ORDER=1 allows it)",
                    use->file->name, at->algorithm.name, gyre_collectives[at->given.coll].name);
        if (gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING)) {
            describe(use->file, all, sizeof(all));
            for (const struct gyre_file_shape *at = use->shapes;
                 at != NULL && n_used < sizeof(used); at = at->next) {
                const struct gyre_algorithm *like = at->given.like;
                n_used += (size_t)snprintf(
                    used + n_used, sizeof(used) - n_used, "%s%s %s%s%s%s", n_used > 0 ? "; " : "",
                    at->algorithm.name, gyre_collectives[at->given.coll].name,
                    at->given.is_placed ? " (results in windows)" : "",
                    like != NULL ? ", as built-in " : "", like != NULL ? like->name : "");
            }
            GYRE_INFO(TUNING, "%s has %s; proved and used for %u ranks: %s", use->file->name, all,
                      limits->n_ranks, used);
        }
    }
    return GYRE_SUCCESS;
}

void gyre_algo_use_close(struct gyre_algo_use *use)
{
    gyre_file_shapes_close(use->shapes);
    gyre_file_shapes_close(use->retired);
    gyre_algo_file_free(&use->own);
    memset(use, 0, sizeof(*use));
}

/* All-gathered: fixed layout. */
struct reading {
    uint64_t hash;
    uint32_t has_failed;
    uint32_t pad;
};

gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_limits *limits,
                                  const struct gyre_rank *self)
{
    if (use->own.content.n_programs > 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s: this communicator uses %s already", source,
                         use->own.name);
    char cause[GYRE_CAUSE_MAX_BYTES];
    GYRE_FREED struct reading *all = calloc((size_t)self->n_ranks, sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "%s", source);
    gyre_status status = gyre_algo_file_load(path, source, &use->own);
    const struct reading mine = {.hash = use->own.content.hash,
                                 .has_failed = status != GYRE_SUCCESS};
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    const gyre_status gathered = gyre_rank_gather(self, &mine, sizeof(mine), all);
    if (status != GYRE_SUCCESS)
        gyre_set_cause(cause);
    else
        status = gathered;
    for (int rank = 0; rank < self->n_ranks && status == GYRE_SUCCESS; rank++) {
        if (all[rank].has_failed != 0)
            status = gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s %s: rank %d could not read it", source,
                               path, rank);
        else if (all[rank].hash != all[0].hash)
            status = gyre_fail(GYRE_ERROR_INVALID_USAGE,
                               "%s %s: the programs differ: hash %016llx on rank 0, %016llx on "
                               "rank %d; give all ranks the same file",
                               source, path, (unsigned long long)all[0].hash,
                               (unsigned long long)all[rank].hash, rank);
    }
    if (status != GYRE_SUCCESS) {
        gyre_algo_file_free(&use->own);
        return status;
    }
    /* Loaded programs refer to them until the communicator is closed. */
    struct gyre_file_shape **end = &use->retired;
    while (*end != NULL)
        end = &(*end)->next;
    *end = use->shapes;
    use->shapes = NULL;
    use->file = NULL;
    use->is_paused = false;
    return gyre_algo_use_open(use, &use->own, limits, self->rank);
}

const struct gyre_algorithm *gyre_algo_use_find(const struct gyre_algo_use *use,
                                                const struct gyre_filter *filter,
                                                enum gyre_collective coll, int root, bool in_window)
{
    const struct gyre_algorithm *found = NULL;
    if (use->is_paused)
        return NULL;
    if (in_window && (filter->paths[coll] >> GYRE_PATH_PLACED & 1U) != 0 &&
        (filter->protos[coll] >> GYRE_PROTO_SIMPLE & 1U) != 0)
        found = find_shape(use->shapes, coll, root, true);
    if (found == NULL && (filter->paths[coll] >> GYRE_PATH_STAGED & 1U) != 0)
        found = find_shape(use->shapes, coll, root, false);
    return found;
}

gyre_status gyre_algo_use_check(const struct gyre_algo_use *use, const struct gyre_filter *filter,
                                enum gyre_collective coll, bool in_window, uint32_t n_ranks)
{
    char shapes[512];
    bool has_shape = false; /* with programs that the paths rule out */
    if (use->file == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "no file of programs is in use");
    for (const struct gyre_file_shape *at = use->shapes; at != NULL; at = at->next) {
        if (at->given.coll != coll || at->given.n_ranks != n_ranks)
            continue;
        if (gyre_algo_use_find(use, filter, coll, at->given.root, in_window) != NULL)
            return GYRE_SUCCESS;
        has_shape = true;
    }
    describe(use->file, shapes, sizeof(shapes));
    return gyre_fail(
        GYRE_ERROR_INVALID_USAGE, "%s has no program for %s of %u ranks%s%s; it has: %s",
        use->file->name, gyre_collectives[coll].name, n_ranks,
        has_shape ? " with the allowed paths" : "",
        has_shape && !in_window ? " (placed programs need results in windows, -R 2 of benches)"
                                : "",
        shapes);
}
