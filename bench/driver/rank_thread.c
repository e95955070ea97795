/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/rank.h"

#include "bench/driver/signals.h"
#include "bench/engines/compare.h"
#include "bench/report/output.h"
#include "bench/tools/trials.h"
#include "core/foundation/base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of one rank. */
struct table {
    struct bench_run *run;
    struct bench_rank rank;
    struct bench_place *places;
    struct bench_setting setting;
    struct bench_machine machine; /* only with --json */
    struct bench_engine engine;
    char engine_text[640];
    struct bench_output *output; /* on rank 0 */
    struct bench_summary summary;
    int n_halves;
    int n_inaccurate; /* failed lines of --accuracy */
};

/* The limit of --limits is for links within a host. */
static gyre_status read_limit(struct table *table)
{
    const char *path = table->run->options.limits_path;
    if (path == NULL)
        return GYRE_SUCCESS;
    if (table->rank.device_kind != GYRE_DEVICE_CUDA)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--limits %s: these are limits of GPUs, but the ranks are in host memory",
                         path);
    for (int i = 1; i < table->setting.n_ranks; i++)
        if (strcmp(table->places[i].host, table->places[0].host) != 0)
            return gyre_fail(
                GYRE_ERROR_UNSUPPORTED,
                "--limits has no limits of NICs, but rank %d is on %s and rank 0 on %s", i,
                table->places[i].host, table->places[0].host);
    return bench_limits_read(path, table->run->kind->coll, table->setting.n_ranks,
                             &table->setting.limit);
}

static gyre_status open_setting(struct table *table)
{
    struct bench_rank *rank = &table->rank;
    struct bench_place mine = {.rank = rank->self.rank, .pid = (int)getpid()};
    struct gyre_device_info info = {0};
    gethostname(mine.host, sizeof(mine.host) - 1);
    mine.host[strcspn(mine.host, ".")] = '\0';
    (void)rank->device->ops->info(rank->device, &info);
    mine.device = rank->ordinal < 0 ? rank->self.local : rank->ordinal;
    if (rank->device_kind == GYRE_DEVICE_CUDA) {
        snprintf(mine.pci, sizeof(mine.pci), "%.10s", info.pci_bus_id);
        snprintf(mine.device_text, sizeof(mine.device_text), "CUDA sm_%u, %u SMs", info.arch,
                 info.n_sms);
    } else {
        snprintf(mine.pci, sizeof(mine.pci), "0000:00:00");
        snprintf(mine.device_text, sizeof(mine.device_text), "host memory, %u processors",
                 info.n_sms);
    }
    table->places = calloc((size_t)rank->self.n_ranks, sizeof(*table->places));
    gyre_status status = table->places == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for places")
                             : GYRE_SUCCESS;
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(bench_ranks_all_gather(&rank->self, &mine, sizeof(mine), table->places));
    table->setting = (struct bench_setting){
        .options = &table->run->options,
        .kind = table->run->kind,
        .argc = table->run->argc,
        .argv = table->run->argv,
        .n_ranks = rank->self.n_ranks,
        .places = table->places,
        .device = rank->device->ops->name,
        .reference = table->engine_text,
        .machine = &table->machine,
    };
    return GYRE_SUCCESS;
}

static gyre_status measure_case(struct table *table, const struct bench_case *what, int cycle)
{
    struct bench_rank *rank = &table->rank;
    const struct bench_options *options = &table->run->options;
    const bool wants_samples = options->json_path != NULL || options->csv_path != NULL;
    struct bench_row row = {.what = *what, .cycle = cycle};
    struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    GYRE_TRY(bench_measure(rank, &call, wants_samples, &row.out_of_place));
    call = bench_call_of(rank, &rank->buffers, what, true);
    GYRE_TRY(bench_measure(rank, &call, wants_samples, &row.in_place));
    if (table->engine.ops != NULL) {
        /* MPI's broadcast is only in place; others compare out of place */
        call = bench_call_of(rank, &rank->buffers, what,
                             what->coll == GYRE_COLL_BROADCAST && !table->engine.ops->is_on_stream);
        GYRE_TRY(bench_compare(rank, &table->engine, &call, &row.comparison));
        call = bench_call_of(rank, &rank->buffers, what, true);
        if (table->engine.ops->is_on_stream && call.is_in_place)
            GYRE_TRY(bench_compare(rank, &table->engine, &call, &row.comparison_in_place));
    }
    call = bench_call_of(rank, &rank->buffers, what, false);
    if (table->output != NULL)
        row.plan = bench_plan_of(rank, &call);
    if (options->json_path != NULL)
        GYRE_TRY(bench_machine_clocks(rank, &table->machine, &row.clocks));
    const struct bench_timing *const halves[] = {&row.out_of_place, &row.in_place};
    for (int i = 0; i < 2; i++) {
        table->summary.busbw += halves[i]->busbw;
        table->summary.time_us += halves[i]->time_us;
        table->summary.launch_us += halves[i]->launch_us;
        table->n_halves++;
        if (halves[i]->n_wrong > 0)
            table->summary.n_wrong += halves[i]->n_wrong;
    }
    bench_progress_end(rank->progress);
    gyre_status status = GYRE_SUCCESS;
    if (table->output != NULL) {
        status = bench_output_row(table->output, &row);
        table->run->has_sweep_rows |= status == GYRE_SUCCESS;
    }
    return bench_rank_agree(rank, status);
}

