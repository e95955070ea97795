/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own chooser, with a recorder; variables count as in a communicator.
 */
#include "algorithms/contenders/contender.h"
#include "bench/command/command.h"
#include "bench/driver/option_table.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/gyre_model.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

/* By enum gyre_row_file. */
static const char *const machine_names[] = {"h200", "gpu_host_memory", "host"};

/* By enum gyre_won. */
static const char *const won_names[] = {"won", "channels_row", "tile_row"};

static const char *const net_names[] = {"ib", "socket"};

struct request {
    enum gyre_collective coll;
    size_t n_bytes;
    uint32_t n_ranks, n_hosts;
    const char *coll_name;
    int machine;
    int net; /* of net_names */
    int lost_percent;
    const char *library;
    bool in_window, as_json, wants_help;
};

#define AT(field) .at = offsetof(struct request, field)

static const struct bench_option table[] = {
    {0, "coll", "NAME", "all_reduce, broadcast, ... [all_reduce]", BENCH_TEXT, AT(coll_name)},
    {0, "ranks", "N", "of all hosts [4]", BENCH_NUMBER, AT(n_ranks), 1, GYRE_MAX_RANKS},
    {0, "hosts", "N", "as many ranks on each; the way is predicted [1]", BENCH_NUMBER, AT(n_hosts),
     1, GYRE_MAX_RANKS},
    {0, "net", "NAME", "between hosts: ib (RDMA) or socket (TCP) [ib]", BENCH_WORD, AT(net), 0, 2,
     net_names},
    {0, "lost", "PERCENT", "what the weakest host has lost of its bandwidth [0]", BENCH_NUMBER,
     AT(lost_percent), 0, 99},
    {0, "machine", "NAME", "h200, gpu_host_memory or host [host]", BENCH_WORD, AT(machine), 0, 3,
     machine_names},
    {0, "window", NULL, "the result lies in a window", BENCH_FLAG, AT(in_window)},
    {0, "library", "NAME", "nccl: also what NCCL would do on eight H200 a host", BENCH_TEXT,
     AT(library)},
    {0, "json", NULL, "as JSON", BENCH_FLAG, AT(as_json)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

struct kernel {
    bool is_known; /* one host of GPUs and one variant */
    struct gyre_run run;
};

struct answer {
    struct gyre_algo_use from_file; /* of GYRE_ALGO_FILE */
    struct gyre_choice choice;
    struct gyre_why why;
    struct kernel kernel;
    double predicted_us;            /* 0 = rows chose */
    const char *no_leaf;            /* why a lost part slows all hosts down; or NULL */
    struct gyre_contender_way nccl; /* algorithm NULL = not asked for */
};

static gyre_status fill_facts(const struct request *request, const struct gyre_tuning *tuning,
                              struct gyre_tuner_facts *facts)
{
    static struct gyre_grouping grouping; /* facts point to it */
    static struct gyre_cost cost;
    const bool is_host = request->machine == GYRE_ROWS_HOST;
    *facts = (struct gyre_tuner_facts){
        .device_kind = is_host ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA,
        .n_ranks = request->n_ranks,
        .n_hosts = request->n_hosts,
        .is_proxied = request->n_hosts > 1,
        .is_tcp = request->n_hosts > 1 && request->net == 1,
        .is_direct_inside = request->n_hosts > 1 && request->n_hosts < request->n_ranks,
        .in_host_memory = request->machine == GYRE_ROWS_GPU_HOST_MEMORY,
        .is_ll128_safe = request->machine == GYRE_ROWS_H200,
        .has_lamport = gyre_collectives[request->coll].reduces,
        .is_unscaled = true,
        .in_window = request->in_window,
        .has_large_pages = request->in_window,
        .is_near = true,
        .min_channels = 1,
        .least_sms = is_host ? 0 : 132,
        .user_rows = tuning->rows,
        .cost = tuning->is_set && is_host ? &tuning->cost : NULL,
    };
    grouping.n_hosts = (uint16_t)request->n_hosts;
    for (uint32_t rank = 0; rank < request->n_ranks; rank++)
        grouping.host_of[rank] = (uint16_t)(rank / (request->n_ranks / request->n_hosts));
    facts->grouping = &grouping;
    /* A communicator counts ports of RDMA only. */
    grouping.weak_part =
        request->lost_percent > 0 && !facts->is_tcp ? 1 - request->lost_percent / 100.0 : 0;
    if (request->n_hosts > 1) {
        const struct gyre_network network = {.is_rdma = !facts->is_tcp,
                                             .least_ports = 100 - (uint32_t)request->lost_percent,
                                             .most_ports = 100};
        struct gyre_peer_counts peers;
        GYRE_TRY(gyre_near_peers_count(&grouping, facts->n_ranks, &peers));
        facts->spec = gyre_tuner_fifo_spec_across(facts->device_kind, &peers, false, !facts->is_tcp,
                                                  0, UINT32_MAX);
        gyre_fifo_spec_add_net_lines(&facts->spec, facts->device_kind, &peers, false);
        cost = gyre_network_cost(is_host ? &gyre_cost_host : &gyre_cost_h200, &network);
        if (facts->cost == NULL)
            facts->cost = &cost;
    } else {
        facts->spec =
            gyre_tuner_fifo_spec(facts->device_kind, facts->n_ranks, false, 0, UINT32_MAX);
    }
    facts->max_channels = facts->spec.n_fifos;
    return GYRE_SUCCESS;
}

/* The programs of GYRE_ALGO_FILE for the call; NULL = it has none. */
static gyre_status find_given(const struct gyre_params *params, const struct request *request,
                              const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, struct gyre_algo_use *use,
                              const struct gyre_algorithm **given_out)
{
    static struct gyre_algo_file file; /* the use refers to it */
    const struct gyre_algo_limits limits = {
        .n_ranks = facts->n_ranks,
        .device_kind = facts->device_kind,
        .spec = facts->spec,
        .max_blocks = UINT32_MAX,
        .any_order = gyre_param_number(params, GYRE_PARAM_ANY_ORDER) != 0,
        .grouping = facts->grouping,
    };
    if (gyre_param_is_set(params, GYRE_PARAM_ALGO_FILE))
        GYRE_TRY(gyre_algo_file_load(gyre_param_text(params, GYRE_PARAM_ALGO_FILE),
                                     "GYRE_ALGO_FILE", &file));
    GYRE_TRY(gyre_algo_use_open(use, &file, &limits, 0));
    *given_out = gyre_algo_use_find(use, filter, request->coll, 0, request->in_window);
    return GYRE_SUCCESS;
}

/* Of the programs that a file gave; NULL = of none. */
static const char *name_of_like(const struct gyre_algorithm *algorithm)
{
    return algorithm->given != NULL && algorithm->given->like != NULL ? algorithm->given->like->name
                                                                      : NULL;
}

/* For aligned buffers on rank 0. */
static gyre_status find_kernel(const struct request *request, const struct gyre_tuner_facts *facts,
                               uint64_t n_bytes, const struct gyre_choice *choice,
                               struct kernel *kernel_out)
{
    const bool is_message = request->coll == GYRE_COLL_SEND_RECV;
    const struct gyre_shape shape = {.coll = request->coll,
                                     .n_ranks = (uint16_t)(is_message ? 2 : facts->n_ranks),
                                     .grouping = is_message ? NULL : facts->grouping,
                                     .is_placed = choice->path != GYRE_PATH_STAGED};
    struct gyre_program *program;
    struct gyre_fused_program found;
    if (facts->device_kind != GYRE_DEVICE_CUDA || facts->n_hosts > 1 || facts->n_ranks < 2 ||
        choice->path == GYRE_PATH_COPY_ENGINE ||
        gyre_algorithm_variants(choice->algorithm, &shape) > 1)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_algorithm_emit(choice->algorithm, &shape, 0, &program));
    gyre_fused_find(program, &found);
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = program->n_chunks,
                                     .tile_elems =
                                         gyre_piece_bytes(choice->tile_bytes, program->max_range),
                                     .unit_elems = 16};
    const uint64_t chunk_bytes =
        gyre_div_round_up(n_bytes, (uint64_t)split.n_channels * split.n_chunks) + split.unit_elems;
    const uint64_t transferred =
        gyre_div_round_up(n_bytes, split.n_chunks) * gyre_program_transfers(program);
    const struct gyre_fused_call call = {
        .proto = choice->proto,
        .pattern = found.pattern,
        .is_placed = found.is_placed,
        .in_host_memory = facts->in_host_memory,
        .n_peers = found.n_peers,
        .depth = facts->spec.depth,
        .most_shared_bytes = UINT32_MAX,
        .arithmetic =
            !gyre_fused_patterns[found.pattern].reduces ? GYRE_FUSED_COPY : GYRE_FUSED_FLOAT_SUM,
        .is_aligned = n_bytes % 16 == 0,
        .is_unscaled = true,
        .places_blocks = choice->proto == GYRE_PROTO_SIMPLE &&
                         transferred >= gyre_kernel_limits[GYRE_LIMIT_PLACEMENT_BYTES].number,
        .n_channels = choice->n_channels,
        .step_bytes = gyre_min_u64(chunk_bytes, split.tile_elems),
        .n_tiles = (uint32_t)gyre_min_u64(gyre_tile_count(&split), UINT32_MAX),
        .fits_two_rows = 2 * choice->n_channels <= facts->least_sms,
    };
    gyre_program_free(program);
    kernel_out->is_known = true;
    kernel_out->run = gyre_executor_run(facts->device_kind, &call);
    if (kernel_out->run.places_blocks)
        kernel_out->run.n_blocks = (uint16_t)facts->least_sms;
    return GYRE_SUCCESS;
}

