/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a table of predictions from the options. Values that are not given come from the tuner's
 * tables, as in a communicator of that size.
 */
#include "bench/tools/schedule_predict.h"

#include "algorithms/simulate/simulate.h"
#include "bench/driver/options.h"
#include "bench/report/bus_factor.h"
#include "core/base/util.h"
#include "core/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALGORITHMS 16

/* With so many ranks or more, predictions may be off by a percent, and algorithms in which all
 * ranks exchange data with all ranks are left out unless the user names them. Exact predictions,
 * and predictions of these algorithms, would take minutes. */
#define MANY_RANKS  1025
#define SIZE_FACTOR 4

/* Everything that stays the same for all sizes. */
struct table {
    const struct bench_schedule_request *request;
    struct gyre_cost cost;
    struct gyre_tuner_facts facts;
    struct gyre_filter filter;
    const struct gyre_algorithm *algorithms[MAX_ALGORITHMS];
    struct gyre_simulator *simulators[MAX_ALGORITHMS];
    int n_algorithms;
    bool all_ranks; /* simulate every rank, even if one stands for all */
};

/* The prediction for one algorithm and size. */
struct cell {
    struct gyre_choice choice;
    struct gyre_prediction prediction;
};

static gyre_status open_costs(struct table *table)
{
    const char *name = table->request->cost == NULL ? "h200" : table->request->cost;
    const struct gyre_cost *shipped = gyre_cost_find(name);
    table->facts.device_kind =
        shipped == &gyre_cost_h200
            ? GYRE_DEVICE_CUDA
            : GYRE_DEVICE_HOST; /* a file of constants is for the host device */
    if (shipped != NULL) {
        table->cost = *shipped;
    } else {
        struct gyre_tuning tuning;
        const gyre_status status = gyre_tuning_load(name, &tuning);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "--cost is host, h200 or a file");
        table->cost = tuning.cost;
    }
    if (table->request->nic_gbytes_per_s > 0) {
        table->cost.nic_bytes_per_ns = table->request->nic_gbytes_per_s;
        table->cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] = 0; /* the NIC is the limit */
        table->cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
    }
    return GYRE_SUCCESS;
}

static gyre_status open_facts(struct table *table)
{
    const struct bench_schedule_request *request = table->request;
    struct gyre_tuner_facts *facts = &table->facts;
    facts->n_ranks = request->n_ranks;
    facts->grouping = request->grouping;
    facts->n_hosts = request->grouping == NULL ? 1 : request->grouping->n_hosts;
    facts->is_proxied = facts->n_hosts > 1;
    facts->is_ll128_safe = facts->device_kind == GYRE_DEVICE_CUDA && facts->n_hosts == 1;
    facts->has_lamport =
        gyre_collectives[request->coll].reduces; /* the prediction is for sums of float32 */
    if (facts->n_hosts > 1) {
        struct gyre_peer_counts peers;
        GYRE_TRY(gyre_near_peers_count(facts->grouping, facts->n_ranks, &peers));
        facts->spec = gyre_tuner_fifo_spec_across(facts->device_kind, &peers, false, 0, UINT32_MAX);
    } else {
        facts->spec =
            gyre_tuner_fifo_spec(facts->device_kind, facts->n_ranks, false, 0, UINT32_MAX);
    }
    if (facts->n_hosts > 1) /* as communicators on several hosts */
        facts->cost = &table->cost;
    facts->in_window = request->algorithm != NULL && request->algorithm->given != NULL &&
                       request->algorithm->given->is_placed;
    facts->min_channels = 1;
    facts->max_channels = facts->spec.n_fifos;
    const struct gyre_filter_words words = {.protos = request->proto, .proto_source = "--proto"};
    GYRE_TRY(gyre_filter_parse("", "", "", &table->filter));
    return gyre_filter_override(&words, &table->filter);
}

