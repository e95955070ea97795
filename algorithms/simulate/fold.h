/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks the simulator keeps. If renumbering the hosts, or the positions on all hosts, maps
 * ranks onto each other, one of these ranks is kept and stands for the others.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FOLD_H
#define GYRE_ALGORITHMS_SIMULATE_FOLD_H

#include "algorithms/simulate/simulate.h"

/* The limits for ranks that stand for other ranks. */
enum gyre_sim_folding {
    GYRE_SIM_FOLD_ALL,          /* the number of channels must be a multiple of channel_unit */
    GYRE_SIM_FOLD_ANY_CHANNELS, /* channel_unit is 1 */
    GYRE_SIM_FOLD_NOTHING
};

enum gyre_sim_renumbering { GYRE_SIM_BY_ADDING, GYRE_SIM_BY_XOR };

/* The kept ranks, which stand for all ranks. Ranks must be numbered host after host, with n_of_host
 * ranks on each host; if they are not, every rank counts as a host. */
struct gyre_sim_fold {
    const struct gyre_algorithm *algorithm;
    const struct gyre_shape *shape;
    const struct gyre_machine *machine;
    unsigned n_variants;
    bool is_one_host;
    unsigned n_of_host;
    unsigned n_kept_hosts;
    unsigned n_kept_positions; /* of each kept host; position p is like p modulo this number */
    unsigned variant_shift;    /* a rank's variant v is like variant v - k * variant_shift of the
                                * kept rank k * n_kept_positions before it */
    enum gyre_sim_renumbering renumbering; /* of hosts */
    /* The kept ranks receive in another order than the ranks for which they stand. */
    bool any_order;
};

/** gyre_sim_fold_find - choose the kept ranks of a shape. @algorithm, @shape, @machine: must
 * outlive the result. Errors: as gyre_algorithm_emit(). */
gyre_status gyre_sim_fold_find(const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, const struct gyre_machine *machine,
                               enum gyre_sim_folding allowed, struct gyre_sim_fold *fold_out);

/** gyre_sim_fold_emit - the program of a rank in a variant. Errors: as gyre_algorithm_emit(). */
gyre_status gyre_sim_fold_emit(const struct gyre_sim_fold *fold, unsigned variant, unsigned rank,
                               struct gyre_program **program_out);

/** gyre_sim_fold_relative - the position of rank `to` relative to rank `from`. The renumbering does
 * not change it. */
uint32_t gyre_sim_fold_relative(const struct gyre_sim_fold *fold, unsigned from, unsigned to);

/** gyre_sim_fold_index - the index of the kept rank that stands for a rank. @variant: the variant
 * that the rank runs; it is replaced by the variant of the kept rank that is alike. */
uint32_t gyre_sim_fold_index(const struct gyre_sim_fold *fold, unsigned rank, unsigned *variant);

/** gyre_sim_fold_rank - the kept rank with this index. */
unsigned gyre_sim_fold_rank(const struct gyre_sim_fold *fold, uint32_t index);

#endif
