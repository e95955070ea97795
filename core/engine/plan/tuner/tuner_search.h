/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the choice by prediction:
 *
 *   tuner_predict.c   simulates one choice
 *   tuner_sizes.c     finds the fastest channels and tiles of an algorithm and its protocols
 *   tuner_search.c    finds the fastest algorithm and protocols
 */
#ifndef GYRE_PLAN_TUNER_SEARCH_H
#define GYRE_PLAN_TUNER_SEARCH_H

#include "core/engine/plan/tuner/tuner.h"

/* A search, with the best choice that was found so far. */
struct gyre_search {
    const struct gyre_tuner_facts *facts;
    enum gyre_collective coll;
    uint64_t n_bytes;
    struct gyre_choice choice;
    double weighed_ns; /* of choice; INFINITY as long as there is none */
};

/** gyre_search_number - the number of the row of this kind that fits; 0 = none does. */
uint64_t gyre_search_number(const struct gyre_search *search, enum gyre_row_kind kind);

/** gyre_search_simulator_open - find or open the simulator of an algorithm. The caller closes it
 * with gyre_search_simulator_close(). */
gyre_status gyre_search_simulator_open(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll,
                                       struct gyre_simulator **simulator_out);

void gyre_search_simulator_close(const struct gyre_tuner_facts *facts,
                                 struct gyre_simulator *simulator);

/** gyre_search_run - simulate a choice.
 * @simulation: cost, n_bytes and limit_ns are set. */
gyre_status gyre_search_run(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
                            const struct gyre_choice *choice, struct gyre_simulation simulation,
                            double *time_ns_out);

/** gyre_search_largest_tile - the bytes of the largest tile that fits all slots of a call. */
uint32_t gyre_search_largest_tile(const struct gyre_search *search,
                                  const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                                  enum gyre_proto net_proto);

/** gyre_search_sizes - try channels and tiles of one algorithm and its protocols, beginning with
 * few channels, and keep the best choice in @search if it is better than the one there. */
gyre_status gyre_search_sizes(struct gyre_search *search, struct gyre_simulator *simulator,
                              const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                              enum gyre_proto net_proto);

#endif
