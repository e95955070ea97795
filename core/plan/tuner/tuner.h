/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner: pure functions from what all ranks agreed on to the way in which a call is carried
 * out. Every rank chooses alike, because every rank has the same facts.
 */
#ifndef GYRE_PLAN_TUNER_H
#define GYRE_PLAN_TUNER_H

#include "algorithms/simulate/simulate.h"
#include "core/model/connector.h"
#include "core/plan/tuner/filter.h"

/* GPUs: where a rank transfers so many bytes, the blocks of a kernel choose their multiprocessors;
 * below, that gains nothing (2 H200, 2026-11). */
#define GYRE_BLOCK_PLACEMENT_BYTES ((uint64_t)(16 << 20))

/* What the choice may depend on; the same on all ranks. */
struct gyre_tuner_facts {
    gyre_device_kind device_kind;
    uint32_t n_ranks;
    uint32_t n_hosts;
    bool is_proxied;      /* some pair of ranks talks through a proxy */
    bool is_ll128_safe;   /* every pair's 128-byte stores arrive whole (NVLink) */
    bool has_lamport;     /* the call is a sum that this protocol carries */
    bool is_unscaled;     /* nothing is multiplied or divided */
    bool in_window;       /* the call's result lies in a window */
    bool has_large_pages; /* that window, which copy engines need to be fast */
    uint32_t min_channels;
    uint32_t max_channels; /* already limited by the SM budget */
    struct gyre_fifo_spec spec;
    const struct gyre_grouping *grouping;
    const struct gyre_cost *cost; /* choose by prediction; NULL = by the tables of tuner.c */
};

/* How a call is carried out. The tuner fills in every field. */
struct gyre_choice {
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t tile_bytes; /* payload of one slot; a multiple of 16 */
    enum gyre_path path;
};

/** gyre_tuner_choose - the way to carry out a collective of `n_bytes` (of the vector, or of one
 * block where buffers are made of blocks). Pure. With facts->cost it simulates: tens of
 * microseconds for few ranks, up to a second for a thousand; cache the result by
 * gyre_tuner_size_class().
 * Errors: INVALID_USAGE when the filter leaves nothing that can do it, saying why. */
gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_choose_given - the way to carry out a call by an algorithm of given programs: as the
 * built-in algorithm that emits the same programs would be, else by the rules that need no
 * measurement. Pure, but for facts->cost as gyre_tuner_choose().
 * @algorithm: of gyre_algorithm_give(); its traits say whether results are placed.
 * Errors: INVALID_USAGE when the filter leaves no protocol that can do it, saying why. */
gyre_status gyre_tuner_choose_given(const struct gyre_tuner_facts *facts,
                                    const struct gyre_filter *filter,
                                    const struct gyre_algorithm *algorithm, uint64_t n_bytes,
                                    struct gyre_choice *choice_out);

/** gyre_tuner_choose_fused - is this a call of middle size that a fused kernel carries in protocol
 * SIMPLE: an all-gather into windows, or a two-shot? If so, how. Pure. */
bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out);

/** gyre_tuner_all_bytes - of the vector; of all blocks where @n_bytes counts one. */
uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes);

/** gyre_tuner_size_class - the size that stands for all from the class below it: four classes from
 * a power of two to the next. Pure. */
uint64_t gyre_tuner_size_class(uint64_t n_bytes);

/** gyre_tuner_search - as gyre_tuner_choose, by facts->cost only. Pure.
 * @choice_out: algorithm is NULL when the filter leaves nothing that fits. */
gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_predict - how long a choice takes, by @cost. Pure.
 * Errors: UNSUPPORTED (too large to simulate). */
gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out);

/** gyre_tuner_proto_obstacle - why a protocol cannot be used here; NULL if it can. */
const char *gyre_tuner_proto_obstacle(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** gyre_tuner_payload_bytes - what one slot holds, without the flags of its lines.
 * @is_placed: the algorithm places what it can. */
uint32_t gyre_tuner_payload_bytes(const struct gyre_fifo_spec *spec,
                                  const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                                  bool is_placed);

/** gyre_tuner_channels - channels of a call by the choice's algorithm and protocol, as many as
 * configured at most. Pure. */
uint32_t gyre_tuner_channels(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                             enum gyre_collective coll, uint64_t n_bytes);

/** gyre_tuner_tile - the bytes of one tile, which fit a slot. Pure.
 * @choice: complete but for its tile. */
uint32_t gyre_tuner_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                         enum gyre_collective coll, uint64_t n_bytes);

/** gyre_tuner_can_place - can ranks write into each other's windows in a call of this collective?
 * By kernels or by copy engines. */
bool gyre_tuner_can_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll);

/** gyre_tuner_may_place - does the kernel place what it can in a call of this collective, by this
 * protocol? */
bool gyre_tuner_may_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll, enum gyre_proto proto);

/** gyre_tuner_check_path - does the filter allow the path that the tuner came to?
 * Errors: INVALID_USAGE, saying what the allowed paths need. */
gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_choice *choice);

#endif
