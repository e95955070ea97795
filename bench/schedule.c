/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule prints a collective's programs or rounds, and proves the programs.
 *
 *    schedule --algo tree --coll all_reduce --ranks 8 --hosts 0,0,0,0,1,1,1,1 --rounds --verify
 *    schedule --predict --coll all_reduce --ranks 4096 --hosts 512x8
 */
#include "bench/driver/option_table.h"
#include "bench/tools/programs.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct bench_shape_options shape; /* variant -1 = print the first, prove all */
    int rank;                         /* -1 = all */
    const char *sizes;
    const char *json_path;
    const char *csv_path;
    const char *msccl_path;
    const char *rows_path;
    const char *library, *machine;
    bool rounds;
    bool verify;
    bool any_order;
    bool predict;
    bool wants_help;
    struct bench_schedule_request request;
};

#define AT(field) .at = offsetof(struct options, field)

static const struct bench_option table[] = {
    BENCH_SHAPE_OPTIONS(struct options, shape),
    {'k', "rank", "R", "print the program of this rank only", BENCH_NUMBER, AT(rank), 0,
     GYRE_MAX_RANKS - 1},
    {'R', "rounds", NULL, "print all ranks side by side, one line for each round", BENCH_FLAG,
     AT(rounds)},
    {'v', "verify", NULL,
     "prove the programs, of all variants unless --variant names one;\nthe exit status is 1 if the "
     "proof fails",
     BENCH_FLAG, AT(verify)},
    {0, "any-order", NULL,
     "for --verify: ranks may reduce in different orders, so their last bits\nmay differ",
     BENCH_FLAG, AT(any_order)},
    {'p', "predict", NULL, "predict the time for each size; without --algo for all algorithms",
     BENCH_FLAG, AT(predict)},
    {0, "bytes", "SIZES", "sizes for --predict: 1M, or 1K:1G in factors of 4 (default)", BENCH_TEXT,
     AT(sizes)},
    {0, "cost", "NAME",
     "the machine for --predict: host, h200 (default), or a file\nthat gyre tune wrote", BENCH_TEXT,
     AT(request.cost)},
    {0, "machine", "NAME",
     "in place of --cost: a machine of published tables, such as h100, or a\nfile "
     "(docs/published.md); its NICs unless --nics says otherwise",
     BENCH_TEXT, AT(machine)},
    {0, "proto", "NAME",
     "the protocol for --predict: simple, ll, ll128 or lamport\n(default: the tuner's choice)",
     BENCH_TEXT, AT(request.proto)},
    BENCH_TILING_OPTIONS(struct options, request, "for --predict, likewise"),
    {0, "trace", "FILE", "write the steps of --predict as a trace, for one algorithm and size",
     BENCH_TEXT, AT(request.trace)},
    {0, "nic-rate", "R", "GB/s of one NIC in each direction, for --predict", BENCH_AMOUNT,
     AT(request.nic_gbytes_per_s), .high = 1000000, .expected = "GB/s, above 0"},
    BENCH_NET_OPTION(struct options, request,
                     "what is between hosts, for --predict: ib (RDMA, default) or socket (TCP)"),
    {0, "fabric", "FILE",
     "hosts, NICs, switches and links for --predict, in place of --hosts,\n--nics and --nic-rate "
     "(docs/fabric.md); or a machine, of which --hosts 16x4 may\nsay how many",
     BENCH_TEXT, AT(request.fabric_path)},
    {0, "library", "NAME",
     "what nccl, rccl, mpi or oneshot (inference engines) would do, for\n--predict; words of a row "
     "may follow: nccl,gpu=ampere,algo=tree",
     BENCH_TEXT, AT(library)},
    {0, "rows", "FILE",
     "for --predict: calls of other libraries, a line each (- = standard input;\n"
     "docs/fabric.md#rows), in place of all other options",
     BENCH_TEXT, AT(rows_path)},
    {0, "from-msccl", "XML", "read an algorithm of MSCCL, and print it as programs that are proved",
     BENCH_TEXT, AT(msccl_path)},
    {0, "json", "FILE", "write the results of --verify or --predict as JSON, too", BENCH_TEXT,
     AT(json_path)},
    {0, "csv", "FILE", "write the results of --predict as CSV, too", BENCH_TEXT, AT(csv_path)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static void print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --algo NAME --coll NAME --ranks N [options]\n"
            "       %s --file PROGRAMS [options]\n"
            "       %s --from-msccl ALGO.xml [options]\n"
            "       %s --predict --coll NAME {--ranks N | --hosts 2x8 | --fabric FILE} [options]\n"
            "       %s --predict --rows FILE\n",
            program, program, program, program, program);
    bench_options_print(table, 22, out);
    fputs("Exit status: 0; 1 a proof failed, or a file cannot be used or written; 2 wrong usage.\n"
          "\nalgorithms:\n",
          out);
    bench_shape_print_algorithms(out);
}