static gyre_status is_interrupted(struct table *table, bool *is_interrupted_out)
{
    double any = bench_interrupt_number;
    GYRE_TRY(bench_max_over_ranks(&table->rank, &any, 1));
    *is_interrupted_out = any > 0;
    if (table->rank.self.local == 0)
        table->run->interrupted_by = (int)any;
    return GYRE_SUCCESS;
}

/* For one type, operation and root. @wanted: size and count are unset. */
static gyre_status measure_sizes(struct table *table, struct bench_case wanted, int cycle)
{
    const struct bench_options *options = &table->run->options;
    wanted.n_bytes = options->min_bytes;
    while (wanted.n_bytes <= options->max_bytes) {
        GYRE_TRY(is_interrupted(table, &table->summary.is_interrupted));
        if (table->summary.is_interrupted)
            return GYRE_SUCCESS;
        const struct bench_case what = bench_case_of(&wanted, table->rank.self.n_ranks);
        GYRE_TRY(measure_case(table, &what, cycle));
        wanted.n_bytes = bench_options_next_bytes(options, wanted.n_bytes);
    }
    return GYRE_SUCCESS;
}

static gyre_status measure_all(struct table *table, int cycle)
{
    struct bench_rank *rank = &table->rank;
    const struct bench_options *options = &table->run->options;
    const enum gyre_collective coll = table->run->kind->coll;
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const bool all_roots = options->root == BENCH_ALL && traits->has_root;
    const int n_dtypes = options->dtype == BENCH_ALL ? GYRE_N_DTYPES : 1;
    const int n_ops = options->op == BENCH_ALL && traits->reduces ? GYRE_N_OPS : 1;
    const bool is_mulsum = options->op == BENCH_MULSUM && traits->reduces;
    const int n_roots = all_roots ? rank->self.n_ranks : 1;
    for (int d = 0; d < n_dtypes; d++)
        for (int o = 0; o < n_ops; o++)
            for (int r = 0; r < n_roots; r++) {
                const struct bench_case wanted = {
                    .coll = coll,
                    .dtype = (gyre_dtype)(options->dtype == BENCH_ALL ? d : options->dtype),
                    .op = (gyre_op)(options->op == BENCH_ALL ? o
                                    : is_mulsum              ? GYRE_SUM
                                                             : options->op),
                    .is_mulsum = is_mulsum,
                    .root = options->root == BENCH_ALL ? r : options->root,
                };
                /* The operation belongs to communicator and type. Its factor is 1, so that the
                 * check of a sum holds. */
                const uint64_t one = is_mulsum ? gyre_premultiply_scalar(wanted.dtype, 1) : 0;
                gyre_status destroyed = GYRE_SUCCESS;
                if (is_mulsum)
                    GYRE_TRY(
                        gyre_op_create_premul_sum(&rank->mulsum, &one, wanted.dtype, rank->comm));
                const gyre_status status = measure_sizes(table, wanted, cycle);
                if (is_mulsum)
                    destroyed = gyre_op_destroy(rank->mulsum, rank->comm);
                GYRE_TRY(status);
                GYRE_TRY(destroyed);
                if (table->summary.is_interrupted)
                    return GYRE_SUCCESS;
            }
    return GYRE_SUCCESS;
}

