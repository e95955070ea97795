/* SPDX-License-Identifier: Apache-2.0
 *
 * --compare-algos holds the others against the first algorithm.
 */
#include "bench/engines/compare.h"

#include "bench/driver/option_table.h"
#include "bench/driver/rank.h"
#include "bench/report/output.h"
#include "bench/report/table_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
    char names[BENCH_MAX_CONTENDERS][BENCH_CONTENDER_BYTES];
    struct bench_contender contenders[BENCH_MAX_CONTENDERS];
    int n;
    const struct bench_engine *engine; /* of --compare, may lack ops */
    struct bench_json *json;
    struct bench_tidy *tidy;
};

static gyre_status compare_size(struct bench_rank *rank, const struct bench_setting *setting,
                                struct list *list, const struct bench_case *what)
{
    struct bench_comparison comparisons[BENCH_MAX_CONTENDERS];
    const struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    GYRE_TRY(bench_compare_contenders(rank, list->engine, list->contenders, list->n, &call,
                                      comparisons));
    bench_progress_end(rank->progress);
    gyre_status status = GYRE_SUCCESS;
    if (rank->self.rank == 0) {
        printf("%12zu %14.2f", what->n_bytes, comparisons[0].gyre_us);
        for (int i = 1; i < list->n; i++)
            printf(" %14.2f %7.3f %7.3f %7.3f", comparisons[i - 1].reference_us,
                   comparisons[i - 1].ratio, comparisons[i - 1].ratio_low,
                   comparisons[i - 1].ratio_high);
        printf("\n");
        status = bench_streams_flush();
    }
    for (int i = 0; i < list->n && rank->self.rank == 0 && status == GYRE_SUCCESS; i++) {
        const struct bench_contender *contender = &list->contenders[i];
        const struct bench_comparison *compared = i == 0 ? NULL : &comparisons[i - 1];
        const double us = i == 0 ? comparisons[0].gyre_us : compared->reference_us;
        struct bench_tidy_row row = {.engine =
                                         contender->plan.n_channels > 0 ? "gyre" : contender->name,
                                     .machine = setting->places[0].host,
                                     .device = setting->device,
                                     .fabric = "",
                                     .dtype = gyre_dtype_names[what->dtype],
                                     .n_ranks = (unsigned)setting->n_ranks,
                                     .n_hosts = bench_n_hosts(setting),
                                     .coll = what->coll,
                                     .algorithm = contender->name,
                                     .proto = contender->plan.proto,
                                     .n_channels = contender->plan.n_channels,
                                     .n_bytes = what->n_bytes,
                                     .time_us = us};
        if (compared != NULL) {
            row.ratio = compared->ratio;
            row.ratio_low = compared->ratio_low;
            row.ratio_high = compared->ratio_high;
        }
        status = bench_tidy_row(list->tidy, &row);
        if (status == GYRE_SUCCESS)
            status = bench_json_contender(list->json, what, contender, us, compared);
    }
    return bench_rank_agree(rank, status);
}

static gyre_status compare_sizes(struct bench_rank *rank, const struct bench_setting *setting,
                                 struct list *list)
{
    const struct bench_options *options = rank->options;
    gyre_status status = GYRE_SUCCESS;
    if (rank->kind->coll == GYRE_COLL_SEND_RECV)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "--compare-algos: point to point has one algorithm only");
    if (status == GYRE_SUCCESS && rank->self.rank == 0 && options->json_path != NULL)
        status = bench_json_open(setting, &list->json);
    if (status == GYRE_SUCCESS && rank->self.rank == 0 && options->csv_path != NULL)
        status = bench_tidy_open(options->csv_path, false, &list->tidy);
    GYRE_TRY(bench_rank_agree(rank, status));
    if (rank->self.rank == 0) {
        const char *first = list->contenders[0].name;
        printf("# %s of %d ranks, out of place: algorithms in turns, %d rounds\n",
               gyre_collectives[rank->kind->coll].name, rank->self.n_ranks,
               rank->options->n_rounds);
        printf(
            "# us: median over the rounds. ratio: time over that of %s in the same round, median\n"
            "# and interval of about 95 %% confidence; above 1, %s is faster\n#%11s %14s",
            first, first, "size", first);
        for (int i = 1; i < list->n; i++)
            printf(" %14s %7s %7s %7s", list->contenders[i].name, "ratio", "low", "high");
        printf("\n");
    }
    struct bench_case wanted = {.coll = rank->kind->coll,
                                .dtype = (gyre_dtype)options->dtype,
                                .op = (gyre_op)options->op,
                                .root = options->root,
                                .n_bytes = options->min_bytes};
    const char *at = options->sizes; /* checked before */
    while (at != NULL ? bench_options_take_size(&at, &wanted.n_bytes) == GYRE_SUCCESS
                      : wanted.n_bytes <= options->max_bytes) {
        const struct bench_case what = bench_case_of(&wanted, rank->self.n_ranks);
        GYRE_TRY(compare_size(rank, setting, list, &what));
        if (at == NULL)
            wanted.n_bytes = bench_options_next_bytes(options, wanted.n_bytes);
        else if (*at == '\0')
            break;
    }
    return GYRE_SUCCESS;
}

gyre_status bench_compare_algos(struct bench_rank *rank, const struct bench_setting *setting,
                                const struct bench_engine *engine)
{
    struct list list = {.engine = engine};
    for (const char *at = rank->options->compare_algos; *at != '\0'; at += *at == ',') {
        const size_t n_bytes = strcspn(at, ",");
        char *name = list.names[list.n];
        snprintf(name, sizeof(list.names[0]), "%.*s", (int)n_bytes, at);
        list.contenders[list.n++] = (struct bench_contender){.name = name};
        at += n_bytes;
    }
    const gyre_status status = compare_sizes(rank, setting, &list);
    for (int i = 0; i < list.n; i++)
        free(list.contenders[i].us);
    const gyre_status tidied = bench_tidy_close(list.tidy);
    const gyre_status closed = bench_json_close(list.json, NULL);
    return status != GYRE_SUCCESS ? status : tidied != GYRE_SUCCESS ? tidied : closed;
}
