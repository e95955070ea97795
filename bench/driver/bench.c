/* SPDX-License-Identifier: Apache-2.0
 *
 * From main() to the exit status: options, processes, ranks as threads, the sweep over sizes.
 */
#include "bench/driver/bench.h"

#include "bench/engines/accuracy.h"
#include "bench/tools/choices.h"
#include "bench/engines/compare.h"
#include "bench/driver/interrupt.h"
#include "bench/driver/memory.h"
#include "bench/report/output.h"
#include "bench/launch/rendezvous.h"
#include "bench/driver/streams.h"
#include "bench/driver/sweep.h"
#include "bench/launch/terms.h"
#include "core/base/param.h"
#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One process's part of the run. */
struct run {
    struct bench_options options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    struct bench_world world;
    struct bench_team team;
    struct bench_progress *progress;
    gyre_unique_id id;
    gyre_comm **comms;  /* by local rank, when all ranks live here; else NULL */
    int exit_status;    /* written by local rank 0 */
    int interrupted_by; /* likewise; the signal that some process got, 0 = none */
};

/* One rank thread's part. */
struct sweep {
    struct run *run;
    struct bench_rank rank;
    struct bench_place *places;
    struct bench_setting setting;
    struct bench_machine machine; /* open with --json only */
    struct bench_reference reference;
    char reference_text[192];
    struct bench_output *output; /* rank 0 only */
    struct bench_summary summary;
    int n_halves;     /* in the mean of the summary */
    int n_inaccurate; /* lines of --accuracy that failed */
};

static void describe_place(struct sweep *sweep, struct bench_place *place)
{
    const struct bench_rank *rank = &sweep->rank;
    struct gyre_device_info info = {0};
    *place = (struct bench_place){.rank = rank->member.rank, .pid = (int)getpid()};
    gethostname(place->host, sizeof(place->host) - 1);
    place->host[strcspn(place->host, ".")] = '\0';
    (void)rank->device->ops->info(rank->device, &info);
    place->device = rank->ordinal < 0 ? rank->member.local : rank->ordinal;
    if (rank->device_kind == GYRE_DEVICE_CUDA) {
        snprintf(place->pci, sizeof(place->pci), "%.10s", info.pci_bus_id);
        snprintf(place->words, sizeof(place->words), "CUDA sm_%u, %u SMs", info.arch, info.n_sms);
    } else {
        snprintf(place->pci, sizeof(place->pci), "0000:00:00");
        snprintf(place->words, sizeof(place->words), "host memory, %u processors", info.n_sms);
    }
}

static gyre_status open_reference(struct sweep *sweep)
{
    const char *name = sweep->run->options.compare;
    if (name == NULL)
        return GYRE_SUCCESS;
    const struct bench_reference_ops *ops;
    GYRE_TRY(bench_reference_find(name, &ops));
    GYRE_TRY(ops->open(&sweep->rank, &sweep->reference.state));
    sweep->reference.ops = ops;
    return ops->version(sweep->reference.state, sweep->reference_text,
                        sizeof(sweep->reference_text));
}

/* What --limits measured are the links between one host's GPUs. */
static gyre_status read_limit(struct sweep *sweep)
{
    const char *path = sweep->run->options.limits_path;
    if (path == NULL)
        return GYRE_SUCCESS;
    if (sweep->rank.device_kind != GYRE_DEVICE_CUDA)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--limits %s: these are limits of GPUs, but the ranks are in host memory",
                         path);
    for (int i = 1; i < sweep->setting.n_ranks; i++)
        if (strcmp(sweep->places[i].host, sweep->places[0].host) != 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "--limits: no NIC was measured, but rank %d is on %s and rank 0 on %s",
                             i, sweep->places[i].host, sweep->places[0].host);
    return bench_limits_read(path, sweep->run->kind->coll, sweep->setting.n_ranks,
                             &sweep->setting.limit);
}

