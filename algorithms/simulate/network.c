/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts programs to the form that the simulator runs. Only one program is in memory at a time,
 * because all steps of a ring of 1024 ranks would take 170 MB. Sorting brings the two ends of each
 * FIFO together.
 */
#include "algorithms/simulate/network.h"

#include "core/base/status.h"
#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>

/* In shapes of up to so many ranks, all programs are compared before some ranks stand for all. */
#define MAX_FULLY_COMPARED 64

/* One end of a FIFO. */
struct end {
    uint64_t key; /* of variant, sending rank, receiver's position, lane; equal at both ends */
    uint32_t index;
    uint32_t rank;
    uint32_t worker;
    uint8_t is_send;
    uint8_t link;
};

enum renumbering { BY_ADDING, BY_XOR };

/* The kept ranks, which stand for all ranks. Ranks must be numbered host after host, with n_of_host
 * ranks on each host; if they are not, every rank counts as a host. */
struct folding {
    unsigned n_of_host;
    unsigned n_kept_hosts;
    unsigned n_kept_positions;    /* of each kept host; position p is like p modulo this number */
    unsigned variant_shift;       /* a rank's variant v is like variant v - k * variant_shift of the
                                   * kept rank k * n_kept_positions before it */
    enum renumbering renumbering; /* of hosts */
};

struct build {
    const struct gyre_algorithm *algorithm;
    const struct gyre_shape *shape;
    const struct gyre_machine *machine;
    struct gyre_sim_network *network;
    struct folding folding;
    struct end *ends;
    uint32_t n_ends;
    size_t ends_bytes, workers_bytes, steps_bytes, refs_bytes; /* allocated */
};

/* Make room for n elements. The capacity at least doubles. */
static gyre_status reserve(void *array_address, size_t *n_bytes, size_t n, size_t elem_bytes)
{
    void *array;
    if (n * elem_bytes <= *n_bytes)
        return GYRE_SUCCESS;
    const size_t wanted_bytes = (n * elem_bytes + 512) * 2;
    memcpy(&array, array_address, sizeof(array));
    array = realloc(array, wanted_bytes);
    if (array == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes to simulate",
                         wanted_bytes);
    memcpy(array_address, &array, sizeof(array));
    *n_bytes = wanted_bytes;
    return GYRE_SUCCESS;
}

/* ---- does a renumbered machine look the same? --------------------------------------------- */

static unsigned count_hosts(const struct build *build)
{
    return build->shape->n_ranks / build->folding.n_of_host;
}

/* The position of `to` relative to `from`, which the renumbering does not change. */
static uint32_t relative(const struct build *build, unsigned from, unsigned to)
{
    const struct folding *folding = &build->folding;
    const unsigned g = folding->n_of_host, n_hosts = count_hosts(build);
    const unsigned host = folding->renumbering == BY_XOR ? (from / g) ^ (to / g)
                                                         : (to / g + n_hosts - from / g) % n_hosts;
    const bool rotates = folding->n_kept_positions < g;
    return host * g + (rotates ? (to % g + g - from % g) % g : to % g);
}

/* The index of the kept rank that stands for a rank. @variant: the variant that the rank runs; it
 * is replaced by the variant of the kept rank that is alike. */
static uint32_t find_kept(const struct build *build, unsigned rank, unsigned *variant)
{
    const struct folding *folding = &build->folding;
    const unsigned g = folding->n_of_host, n_variants = build->network->n_variants;
    const unsigned host = rank / g % folding->n_kept_hosts;
    const unsigned n_turns = rank % g / folding->n_kept_positions;
    *variant = (*variant + n_variants - n_turns * folding->variant_shift % n_variants) % n_variants;
    return host * folding->n_kept_positions + rank % g % folding->n_kept_positions;
}

/* The kept rank with this index. */
static unsigned kept_rank(const struct build *build, uint32_t index)
{
    const struct folding *folding = &build->folding;
    return index / folding->n_kept_positions * folding->n_of_host +
           index % folding->n_kept_positions;
}

