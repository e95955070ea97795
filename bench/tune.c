/* SPDX-License-Identifier: Apache-2.0
 *
 * tune times calls in every way, fits the simulator's constants, and writes the file that
 * GYRE_TUNING_FILE names.
 *
 *    tune -g 4 --output gyre_tuning.txt          or          mpirun -np 4 tune --output ...
 *    tune --from docs/performance/h200           fits to reports of benches instead
 */
#include "bench/report/report_reader.h"
#include "bench/report/table_file.h"
#include "bench/tools/fit.h"
#include "bench/tools/trials.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* All ranks wait for each other, so calls do not overlap. */
static const struct bench_case tuned[] = {
    {.coll = GYRE_COLL_ALL_REDUCE, .dtype = GYRE_FLOAT32, .op = GYRE_SUM},
    {.coll = GYRE_COLL_ALL_GATHER, .dtype = GYRE_FLOAT32, .op = GYRE_SUM},
    {.coll = GYRE_COLL_REDUCE_SCATTER, .dtype = GYRE_FLOAT32, .op = GYRE_SUM}};

struct rows {
    struct bench_fit_row rows[BENCH_MAX_TRIALS];
    size_t n_rows;
};

static gyre_status check_options(const struct bench_rank *rank)
{
    const struct bench_options *options = rank->options;
    const bool measures = options->from_folder == NULL;
    if (options->step_factor < 2)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "tune multiplies sizes: give -f 2 or more");
    if (measures && rank->self.n_ranks < 2)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "one rank sends nothing that constants could be fitted to: give -g 2 or "
                         "more, or start with mpirun or torchrun");
    if (!measures &&
        (options->algo != NULL || options->proto != NULL || options->result_path != NULL))
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "--from does not go with --algo, --proto or --path: all rows of the reports count");
    if (options->output_path == NULL || rank->self.rank != 0)
        return GYRE_SUCCESS;
    /* At the start, as a later failure wastes minutes. */
    struct bench_table_file file;
    GYRE_TRY(bench_table_file_open("--output", options->output_path, false, &file));
    return bench_table_file_close(&file);
}

static gyre_status write_cost(const struct bench_rank *rank, const struct gyre_tuner_facts *facts,
                              const struct gyre_cost *cost, const struct bench_fit *fit,
                              size_t n_rows)
{
    const char *path = rank->options->output_path;
    struct bench_table_file output = {.file = stdout};
    char *text = NULL, host[64] = "", stamp[32];
    const time_t now = time(NULL);
    struct tm parts;
    if (path != NULL)
        GYRE_TRY(bench_table_file_open("--output", path, false, &output));
    FILE *file = output.file;
    gethostname(host, sizeof(host) - 1);
    strftime(stamp, sizeof(stamp), "%Y-%m-%d", gmtime_r(&now, &parts));
    if (rank->options->from_folder != NULL)
        fprintf(file, "# gyre's simulator, fitted %s by gyre tune --from %s: up to\n", stamp,
                rank->options->from_folder);
    else
        fprintf(file, "# gyre's simulator on %s and like machines, measured %s by gyre tune:\n",
                host, stamp);
    fprintf(
        file,
        "# %u ranks on %u hosts, %s device. %d constants from %zu calls; typical error %.0f%%.\n",
        facts->n_ranks, facts->n_hosts, facts->device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host",
        fit->n_constants, n_rows, 100 * (exp(fit->error) - 1));
    gyre_status status = gyre_cost_to_text(cost, &text);
    if (status == GYRE_SUCCESS)
        fputs(text, file);
    free(text);
    if (path == NULL)
        return status;
    if (status == GYRE_SUCCESS)
        status = bench_table_file_put(&output);
    const gyre_status closed = bench_table_file_close(&output);
    return status != GYRE_SUCCESS ? status : closed;
}

