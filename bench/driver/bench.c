/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/option_table.h"
#include "bench/driver/rank.h"
#include "bench/driver/signals.h"
#include "bench/launch/launcher.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Several processes need a rendezvous, a single one makes its communicators at once. */
static gyre_status prepare_comms(struct bench_run *run)
{
    const gyre_config config = bench_config_of(&run->options);
    if (run->launcher.n_processes > 1)
        return bench_rendezvous(&run->launcher, run->ranks.n_local, &config, &run->id);
    const int n_local = run->ranks.n_local;
    int *ordinals = calloc((size_t)n_local, sizeof(*ordinals));
    gyre_status status = GYRE_SUCCESS;
    run->comms = calloc((size_t)n_local, sizeof(gyre_comm *));
    if (ordinals == NULL || run->comms == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d communicators", n_local);
    for (int i = 0; i < n_local && status == GYRE_SUCCESS; i++)
        status = bench_rank_ordinal(&run->options, &run->ranks, i, &ordinals[i]);
    if (status == GYRE_SUCCESS)
        status = gyre_comm_init_all(run->comms, n_local, ordinals, &config);
    free(ordinals);
    return status;
}

static gyre_status run_ranks(struct bench_run *run)
{
    const int n_local = run->ranks.n_local;
    struct bench_thread *threads = calloc((size_t)n_local, sizeof(*threads));
    if (threads == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", n_local);
    for (int i = 0; i < n_local; i++) {
        threads[i] = (struct bench_thread){.run = run, .local = i};
        const int result =
            i == 0 ? 0 : pthread_create(&threads[i].id, NULL, bench_rank_thread, &threads[i]);
        if (result != 0) { /* other ranks already wait for this one */
            fprintf(stderr, "%s: cannot start the thread of rank %d: %s\n", run->kind->name, i,
                    strerror(result));
            _exit(1);
        }
    }
    (void)bench_rank_thread(&threads[0]); /* the main thread, which alone may use MPI */
    for (int i = 1; i < n_local; i++)
        pthread_join(threads[i].id, NULL);
    free(threads);
    return GYRE_SUCCESS;
}

/* NULL is one empty word. */
static int count_words(const char *list)
{
    int n = 1;
    for (const char *at = list; at != NULL && *at != '\0'; at++)
        n += *at == ',';
    return n;
}

static void copy_word(const char *list, int i, char word_out[32])
{
    const char *at = list == NULL ? "" : list;
    for (; i > 0; i--)
        at = strchr(at, ',') + 1;
    snprintf(word_out, 32, "%.*s", (int)strcspn(at, ","), at);
}

bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out)
{
    const int n_protos = count_words(options->proto);
    const int n_channels = count_words(options->channels);
    if (i >= count_words(options->algo) * n_protos * n_channels)
        return false;
    copy_word(options->algo, i / n_channels / n_protos, combination_out->algo);
    copy_word(options->proto, i / n_channels % n_protos, combination_out->proto);
    copy_word(options->channels, i % n_channels, combination_out->channels);
    return true;
}

gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX])
{
    const char *const words[] = {combination->algo, combination->proto, combination->channels};
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.'); /* a leading dot starts no extension */
    const size_t n_stem = dot == NULL || dot == name ? strlen(path) : (size_t)(dot - path);
    char suffix[128] = "";
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++)
        if (words[i][0] != '\0')
            gyre_text_append(suffix, sizeof(suffix), "%c%s", suffix[0] == '\0' ? '.' : '-',
                             words[i]);
    if (snprintf(path_out, PATH_MAX, "%.*s%s%s", (int)n_stem, path, suffix, path + n_stem) >=
        PATH_MAX)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--sweep: the name of a report is too long");
    return GYRE_SUCCESS;
}

