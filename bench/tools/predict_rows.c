/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulators are kept, since most of the time goes into their programs.
 */
#include "algorithms/contenders/contender.h"
#include "bench/report/table_file.h"
#include "bench/tools/programs.h"
#include "bench/tools/schedule_predict.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE       4096
#define N_SIMULATORS   32
#define MAX_PATH_BYTES 512
#define ROUGH_RANKS    1025

/* X(word, field, how it is read) */
#define ROW_WORDS(X)                                        \
    X(coll, coll, TEXT)                                     \
    X(library, library, TEXT)                               \
    X(algo, algorithm, TEXT)                                \
    X(proto, proto, TEXT)                                   \
    X(cost, cost, TEXT)                                     \
    X(fabric, fabric, TEXT)                                 \
    X(machine, machine, TEXT)                               \
    X(p2p_efficiency, p2p_efficiency, NUMBER)               \
    X(p2p_worker_efficiency, p2p_worker_efficiency, NUMBER) \
    X(gpu, gpu, TEXT)                                       \
    X(version, version, TEXT)                               \
    X(ranks, n_ranks, NUMBER)                               \
    X(hosts, n_hosts, NUMBER)                               \
    X(bytes, n_bytes, NUMBER)                               \
    X(channels, n_channels, NUMBER)                         \
    X(tile, tile_bytes, NUMBER)                             \
    X(depth, depth, NUMBER)                                 \
    X(graph, is_graph, NUMBER)                              \
    X(graph_launch_ns, graph_launch_ns, NUMBER)             \
    X(nics, n_nics, NUMBER)                                 \
    X(nvls, has_nvls, NUMBER)                               \
    X(nic_gbit, nic_gbit, NUMBER)                           \
    X(eager_bytes, eager_bytes, NUMBER)
/* NAN or NULL = absent. */
struct row {
#define FIELD_TEXT(field)            const char *field;
#define FIELD_NUMBER(field)          double field;
#define ROW_FIELD(word, field, kind) FIELD_##kind(field)
    ROW_WORDS(ROW_FIELD)
#undef ROW_FIELD
    char constants[MAX_LINE]; /* for gyre_cost_from_text() */
};

struct kept_simulator {
    const struct gyre_algorithm *algorithm; /* NULL = free place */
    struct gyre_shape shape;
    struct gyre_grouping *grouping;
    struct bench_fabric fabric;
    char fabric_path[MAX_PATH_BYTES];
    struct gyre_simulator *simulator;
    uint64_t used_at;
};

struct rows {
    struct kept_simulator simulators[N_SIMULATORS];
    uint64_t now;
};

static double number_or(double number, double otherwise)
{
    return isnan(number) ? otherwise : number;
}

static gyre_status read_number(const char *word, const char *text, double *number_out)
{
    char *end;
    *number_out = gyre_text_to_double(text, &end);
    if (end == text || *end != '\0' || !isfinite(*number_out) || *number_out < 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%.40s: expected a number of at least 0",
                         word, text);
    return GYRE_SUCCESS;
}

