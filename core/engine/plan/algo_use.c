/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the algorithms from a file that a communicator uses now, and checks that all ranks use the
 * same ones.
 */
#include "core/engine/plan/algo_use.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Log one line that lists the shapes of the file and the shapes that this communicator uses. */
static void log_use(const struct gyre_algo_use *use, const struct gyre_algo_terms *terms)
{
    char all[512], used[384] = "none";
    size_t n_used = 0;
    if (!gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING))
        return;
    gyre_algo_file_describe(use->file, all, sizeof(all));
    for (const struct gyre_file_shape *at = use->shapes; at != NULL && n_used < sizeof(used);
         at = at->next) {
        const struct gyre_algorithm *like = at->given.like;
        n_used += (size_t)snprintf(
            used + n_used, sizeof(used) - n_used, "%s%s %s%s%s%s", n_used > 0 ? "; " : "",
            at->algorithm.name, gyre_collectives[at->given.coll].name,
            at->given.is_placed ? " (results in windows)" : "",
            like != NULL ? ", as built-in " : "", like != NULL ? like->name : "");
    }
    GYRE_INFO(TUNING, "%s has %s; proved and used for %u ranks: %s", use->file->name, all,
              terms->n_ranks, used);
}

gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_terms *terms, int rank)
{
    if (file->content.n_programs == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_file_shapes_open(file, terms, &use->shapes));
    use->file = file;
    if (rank == 0)
        log_use(use, terms);
    return GYRE_SUCCESS;
}

void gyre_algo_use_close(struct gyre_algo_use *use)
{
    gyre_file_shapes_close(use->shapes);
    gyre_file_shapes_close(use->retired);
    gyre_algo_file_free(&use->own);
    memset(use, 0, sizeof(*use));
}

/* Stop using the present shapes. They stay in memory until the communicator is closed, because
 * loaded programs may refer to them. */
static void retire_shapes(struct gyre_algo_use *use)
{
    struct gyre_file_shape **end = &use->retired;
    while (*end != NULL)
        end = &(*end)->next;
    *end = use->shapes;
    use->shapes = NULL;
    use->file = NULL;
}

/* The result of reading the file on one rank. Ranks all-gather it, so its layout is fixed. */
struct reading {
    uint64_t hash;
    uint32_t has_failed;
    uint32_t pad;
};

/* Have all ranks read the same programs? @status: how this rank's reading ended. */
static gyre_status compare_readings(const struct gyre_member *member, const char *path,
                                    const char *source, uint64_t hash, gyre_status status)
{
    const struct reading mine = {.hash = hash, .has_failed = status != GYRE_SUCCESS};
    char cause[GYRE_CAUSE_MAX_BYTES];
    struct reading *all = calloc((size_t)member->n_ranks, sizeof(*all));
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "%s", source);
    const gyre_status gathered =
        member->bootstrap->ops->all_gather(member->bootstrap, &mine, sizeof(mine), all);
    if (status != GYRE_SUCCESS)
        gyre_set_cause(cause);
    else
        status = gathered;
    for (int rank = 0; rank < member->n_ranks && status == GYRE_SUCCESS; rank++) {
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
    free(all);
    return status;
}

gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_terms *terms,
                                  const struct gyre_member *member)
{
    if (use->own.content.n_programs > 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s: this communicator uses %s already", source,
                         use->own.name);
    gyre_status status = gyre_algo_file_load(path, source, &use->own);
    status = compare_readings(member, path, source, use->own.content.hash, status);
    if (status != GYRE_SUCCESS) {
        gyre_algo_file_free(&use->own);
        return status;
    }
    retire_shapes(use);
    use->is_paused = false;
    return gyre_algo_use_open(use, &use->own, terms, member->rank);
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
        found = gyre_file_shapes_find(use->shapes, coll, root, true);
    if (found == NULL && (filter->paths[coll] >> GYRE_PATH_STAGED & 1U) != 0)
        found = gyre_file_shapes_find(use->shapes, coll, root, false);
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
    gyre_algo_file_describe(use->file, shapes, sizeof(shapes));
    return gyre_fail(
        GYRE_ERROR_INVALID_USAGE, "%s has no program for %s of %u ranks%s%s; it has: %s",
        use->file->name, gyre_collectives[coll].name, n_ranks,
        has_shape ? " with the allowed paths" : "",
        has_shape && !in_window ? " (placed programs need results in windows, -R 2 of benches)"
                                : "",
        shapes);
}
