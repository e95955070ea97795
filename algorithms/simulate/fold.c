/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's program must be that of the kept rank that stands for it.
 */
#include "algorithms/simulate/run.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>

/* Larger shapes compare samples of programs. */
#define MAX_FULLY_COMPARED 64

/* Programs from a file or a plug-in, because any of them may differ. */
static bool compares_all(const struct gyre_sim_fold *fold)
{
    return fold->shape->n_ranks <= MAX_FULLY_COMPARED || fold->algorithm->given != NULL ||
           fold->algorithm->from != NULL;
}

static unsigned count_hosts(const struct gyre_sim_fold *fold)
{
    return fold->shape->n_ranks / fold->n_of_host;
}

uint32_t gyre_sim_fold_relative(const struct gyre_sim_fold *fold, unsigned from, unsigned to)
{
    const unsigned g = fold->n_of_host, n_hosts = count_hosts(fold);
    const unsigned host = fold->renumbering == GYRE_SIM_BY_XOR
                              ? (from / g) ^ (to / g)
                              : (to / g + n_hosts - from / g) % n_hosts;
    const bool rotates = fold->n_kept_positions < g;
    return host * g + (rotates ? (to % g + g - from % g) % g : to % g);
}

uint32_t gyre_sim_fold_index(const struct gyre_sim_fold *fold, unsigned rank, unsigned *variant)
{
    const unsigned g = fold->n_of_host, n_variants = fold->n_variants;
    const unsigned host = rank / g % fold->n_kept_hosts;
    const unsigned n_turns = rank % g / fold->n_kept_positions;
    *variant = (*variant + n_variants - n_turns * fold->variant_shift % n_variants) % n_variants;
    return host * fold->n_kept_positions + rank % g % fold->n_kept_positions;
}

unsigned gyre_sim_fold_rank(const struct gyre_sim_fold *fold, uint32_t index)
{
    return index / fold->n_kept_positions * fold->n_of_host + index % fold->n_kept_positions;
}

gyre_status gyre_sim_fold_emit(const struct gyre_sim_fold *fold, unsigned variant, unsigned rank,
                               struct gyre_program **program_out)
{
    struct gyre_shape shape = *fold->shape;
    shape.variant = (uint16_t)variant;
    return gyre_algorithm_emit(fold->algorithm, &shape, (int)rank, program_out);
}

/* Not byte by byte, because there are millions of operands. The multiplier is 2^64 divided by the
 * golden ratio, made odd. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
}

static uint64_t sum_operands(const struct gyre_sim_fold *fold, const struct gyre_program *program,
                             const struct gyre_operand *operands, unsigned n_operands)
{
    uint64_t sum = n_operands;
    for (unsigned i = 0; i < n_operands; i++) {
        if (operands[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_connection *c = &program->connections[operands[i].index];
        const uint64_t peer = gyre_sim_fold_relative(fold, program->rank, c->peer);
        sum += mix(mix(0, peer), (uint64_t)c->lane << 1 | operands[i].is_placed);
    }
    return sum;
}

/* With any_order a worker's receptions are a set. */
static gyre_status hash_program(const struct gyre_sim_fold *fold, unsigned variant, unsigned rank,
                                uint64_t *hash_out)
{
    struct gyre_program *program;
    GYRE_TRY(gyre_sim_fold_emit(fold, variant, rank, &program));
    uint64_t hash = 0;
    for (uint32_t w = 0; w < program->n_workers; w++) {
        const struct gyre_worker *worker = &program->workers[w];
        uint64_t received = 0;
        hash = mix(hash, worker->n_steps);
        for (uint32_t s = worker->first_step; s < worker->first_step + worker->n_steps; s++) {
            const struct gyre_step *step = &program->steps[s];
            const uint64_t ins = sum_operands(fold, program, step->ins, step->n_ins);
            const bool with_next = (step->flags & GYRE_STEP_WITH_NEXT) != 0;
            received += fold->any_order ? ins : 0;
            hash = mix(hash, (uint64_t)step->n_chunks << 32 | (uint64_t)step->n_ins << 16 |
                                 (uint64_t)step->n_outs << 8 | with_next);
            hash = mix(hash, fold->any_order ? 0 : ins);
            hash = mix(hash, sum_operands(fold, program, step->outs, step->n_outs));
        }
        hash = mix(hash, received);
    }
    gyre_program_free(program);
    *hash_out = hash;
    return GYRE_SUCCESS;
}