/* Are the slots large enough for the algorithm's ranges? If not, prints the reason. */
static bool fits(const struct table *table, const struct gyre_algorithm *algorithm,
                 const struct gyre_simulator *simulator)
{
    const struct bench_schedule_request *request = table->request;
    const uint32_t tile_bytes =
        request->tile_bytes > 0 ? (uint32_t)request->tile_bytes
                                : gyre_tuner_payload_bytes(&table->facts, algorithm, request->coll,
                                                           GYRE_PROTO_SIMPLE, false);
    const uint32_t least_bytes = gyre_simulator_least_tile_bytes(simulator);
    if (least_bytes > tile_bytes)
        printf("# left out: %s: it needs slots of %u bytes, they have %u\n", algorithm->name,
               least_bytes, tile_bytes);
    return least_bytes <= tile_bytes;
}

static gyre_status open_table(struct table *table)
{
    const struct bench_schedule_request *request = table->request;
    const struct gyre_shape shape = {.coll = request->coll,
                                     .n_ranks = (uint16_t)request->n_ranks,
                                     .root = (uint16_t)request->root,
                                     .grouping = request->grouping};
    const struct gyre_machine machine = {.grouping = request->grouping};
    GYRE_TRY(open_costs(table));
    GYRE_TRY(open_facts(table));
    if (request->algorithm != NULL && request->algorithm->given != NULL) {
        GYRE_TRY(gyre_simulator_open(request->algorithm, &shape, &machine, false,
                                     &table->simulators[0]));
        table->algorithms[table->n_algorithms++] = request->algorithm;
        return GYRE_SUCCESS;
    }
    for (int i = 0; gyre_algorithms[i] != NULL && table->n_algorithms < MAX_ALGORITHMS; i++) {
        const bool is_asked = request->algorithm == gyre_algorithms[i];
        if (!is_asked &&
            (request->algorithm != NULL ||
             !gyre_algorithm_suits(gyre_algorithms[i], request->coll, table->facts.n_hosts)))
            continue;
        const char *obstacle =
            gyre_tuner_algorithm_obstacle(&table->facts, gyre_algorithms[i], request->coll);
        if (obstacle == NULL && table->facts.n_ranks >= MANY_RANKS && table->facts.n_hosts > 1 &&
            (gyre_algorithms[i]->keeps_near >> request->coll & 1U) == 0)
            obstacle = "slow between so many ranks (--algo shows it)";
        if (obstacle != NULL && !is_asked) {
            printf("# left out: %s: %s\n", gyre_algorithms[i]->name, obstacle);
            continue;
        }
        struct gyre_simulator **simulator = &table->simulators[table->n_algorithms];
        const gyre_status status =
            gyre_simulator_open(gyre_algorithms[i], &shape, &machine, table->all_ranks, simulator);
        if (status == GYRE_ERROR_UNSUPPORTED && !is_asked) {
            printf("# left out: %s\n", gyre_cause());
            continue;
        }
        GYRE_TRY(status);
        if (!is_asked && !fits(table, gyre_algorithms[i], *simulator)) {
            gyre_simulator_close(*simulator);
            *simulator = NULL;
            continue;
        }
        table->algorithms[table->n_algorithms++] = gyre_algorithms[i];
    }
    return GYRE_SUCCESS;
}

static void close_table(struct table *table)
{
    for (int i = 0; i < table->n_algorithms; i++)
        gyre_simulator_close(table->simulators[i]);
}

/* Choose as a communicator would, and replace the parts of the choice that the request names.
 * @n_bytes: of the count that the collective's function takes. */
static gyre_status choose(const struct table *table, int column, uint64_t n_bytes,
                          struct gyre_choice *choice)
{
    const struct bench_schedule_request *request = table->request;
    struct gyre_filter filter = table->filter;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_algorithms[i] == table->algorithms[column])
            filter.algorithms[request->coll] = 1U << i;
    if (table->algorithms[column]->given != NULL)
        GYRE_TRY(gyre_tuner_choose_given(&table->facts, &filter, table->algorithms[column], n_bytes,
                                         choice));
    else
        GYRE_TRY(gyre_tuner_choose(&table->facts, &filter, request->coll, n_bytes, choice));
    const uint32_t most =
        gyre_tuner_fifos(&table->facts, table->algorithms[column], request->coll).n_fifos /
        gyre_simulator_lanes(table->simulators[column]);
    choice->n_channels = (uint32_t)gyre_max_u64(
        1, gyre_min_u64(choice->n_channels, most)); /* communicators limit it likewise */
    if (request->n_channels > 0)
        choice->n_channels = (uint32_t)request->n_channels;
    if (request->tile_bytes > 0)
        choice->tile_bytes = (uint32_t)request->tile_bytes;
    return GYRE_SUCCESS;
}

