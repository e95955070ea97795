/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses how a call is carried out, by pure functions of facts that all ranks agreed on, so every
 * rank chooses the same.
 */
#ifndef GYRE_PLAN_TUNER_H
#define GYRE_PLAN_TUNER_H

#include "algorithms/simulate/simulate.h"
#include "core/foundation/model/connector.h"
#include "core/engine/plan/tuner/filter.h"
#include "core/engine/plan/tuner/rows.h"

/* The same on all ranks. */
struct gyre_tuner_facts {
    gyre_device_kind device_kind;
    uint32_t n_ranks;
    uint32_t n_hosts;
    bool is_proxied;       /* some pair of ranks has a proxy */
    bool is_tcp;           /* proxies copy through TCP */
    bool in_host_memory;   /* GPUs: some pair has no P2P */
    bool is_direct_inside; /* several hosts, some with several ranks; only links between them have
                            * proxies */
    bool is_ll128_safe; /* NVLink connects all ranks (is_direct_inside: of each host), so stores of
                         * 128 bytes arrive whole */
    bool has_lamport;   /* LAMPORT carries the call's sum */
    bool is_unscaled;
    bool in_window;       /* the call's result */
    bool has_large_pages; /* on all ranks; with small pages copy engines are slow */
    bool is_near;         /* of gyre_tuner_facts_of_pair() */
    uint32_t min_channels;
    uint32_t max_channels; /* within the SM budget */
    uint32_t least_sms;    /* every rank has; 0 on the host device */
    struct gyre_fifo_spec spec;
    const struct gyre_grouping *grouping;
    const struct gyre_cost *cost;     /* choose by prediction; NULL = by rows */
    struct gyre_simulator *simulator; /* of `simulated`, for the call's collective and root 0; NULL
                                       * = each search opens one: seconds for thousands of ranks */
    const struct gyre_algorithm *simulated;
    const struct gyre_rows *user_rows; /* GYRE_TUNING_FILE's, asked first; NULL = none */
    struct gyre_why *why;              /* no fact: rows that lost; or NULL */
};

enum gyre_won { GYRE_WON_WAY, GYRE_WON_CHANNELS, GYRE_WON_TILE, GYRE_N_WON };

/* The tuner fills in every field. */
struct gyre_choice {
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;     /* of links without a proxy, or of all */
    enum gyre_proto net_proto; /* of links with a proxy */
    uint32_t n_channels;
    uint32_t tile_bytes; /* of a slot's payload; a multiple of 16 */
    enum gyre_path path;
    /* NULL = predicted, forced, or the filter's only algorithm. */
    const struct gyre_row *won[GYRE_N_WON];
};

struct gyre_tuner_pair {
    uint32_t n_ranks_inside; /* if they are on one host */
    bool is_near;            /* has the FIFOs of near pairs */
    bool is_proxied;
};

/** A message uses its pair's link alone, so other links exclude no protocols. Without a proxy a
 * pair chooses as in a communicator of its host. No cost: messages are not simulated. */
struct gyre_tuner_facts gyre_tuner_facts_of_pair(const struct gyre_tuner_facts *facts,
                                                 const struct gyre_tuner_pair *pair);

/** Of a message, the same on both ranks. @facts: of the communicator. */
uint32_t gyre_tuner_pair_channels(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** @n_bytes: of the vector, or of one block where buffers are blocks. With facts->cost it
 * simulates, up to a second for a thousand ranks: keep the result by gyre_tuner_size_class().
 * Errors: INVALID_USAGE if the filter allows no algorithm, protocol or path for the call;
 * UNSUPPORTED if gyre_tuner_algorithm_obstacle() rules out all that it allows. */
gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** Takes the choice of a built-in algorithm with the same programs, else goes by rows without
 * measurement. @algorithm: of gyre_algorithm_give(); its traits say whether results are placed.
 * Errors: INVALID_USAGE if the filter allows no protocol; UNSUPPORTED as gyre_tuner_choose(). */
gyre_status gyre_tuner_choose_given(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter,
                                    const struct gyre_algorithm *algorithm, uint64_t n_bytes,
                                    struct gyre_choice *choice_out);

/** False unless a fused kernel of SIMPLE carries the call: an all-gather into windows or a
 * two-shot. */
bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out);

