/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner chooses how a call is carried out. Its functions are pure and depend on facts that all
 * ranks agreed on, so every rank makes the same choice.
 */
#ifndef GYRE_PLAN_TUNER_H
#define GYRE_PLAN_TUNER_H

#include "algorithms/simulate/simulate.h"
#include "core/foundation/model/connector.h"
#include "core/engine/plan/tuner/filter.h"
#include "core/engine/plan/tuner/rows.h"

/* On GPUs, if a rank transfers at least this many bytes, the blocks of a kernel choose their
 * multiprocessors. For fewer bytes that gains nothing (2 H200, 2026-11). */
#define GYRE_BLOCK_PLACEMENT_BYTES ((uint64_t)(16 << 20))

/* The facts on which a choice may depend. They are the same on all ranks. */
struct gyre_tuner_facts {
    gyre_device_kind device_kind;
    uint32_t n_ranks;
    uint32_t n_hosts;
    bool is_proxied;       /* a proxy serves the connections of at least one pair of ranks */
    bool is_tcp;           /* those proxies copy the slots through TCP connections */
    bool in_host_memory;   /* GPUs whose slots lie in host memory, because some pair has no P2P */
    bool is_direct_inside; /* there are several hosts, some host has several ranks, and proxies
                            * serve only pairs of ranks on different hosts */
    bool is_ll128_safe;    /* NVLink connects all ranks, so stores of 128 bytes arrive whole. With
                            * is_direct_inside: NVLink connects all ranks of each host */
    bool has_lamport;      /* the call is a sum that protocol LAMPORT carries */
    bool is_unscaled;      /* the call multiplies or divides no element */
    bool in_window;        /* the call's result lies in a window */
    bool has_large_pages;  /* all ranks map that window with large pages. With small pages copy
                            * engines are slow */
    bool is_near;          /* point to point, between ranks that are near each other; see
                            * gyre_tuner_facts_of_pair() */
    uint32_t min_channels;
    uint32_t max_channels; /* already limited by the SM budget */
    uint32_t least_sms;    /* multiprocessors that every rank has; 0 on the host device */
    struct gyre_fifo_spec spec;
    const struct gyre_grouping *grouping;
    const struct gyre_cost *cost;     /* choose by prediction; NULL = by rows */
    struct gyre_simulator *simulator; /* of `simulated`, for the collective of the call and root 0;
                                       * NULL = each search opens one, which takes seconds for
                                       * thousands of ranks */
    const struct gyre_algorithm *simulated;
    const struct gyre_rows *user_rows; /* of GYRE_TUNING_FILE, asked first; NULL = none */
    struct gyre_why *why;              /* no fact: learns of rows that lost; NULL = nobody asks */
};

/* What a choice took from rows. */
enum gyre_won { GYRE_WON_WAY, GYRE_WON_CHANNELS, GYRE_WON_TILE, GYRE_N_WON };

/* How a call is carried out. The tuner fills in every field. */
struct gyre_choice {
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;     /* of links without a proxy; of all links if there is no such link */
    enum gyre_proto net_proto; /* of links that a proxy serves */
    uint32_t n_channels;
    uint32_t tile_bytes; /* payload of one slot; a multiple of 16 */
    enum gyre_path path;
    /* The rows that decided; NULL = none did: it was predicted or forced, or the filter left no
     * other algorithm. */
    const struct gyre_row *won[GYRE_N_WON];
};

/* Two ranks of which one sends to the other. */
struct gyre_tuner_pair {
    uint32_t n_ranks_inside; /* on their host, if they are on one */
    bool is_near;            /* they have the FIFOs of near pairs */
    bool is_proxied;         /* a proxy serves the connections between them */
};

/** gyre_tuner_facts_of_pair - the facts for a send or receive. A message uses the link of its pair
 * alone, so the protocols that the links of other pairs exclude are possible. Two ranks without a
 * proxy between them make the same choice as in a communicator of the ranks of their host. The
 * result has no cost, because messages are not simulated: their choice is made by the tables, and
 * takes no time worth keeping it. Pure. */
