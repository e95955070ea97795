/* SPDX-License-Identifier: Apache-2.0
 *
 * draw: a page plays a collective's programs step by step, an SVG shows the rounds. Wrong programs
 * are drawn with the verifier's findings.
 *
 *    draw --algo tree --coll all_reduce --ranks 8 --html tree.html
 *    draw --file mine.txt --svg mine.svg
 */
#include "bench/draw/drawing.h"
#include "bench/driver/option_table.h"
#include "bench/tools/programs.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct bench_shape_options shape;
    struct bench_schedule_request request;
    const char *html; /* "-" = standard output */
    const char *svg;
    const char *json;
    const char *fabric;
    const char *trace; /* of measured times */
    int call;          /* of the trace, -1 = the last that fits */
    uint64_t n_bytes;
    bool asks_for_times;
    int round; /* alone in the SVG, -1 = several */
    bool wants_help;
};

#define DEFAULT_BYTES (1U << 20)

#define AT(field)     .at = offsetof(struct options, field)

static const struct bench_option table[] = {
    {0, "html", "FILE", "a page that shows the programs step by step (- = standard output)",
     BENCH_TEXT, AT(html)},
    {0, "svg", "FILE", "a picture of the rounds, side by side", BENCH_TEXT, AT(svg)},
    {0, "round", "R", "this round alone, in the SVG", BENCH_NUMBER, AT(round), 0, 1000000},
    {0, "json", "FILE", "the data of the page", BENCH_TEXT, AT(json)},
    {0, "fabric", "FILE",
     "draw hosts, switches and links (docs/fabric.md), or those of a machine,\nsuch as alps, of "
     "which --hosts 16x4 may say how many; with --svg",
     BENCH_TEXT, AT(fabric)},
    BENCH_SHAPE_OPTIONS(struct options, shape),
    {0, "bytes", "SIZE", "the size whose times are predicted (default 1M); all blocks together",
     BENCH_BYTES, AT(n_bytes), 1, .expected = "a size from 1 on, such as 64K or 1M"},
    {0, "cost", "NAME", "the machine: host, h200 (default), or a file that gyre tune wrote",
     BENCH_TEXT, AT(request.cost)},
    {0, "proto", "NAME", "simple, ll, ll128 or lamport (default: the tuner's choice)", BENCH_TEXT,
     AT(request.proto)},
    BENCH_TILING_OPTIONS(struct options, request, "likewise"),
    BENCH_NET_OPTION(struct options, request,
                     "what is between hosts: ib (RDMA, default) or socket (TCP)"),
    {0, "from-trace", "FILE", "show the times of a call that GYRE_TRACE_FILE recorded, instead",
     BENCH_TEXT, AT(trace)},
    {0, "call", "N", "its number in the trace (default: the last one of these programs)",
     BENCH_NUMBER, AT(call), 0, INT_MAX},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static void print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --algo NAME --coll NAME --ranks N --html FILE [options]\n"
            "       %s --file PROGRAMS {--html FILE | --svg FILE | --json FILE}\n"
            "       %s --fabric FILE --svg FILE\n",
            program, program, program);
    bench_options_print(table, 22, out);
    fputs("Exit status: 0, also if the programs are wrong; 1 nothing was drawn; 2 wrong usage.\n"
          "\nalgorithms:\n",
          out);
    bench_shape_print_algorithms(out);
}

/* Finds the algorithm and its shape, unless programs are given. */
static bool check_together(const struct options *options,
                           const struct gyre_algorithm **algorithm_out,
                           struct gyre_shape *shape_out)
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
        wrong = "--from-trace needs --html or --json, and does not go with --bytes, --cost, "
                "--proto, --channels, --tile, --depth and --net, which are about predicted times";
    else if (options->call >= 0 && options->trace == NULL)
        wrong = "--call needs --from-trace";
    else if (options->shape.file != NULL && options->shape.variant >= 0)
        wrong = "--variant does not go with --file, which holds one variant";
    if (wrong != NULL)
        fprintf(stderr, "draw: %s\n", wrong);
    return wrong == NULL &&
           (shape->file != NULL || bench_shape_find(shape, true, algorithm_out, shape_out));
}

enum format { HTML, SVG, JSON };

static bool say(const char *cause)
{
    fprintf(stderr, "draw: %s\n", cause);
    return false;
}

