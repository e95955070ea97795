/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `schedule`. A function that finds a mistake prints it on standard error and
 * returns false.
 */
#include "bench/tools/schedule_options.h"

#include "bench/driver/options.h"
#include "bench/tools/predict_options.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

void bench_schedule_print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --algo NAME --coll NAME --ranks N [options]\n"
            "       %s --file PROGRAMS [options]\n"
            "       %s --from-msccl ALGO.xml [options]\n"
            "       %s --predict --coll NAME {--ranks N | --hosts 2x8 | --fabric FILE} "
            "[options]\n",
            program, program, program, program);
    bench_shape_print_usage(out);
    fputs(
        "  -k, --rank R        print the program of this rank only\n"
        "  -R, --rounds        print all ranks side by side, one line for each round\n"
        "  -v, --verify        prove the programs, of all variants unless --variant names one;\n"
        "                      the exit status is 1 if the proof fails\n"
        "  -p, --predict       predict the time for each size; without --algo for all algorithms\n"
        "      --bytes SIZES   sizes for --predict: 1M, or 1K:1G in factors of 4 (default)\n"
        "      --cost NAME     the machine for --predict: host, h200 (default), or a file\n"
        "                      that gyre tune wrote\n"
        "      --proto NAME    the protocol for --predict: simple, ll, ll128 or lamport\n"
        "                      (default: the tuner's choice)\n"
        "      --channels N, --tile BYTES, --depth SLOTS    for --predict, likewise\n"
        "      --trace FILE    write the steps of --predict as a trace, for one algorithm and "
        "size\n"
        "      --nic-rate R    GB/s of one NIC in each direction, for --predict\n"
        "      --net NAME      what is between hosts, for --predict: ib (RDMA, default) or socket "
        "(TCP)\n"
        "      --fabric FILE   hosts, NICs, switches and links for --predict, in place of "
        "--hosts,\n"
        "                      --nics and --nic-rate (docs/fabric.md)\n"
        "      --from-msccl XML   read an algorithm of MSCCL, and print it as programs that are "
        "proved\n"
        "      --json FILE     write the results of --verify or --predict as JSON, too\n"
        "      --csv FILE      write the results of --predict as CSV, too\n"
        "  -h, --help          print this text\n"
        "Exit status: 0; 1 a proof failed, or a file cannot be used or written; 2 wrong usage.\n"
        "\nalgorithms:\n",
        out);
    bench_shape_print_algorithms(out);
}

static bool parse_rate(const char *name, const char *text, double *rate_out)
{
    char *end;
    const double rate = gyre_text_to_double(text, &end);
    if (end == text || *end != '\0' || !(rate > 0) || rate > 1e6) {
        fprintf(stderr, "schedule: %s %s: expected GB/s, above 0\n", name, text);
        return false;
    }
    *rate_out = rate;
    return true;
}

/* Ids of long options without a letter. The first four belong to --predict. */
enum { BYTES = 256, NIC_RATE, TRACE, FABRIC, JSON, CSV, MSCCL };

/* Reads "SIZE" or "FIRST:LAST". */
static bool parse_sizes(const char *text, struct bench_schedule_request *request)
{
    char first[32];
    size_t first_bytes = 0, last_bytes = 0;
    const char *colon = strchr(text, ':');
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, ":"), text);
    if (bench_parse_bytes(first, &first_bytes) != GYRE_SUCCESS ||
        bench_parse_bytes(colon == NULL ? first : colon + 1, &last_bytes) != GYRE_SUCCESS ||
        first_bytes == 0 || first_bytes > last_bytes) {
        fprintf(stderr,
                "schedule: --bytes %s: expected SIZE or FIRST:LAST, with sizes from 1 on, such as "
                "1M or 1K:1G\n",
                text);
        return false;
    }
    request->first_bytes = first_bytes;
    request->last_bytes = last_bytes;
    return true;
}

static bool take_predict_option(int id, struct bench_schedule_request *request)
{
    if (bench_predict_is_option(id))
        return bench_predict_take("schedule", id, optarg, request);
    if (id == NIC_RATE)
        return parse_rate("--nic-rate", optarg, &request->nic_gbytes_per_s);
    if (id == TRACE)
        request->trace = optarg;
    else if (id == FABRIC)
        request->fabric_path = optarg;
    else
        return parse_sizes(optarg, request);
    return true;
}

