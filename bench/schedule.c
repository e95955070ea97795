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
#include "bench/tools/msccl.h"
#include "bench/tools/programs.h"
#include "bench/tools/schedule_fabric.h"
#include "bench/tools/schedule_json.h"
#include "bench/tools/schedule_options.h"
#include "core/foundation/model/program_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The programs of one shape, by rank. They belong to the job or to a file. */
struct job {
    struct bench_programs programs;
    int variant;
    struct bench_schedule_json *json; /* gets each proof; NULL = no file is wanted */
};

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

static bool print_programs(const struct bench_schedule_options *options, const struct job *job)
{
    char *text = NULL;
    if (options->rounds) {
        const gyre_status status = gyre_rounds_to_text(
            (const struct gyre_program *const *)job->programs.of_rank, job->programs.n, &text);
        return print_text(status, &text);
    }
    if (options->rank >= job->programs.n) {
        fprintf(stderr, "schedule: --rank %d: the ranks are 0 to %d\n", options->rank,
                job->programs.n - 1);
        return false;
    }
    for (int rank = 0; rank < job->programs.n; rank++) {
        if (options->rank >= 0 && options->rank != rank)
            continue;
        const gyre_status status = gyre_program_to_text(job->programs.of_rank[rank], &text);
        if (!print_text(status, &text))
            return false;
    }
    return true;
}

/* Prints the line of the step that a finding names, if it names one. */
static void print_step(const struct job *job, const struct gyre_verify_place *place)
{
    char text[256];
    if (place->step < 0)
        return;
    const struct gyre_program *program = job->programs.of_rank[place->rank];
    const uint32_t step = program->workers[place->worker].first_step + (uint32_t)place->step;
    gyre_step_to_text(&program->steps[step], program->connections,
                      gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH), text, sizeof(text));
    printf("# step %d of rank %d, worker %d, counted from 0: %s\n", place->step, place->rank,
           place->worker, text);
}

static bool verify(const struct job *job)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        const char *where = in_place == 1 ? "in place" : "out of place";
        const bool is_proved =
            gyre_verify((const struct gyre_program *const *)job->programs.of_rank, job->programs.n,
                        &options, &report) == GYRE_SUCCESS;
        const struct bench_schedule_proof proof = {job->programs.of_rank[0], job->variant,
                                                   in_place == 1, is_proved, &report};
        bench_schedule_json_proof(job->json, &proof);
        if (!is_proved) {
            printf("# refused %s: %s\n", where, report.reason);
            print_step(job, &report.place);
            return false;
        }
        printf("# proved %s: depth %u is enough, %llu steps, credits %s at depth 2\n", where,
               report.min_depth, (unsigned long long)report.n_steps,
               report.credits_elidable ? "can be left out" : "are needed");
    }
    return true;
}

/* Prints the programs of an algorithm and proves them: those of one variant, or of all. */
static bool print_and_verify(const struct bench_schedule_options *options, struct job *job)
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
        job->variant = variant;
        if (!bench_programs_emit(algorithm, &shape, &job->programs) ||
            (variant == first && !print_programs(options, job)))
            return false;
        if (options->verify && n_variants > 1)
            printf("# variant %d of %d\n", variant, n_variants);
        if (options->verify && !verify(job))
            return false;
    }
    return true;
}

/* Is the set a further variant of the shape of the set before it? */
static bool is_variant(const struct gyre_program_file *file, int set)
{
    if (set == 0)
        return false;
    const struct gyre_program *own = gyre_program_file_set(file, set)[0];
    const struct gyre_program *before = gyre_program_file_set(file, set - 1)[0];
    return own->coll == before->coll && own->root == before->root &&
           own->n_ranks == before->n_ranks && own->is_placed == before->is_placed &&
           strcmp(own->algorithm, before->algorithm) == 0;
}

/* Prints the programs of a file and proves them, shape by shape. */
static bool print_and_verify_file(const struct bench_schedule_options *options,
                                  const struct gyre_program_file *file, struct job *job)
{
    bool ok = true;
    for (int set = 0; set < file->n_sets && ok; set++) {
        job->programs.n = file->sets[set].n_programs;
        memcpy(job->programs.of_rank, &file->programs[file->sets[set].first],
               (size_t)job->programs.n * sizeof(job->programs.of_rank[0]));
        job->variant = is_variant(file, set) ? job->variant + 1 : 0;
        ok = print_programs(options, job) && (!options->verify || verify(job));
    }
    job->programs.n = 0; /* they are the file's */
    return ok;
}

static bool print_and_verify_read(const struct bench_schedule_options *options, struct job *job)
{
    struct gyre_program_file file;
    if (options->msccl_path != NULL) {
        if (bench_msccl_load(options->msccl_path, &file) != GYRE_SUCCESS) {
            fprintf(stderr, "schedule: --from-msccl: %s\n", gyre_cause());
            return false;
        }
    } else if (!bench_programs_load("schedule", options->shape.file, &file)) {
        return false;
    }
    const bool ok = print_and_verify_file(options, &file, job);
    gyre_program_file_free(&file);
    return ok;
}

