/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre explain-choice`: the row that decides how a call is carried out, and why each row before it
 * does not fit. The library's own chooser is asked, with a recorder, and GYRE_ALGO and the like
 * count as in a communicator.
 */
#include "bench/command/command.h"
#include "bench/driver/option_table.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

/* In the order of enum gyre_row_file. */
static const char *const machine_names[] = {"h200", "gpu_host_memory", "host"};

/* In the order of enum gyre_won. */
static const char *const won_names[] = {"won", "channels_row", "tile_row"};

struct request {
    enum gyre_collective coll;
    size_t n_bytes;
    uint32_t n_ranks;
    const char *coll_name;
    int machine;
    bool in_window, as_json, wants_help;
};

#define AT(field) .at = offsetof(struct request, field)

static const struct bench_option table[] = {
    {0, "coll", "NAME", "all_reduce, broadcast, ... [all_reduce]", BENCH_TEXT, AT(coll_name)},
    {0, "ranks", "N", "on one host; several hosts are predicted: gyre schedule --predict [4]",
     BENCH_NUMBER, AT(n_ranks), 1, GYRE_MAX_RANKS},
    {0, "machine", "NAME", "h200, gpu_host_memory or host [host]", BENCH_WORD, AT(machine), 0, 3,
     machine_names},
    {0, "window", NULL, "the result lies in a window", BENCH_FLAG, AT(in_window)},
    {0, "json", NULL, "as JSON", BENCH_FLAG, AT(as_json)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static struct gyre_tuner_facts facts_of(const struct request *request, struct gyre_why *why)
{
    const bool is_host = request->machine == GYRE_ROWS_HOST;
    struct gyre_tuner_facts facts = {
        .device_kind = is_host ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA,
        .n_ranks = request->n_ranks,
        .n_hosts = 1,
        .in_host_memory = request->machine == GYRE_ROWS_GPU_HOST_MEMORY,
        .is_ll128_safe = request->machine == GYRE_ROWS_H200,
        .has_lamport = gyre_collectives[request->coll].reduces,
        .is_unscaled = true,
        .in_window = request->in_window,
        .has_large_pages = request->in_window,
        .is_near = true,
        .min_channels = 1,
        .least_sms = is_host ? 0 : 132,
        .why = why,
    };
    facts.spec = gyre_tuner_fifo_spec(facts.device_kind, facts.n_ranks, false, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

static int text_bytes(const struct gyre_row *row)
{
    return (int)strcspn(row->text, "\n");
}

static void print_text(const struct request *request, const struct gyre_choice *choice,
                       const struct gyre_why *why)
{
    printf("%s of %zu B by %u ranks, %s: %s %s %s, %u channels, tiles of %u B\n",
           gyre_collectives[request->coll].name, request->n_bytes, request->n_ranks,
           machine_names[request->machine], choice->algorithm->name,
           gyre_proto_names[choice->proto], gyre_path_names[choice->path], choice->n_channels,
           choice->tile_bytes);
    if (choice->won[GYRE_WON_WAY] == NULL)
        printf("  by no row: GYRE_ALGO, GYRE_PROTO or GYRE_PATH left no other way\n");
    for (int i = 0; i < GYRE_N_WON; i++)
        if (choice->won[i] != NULL)
            printf("  %s:%u  %.*s\n    measured %.*s\n", choice->won[i]->file, choice->won[i]->line,
                   text_bytes(choice->won[i]), choice->won[i]->text,
                   (int)strcspn(choice->won[i]->measured, "\n"), choice->won[i]->measured);
    for (size_t i = 0; i < why->n; i++)
        printf("%s  %s:%u  %.*s: %s\n", i == 0 ? "rows that do not fit:\n" : "",
               why->lost[i].row->file, why->lost[i].row->line, text_bytes(why->lost[i].row),
               why->lost[i].row->text, why->lost[i].reason);
}

static void put_row(const struct gyre_row *row)
{
    printf("{\"file\": \"%s\", \"line\": %u, \"row\": ", row->file, row->line);
    gyre_text_put_json(stdout, row->text, (size_t)text_bytes(row));
    printf(", \"measured\": ");
    gyre_text_put_json(stdout, row->measured, strcspn(row->measured, "\n"));
}

static void print_json(const struct request *request, const struct gyre_choice *choice,
                       const struct gyre_why *why)
{
    printf("{\"collective\": \"%s\", \"bytes\": %zu, \"ranks\": %u, \"machine\": \"%s\",\n"
           " \"algorithm\": \"%s\", \"protocol\": \"%s\", \"path\": \"%s\", \"channels\": %u, "
           "\"tile_bytes\": %u",
           gyre_collectives[request->coll].name, request->n_bytes, request->n_ranks,
           machine_names[request->machine], choice->algorithm->name,
           gyre_proto_names[choice->proto], gyre_path_names[choice->path], choice->n_channels,
           choice->tile_bytes);
    for (int i = 0; i < GYRE_N_WON; i++) {
        printf(",\n \"%s\": ", won_names[i]);
        if (choice->won[i] != NULL)
            put_row(choice->won[i]);
        printf("%s", choice->won[i] != NULL ? "}" : "null");
    }
    printf(",\n \"lost\": [");
    for (size_t i = 0; i < why->n; i++) {
        printf("%s\n  ", i == 0 ? "" : ",");
        put_row(why->lost[i].row);
        printf(", \"reason\": ");
        gyre_text_put_json(stdout, why->lost[i].reason, strlen(why->lost[i].reason));
        printf("}");
    }
    printf("]}\n");
}

static int print_usage(bool is_help)
{
    FILE *file = is_help ? stdout : stderr;
    bench_command_print_examples("explain-choice", file);
    fputs("usage: gyre explain-choice SIZE [options]\n", file);
    bench_options_print(table, 18, file);
    fputs("SIZE is that of the benches, such as 64K; sums are of float32.\n", file);
    return is_help ? 0 : 2;
}

static int answer(const struct request *request)
{
    static struct gyre_params params; /* large, as `why` */
    static struct gyre_why why;
    const struct gyre_tuner_facts facts = facts_of(request, &why);
    const struct gyre_collective_traits *traits = &gyre_collectives[request->coll];
    const size_t n_blocks = traits->in_blocks || traits->out_blocks ? request->n_ranks : 1;
    struct gyre_filter filter;
    struct gyre_choice choice;
    gyre_status status = gyre_params_load(&params);
    if (status == GYRE_SUCCESS)
        status = gyre_filter_of(&params, &filter);
    if (status == GYRE_SUCCESS)
        status =
            gyre_tuner_choose(&facts, &filter, request->coll, request->n_bytes / n_blocks, &choice);
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "gyre explain-choice: %s\n", gyre_cause());
        return 1;
    }
    (request->as_json ? print_json : print_text)(request, &choice, &why);
    return 0;
}

int bench_command_explain_choice(int argc, char **argv)
{
    static const struct bench_command_line line = {
        .options = table, .user = "gyre explain-choice", .has_arguments = true};
    struct request request = {.coll_name = "all_reduce", .n_ranks = 4, .machine = GYRE_ROWS_HOST};
    if (!bench_options_take(&line, argc, argv, &request))
        return 2;
    if (request.wants_help || optind != argc - 1)
        return print_usage(request.wants_help);
    const int coll = gyre_collective_find(request.coll_name);
    if (coll < 0) {
        fprintf(stderr, "gyre explain-choice: --coll %s: there is no such collective\n",
                request.coll_name);
        return 2;
    }
    request.coll = (enum gyre_collective)coll;
    if (bench_parse_bytes(argv[optind], &request.n_bytes) == GYRE_SUCCESS)
        return answer(&request);
    fprintf(stderr, "gyre explain-choice: %s\n", gyre_cause());
    return 2;
}