/* Add the positions of the peers relative to the rank to a hash, independent of their order. */
static uint64_t hash_operands(uint64_t hash, const struct build *build,
                              const struct gyre_program *program,
                              const struct gyre_operand *operands, unsigned n_operands)
{
    uint64_t sum = n_operands;
    for (unsigned i = 0; i < n_operands; i++) {
        if (operands[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_connection *c = &program->connections[operands[i].index];
        const uint32_t words[] = {relative(build, program->rank, c->peer), c->lane,
                                  operands[i].is_placed};
        sum += gyre_hash(GYRE_HASH_INIT, words, sizeof(words));
    }
    return gyre_hash(hash, &sum, sizeof(sum));
}

static gyre_status emit(const struct build *build, unsigned variant, unsigned rank,
                        struct gyre_program **program_out)
{
    struct gyre_shape shape = *build->shape;
    shape.variant = (uint16_t)variant;
    return gyre_algorithm_emit(build->algorithm, &shape, (int)rank, program_out);
}

static gyre_status hash_program(const struct build *build, unsigned variant, unsigned rank,
                                uint64_t *hash_out)
{
    struct gyre_program *program;
    GYRE_TRY(emit(build, variant, rank, &program));
    uint64_t hash = GYRE_HASH_INIT;
    for (uint32_t w = 0; w < program->n_workers; w++)
        hash = gyre_hash(hash, &program->workers[w].n_steps, sizeof(uint32_t));
    for (uint32_t s = 0; s < program->n_steps; s++) {
        const struct gyre_step *step = &program->steps[s];
        const uint16_t counts[] = {step->n_ins, step->n_outs, step->n_chunks,
                                   step->flags & GYRE_STEP_WITH_NEXT};
        hash = gyre_hash(hash, counts, sizeof(counts));
        hash = hash_operands(hash, build, program, step->ins, step->n_ins);
        hash = hash_operands(hash, build, program, step->outs, step->n_outs);
    }
    gyre_program_free(program);
    *hash_out = hash;
    return GYRE_SUCCESS;
}

/* The number of ranks of each host, if all hosts have the same number of ranks and the ranks of a
 * host have consecutive numbers. Otherwise, and if there is only one host, 1. */
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

/* Is the program of a rank equal to the program of the kept rank that stands for it, apart from the
 * renumbering? */
static gyre_status compare_programs(const struct build *build, unsigned variant, unsigned rank,
                                    bool *is_same_inout)
{
    uint64_t own, other;
    unsigned kept_variant = variant;
    const unsigned kept = kept_rank(build, find_kept(build, rank, &kept_variant));
    if (kept == rank || !*is_same_inout)
        return GYRE_SUCCESS;
    GYRE_TRY(hash_program(build, variant, rank, &own));
    GYRE_TRY(hash_program(build, kept_variant, kept, &other));
    *is_same_inout = own == other;
    return GYRE_SUCCESS;
}

/* Can the kept ranks stand for all ranks? In small shapes the programs of all hosts are compared.
 * In larger shapes only those of the first four hosts, the hosts in the middle and the last hosts
 * are, because an algorithm that treats hosts differently treats these differently.
 * @n_positions: compare so many ranks of each host. */
static gyre_status check_folding(const struct build *build, unsigned n_positions, bool *is_same_out)
{
    const unsigned n_hosts = count_hosts(build);
    *is_same_out = true;
    for (unsigned host = 0; host < n_hosts && *is_same_out; host++) {
        if (build->shape->n_ranks > MAX_FULLY_COMPARED && host > 3 && host / 2 != n_hosts / 4 &&
            host + 2 < n_hosts)
            continue;
        for (unsigned at = 0; at < n_positions * build->network->n_variants; at++)
            GYRE_TRY(compare_programs(build, at / n_positions,
                                      host * build->folding.n_of_host + at % n_positions,
                                      is_same_out));
    }
    return GYRE_SUCCESS;
}

/* The number of ranks that share a NIC on a host with n_of_host ranks; 0 if the NICs of a host
 * serve different numbers of ranks. */
static unsigned ranks_of_nic(const struct build *build)
{
    const struct gyre_grouping *grouping = build->machine->grouping;
    const unsigned g = build->folding.n_of_host;
    if (grouping == NULL || grouping->n_nics == 0 || grouping->n_nics >= g)
        return 1;
    return g % grouping->n_nics == 0 ? g / grouping->n_nics : 0;
}

/* Looks for a rotation of the positions on all hosts that does not change the programs. The first
 * rotation that is tried fits two-level algorithms, which treat all rails alike. The second one
 * fits rings and trees, whose variants cross between hosts at different ranks: there a rotation
 * leads from one variant to the next. Ranks that share a NIC are all kept, because they wait for
 * each other there. */
static gyre_status fold_positions(struct build *build, enum gyre_sim_folding allowed)
{
    struct folding *folding = &build->folding;
    const unsigned g = folding->n_of_host, n_variants = build->network->n_variants;
    const unsigned period = ranks_of_nic(build);
    const unsigned periods[] = {period, g % n_variants == 0 ? g / n_variants : g};
    const unsigned n_shifts = allowed == GYRE_SIM_FOLD_ALL ? 2 : 1;
    for (unsigned shift = 0; shift < n_shifts && g > 1 && period > 0; shift++) {
        bool is_same = false;
        if (periods[shift] >= g || periods[shift] % period != 0 || (shift > 0 && n_variants == 1))
            continue;
        folding->n_kept_positions = periods[shift];
        folding->variant_shift = shift;
        GYRE_TRY(check_folding(build, g, &is_same));
        if (is_same)
            return GYRE_SUCCESS;
    }
    folding->n_kept_positions = g;
    folding->variant_shift = 0;
    return GYRE_SUCCESS;
}

/* Looks for a renumbering of hosts that does not change the programs. It tries to add 1 to each
 * number, to add 2 (because rings cross between hosts at another rail at every second host), and to
 * combine each number with another one by exclusive or. */
static gyre_status fold_hosts(struct build *build)
{
    struct folding *folding = &build->folding;
    const unsigned n_hosts = count_hosts(build), n_positions = folding->n_kept_positions;
    const bool is_power = (n_hosts & (n_hosts - 1)) == 0;
    for (unsigned i = 0; i < 3; i++) {
        bool is_same = false;
        folding->n_kept_hosts = i == 1 ? 2 : 1;
        folding->renumbering = i == 2 ? BY_XOR : BY_ADDING;
        if (n_hosts <= folding->n_kept_hosts || n_hosts % folding->n_kept_hosts != 0 ||
            (i == 2 && !is_power))
            continue;
        GYRE_TRY(check_folding(build, n_positions, &is_same));
        if (is_same)
            return GYRE_SUCCESS;
    }
    folding->n_kept_hosts = n_hosts;
    folding->renumbering = BY_ADDING;
    return GYRE_SUCCESS;
}

/* ---- taking programs over ----------------------------------------------------------------- */

static uint8_t link_between(const struct build *build, unsigned from, unsigned to)
{
    const struct gyre_grouping *grouping = build->machine->grouping;
    const bool is_inside = grouping == NULL || grouping->host_of[from] == grouping->host_of[to];
    return is_inside && !build->machine->is_all_network ? GYRE_LINK_HOST : GYRE_LINK_NETWORK;
}

static gyre_status add_ends(struct build *build, const struct gyre_program *program,
                            unsigned variant)
{
    const unsigned n = program->n_ranks;
    unsigned ignored = 0;
    const uint32_t rank = find_kept(build, program->rank, &ignored);
    if (build->n_ends + program->n_connections > 2 * GYRE_SIMULATE_MAX_FIFOS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s %s of %u ranks has over %u connections: too many to simulate",
                         program->algorithm, gyre_collectives[program->coll].name, n,
                         GYRE_SIMULATE_MAX_FIFOS);
    GYRE_TRY(reserve(&build->ends, &build->ends_bytes, build->n_ends + program->n_connections,
                     sizeof(struct end)));
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *c = &program->connections[i];
        const unsigned from = c->is_send ? program->rank : c->peer;
        const unsigned to = c->is_send ? c->peer : program->rank;
        struct end *end = &build->ends[build->n_ends];
        unsigned from_variant = variant;
        const uint32_t kept_from = find_kept(build, from, &from_variant);
        memset(end, 0, sizeof(*end));
        end->key = (uint64_t)from_variant << 48 | (uint64_t)kept_from << 32 |
                   (uint64_t)relative(build, from, to) << 8 | c->lane;
        end->index = build->n_ends++;
        end->rank = rank;
        end->is_send = c->is_send;
        end->link = link_between(build, from, to);
    }
    return GYRE_SUCCESS;
}

/* The connections of one side of a step, as ends; returns how many. */
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
    GYRE_TRY(reserve(&network->steps, &build->steps_bytes, n_steps, sizeof(*network->steps)));
    GYRE_TRY(reserve(&network->workers, &build->workers_bytes, network->n_workers + 1,
                     sizeof(*network->workers)));
    unsigned ignored = 0;
    const uint32_t rank = find_kept(build, program->rank, &ignored);
    const struct gyre_sim_worker worker = {rank, variant, network->n_steps, from->n_steps};
    uint8_t n_ahead = 0;
    for (uint32_t i = from->n_steps; i-- > 0;) { /* backwards, to know the steps that follow */
        const struct gyre_step *step = &program->steps[from->first_step + i];
        const bool with_next = (step->flags & GYRE_STEP_WITH_NEXT) != 0;
        const bool is_group_end = (i + 1) % GYRE_SIM_MAX_GROUP == 0;
        n_ahead = with_next && !is_group_end ? (uint8_t)(n_ahead + 1) : 0;
        network->steps[network->n_steps + i].n_ahead = n_ahead;
    }
    for (uint32_t i = 0; i < from->n_steps; i++) {
        const struct gyre_step *step = &program->steps[from->first_step + i];
        struct gyre_sim_step *to = &network->steps[network->n_steps + i];
        GYRE_TRY(reserve(&network->fifo_of, &build->refs_bytes,
                         network->n_ends + (size_t)GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS,
                         sizeof(*network->fifo_of)));
        to->n_copies = 0;
        to->first_fifo = network->n_ends;
        to->chunk = step->chunk;
        to->last_chunk =
            (uint16_t)gyre_step_part(step, step->chunk, step->n_chunks - 1U,
                                     gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH));
        to->n_chunks = step->n_chunks;
        to->n_recvs = add_operands(build, step->ins, step->n_ins, first_end, network->n_workers);
        to->n_sends = add_operands(build, step->outs, step->n_outs, first_end, network->n_workers);
        if (step->n_outs > 0) /* a step without outputs only waits for data that are in place */
            to->n_copies = (uint8_t)(step->n_ins + step->n_outs - to->n_sends);
    }
    network->n_steps = (uint32_t)n_steps;
    network->workers[network->n_workers++] = worker;
    return GYRE_SUCCESS;
}