static gyre_status read_word(const char *word, const char *text, struct row *row)
{
#define READ_TEXT(word, field)   return row->field = text, GYRE_SUCCESS
#define READ_NUMBER(word, field) return read_number(word, text, &row->field)
#define ROW_READ(name, field, kind) \
    if (strcmp(word, #name) == 0)   \
        READ_##kind(#name, field);
    ROW_WORDS(ROW_READ)
#undef ROW_READ
    /* a constant, or unknown */
    gyre_text_append(row->constants, sizeof(row->constants), "%s = %s\n", word, text);
    return GYRE_SUCCESS;
}

/* @line: is cut into words, which the row keeps. */
static gyre_status read_row(char *line, struct row *row)
{
    char *next = NULL;
#define CLEAR_TEXT(field)            row->field = NULL;
#define CLEAR_NUMBER(field)          row->field = NAN;
#define ROW_CLEAR(word, field, kind) CLEAR_##kind(field)
    ROW_WORDS(ROW_CLEAR)
#undef ROW_CLEAR
    row->constants[0] = '\0';
    for (char *word = strtok_r(line, " \t\r\n", &next); word != NULL;
         word = strtok_r(NULL, " \t\r\n", &next)) {
        char *equals = strchr(word, '=');
        if (equals == NULL)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%.40s\" is not key=value", word);
        *equals = '\0';
        GYRE_TRY(read_word(word, equals + 1, row));
    }
    return GYRE_SUCCESS;
}

static const char *choice_of(const char *text)
{
    return text == NULL || gyre_text_same(text, "default") ? NULL : text;
}

static gyre_status read_call(const struct row *row, struct gyre_contender_call *call)
{
    const char *coll = row->coll == NULL ? "all_reduce" : row->coll;
    const int found = gyre_collective_find(strcmp(coll, "alltoall") == 0 ? "all_to_all" : coll);
    const double n_hosts = number_or(row->n_hosts, 1);
    if (found < 0 || found == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "coll=%.40s is no collective", coll);
    if (!(row->n_ranks >= 2 && row->n_ranks <= GYRE_MAX_RANKS) || n_hosts < 1 ||
        fmod(row->n_ranks, n_hosts) > 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "ranks= has to be 2 to %d, and a multiple of hosts=", GYRE_MAX_RANKS);
    if (!(row->n_bytes >= 1 && row->n_bytes <= 0x1p50))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "bytes= has to be at least 1");
    *call = (struct gyre_contender_call){.coll = (enum gyre_collective)found,
                                         .n_ranks = (unsigned)row->n_ranks,
                                         .n_hosts = (unsigned)n_hosts,
                                         .n_bytes = (uint64_t)row->n_bytes,
                                         .algorithm = choice_of(row->algorithm),
                                         .proto = choice_of(row->proto)};
    return GYRE_SUCCESS;
}

/* @machine: of a machine file; the row's words replace what it says. */
static gyre_status read_machine(const struct row *row, const struct gyre_cost *cost,
                                struct gyre_contender_machine *machine)
{
    machine->has_nvls = number_or(row->has_nvls, machine->has_nvls) > 0;
    machine->nic_gbytes = number_or(row->nic_gbit / 8, cost->nic_bytes_per_ns);
    machine->n_nics = (unsigned)number_or(row->n_nics, 0);
    machine->eager_bytes = (uint64_t)number_or(row->eager_bytes, 8192);
    unsigned major = 0, minor = 0;
    if (row->version != NULL && sscanf(row->version, "%u.%u", &major, &minor) == 2)
        machine->version = 100 * major + minor;
    if (row->gpu == NULL)
        return GYRE_SUCCESS;
    for (int i = 0; i < GYRE_N_GPUS; i++)
        if (strcmp(row->gpu, gyre_gpu_names[i]) == 0) {
            machine->gpu = (enum gyre_gpu)i;
            return GYRE_SUCCESS;
        }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "gpu=%.40s is not known", row->gpu);
}