/* @path: NULL = not wanted. */
static bool write_file(const struct bench_drawing *drawing, const struct options *options,
                       const char *title, enum format format, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    if (path == NULL)
        return true;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return say("no memory for the picture");
    gyre_status status = format == HTML  ? bench_draw_page(drawing, title, file)
                         : format == SVG ? bench_draw_svg(drawing, title, options->round, file)
                                         : bench_draw_json(drawing, title, file);
    if (format == JSON)
        fputc('\n', file);
    const bool is_lost = ferror(file) != 0;
    if ((fclose(file) != 0 || is_lost) && status == GYRE_SUCCESS)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the picture");
    /* Written last, so that a failure leaves the old picture. */
    if (status == GYRE_SUCCESS && strcmp(path, "-") == 0)
        (void)fwrite(text, 1, n_bytes, stdout);
    else if (status == GYRE_SUCCESS)
        status = gyre_file_replace(path, text, n_bytes);
    free(text);
    return status == GYRE_SUCCESS || say(gyre_cause());
}

static bool write_all(const struct bench_drawing *drawing, const struct options *options)
{
    char *title = NULL;
    if (bench_draw_title(drawing, &title) != GYRE_SUCCESS)
        return say(gyre_cause());
    const bool ok = write_file(drawing, options, title, HTML, options->html) &&
                    write_file(drawing, options, title, SVG, options->svg) &&
                    write_file(drawing, options, title, JSON, options->json);
    if (ok && !drawing->is_proved)
        fprintf(stderr, "draw: the programs are wrong%s: %s\n",
                drawing->is_wrong_in_place_only ? " in place" : "", drawing->report.reason);
    free(title);
    return ok;
}

static bool find_times(struct bench_drawing *drawing, const struct options *options,
                       const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    struct bench_schedule_request request = options->request;
    if (options->html == NULL && options->json == NULL)
        return true;
    if (options->trace != NULL)
        return bench_draw_measured_times(drawing, options->trace, options->call) == GYRE_SUCCESS ||
               say(gyre_cause());
    if (algorithm == NULL || shape->most_range > 0) {
        drawing->times.missing =
            algorithm == NULL ? "Programs that cannot run together have no predicted times."
                              : "Ranges are drawn chunk by chunk, but move together: no times.";
        return !options->asks_for_times || say(drawing->times.missing);
    }
    request.algorithm = algorithm;
    request.shape = (struct gyre_shape){.coll = shape->coll,
                                        .n_ranks = shape->n_ranks,
                                        .root = shape->root,
                                        .grouping = shape->grouping};
    const gyre_status status = bench_draw_find_times(drawing, &request, options->n_bytes);
    /* Wrong programs may not end. */
    if ((status == GYRE_ERROR_UNSUPPORTED || !drawing->is_proved) && status != GYRE_SUCCESS &&
        !options->asks_for_times) {
        drawing->times.n_steps = 0;
        drawing->times.missing = status == GYRE_ERROR_UNSUPPORTED
                                     ? "There are too many steps to show their times."
                                     : "The programs cannot be simulated to their end.";
        return true;
    }
    return status == GYRE_SUCCESS || say(gyre_cause());
}

/* @algorithm: NULL = no simulation. */
static bool draw(const struct options *options, const struct gyre_program *const *programs,
                 int n_programs, const struct gyre_algorithm *algorithm,
                 const struct gyre_shape *shape)
{
    struct bench_drawing drawing;
    if (bench_drawing_open(programs, n_programs, shape->grouping, &drawing) != GYRE_SUCCESS)
        return say(gyre_cause());
    drawing.variant = shape->variant;
    const bool ok = find_times(&drawing, options, algorithm, shape) && write_all(&drawing, options);
    bench_drawing_close(&drawing);
    return ok;
}

static int draw_fabric(const struct options *options)
{
    struct bench_fabric fabric = {.fabric = NULL};
    unsigned n_hosts = 0, n_gpus = 0;
    char *text = NULL;
    size_t n_bytes = 0;
    const struct bench_shape_options *shape = &options->shape;
    const char *slash = strrchr(options->fabric, '/');
    if (options->svg == NULL || options->html != NULL || options->json != NULL ||
        shape->file != NULL || shape->algorithm != NULL || shape->n_ranks > 0 ||
        (shape->hosts != NULL && (!bench_fabric_is_machine(options->fabric) ||
                                  sscanf(shape->hosts, "%5ux%5u", &n_hosts, &n_gpus) != 2))) {
        fputs("draw: --fabric needs --svg, and goes with nothing else but, for a machine, --hosts "
              "16x4\n",
              stderr);
        return 2;
    }
    FILE *file = open_memstream(&text, &n_bytes);
    gyre_status status = file == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the picture")
                             : bench_fabric_load(options->fabric, n_hosts, n_gpus, &fabric);
    if (status == GYRE_SUCCESS)
        status =
            bench_draw_fabric(fabric.fabric, slash == NULL ? options->fabric : slash + 1, file);
    if (file != NULL && fclose(file) != 0 && status == GYRE_SUCCESS)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the picture");
    if (status == GYRE_SUCCESS && strcmp(options->svg, "-") == 0)
        fputs(text, stdout);
    else if (status == GYRE_SUCCESS)
        status = gyre_file_replace(options->svg, text, n_bytes);
    bench_fabric_close(&fabric);
    free(text);
    return status == GYRE_SUCCESS || say(gyre_cause()) ? 0 : 1;
}