static gyre_status finish(struct table *table, gyre_status status)
{
    const char *least = getenv("NCCL_TESTS_MIN_BW"); /* job scripts set it for nccl-tests */
    struct bench_summary *summary = &table->summary;
    if (table->n_halves > 0) {
        summary->busbw /= table->n_halves;
        summary->time_us /= table->n_halves;
        summary->launch_us /= table->n_halves;
    }
    summary->has_failed = status != GYRE_SUCCESS;
    summary->least_busbw =
        least == NULL || table->n_halves == 0 ? -1 : gyre_text_to_double(least, NULL);
    if (table->output != NULL) {
        const gyre_status closed = bench_output_close(table->output, summary);
        if (closed != GYRE_SUCCESS && status == GYRE_SUCCESS)
            bench_rank_print_error(&table->rank, closed);
        status = status != GYRE_SUCCESS ? status : closed;
    }
    if (table->rank.self.local == 0)
        bench_interrupt_close();
    if (table->engine.ops != NULL)
        table->engine.ops->close(table->engine.state);
    const bool is_too_slow = summary->busbw < summary->least_busbw * 0.9;
    if (table->rank.self.local == 0)
        table->run->exit_status = status != GYRE_SUCCESS || summary->n_wrong > 0 || is_too_slow ||
                                  table->n_inaccurate > 0;
    /* As a shell reports it, for processes that got no signal. */
    if (table->rank.self.local == 0 && table->run->interrupted_by != 0)
        table->run->exit_status = 128 + table->run->interrupted_by;
    return status;
}

static gyre_status run_bench(struct table *table)
{
    struct bench_rank *rank = &table->rank;
    if (rank->kind->run != NULL)
        return rank->kind->run(rank);
    if (rank->options->is_predict)
        return bench_rank_agree(rank, bench_predict(rank));
    if (rank->options->compare_algos != NULL) {
        GYRE_TRY(open_setting(table));
        return bench_rank_agree(rank, bench_compare_algos(rank, &table->setting, &table->engine));
    }
    if (rank->options->is_accuracy)
        return bench_accuracy(rank, &table->engine, &table->n_inaccurate);
    const int n_cycles = table->run->options.n_cycles;
    /* Scripts take the header as a sign that the table runs. */
    if (table->rank.self.local == 0)
        bench_interrupt_open();
    GYRE_TRY(open_setting(table));
    if (rank->options->json_path != NULL)
        bench_machine_open(rank, &table->machine);
    gyre_status status = rank->self.rank == 0 ? read_limit(table) : GYRE_SUCCESS;
    if (rank->self.rank == 0 && status == GYRE_SUCCESS)
        status = bench_output_open(&table->setting, &table->output);
    GYRE_TRY(bench_rank_agree(rank, status));
    for (int cycle = 0; n_cycles == 0 || cycle < n_cycles; cycle++) {
        GYRE_TRY(measure_all(table, cycle));
        if (table->summary.is_interrupted)
            break;
    }
    return GYRE_SUCCESS;
}

void *bench_rank_thread(void *thread)
{
    struct bench_run *run = ((const struct bench_thread *)thread)->run;
    const int local = ((const struct bench_thread *)thread)->local;
    const int n_local = run->ranks.n_local;
    struct table table = {
        .run = run,
        .rank = {
            .self = {&run->ranks, local, run->launcher.process * n_local + local,
                     run->launcher.n_processes * n_local},
            .options = &run->options,
            .kind = run->kind,
            .allowed = run->allowed,
            .progress = run->launcher.process == 0 && local == 0 ? run->progress : NULL,
        }};
    struct bench_rank *rank = &table.rank;
    gyre_status status = GYRE_SUCCESS;
    if (run->options.root >= rank->self.n_ranks)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "-r %d: the ranks are 0 to %d",
                           run->options.root, rank->self.n_ranks - 1);
    if (status == GYRE_SUCCESS)
        status = bench_rank_open(rank, &run->id, run->comms);
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS && run->options.compare != NULL) {
        struct bench_engine *engine = &table.engine;
        const struct bench_engine_ops *ops = NULL;
        status = bench_engine_find(run->options.compare, &ops);
        if (status == GYRE_SUCCESS)
            status = ops->open(rank, &engine->state);
        if (status == GYRE_SUCCESS) {
            engine->ops = ops;
            status = ops->version(engine->state, table.engine_text, sizeof(table.engine_text));
        }
        status = bench_rank_agree(rank, status);
    }
    if (local == 0)
        bench_dump_set(rank->comm);
    if (status == GYRE_SUCCESS)
        status = run_bench(&table);
    bench_progress_end(rank->progress);
    (void)finish(&table, status);
    bench_machine_close(&table.machine);
    if (local == 0)
        bench_dump_set(NULL);
    bench_rank_close(rank);
    free(table.places);
    return NULL;
}