/* "SIZE" or "FIRST:LAST". */
static bool parse_sizes(const char *text, struct bench_schedule_request *request)
{
    char first[32];
    const char *colon = strchr(text, ':');
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, ":"), text);
    if (bench_parse_bytes(first, &request->first_bytes) == GYRE_SUCCESS &&
        bench_parse_bytes(colon == NULL ? first : colon + 1, &request->last_bytes) ==
            GYRE_SUCCESS &&
        request->first_bytes > 0 && request->first_bytes <= request->last_bytes)
        return true;
    fprintf(stderr,
            "schedule: --bytes %s: expected SIZE or FIRST:LAST, with sizes from 1 on, such as 1M "
            "or 1K:1G\n",
            text);
    return false;
}

#define N_WRITTEN 3

/* Refuses a results file that is also read or named twice. */
static bool check_files(const struct options *options)
{
    const struct {
        const char *option;
        const char *path;
    } files[] = {{"--csv", options->csv_path},          {"--json", options->json_path},
                 {"--trace", options->request.trace}, /* the first three are written */
                 {"--file", options->shape.file},       {"--fabric", options->request.fabric_path},
                 {"--from-msccl", options->msccl_path}, {"--cost", options->request.cost}};
    for (size_t i = 0; i < N_WRITTEN; i++)
        for (size_t k = i + 1; k < GYRE_ARRAY_LENGTH(files); k++)
            if (files[i].path != NULL && files[k].path != NULL &&
                bench_is_same_file(files[i].path, files[k].path)) {
                fprintf(stderr, "schedule: %s and %s are the same file, %s\n", files[i].option,
                        files[k].option, files[k].path);
                return false;
            }
    return true;
}

static bool check_together(const struct options *options)
{
    const struct bench_schedule_request *request = &options->request;
    const char *wrong = NULL;
    const bool has_way = request->proto != NULL || request->n_channels > 0 ||
                         request->tile_bytes > 0 || request->depth > 0;
    const bool is_about_predictions =
        request->first_bytes > 0 || request->cost != NULL || has_way || request->trace != NULL ||
        request->nic_gbytes_per_s > 0 || request->net != BENCH_NET_UNNAMED ||
        request->fabric_path != NULL;
    const bool is_given = options->shape.file != NULL || options->msccl_path != NULL;
    const bool prints = options->rank >= 0 || options->rounds;
    if (is_about_predictions && !options->predict)
        wrong = "--bytes, --cost, --proto, --channels, --tile, --depth, --nic-rate, --net, --trace "
                "and --fabric need --predict";
    else if (options->predict && (prints || options->verify || options->shape.is_placed))
        wrong = "--predict does not go with --rank, --rounds, --verify or --placed";
    else if (is_given &&
             (options->shape.algorithm != NULL || options->shape.collective != NULL ||
              options->shape.n_ranks > 0 || options->shape.root > 0 ||
              (options->shape.hosts != NULL && !options->predict) || options->shape.is_placed))
        wrong = "--algo, --coll, --ranks, --root, --hosts and --placed do not go with --file or "
                "--from-msccl, which say all of that (--hosts goes with --predict --file)";
    else if (options->msccl_path != NULL && (options->shape.file != NULL || options->predict))
        wrong = "--from-msccl does not go with --file or --predict: save the programs that it "
                "prints, and predict that file";
    else if (options->json_path != NULL && !options->predict && !options->verify)
        wrong = "--json needs --verify or --predict";
    else if (options->library != NULL &&
             (!options->predict || is_given || options->shape.algorithm != NULL ||
              options->json_path != NULL || options->csv_path != NULL || has_way))
        wrong = "--library needs --predict, and goes with --coll, --ranks, --hosts, --nics, "
                "--nic-rate, --fabric, --cost, --trace and --bytes only: --library "
                "nccl,algo=tree,proto=ll";
    else if (options->any_order && !options->verify)
        wrong = "--any-order needs --verify";
    else if (options->csv_path != NULL && !options->predict)
        wrong = "--csv needs --predict";
    else if (request->fabric_path != NULL &&
             ((options->shape.hosts != NULL && !bench_fabric_is_machine(request->fabric_path)) ||
              options->shape.n_ranks > 0 || options->shape.n_nics > 0 ||
              request->nic_gbytes_per_s > 0))
        wrong = "--ranks, --hosts, --nics and --nic-rate do not go with --fabric, which says all "
                "of that";
    else if (options->shape.n_nics > 0 && options->shape.hosts == NULL)
        wrong = "--nics needs --hosts: NICs are between hosts";
    else if (request->net != BENCH_NET_UNNAMED && options->shape.hosts == NULL &&
             request->fabric_path == NULL)
        wrong = "--net needs --hosts or --fabric: it is the network between hosts";
    else if (options->rank >= 0 && options->rounds)
        wrong = "--rank does not go with --rounds, which shows all ranks";
    if (wrong != NULL)
        fprintf(stderr, "schedule: %s\n", wrong);
    struct bench_shape_options shape = options->shape;
    const struct gyre_algorithm *algorithm;
    struct gyre_shape found;
    if (request->fabric_path != NULL && shape.hosts == NULL) /* the file tells the ranks */
        shape.n_ranks = 1;
    return wrong == NULL && check_files(options) &&
           (is_given || bench_shape_find(&shape, !options->predict || shape.algorithm != NULL,
                                         &algorithm, &found));
}