static void fill_simulation(const struct table *table, const struct gyre_choice *choice,
                            uint64_t n_bytes, struct gyre_simulation *simulation)
{
    const struct bench_schedule_request *request = table->request;
    simulation->cost = &table->cost;
    simulation->proto = choice->proto;
    simulation->n_channels = choice->n_channels;
    simulation->tile_bytes = choice->tile_bytes;
    simulation->depth = request->depth > 0 ? (uint32_t)request->depth : table->facts.spec.depth;
    simulation->n_bytes = n_bytes;
    simulation->is_rough = table->facts.n_ranks >= MANY_RANKS;
}

/* @n_bytes: of the count that the collective's function takes. */
static gyre_status predict(struct table *table, int column, uint64_t n_bytes, struct cell *cell)
{
    struct gyre_simulation simulation = {0};
    GYRE_TRY(choose(table, column, n_bytes, &cell->choice));
    fill_simulation(table, &cell->choice, n_bytes, &simulation);
    return gyre_simulator_run(table->simulators[column], &simulation, &cell->prediction);
}

static double percent_of_bound(const struct table *table, uint64_t n_bytes, double time_ns)
{
    const struct gyre_shape shape = {.coll = table->request->coll,
                                     .n_ranks = (uint16_t)table->request->n_ranks,
                                     .grouping = table->request->grouping};
    return time_ns > 0 ? 100 * gyre_bound_ns(&shape, &table->cost, n_bytes) / time_ns : 0;
}

/* @n_bytes: of all blocks where buffers are made of blocks. */
static void add_to_json(const struct table *table, int column, uint64_t n_bytes,
                        const struct cell *cell)
{
    const struct bench_schedule_request *request = table->request;
    const struct bench_schedule_prediction prediction = {
        .algorithm = table->algorithms[column]->name,
        .is_from_file = table->algorithms[column]->given != NULL,
        .coll = request->coll,
        .n_ranks = request->n_ranks,
        .n_hosts = table->facts.n_hosts,
        .root = request->root,
        .constants = request->cost == NULL ? "h200" : request->cost,
        .n_bytes = n_bytes,
        .proto = cell->choice.proto,
        .n_channels = cell->choice.n_channels,
        .tile_bytes = cell->choice.tile_bytes,
        .percent_of_bound = percent_of_bound(table, n_bytes, cell->prediction.time_ns),
        .prediction = cell->prediction,
    };
    bench_schedule_json_prediction(request->json, &prediction);
}

static void print_one(const struct table *table, uint64_t n_bytes, const struct cell *cell)
{
    const double time_ns = cell->prediction.time_ns;
    const double algbw = time_ns > 0 ? (double)n_bytes / time_ns : 0;
    printf("%14llu %8s %8u %10u %14.2f %10.2f %10.2f %9.1f  %s %.0f%%%s\n",
           (unsigned long long)n_bytes, gyre_proto_names[cell->choice.proto],
           cell->choice.n_channels, cell->choice.tile_bytes, time_ns / 1e3, algbw,
           algbw * bench_bus_factor(table->request->coll, table->request->n_ranks),
           percent_of_bound(table, n_bytes, time_ns),
           gyre_resource_names[cell->prediction.bottleneck], cell->prediction.busy_share * 100,
           cell->prediction.is_extrapolated ? "" : ", all tiles");
}

/* The bytes of the count that the collective's function takes. */
static uint64_t call_bytes(const struct bench_schedule_request *request, uint64_t n_bytes)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[request->coll];
    return traits->in_blocks || traits->out_blocks ? n_bytes / request->n_ranks : n_bytes;
}