/* Take over the program of a kept rank. @index: of the rank among the kept ranks. */
static gyre_status add_program(struct build *build, unsigned variant, uint32_t index)
{
    struct gyre_program *program;
    GYRE_TRY(emit(build, variant, kept_rank(build, index), &program));
    build->network->n_chunks = program->n_chunks;
    build->network->n_lanes = program->n_lanes;
    build->network->min_depth = program->min_depth;
    build->network->max_range = program->max_range;
    build->network->n_workers_of[variant * build->network->n_kept + index] = program->n_workers;
    const uint32_t first_end = build->n_ends;
    gyre_status status = add_ends(build, program, variant);
    for (uint32_t w = 0; w < program->n_workers && status == GYRE_SUCCESS; w++)
        status = add_steps(build, program, &program->workers[w], variant, first_end);
    gyre_program_free(program);
    return status;
}

/* ---- FIFOs -------------------------------------------------------------------------------- */

static int compare_ends(const void *a, const void *b)
{
    const struct end *left = a, *right = b;
    if (left->key != right->key)
        return left->key > right->key ? 1 : -1;
    return right->is_send - left->is_send;
}

/* Pair the ends; steps then name FIFOs instead of ends. */
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

/* The NIC of a rank. If a host has fewer NICs than ranks, neighbouring ranks share a NIC; else each
 * rank has its own. The model knows no rank that stripes its data over several NICs. */
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