/* By rank, owned by the job or a file. */
struct job {
    struct bench_programs programs;
    int variant;
    struct bench_schedule_json *json; /* NULL = not wanted */
    bool any_order;
};

/* Prints the cause of a failure. */
static bool is_done(gyre_status status)
{
    if (status != GYRE_SUCCESS)
        fprintf(stderr, "schedule: %s\n", gyre_cause());
    return status == GYRE_SUCCESS;
}

static bool print_text(gyre_status status, char **text)
{
    if (!is_done(status))
        return false;
    fputs(*text, stdout);
    free(*text);
    return true;
}

static bool print_programs(const struct options *options, const struct job *job)
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

static bool verify(const struct job *job)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1,
                                                    .any_order = job->any_order};
        struct gyre_verify_report report;
        const char *where = in_place == 1 ? "in place" : "out of place";
        const bool is_proved =
            gyre_verify((const struct gyre_program *const *)job->programs.of_rank, job->programs.n,
                        &options, &report) == GYRE_SUCCESS;
        const struct bench_schedule_proof proof = {job->programs.of_rank[0], job->variant,
                                                   in_place == 1, is_proved, &report};
        bench_schedule_json_proof(job->json, &proof);
        if (!is_proved) {
            /* comments, as the output may be a file of programs */
            printf("# refused %s: ", where);
            for (const char *c = report.reason; *c != '\0'; c++)
                fputs(*c == '\n' ? "\n#" : (char[]){*c, '\0'}, stdout);
            putchar('\n');
            const struct gyre_verify_place *place = &report.place;
            if (place->step < 0)
                return false;
            const struct gyre_program *program = job->programs.of_rank[place->rank];
            const uint32_t step =
                program->workers[place->worker].first_step + (uint32_t)place->step;
            char text[256];
            gyre_step_to_text(&program->steps[step], program->connections,
                              gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH), text,
                              sizeof(text));
            printf("# step %d of rank %d, worker %d, counted from 0: %s\n", place->step,
                   place->rank, place->worker, text);
            return false;
        }
        printf("# proved %s: depth %u is enough, %llu steps, credits %s at depth 2\n", where,
               report.min_depth, (unsigned long long)report.n_steps,
               report.credits_elidable ? "can be left out" : "are needed");
        if (!report.same_bits)
            printf("# the orders differ between ranks: their last bits may differ\n");
    }
    return true;
}

static bool print_and_verify(const struct options *options, struct job *job)
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

/* Are the programs another rail's of the set before? */
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

static bool print_and_verify_read(const struct options *options, struct job *job)
{
    struct gyre_program_file file;
    if (options->msccl_path != NULL ? !bench_programs_from_msccl(options->msccl_path, &file)
                                    : !bench_programs_load("schedule", options->shape.file, &file))
        return false;
    bool ok = true;
    for (int set = 0; set < file.n_sets && ok; set++) {
        job->programs.n = file.sets[set].n_programs;
        memcpy(job->programs.of_rank, &file.programs[file.sets[set].first],
               (size_t)job->programs.n * sizeof(job->programs.of_rank[0]));
        job->variant = is_variant(&file, set) ? job->variant + 1 : 0;
        ok = print_programs(options, job) && (!options->verify || verify(job));
    }
    job->programs.n = 0; /* the file owns them */
    gyre_program_file_free(&file);
    return ok;
}

