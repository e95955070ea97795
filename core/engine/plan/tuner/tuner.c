/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"
#include "core/foundation/model/tile.h"
#include "kernels/executor.h"

#define ANY_PROTO UINT32_MAX

struct asked {
    const struct gyre_tuner_facts *facts;
    struct gyre_filter filter;
    enum gyre_collective coll;
    uint64_t n_bytes;
};

static struct gyre_row_call row_call(const struct asked *asked, enum gyre_row_kind kind)
{
    return gyre_tuner_row_call(asked->facts, kind, asked->coll, asked->n_bytes);
}

static bool allows_path(const struct asked *asked, enum gyre_path path)
{
    return (asked->filter.paths[asked->coll] >> path & 1U) != 0;
}

static bool allows_proto(const struct asked *asked, enum gyre_proto proto)
{
    return (asked->filter.protos[asked->coll] >> proto & 1U) != 0;
}

/* If no host has two ranks, protocols between hosts count for all. If results may not be staged,
 * SIMPLE and algorithms that place are left. */
static struct asked narrow(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                           enum gyre_collective coll, uint64_t n_bytes)
{
    struct asked asked = {.facts = facts, .filter = *filter, .coll = coll, .n_bytes = n_bytes};
    if (gyre_tuner_is_net_alone(facts))
        asked.filter.protos[coll] = asked.filter.net_protos[coll];
    if (!facts->in_window || facts->n_ranks == 1 || allows_path(&asked, GYRE_PATH_STAGED))
        return asked;
    asked.filter.protos[coll] &= 1U << GYRE_PROTO_SIMPLE;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (!gyre_tuner_ability(facts, gyre_algorithms[i], coll, true).places)
            asked.filter.algorithms[coll] &= ~(1U << i);
    return asked;
}

static bool is_usable(const struct asked *asked, const struct gyre_row *row)
{
    const char *obstacle =
        !gyre_filter_allows(&asked->filter, asked->coll, row->algorithm)
            ? "its algorithm is not allowed"
            : gyre_tuner_algorithm_obstacle(asked->facts, row->algorithm, asked->coll);
    if (obstacle != NULL)
        gyre_why_add(asked->facts->why, row, obstacle);
    return obstacle == NULL;
}

/* If the filter alone asks for copy engines, rows do not limit the size. */
static bool choose_copies(const struct asked *asked, struct gyre_choice *choice_out)
{
    const struct gyre_tuner_facts *facts = asked->facts;
    const enum gyre_collective coll = asked->coll;
    const uint32_t paths = asked->filter.paths[coll] & ((1U << GYRE_N_PATHS) - 1);
    const bool is_forced = paths == 1U << GYRE_PATH_COPY_ENGINE;
    struct gyre_row_call call = row_call(asked, GYRE_ROW_COPY_RANKS);
    struct gyre_choice choice = {.proto = GYRE_PROTO_SIMPLE, .path = GYRE_PATH_COPY_ENGINE};
    const struct gyre_row *row = gyre_tuner_next_row(facts, &call, NULL);
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->n_ranks < 2 ||
        !gyre_tuner_can_place(facts, &asked->filter, coll) ||
        !allows_path(asked, GYRE_PATH_COPY_ENGINE) || (!is_forced && !facts->has_large_pages) ||
        (row != NULL && facts->n_ranks > row->rule.number))
        return false;
    call.kind = GYRE_ROW_COPIES;
    call.any_size = is_forced;
    for (row = gyre_tuner_next_row(facts, &call, NULL); row != NULL && choice.algorithm == NULL;
         row = gyre_tuner_next_row(facts, &call, row))
        if (is_usable(asked, row)) {
            choice.algorithm = row->algorithm;
            choice.won[GYRE_WON_WAY] = row;
        }
    for (int i = 0; is_forced && gyre_algorithms[i] != NULL && choice.algorithm == NULL; i++)
        if ((asked->filter.algorithms[coll] >> i & 1U) != 0 &&
            gyre_tuner_ability(facts, gyre_algorithms[i], coll, true).copy_tail)
            choice.algorithm = gyre_algorithms[i];
    if (choice.algorithm == NULL)
        return false;
    gyre_tuner_choose_channels(facts, coll, asked->n_bytes, &choice);
    gyre_tuner_choose_tile(facts, coll, asked->n_bytes, &choice);
    *choice_out = choice;
    return true;
}

/* All-gather: a channel's whole block, if it fits a slot; all-reduce: a channel's part in the
 * kernel's number of tiles. */