/* Places of all ranks, then rank 0's outputs. */
static gyre_status open_output(struct sweep *sweep)
{
    struct bench_rank *rank = &sweep->rank;
    struct bench_place mine;
    describe_place(sweep, &mine);
    sweep->places = calloc((size_t)rank->member.n_ranks, sizeof(*sweep->places));
    gyre_status status =
        sweep->places == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "places") : GYRE_SUCCESS;
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(bench_team_all_gather(&rank->member, &mine, sizeof(mine), sweep->places));
    sweep->setting = (struct bench_setting){
        .options = &sweep->run->options,
        .kind = sweep->run->kind,
        .argc = sweep->run->argc,
        .argv = sweep->run->argv,
        .n_ranks = rank->member.n_ranks,
        .places = sweep->places,
        .device = rank->device->ops->name,
        .reference = sweep->reference_text,
        .machine = &sweep->machine,
    };
    if (sweep->run->options.json_path != NULL)
        bench_machine_open(rank, &sweep->machine);
    if (rank->member.rank == 0) {
        status = read_limit(sweep);
        if (status == GYRE_SUCCESS)
            status = bench_output_open(&sweep->setting, &sweep->output);
    }
    return bench_rank_agree(rank, status);
}

static gyre_status take_row(struct sweep *sweep, const struct bench_row *row)
{
    const struct bench_timing *const halves[] = {&row->out_of_place, &row->in_place};
    for (int i = 0; i < 2; i++) {
        sweep->summary.busbw += halves[i]->busbw;
        sweep->summary.time_us += halves[i]->time_us;
        sweep->summary.launch_us += halves[i]->launch_us;
        sweep->n_halves++;
        if (halves[i]->n_wrong > 0)
            sweep->summary.n_wrong += halves[i]->n_wrong;
    }
    bench_progress_end(sweep->rank.progress);
    gyre_status status = GYRE_SUCCESS;
    if (sweep->output != NULL)
        status = bench_output_row(sweep->output, row);
    return bench_rank_agree(&sweep->rank, status);
}

/* How the row came about, as far as reports want to know. */
static gyre_status describe_row(struct sweep *sweep, struct bench_row *row)
{
    struct bench_rank *rank = &sweep->rank;
    const struct bench_case *what = &row->what;
    const struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    const struct gyre_call planned = {.coll = what->coll,
                                      .send = call.send,
                                      .recv = call.recv,
                                      .count = what->count,
                                      .dtype = what->dtype,
                                      .op = what->op,
                                      .root = what->root,
                                      .is_send = true};
    /* It simulates the call, which for many ranks takes memory and time: once is enough. */
    if (sweep->output != NULL &&
        gyre_plan_describe(rank->comm, &planned, &row->plan) != GYRE_SUCCESS)
        row->plan = (struct gyre_plan_summary){0}; /* then the report leaves it out */
    if (sweep->run->options.json_path == NULL)
        return GYRE_SUCCESS;
    return bench_machine_clocks(rank, &sweep->machine, &row->clocks);
}

static gyre_status measure_case(struct sweep *sweep, const struct bench_case *what, int cycle)
{
    struct bench_rank *rank = &sweep->rank;
    const struct bench_options *options = &sweep->run->options;
    const bool wants_samples = options->json_path != NULL || options->csv_path != NULL;
    struct bench_row row = {.what = *what, .cycle = cycle};
    struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    GYRE_TRY(bench_measure(rank, &call, wants_samples, &row.out_of_place));
    call = bench_call_of(rank, &rank->buffers, what, true);
    GYRE_TRY(bench_measure(rank, &call, wants_samples, &row.in_place));
    if (sweep->reference.ops != NULL) {
        /* MPI's broadcast knows in place only; the others are compared out of place. */
        call =
            bench_call_of(rank, &rank->buffers, what,
                          what->coll == GYRE_COLL_BROADCAST && !sweep->reference.ops->is_on_stream);
        GYRE_TRY(bench_compare(rank, &sweep->reference, &call, &row.comparison));
        if (sweep->reference.ops->is_on_stream) {
            call = bench_call_of(rank, &rank->buffers, what, true);
            GYRE_TRY(bench_compare(rank, &sweep->reference, &call, &row.comparison_in_place));
        }
    }
    GYRE_TRY(describe_row(sweep, &row));
    return take_row(sweep, &row);
}

