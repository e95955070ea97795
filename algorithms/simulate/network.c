/* SPDX-License-Identifier: Apache-2.0
 *
 * One program at a time is in memory, because all steps of a ring of 1024 ranks would take 170 MB.
 * Sorting joins the two sides of each FIFO.
 */
#include "algorithms/simulate/run.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

struct end {
    uint64_t key; /* equal on both sides of a FIFO */
    uint32_t index;
    uint32_t rank;
    uint32_t worker;
    uint8_t is_send;
    uint8_t link;
};

struct build {
    const struct gyre_algorithm *algorithm;
    const struct gyre_shape *shape;
    const struct gyre_machine *machine;
    struct gyre_sim_network *network;
    struct gyre_sim_fold fold;
    struct end *ends;
    uint32_t n_ends;
    uint32_t ends_capacity, workers_capacity, steps_capacity, refs_capacity;
    bool leaves_leaf;
};

static gyre_status reserve(void *array, uint32_t *capacity, size_t n, size_t elem_bytes)
{
    return gyre_grow(array, capacity, n, elem_bytes)
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes to simulate",
                           n * elem_bytes);
}

static gyre_status add_ends(struct build *build, const struct gyre_program *program,
                            unsigned variant)
{
    const struct gyre_machine *machine = build->machine;
    const struct gyre_grouping *grouping = machine->grouping;
    unsigned ignored = 0;
    const uint32_t rank = gyre_sim_fold_index(&build->fold, program->rank, &ignored);
    if (build->n_ends + program->n_connections > 2 * GYRE_SIMULATE_MAX_FIFOS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s %s of %u ranks has over %u connections: too many to simulate",
                         program->algorithm, gyre_collectives[program->coll].name, program->n_ranks,
                         GYRE_SIMULATE_MAX_FIFOS);
    GYRE_TRY(reserve(&build->ends, &build->ends_capacity, build->n_ends + program->n_connections,
                     sizeof(struct end)));
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *c = &program->connections[i];
        const unsigned from = c->is_send ? program->rank : c->peer;
        const unsigned to = c->is_send ? c->peer : program->rank;
        struct end *end = &build->ends[build->n_ends];
        unsigned from_variant = variant;
        const uint32_t kept_from = gyre_sim_fold_index(&build->fold, from, &from_variant);
        memset(end, 0, sizeof(*end));
        end->key = (uint64_t)from_variant << 48 | (uint64_t)kept_from << 32 |
                   (uint64_t)gyre_sim_fold_relative(&build->fold, from, to) << 8 | c->lane;
        end->index = build->n_ends++;
        end->rank = rank;
        end->is_send = c->is_send;
        const bool is_inside = grouping == NULL || grouping->host_of[from] == grouping->host_of[to];
        end->link = is_inside && !machine->is_all_network ? GYRE_LINK_HOST : GYRE_LINK_NETWORK;
        build->leaves_leaf =
            build->leaves_leaf ||
            (machine->fabric != NULL && from != to && end->link == GYRE_LINK_NETWORK &&
             !gyre_fabric_is_in_leaf(machine->fabric, from, to));
    }
    return GYRE_SUCCESS;
}