static bool choose_fused_tile(const struct asked *asked, struct gyre_choice *choice)
{
    const struct gyre_tuner_facts *facts = asked->facts;
    const bool is_placed = choice->path == GYRE_PATH_PLACED;
    const bool is_gather = asked->coll == GYRE_COLL_ALL_GATHER;
    /* Of SIMPLE; 0 = the executor has no kernel. Buffers count as aligned. */
    const bool call_is_placed = is_placed || is_gather;
    const bool reduces = gyre_collectives[asked->coll].reduces;
    const struct gyre_fused_call call = {
        .proto = GYRE_PROTO_SIMPLE,
        .pattern = reduces ? GYRE_FUSED_TWO_SHOT : GYRE_FUSED_ALL_GATHER,
        .arithmetic = !reduces             ? GYRE_FUSED_COPY
                      : facts->has_lamport ? GYRE_FUSED_FLOAT_SUM
                                           : GYRE_FUSED_OTHER,
        .is_placed = call_is_placed,
        .is_aligned = asked->n_bytes % 16 == 0,
        .is_unscaled = !reduces || facts->is_unscaled,
        .places_blocks = !reduces && asked->n_bytes * (facts->n_ranks - 1) >=
                                         gyre_kernel_limits[GYRE_LIMIT_PLACEMENT_BYTES].number,
        .n_peers = facts->n_ranks - 1,
        .n_tiles = 1,
        .depth = facts->spec.depth,
        .most_shared_bytes = UINT32_MAX,
    };
    const uint32_t most_tiles = gyre_executor_fused_tiles(facts->device_kind, &call);
    const uint32_t most_bytes = gyre_tuner_payload_bytes(facts, choice->algorithm, asked->coll,
                                                         choice->proto, is_placed || is_gather) /
                                16 * 16;
    const struct gyre_split split = {.count = asked->n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = is_gather ? 1 : facts->n_ranks,
                                     .tile_elems = UINT32_MAX,
                                     .unit_elems = 16};
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    if (most_tiles == 0)
        return false;
    if (is_gather) {
        choice->tile_bytes = gyre_clamp_u32(gyre_round_up(part, 512), 512, most_bytes);
        return true;
    }
    const uint64_t tile_bytes = gyre_round_up(gyre_div_round_up(part, most_tiles), 16);
    choice->tile_bytes = (uint32_t)gyre_min_u64(tile_bytes, UINT32_MAX);
    return tile_bytes <= most_bytes;
}

bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out)
{
    const struct asked asked = {facts, *filter, coll, n_bytes};
    struct gyre_row_call call = row_call(&asked, GYRE_ROW_FUSED);
    const bool is_placed = gyre_tuner_may_place(facts, filter, coll, GYRE_PROTO_SIMPLE, n_bytes);
    const struct gyre_row *row = NULL;
    call.facts |= (uint32_t)is_placed << GYRE_ROW_FACT_PLACED;
    call.protos = filter->protos[coll];
    while ((row = gyre_tuner_next_row(facts, &call, row)) != NULL) {
        struct gyre_choice choice = {.algorithm = row->algorithm,
                                     .proto = row->proto,
                                     .path = is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED,
                                     .won = {[GYRE_WON_WAY] = row}};
        if (!is_usable(&asked, row))
            continue;
        gyre_tuner_choose_channels(facts, coll, n_bytes, &choice);
        if (choose_fused_tile(&asked, &choice)) {
            *choice_out = choice;
            return true;
        }
        gyre_why_add(call.why, row, "no kernel takes the call");
    }
    return false;
}

/* @algorithm: NULL = any. @protos: by bit. */
static const struct gyre_row *find_way(const struct asked *asked,
                                       const struct gyre_algorithm *algorithm, uint32_t protos)
{
    struct gyre_row_call call = row_call(asked, GYRE_ROW_WAY);
    call.algorithm = algorithm;
    call.protos = protos;
    return gyre_tuner_next_row(asked->facts, &call, NULL);
}

/* By the first row whose algorithm can do the call; if the filter excludes it, the first allowed
 * one. GPUs without a row use the host's. */
static gyre_status choose_algorithm(const struct asked *asked, struct gyre_choice *choice)
{
    const struct gyre_row_call call = row_call(asked, GYRE_ROW_WAY);
    const struct gyre_row *row = find_way(asked, NULL, ANY_PROTO);
    while (row != NULL && !is_usable(asked, row) &&
           gyre_filter_allows(&asked->filter, asked->coll, row->algorithm))
        row = gyre_tuner_next_row(asked->facts, &call, row);
    const enum gyre_collective coll = asked->coll;
    const struct gyre_algorithm *found = NULL, *ruled_out = NULL;
    const char *obstacle = NULL; /* of ruled_out */
    if (row == NULL)
        row = gyre_rows_find(gyre_rows_of(GYRE_ROWS_HOST), &call, NULL);
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        const struct gyre_algorithm *algorithm = gyre_algorithms[i];
        if ((asked->filter.algorithms[coll] >> i & 1U) == 0 || !gyre_algorithm_has(algorithm, coll))
            continue;
        const char *why = gyre_tuner_algorithm_obstacle(asked->facts, algorithm, coll);
        if (why != NULL) {
            ruled_out = algorithm;
            obstacle = why;
        } else if (found == NULL || (row != NULL && algorithm == row->algorithm)) {
            found = algorithm;
        }
    }
    if (found == NULL && ruled_out != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s cannot do %s here: %s",
                         ruled_out->name, gyre_collectives[coll].name, obstacle);
    if (found == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "no algorithm that %s allows can do %s; \"gyre schedule --help\" "
                         "shows which can",
                         asked->filter.algo_source, gyre_collectives[coll].name);
    choice->algorithm = found;
    choice->won[GYRE_WON_WAY] = row != NULL && found == row->algorithm ? row : NULL;
    return GYRE_SUCCESS;
}