static int text_bytes(const struct gyre_row *row)
{
    return (int)strcspn(row->text, "\n");
}

static void print_text(const struct request *request, const struct answer *answer)
{
    const struct gyre_choice *choice = &answer->choice;
    const struct gyre_why *why = &answer->why;
    const struct gyre_run *run = &answer->kernel.run;
    printf("%s of %zu B by %u ranks%s, %s: %s %s", gyre_collectives[request->coll].name,
           request->n_bytes, request->n_ranks, request->n_hosts > 1 ? " on several hosts" : "",
           machine_names[request->machine], choice->algorithm->name,
           gyre_proto_names[choice->proto]);
    printf("%s%s %s, %u channels, tiles of %u B\n", request->n_hosts > 1 ? "/" : "",
           request->n_hosts > 1 ? gyre_proto_names[choice->net_proto] : "",
           gyre_path_names[choice->path], choice->n_channels, choice->tile_bytes);
    if (choice->algorithm->given != NULL && choice->algorithm->from == NULL)
        printf("  by %s: %s%s\n", answer->from_file.file->name,
               name_of_like(choice->algorithm) != NULL ? "run as the built-in "
                                                       : "programs of no built-in algorithm",
               name_of_like(choice->algorithm) != NULL ? name_of_like(choice->algorithm) : "");
    else if (answer->predicted_us > 0)
        printf("  by prediction: %.2f us; gyre schedule --predict shows the other ways\n",
               answer->predicted_us);
    else if (choice->won[GYRE_WON_WAY] == NULL)
        printf("  by no row: GYRE_ALGO, GYRE_PROTO or GYRE_PATH left no other way\n");
    if (answer->predicted_us > 0 && request->lost_percent > 0)
        printf(choice->algorithm == &gyre_algorithm_leaf && answer->no_leaf == NULL
                   ? "  host 0 has %d %% of the other hosts' rate, which leaf leaves them\n"
                   : "  the NICs with %d %% of their rate, as the weakest host has\n",
               100 - request->lost_percent);
    if (answer->no_leaf != NULL && choice->algorithm != &gyre_algorithm_leaf)
        printf("  not leaf, which leaves the other hosts their rate: %s\n", answer->no_leaf);
    for (int i = 0; i < GYRE_N_WON; i++)
        if (choice->won[i] != NULL)
            printf("  %s:%u  %.*s\n    measured %.*s\n", choice->won[i]->file, choice->won[i]->line,
                   text_bytes(choice->won[i]), choice->won[i]->text,
                   (int)strcspn(choice->won[i]->measured, "\n"), choice->won[i]->measured);
    if (answer->kernel.is_known && run->kernel != NULL)
        printf("  kernels:%u  kernel %s, %u blocks of %u threads\n", run->row, run->kernel,
               run->n_blocks, run->n_threads);
    else if (answer->kernel.is_known && run->row > 0)
        printf("  kernels:%u  the steps are interpreted\n", run->row);
    else if (answer->kernel.is_known)
        printf("  no fused kernel: the steps are interpreted\n");
    if (answer->kernel.is_known && run->measured != NULL)
        printf("    measured %s\n", run->measured);
    if (answer->nccl.algorithm != NULL)
        printf("NCCL 2.30: %s %s, %u channels, tiles of %u B; %.2f us by its own tables\n",
               answer->nccl.name, gyre_proto_names[answer->nccl.proto], answer->nccl.n_channels,
               answer->nccl.tile_bytes, answer->nccl.estimated_us);
    for (size_t i = 0; i < why->n; i++)
        printf("%s  %s:%u  %.*s: %s\n", i == 0 ? "rows that do not fit:\n" : "",
               why->lost[i].row->file, why->lost[i].row->line, text_bytes(why->lost[i].row),
               why->lost[i].row->text, why->lost[i].reason);
}