/* Choose the kept ranks, and count the ranks of a host for which each of them stands. */
static gyre_status fold(struct build *build, enum gyre_sim_folding allowed)
{
    struct gyre_sim_network *network = build->network;
    struct folding *folding = &build->folding;
    const unsigned n_ranks = build->shape->n_ranks;
    const unsigned g = even_ranks_of_host(build->machine, n_ranks);
    *folding = (struct folding){.n_of_host = g, .n_kept_hosts = n_ranks / g, .n_kept_positions = g};
    const bool is_one_host =
        build->machine->grouping == NULL || build->machine->grouping->n_hosts < 2;
    if (allowed != GYRE_SIM_FOLD_NOTHING &&
        (is_one_host || g > 1 || build->machine->grouping->n_hosts == n_ranks)) {
        GYRE_TRY(fold_positions(build, allowed));
        GYRE_TRY(fold_hosts(build));
    }
    network->n_kept = folding->n_kept_hosts * folding->n_kept_positions;
    network->is_folded = network->n_kept < n_ranks;
    network->n_alike = g / folding->n_kept_positions;
    network->n_nic_alike = 1;
    if (is_one_host && network->is_folded)
        network->n_alike = network->n_nic_alike = n_ranks;
    network->channel_unit = folding->variant_shift > 0 ? network->n_variants : 1;
    return GYRE_SUCCESS;
}