/* The fastest. @usable: by bit. */
static enum gyre_proto prefer_proto(const struct asked *asked,
                                    const struct gyre_algorithm *algorithm, uint32_t usable)
{
    struct gyre_row_call call = row_call(asked, GYRE_ROW_LINE);
    /* The shipped rows were measured inside one host. */
    if (asked->facts->device_kind != GYRE_DEVICE_CUDA || asked->facts->is_proxied)
        return GYRE_PROTO_SIMPLE;
    const struct gyre_row *row = find_way(asked, algorithm, usable);
    if (row == NULL)
        row = find_way(asked, algorithm, ANY_PROTO);
    call.facts |= gyre_tuner_algorithm_facts(asked->facts, algorithm, asked->coll);
    if (row == NULL)
        row = gyre_tuner_next_row(asked->facts, &call, NULL);
    return row != NULL ? row->proto : GYRE_PROTO_SIMPLE;
}

/* The preferred one, or the first that can be used. */
static gyre_status choose_proto(const struct asked *asked, struct gyre_choice *choice)
{
    const struct gyre_row *way = choice->won[GYRE_WON_WAY];
    const char *obstacle = NULL; /* of the first allowed protocol */
    uint32_t usable = 0;
    int found = -1;
    for (int i = 0; i < GYRE_N_PROTOS; i++) {
        const enum gyre_proto proto = (enum gyre_proto)i;
        if (!allows_proto(asked, proto))
            continue;
        const char *why = gyre_tuner_proto_obstacle(asked->facts, proto);
        if (why == NULL && !gyre_tuner_go_together(asked->facts, proto, choice->net_proto))
            why = "ll between hosts goes with ll inside hosts";
        if (why != NULL) {
            obstacle = obstacle != NULL ? obstacle : why;
            continue;
        }
        usable |= 1U << proto;
        found = found < 0 ? i : found;
    }
    const enum gyre_proto preferred = gyre_tuner_is_users(asked->facts, way)
                                          ? way->proto
                                          : prefer_proto(asked, choice->algorithm, usable);
    if ((usable >> preferred & 1U) != 0)
        found = (int)preferred;
    if (found < 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "no protocol that %s allows can be used for %s: %s",
                         asked->filter.proto_source, gyre_collectives[asked->coll].name,
                         obstacle != NULL ? obstacle : "results are placed by simple alone");
    choice->proto = (enum gyre_proto)found;
    return GYRE_SUCCESS;
}

/* A prediction may replace SIMPLE. */
static gyre_status choose_net_proto(const struct asked *asked, enum gyre_proto *proto_out)
{
    const char *obstacle = "it allows none"; /* or of the last allowed protocol */
    *proto_out = GYRE_PROTO_SIMPLE;
    if (!asked->facts->is_proxied)
        return GYRE_SUCCESS;
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        if ((asked->filter.net_protos[asked->coll] >> proto & 1U) == 0)
            continue;
        *proto_out = (enum gyre_proto)proto;
        obstacle = gyre_tuner_net_proto_obstacle(asked->facts, *proto_out);
        if (obstacle == NULL)
            return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "no protocol that %s allows behind its slash can be used for %s: %s",
                     asked->filter.proto_source, gyre_collectives[asked->coll].name, obstacle);
}

const struct gyre_row *gyre_tuner_users_way(const struct gyre_tuner_facts *facts,
                                            enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_WAY, coll, n_bytes);
    const struct gyre_row *row = NULL;
    const char *obstacle = NULL;
    do {
        if (obstacle != NULL)
            gyre_why_add(facts->why, row, obstacle);
        row = facts->user_rows != NULL ? gyre_rows_find(facts->user_rows, &call, row) : NULL;
        obstacle = row != NULL ? gyre_tuner_algorithm_obstacle(facts, row->algorithm, coll) : NULL;
    } while (obstacle != NULL);
    return row;
}

