/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls whose results lie in windows and which copy engines carry out, and the check of a call's
 * path.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"

static bool takes_only(const struct gyre_filter *filter, enum gyre_collective coll,
                       enum gyre_path path)
{
    return (filter->paths[coll] & ((1U << GYRE_N_PATHS) - 1)) == 1U << path;
}

/* The algorithm with which copy engines carry out the call; NULL if kernels carry it out.
 * @won_out: its row; NULL if it has none. */
static const struct gyre_algorithm *copy_algorithm(const struct gyre_tuner_facts *facts,
                                                   const struct gyre_filter *filter,
                                                   enum gyre_collective coll, uint64_t n_bytes,
                                                   const struct gyre_row **won_out)
{
    const bool is_forced = takes_only(filter, coll, GYRE_PATH_COPY_ENGINE);
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_COPY_RANKS, coll, n_bytes);
    const struct gyre_row *row = gyre_tuner_find_row(facts, &call);
    const uint64_t most_ranks = row != NULL ? row->rule.number : 0;
    const struct gyre_algorithm *found = NULL;
    *won_out = NULL;
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->n_ranks < 2 ||
        facts->n_ranks > most_ranks || !gyre_tuner_can_place(facts, filter, coll) ||
        (filter->paths[coll] >> GYRE_PATH_COPY_ENGINE & 1U) == 0 ||
        (!is_forced && !facts->has_large_pages))
        return NULL;
    row = NULL;
    call.kind = GYRE_ROW_COPIES;
    call.any_size = is_forced;
    while ((row = gyre_rows_find(gyre_tuner_rows(facts), &call, row)) != NULL)
        if (gyre_filter_allows(filter, coll, row->algorithm)) {
            *won_out = row;
            return row->algorithm;
        } else {
            gyre_why_add(call.why, row, "its algorithm is not allowed");
        }
    for (int i = 0; is_forced && gyre_algorithms[i] != NULL && found == NULL; i++)
        if ((filter->algorithms[coll] >> i & 1U) != 0 &&
            (gyre_algorithms[i]->copy_tails >> coll & 1U) != 0)
            found = gyre_algorithms[i];
    return found;
}

bool gyre_tuner_choose_copies(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    const struct gyre_row *row;
    const struct gyre_algorithm *algorithm = copy_algorithm(facts, filter, coll, n_bytes, &row);
    struct gyre_choice choice = {.algorithm = algorithm,
                                 .proto = GYRE_PROTO_SIMPLE,
                                 .path = GYRE_PATH_COPY_ENGINE,
                                 .won = {[GYRE_WON_WAY] = row}};
    if (algorithm == NULL)
        return false;
    gyre_tuner_choose_channels(facts, coll, n_bytes, &choice);
    gyre_tuner_choose_tile(facts, coll, n_bytes, &choice);
    *choice_out = choice;
    return true;
}

gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice)
{
    const enum gyre_path path = choice->path;
    const char *name = gyre_collectives[coll].name;
    if (coll == GYRE_COLL_SEND_RECV || facts->n_ranks == 1 ||
        (filter->paths[coll] >> path & 1U) != 0)
        return GYRE_SUCCESS;
    if (!facts->in_window && path == GYRE_PATH_STAGED)
        return gyre_fail(
            GYRE_ERROR_INVALID_USAGE,
            "%s wants the results of %s placed; that takes a receive buffer in "
            "a window (gyre_window_register, ncclCommWindowRegister, -R 2 of benches), "
            "of all_reduce, all_gather, all_to_all or broadcast",
            filter->path_source, name);
    if (facts->device_kind != GYRE_DEVICE_CUDA && takes_only(filter, coll, GYRE_PATH_COPY_ENGINE))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s=copy_engine: the host device has none",
                         filter->path_source);
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "%s: %s by algorithm %s goes by path %s, which is not among those "
                     "allowed",
                     filter->path_source, name, choice->algorithm->name, gyre_path_names[path]);
}