static gyre_status print_line(struct table *table, uint64_t n_bytes)
{
    const uint64_t n_call = call_bytes(table->request, n_bytes);
    struct cell cells[MAX_ALGORITHMS];
    int best = 0;
    for (int i = 0; i < table->n_algorithms; i++) {
        GYRE_TRY(predict(table, i, n_call, &cells[i]));
        add_to_json(table, i, n_bytes, &cells[i]);
        if (cells[i].prediction.time_ns < cells[best].prediction.time_ns)
            best = i;
    }
    if (table->request->algorithm != NULL) {
        print_one(table, n_bytes, &cells[0]);
        return GYRE_SUCCESS;
    }
    printf("%14llu", (unsigned long long)n_bytes);
    for (int i = 0; i < table->n_algorithms; i++)
        printf(" %14.2f", cells[i].prediction.time_ns / 1e3);
    printf(" %9.1f  %s\n", percent_of_bound(table, n_bytes, cells[best].prediction.time_ns),
           table->n_algorithms > 0 ? table->algorithms[best]->name : "");
    return GYRE_SUCCESS;
}

static void print_header(const struct table *table)
{
    const struct bench_schedule_request *request = table->request;
    printf("# %s of %u ranks on %u hosts, constants: %s\n", gyre_collectives[request->coll].name,
           request->n_ranks, table->facts.n_hosts, request->cost == NULL ? "h200" : request->cost);
    if (request->algorithm != NULL) {
        printf("# %s\n#%13s %8s %8s %10s %14s %10s %10s %9s  %s\n", request->algorithm->name,
               "bytes", "proto", "channels", "tile", "predicted us", "algbw GB/s", "busbw GB/s",
               "of bound", "busiest");
        return;
    }
    printf("# us; %% of bound: what the bytes alone take, in %% of the fastest\n#%13s", "bytes");
    for (int i = 0; i < table->n_algorithms; i++)
        printf(" %14s", table->algorithms[i]->name);
    printf(" %9s  fastest\n", "% of bound");
}

static gyre_status parse_sizes(const char *text, uint64_t *first_out, uint64_t *last_out)
{
    char first[32];
    size_t first_bytes = 0, last_bytes = 0;
    const char *colon = strchr(text, ':');
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, ":"), text);
    GYRE_TRY(bench_parse_bytes(first, &first_bytes));
    GYRE_TRY(bench_parse_bytes(colon == NULL ? first : colon + 1, &last_bytes));
    if (first_bytes == 0 || first_bytes > last_bytes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--bytes %s: expected SIZE or FIRST:LAST, with sizes from 1 on", text);
    *first_out = first_bytes;
    *last_out = last_bytes;
    return GYRE_SUCCESS;
}

gyre_status bench_schedule_predict(const struct bench_schedule_request *request)
{
    struct table table = {.request = request};
    uint64_t n_bytes = 0, last_bytes = 0;
    GYRE_TRY(parse_sizes(request->bytes == NULL ? "1K:1G" : request->bytes, &n_bytes, &last_bytes));
    gyre_status status = open_table(&table);
    if (status == GYRE_SUCCESS)
        print_header(&table);
    for (; n_bytes <= last_bytes && status == GYRE_SUCCESS; n_bytes *= SIZE_FACTOR)
        status = print_line(&table, n_bytes);
    close_table(&table);
    return status;
}

static gyre_status check_steps(const struct table *table, const struct gyre_simulation *simulation,
                               uint64_t most_steps)
{
    uint64_t n_steps;
    GYRE_TRY(gyre_simulator_steps(table->simulators[0], simulation, &n_steps));
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
    struct table table = {.request = request, .all_ranks = true};
    struct gyre_choice choice;
    const uint64_t n_call = call_bytes(request, n_bytes);
    gyre_status status = open_table(&table);
    if (status == GYRE_SUCCESS)
        status = choose(&table, 0, n_call, &choice);
    if (status == GYRE_SUCCESS) {
        fill_simulation(&table, &choice, n_call, simulation);
        simulation->all_tiles = true;
        status = check_steps(&table, simulation, most_steps);
    }
    if (status == GYRE_SUCCESS)
        status = gyre_simulator_run(table.simulators[0], simulation, prediction_out);
    simulation->cost = NULL; /* it lies in the table */
    close_table(&table);
    return status;
}