struct gyre_row_call gyre_tuner_row_call(const struct gyre_tuner_facts *facts,
                                         enum gyre_row_kind kind, enum gyre_collective coll,
                                         uint64_t n_bytes);

/** Of the vector, or of all blocks where @n_bytes counts one. */
uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes);

/** The class's largest size, of four between powers of two. */
uint64_t gyre_tuner_size_class(uint64_t n_bytes);

/** By simulation. @choice_out: algorithm is NULL if the filter allows none that fits. */
gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** Errors: UNSUPPORTED (too large to simulate). */
gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out);

static inline bool gyre_tuner_mixes_protos(const struct gyre_tuner_facts *facts,
                                           const struct gyre_choice *choice)
{
    return facts->is_proxied && choice->proto != choice->net_proto;
}

/** NULL = none. */
const char *gyre_tuner_proto_obstacle(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** Likewise of links with a proxy. */
const char *gyre_tuner_net_proto_obstacle(const struct gyre_tuner_facts *facts,
                                          enum gyre_proto proto);

/** Has every link a proxy, between hosts of one GPU? Then a choice has one protocol. */
static inline bool gyre_tuner_is_net_alone(const struct gyre_tuner_facts *facts)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && facts->is_proxied && facts->n_hosts > 1 &&
           facts->n_hosts == facts->n_ranks;
}

/** On GPUs a launch's kernels know one line protocol. */
static inline bool gyre_tuner_go_together(const struct gyre_tuner_facts *facts,
                                          enum gyre_proto proto, enum gyre_proto net_proto)
{
    return facts->device_kind == GYRE_DEVICE_HOST || proto == net_proto ||
           (net_proto == GYRE_PROTO_SIMPLE && !gyre_tuner_is_net_alone(facts));
}

/** A slot's data on a proxied link; UINT32_MAX for SIMPLE (gyre_tuner_payload_bytes()). */
uint32_t gyre_tuner_net_payload_bytes(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** Zeros without programs. @is_placed: the results are. */
struct gyre_ability gyre_tuner_ability(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll, bool is_placed);

/** NULL = none. */
const char *gyre_tuner_algorithm_obstacle(const struct gyre_tuner_facts *facts,
                                          const struct gyre_algorithm *algorithm,
                                          enum gyre_collective coll);

/** Of far pairs, unless the algorithm connects only near ranks. */
struct gyre_fifo_size gyre_tuner_fifos(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll);

/** A slot's data at least, without lines' flags. @is_placed: the results are. */
uint32_t gyre_tuner_payload_bytes(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  enum gyre_proto proto, bool is_placed);

/** For algorithm, protocol and path. */
void gyre_tuner_choose_channels(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                uint64_t n_bytes, struct gyre_choice *choice);

/** After the channels; the tile fits a slot. */
void gyre_tuner_choose_tile(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                            uint64_t n_bytes, struct gyre_choice *choice);

/** @slot_bytes: of data. */
uint64_t gyre_tuner_row_channels(const struct gyre_rule *rule, const struct gyre_tuner_facts *facts,
                                 enum gyre_collective coll, uint64_t n_bytes, uint32_t slot_bytes);

/** As gyre_rows_find(): of the user's file, then the machine's, or hosts.rows for predictions. */
const struct gyre_row *gyre_tuner_next_row(const struct gyre_tuner_facts *facts,
                                           const struct gyre_row_call *call,
                                           const struct gyre_row *after);

/** Of kind WAY, for an algorithm that can do the call; or NULL. If its algorithm is allowed,
 * nothing is predicted. */
const struct gyre_row *gyre_tuner_users_way(const struct gyre_tuner_facts *facts,
                                            enum gyre_collective coll, uint64_t n_bytes);

/** @row: or NULL. */
bool gyre_tuner_is_users(const struct gyre_tuner_facts *facts, const struct gyre_row *row);

/** What rows may ask of them. */
uint32_t gyre_tuner_algorithm_facts(const struct gyre_tuner_facts *facts,
                                    const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll);
uint32_t gyre_tuner_proto_facts(enum gyre_proto proto);

/** Can kernels or copy engines write into other ranks' windows? */
bool gyre_tuner_can_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll);

/** Does a kernel place results, if the algorithm can? */
bool gyre_tuner_may_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll, enum gyre_proto proto, uint64_t n_bytes);

/** Errors: INVALID_USAGE, with the conditions of the allowed paths. */
gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice);

#endif
