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

/* Copy engines carry calls of at most so many ranks, because a sync kernel posts or awaits one word
 * for every peer. */
#define MAX_COPY_RANKS 32

/* The algorithm with which copy engines carry out the call; NULL if kernels carry it out.
 * @won_out: its row; NULL if it has none. */
static const struct gyre_algorithm *copy_algorithm(const struct gyre_tuner_facts *facts,
                                                   const struct gyre_filter *filter,
                                                   enum gyre_collective coll, uint64_t n_bytes,
                                                   const struct gyre_row **won_out)
{
    const bool is_forced = takes_only(filter, coll, GYRE_PATH_COPY_ENGINE);
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_COPIES, coll, n_bytes);
    const struct gyre_row *row = NULL;
    const struct gyre_algorithm *found = NULL;
    *won_out = NULL;
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->n_ranks < 2 ||
        facts->n_ranks > MAX_COPY_RANKS || !gyre_tuner_can_place(facts, filter, coll) ||
        (filter->paths[coll] >> GYRE_PATH_COPY_ENGINE & 1U) == 0 ||
        (!is_forced && !facts->has_large_pages))
        return NULL;
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

/* Each block of an all-gather is one copy. A broadcast of more than two ranks is cut into tiles and
 * uses two channels, so that one channel copies while the other one runs its sync kernel. Its tile
 * is 1/16 of a channel, because that is faster than 1/32 (broadcast of 1 GiB over 4 H200: 360 GB/s
 * instead of 350), and at least 4 MiB, which take a copy engine 14 us. An all-reduce has the
 * channels and tiles with which kernels compute the sums. */
bool gyre_tuner_choose_copies(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    const uint32_t most_bytes = 1 << 30;
    const struct gyre_row *row;
    const struct gyre_algorithm *algorithm = copy_algorithm(facts, filter, coll, n_bytes, &row);
    struct gyre_choice choice = {.algorithm = algorithm,
                                 .proto = GYRE_PROTO_SIMPLE,
                                 .path = GYRE_PATH_COPY_ENGINE,
                                 .won = row};
    if (algorithm == NULL)
        return false;
    if (coll == GYRE_COLL_ALL_REDUCE) {
        choice.n_channels = gyre_tuner_channels(facts, &choice, coll, n_bytes);
        choice.tile_bytes = gyre_tuner_tile(facts, &choice, coll, n_bytes);
    } else {
        const bool is_pipe = coll == GYRE_COLL_BROADCAST && facts->n_ranks > 2;
        choice.n_channels = is_pipe ? 2 : 1;
        choice.tile_bytes =
            is_pipe ? gyre_clamp_u32(gyre_round_up(n_bytes / 32, 512), 4 << 20, most_bytes)
                    : gyre_clamp_u32(gyre_round_up(n_bytes, 16), 16, most_bytes);
    }
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