/* Was any process interrupted? The same answer on all ranks. */
static gyre_status is_interrupted(struct sweep *sweep, bool *is_interrupted_out)
{
    double any = bench_interrupt_number();
    GYRE_TRY(bench_longest(&sweep->rank, &any, 1));
    *is_interrupted_out = any > 0;
    if (sweep->rank.member.local == 0)
        sweep->run->interrupted_by = (int)any;
    return GYRE_SUCCESS;
}

/* All sizes of one type, operation and root. */
static gyre_status sweep_sizes(struct sweep *sweep, gyre_dtype dtype, gyre_op op, int root,
                               int cycle)
{
    const struct bench_options *options = &sweep->run->options;
    size_t n_bytes = options->min_bytes;
    while (n_bytes <= options->max_bytes) {
        GYRE_TRY(is_interrupted(sweep, &sweep->summary.is_interrupted));
        if (sweep->summary.is_interrupted)
            return GYRE_SUCCESS;
        const struct bench_case what = bench_case_of(
            sweep->run->kind->coll, sweep->rank.member.n_ranks, n_bytes, dtype, op, root);
        GYRE_TRY(measure_case(sweep, &what, cycle));
        n_bytes = bench_options_next_bytes(options, n_bytes);
    }
    return GYRE_SUCCESS;
}

/* -o, -d, -r: one or all of each. */
static gyre_status sweep_all(struct sweep *sweep, int cycle)
{
    const struct bench_options *options = &sweep->run->options;
    const struct gyre_collective_traits *traits = &gyre_collectives[sweep->run->kind->coll];
    const bool all_roots = options->root == BENCH_ALL && traits->has_root;
    const int n_dtypes = options->dtype == BENCH_ALL ? GYRE_N_DTYPES : 1;
    const int n_ops = options->op == BENCH_ALL && traits->reduces ? GYRE_N_OPS : 1;
    const int n_roots = all_roots ? sweep->rank.member.n_ranks : 1;
    for (int d = 0; d < n_dtypes; d++)
        for (int o = 0; o < n_ops; o++)
            for (int r = 0; r < n_roots; r++) {
                const int dtype = options->dtype == BENCH_ALL ? d : options->dtype;
                const int op = options->op == BENCH_ALL ? o : options->op;
                const int root = options->root == BENCH_ALL ? r : options->root;
                GYRE_TRY(sweep_sizes(sweep, (gyre_dtype)dtype, (gyre_op)op, root, cycle));
                if (sweep->summary.is_interrupted)
                    return GYRE_SUCCESS;
            }
    return GYRE_SUCCESS;
}

static gyre_status run_sweep(struct sweep *sweep)
{
    const struct bench_options *options = &sweep->run->options;
    for (int cycle = 0; options->n_cycles == 0 || cycle < options->n_cycles; cycle++) {
        GYRE_TRY(sweep_all(sweep, cycle));
        if (sweep->summary.is_interrupted)
            break;
    }
    return GYRE_SUCCESS;
}

static gyre_status check_root(const struct sweep *sweep)
{
    const int n_ranks = sweep->rank.member.n_ranks;
    if (sweep->run->options.root >= n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "-r %d: the ranks are 0 to %d",
                         sweep->run->options.root, n_ranks - 1);
    return GYRE_SUCCESS;
}

static gyre_status finish(struct sweep *sweep, gyre_status status)
{
    const char *least = getenv("NCCL_TESTS_MIN_BW"); /* job scripts set it for nccl-tests */
    struct bench_summary *summary = &sweep->summary;
    if (sweep->n_halves > 0) {
        summary->busbw /= sweep->n_halves;
        summary->time_us /= sweep->n_halves;
        summary->launch_us /= sweep->n_halves;
    }
    summary->has_failed = status != GYRE_SUCCESS;
    summary->least_busbw = least == NULL || sweep->n_halves == 0 ? -1 : strtod(least, NULL);
    if (sweep->output != NULL) {
        const gyre_status closed = bench_output_close(sweep->output, summary);
        if (closed != GYRE_SUCCESS && status == GYRE_SUCCESS)
            bench_rank_say(&sweep->rank, closed);
        status = status != GYRE_SUCCESS ? status : closed;
    }
    if (sweep->rank.member.local == 0)
        bench_interrupt_close();
    if (sweep->reference.ops != NULL)
        sweep->reference.ops->close(sweep->reference.state);
    const bool is_too_slow = summary->busbw < summary->least_busbw * 0.9;
    if (sweep->rank.member.local == 0)
        sweep->run->exit_status = status != GYRE_SUCCESS || summary->n_wrong > 0 || is_too_slow ||
                                  sweep->n_inaccurate > 0;
    /* As a shell reports the signal, for processes that did not get it themselves. */
    if (sweep->rank.member.local == 0 && sweep->run->interrupted_by != 0)
        sweep->run->exit_status = 128 + sweep->run->interrupted_by;
    return status;
}