static uint8_t add_operands(struct build *build, const struct gyre_operand *operands,
                            unsigned n_operands, uint32_t first_end, uint32_t worker)
{
    struct gyre_sim_network *network = build->network;
    uint8_t n_connections = 0;
    for (unsigned i = 0; i < n_operands; i++) {
        if (operands[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const uint32_t end = first_end + operands[i].index;
        build->ends[end].worker = worker;
        network->fifo_of[network->n_ends++] = end;
        n_connections++;
    }
    return n_connections;
}

static gyre_status add_steps(struct build *build, const struct gyre_program *program,
                             const struct gyre_worker *from, unsigned variant, uint32_t first_end)
{
    struct gyre_sim_network *network = build->network;
    const size_t n_steps = network->n_steps + (size_t)from->n_steps;
    const bool is_unlike = build->machine->fabric != NULL && !network->is_folded;
    const uint32_t most_steps = is_unlike ? GYRE_SIM_FABRIC_MAX_STEPS : GYRE_SIM_MAX_STEPS;
    if (n_steps > most_steps)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED, "%s %s of %u ranks has over %u steps: too many to simulate%s",
            program->algorithm, gyre_collectives[program->coll].name, program->n_ranks, most_steps,
            is_unlike ? " in a fabric in which no host is like another one" : "");
    GYRE_TRY(reserve(&network->steps, &build->steps_capacity, n_steps, sizeof(*network->steps)));
    GYRE_TRY(reserve(&network->workers, &build->workers_capacity, network->n_workers + 1,
                     sizeof(*network->workers)));
    unsigned ignored = 0;
    const uint32_t rank = gyre_sim_fold_index(&build->fold, program->rank, &ignored);
    const struct gyre_sim_worker worker = {rank, variant, network->n_steps, from->n_steps};
    uint8_t n_ahead = 0;
    for (uint32_t i = from->n_steps; i-- > 0;) { /* a step must know its successors */
        const struct gyre_step *step = &program->steps[from->first_step + i];
        const bool with_next = (step->flags & GYRE_STEP_WITH_NEXT) != 0;
        const bool is_group_end = (i + 1) % GYRE_SIM_MAX_GROUP == 0;
        n_ahead = with_next && !is_group_end ? (uint8_t)(n_ahead + 1) : 0;
        network->steps[network->n_steps + i].n_ahead = n_ahead;
    }
    for (uint32_t i = 0; i < from->n_steps; i++) {
        const struct gyre_step *step = &program->steps[from->first_step + i];
        struct gyre_sim_step *to = &network->steps[network->n_steps + i];
        GYRE_TRY(reserve(&network->fifo_of, &build->refs_capacity,
                         network->n_ends + (size_t)GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS,
                         sizeof(*network->fifo_of)));
        to->n_ins = 0;
        to->n_stores = 0;
        to->first_fifo = network->n_ends;
        to->chunk = step->chunk;
        to->last_chunk =
            (uint16_t)gyre_step_part(step, step->chunk, step->n_chunks - 1U,
                                     gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH));
        to->n_chunks = step->n_chunks;
        to->n_recvs = add_operands(build, step->ins, step->n_ins, first_end, network->n_workers);
        to->n_sends = add_operands(build, step->outs, step->n_outs, first_end, network->n_workers);
        if (step->n_outs > 0) { /* else it only waits for placed data */
            to->n_ins = step->n_ins;
            to->n_stores = (uint8_t)(step->n_outs - to->n_sends);
        }
    }
    network->n_steps = (uint32_t)n_steps;
    network->workers[network->n_workers++] = worker;
    return GYRE_SUCCESS;
}

static int compare_ends(const void *a, const void *b)
{
    const struct end *left = a, *right = b;
    if (left->key != right->key)
        return left->key > right->key ? 1 : -1;
    return right->is_send - left->is_send;
}

/* From here on steps name FIFOs instead of ends. */
static gyre_status join_ends(struct build *build)
{
    struct gyre_sim_network *network = build->network;
    const uint32_t n_ends = build->n_ends;
    uint32_t *fifo_of_end = calloc(n_ends + 1, sizeof(*fifo_of_end));
    network->fifos = calloc(n_ends / 2 + 1, sizeof(*network->fifos));
    gyre_status status = GYRE_SUCCESS;
    if (fifo_of_end == NULL || network->fifos == NULL) {
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u FIFOs to simulate", n_ends / 2);
        goto out;
    }
    if (n_ends > 0)
        qsort(build->ends, n_ends, sizeof(*build->ends), compare_ends);
    for (uint32_t i = 0; i < n_ends; i += 2) {
        const struct end *from = &build->ends[i];
        const struct end *to = from + 1;
        if (i + 1 == n_ends || from->key != to->key || !from->is_send || to->is_send) {
            status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                               "rank %u %s over a connection that has no other end", from->rank,
                               from->is_send ? "sends" : "receives");
            goto out;
        }
        const struct gyre_sim_fifo fifo = {from->rank, to->rank, from->worker, to->worker,
                                           from->link};
        fifo_of_end[from->index] = fifo_of_end[to->index] = network->n_fifos;
        network->fifos[network->n_fifos++] = fifo;
    }
    for (uint32_t i = 0; i < network->n_ends; i++)
        network->fifo_of[i] = fifo_of_end[network->fifo_of[i]];