static bool can_draw(uint32_t n_ranks)
{
    if (n_ranks <= BENCH_DRAW_MAX_RANKS)
        return true;
    fprintf(stderr, "draw: %u ranks are too many to draw (at most %u): give fewer ranks\n", n_ranks,
            BENCH_DRAW_MAX_RANKS);
    return false;
}

static bool draw_file(const struct options *options)
{
    struct gyre_shape shape = {0};
    struct gyre_program_file file;
    if (!bench_programs_load("draw", options->shape.file, &file))
        return false;
    bool ok = file.n_sets == 1;
    if (!ok)
        fprintf(stderr, "draw: %s holds the programs of %d shapes: give a file with one\n",
                options->shape.file, file.n_sets);
    ok = ok && can_draw(file.programs[0]->n_ranks);
    ok = ok && bench_shape_find_hosts(&options->shape, file.programs[0]->n_ranks, &shape.grouping);
    for (int i = 0; i < file.n_programs && ok; i++) {
        shape.most_range = file.programs[i]->max_range > 1 ? 1 : shape.most_range;
        ok = gyre_program_cut(file.programs[i], shape.most_range) == GYRE_SUCCESS ||
             say(gyre_cause());
    }
    if (ok) {
        const struct gyre_program *const *programs = gyre_program_file_set(&file, 0);
        struct gyre_given_programs given = {.n_variants = 1, .programs = {programs}};
        struct gyre_algorithm algorithm;
        const bool fits = file.n_programs == programs[0]->n_ranks &&
                          gyre_algorithm_give(&given, shape.grouping, &algorithm) == GYRE_SUCCESS;
        shape.coll = programs[0]->coll;
        shape.n_ranks = programs[0]->n_ranks;
        shape.root = programs[0]->root;
        ok = draw(options, programs, file.n_programs, fits ? &algorithm : NULL, &shape);
    }
    gyre_program_file_free(&file);
    return ok;
}

static bool draw_algorithm(const struct options *options, const struct gyre_algorithm *algorithm,
                           struct gyre_shape shape)
{
    static struct bench_programs programs = {.user = "draw"};
    if (!can_draw(shape.n_ranks))
        return false;
    shape.variant = (uint16_t)(options->shape.variant < 0 ? 0 : options->shape.variant);
    shape.most_range = gyre_algorithm_ability(algorithm, &shape).ranges ? 1 : 0; /* one by one */
    const bool ok = bench_programs_emit(algorithm, &shape, &programs) &&
                    draw(options, (const struct gyre_program *const *)programs.of_rank, programs.n,
                         algorithm, &shape);
    bench_programs_free(&programs);
    return ok;
}

static int run(int argc, char **argv)
{
    static const struct bench_command_line line = {.options = table, .user = "draw"};
    struct options options = {.shape = {.user = "draw", .variant = -1}, .round = -1, .call = -1};
    const struct bench_schedule_request *request = &options.request;
    const struct gyre_algorithm *algorithm = NULL;
    struct gyre_shape shape = {0};
    const int ended = bench_options_start(&line, argc, argv, &options, print_usage);
    if (ended >= 0)
        return ended;
    if (options.fabric != NULL)
        return draw_fabric(&options);
    options.asks_for_times = options.n_bytes > 0 || request->cost != NULL ||
                             request->proto != NULL || request->n_channels > 0 ||
                             request->tile_bytes > 0 || request->depth > 0 ||
                             request->net != BENCH_NET_UNNAMED;
    if (!check_together(&options, &algorithm, &shape))
        return 2;
    if (options.n_bytes == 0)
        options.n_bytes = DEFAULT_BYTES;
    const bool ok = options.shape.file != NULL ? draw_file(&options)
                                               : draw_algorithm(&options, algorithm, shape);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("draw", run(argc, argv));
}