static void put_row(const struct gyre_row *row)
{
    printf("{\"file\": \"%s\", \"line\": %u, \"row\": ", row->file, row->line);
    gyre_text_put_json(stdout, row->text, (size_t)text_bytes(row));
    printf(", \"measured\": ");
    gyre_text_put_json(stdout, row->measured, strcspn(row->measured, "\n"));
}

static void print_json(const struct request *request, const struct answer *answer)
{
    const struct gyre_choice *choice = &answer->choice;
    const struct gyre_why *why = &answer->why;
    const struct gyre_run *run = &answer->kernel.run;
    printf("{\"collective\": \"%s\", \"bytes\": %zu, \"ranks\": %u, \"hosts\": %u, \"machine\": "
           "\"%s\",\n \"algorithm\": \"%s\", \"protocol\": \"%s\", \"path\": \"%s\", "
           "\"channels\": %u, \"tile_bytes\": %u",
           gyre_collectives[request->coll].name, request->n_bytes, request->n_ranks,
           request->n_hosts, machine_names[request->machine], choice->algorithm->name,
           gyre_proto_names[choice->proto], gyre_path_names[choice->path], choice->n_channels,
           choice->tile_bytes);
    if (request->n_hosts > 1)
        printf(",\n \"protocol_between_hosts\": \"%s\"", gyre_proto_names[choice->net_proto]);
    if (name_of_like(choice->algorithm) != NULL)
        printf(",\n \"built_in\": \"%s\"", name_of_like(choice->algorithm));
    if (answer->predicted_us > 0)
        printf(",\n \"predicted_us\": %.3f", answer->predicted_us);
    if (answer->kernel.is_known)
        printf(",\n \"kernel\": \"%s\", \"blocks\": %u, \"threads\": %u, \"kernel_row\": %u",
               run->kernel != NULL ? run->kernel : "interpreter", run->n_blocks, run->n_threads,
               run->row);
    for (int i = 0; i < GYRE_N_WON; i++) {
        printf(",\n \"%s\": ", won_names[i]);
        if (choice->won[i] != NULL)
            put_row(choice->won[i]);
        printf("%s", choice->won[i] != NULL ? "}" : "null");
    }
    if (answer->nccl.algorithm != NULL)
        printf(",\n \"nccl\": {\"algorithm\": \"%s\", \"protocol\": \"%s\", \"channels\": %u, "
               "\"tile_bytes\": %u, \"estimated_us\": %.3f}",
               answer->nccl.name, gyre_proto_names[answer->nccl.proto], answer->nccl.n_channels,
               answer->nccl.tile_bytes, answer->nccl.estimated_us);
    printf(",\n \"lost\": [");
    for (size_t i = 0; i < why->n; i++) {
        printf("%s\n  ", i == 0 ? "" : ",");
        put_row(why->lost[i].row);
        printf(", \"reason\": ");
        gyre_text_put_json(stdout, why->lost[i].reason, strlen(why->lost[i].reason));
        printf("}");
    }
    printf("]}\n");
}

