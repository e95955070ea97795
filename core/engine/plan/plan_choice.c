/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_cache.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_plan_cache *cache,
                                           const struct gyre_call *call)
{
    struct gyre_tuner_facts facts = cache->facts;
    const struct gyre_reduction reduction = gyre_call_reduction(call, cache->facts.n_ranks);
    facts.has_lamport =
        gyre_collectives[call->coll].reduces && gyre_lamport_adds(call->dtype, reduction.op);
    facts.is_unscaled = reduction.premultiply == 0 && reduction.divisor <= 1;
    if (call->coll == GYRE_COLL_SEND_RECV) {
        const struct gyre_links *links = cache->links;
        const struct gyre_tuner_pair pair = {
            .n_ranks_inside = cache->n_ranks_inside,
            .is_near = links->is_far[call->root] == 0,
            .is_proxied = call->root != cache->self->rank &&
                          gyre_transports[links->transport_of[call->root]]->is_proxied};
        facts = gyre_tuner_facts_of_pair(&facts, &pair);
    }
    return facts;
}

/* @given: of a file; NULL = the choice is free. */
static gyre_status make_choice(const struct gyre_plan_cache *cache, struct gyre_tuner_facts facts,
                               const struct gyre_call *call, const struct gyre_algorithm *given,
                               uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct gyre_filter filter = cache->filter;
    gyre_call_options_apply(&call->options, call->coll, &filter, &facts);
    return given != NULL ? gyre_tuner_choose_given(&facts, &filter, given, n_bytes, choice_out)
                         : gyre_tuner_choose(&facts, &filter, call->coll, n_bytes, choice_out);
}

static gyre_status force_choice(const struct gyre_plan_cache *cache, struct gyre_tuner_facts facts,
                                enum gyre_collective coll, uint64_t n_bytes,
                                struct gyre_choice *choice_out)
{
    const struct gyre_choice *forced = &cache->forced;
    struct gyre_filter filter = cache->filter;
    facts.cost = NULL;
    if (forced->n_channels > 0)
        facts.min_channels = facts.max_channels = forced->n_channels;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_algorithms[i] == forced->algorithm) {
            filter.algorithms[coll] &= 1U << i;
            filter.protos[coll] &= 1U << forced->proto;
            filter.net_protos[coll] &= 1U << forced->net_proto;
            if (forced->path != GYRE_PATH_COPY_ENGINE)
                filter.paths[coll] &= ~(1U << GYRE_PATH_COPY_ENGINE);
        }
    GYRE_TRY(gyre_tuner_choose(&facts, &filter, coll, n_bytes, choice_out));
    memset(choice_out->won, 0, sizeof(choice_out->won));
    if (choice_out->path == GYRE_PATH_COPY_ENGINE)
        return GYRE_SUCCESS;
    if (forced->tile_bytes > 0)
        choice_out->tile_bytes = forced->tile_bytes;
    const uint32_t most_bytes = gyre_min_u32(
        gyre_tuner_payload_bytes(&facts, choice_out->algorithm, coll, choice_out->proto,
                                 choice_out->path == GYRE_PATH_PLACED),
        gyre_tuner_net_payload_bytes(&facts, choice_out->net_proto));
    if (choice_out->tile_bytes > most_bytes || choice_out->tile_bytes % 16 != 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "tiles of %u bytes: a slot of %s holds %u, in units of 16",
                         choice_out->tile_bytes, gyre_proto_names[choice_out->proto], most_bytes);
    return GYRE_SUCCESS;
}

/* In this order: the call's options, a forced choice, a file's program, rows, predictions. */
static gyre_status choose_way(struct gyre_plan_cache *cache, const struct gyre_tuner_facts *facts,
                              const struct gyre_call *call, struct gyre_choice *choice_out)
{
    const enum gyre_collective coll = call->coll;
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const bool has_options = gyre_call_options_any(&call->options);
    const struct gyre_algorithm *given = NULL;
    if (!has_options && cache->forced.algorithm != NULL && coll != GYRE_COLL_SEND_RECV)
        return force_choice(cache, *facts, coll, n_bytes, choice_out);
    if (!has_options)
        given = gyre_algo_use_find(&cache->from_file, &cache->filter, coll, call->root,
                                   facts->in_window);
    /* Only predictions are kept. Ranks need not drop the same ones, because each makes the same
     * choice again. */
    const uint64_t call_bytes = call->count * gyre_dtype_bytes(call->dtype);
    if (facts->cost == NULL || gyre_tuner_users_way(facts, call->coll, call_bytes) != NULL)
        return make_choice(cache, *facts, call, given, call_bytes, choice_out);
    const struct gyre_plan_key key = {
        .count = gyre_tuner_size_class(call_bytes),
        .options = call->options,
        .settings = cache->unforced,
        .root = given != NULL ? call->root : -1, /* a file has programs for some roots only */
        .flags = (uint16_t)((facts->in_window ? GYRE_KEY_IN_WINDOW : 0) |
                            (facts->has_large_pages ? GYRE_KEY_LARGE_PAGES : 0)),
        .coll = (uint8_t)call->coll,
        .op = facts->has_lamport,
    };
    const struct gyre_plan *kept = gyre_plan_table_find(&cache->predicted, &key);
    if (kept != NULL) {
        *choice_out = kept->choice;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(make_choice(cache, *facts, call, given, key.count, choice_out));
    struct gyre_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) /* the next such call predicts again */
        return GYRE_SUCCESS;
    plan->key = key;
    plan->choice = *choice_out;
    gyre_plan_table_add(&cache->predicted, plan);
    gyre_plan_table_sweep(&cache->predicted);
    return GYRE_SUCCESS;
}