/* If an algorithm treats some differently, then the first, the middle or the last ones. */
static bool is_sample(unsigned i, unsigned n, unsigned n_first, unsigned n_last)
{
    return i < n_first || i / 2 == n / 4 || i + n_last >= n;
}

/* @n_positions: ranks to compare of each host. */
static gyre_status check_fold(const struct gyre_sim_fold *fold, unsigned n_positions,
                              bool *is_same_out)
{
    const bool is_every = compares_all(fold);
    const unsigned n_hosts = count_hosts(fold), n_variants = fold->n_variants;
    const uint32_t n_kept = fold->n_kept_hosts * fold->n_kept_positions;
    const size_t n_hashes = (size_t)n_kept * n_variants;
    gyre_status status = GYRE_SUCCESS;
    uint64_t *kept_hashes = calloc(n_hashes, sizeof(*kept_hashes)); /* [variant][kept rank] */
    bool *is_known = calloc(n_hashes, sizeof(*is_known));
    if (kept_hashes == NULL || is_known == NULL)
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu hashes to simulate", n_hashes);
    *is_same_out = true;
    for (unsigned host = 0; host < n_hosts; host++)
        for (unsigned at = 0; at < n_positions * n_variants; at++) {
            const unsigned variant = at / n_positions;
            const unsigned rank = host * fold->n_of_host + at % n_positions;
            if (status != GYRE_SUCCESS || !*is_same_out)
                break;
            if (!is_every &&
                !(is_sample(host, n_hosts, 4, 2) && is_sample(variant, n_variants, 2, 1)))
                continue;
            unsigned kept_variant = variant;
            const uint32_t index = gyre_sim_fold_index(fold, rank, &kept_variant);
            const unsigned kept_rank = gyre_sim_fold_rank(fold, index);
            const size_t place = (size_t)kept_variant * n_kept + index;
            if (kept_rank == rank)
                continue;
            if (!is_known[place])
                status = hash_program(fold, kept_variant, kept_rank, &kept_hashes[place]);
            is_known[place] = true;
            uint64_t own = 0;
            if (status == GYRE_SUCCESS)
                status = hash_program(fold, variant, rank, &own);
            *is_same_out = own == kept_hashes[place];
        }
    free(kept_hashes);
    free(is_known);
    return status;
}

/* 1 unless all hosts have as many consecutive ranks. */
static unsigned even_ranks_of_host(const struct gyre_machine *machine, unsigned n_ranks)
{
    const struct gyre_grouping *grouping = machine->grouping;
    if (grouping == NULL || grouping->n_hosts < 2)
        return 1;
    const unsigned n_of_host = n_ranks / grouping->n_hosts;
    for (unsigned rank = 0; rank < n_ranks; rank++)
        if (n_ranks % grouping->n_hosts != 0 || grouping->host_of[rank] != rank / n_of_host)
            return 1;
    return n_of_host;
}

/* The first rotation of positions fits two-level algorithms, which treat all rails alike, the
 * second rings and trees, whose variants cross hosts at different ranks. Ranks that share a NIC are
 * all kept, because they wait for each other there. */
