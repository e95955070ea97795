/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the algorithm, the protocol and the path of a call. The functions are pure, and their
 * arguments are facts that all ranks agreed on, so every rank chooses the same. Each threshold
 * cites the measurement that it comes from.
 */
#include "core/plan/tuner/tuner.h"

#include "core/base/util.h"
#include "core/plan/tuner/table.h"

/* The fastest algorithm on the host device, by total bytes. One-shot needs one hop and two-shot
 * two; a ring moves the fewest bytes through caches. The limits were measured with bench allreduce
 * --compare mpi on 2 cores (AMD EPYC) with 2..8 ranks over shared memory, 2026-11, and between
 * hosts over TCP on loopback and Soft-RoCE. */
static const struct gyre_algorithm *prefer_on_host(const struct gyre_tuner_facts *facts,
                                                   enum gyre_collective coll, uint64_t n_bytes)
{
    const bool is_remote = facts->n_hosts > 1;
    switch (coll) {
    case GYRE_COLL_ALL_REDUCE:
        /* Between two ranks on two hosts one-shot sends as many bytes as two-shot, but in one hop
         * instead of two. */
        if (n_bytes <= (is_remote && facts->n_ranks == 2 ? 131072 : 8192))
            return &gyre_algorithm_direct;
        if (n_bytes <= 1 << 20 || facts->n_ranks == 2)
            return &gyre_algorithm_twoshot;
        return &gyre_algorithm_ring;
    case GYRE_COLL_BROADCAST:
        if (n_bytes <= 65536 || !is_remote)
            return facts->n_ranks <= 4 ? &gyre_algorithm_direct : &gyre_algorithm_tree;
        return &gyre_algorithm_ring;
    case GYRE_COLL_REDUCE:
        if (n_bytes <= 65536)
            return facts->n_ranks <= 4 ? &gyre_algorithm_direct : &gyre_algorithm_tree;
        return &gyre_algorithm_ring;
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_REDUCE_SCATTER:
        return n_bytes <= 65536 ? &gyre_algorithm_direct : &gyre_algorithm_ring;
    case GYRE_COLL_SEND_RECV:
        return &gyre_algorithm_sendrecv;
    default:
        return &gyre_algorithm_direct;
    }
}

/* Algorithms that no row covers use LL for calls of so many bytes at most, of one block where
 * buffers are made of blocks. Through host memory, LL and SIMPLE take 16.4 and 17.6 us for an
 * all-to-all with blocks of 128 KiB, and 44.0 and 33.7 us with blocks of 512 KiB (2 H100, 2026-11).
 */
static uint64_t most_ll_bytes(const struct gyre_tuner_facts *facts,
                              const struct gyre_algorithm *algorithm)
{
    if (facts->in_host_memory)
        return 128 << 10;
    return algorithm->is_one_shot ? 1 << 20 : 2 << 20;
}

#define ANY_PROTO UINT32_MAX

/* May the rows of LAMPORT be used? They were measured on NVLink, so only there. */
static bool wants_lamport(const struct gyre_tuner_facts *facts)
{
    return facts->is_ll128_safe && facts->n_ranks > 1 &&
           gyre_tuner_proto_obstacle(facts, GYRE_PROTO_LAMPORT) == NULL;
}

/* Find the first row that fits a call; NULL if there is none.
 * @algorithm: look at rows of this algorithm only; NULL = any. @protos: look at rows of these
 * protocols only, one bit for each protocol. */
static const struct gyre_tuner_row *find_row(const struct gyre_tuner_facts *facts,
                                             enum gyre_collective coll,
                                             const struct gyre_algorithm *algorithm,
                                             uint32_t protos, uint64_t n_bytes)
{
    const struct gyre_tuner_table *table = gyre_tuner_table_of(facts);
    n_bytes = gyre_tuner_all_bytes(facts, coll, n_bytes);
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct gyre_tuner_row *row = &table->rows[i];
        if (row->coll == coll && row->is_pair == (facts->n_ranks <= 2) &&
            n_bytes <= row->most_bytes && (algorithm == NULL || row->algorithm == algorithm) &&
            (protos >> row->proto & 1U) != 0 &&
            (row->proto != GYRE_PROTO_LAMPORT || wants_lamport(facts)) &&
            facts->max_channels >= row->least_channels)
            return row;
    }
    return NULL;
}

static const struct gyre_algorithm *prefer_on_cuda(const struct gyre_tuner_facts *facts,
                                                   enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_tuner_row *row = find_row(facts, coll, NULL, ANY_PROTO, n_bytes);
    return row != NULL ? row->algorithm : prefer_on_host(facts, coll, n_bytes);
}

/* Choose the preferred algorithm if it is allowed, else the first algorithm that is allowed. */
static gyre_status choose_algorithm(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter, enum gyre_collective coll,
                                    uint64_t n_bytes, const struct gyre_algorithm **algorithm_out)
{
    const struct gyre_algorithm *preferred = facts->device_kind == GYRE_DEVICE_CUDA
                                                 ? prefer_on_cuda(facts, coll, n_bytes)
                                                 : prefer_on_host(facts, coll, n_bytes);
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
    *algorithm_out = found;
    return GYRE_SUCCESS;
}

/* The protocol that is fastest for a call. @usable: one bit for each protocol that can be used. */
static enum gyre_proto prefer_proto(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm, uint32_t usable,
                                    uint64_t n_bytes)
{
    const struct gyre_tuner_row *row = find_row(facts, coll, algorithm, usable, n_bytes);
    if (row == NULL)
        row = find_row(facts, coll, algorithm, ANY_PROTO, n_bytes);
    /* The rows were measured inside one host. */
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->is_proxied)
        return GYRE_PROTO_SIMPLE;
    if (row != NULL)
        return row->proto;
    return n_bytes <= most_ll_bytes(facts, algorithm) ? GYRE_PROTO_LL : GYRE_PROTO_SIMPLE;
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
                                  const struct gyre_choice *choice)
{
    const bool is_placed = facts->n_ranks > 1 && (choice->algorithm->places >> coll & 1U) != 0 &&
                           gyre_tuner_may_place(facts, filter, coll, choice->proto);
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
        GYRE_TRY(choose_algorithm(facts, filter, coll, n_bytes, &choice->algorithm));
        GYRE_TRY(choose_proto(facts, filter, coll, choice->algorithm, n_bytes, choice->net_proto,
                              &choice->proto));
    }
    choice->path = kernel_path(facts, filter, coll, choice);
    if (is_predicted)
        return GYRE_SUCCESS;
    choice->n_channels = gyre_tuner_channels(facts, choice, coll, n_bytes);
    choice->tile_bytes = gyre_tuner_tile(facts, choice, coll, n_bytes);
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
        choice.path = kernel_path(facts, filter, coll, &choice);
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
    } else {
        GYRE_TRY(choose_net_proto(facts, &only, coll, &choice.net_proto));
        GYRE_TRY(
            choose_proto(facts, &only, coll, algorithm, n_bytes, choice.net_proto, &choice.proto));
        choice.n_channels = gyre_tuner_channels(facts, &choice, coll, n_bytes);
        choice.tile_bytes = gyre_tuner_tile(facts, &choice, coll, n_bytes);
    }
    *choice_out = choice;
    return GYRE_SUCCESS;
}