out:
    free(fifo_of_end);
    return status;
}

/* Neighbours share a NIC if there are too few. The model does not stripe a rank's data over
 * NICs. */
static uint32_t find_nic(const struct build *build, unsigned rank)
{
    const struct gyre_grouping *grouping = build->machine->grouping;
    uint32_t position = 0, n_of_host = 0;
    if (grouping == NULL)
        return 0;
    for (unsigned other = 0; other < build->shape->n_ranks; other++) {
        position += other < rank && grouping->host_of[other] == grouping->host_of[rank];
        n_of_host += grouping->host_of[other] == grouping->host_of[rank];
    }
    return grouping->n_nics > 0 && grouping->n_nics < n_of_host
               ? position * grouping->n_nics / n_of_host
               : position;
}

/* Where ranks stand for others, all routes stay within a leaf. */
static gyre_status find_routes(const struct build *build, const struct gyre_fabric *fabric)
{
    struct gyre_sim_network *network = build->network;
    network->fabric = fabric;
    const uint32_t longest = gyre_fabric_longest_route(fabric);
    network->routes = calloc((size_t)network->n_fifos + 1, sizeof(*network->routes));
    network->route_links =
        malloc(((size_t)network->n_fifos + 1) * longest * sizeof(*network->route_links));
    if (network->routes == NULL || network->route_links == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u routes", network->n_fifos);
    for (uint32_t i = 0; i < network->n_fifos; i++) {
        const struct gyre_sim_fifo *fifo = &network->fifos[i];
        const unsigned from = gyre_sim_fold_rank(&build->fold, fifo->from_rank);
        const unsigned to = gyre_sim_fold_rank(&build->fold, fifo->to_rank);
        network->routes[i].links = &network->route_links[(size_t)i * longest];
        if (fifo->link != GYRE_LINK_NETWORK)
            continue;
        if (network->is_folded)
            gyre_fabric_route_in_leaf(fabric, from, to, &network->routes[i]);
        else
            GYRE_TRY(gyre_fabric_route(fabric, from, to, &network->routes[i]));
    }
    return GYRE_SUCCESS;
}

/* Any other algorithm waits for the weak host in each round, so its bandwidth, which the cost has,
 * counts for all hosts, and ranks can stand for others. */
static bool spares(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    return gyre_algorithm_ability(algorithm, shape).flow == GYRE_FLOW_SPARING &&
           gyre_leaf_obstacle(shape) == NULL;
}

static gyre_status fill_network(struct build *build, enum gyre_sim_folding allowed)
{
    struct gyre_sim_network *network = build->network;
    const struct gyre_grouping *grouping = build->machine->grouping;
    const unsigned n_ranks = build->shape->n_ranks;
    struct gyre_sim_fold *fold = &build->fold;
    GYRE_TRY(gyre_sim_fold_find(build->algorithm, build->shape, build->machine, allowed, fold));
    const uint32_t n_kept = fold->n_kept_hosts * fold->n_kept_positions;
    network->n_variants = fold->n_variants;
    network->n_kept = n_kept;
    network->is_folded = n_kept < n_ranks;
    network->n_alike = fold->n_of_host / fold->n_kept_positions;
    network->n_nic_alike = 1;
    if (fold->is_one_host && network->is_folded)
        network->n_alike = network->n_nic_alike = n_ranks / n_kept;
    network->channel_unit = fold->variant_shift > 0 ? network->n_variants : 1;
    network->n_hosts = grouping == NULL ? 1 : grouping->n_hosts;
    network->others_gain = 1;
    if (spares(build->algorithm, build->shape)) {
        network->weak_host = grouping->weak_host;
        network->others_gain = 1 / grouping->weak_part;
    }
    network->host_of = calloc(n_kept, sizeof(*network->host_of));
    network->nic_of = calloc(n_kept, sizeof(*network->nic_of));
    network->n_workers_of =
        calloc((size_t)network->n_variants * n_kept, sizeof(*network->n_workers_of));
    if (network->host_of == NULL || network->nic_of == NULL || network->n_workers_of == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u ranks to simulate", n_ranks);
    for (uint32_t i = 0; i < n_kept; i++) {
        const unsigned rank = gyre_sim_fold_rank(fold, i);
        network->host_of[i] = grouping == NULL ? 0 : grouping->host_of[rank];
        network->nic_of[i] = find_nic(build, rank);
        network->n_nics = (uint32_t)gyre_max_u64(network->n_nics, network->nic_of[i] + 1);
        for (unsigned variant = 0; variant < network->n_variants; variant++) {
            struct gyre_program *program;
            GYRE_TRY(gyre_sim_fold_emit(fold, variant, rank, &program));
            network->n_chunks = program->n_chunks;
            network->n_lanes = program->n_lanes;
            network->min_depth = program->min_depth;
            network->max_range = program->max_range;
            network->n_workers_of[variant * n_kept + i] = program->n_workers;
            const uint32_t first_end = build->n_ends;
            gyre_status status = add_ends(build, program, variant);
            for (uint32_t w = 0; w < program->n_workers && status == GYRE_SUCCESS; w++)
                status = add_steps(build, program, &program->workers[w], variant, first_end);
            gyre_program_free(program);
            GYRE_TRY(status);
        }
    }
    GYRE_TRY(join_ends(build));
    return build->machine->fabric == NULL ? GYRE_SUCCESS
                                          : find_routes(build, build->machine->fabric);
}

static gyre_status open_network(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, const struct gyre_machine *machine,
                                enum gyre_sim_folding allowed, bool *leaves_leaf_out,
                                struct gyre_sim_network *network_out)
{
    struct gyre_sim_network network = {0};
    struct build build = {
        .algorithm = algorithm, .shape = shape, .machine = machine, .network = &network};
    const gyre_status status = fill_network(&build, allowed);
    free(build.ends);
    *leaves_leaf_out = build.leaves_leaf;
    if (status != GYRE_SUCCESS)
        gyre_sim_network_close(&network);
    else
        *network_out = network;
    return status;
}

gyre_status gyre_sim_network_open(const struct gyre_algorithm *algorithm,
                                  const struct gyre_shape *shape,
                                  const struct gyre_machine *machine, enum gyre_sim_folding allowed,
                                  struct gyre_sim_network *network_out)
{
    const struct gyre_fabric *fabric = machine->fabric;
    bool leaves_leaf;
    if (shape->n_ranks < 1 || shape->n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u ranks (1..%d)", shape->n_ranks,
                         GYRE_MAX_RANKS);
    if ((fabric != NULL && !gyre_fabric_is_uniform(fabric)) || spares(algorithm, shape))
        allowed = GYRE_SIM_FOLD_NOTHING;
    GYRE_TRY(open_network(algorithm, shape, machine, allowed, &leaves_leaf, network_out));
    if (!leaves_leaf || !network_out->is_folded)
        return GYRE_SUCCESS;
    /* Spines depend on both NICs, so no two ranks are alike. */
    gyre_sim_network_close(network_out);
    return open_network(algorithm, shape, machine, GYRE_SIM_FOLD_NOTHING, &leaves_leaf,
                        network_out);
}

void gyre_sim_network_close(struct gyre_sim_network *network)
{
    free(network->workers);
    free(network->fifos);
    free(network->routes);
    free(network->route_links);
    free(network->steps);
    free(network->fifo_of);
    free(network->host_of);
    free(network->nic_of);
    free(network->n_workers_of);
    memset(network, 0, sizeof(*network));
}