static bool run_request(const struct bench_schedule_request *request, const char *library)
{
    return is_done(library == NULL ? bench_schedule_predict(request)
                                   : bench_predict_library(request, library));
}

static bool predict_given(const struct options *options, struct gyre_given_programs *given)
{
    struct bench_schedule_request request = options->request;
    struct gyre_algorithm algorithm;
    if (!bench_shape_find_hosts(&options->shape, given->programs[0][0]->n_ranks,
                                &request.shape.grouping))
        return false;
    if (gyre_algorithm_give(given, request.shape.grouping, &algorithm) != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: --file %s: %s\n", options->shape.file, gyre_cause());
        return false;
    }
    request.algorithm = &algorithm;
    request.shape.coll = given->coll;
    request.shape.n_ranks = given->n_ranks;
    request.shape.root = given->root;
    return run_request(&request, options->library);
}

/* All rail programs of one shape, from @set on. Returns their number. */
static int take_set(const struct gyre_program_file *file, int set,
                    struct gyre_given_programs *given_out)
{
    struct gyre_given_programs given = {0};
    do
        given.programs[given.n_variants++] = gyre_program_file_set(file, set++);
    while (set < file->n_sets && given.n_variants < GYRE_MAX_VARIANTS && is_variant(file, set));
    *given_out = given;
    return given.n_variants;
}

static bool predict_file(const struct options *options)
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
        set += take_set(&file, set, &given);
        ok = predict_given(options, &given);
    }
    gyre_program_file_free(&file);
    return ok;
}

static bool predict(const struct options *options)
{
    static struct bench_fabric fabric;
    struct options copy = *options;
    unsigned n_hosts = 0, n_gpus = 0;
    if (options->request.fabric_path != NULL && options->shape.hosts != NULL &&
        sscanf(options->shape.hosts, "%5ux%5u", &n_hosts, &n_gpus) != 2) {
        fprintf(stderr, "schedule: --hosts %s: of a machine's fabric, expected 16x4\n",
                options->shape.hosts);
        return false;
    }
    if (!is_done(bench_fabric_load(options->request.fabric_path, n_hosts, n_gpus, &fabric)))
        return false;
    if (fabric.fabric != NULL) {
        copy.shape.hosts = NULL;
        copy.request.fabric = fabric.fabric;
        copy.shape.grouping = &fabric.grouping;
        copy.shape.n_ranks = (int)fabric.fabric->n_ranks;
    }
    const bool ok = copy.shape.file != NULL
                        ? predict_file(&copy)
                        : bench_shape_find(&copy.shape, copy.shape.algorithm != NULL,
                                           &copy.request.algorithm, &copy.request.shape) &&
                              run_request(&copy.request, copy.library);
    bench_fabric_close(&fabric);
    return ok;
}

static int run(int argc, char **argv)
{
    struct options options = {.shape = {.user = "schedule", .variant = -1}, .rank = -1};
    static const struct bench_command_line line = {.options = table, .user = "schedule"};
    static struct job job = {.programs = {.user = "schedule"}};
    const int ended = bench_options_start(&line, argc, argv, &options, print_usage);
    if (ended >= 0)
        return ended;
    if (options.rows_path != NULL) {
        if (options.predict && argc <= 4)
            return bench_predict_rows(options.rows_path, stdout) ? 0 : 1;
        fputs("schedule: --rows needs --predict, and no other option\n", stderr);
        return 2;
    }
    if ((options.sizes != NULL && !parse_sizes(options.sizes, &options.request)) ||
        !bench_take_machine(&options.request, options.machine,
                            options.shape.hosts == NULL || options.request.fabric_path != NULL
                                ? NULL
                                : &options.shape.n_nics) ||
        !check_together(&options))
        return 2;
    if (options.json_path != NULL && !is_done(bench_schedule_json_open(argc, argv, &job.json)))
        return 1;
    options.request.json = job.json;
    job.any_order = options.any_order;
    if (options.csv_path != NULL &&
        !is_done(bench_tidy_open(options.csv_path, false, &options.request.csv)))
        return 1;
    const bool is_read = options.shape.file != NULL || options.msccl_path != NULL;
    bool ok = options.predict ? predict(&options)
              : is_read       ? print_and_verify_read(&options, &job)
                              : print_and_verify(&options, &job);
    ok = is_done(bench_tidy_close(options.request.csv)) && ok;
    ok = is_done(bench_schedule_json_close(job.json, options.json_path)) && ok;
    bench_programs_free(&job.programs);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("schedule", run(argc, argv));
}
