/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `draw`. A function that finds a mistake prints it on standard error and returns
 * false.
 */
#include "bench/draw/options.h"

#include "bench/driver/options.h"
#include "bench/tools/predict_options.h"
#include "core/foundation/base/status.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#define DEFAULT_BYTES (1U << 20)
#define MAX_ROUND     1000000

enum { HTML = 256, SVG, JSON, ROUND, BYTES, TRACE, CALL };

static const struct option long_options[] = {BENCH_SHAPE_LONG_OPTIONS,
                                             {"html", required_argument, NULL, HTML},
                                             {"svg", required_argument, NULL, SVG},
                                             {"json", required_argument, NULL, JSON},
                                             {"round", required_argument, NULL, ROUND},
                                             {"bytes", required_argument, NULL, BYTES},
                                             {"from-trace", required_argument, NULL, TRACE},
                                             {"call", required_argument, NULL, CALL},
                                             BENCH_PREDICT_LONG_OPTIONS,
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

void bench_draw_print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --algo NAME --coll NAME --ranks N --html FILE [options]\n"
            "       %s --file PROGRAMS {--html FILE | --svg FILE | --json FILE}\n",
            program, program);
    fputs("      --html FILE     a page that shows the programs step by step (- = standard "
          "output)\n"
          "      --svg FILE      a picture of the rounds, side by side\n"
          "      --round R       this round alone, in the SVG\n"
          "      --json FILE     the data of the page\n",
          out);
    bench_shape_print_usage(out);
    fputs(
        "      --bytes SIZE    the size whose times are predicted (default 1M); all blocks "
        "together\n"
        "      --cost NAME     the machine: host, h200 (default), or a file that gyre tune wrote\n"
        "      --proto NAME    simple, ll, ll128 or lamport (default: the tuner's choice)\n"
        "      --channels N, --tile BYTES, --depth SLOTS    likewise\n"
        "      --net NAME      what is between hosts: ib (RDMA, default) or socket (TCP)\n"
        "      --from-trace FILE   show the times of a call that GYRE_TRACE_FILE recorded, "
        "instead\n"
        "      --call N        its number in the trace (default: the last one of these programs)\n"
        "  -h, --help          print this text\n"
        "Exit status: 0, also if the programs are wrong; 1 nothing was drawn; 2 wrong usage.\n"
        "\nalgorithms:\n",
        out);
    bench_shape_print_algorithms(out);
}

static bool take_bytes(const char *text, struct bench_draw_options *options)
{
    size_t n_bytes = 0;
    if (bench_parse_bytes(text, &n_bytes) != GYRE_SUCCESS || n_bytes == 0) {
        fprintf(stderr, "draw: --bytes %s: expected a size from 1 on, such as 64K or 1M\n", text);
        return false;
    }
    options->n_bytes = n_bytes;
    return true;
}

static bool take_time_option(int id, struct bench_draw_options *options)
{
    options->asks_for_times = true;
    return bench_predict_is_option(id) ? bench_predict_take("draw", id, optarg, &options->request)
                                       : take_bytes(optarg, options);
}

static bool take_option(int id, struct bench_draw_options *options)
{
    switch (id) {
    case HTML:
        options->html = optarg;
        return true;
    case SVG:
        options->svg = optarg;
        return true;
    case JSON:
        options->json = optarg;
        return true;
    case ROUND:
        return bench_parse_number("draw", "--round", optarg, 0, MAX_ROUND, &options->round);
    case TRACE:
        options->trace = optarg;
        return true;
    case CALL:
        return bench_parse_number("draw", "--call", optarg, 0, INT_MAX, &options->call);
    case 'h':
        options->wants_help = true;
        return true;
    case '?': /* getopt_long() has printed the reason */
        return false;
    default:
        return bench_shape_is_option(id) ? bench_shape_take(id, optarg, &options->shape)
                                         : take_time_option(id, options);
    }
}

/* Refuses options that have no effect together with the other options. */
static bool check_together(const struct bench_draw_options *options)
{
    const bool has_times = options->html != NULL || options->json != NULL;
    const struct bench_shape_options *shape = &options->shape;
    const char *wrong = NULL;
    if (shape->file != NULL && (shape->algorithm != NULL || shape->collective != NULL ||
                                shape->n_ranks > 0 || shape->root > 0 || shape->is_placed))
        wrong = "--algo, --coll, --ranks, --root and --placed do not go with --file, which says "
                "all of that";
    else if (shape->n_nics > 0 && shape->hosts == NULL)
        wrong = "--nics needs --hosts: NICs are between hosts";
    else if (options->request.net != BENCH_NET_UNNAMED && shape->hosts == NULL)
        wrong = "--net needs --hosts: it is the network between hosts";
    else if (!has_times && options->svg == NULL)
        wrong = "nothing to write: give --html, --svg or --json, each with a file";
    else if (options->round >= 0 && options->svg == NULL)
        wrong = "--round needs --svg";
    else if (options->asks_for_times && !has_times)
        wrong = "--bytes, --cost, --proto, --channels, --tile, --depth and --net need --html or "
                "--json, which show times";
    else if (options->trace != NULL && (options->asks_for_times || !has_times))
        wrong =
            "--from-trace needs --html or --json, and does not go with --bytes, --cost, --proto, "
            "--channels, --tile, --depth and --net, which are about predicted times";
    else if (options->call >= 0 && options->trace == NULL)
        wrong = "--call needs --from-trace";
    else if (options->shape.file != NULL && options->shape.variant >= 0)
        wrong = "--variant does not go with --file, which holds one variant";
    if (wrong != NULL)
        fprintf(stderr, "draw: %s\n", wrong);
    return wrong == NULL && (shape->file != NULL || bench_shape_is_right(shape, true));
}

bool bench_draw_parse(int argc, char **argv, struct bench_draw_options *options_out)
{
    struct bench_draw_options options = {
        .shape = {.user = "draw", .variant = -1}, .round = -1, .call = -1};
    for (;;) {
        const int id = getopt_long(argc, argv, BENCH_SHAPE_LETTERS "h", long_options, NULL);
        if (id == -1)
            break;
        if (!take_option(id, &options))
            return false;
    }
    if (!options.wants_help && optind < argc) {
        fprintf(stderr, "draw: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    if (!options.wants_help && !check_together(&options))
        return false;
    if (options.n_bytes == 0)
        options.n_bytes = DEFAULT_BYTES;
    *options_out = options;
    return true;
}
