/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the algorithm, the protocol and the path of a call. The functions are pure, and their
 * arguments are facts that all ranks agreed on, so every rank chooses the same. The thresholds are
 * rows (rows.h).
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"

#define ANY_PROTO UINT32_MAX

/* Find the first row of kind WAY that fits a call; NULL if there is none.
 * @algorithm: look at rows of this algorithm only; NULL = any. @protos: look at rows of these
 * protocols only, one bit for each protocol. */
static const struct gyre_row *find_way(const struct gyre_tuner_facts *facts,
                                       enum gyre_collective coll,
                                       const struct gyre_algorithm *algorithm, uint32_t protos,
                                       uint64_t n_bytes)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_WAY, coll, n_bytes);
    call.algorithm = algorithm;
    call.protos = protos;
    return gyre_rows_find(gyre_tuner_rows(facts), &call, NULL);
}

/* The row of the fastest algorithm; NULL if there is none. GPUs take the row of the host where
 * their file has none for the collective. */
static const struct gyre_row *prefer_row(const struct gyre_tuner_facts *facts,
                                         enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_row *row = find_way(facts, coll, NULL, ANY_PROTO, n_bytes);
    const struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_WAY, coll, n_bytes);
    return row != NULL ? row : gyre_rows_find(gyre_rows_of(GYRE_ROWS_HOST), &call, NULL);
}

/* Choose the preferred algorithm if it is allowed, else the first algorithm that is allowed. */
static gyre_status choose_algorithm(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter, enum gyre_collective coll,
                                    uint64_t n_bytes, struct gyre_choice *choice)
{
    const struct gyre_row *row = prefer_row(facts, coll, n_bytes);
    const struct gyre_algorithm *preferred = row != NULL ? row->algorithm : NULL;
    const uint32_t allowed = filter->algorithms[coll];
    const struct gyre_algorithm *found = NULL, *ruled_out = NULL;
    const char *obstacle = NULL; /* of ruled_out */
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        if ((allowed >> i & 1U) == 0 || !gyre_algorithm_has(gyre_algorithms[i], coll))
            continue;
        const char *why = gyre_tuner_algorithm_obstacle(facts, gyre_algorithms[i], coll);
        if (why != NULL) {
            ruled_out = gyre_algorithms[i];
            obstacle = why;
            continue;
        }
        if (found == NULL || gyre_algorithms[i] == preferred)
            found = gyre_algorithms[i];
    }
    if (found == NULL && ruled_out != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s cannot do %s here: %s",
                         ruled_out->name, gyre_collectives[coll].name, obstacle);
    if (found == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "no algorithm that %s allows can do %s; \"gyre schedule --help\" "
                         "shows which can",
                         filter->algo_source, gyre_collectives[coll].name);
    choice->algorithm = found;
    choice->won[GYRE_WON_WAY] = found == preferred ? row : NULL;
    return GYRE_SUCCESS;
}

/* The protocol that is fastest for a call. @usable: one bit for each protocol that can be used. */
static enum gyre_proto prefer_proto(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm, uint32_t usable,
                                    uint64_t n_bytes)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, GYRE_ROW_LINE, coll, n_bytes);
    /* The rows were measured inside one host. */
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->is_proxied)
        return GYRE_PROTO_SIMPLE;
    const struct gyre_row *row = find_way(facts, coll, algorithm, usable, n_bytes);
    if (row == NULL)
        row = find_way(facts, coll, algorithm, ANY_PROTO, n_bytes);
    call.facts |= gyre_tuner_algorithm_facts(algorithm, coll);
    if (row == NULL)
        row = gyre_rows_find(gyre_tuner_rows(facts), &call, NULL);
    return row != NULL ? row->proto : GYRE_PROTO_SIMPLE;
}