/* That depends on agreed facts only, so no rank counts a preference that cannot carry out the
 * call. */
static bool drops_preference(struct gyre_call *call, gyre_status status)
{
    if (call->options.prefers == 0 ||
        (status != GYRE_ERROR_INVALID_ARGUMENT && status != GYRE_ERROR_INVALID_USAGE &&
         status != GYRE_ERROR_UNSUPPORTED))
        return false;
    call->options.algorithms = call->options.prefers = 0;
    return true;
}

gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out)
{
    const struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    struct gyre_call own = *call;
    const gyre_status status = choose_way(cache, &facts, call, choice_out);
    return drops_preference(&own, status) ? choose_way(cache, &facts, &own, choice_out) : status;
}
static gyre_status check_fifos(const struct gyre_fifo_spec *spec, uint32_t n_fifos,
                               const struct gyre_call *call, const struct gyre_program *program)
{
    if (program->n_lanes <= n_fifos && program->min_depth <= spec->depth)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s %s needs %u connections of depth %u a pair, this communicator has %u of "
                     "depth %u",
                     program->algorithm, gyre_collectives[call->coll].name, program->n_lanes,
                     program->min_depth, n_fifos, spec->depth);
}

static gyre_status choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          struct gyre_choice *choice_out, const struct gyre_variants **variants_out,
                          uint16_t rank_of_out[2])
{
    struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    facts.in_window = call->window != NULL;
    facts.has_large_pages = call->window != NULL && call->window->has_large_pages;
    GYRE_TRY(choose_way(cache, &facts, call, choice_out));
    GYRE_TRY(gyre_tuner_check_path(&facts, &cache->filter, call->coll, choice_out));
    const struct gyre_rank *self = cache->self;
    struct gyre_shape shape = {.coll = call->coll,
                               .n_ranks = (uint16_t)self->n_ranks,
                               .root = (uint16_t)(call->root < 0 ? 0 : call->root),
                               .grouping = &cache->links->grouping};
    int rank = self->rank; /* in the shape */
    if (call->coll == GYRE_COLL_SEND_RECV) {
        const bool is_self = call->root == self->rank;
        shape.n_ranks = is_self ? 1 : 2;
        shape.root = 0;
        shape.grouping = NULL;
        rank = call->is_send || is_self ? 0 : 1;
        rank_of_out[rank] = (uint16_t)self->rank;
        rank_of_out[1 - rank] = (uint16_t)call->root;
    }
    shape.is_placed = choice_out->path != GYRE_PATH_STAGED;
    GYRE_TRY(
        gyre_programs_find(&cache->programs, choice_out->algorithm, &shape, rank, variants_out));
    const struct gyre_program *program = (*variants_out)->programs[0];
    const struct gyre_variants *uncut = *variants_out;
    const struct gyre_fifo_spec *spec = &cache->links->spec;
    const uint32_t n_fifos = gyre_tuner_fifos(&facts, choice_out->algorithm, call->coll).n_fifos;
    GYRE_TRY(check_fifos(spec, n_fifos, call, program));
    const struct gyre_variants *variants = *variants_out;
    const uint32_t n_lanes = program->n_lanes;
    /* On a GPU all workers run as blocks at once. Built-in algorithms keep the tuner's channels. */
    const bool is_emitted =
        choice_out->algorithm->given == NULL || choice_out->algorithm->given->like != NULL;
    uint32_t most =
        cache->facts.device_kind != GYRE_DEVICE_CUDA || is_emitted || variants->most_workers <= 1
            ? UINT32_MAX
            : (uint32_t)gyre_max_u64(1, cache->facts.max_channels / variants->most_workers);
    if (call->coll == GYRE_COLL_SEND_RECV)
        most = gyre_min_u32(most, gyre_tuner_pair_channels(&cache->facts, choice_out->proto));
    if (n_lanes > 0)
        most = gyre_min_u32(most, n_fifos / n_lanes);
    choice_out->n_channels = gyre_min_u32(choice_out->n_channels, most);
    if (program->max_range == 1)
        return GYRE_SUCCESS;
    shape.most_range = gyre_program_range_for(program, call->count * gyre_dtype_bytes(call->dtype),
                                              choice_out->n_channels, choice_out->tile_bytes);
    const uint32_t most_range = facts.device_kind == GYRE_DEVICE_CUDA
                                    ? gyre_cuda_most_range(program, choice_out->proto)
                                    : GYRE_MAX_RANKS;
    if (shape.most_range > most_range || program->max_range > most_range)
        shape.most_range = (uint16_t)gyre_min_u32(
            shape.most_range > 0 ? shape.most_range : most_range, most_range);
    gyre_status status =
        gyre_programs_find(&cache->programs, choice_out->algorithm, &shape, rank, variants_out);
    if (status == GYRE_SUCCESS)
        status = check_fifos(spec, n_fifos, call, (*variants_out)->programs[0]);
    /* Some ranges of a file or a plug-in deadlock if they are cut. */
    const bool is_given =
        choice_out->algorithm->given != NULL || choice_out->algorithm->from != NULL;
    if (status == GYRE_SUCCESS || !is_given ||
        gyre_piece_bytes(choice_out->tile_bytes, program->max_range) == 0)
        return status;
    *variants_out = uncut;
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out,
                             const struct gyre_variants **variants_out, uint16_t rank_of_out[2])
{
    struct gyre_call own = *call;
    const gyre_status status = choose(cache, call, choice_out, variants_out, rank_of_out);
    return drops_preference(&own, status)
               ? choose(cache, &own, choice_out, variants_out, rank_of_out)
               : status;
}