static gyre_status find_answer(const struct request *request, struct answer *answer)
{
    static struct gyre_params params;
    const struct gyre_collective_traits *traits = &gyre_collectives[request->coll];
    const size_t n_blocks = traits->in_blocks || traits->out_blocks ? request->n_ranks : 1;
    const uint64_t n_bytes = request->n_bytes / n_blocks;
    struct gyre_tuning tuning = {.is_set = false};
    struct gyre_tuner_facts facts;
    struct gyre_filter filter;
    const struct gyre_algorithm *given;
    struct gyre_shape shape = {.n_ranks = (uint16_t)request->n_ranks};
    double time_ns;
    GYRE_TRY(gyre_params_load(&params));
    GYRE_TRY(gyre_plugins_load_own());
    GYRE_TRY(gyre_filter_of(&params, &filter));
    if (gyre_param_is_set(&params, GYRE_PARAM_TUNING_FILE))
        GYRE_TRY(gyre_tuning_load(gyre_param_text(&params, GYRE_PARAM_TUNING_FILE), &tuning));
    if (request->library != NULL) {
        const struct gyre_contender_machine machine = {.gpu = GYRE_GPU_HOPPER,
                                                       .has_nvls = true,
                                                       .nic_gbytes =
                                                           gyre_cost_h200.nic_bytes_per_ns};
        const struct gyre_contender_call call = {.coll = request->coll,
                                                 .n_ranks = request->n_ranks,
                                                 .n_hosts = request->n_hosts,
                                                 .n_bytes = request->n_bytes};
        if (strcmp(request->library, "nccl") != 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--library %.40s: expected nccl",
                             request->library);
        if (request->n_ranks < 2)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--library nccl needs at least 2 ranks");
        GYRE_TRY(gyre_nccl_choose(&machine, &call, &answer->nccl));
    }
    GYRE_TRY(fill_facts(request, &tuning, &facts));
    facts.why = &answer->why;
    shape.grouping = facts.grouping;
    GYRE_TRY(find_given(&params, request, &facts, &filter, &answer->from_file, &given));
    GYRE_TRY(given != NULL
                 ? gyre_tuner_choose_given(&facts, &filter, given, n_bytes, &answer->choice)
                 : gyre_tuner_choose(&facts, &filter, request->coll, n_bytes, &answer->choice));
    if (given == NULL && answer->choice.won[GYRE_WON_WAY] == NULL && facts.cost != NULL &&
        gyre_tuner_predict(&facts, facts.cost, request->coll, &answer->choice, n_bytes, &time_ns) ==
            GYRE_SUCCESS)
        answer->predicted_us = time_ns / 1e3;
    if (answer->predicted_us > 0 && request->lost_percent > 0 &&
        request->coll == GYRE_COLL_ALL_REDUCE)
        answer->no_leaf = gyre_leaf_obstacle(&shape);
    return find_kernel(request, &facts, n_bytes, &answer->choice, &answer->kernel);
}