/* @net_proto: of links that a proxy serves. */
static gyre_status choose_proto(const struct gyre_tuner_facts *facts,
                                const struct gyre_filter *filter, enum gyre_collective coll,
                                const struct gyre_algorithm *algorithm, uint64_t n_bytes,
                                enum gyre_proto net_proto, enum gyre_proto *proto_out)
{
    const char *obstacle = NULL; /* why the first allowed protocol cannot be used */
    uint32_t usable = 0;
    int found = -1;
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        if ((filter->protos[coll] >> proto & 1U) == 0)
            continue;
        const char *why = gyre_tuner_proto_obstacle(facts, (enum gyre_proto)proto);
        if (why == NULL && !gyre_tuner_go_together(facts, (enum gyre_proto)proto, net_proto))
            why = "ll between hosts goes with ll inside hosts";
        if (why != NULL) {
            obstacle = obstacle != NULL ? obstacle : why;
            continue;
        }
        usable |= 1U << proto;
        found = found < 0 ? proto : found;
    }
    const enum gyre_proto preferred = prefer_proto(facts, coll, algorithm, usable, n_bytes);
    if ((usable >> preferred & 1U) != 0)
        found = (int)preferred;
    if (found < 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "no protocol that %s allows can be used for %s: %s", filter->proto_source,
                         gyre_collectives[coll].name,
                         obstacle != NULL ? obstacle : "results are placed by simple alone");
    *proto_out = (enum gyre_proto)found;
    return GYRE_SUCCESS;
}

/* Choose the first protocol that the filter allows for links that a proxy serves. A prediction may
 * replace SIMPLE by a faster one. */
static gyre_status choose_net_proto(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter, enum gyre_collective coll,
                                    enum gyre_proto *proto_out)
{
    const char *obstacle = NULL; /* why the last allowed protocol cannot be used */
    *proto_out = GYRE_PROTO_SIMPLE;
    for (int proto = 0; facts->is_proxied && proto < GYRE_N_PROTOS; proto++) {
        if ((filter->net_protos[coll] >> proto & 1U) == 0)
            continue;
        *proto_out = (enum gyre_proto)proto;
        obstacle = gyre_tuner_net_proto_obstacle(facts, *proto_out);
        if (obstacle == NULL)
            return GYRE_SUCCESS;
    }
    if (!facts->is_proxied)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "no protocol that %s allows behind its slash can be used for %s: %s",
                     filter->proto_source, gyre_collectives[coll].name,
                     obstacle != NULL ? obstacle : "it allows none");
}

uint64_t gyre_tuner_size_class(uint64_t n_bytes)
{
    uint64_t power = 256; /* the smallest class: in smaller calls only latency counts */
    if (n_bytes <= power)
        return power;
    while (power < n_bytes - power)
        power *= 2;
    return gyre_round_up(n_bytes, power / 4);
}

/* If no host has two ranks, there are no links for which the protocols of links inside hosts are
 * meant. */
static struct gyre_filter for_network(const struct gyre_tuner_facts *facts,
                                      const struct gyre_filter *filter, enum gyre_collective coll)
{
    struct gyre_filter own = *filter;
    if (gyre_tuner_is_net_alone(facts))
        own.protos[coll] = own.net_protos[coll];
    return own;
}

/* Narrow the filter to the protocol and the algorithms that place results. */
static struct gyre_filter only_placed(const struct gyre_filter *filter, enum gyre_collective coll)
{
    struct gyre_filter only = *filter;
    only.protos[coll] &= 1U << GYRE_PROTO_SIMPLE;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if ((gyre_algorithms[i]->places >> coll & 1U) == 0)
            only.algorithms[coll] &= ~(1U << i);
    return only;
}

/* The path of a call that a kernel carries out with this algorithm and protocol. */
static enum gyre_path kernel_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice, uint64_t n_bytes)
{
    const bool is_placed = facts->n_ranks > 1 && (choice->algorithm->places >> coll & 1U) != 0 &&
                           gyre_tuner_may_place(facts, filter, coll, choice->proto, n_bytes);
    return is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED;
}