static gyre_status load_cost(const char *path, struct gyre_cost *cost_out)
{
    const struct gyre_cost *shipped = gyre_cost_find(path);
    GYRE_FREED char *text = NULL;
    if (shipped != NULL) {
        *cost_out = *shipped;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(gyre_file_read(path, GYRE_FABRIC_MAX_TEXT, &text, NULL));
    const gyre_status status = gyre_cost_from_text(text, &gyre_cost_h200, cost_out);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", path);
}

static void drop_simulator(struct kept_simulator *kept)
{
    gyre_simulator_close(kept->simulator);
    bench_fabric_close(&kept->fabric);
    free(kept->grouping);
    *kept = (struct kept_simulator){.algorithm = NULL};
}

static gyre_status open_simulator(const struct row *row, const struct gyre_contender_call *call,
                                  const struct gyre_algorithm *algorithm,
                                  struct kept_simulator *kept)
{
    const char *path = row->fabric == NULL ? "" : row->fabric;
    snprintf(kept->fabric_path, sizeof(kept->fabric_path), "%s", path);
    GYRE_TRY(bench_fabric_load(row->fabric, call->n_hosts, call->n_ranks / call->n_hosts,
                               &kept->fabric));
    kept->grouping = calloc(1, sizeof(*kept->grouping));
    if (kept->grouping == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for hosts");
    kept->grouping->n_hosts = (uint16_t)call->n_hosts;
    kept->grouping->n_nics = (uint16_t)number_or(row->n_nics, 0);
    for (unsigned rank = 0; rank < call->n_ranks; rank++)
        kept->grouping->host_of[rank] = (uint16_t)(rank / (call->n_ranks / call->n_hosts));
    if (kept->fabric.fabric != NULL && kept->fabric.fabric->n_ranks != call->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s has %u GPUs, the row %u ranks", path,
                         kept->fabric.fabric->n_ranks, call->n_ranks);
    kept->shape = (struct gyre_shape){.coll = call->coll,
                                      .n_ranks = (uint16_t)call->n_ranks,
                                      .grouping = call->n_hosts > 1 ? kept->grouping : NULL};
    const struct gyre_machine machine = {.grouping = kept->shape.grouping,
                                         .fabric = kept->fabric.fabric};
    GYRE_TRY(gyre_simulator_open(algorithm, &kept->shape, &machine, false, &kept->simulator));
    kept->algorithm = algorithm;
    return GYRE_SUCCESS;
}

static gyre_status find_simulator(struct rows *rows, const struct row *row,
                                  const struct gyre_contender_call *call,
                                  const struct gyre_algorithm *algorithm,
                                  struct kept_simulator **kept_out)
{
    const char *path = row->fabric == NULL ? "" : row->fabric;
    struct kept_simulator *oldest = &rows->simulators[0];
    for (unsigned i = 0; i < N_SIMULATORS; i++) {
        struct kept_simulator *kept = &rows->simulators[i];
        const bool is_same = kept->algorithm == algorithm && kept->shape.coll == call->coll &&
                             kept->shape.n_ranks == call->n_ranks &&
                             kept->grouping->n_hosts == call->n_hosts &&
                             kept->grouping->n_nics == (uint16_t)number_or(row->n_nics, 0) &&
                             strcmp(kept->fabric_path, path) == 0;
        if (kept->used_at < oldest->used_at)
            oldest = kept;
        if (is_same) {
            kept->used_at = ++rows->now;
            *kept_out = kept;
            return GYRE_SUCCESS;
        }
    }
    drop_simulator(oldest);
    const gyre_status status = open_simulator(row, call, algorithm, oldest);
    if (status != GYRE_SUCCESS)
        drop_simulator(oldest);
    oldest->used_at = ++rows->now;
    *kept_out = oldest;
    return status;
}

static gyre_status list_ways(const struct row *row, const struct gyre_machine_file *file,
                             const struct gyre_contender_call *call,
                             struct gyre_contender_way *ways_out, int *n_out)
{
    const struct gyre_contender_machine *machine = &file->facts;
    const char *library = row->library != NULL       ? row->library
                          : file->library[0] != '\0' ? file->library
                                                     : "nccl";
    *n_out = 1;
    if (strcmp(library, "nccl") == 0 || strcmp(library, "rccl") == 0)
        return gyre_nccl_choose(machine, call, ways_out);
    if (strcmp(library, "mpi") == 0)
        *n_out = gyre_mpi_list(machine, call, ways_out);
    else if (strcmp(library, "oneshot") == 0)
        *n_out = gyre_one_kernel_list(call, ways_out);
    else
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "library=%.40s: nccl, rccl, mpi or oneshot",
                         library);
    if (*n_out == 0)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s has no algorithm %s for it", library,
                         call->algorithm == NULL ? "" : call->algorithm);
    return GYRE_SUCCESS;
}

