/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: prints the programs of a collective, or the rounds of all ranks side by side, and
 * proves that the programs are correct.
 *
 *    schedule --algo tree --coll all_reduce --ranks 8 --hosts 0,0,0,0,1,1,1,1 --rounds --verify
 *    schedule --predict --coll all_reduce --ranks 4096 --hosts 512x8
 */
#include "algorithms/verify/verify.h"
#include "bench/driver/streams.h"
#include "bench/tools/programs.h"
#include "bench/tools/schedule_options.h"

#include <stdio.h>
#include <stdlib.h>

/* Prints a text that a call has just made, or the reason why it could not. */
static bool print_text(gyre_status status, char **text)
{
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        return false;
    }
    fputs(*text, stdout);
    free(*text);
    return true;
}

static bool print_programs(const struct bench_schedule_options *options,
                           const struct bench_programs *programs)
{
    char *text = NULL;
    if (options->rounds) {
        const gyre_status status = gyre_rounds_to_text(
            (const struct gyre_program *const *)programs->of_rank, programs->n, &text);
        return print_text(status, &text);
    }
    if (options->rank >= programs->n) {
        fprintf(stderr, "schedule: --rank %d: there are %d programs\n", options->rank, programs->n);
        return false;
    }
    for (int rank = 0; rank < programs->n; rank++) {
        if (options->rank >= 0 && options->rank != rank)
            continue;
        const gyre_status status = gyre_program_to_text(programs->of_rank[rank], &text);
        if (!print_text(status, &text))
            return false;
    }
    return true;
}

static bool verify(const struct bench_programs *programs)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        const char *where = in_place == 1 ? "in place" : "out of place";
        if (gyre_verify((const struct gyre_program *const *)programs->of_rank, programs->n,
                        &options, &report) != GYRE_SUCCESS) {
            printf("# refused %s: %s\n", where, report.reason);
            return false;
        }
        printf("# proved %s: depth %u is enough, %llu steps, credits %s at depth 2\n", where,
               report.min_depth, (unsigned long long)report.n_steps,
               report.credits_elidable ? "can be left out" : "are needed");
    }
    return true;
}

/* Prints the programs of an algorithm and proves them: those of one variant, or of all. */
static bool print_and_verify(const struct bench_schedule_options *options,
                             struct bench_programs *programs)
{
    const struct gyre_algorithm *algorithm;
    struct gyre_shape shape;
    if (!bench_shape_find(&options->shape, true, &algorithm, &shape))
        return false;
    const int n_variants = gyre_algorithm_variants(algorithm, &shape);
    const int first = options->shape.variant < 0 ? 0 : options->shape.variant;
    const int end = options->shape.variant < 0 && options->verify ? n_variants : first + 1;
    for (int variant = first; variant < end; variant++) {
        shape.variant = (uint16_t)variant;
        if (!bench_programs_emit(algorithm, &shape, programs) ||
            (variant == first && !print_programs(options, programs)))
            return false;
        if (options->verify && n_variants > 1)
            printf("# variant %d of %d\n", variant, n_variants);
        if (options->verify && !verify(programs))
            return false;
    }
    return true;
}

static bool predict(const struct bench_schedule_options *options)
{
    struct bench_schedule_request request = options->request;
    struct gyre_shape shape;
    if (!bench_shape_find(&options->shape, options->shape.algorithm != NULL, &request.algorithm,
                          &shape))
        return false;
    request.coll = shape.coll;
    request.n_ranks = shape.n_ranks;
    request.root = shape.root;
    request.grouping = shape.grouping;
    if (bench_schedule_predict(&request) == GYRE_SUCCESS)
        return true;
    fprintf(stderr, "schedule: %s\n", gyre_cause());
    return false;
}

static int run(int argc, char **argv)
{
    struct bench_schedule_options options;
    static struct bench_programs programs = {.user = "schedule"}; /* large */
    if (argc == 1) {
        bench_schedule_print_usage(stderr);
        return 2;
    }
    if (!bench_schedule_parse(argc, argv, &options))
        return 2;
    if (options.wants_help) {
        bench_schedule_print_usage(stdout);
        return 0;
    }
    if (options.predict)
        return predict(&options) ? 0 : 1;
    bool ok;
    if (options.shape.file != NULL)
        ok = bench_programs_load(options.shape.file, &programs) &&
             print_programs(&options, &programs) && (!options.verify || verify(&programs));
    else
        ok = print_and_verify(&options, &programs);
    bench_programs_free(&programs);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("schedule", run(argc, argv));
}