struct gyre_tuner_facts gyre_tuner_facts_of_pair(const struct gyre_tuner_facts *facts,
                                                 const struct gyre_tuner_pair *pair);

/** gyre_tuner_pair_channels - the most channels of a send or receive, as rows of kind PAIR say.
 * Both ends find the same.
 * @facts: of the communicator. */
uint32_t gyre_tuner_pair_channels(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** gyre_tuner_choose - choose how to carry out a collective of `n_bytes` (of the vector, or of one
 * block where buffers are made of blocks). Pure. With facts->cost the function simulates, which
 * takes tens of microseconds for few ranks and up to a second for a thousand; cache the result by
 * gyre_tuner_size_class().
 * Errors: INVALID_USAGE with the reason, if the filter allows no algorithm, protocol or path that
 * can carry out the call; UNSUPPORTED if gyre_tuner_algorithm_obstacle() rules out every algorithm
 * that the filter allows. */
gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_choose_given - choose how to carry out a call with an algorithm of given programs. If
 * a built-in algorithm emits the same programs, the choice is the one for that algorithm, else it
 * follows the rules that need no measurement. Pure. With facts->cost it may simulate, as
 * gyre_tuner_choose() does.
 * @algorithm: of gyre_algorithm_give(); its traits say whether results are placed.
 * Errors: INVALID_USAGE with the reason, if the filter allows no protocol that can carry out the
 * call; UNSUPPORTED as gyre_tuner_choose(). */
gyre_status gyre_tuner_choose_given(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter,
                                    const struct gyre_algorithm *algorithm, uint64_t n_bytes,
                                    struct gyre_choice *choice_out);

/** gyre_tuner_choose_fused - does a fused kernel carry out this call of middle size in protocol
 * SIMPLE, as an all-gather into windows or as a two-shot? If so, fill in the choice. Pure. */
bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out);

/** gyre_tuner_row_call - a call of @n_bytes, as rows of any algorithm and protocol see it. */
struct gyre_row_call gyre_tuner_row_call(const struct gyre_tuner_facts *facts,
                                         enum gyre_row_kind kind, enum gyre_collective coll,
                                         uint64_t n_bytes);

/** gyre_tuner_all_bytes - the bytes of the vector, or of all blocks where @n_bytes counts one. */
uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes);

/** gyre_tuner_size_class - the largest size of the class to which @n_bytes belongs. There are four
 * classes between a power of two and the next one. Pure. */
uint64_t gyre_tuner_size_class(uint64_t n_bytes);

/** gyre_tuner_search - choose by simulation with facts->cost. Pure.
 * @choice_out: algorithm is NULL if the filter allows no algorithm that fits. */
gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_predict - how long a choice takes, by @cost. Pure.
 * Errors: UNSUPPORTED (too large to simulate). */
gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out);

/** gyre_tuner_mixes_protos - do the links of the communicator go by two different protocols? */
static inline bool gyre_tuner_mixes_protos(const struct gyre_tuner_facts *facts,
                                           const struct gyre_choice *choice)
{
    return facts->is_proxied && choice->proto != choice->net_proto;
}

/** gyre_tuner_proto_obstacle - why a protocol cannot be used here; NULL if it can. */
const char *gyre_tuner_proto_obstacle(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** gyre_tuner_net_proto_obstacle - why links that a proxy serves cannot go by a protocol; NULL if
 * they can. */
const char *gyre_tuner_net_proto_obstacle(const struct gyre_tuner_facts *facts,
                                          enum gyre_proto proto);

/** gyre_tuner_is_net_alone - are there several hosts of one GPU each? Then a proxy serves every
 * link, and both protocols of a choice are the same. */
static inline bool gyre_tuner_is_net_alone(const struct gyre_tuner_facts *facts)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && facts->is_proxied && facts->n_hosts > 1 &&
           facts->n_hosts == facts->n_ranks;
}

/** gyre_tuner_go_together - can the links of a call go by these two protocols? On GPUs the kernels
 * of a launch know one line protocol. */