static gyre_status run_table(struct sweep *sweep)
{
    if (sweep->rank.member.local == 0) /* before the header is out, which says that it runs */
        bench_interrupt_open();
    GYRE_TRY(open_output(sweep));
    return run_sweep(sweep);
}

static void *rank_main(void *argument)
{
    struct sweep *sweep = argument;
    struct bench_rank *rank = &sweep->rank;
    gyre_status status = check_root(sweep);
    if (status == GYRE_SUCCESS)
        status = bench_rank_open(rank, &sweep->run->id, sweep->run->comms);
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS) {
        status = open_reference(sweep);
        status = bench_rank_agree(rank, status);
    }
    if (status == GYRE_SUCCESS && rank->kind->run != NULL)
        status = rank->kind->run(rank);
    else if (status == GYRE_SUCCESS && rank->options->is_predict)
        status = bench_rank_agree(rank, bench_predict(rank));
    else if (status == GYRE_SUCCESS && rank->options->is_accuracy)
        status = bench_accuracy(rank, &sweep->reference, &sweep->n_inaccurate);
    else if (status == GYRE_SUCCESS)
        status = run_table(sweep);
    bench_progress_end(rank->progress);
    (void)finish(sweep, status);
    bench_machine_close(&sweep->machine);
    bench_rank_close(rank);
    free(sweep->places);
    return NULL;
}

