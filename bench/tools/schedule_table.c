/* SPDX-License-Identifier: Apache-2.0
 *
 * Missing values come from the tuner's tables, as in a communicator of that size.
 */
#include "bench/tools/schedule_predict.h"

#include "bench/tools/programs.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

/* Above it predictions may be off by a percent, where exact ones take minutes. */
#define MANY_RANKS 1025

/* Exchanges between all pairs in a fabric of unlike hosts take time that grows with the fourth
 * power. From MANY_PAIRED_RANKS_OF_FABRIC on their algorithms run only if the user names them;
 * above MOST_PAIRED_RANKS_OF_FABRIC they are refused. */
#define MOST_PAIRED_RANKS_OF_FABRIC 64
#define MANY_PAIRED_RANKS_OF_FABRIC 17

/* Wire latency in the shipped constants (core/engine/plan/tuning_file.c). Communicators measure
 * it. */
#define RDMA_LATENCY_NS   2000
#define SOCKET_LATENCY_NS 10000

bool bench_take_machine(struct bench_schedule_request *request, const char *machine, int *n_nics)
{
    struct gyre_machine_file file;
    if (machine == NULL)
        return true;
    if (request->cost != NULL || bench_machine_load(machine, &file) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: --machine %s: %s\n", machine,
                request->cost != NULL ? "it takes the place of --cost" : gyre_cause());
        return false;
    }
    if (n_nics != NULL && *n_nics == 0)
        *n_nics = (int)file.n_nics;
    request->cost = machine;
    request->is_machine = true;
    return true;
}

static gyre_status open_costs(struct bench_table *table)
{
    const char *name = table->request->cost == NULL ? "h200" : table->request->cost;
    const bool is_machine = table->request->is_machine;
    const struct gyre_cost *shipped = is_machine ? NULL : gyre_cost_find(name);
    table->facts.device_kind = shipped == &gyre_cost_h200
                                   ? GYRE_DEVICE_CUDA
                                   : GYRE_DEVICE_HOST; /* a file of constants is for the host */
    if (is_machine) {
        struct gyre_machine_file file;
        GYRE_TRY(bench_machine_load(name, &file));
        table->cost = file.cost;
        table->facts.device_kind =
            strcmp(file.library, "mpi") == 0 ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA;
    } else if (shipped != NULL && table->request->net == BENCH_NET_UNNAMED) {
        table->cost = *shipped;
    } else if (shipped != NULL) {
        const bool is_rdma = table->request->net == BENCH_NET_IB;
        const struct gyre_network network = {
            .is_rdma = is_rdma, .latency_ns = is_rdma ? RDMA_LATENCY_NS : SOCKET_LATENCY_NS};
        table->cost = gyre_network_cost(shipped, &network);
    } else {
        struct gyre_tuning tuning;
        const gyre_status status = gyre_tuning_load(name, &tuning);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "--cost is host, h200 or a file");
        table->cost = tuning.cost;
        gyre_tuning_free(&tuning);
    }
    const struct gyre_fabric *fabric = table->request->fabric;
    const double nic_rate =
        fabric == NULL ? table->request->nic_gbytes_per_s
                       : gyre_fabric_host_rate(fabric) / table->request->shape.grouping->n_nics;
    if (nic_rate > 0) {
        table->cost.nic_bytes_per_ns = nic_rate;
        table->cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] = 0; /* the NIC limits */
        table->cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
    }
    return GYRE_SUCCESS;
}

static gyre_status open_facts(struct bench_table *table)
{
    const struct bench_schedule_request *request = table->request;
    struct gyre_tuner_facts *facts = &table->facts;
    facts->n_ranks = request->shape.n_ranks;
    facts->grouping = request->shape.grouping;
    facts->n_hosts = request->shape.grouping == NULL ? 1 : request->shape.grouping->n_hosts;
    facts->is_proxied = facts->n_hosts > 1;
    facts->is_tcp = facts->is_proxied && request->net == BENCH_NET_SOCKET;
    facts->is_direct_inside = facts->n_hosts > 1 && facts->n_hosts < facts->n_ranks;
    facts->is_ll128_safe = facts->device_kind == GYRE_DEVICE_CUDA;
    facts->has_lamport =
        gyre_collectives[request->shape.coll].reduces; /* predictions are for sums of float32 */
    if (facts->n_hosts > 1) {
        struct gyre_peer_counts peers;
        GYRE_TRY(gyre_near_peers_count(facts->grouping, facts->n_ranks, &peers));
        facts->spec = gyre_tuner_fifo_spec_across(facts->device_kind, &peers, false, !facts->is_tcp,
                                                  0, UINT32_MAX);
        gyre_fifo_spec_add_net_lines(&facts->spec, facts->device_kind, &peers, false);
    } else {
        facts->spec =
            gyre_tuner_fifo_spec(facts->device_kind, facts->n_ranks, false, 0, UINT32_MAX);
    }
    if (facts->n_hosts > 1)
        facts->cost = &table->cost;
    facts->in_window = request->algorithm != NULL && request->algorithm->given != NULL &&
                       request->algorithm->given->is_placed;
    facts->min_channels = 1;
    facts->max_channels = facts->spec.n_fifos;
    const struct gyre_filter_words words = {.protos = request->proto, .proto_source = "--proto"};
    GYRE_TRY(gyre_filter_parse("", "", "", &table->filter));
    return gyre_filter_override(&words, &table->filter);
}