static gyre_status fit_and_write(struct bench_rank *rank, const struct gyre_tuner_facts *facts,
                                 const struct gyre_cost *start, struct rows *rows)
{
    struct gyre_cost cost = *start;
    struct bench_fit fit;
    if (facts->device_kind == GYRE_DEVICE_HOST && rank->options->from_folder == NULL) {
        /* Not fitted: one thread runs a rank's workers. A call's two buffers and slots should fit a
         * core's second cache. */
        const long cache_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
        cost.parallel_workers = 1;
        if (cache_bytes > 0)
            cost.cached_bytes = (double)cache_bytes / 4;
        cost.cores_per_host = (double)sysconf(_SC_NPROCESSORS_ONLN);
    }
    GYRE_TRY(bench_fit(facts, rows->rows, rows->n_rows, &cost, &fit));
    printf("#%-14s %12s  %-8s %-7s %3s %7s %10s %10s %6s\n", "collective", "bytes", "algo", "proto",
           "ch", "tile", "measured", "fitted", "ratio");
    for (size_t i = 0; i < rows->n_rows; i++) {
        const struct bench_fit_row *row = &rows->rows[i];
        printf("%-15s %12llu  %-8s %-7s %3u %7u %10.2f %10.2f %6.2f\n",
               gyre_collectives[row->coll].name, (unsigned long long)row->n_bytes,
               row->choice.algorithm->name, gyre_proto_names[row->choice.proto],
               row->choice.n_channels, row->choice.tile_bytes, row->us, row->predicted_us,
               row->predicted_us / row->us);
    }
    printf("# %d constants fitted in %d iterations: typical error %.0f%%, before %.0f%%\n",
           fit.n_constants, fit.n_iterations, 100 * (exp(fit.error) - 1),
           100 * (exp(fit.before) - 1));
    return write_cost(rank, facts, &cost, &fit, rows->n_rows);
}

static gyre_status tune(struct bench_rank *rank)
{
    struct bench_trials *trials = calloc(1, sizeof(*trials));
    struct rows *rows = calloc(1, sizeof(*rows));
    gyre_status status = GYRE_SUCCESS;
    if (rows == NULL || trials == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for measurements");
    else
        status = check_options(rank);
    if (status == GYRE_SUCCESS && rank->options->from_folder == NULL)
        status = bench_list_trials(rank, tuned, GYRE_ARRAY_LENGTH(tuned), trials);
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS && rank->options->from_folder == NULL)
        status = bench_time_trials(rank, trials);
    if (status == GYRE_SUCCESS && rank->self.rank == 0) {
        for (int i = 0; i < trials->n_trials; i++) {
            const struct bench_trial *trial = &trials->trials[i];
            rows->rows[rows->n_rows++] = (struct bench_fit_row){
                .coll = trial->what.coll,
                .choice = trial->choice,
                .n_bytes = trial->what.count * gyre_dtype_bytes(trial->what.dtype),
                .us = trial->us,
            };
        }
        struct gyre_tuner_facts facts = *gyre_plan_facts(gyre_comm_plans(rank->comm));
        const struct gyre_cost *start = gyre_plan_cost(gyre_comm_plans(rank->comm));
        if (rank->options->from_folder != NULL) { /* without measuring */
            status = bench_reports_read(rank->options->from_folder, &facts, rows->rows,
                                        GYRE_ARRAY_LENGTH(rows->rows), &rows->n_rows);
            start = facts.device_kind == GYRE_DEVICE_CUDA ? &gyre_cost_h200 : &gyre_cost_host;
        }
        if (status == GYRE_SUCCESS)
            status = fit_and_write(rank, &facts, start, rows);
    }
    free(rows);
    free(trials);
    return bench_rank_agree(rank, status);
}

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "tune",
        .coll = GYRE_COLL_ALL_REDUCE,
        .run = tune,
        .min_bytes = 64,
        .max_bytes = 4 << 20,
        .step_factor = 16,
    };
    return bench_main(argc, argv, &kind);
}