struct answer {
    struct gyre_contender_call call;
    struct gyre_contender_way way;
    struct gyre_cost cost;             /* of this way */
    struct gyre_simulation simulation; /* but for its cost */
    struct gyre_prediction prediction;
    double bound_ns; /* 0 = unknown */
    char busiest[GYRE_FABRIC_NAME_BYTES];
};

/* @answer: its call, way and cost are set, the cost as the machine's. */
static gyre_status predict_way(struct rows *rows, const struct row *row, struct answer *answer)
{
    struct kept_simulator *kept;
    struct gyre_cost *const cost = &answer->cost;
    struct gyre_contender_way *const way = &answer->way;
    const struct gyre_contender_call *call = &answer->call;
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    const bool has_blocks = traits->in_blocks || traits->out_blocks;
    GYRE_TRY(find_simulator(rows, row, call, way->algorithm, &kept));
    answer->bound_ns = gyre_bound_ns(&kept->shape, cost, call->n_bytes); /* without way's factors */
    cost->egress_bytes_per_ns[GYRE_LINK_HOST] *= way->rate_factor;
    cost->ingress_bytes_per_ns[GYRE_LINK_HOST] *= way->rate_factor;
    cost->worker_send_bytes_per_ns[GYRE_LINK_HOST] *= way->store_factor;
    if (row->n_channels > 0)
        way->n_channels = (uint32_t)row->n_channels;
    if (row->tile_bytes > 0)
        way->tile_bytes = (uint32_t)row->tile_bytes;
    if (row->depth > 0)
        way->depth = (uint32_t)row->depth;
    answer->simulation = (struct gyre_simulation){
        .proto = way->proto,
        .net_proto = way->proto,
        .n_channels = way->n_channels,
        .tile_bytes = way->tile_bytes,
        .depth = (uint32_t)gyre_max_u64(way->depth, gyre_simulator_min_depth(kept->simulator)),
        .n_bytes = has_blocks ? call->n_bytes / call->n_ranks : call->n_bytes,
        .is_rough = row->fabric != NULL || call->n_ranks >= ROUGH_RANKS};
    struct gyre_simulation simulation = answer->simulation;
    simulation.cost = cost;
    GYRE_TRY(gyre_simulator_run(kept->simulator, &simulation, &answer->prediction));
    if (answer->prediction.bottleneck == GYRE_RESOURCE_FABRIC)
        gyre_fabric_link_name(kept->fabric.fabric, answer->prediction.fabric_link, answer->busiest);
    else
        snprintf(answer->busiest, sizeof(answer->busiest), "%s",
                 gyre_resource_names[answer->prediction.bottleneck]);
    return GYRE_SUCCESS;
}

static double busbw_of(const struct answer *answer)
{
    return (double)answer->call.n_bytes / answer->prediction.time_ns *
           bench_bus_factor(answer->call.coll, answer->call.n_ranks);
}

/* The kernel of sends starts the works of its peers one by one, each in about a hop of LL. Sends
 * reach a smaller part of the links than rings do, and few of a block's warps receive. */
static void apply_machine(const struct row *row, const struct gyre_machine_file *file,
                          struct gyre_contender_call *call, struct gyre_cost *cost)
{
    double *egress = &cost->egress_bytes_per_ns[GYRE_LINK_HOST];
    if (call->algorithm == NULL && row->algorithm == NULL && file->algorithm[0] != '\0')
        call->algorithm = file->algorithm;
    if (call->coll == GYRE_COLL_ALL_TO_ALL) {
        const double part = number_or(row->p2p_efficiency, file->p2p_efficiency);
        const double worker_part =
            number_or(row->p2p_worker_efficiency, file->p2p_worker_efficiency);
        cost->launch_ns += (call->n_ranks - 1) * cost->hop_ns[GYRE_PROTO_LL][GYRE_LINK_HOST];
        cost->nic_bytes_per_ns *= part;
        *egress *= part;
        if (cost->worker_step_bytes_per_ns > 0 && call->n_ranks > call->n_hosts)
            *egress =
                fmin(*egress, worker_part * gyre_nccl_p2p_rate(call->n_ranks / call->n_hosts,
                                                               cost->worker_step_bytes_per_ns));
    }
    cost->ingress_bytes_per_ns[GYRE_LINK_HOST] = *egress;
}