static inline bool gyre_tuner_go_together(const struct gyre_tuner_facts *facts,
                                          enum gyre_proto proto, enum gyre_proto net_proto)
{
    return facts->device_kind == GYRE_DEVICE_HOST || proto == net_proto ||
           (net_proto == GYRE_PROTO_SIMPLE && !gyre_tuner_is_net_alone(facts));
}

/** gyre_tuner_net_payload_bytes - the bytes of data that a slot of a link that a proxy serves holds
 * in a line protocol. UINT32_MAX for SIMPLE, whose slots gyre_tuner_payload_bytes() counts. */
uint32_t gyre_tuner_net_payload_bytes(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** gyre_tuner_algorithm_obstacle - why an algorithm that has the collective cannot carry it out
 * here; NULL if it can. */
const char *gyre_tuner_algorithm_obstacle(const struct gyre_tuner_facts *facts,
                                          const struct gyre_algorithm *algorithm,
                                          enum gyre_collective coll);

/** gyre_tuner_fifos - the FIFOs that a call by this algorithm may use between two ranks: those of
 * far pairs, unless the algorithm connects only near ranks. */
struct gyre_fifo_size gyre_tuner_fifos(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll);

/** gyre_tuner_payload_bytes - the bytes of data that one slot holds, without the flags of its
 * lines. Every slot that the algorithm uses in this collective holds at least so many.
 * @is_placed: the algorithm places its results. */
uint32_t gyre_tuner_payload_bytes(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  enum gyre_proto proto, bool is_placed);

/** gyre_tuner_choose_channels - choose the channels of a choice that has an algorithm, a protocol
 * and a path, within the configured limits. Pure. */
void gyre_tuner_choose_channels(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                uint64_t n_bytes, struct gyre_choice *choice);

/** gyre_tuner_choose_tile - then choose its tile, which fits a slot. Pure. */
void gyre_tuner_choose_tile(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                            uint64_t n_bytes, struct gyre_choice *choice);

/** gyre_tuner_row_channels - the channels that the rule of a row says. Pure.
 * @slot_bytes: of data. */
uint64_t gyre_tuner_row_channels(const struct gyre_rule *rule, const struct gyre_tuner_facts *facts,
                                 enum gyre_collective coll, uint64_t n_bytes, uint32_t slot_bytes);

/** gyre_tuner_next_row - the first row that fits the call, behind the row `after`: of the user's
 * file, then of the machine at hand, or of hosts.rows for the kinds of predictions; NULL if there
 * is none. @after: NULL = from the first row on. */
const struct gyre_row *gyre_tuner_next_row(const struct gyre_tuner_facts *facts,
                                           const struct gyre_row_call *call,
                                           const struct gyre_row *after);

/** gyre_tuner_users_way - the user's row of kind WAY that fits; NULL if there is none. Nothing is
 * predicted then, if its algorithm is allowed. */
const struct gyre_row *gyre_tuner_users_way(const struct gyre_tuner_facts *facts,
                                            enum gyre_collective coll, uint64_t n_bytes);

/** gyre_tuner_is_users - is the row of the user's file? @row: may be NULL. */
bool gyre_tuner_is_users(const struct gyre_tuner_facts *facts, const struct gyre_row *row);

/** gyre_tuner_algorithm_facts, gyre_tuner_proto_facts - what rows may ask of an algorithm, and of a
 * protocol. */
uint32_t gyre_tuner_algorithm_facts(const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll);
uint32_t gyre_tuner_proto_facts(enum gyre_proto proto);

/** gyre_tuner_can_place - can kernels or copy engines write into the windows of other ranks in a
 * call of this collective? */
bool gyre_tuner_can_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll);

/** gyre_tuner_may_place - does a kernel place results in a call of this collective with this
 * protocol, if the algorithm can place them? */
bool gyre_tuner_may_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll, enum gyre_proto proto, uint64_t n_bytes);

/** gyre_tuner_check_path - check that the filter allows the path of the choice.
 * Errors: INVALID_USAGE, with the conditions of the allowed paths. */
gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice);

#endif