static void print_left_out(const struct bench_table *table, const char *algorithm,
                           const char *reason)
{
    if (!table->is_quiet)
        printf("# left out: %s: %s\n", algorithm, reason);
}

/* Under a single leaf hosts are alike. Rank 0 stands for all. */
static bool has_unlike_pairs(const struct bench_table *table,
                             const struct gyre_algorithm *algorithm)
{
    const struct gyre_fabric *fabric = table->request->fabric;
    struct gyre_program *program = NULL;
    if (fabric == NULL || (fabric->n_leaves == 1 && gyre_fabric_is_uniform(fabric)) ||
        table->facts.n_hosts < 2 ||
        gyre_algorithm_emit(algorithm, &table->request->shape, 0, &program) != GYRE_SUCCESS)
        return false;
    const bool has_pairs =
        program->n_connections >= table->request->shape.n_ranks; /* of 2 (n - 1) */
    gyre_program_free(program);
    return has_pairs;
}

/* @is_asked: only errors leave it out. */
static gyre_status add_algorithm(struct bench_table *table, const struct gyre_algorithm *algorithm,
                                 bool is_asked, const struct gyre_machine *machine)
{
    struct gyre_simulator **simulator = &table->simulators[table->n_algorithms];
    const char *obstacle =
        gyre_tuner_algorithm_obstacle(&table->facts, algorithm, table->request->shape.coll);
    if (obstacle == NULL && table->facts.n_ranks >= MANY_PAIRED_RANKS_OF_FABRIC &&
        has_unlike_pairs(table, algorithm))
        obstacle = "slow between so many ranks (--algo shows it)";
    if (is_asked && table->facts.n_ranks > MOST_PAIRED_RANKS_OF_FABRIC &&
        has_unlike_pairs(table, algorithm))
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "%s sends between all pairs of %u ranks: with a fabric of several leaves, or of hosts "
            "that differ, up to %d ranks of such an algorithm can be simulated",
            algorithm->name, table->facts.n_ranks, MOST_PAIRED_RANKS_OF_FABRIC);
    if (obstacle != NULL && !is_asked) {
        print_left_out(table, algorithm->name, obstacle);
        return GYRE_SUCCESS;
    }
    const gyre_status status = gyre_simulator_open(algorithm, &table->request->shape, machine,
                                                   table->all_ranks, simulator);
    if (status == GYRE_ERROR_UNSUPPORTED && !is_asked) {
        print_left_out(table, algorithm->name, gyre_cause());
        return GYRE_SUCCESS;
    }
    GYRE_TRY(status);
    table->algorithms[table->n_algorithms++] = algorithm;
    return GYRE_SUCCESS;
}

gyre_status bench_table_open(struct bench_table *table)
{
    const struct bench_schedule_request *request = table->request;
    const struct gyre_machine machine = {.grouping = request->shape.grouping,
                                         .fabric = request->fabric};
    GYRE_TRY(open_costs(table));
    GYRE_TRY(open_facts(table));
    if (request->algorithm != NULL && request->algorithm->given != NULL) {
        GYRE_TRY(gyre_simulator_open(request->algorithm, &request->shape, &machine,
                                     table->all_ranks, &table->simulators[0]));
        table->algorithms[table->n_algorithms++] = request->algorithm;
        return GYRE_SUCCESS;
    }
    for (int i = 0; gyre_algorithms[i] != NULL && table->n_algorithms < BENCH_TABLE_ALGORITHMS;
         i++) {
        const bool is_asked = request->algorithm == gyre_algorithms[i];
        const bool suits =
            request->algorithm == NULL && gyre_algorithm_suits(gyre_algorithms[i], &request->shape);
        if (is_asked || suits)
            GYRE_TRY(add_algorithm(table, gyre_algorithms[i], is_asked, &machine));
    }
    return GYRE_SUCCESS;
}

void bench_table_close(struct bench_table *table)
{
    for (int i = 0; i < table->n_algorithms; i++)
        gyre_simulator_close(table->simulators[i]);
}

