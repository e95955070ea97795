/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses algorithm, protocols, path, channels and tile of a call. The tuner makes the choice from
 * the facts of the communicator and of the call. Choices by prediction are kept, because a
 * prediction takes too long to be repeated for each call.
 */
#include "core/engine/plan/plan_choice.h"

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
            .is_proxied = call->root != cache->member->rank &&
                          gyre_transports[links->transport_of[call->root]]->is_proxied};
        facts = gyre_tuner_facts_of_pair(&facts, &pair);
    }
    return facts;
}

/* Make the choice for a call of so many bytes, within the call's terms.
 * @given: the algorithm of a file; NULL = the choice is free. */
static gyre_status make_choice(const struct gyre_plan_cache *cache, struct gyre_tuner_facts facts,
                               const struct gyre_call *call, const struct gyre_algorithm *given,
                               uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct gyre_filter filter = cache->filter;
    gyre_call_terms_apply(&call->terms, call->coll, &filter, &facts);
    return given != NULL ? gyre_tuner_choose_given(&facts, &filter, given, n_bytes, choice_out)
                         : gyre_tuner_choose(&facts, &filter, call->coll, n_bytes, choice_out);
}

/* Find the choice for a call, or make it. Only choices by prediction are kept, one for each class
 * of sizes. A rank that has dropped one makes the same choice again, so ranks need not drop the
 * same ones. */
static gyre_status find_choice(struct gyre_plan_cache *cache, const struct gyre_tuner_facts *facts,
                               const struct gyre_call *call, const struct gyre_algorithm *given,
                               struct gyre_choice *choice_out)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    if (facts->cost == NULL || gyre_tuner_users_way(facts, call->coll, n_bytes) != NULL)
        return make_choice(cache, *facts, call, given, n_bytes, choice_out);
    const struct gyre_plan_key key = {
        .count = gyre_tuner_size_class(n_bytes),
        .terms = call->terms,
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
    if (plan == NULL) /* without memory the next such call predicts again */
        return GYRE_SUCCESS;
    plan->key = key;
    plan->choice = *choice_out;
    gyre_plan_table_add(&cache->predicted, plan);
    gyre_plan_table_sweep(&cache->predicted);
    return GYRE_SUCCESS;
}

/* Choose by the tables, and replace the parts of the choice that gyre_plan_force() has set. */
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

gyre_status gyre_plan_choose_way(struct gyre_plan_cache *cache,
                                 const struct gyre_tuner_facts *facts, const struct gyre_call *call,
                                 struct gyre_choice *choice_out)
{
    const enum gyre_collective coll = call->coll;
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const bool has_terms = gyre_call_terms_any(&call->terms);
    const struct gyre_algorithm *given = NULL;
    if (!has_terms && cache->forced.algorithm != NULL && coll != GYRE_COLL_SEND_RECV)
        return force_choice(cache, *facts, coll, n_bytes, choice_out);
    if (!has_terms)
        given = gyre_algo_use_find(&cache->from_file, &cache->filter, coll, call->root,
                                   facts->in_window);
    return find_choice(cache, facts, call, given, choice_out);
}

gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out)
{
    const struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    return gyre_plan_choose_way(cache, &facts, call, choice_out);
}