/* @line: is cut into words. */
static gyre_status predict(struct rows *rows, char *line, struct answer *answer)
{
    struct row own, *const row = &own;
    struct gyre_contender_way ways[GYRE_NCCL_MOST_WAYS];
    struct gyre_machine_file file = {
        .facts.gpu = GYRE_GPU_HOPPER, .p2p_efficiency = 1, .p2p_worker_efficiency = 1};
    struct gyre_contender_machine *const machine = &file.facts;
    struct gyre_cost cost;
    int n_ways;
    GYRE_TRY(read_row(line, row));
    GYRE_TRY(read_call(row, &answer->call));
    if (row->machine != NULL)
        GYRE_TRY(bench_machine_load(row->machine, &file));
    if (row->machine != NULL && row->cost == NULL)
        cost = file.cost;
    else
        GYRE_TRY(load_cost(row->cost == NULL ? "h200" : row->cost, &cost));
    GYRE_TRY(gyre_cost_from_text(row->constants, &cost, &cost));
    if (row->machine != NULL)
        apply_machine(row, &file, &answer->call, &cost);
    if (row->is_graph > 0)
        cost.launch_ns = number_or(row->graph_launch_ns, cost.launch_ns);
    GYRE_TRY(read_machine(row, &cost, machine));
    GYRE_TRY(list_ways(row, &file, &answer->call, ways, &n_ways));
    answer->prediction.time_ns = INFINITY;
    for (int i = 0; i < n_ways; i++) {
        struct answer trial = {.call = answer->call, .way = ways[i], .cost = cost};
        GYRE_TRY(predict_way(rows, row, &trial));
        if (trial.prediction.time_ns < answer->prediction.time_ns)
            *answer = trial;
    }
    return GYRE_SUCCESS;
}

static void close_rows(struct rows *rows)
{
    for (unsigned i = 0; rows != NULL && i < N_SIMULATORS; i++)
        drop_simulator(&rows->simulators[i]);
    free(rows);
}

bool bench_predict_rows(const char *path, FILE *out)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    struct rows *rows = calloc(1, sizeof(*rows));
    char line[MAX_LINE];
    const bool ok = in != NULL && rows != NULL;
    if (!ok)
        fprintf(stderr, "schedule: --rows %s: %s\n", path, gyre_text_error(errno));
    while (ok && fgets(line, sizeof(line), in) != NULL) {
        struct answer answer;
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        const struct gyre_contender_way *way = &answer.way;
        if (predict(rows, line, &answer) != GYRE_SUCCESS)
            fprintf(out, "error %s\n", gyre_cause());
        else
            fprintf(out,
                    "time_us=%.4f algo=%s proto=%s channels=%u tile=%u bound_us=%.4f busbw=%.4f "
                    "share=%.3f own_us=%.2f busiest=%s\n",
                    answer.prediction.time_ns / 1e3, way->name, gyre_proto_names[way->proto],
                    way->n_channels, way->tile_bytes, answer.bound_ns / 1e3, busbw_of(&answer),
                    answer.prediction.busy_share, way->estimated_us, answer.busiest);
        fflush(out);
    }
    if (in != NULL && in != stdin)
        fclose(in);
    close_rows(rows);
    return ok;
}