int bench_command_explain_choice(int argc, char **argv)
{
    static const struct bench_command_line line = {
        .options = table, .user = "gyre explain-choice", .has_arguments = true};
    static struct answer answer;
    struct request request = {
        .coll_name = "all_reduce", .n_ranks = 4, .n_hosts = 1, .machine = GYRE_ROWS_HOST};
    if (!bench_options_take(&line, argc, argv, &request))
        return 2;
    if (request.wants_help || optind != argc - 1) {
        FILE *file = request.wants_help ? stdout : stderr;
        bench_command_print_examples("explain-choice", file);
        fputs("usage: gyre explain-choice SIZE [options]\n", file);
        bench_options_print(table, 18, file);
        fputs("SIZE is that of the benches, such as 64K; sums are of float32.\n", file);
        return request.wants_help ? 0 : 2;
    }
    const int coll = gyre_collective_find(request.coll_name);
    if (coll < 0) {
        fprintf(stderr, "gyre explain-choice: --coll %s: there is no such collective\n",
                request.coll_name);
        return 2;
    }
    request.coll = (enum gyre_collective)coll;
    if (request.n_ranks % request.n_hosts != 0 ||
        (request.n_hosts > 1 && request.machine == GYRE_ROWS_GPU_HOST_MEMORY)) {
        fprintf(stderr,
                "gyre explain-choice: --hosts %u: expected a divisor of --ranks, and machine "
                "h200 or host\n",
                request.n_hosts);
        return 2;
    }
    if (bench_parse_bytes(argv[optind], &request.n_bytes) != GYRE_SUCCESS) {
        fprintf(stderr, "gyre explain-choice: %s\n", gyre_cause());
        return 2;
    }
    if (find_answer(&request, &answer) != GYRE_SUCCESS) {
        fprintf(stderr, "gyre explain-choice: %s\n", gyre_cause());
        return 1;
    }
    (request.as_json ? print_json : print_text)(&request, &answer);
    return 0;
}