/* Ranks that all live here need no rendezvous; else rank 0's process names one. */
static gyre_status prepare_comms(struct run *run)
{
    const int n_local = run->team.n_local;
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = run->options.device;
    if (run->options.n_channels > 0)
        config.min_channels = config.max_channels = run->options.n_channels;
    if (run->options.timeout_s > 0)
        config.timeout_ms = run->options.timeout_s * 1000;
    if (run->world.n_processes == 1) {
        run->comms = calloc((size_t)n_local, sizeof(gyre_comm *));
        if (run->comms == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%d communicators", n_local);
        return gyre_comm_init_all(run->comms, n_local, NULL, &config);
    }
    return bench_rendezvous(&run->world, n_local, &config, &run->id);
}

static gyre_status run_ranks(struct run *run)
{
    const int n_local = run->team.n_local;
    pthread_t *threads = calloc((size_t)n_local, sizeof(*threads));
    struct sweep *sweeps = calloc((size_t)n_local, sizeof(*sweeps));
    gyre_status status = GYRE_SUCCESS;
    if (threads == NULL || sweeps == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%d ranks", n_local);
        goto done;
    }
    for (int i = 0; i < n_local; i++) {
        sweeps[i].run = run;
        sweeps[i].rank = (struct bench_rank){
            .member = {&run->team, i, run->world.process * n_local + i,
                       run->world.n_processes * n_local},
            .options = &run->options,
            .kind = run->kind,
            .progress = run->world.process == 0 && i == 0 ? run->progress : NULL,
        };
    }
    for (int i = 1; i < n_local; i++) {
        const int result = pthread_create(&threads[i], NULL, rank_main, &sweeps[i]);
        if (result != 0) { /* the ranks that started wait for this one: nothing can go on */
            fprintf(stderr, "%s: thread of rank %d: %s\n", run->kind->name, i, strerror(result));
            _exit(1);
        }
    }
    rank_main(&sweeps[0]); /* on the main thread: only that one may use MPI */
    for (int i = 1; i < n_local; i++)
        pthread_join(threads[i], NULL);
done:
    free(threads);
    free(sweeps);
    return status;
}

/* Forced choices are read when a communicator is made: one communicator each. */
static gyre_status run_combination(struct run *run, const struct bench_combination *combination)
{
    char json_path[PATH_MAX], csv_path[PATH_MAX];
    const struct bench_options given = run->options;
    if (given.json_path != NULL) {
        GYRE_TRY(bench_sweep_path(given.json_path, combination, json_path));
        run->options.json_path = json_path;
    }
    if (given.csv_path != NULL) {
        GYRE_TRY(bench_sweep_path(given.csv_path, combination, csv_path));
        run->options.csv_path = csv_path;
    }
    if (combination->algo[0] != '\0')
        setenv("GYRE_ALGO", combination->algo, 1);
    if (combination->proto[0] != '\0')
        setenv("GYRE_PROTO", combination->proto, 1);
    run->options.n_channels = (int)strtol(combination->channels, NULL, 10);
    gyre_status status = prepare_comms(run);
    if (status == GYRE_SUCCESS)
        status = run_ranks(run);
    free(run->comms);
    run->comms = NULL;
    run->options = given;
    return status;
}

static gyre_status run_combinations(struct run *run)
{
    struct bench_combination combination;
    int n_failed = 0;
    for (int i = 0; bench_sweep_find(&run->options, i, &combination); i++) {
        GYRE_TRY(run_combination(run, &combination));
        n_failed += run->exit_status != 0; /* said why; the others may still work */
        if (run->interrupted_by != 0)
            return GYRE_SUCCESS;
    }
    run->exit_status = n_failed > 0;
    return GYRE_SUCCESS;
}

static gyre_status run_process(struct run *run)
{
    GYRE_TRY(bench_world_open(&run->world));
    const int n_local = run->options.n_threads * run->options.n_gpus;
    gyre_status status;
    GYRE_TRY_GOTO(status, bench_terms_agree(&run->world, run->kind, &run->options), close_world);
    GYRE_TRY_GOTO(status, bench_memory_agree(&run->world, run->kind, &run->options, n_local),
                  close_world);
    GYRE_TRY_GOTO(status, bench_team_open(&run->world, n_local, &run->team), close_world);
    if (!run->options.is_sweep)
        GYRE_TRY_GOTO(status, prepare_comms(run), close_team);
    GYRE_TRY_GOTO(status, bench_progress_open(&run->progress), close_team);
    status = run->options.is_sweep ? run_combinations(run) : run_ranks(run);
    bench_progress_close(run->progress);
close_team:
    free(run->comms);
    bench_team_close(&run->team);
close_world:
    run->world.ops->close(&run->world);
    return status;
}

/* What the plan may choose from is the library's variable; options win over it. */
static void set_variables(const struct bench_options *options)
{
    if (options->result_path != NULL)
        setenv("GYRE_PATH", options->result_path, 1);
    if (options->is_sweep)
        return;
    if (options->algo != NULL)
        setenv("GYRE_ALGO", options->algo, 1);
    if (options->proto != NULL)
        setenv("GYRE_PROTO", options->proto, 1);
}

static int run_bench(int argc, char **argv, const struct bench_kind *kind)
{
    struct run run = {.kind = kind, .argc = argc, .argv = argv, .exit_status = 1};
    gyre_status status = bench_options_parse(argc, argv, kind, &run.options);
    if (status == GYRE_SUCCESS && run.options.wants_help) {
        bench_options_print_help(kind->name);
        return 0;
    }
    if (status == GYRE_SUCCESS && run.options.wants_variables) {
        gyre_params_print_help(stdout);
        return 0;
    }
    if (status == GYRE_SUCCESS) {
        set_variables(&run.options);
        status = run_process(&run);
    }
    if (status != GYRE_SUCCESS) {
        char cause[GYRE_CAUSE_MAX_BYTES];
        bench_options_blame(&run.options, cause);
        fprintf(stderr, "%s: %s: %s\n", kind->name, gyre_status_name(status), cause);
        return 1;
    }
    return run.exit_status;
}

int bench_main(int argc, char **argv, const struct bench_kind *kind)
{
    bench_streams_open();
    const int exit_status = bench_streams_close(kind->name, run_bench(argc, argv, kind));
    bench_interrupt_exit();
    return exit_status;
}
