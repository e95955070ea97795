/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_cache.h"

#include "core/engine/plan/plan.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gyre_shape_programs {
    const struct gyre_algorithm *algorithm;
    struct gyre_shape shape;
    int rank; /* in the shape */
    struct gyre_variants variants;
    struct gyre_shape_programs *next;
};

struct gyre_loaded_programs {
    const struct gyre_variants *variants;
    struct gyre_choice choice;
    uint16_t rank_of[2]; /* point to point */
    struct gyre_loaded *loaded;
    struct gyre_loaded_programs *next;
};

static void free_variants(struct gyre_variants *variants)
{
    for (uint32_t v = 0; v < variants->n_variants; v++)
        gyre_program_free(variants->programs[v]);
}

static gyre_status emit_variants(const struct gyre_algorithm *algorithm,
                                 const struct gyre_shape *shape, int rank,
                                 struct gyre_variants *variants_out)
{
    struct gyre_variants variants = {0};
    struct gyre_shape of_variant = *shape;
    const int n_variants = gyre_algorithm_variants(algorithm, shape);
    for (int v = 0; v < n_variants; v++) {
        of_variant.variant = (uint16_t)v;
        const gyre_status status =
            gyre_algorithm_emit(algorithm, &of_variant, rank, &variants.programs[v]);
        if (status != GYRE_SUCCESS) {
            free_variants(&variants);
            return status;
        }
        variants.n_variants++;
        variants.most_workers =
            (uint32_t)gyre_max_u64(variants.most_workers, variants.programs[v]->n_workers);
    }
    if (algorithm->given != NULL && algorithm->from == NULL) {
        /* Of any rank and variant. */
        uint32_t most = 0;
        for (unsigned v = 0; v < algorithm->given->n_variants; v++)
            for (unsigned r = 0; r < algorithm->given->n_ranks; r++)
                most = (uint32_t)gyre_max_u64(most, algorithm->given->programs[v][r]->n_workers);
        variants.most_workers = most;
    }
    *variants_out = variants;
    return GYRE_SUCCESS;
}

/* Programs of GYRE_ALGO_FILE were proved when it was read; if they are cut, in any order, because
 * that one was allowed. */
static gyre_status prove(const struct gyre_algorithm *algorithm, struct gyre_shape shape,
                         const struct gyre_variants *variants)
{
    const uint64_t begin_ns = gyre_now_ns();
    const char *name = gyre_collectives[shape.coll].name;
    const char *obstacle = NULL;
    const bool is_of_file = algorithm->given != NULL && algorithm->from == NULL;
    if (is_of_file && shape.most_range == 0)
        return GYRE_SUCCESS;
    for (uint32_t v = 0; v < variants->n_variants && obstacle == NULL; v++)
        obstacle = gyre_proof_obstacle(shape.n_ranks, gyre_proof_steps(variants->programs[v]),
                                       variants->programs[v]->n_workers);
    if (obstacle != NULL && algorithm->from != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s %s of %u ranks: %s", algorithm->name, name,
                         shape.n_ranks, obstacle);
    if (obstacle != NULL) {
        GYRE_WARN("GYRE_CHECK=programs: %s %s of %u ranks is not proved: %s", algorithm->name, name,
                  shape.n_ranks, obstacle);
        return GYRE_SUCCESS;
    }
    for (uint32_t v = 0; v < variants->n_variants; v++) {
        shape.variant = (uint16_t)v;
        const gyre_status status = gyre_proof_of_shape(algorithm, &shape, is_of_file);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(
                status, "%s", algorithm->from != NULL ? algorithm->from : "GYRE_CHECK=programs");
    }
    GYRE_INFO(TUNING, "%s: %s %s of %u ranks%s is proved (%u variants, %.1f ms)",
              algorithm->from != NULL ? algorithm->from : "GYRE_CHECK=programs", algorithm->name,
              name, shape.n_ranks, shape.is_placed ? ", placed" : "", variants->n_variants,
              (double)(gyre_now_ns() - begin_ns) / 1e6);
    return GYRE_SUCCESS;
}

gyre_status gyre_programs_find(struct gyre_programs *programs,
                               const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, int rank,
                               const struct gyre_variants **variants_out)
{
    struct gyre_shape_programs *entry = programs->shapes;
    while (entry != NULL &&
           (entry->algorithm != algorithm || entry->shape.coll != shape->coll ||
            entry->shape.n_ranks != shape->n_ranks || entry->shape.root != shape->root ||
            entry->shape.most_range != shape->most_range ||
            entry->shape.is_placed != shape->is_placed || entry->rank != rank))
        entry = entry->next;
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return gyre_fail_errno(ENOMEM, "plan of %s", gyre_collectives[shape->coll].name);
        gyre_status status = emit_variants(algorithm, shape, rank, &entry->variants);
        if (status == GYRE_SUCCESS &&
            (programs->proves || algorithm->from != NULL || algorithm->given != NULL))
            status = prove(algorithm, *shape, &entry->variants);
        if (status != GYRE_SUCCESS) {
            free_variants(&entry->variants);
            free(entry);
            return status;
        }
        entry->algorithm = algorithm;
        entry->shape = *shape;
        entry->rank = rank;
        entry->next = programs->shapes;
        programs->shapes = entry;
    }
    *variants_out = &entry->variants;
    return GYRE_SUCCESS;
}

gyre_status gyre_programs_load(struct gyre_programs *programs, const struct gyre_variants *variants,
                               const struct gyre_choice *choice, const uint16_t *rank_of,
                               struct gyre_loaded **loaded_out)
{
    const uint16_t no_map[2] = {0, 0};
    const uint16_t *key = rank_of != NULL ? rank_of : no_map;
    struct gyre_executor *executor = programs->executor;
    struct gyre_loaded_programs *entry = programs->loads;
    while (entry != NULL &&
           (entry->variants != variants || entry->choice.proto != choice->proto ||
            entry->choice.net_proto != choice->net_proto || entry->choice.path != choice->path ||
            entry->choice.n_channels != choice->n_channels ||
            memcmp(entry->rank_of, key, sizeof(entry->rank_of)) != 0))
        entry = entry->next;
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return gyre_fail_errno(ENOMEM, "loaded program");
        const struct gyre_load_config config = {
            .program = variants->programs[0],
            .variants = (const struct gyre_program *const *)variants->programs,
            .n_variants = variants->n_variants,
            .rank_of = rank_of,
            .n_channels = choice->n_channels,
            .proto = choice->proto,
            .net_proto = choice->net_proto,
            .by_copy_engines = choice->path == GYRE_PATH_COPY_ENGINE,
            .in_host_memory = programs->in_host_memory};
        const gyre_status status = executor->ops->load(executor, &config, &entry->loaded);
        if (status != GYRE_SUCCESS) {
            free(entry);
            return status;
        }
        entry->variants = variants;
        entry->choice = *choice;
        memcpy(entry->rank_of, key, sizeof(entry->rank_of));
        entry->next = programs->loads;
        programs->loads = entry;
    }
    *loaded_out = entry->loaded;
    return GYRE_SUCCESS;
}

void gyre_programs_close(struct gyre_programs *programs)
{
    while (programs->loads != NULL) {
        struct gyre_loaded_programs *entry = programs->loads;
        programs->loads = entry->next;
        programs->executor->ops->unload(programs->executor, entry->loaded);
        free(entry);
    }
    while (programs->shapes != NULL) {
        struct gyre_shape_programs *entry = programs->shapes;
        programs->shapes = entry->next;
        free_variants(&entry->variants);
        free(entry);
    }
}