static gyre_status fill_network(struct build *build, enum gyre_sim_folding allowed)
{
    struct gyre_sim_network *network = build->network;
    const struct gyre_grouping *grouping = build->machine->grouping;
    const unsigned n_ranks = build->shape->n_ranks;
    network->n_variants = (uint32_t)gyre_algorithm_variants(build->algorithm, build->shape);
    GYRE_TRY(fold(build, allowed));
    const uint32_t n_kept = network->n_kept;
    network->n_hosts = grouping == NULL ? 1 : grouping->n_hosts;
    network->host_of = calloc(n_kept, sizeof(*network->host_of));
    network->nic_of = calloc(n_kept, sizeof(*network->nic_of));
    network->n_workers_of =
        calloc((size_t)network->n_variants * n_kept, sizeof(*network->n_workers_of));
    if (network->host_of == NULL || network->nic_of == NULL || network->n_workers_of == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u ranks to simulate", n_ranks);
    for (uint32_t i = 0; i < n_kept; i++) {
        const unsigned rank = kept_rank(build, i);
        network->host_of[i] = grouping == NULL ? 0 : grouping->host_of[rank];
        network->nic_of[i] = find_nic(build, rank);
        network->n_nics = (uint32_t)gyre_max_u64(network->n_nics, network->nic_of[i] + 1);
        for (unsigned variant = 0; variant < network->n_variants; variant++)
            GYRE_TRY(add_program(build, variant, i));
    }
    return join_ends(build);
}

gyre_status gyre_sim_network_open(const struct gyre_algorithm *algorithm,
                                  const struct gyre_shape *shape,
                                  const struct gyre_machine *machine, enum gyre_sim_folding allowed,
                                  struct gyre_sim_network *network_out)
{
    struct gyre_sim_network network = {0};
    struct build build = {
        .algorithm = algorithm, .shape = shape, .machine = machine, .network = &network};
    if (shape->n_ranks < 1 || shape->n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u ranks (1..%d)", shape->n_ranks,
                         GYRE_MAX_RANKS);
    const gyre_status status = fill_network(&build, allowed);
    free(build.ends);
    if (status != GYRE_SUCCESS)
        gyre_sim_network_close(&network);
    else
        *network_out = network;
    return status;
}

void gyre_sim_network_close(struct gyre_sim_network *network)
{
    free(network->workers);
    free(network->fifos);
    free(network->steps);
    free(network->fifo_of);
    free(network->host_of);
    free(network->nic_of);
    free(network->n_workers_of);
    memset(network, 0, sizeof(*network));
}