/* @words: "nccl" or "nccl,nvls=1,gpu=ampere". */
static gyre_status write_line(const struct bench_schedule_request *request, const char *words,
                              uint64_t n_bytes, char line_out[MAX_LINE])
{
    const unsigned n_hosts = request->shape.grouping == NULL ? 1 : request->shape.grouping->n_hosts;
    const char *cost = request->cost == NULL ? "h200" : request->cost;
    for (unsigned rank = 0; rank < request->shape.n_ranks && n_hosts > 1; rank++)
        if (request->shape.grouping->host_of[rank] != rank / (request->shape.n_ranks / n_hosts))
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "--library needs hosts of equally many ranks, one after the other");
    int used =
        snprintf(line_out, MAX_LINE, "coll=%s ranks=%u hosts=%u bytes=%llu %s=%s",
                 gyre_collectives[request->shape.coll].name, request->shape.n_ranks, n_hosts,
                 (unsigned long long)n_bytes, request->is_machine ? "machine" : "cost", cost);
    if (request->shape.grouping != NULL && request->shape.grouping->n_nics > 0)
        used += snprintf(&line_out[used], MAX_LINE - (size_t)used, " nics=%u",
                         request->shape.grouping->n_nics);
    if (request->fabric_path != NULL)
        used +=
            snprintf(&line_out[used], MAX_LINE - (size_t)used, " fabric=%s", request->fabric_path);
    if (request->nic_gbytes_per_s > 0)
        used += snprintf(&line_out[used], MAX_LINE - (size_t)used, " nic_bytes_per_ns=%g",
                         request->nic_gbytes_per_s);
    snprintf(&line_out[used], MAX_LINE - (size_t)used, " library=%s", words);
    for (char *c = &line_out[used]; *c != '\0'; c++)
        *c = *c == ',' ? ' ' : *c;
    return GYRE_SUCCESS;
}

gyre_status bench_predict_library(const struct bench_schedule_request *request, const char *words)
{
    struct rows *rows = calloc(1, sizeof(*rows));
    const uint64_t first_bytes = request->first_bytes > 0 ? request->first_bytes : 1024;
    const uint64_t last_bytes = request->last_bytes > 0 ? request->last_bytes : 1 << 30;
    gyre_status status =
        rows == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for rows") : GYRE_SUCCESS;
    if (request->trace != NULL && first_bytes * BENCH_PREDICT_SIZE_FACTOR <= last_bytes)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "--trace shows one call: name one size (--bytes 1M)");
    printf("# %s of %u ranks by %s\n#%13s %12s %8s %8s %10s %14s %10s %9s  %s\n",
           gyre_collectives[request->shape.coll].name, request->shape.n_ranks, words, "bytes",
           "algorithm", "proto", "channels", "tile", "predicted us", "busbw GB/s", "of bound",
           "busiest");
    for (uint64_t n_bytes = first_bytes; n_bytes <= last_bytes && status == GYRE_SUCCESS;
         n_bytes *= BENCH_PREDICT_SIZE_FACTOR) {
        struct answer answer;
        char line[MAX_LINE];
        status = write_line(request, words, n_bytes, line);
        if (status == GYRE_SUCCESS)
            status = predict(rows, line, &answer);
        if (status == GYRE_SUCCESS)
            printf("%14llu %12s %8s %8u %10u %14.2f %10.2f %9.1f  %s %.0f%%\n",
                   (unsigned long long)n_bytes, answer.way.name, gyre_proto_names[answer.way.proto],
                   answer.way.n_channels, answer.way.tile_bytes, answer.prediction.time_ns / 1e3,
                   busbw_of(&answer), 100 * answer.bound_ns / answer.prediction.time_ns,
                   answer.busiest, answer.prediction.busy_share * 100);
        if (status == GYRE_SUCCESS && request->trace != NULL) {
            struct bench_schedule_request traced = *request;
            traced.algorithm = answer.way.algorithm;
            answer.simulation.cost = &answer.cost;
            status = bench_simulated_trace(&traced, n_bytes, &answer.simulation, request->trace);
        }
    }
    close_rows(rows);
    return status;
}