static bool run_request(const struct bench_schedule_request *request)
{
    if (bench_schedule_predict(request) == GYRE_SUCCESS)
        return true;
    fprintf(stderr, "schedule: %s\n", gyre_cause());
    return false;
}

/* Sets of the file, from `set` on, that are variants of one shape. Returns how many there are. */
static int take_variants(const struct gyre_program_file *file, int set,
                         struct gyre_given_programs *given_out)
{
    struct gyre_given_programs given = {0};
    do
        given.programs[given.n_variants++] = gyre_program_file_set(file, set++);
    while (set < file->n_sets && given.n_variants < GYRE_MAX_VARIANTS && is_variant(file, set));
    *given_out = given;
    return given.n_variants;
}

/* Predicts one shape of a file. */
static bool predict_given(const struct bench_schedule_options *options,
                          struct gyre_given_programs *given)
{
    struct bench_schedule_request request = options->request;
    struct gyre_algorithm algorithm;
    if (!bench_shape_find_hosts(&options->shape, given->programs[0][0]->n_ranks, &request.grouping))
        return false;
    if (gyre_algorithm_give(given, request.grouping, &algorithm) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: --file %s: %s\n", options->shape.file, gyre_cause());
        return false;
    }
    request.algorithm = &algorithm;
    request.coll = given->coll;
    request.n_ranks = given->n_ranks;
    request.root = given->root;
    return run_request(&request);
}

static bool predict_file(const struct bench_schedule_options *options)
{
    struct gyre_program_file file;
    bool ok = bench_programs_load("schedule", options->shape.file, &file);
    if (!ok)
        return false;
    for (int set = 0; set < file.n_sets && ok; set++)
        if (file.sets[set].n_programs != gyre_program_file_set(&file, set)[0]->n_ranks) {
            fprintf(stderr, "schedule: --predict --file %s: it lacks programs of some ranks\n",
                    options->shape.file);
            ok = false;
        }
    for (int set = 0; set < file.n_sets && ok;) {
        struct gyre_given_programs given;
        set += take_variants(&file, set, &given);
        ok = predict_given(options, &given);
    }
    gyre_program_file_free(&file);
    return ok;
}

static bool predict_shape(const struct bench_schedule_options *options)
{
    struct bench_schedule_request request = options->request;
    struct gyre_shape shape;
    if (options->shape.file != NULL)
        return predict_file(options);
    if (!bench_shape_find(&options->shape, options->shape.algorithm != NULL, &request.algorithm,
                          &shape))
        return false;
    request.coll = shape.coll;
    request.n_ranks = shape.n_ranks;
    request.root = shape.root;
    request.grouping = shape.grouping;
    return run_request(&request);
}

static bool predict(const struct bench_schedule_options *options)
{
    static struct bench_fabric fabric; /* large; one job a process */
    struct bench_schedule_options copy = *options;
    if (bench_fabric_load(options->request.fabric_path, &fabric) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        return false;
    }
    if (fabric.fabric != NULL) {
        copy.request.fabric = fabric.fabric;
        copy.shape.grouping = &fabric.grouping;
        copy.shape.n_ranks = (int)fabric.fabric->n_ranks;
    }
    const bool ok = predict_shape(&copy);
    bench_fabric_close(&fabric);
    return ok;
}

/* What the options ask for. */
static bool run_options(const struct bench_schedule_options *options, struct job *job)
{
    if (options->predict)
        return predict(options);
    if (options->shape.file != NULL || options->msccl_path != NULL)
        return print_and_verify_read(options, job);
    return print_and_verify(options, job);
}

static int run(int argc, char **argv)
{
    struct bench_schedule_options options;
    static struct job job = {.programs = {.user = "schedule"}}; /* large */
    if (argc == 1) {
        bench_schedule_print_usage(argv[0], stderr);
        return 2;
    }
    if (!bench_schedule_parse(argc, argv, &options))
        return 2;
    if (options.wants_help) {
        bench_schedule_print_usage(argv[0], stdout);
        return 0;
    }
    if (options.json_path != NULL &&
        bench_schedule_json_open(argc, argv, &job.json) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        return 1;
    }
    options.request.json = job.json;
    if (options.csv_path != NULL &&
        bench_tidy_open(options.csv_path, false, &options.request.csv) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        return 1;
    }
    bool ok = run_options(&options, &job);
    if (bench_tidy_close(options.request.csv) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        ok = false;
    }
    if (bench_schedule_json_close(job.json, options.json_path) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        ok = false;
    }
    bench_programs_free(&job.programs);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("schedule", run(argc, argv));
}