static gyre_status fold_positions(struct gyre_sim_fold *fold, enum gyre_sim_folding allowed)
{
    const unsigned g = fold->n_of_host, n_variants = fold->n_variants;
    const struct gyre_grouping *grouping = fold->machine->grouping;
    unsigned period = 1; /* ranks of a NIC; 0 = NICs serve different numbers of ranks */
    if (grouping != NULL && grouping->n_nics > 0 && grouping->n_nics < g)
        period = g % grouping->n_nics == 0 ? g / grouping->n_nics : 0;
    const unsigned periods[] = {period, g % n_variants == 0 ? g / n_variants : g};
    const unsigned n_shifts = allowed == GYRE_SIM_FOLD_ALL ? 2 : 1;
    for (unsigned shift = 0; shift < n_shifts && g > 1 && period > 0; shift++) {
        bool is_same = false;
        if (periods[shift] >= g || periods[shift] % period != 0 || (shift > 0 && n_variants == 1))
            continue;
        fold->n_kept_positions = periods[shift];
        fold->variant_shift = shift;
        GYRE_TRY(check_fold(fold, g, &is_same));
        if (is_same)
            return GYRE_SUCCESS;
    }
    fold->n_kept_positions = g;
    fold->variant_shift = 0;
    return GYRE_SUCCESS;
}

/* Adding 1, adding 2 (rings cross at another rail at every second host), and exclusive or. */
static gyre_status fold_hosts(struct gyre_sim_fold *fold)
{
    const unsigned n_hosts = count_hosts(fold), n_positions = fold->n_kept_positions;
    const bool is_power = (n_hosts & (n_hosts - 1)) == 0;
    for (unsigned i = 0; i < 3; i++) {
        bool is_same = false;
        fold->n_kept_hosts = i == 1 ? 2 : 1;
        fold->renumbering = i == 2 ? GYRE_SIM_BY_XOR : GYRE_SIM_BY_ADDING;
        if (n_hosts <= fold->n_kept_hosts || n_hosts % fold->n_kept_hosts != 0 ||
            (i == 2 && !is_power))
            continue;
        GYRE_TRY(check_fold(fold, n_positions, &is_same));
        if (is_same)
            return GYRE_SUCCESS;
    }
    fold->n_kept_hosts = n_hosts;
    fold->renumbering = GYRE_SIM_BY_ADDING;
    return GYRE_SUCCESS;
}

gyre_status gyre_sim_fold_find(const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, const struct gyre_machine *machine,
                               enum gyre_sim_folding allowed, struct gyre_sim_fold *fold_out)
{
    const unsigned n_ranks = shape->n_ranks;
    const unsigned g = even_ranks_of_host(machine, n_ranks);
    struct gyre_sim_fold fold = {.algorithm = algorithm,
                                 .shape = shape,
                                 .machine = machine,
                                 .n_variants = (unsigned)gyre_algorithm_variants(algorithm, shape),
                                 .is_one_host =
                                     machine->grouping == NULL || machine->grouping->n_hosts < 2,
                                 .n_of_host = g,
                                 .n_kept_hosts = n_ranks / g,
                                 .n_kept_positions = g};
    if (allowed != GYRE_SIM_FOLD_NOTHING &&
        (fold.is_one_host || g > 1 || machine->grouping->n_hosts == n_ranks)) {
        GYRE_TRY(fold_positions(&fold, allowed));
        GYRE_TRY(fold_hosts(&fold));
        /* Inputs are added in the order of ranks, so no two ranks receive in the same relative
         * order. Large shapes ignore this, because a rank that has sent to all has received nearly
         * everything. */
        if (fold.n_kept_hosts * fold.n_kept_positions == n_ranks && !compares_all(&fold)) {
            struct gyre_program *program;
            GYRE_TRY(gyre_sim_fold_emit(&fold, 0, 0, &program));
            fold.any_order = program->n_connections >= 2 * (program->n_ranks - 1U);
            gyre_program_free(program);
            if (fold.any_order)
                GYRE_TRY(fold_hosts(&fold));
            fold.any_order = fold.n_kept_hosts < count_hosts(&fold);
        }
    }
    *fold_out = fold;
    return GYRE_SUCCESS;
}
