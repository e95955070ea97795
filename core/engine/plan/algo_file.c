/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a file of programs into algorithms that plans can use.
 */
#include "core/engine/plan/algo_file.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A larger file is refused. The text of a ring all-reduce of 406 ranks has 13 MB, and larger rings
 * cannot be proved (proof.h). */
#define MAX_FILE_BYTES ((size_t)64 << 20)

gyre_status gyre_algo_file_load(const char *path, const char *source,
                                struct gyre_algo_file *file_out)
{
    char *text = NULL;
    gyre_status status = gyre_file_read(path, MAX_FILE_BYTES, &text, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_program_file_parse(text, path, &file_out->content);
    free(text);
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

void gyre_algo_file_describe(const struct gyre_algo_file *file, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < file->content.n_sets; i++) {
        const size_t used = strlen(text_out);
        char one[96];
        describe_set(gyre_program_file_set(&file->content, i)[0], one, sizeof(one));
        snprintf(text_out + used, text_bytes - used, "%s%s", i == 0 ? "" : "; ", one);
    }
}

/* Does the communicator have the FIFOs and blocks that the programs need? */
static gyre_status check_terms(const struct gyre_algorithm *algorithm,
                               const struct gyre_algo_terms *terms)
{
    const struct gyre_given_programs *given = algorithm->given;
    const struct gyre_program *first = given->programs[0][0];
    const bool is_cuda = terms->device_kind == GYRE_DEVICE_CUDA;
    uint64_t n_steps = 0;
    uint32_t n_workers = 0;
    for (unsigned v = 0; v < given->n_variants; v++)
        for (unsigned rank = 0; rank < given->n_ranks; rank++) {
            n_steps = gyre_max_u64(n_steps, gyre_proof_steps(given->programs[v][rank]));
            n_workers = (uint32_t)gyre_max_u64(n_workers, given->programs[v][rank]->n_workers);
        }
    if (first->min_depth > terms->spec.depth)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "it says \"depth %u\", but FIFOs of a communicator have %u slots, which no "
            "variable changes; order its steps so that %u are enough",
            first->min_depth, terms->spec.depth, terms->spec.depth);
    const uint32_t n_fifos = gyre_fifo_size_of(&terms->spec, algorithm->keeps_near == 0).n_fifos;
    if (first->n_lanes > n_fifos)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "it says \"lanes %u\", but a pair of ranks of this communicator has %u "
                         "FIFOs; %s",
                         first->n_lanes, n_fifos,
                         is_cuda ? "a larger GYRE_MAX_NCHANNELS or GYRE_SMS, where one of them is "
                                   "set, gives more"
                                 : "no variable gives the host device more");
    if (is_cuda && n_workers > terms->max_blocks)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "it has %u workers, each a thread block, but a call may use %u blocks; set "
            "GYRE_SMS (and GYRE_MAX_NCHANNELS) to %u or more, or leave them unset",
            n_workers, terms->max_blocks, n_workers);
    const char *obstacle = gyre_proof_obstacle(given->n_ranks, n_steps, n_workers);
    if (obstacle != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s", obstacle);
    return GYRE_SUCCESS;
}

static gyre_status finish_shape(struct gyre_file_shape *shape, const struct gyre_algo_terms *terms)
{
    GYRE_TRY(gyre_algorithm_give(&shape->given, terms->grouping, &shape->algorithm));
    GYRE_TRY(check_terms(&shape->algorithm, terms));
    for (unsigned v = 0; v < shape->given.n_variants; v++)
        GYRE_TRY(gyre_proof_run(shape->given.programs[v], (int)terms->n_ranks));
    return GYRE_SUCCESS;
}

static bool is_set_placed(const struct gyre_program *const *programs, int n_programs)
{
    for (int i = 0; i < n_programs; i++)
        if (programs[i]->is_placed != 0)
            return true;
    return false;
}

/* Find the shape of which the set is a further variant; NULL if there is none. */
static struct gyre_file_shape *find_same(struct gyre_file_shape *shapes,
                                         const struct gyre_program *program, bool is_placed)
{
    for (; shapes != NULL; shapes = shapes->next) {
        const struct gyre_program *known = shapes->given.programs[0][0];
        if (known->coll == program->coll && known->root == program->root &&
            shapes->given.is_placed == is_placed)
            return shapes;
    }
    return NULL;
}

/* Adds a set as a new shape, or as a further variant of a shape that is in the list already. */
static gyre_status add_set(const struct gyre_algo_file *file, int set,
                           struct gyre_file_shape **shapes)
{
    const struct gyre_program *const *programs = gyre_program_file_set(&file->content, set);
    const struct gyre_program *first = programs[0];
    const int n_programs = file->content.sets[set].n_programs;
    const bool is_placed = is_set_placed(programs, n_programs);
    if (first->coll == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "send_recv is not run from a file");
    if (n_programs != first->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it has the programs of %d ranks; it needs those of all %u, by rank",
                         n_programs, first->n_ranks);
    struct gyre_file_shape *shape = find_same(*shapes, first, is_placed);
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
                                  const struct gyre_algo_terms *terms,
                                  struct gyre_file_shape **shapes_out)
{
    struct gyre_file_shape *shapes = NULL;
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < file->content.n_sets && status == GYRE_SUCCESS; i++) {
        const struct gyre_program *first = gyre_program_file_set(&file->content, i)[0];
        if (first->n_ranks != terms->n_ranks || terms->n_ranks < 2)
            continue;
        status = add_set(file, i, &shapes);
        if (status != GYRE_SUCCESS)
            status = name_failure(file, first, status);
    }
    for (struct gyre_file_shape *at = shapes; at != NULL && status == GYRE_SUCCESS; at = at->next) {
        status = finish_shape(at, terms);
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

const struct gyre_algorithm *gyre_file_shapes_find(const struct gyre_file_shape *shapes,
                                                   enum gyre_collective coll, int root,
                                                   bool is_placed)
{
    for (; shapes != NULL; shapes = shapes->next)
        if (shapes->given.coll == coll && shapes->given.is_placed == is_placed &&
            (!gyre_collectives[coll].has_root || shapes->given.root == root))
            return &shapes->algorithm;
    return NULL;
}