static enum gyre_path kernel_path(const struct asked *asked, const struct gyre_choice *choice)
{
    const bool is_placed =
        asked->facts->n_ranks > 1 &&
        gyre_tuner_ability(asked->facts, choice->algorithm, asked->coll, true).places &&
        gyre_tuner_may_place(asked->facts, &asked->filter, asked->coll, choice->proto,
                             asked->n_bytes);
    return is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED;
}

gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct asked asked = narrow(facts, filter, coll, n_bytes);
    struct gyre_tuner_facts without_lamport = *facts;
    struct gyre_choice choice = {.algorithm = NULL};
    const struct gyre_row *users;
    enum gyre_proto net_proto;
    GYRE_TRY(choose_net_proto(&asked, &net_proto));

    /* 1. Rows of copy engines and of fused kernels. */
    if (choose_copies(&asked, choice_out))
        return GYRE_SUCCESS;
    if (gyre_tuner_choose_fused(facts, &asked.filter, coll, n_bytes, &choice)) {
        choice.net_proto = net_proto;
        choice.path = kernel_path(&asked, &choice);
        *choice_out = choice;
        return GYRE_SUCCESS;
    }
    if (facts->device_kind == GYRE_DEVICE_CUDA && facts->has_lamport &&
        !allows_proto(&asked, GYRE_PROTO_LAMPORT)) {
        without_lamport.has_lamport = false; /* its rows do not count */
        asked.facts = &without_lamport;
    }

    /* 2. The fastest prediction, unless the user has a row. */
    users = gyre_tuner_users_way(asked.facts, coll, n_bytes);
    if (facts->cost != NULL && coll != GYRE_COLL_SEND_RECV &&
        (users == NULL || !gyre_filter_allows(&asked.filter, coll, users->algorithm)))
        GYRE_TRY(gyre_tuner_search(asked.facts, &asked.filter, coll, n_bytes, &choice));
    if (choice.algorithm != NULL) {
        choice.path = kernel_path(&asked, &choice);
        *choice_out = choice;
        return GYRE_SUCCESS;
    }

    /* 3. Rows: the way, then its sizes. */
    choice = (struct gyre_choice){.net_proto = net_proto};
    GYRE_TRY(choose_algorithm(&asked, &choice));
    GYRE_TRY(choose_proto(&asked, &choice));
    choice.path = kernel_path(&asked, &choice);
    gyre_tuner_choose_channels(asked.facts, coll, n_bytes, &choice);
    gyre_tuner_choose_tile(asked.facts, coll, n_bytes, &choice);
    *choice_out = choice;
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_choose_given(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter,
                                    const struct gyre_algorithm *algorithm, uint64_t n_bytes,
                                    struct gyre_choice *choice_out)
{
    const struct gyre_given_programs *given = algorithm->given;
    const enum gyre_collective coll = given->coll;
    struct gyre_choice choice = {.algorithm = algorithm,
                                 .path = given->is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED};
    struct gyre_filter own = *filter;
    own.paths[coll] = 1U << choice.path;
    struct asked asked = narrow(facts, &own, coll, n_bytes);
    const char *obstacle = gyre_tuner_algorithm_obstacle(facts, algorithm, coll);
    if (obstacle != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s cannot do %s here: %s",
                         algorithm->name, gyre_collectives[coll].name, obstacle);
    asked.filter.algorithms[coll] = filter->algorithms[coll];
    asked.filter.is_forced[coll] = true;
    if (given->is_placed)
        asked.filter.protos[coll] &= 1U << GYRE_PROTO_SIMPLE;
    for (int i = 0; given->like != NULL && gyre_algorithms[i] != NULL; i++)
        if (gyre_algorithms[i] == given->like)
            asked.filter.algorithms[coll] = 1U << i;
    if (given->like != NULL) {
        GYRE_TRY(gyre_tuner_choose(facts, &asked.filter, coll, n_bytes, &choice));
        choice.algorithm = algorithm;
        choice.won[GYRE_WON_WAY] = NULL;
    } else {
        GYRE_TRY(choose_net_proto(&asked, &choice.net_proto));
        GYRE_TRY(choose_proto(&asked, &choice));
        gyre_tuner_choose_channels(facts, coll, n_bytes, &choice);
        gyre_tuner_choose_tile(facts, coll, n_bytes, &choice);
    }
    *choice_out = choice;
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice)
{
    const enum gyre_path path = choice->path;
    const char *name = gyre_collectives[coll].name;
    const uint32_t paths = filter->paths[coll] & ((1U << GYRE_N_PATHS) - 1);
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
    if (facts->device_kind != GYRE_DEVICE_CUDA && paths == 1U << GYRE_PATH_COPY_ENGINE)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s=copy_engine: the host device has none",
                         filter->path_source);
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "%s: %s by algorithm %s goes by path %s, which is not among those "
                     "allowed",
                     filter->path_source, name, choice->algorithm->name, gyre_path_names[path]);
}
