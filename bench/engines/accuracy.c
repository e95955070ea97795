/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre and the engine sum the same random inputs, with new ones until a size has enough results for
 * a meaningful largest error.
 */
#include "bench/engines/compare.h"

#include "bench/check/pattern.h"
#include "bench/driver/rank.h"

#include <stdio.h>
#include <string.h>

#define MIN_RESULTS (1 << 18) /* of a line */

/* Errors of correct engines differ by chance. Over MIN_RESULTS their means differ by less than 1 %
 * and their maxima by at most 1.19 (180 simulated trials, 2026-11). */
#define MAX_FACTOR  1.25
#define MEAN_FACTOR 1.02

bool bench_is_as_accurate(const struct bench_accuracy *gyre, const struct bench_accuracy *reference)
{
    return gyre->max <= reference->max * MAX_FACTOR && gyre->mean <= reference->mean * MEAN_FACTOR;
}

struct side {
    const struct bench_engine *engine; /* NULL = gyre */
    const char *mode;
    const struct bench_buffers *buffers;
    struct gyre_accuracy_error error;
    struct bench_accuracy accuracy; /* the same on all ranks */
};

struct counts {
    int n_lines;
    int n_failed;
    bool is_printed[GYRE_N_DTYPES]; /* why the engine cannot do the type */
};

static gyre_status check_options(const struct bench_rank *rank)
{
    const struct bench_options *options = rank->options;
    if (rank->kind->coll != GYRE_COLL_ALL_REDUCE)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--accuracy measures allreduce only");
    if (options->op != GYRE_SUM)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--accuracy measures sums only (-o sum)");
    if (options->dtype != BENCH_ALL && !gyre_dtype_is_float((gyre_dtype)options->dtype))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--accuracy measures floating-point types only: sums of %s are exact",
                         gyre_dtype_names[options->dtype]);
    return GYRE_SUCCESS;
}

/* The result is cleared, so that no other side's can stand for it. */
static gyre_status measure_call(struct bench_rank *rank, const struct bench_case *what,
                                struct side *side)
{
    struct gyre_device *device = rank->device;
    const struct bench_call call = bench_call_of(rank, side->buffers, what, false);
    const struct gyre_accuracy_inputs inputs = {what->dtype, (uint32_t)rank->self.n_ranks,
                                                rank->seed};
    GYRE_TRY(device->ops->zero(device, call.recv, what->n_bytes));
    /* Removes bench_call_of()'s const. */
    GYRE_TRY(gyre_accuracy_fill(device, &inputs, (uint32_t)rank->self.rank, what->count,
                                (void *)(uintptr_t)call.send));
    if (side->engine == NULL) {
        GYRE_TRY(bench_enqueue(rank, &call));
        GYRE_TRY(bench_wait(rank));
    } else {
        GYRE_TRY(side->engine->ops->run(side->engine->state, &call));
        GYRE_TRY(side->engine->ops->wait(side->engine->state));
    }
    return gyre_accuracy_check(device, &inputs, what->count, call.recv, &side->error);
}

/* @reference: NULL = only the bound counts. */
static void add_line(const struct bench_rank *rank, const struct bench_case *what,
                     const struct side *gyre, const struct side *reference, struct counts *counts)
{
    const double bound = gyre_accuracy_bound(what->dtype, (uint32_t)rank->self.n_ranks);
    const char *verdict = "OK";
    if (gyre->accuracy.max > bound)
        verdict = "FAILED: over the bound";
    else if (reference != NULL && !bench_is_as_accurate(&gyre->accuracy, &reference->accuracy))
        verdict = "FAILED: worse";
    counts->n_lines++;
    counts->n_failed += strcmp(verdict, "OK") != 0;
    if (rank->self.rank != 0)
        return;
    const struct gyre_call planned = {
        .coll = what->coll, .count = what->count, .dtype = what->dtype, .op = what->op};
    struct gyre_plan_summary plan;
    if (gyre_plan_describe(gyre_comm_plans(rank->comm), &planned, &plan) != GYRE_SUCCESS)
        plan = (struct gyre_plan_summary){.algorithm = "-", .proto = "-"};
    printf("%12zu  %-8s  %-8s  %-6s  %9.3e  %9.3e", what->n_bytes, gyre_dtype_names[what->dtype],
           plan.algorithm, plan.proto, gyre->accuracy.max, gyre->accuracy.mean);
    if (reference != NULL)
        printf("  %9.3e  %9.3e  %-6s", reference->accuracy.max, reference->accuracy.mean,
               reference->mode);
    else
        printf("  %9s  %9s  %-6s", "-", "-", "-");
    printf("  %9.3e  %s\n", bound, verdict);
    fflush(stdout);
}