/* Choose by prediction if the facts have constants for a prediction, else by the tables. */
static gyre_status choose_kernel(const struct gyre_tuner_facts *facts,
                                 const struct gyre_filter *filter, enum gyre_collective coll,
                                 uint64_t n_bytes, struct gyre_choice *choice)
{
    struct gyre_choice predicted = {.algorithm = NULL};
    if (facts->cost != NULL && coll != GYRE_COLL_SEND_RECV)
        GYRE_TRY(gyre_tuner_search(facts, filter, coll, n_bytes, &predicted));
    const bool is_predicted = predicted.algorithm != NULL;
    if (is_predicted)
        *choice = predicted;
    if (!is_predicted) { /* if the search found nothing, these functions report the reason */
        GYRE_TRY(choose_algorithm(facts, filter, coll, n_bytes, choice));
        GYRE_TRY(choose_proto(facts, filter, coll, choice->algorithm, n_bytes, choice->net_proto,
                              &choice->proto));
    }
    choice->path = kernel_path(facts, filter, coll, choice, n_bytes);
    if (is_predicted)
        return GYRE_SUCCESS;
    gyre_tuner_choose_channels(facts, coll, n_bytes, choice);
    gyre_tuner_choose_tile(facts, coll, n_bytes, choice);
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct gyre_choice choice = {.algorithm = NULL};
    struct gyre_filter narrowed;
    struct gyre_tuner_facts without;
    const struct gyre_filter of_network = for_network(facts, filter, coll);
    filter = &of_network;
    GYRE_TRY(choose_net_proto(facts, filter, coll, &choice.net_proto));
    if (facts->in_window && facts->n_ranks > 1 &&
        (filter->paths[coll] >> GYRE_PATH_STAGED & 1U) == 0) {
        narrowed = only_placed(filter, coll);
        filter = &narrowed;
    }
    if (gyre_tuner_choose_copies(facts, filter, coll, n_bytes, choice_out))
        return GYRE_SUCCESS;
    if (gyre_tuner_choose_fused(facts, filter, coll, n_bytes, &choice)) {
        choice.path = kernel_path(facts, filter, coll, &choice, n_bytes);
        *choice_out = choice;
        return GYRE_SUCCESS;
    }
    if (facts->has_lamport && (filter->protos[coll] >> GYRE_PROTO_LAMPORT & 1U) == 0) {
        without = *facts; /* skip the rows of LAMPORT, which the filter forbids */
        without.has_lamport = false;
        facts = &without;
    }
    GYRE_TRY(choose_kernel(facts, filter, coll, n_bytes, &choice));
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
    const enum gyre_path path = given->is_placed ? GYRE_PATH_PLACED : GYRE_PATH_STAGED;
    struct gyre_choice choice = {
        .algorithm = algorithm, .net_proto = GYRE_PROTO_SIMPLE, .path = path};
    struct gyre_filter only = for_network(facts, filter, coll);
    const char *obstacle = gyre_tuner_algorithm_obstacle(facts, algorithm, coll);
    if (obstacle != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s cannot do %s here: %s",
                         algorithm->name, gyre_collectives[coll].name, obstacle);
    only.paths[coll] = 1U << path;
    only.is_forced[coll] = true;
    if (given->is_placed)
        only.protos[coll] &= 1U << GYRE_PROTO_SIMPLE;
    if (given->like != NULL) {
        for (int i = 0; gyre_algorithms[i] != NULL; i++)
            if (gyre_algorithms[i] == given->like)
                only.algorithms[coll] = 1U << i;
        GYRE_TRY(gyre_tuner_choose(facts, &only, coll, n_bytes, &choice));
        choice.algorithm = algorithm;
        choice.won[GYRE_WON_WAY] = NULL;
    } else {
        GYRE_TRY(choose_net_proto(facts, &only, coll, &choice.net_proto));
        GYRE_TRY(
            choose_proto(facts, &only, coll, algorithm, n_bytes, choice.net_proto, &choice.proto));
        gyre_tuner_choose_channels(facts, coll, n_bytes, &choice);
        gyre_tuner_choose_tile(facts, coll, n_bytes, &choice);
    }
    *choice_out = choice;
    return GYRE_SUCCESS;
}