static gyre_status run_combinations(struct bench_run *run)
{
    struct bench_combination combination;
    int n_failed = 0;
    for (int i = 0; bench_combination_find(&run->options, i, &combination); i++) {
        /* A communicator's number of channels is fixed, so each combination has its own. */
        char json_path[PATH_MAX], csv_path[PATH_MAX];
        const struct bench_options given = run->options;
        if (given.json_path != NULL) {
            GYRE_TRY(bench_combination_path(given.json_path, &combination, json_path));
            run->options.json_path = json_path;
        }
        if (given.csv_path != NULL) {
            GYRE_TRY(bench_combination_path(given.csv_path, &combination, csv_path));
            run->options.csv_path = csv_path;
            if (strcmp(csv_path, given.csv_path) != 0)
                run->options.sweep_csv_path = given.csv_path;
            run->options.appends_to_sweep = run->has_sweep_rows;
        }
        if (combination.algo[0] != '\0')
            run->allowed.algos = combination.algo;
        if (combination.proto[0] != '\0')
            run->allowed.protos = combination.proto;
        run->options.n_channels = (int)strtol(combination.channels, NULL, 10);
        gyre_status status = prepare_comms(run);
        if (status == GYRE_SUCCESS)
            status = run_ranks(run);
        free(run->comms);
        run->comms = NULL;
        run->options = given;
        run->allowed = bench_options_allowed(&given);
        GYRE_TRY(status);
        n_failed += run->exit_status != 0; /* after a printed cause others may still work */
        if (run->interrupted_by != 0)
            return GYRE_SUCCESS;
    }
    run->exit_status = n_failed > 0;
    return GYRE_SUCCESS;
}

static gyre_status run_process(struct bench_run *run)
{
    GYRE_TRY(bench_launcher_open(&run->launcher));
    const int n_local = run->options.n_threads * run->options.n_gpus;
    if (run->launcher.process == 0)
        for (const char *line = run->options.notes; *line != '\0'; line += strcspn(line, "\n") + 1)
            fprintf(stderr, "%s: %.*s\n", run->kind->name, (int)strcspn(line, "\n"), line);
    gyre_status status;
    GYRE_TRY_GOTO(status, bench_options_agree(&run->launcher, run->kind, &run->options),
                  close_launcher);
    GYRE_TRY_GOTO(status, bench_memory_agree(&run->launcher, &run->options, n_local),
                  close_launcher);
    GYRE_TRY_GOTO(status, bench_ranks_open(&run->launcher, n_local, &run->ranks), close_launcher);
    GYRE_TRY_GOTO(status, bench_dump_open(), close_ranks);
    if (!run->options.is_sweep)
        GYRE_TRY_GOTO(status, prepare_comms(run), close_dump);
    GYRE_TRY_GOTO(status, bench_progress_open(&run->progress), close_dump);
    status = run->options.is_sweep ? run_combinations(run) : run_ranks(run);
    bench_progress_close(run->progress);
close_dump:
    bench_dump_close();
close_ranks:
    free(run->comms);
    bench_ranks_close(&run->ranks);
close_launcher:
    run->launcher.ops->close(&run->launcher);
    return status;
}

static int run_bench(int argc, char **argv, const struct bench_kind *kind)
{
    struct bench_run run = {.kind = kind, .argc = argc, .argv = argv, .exit_status = 1};
    gyre_status status = bench_options_parse(argc, argv, kind, &run.options);
    const bool is_usage_wrong = status != GYRE_SUCCESS;
    if (status == GYRE_SUCCESS && run.options.wants_help) {
        bench_options_print_help(argv[0]);
        return 0;
    }
    if (status == GYRE_SUCCESS && run.options.wants_variables) {
        gyre_params_print_help(stdout);
        return 0;
    }
    if (status == GYRE_SUCCESS && run.options.algo_file != NULL) {
        struct gyre_algo_file file = {0}; /* is right before the ranks meet */
        status = gyre_algo_file_load(run.options.algo_file, "--algo-file", &file);
        if (status == GYRE_SUCCESS)
            gyre_algo_file_free(&file);
    }
    if (status == GYRE_SUCCESS) {
        run.allowed = bench_options_allowed(&run.options);
        status = run_process(&run);
    }
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", kind->name, gyre_status_name(status), gyre_cause());
        return is_usage_wrong ? 2 : 1;
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