static gyre_status choose(const struct bench_table *table, int column, uint64_t n_bytes,
                          struct gyre_choice *choice)
{
    const struct bench_schedule_request *request = table->request;
    struct gyre_filter filter = table->filter;
    struct gyre_tuner_facts facts = table->facts;
    if (request->shape.root == 0 && request->fabric == NULL && !table->all_ranks) {
        facts.simulator = table->simulators[column]; /* else the tuner opens an equal one */
        facts.simulated = table->algorithms[column];
    }
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_algorithms[i] == table->algorithms[column])
            filter.algorithms[request->shape.coll] = 1U << i;
    filter.is_forced[request->shape.coll] = request->algorithm != NULL; /* as --algo is in a call */
    /* The search would emit all programs once for each size that it tries. It is left out where it
     * decides nothing else, as between hosts of one rank, which have one protocol. */
    if (request->n_channels > 0 && request->tile_bytes > 0 && facts.n_ranks >= MANY_RANKS &&
        gyre_tuner_is_net_alone(&facts))
        facts.cost = NULL;
    if (table->algorithms[column]->given != NULL)
        GYRE_TRY(
            gyre_tuner_choose_given(&facts, &filter, table->algorithms[column], n_bytes, choice));
    else
        GYRE_TRY(gyre_tuner_choose(&facts, &filter, request->shape.coll, n_bytes, choice));
    const uint32_t most =
        gyre_tuner_fifos(&table->facts, table->algorithms[column], request->shape.coll).n_fifos /
        gyre_simulator_lanes(table->simulators[column]);
    choice->n_channels = (uint32_t)gyre_max_u64(
        1, gyre_min_u64(choice->n_channels, most)); /* as communicators limit it */
    if (request->n_channels > 0)
        choice->n_channels = (uint32_t)request->n_channels;
    if (request->tile_bytes > 0)
        choice->tile_bytes = (uint32_t)request->tile_bytes;
    return GYRE_SUCCESS;
}

static void fill(const struct bench_table *table, const struct gyre_choice *choice,
                 uint64_t n_bytes, struct gyre_simulation *simulation)
{
    const struct bench_schedule_request *request = table->request;
    simulation->cost = &table->cost;
    simulation->proto = choice->proto;
    simulation->net_proto = choice->net_proto;
    simulation->n_channels = choice->n_channels;
    simulation->tile_bytes = choice->tile_bytes;
    simulation->depth = request->depth > 0 ? (uint32_t)request->depth : table->facts.spec.depth;
    simulation->n_bytes = n_bytes;
    simulation->is_rough = request->fabric != NULL || table->facts.n_ranks >= MANY_RANKS;
}

gyre_status bench_table_predict(struct bench_table *table, int column, uint64_t n_bytes,
                                struct bench_table_cell *cell)
{
    struct gyre_simulation simulation = {0};
    GYRE_TRY(choose(table, column, n_bytes, &cell->choice));
    fill(table, &cell->choice, n_bytes, &simulation);
    return gyre_simulator_run(table->simulators[column], &simulation, &cell->prediction);
}

uint64_t bench_table_call_bytes(const struct bench_schedule_request *request, uint64_t n_bytes)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[request->shape.coll];
    return traits->in_blocks || traits->out_blocks ? n_bytes / request->shape.n_ranks : n_bytes;
}

gyre_status bench_schedule_fastest(const struct bench_schedule_request *request, uint64_t n_bytes,
                                   struct bench_schedule_fastest *fastest_out)
{
    struct bench_table table = {.request = request, .is_quiet = true};
    struct bench_schedule_fastest fastest = {.algorithm = NULL};
    gyre_status status = bench_table_open(&table);
    for (int i = 0; i < table.n_algorithms && status == GYRE_SUCCESS; i++) {
        struct bench_table_cell cell;
        status = bench_table_predict(&table, i, bench_table_call_bytes(request, n_bytes), &cell);
        if (status == GYRE_SUCCESS &&
            (fastest.algorithm == NULL || cell.prediction.time_ns < fastest.prediction.time_ns))
            fastest = (struct bench_schedule_fastest){.algorithm = table.algorithms[i],
                                                      .prediction = cell.prediction};
    }
    bench_table_close(&table);
    if (status == GYRE_SUCCESS && fastest.algorithm == NULL)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "no algorithm can be predicted for %s",
                           gyre_collectives[request->shape.coll].name);
    if (status == GYRE_SUCCESS)
        *fastest_out = fastest;
    return status;
}

gyre_status bench_schedule_check_steps(struct gyre_simulator *simulator,
                                       const struct gyre_simulation *simulation,
                                       uint64_t most_steps)
{
    uint64_t n_steps;
    GYRE_TRY(gyre_simulator_steps(simulator, simulation, &n_steps));
    if (n_steps <= most_steps)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "the call has %llu steps, of which at most %llu can be shown: give fewer "
                     "--bytes or a larger --tile",
                     (unsigned long long)n_steps, (unsigned long long)most_steps);
}

gyre_status bench_schedule_simulate(const struct bench_schedule_request *request, uint64_t n_bytes,
                                    uint64_t most_steps, struct gyre_simulation *simulation,
                                    struct gyre_prediction *prediction_out)
{
    struct bench_table table = {.request = request, .all_ranks = true};
    struct gyre_choice choice;
    const uint64_t n_call = bench_table_call_bytes(request, n_bytes);
    gyre_status status = bench_table_open(&table);
    if (status == GYRE_SUCCESS)
        status = choose(&table, 0, n_call, &choice);
    if (status == GYRE_SUCCESS) {
        fill(&table, &choice, n_call, simulation);
        simulation->all_tiles = true;
        status = bench_schedule_check_steps(table.simulators[0], simulation, most_steps);
    }
    if (status == GYRE_SUCCESS)
        status = gyre_simulator_run(table.simulators[0], simulation, prediction_out);
    simulation->cost = NULL; /* it lies in the table */
    bench_table_close(&table);
    return status;
}