static gyre_status measure_case(struct bench_rank *rank, const struct bench_engine *engine,
                                const struct bench_case *what, struct counts *counts)
{
    struct side sides[1 + BENCH_MAX_MODES] = {{.buffers = &rank->buffers}};
    struct bench_mode modes[BENCH_MAX_MODES];
    int n_sides = 1;
    gyre_status status = GYRE_SUCCESS;
    if (what->count == 0)
        return GYRE_SUCCESS;
    bench_progress_begin(rank->progress, what->n_bytes, "measuring errors");
    const struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    if (engine->ops != NULL && engine->ops->check(engine->state, &call) == GYRE_SUCCESS) {
        n_sides += engine->ops->modes(engine->state, modes);
    } else if (engine->ops != NULL) {
        if (rank->self.rank == 0 && !counts->is_printed[what->dtype])
            printf("# not compared: %s\n", gyre_cause());
        counts->is_printed[what->dtype] = true;
    }
    for (int i = 1; i < n_sides; i++)
        sides[i] = (struct side){.engine = engine,
                                 .mode = modes[i - 1].name,
                                 .buffers = modes[i - 1].buffers == NULL ? &rank->buffers
                                                                         : modes[i - 1].buffers};
    for (size_t n_results = 0; n_results < MIN_RESULTS; n_results += what->count) {
        rank->seed++;
        for (int i = 0; i < n_sides && status == GYRE_SUCCESS; i++)
            status = measure_call(rank, what, &sides[i]);
    }
    GYRE_TRY(bench_rank_agree(rank, status));
    for (int i = 0; i < n_sides; i++) {
        struct side *side = &sides[i];
        double worst[] = {side->error.max, side->error.sum / (double)side->error.n_elems};
        GYRE_TRY(bench_max_over_ranks(rank, worst, 2));
        side->accuracy = (struct bench_accuracy){worst[0], worst[1]};
    }
    if (n_sides == 1)
        add_line(rank, what, &sides[0], NULL, counts);
    for (int i = 1; i < n_sides; i++)
        add_line(rank, what, &sides[0], &sides[i], counts);
    return GYRE_SUCCESS;
}

gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *engine,
                           int *n_failed_out)
{
    const struct bench_options *options = rank->options;
    struct counts counts = {0};
    GYRE_TRY(bench_rank_agree(rank, check_options(rank)));
    if (rank->self.rank == 0) {
        const char *name = engine->ops == NULL ? "none" : engine->ops->name;
        char text[192] = "";
        if (engine->ops != NULL &&
            engine->ops->version(engine->state, text, sizeof(text)) != GYRE_SUCCESS)
            text[0] = '\0';
        printf("# Error of sums over %d ranks, relative to the sum of magnitudes; at least %d "
               "results a line\n",
               rank->self.n_ranks, MIN_RESULTS);
        if (text[0] != '\0')
            printf("# Comparing with %s\n", text);
        printf("#%11s  %-8s  %-8s  %-6s  %9s  %9s  %9s  %9s  %-6s  %9s\n", "size", "type", "algo",
               "proto", "gyre max", "mean", name, "mean", "mode", "bound");
    }
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
        if ((options->dtype != BENCH_ALL && options->dtype != dtype) ||
            !gyre_dtype_is_float((gyre_dtype)dtype))
            continue;
        for (size_t n_bytes = options->min_bytes; n_bytes <= options->max_bytes;
             n_bytes = bench_options_next_bytes(options, n_bytes)) {
            const struct bench_case wanted = {.coll = rank->kind->coll,
                                              .n_bytes = n_bytes,
                                              .dtype = (gyre_dtype)dtype,
                                              .op = GYRE_SUM};
            const struct bench_case what = bench_case_of(&wanted, rank->self.n_ranks);
            GYRE_TRY(measure_case(rank, engine, &what, &counts));
        }
    }
    if (rank->self.rank == 0)
        printf("# Accuracy: %d of %d lines FAILED\n", counts.n_failed, counts.n_lines);
    *n_failed_out = counts.n_failed;
    return GYRE_SUCCESS;
}