#define N_WRITTEN 3

/* Refuses a file of results that is also read, or is that of the other results. */
static bool check_files(const struct bench_schedule_options *options)
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

/* Refuses options that have no effect together with the other options. */
static bool check_together(const struct bench_schedule_options *options)
{
    const struct bench_schedule_request *request = &options->request;
    const char *wrong = NULL;
    const bool is_about_predictions =
        request->first_bytes > 0 || request->cost != NULL || request->proto != NULL ||
        request->n_channels > 0 || request->tile_bytes > 0 || request->depth > 0 ||
        request->nic_gbytes_per_s > 0 || request->net != BENCH_NET_UNNAMED ||
        request->trace != NULL || request->fabric_path != NULL;
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
    else if (options->csv_path != NULL && !options->predict)
        wrong = "--csv needs --predict";
    else if (request->fabric_path != NULL &&
             (options->shape.hosts != NULL || options->shape.n_ranks > 0 ||
              options->shape.n_nics > 0 || request->nic_gbytes_per_s > 0))
        wrong =
            "--ranks, --hosts, --nics and --nic-rate do not go with --fabric, which says all of "
            "that";
    else if (request->fabric_path != NULL && request->trace != NULL)
        wrong = "--trace does not go with --fabric: when a step starts, it is not known yet when "
                "its slots arrive";
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
    if (request->fabric_path != NULL) /* the file says how many ranks there are */
        shape.n_ranks = 1;
    return wrong == NULL && check_files(options) &&
           (is_given ||
            bench_shape_is_right(&shape, !options->predict || options->shape.algorithm != NULL));
}

static const struct option long_options[] = {BENCH_SHAPE_LONG_OPTIONS,
                                             {"rank", required_argument, NULL, 'k'},
                                             {"rounds", no_argument, NULL, 'R'},
                                             {"verify", no_argument, NULL, 'v'},
                                             {"predict", no_argument, NULL, 'p'},
                                             {"bytes", required_argument, NULL, BYTES},
                                             BENCH_PREDICT_LONG_OPTIONS,
                                             {"nic-rate", required_argument, NULL, NIC_RATE},
                                             {"trace", required_argument, NULL, TRACE},
                                             {"fabric", required_argument, NULL, FABRIC},
                                             {"json", required_argument, NULL, JSON},
                                             {"csv", required_argument, NULL, CSV},
                                             {"from-msccl", required_argument, NULL, MSCCL},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_option(int id, struct bench_schedule_options *options)
{
    switch (id) {
    case 'k':
        return bench_parse_number("schedule", "--rank", optarg, 0, GYRE_MAX_RANKS - 1,
                                  &options->rank);
    case 'R':
        options->rounds = true;
        return true;
    case 'v':
        options->verify = true;
        return true;
    case 'p':
        options->predict = true;
        return true;
    case 'h':
        options->wants_help = true;
        return true;
    case CSV:
        options->csv_path = optarg;
        return true;
    case JSON:
        options->json_path = optarg;
        return true;
    case MSCCL:
        options->msccl_path = optarg;
        return true;
    case '?': /* getopt_long() has printed the reason */
        return false;
    default:
        return bench_shape_is_option(id) ? bench_shape_take(id, optarg, &options->shape)
                                         : take_predict_option(id, &options->request);
    }
}

bool bench_schedule_parse(int argc, char **argv, struct bench_schedule_options *options_out)
{
    struct bench_schedule_options options = {.shape = {.user = "schedule", .variant = -1},
                                             .rank = -1};
    for (;;) {
        const int id = getopt_long(argc, argv, BENCH_SHAPE_LETTERS "k:Rvph", long_options, NULL);
        if (id == -1)
            break;
        if (!take_option(id, &options))
            return false;
        if (options.wants_help)
            break;
    }
    if (!options.wants_help && optind < argc) {
        fprintf(stderr, "schedule: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    if (!options.wants_help && !check_together(&options))
        return false;
    *options_out = options;
    return true;
}
