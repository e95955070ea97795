/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of --compare-algos. The first algorithm of the list is the one that the others are held
 * against.
 */
#include "bench/engines/compare_algos.h"

#include "bench/driver/measure.h"
#include "bench/driver/streams.h"

#include <stdio.h>
#include <string.h>

struct list {
    char names[BENCH_MAX_CONTENDERS][16];
    struct bench_contender contenders[BENCH_MAX_CONTENDERS];
    int n;
};

/* The options were checked before. */
static void parse_list(const char *text, struct list *list)
{
    list->n = 0;
    while (*text != '\0' && list->n < BENCH_MAX_CONTENDERS) {
        const size_t n_bytes = strcspn(text, ",");
        char *name = list->names[list->n];
        snprintf(name, sizeof(list->names[0]), "%.*s", (int)n_bytes, text);
        list->contenders[list->n++].name = name;
        text += n_bytes;
        text += *text == ',';
    }
}

static void print_header(const struct bench_rank *rank, const struct list *list)
{
    const char *first = list->contenders[0].name;
    printf("# %s of %d ranks, out of place: algorithms in turns, %d rounds\n",
           gyre_collectives[rank->kind->coll].name, rank->member.n_ranks, rank->options->n_rounds);
    printf("# us: median over the rounds. ratio: time over that of %s in the same round, median\n"
           "# and interval of about 95 %% confidence; above 1, %s is faster\n#%11s %14s",
           first, first, "size", first);
    for (int i = 1; i < list->n; i++)
        printf(" %14s %7s %7s %7s", list->contenders[i].name, "ratio", "low", "high");
    printf("\n");
}

static gyre_status print_row(const struct bench_case *what, const struct list *list,
                             const struct bench_comparison *comparisons)
{
    printf("%12zu %14.2f", what->n_bytes, comparisons[0].gyre_us);
    for (int i = 1; i < list->n; i++)
        printf(" %14.2f %7.3f %7.3f %7.3f", comparisons[i - 1].reference_us,
               comparisons[i - 1].ratio, comparisons[i - 1].ratio_low,
               comparisons[i - 1].ratio_high);
    printf("\n");
    return bench_streams_flush();
}

static gyre_status compare_size(struct bench_rank *rank, const struct list *list,
                                const struct bench_case *what)
{
    struct bench_comparison comparisons[BENCH_MAX_CONTENDERS];
    const struct bench_call call = bench_call_of(rank, &rank->buffers, what, false);
    GYRE_TRY(bench_compare_contenders(rank, list->contenders, list->n, &call, comparisons));
    bench_progress_end(rank->progress);
    const gyre_status status =
        rank->member.rank == 0 ? print_row(what, list, comparisons) : GYRE_SUCCESS;
    return bench_rank_agree(rank, status);
}

gyre_status bench_compare_algos(struct bench_rank *rank)
{
    const struct bench_options *options = rank->options;
    struct list list;
    gyre_status status = GYRE_SUCCESS;
    parse_list(options->compare_algos, &list);
    if (rank->kind->coll == GYRE_COLL_SEND_RECV)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "--compare-algos: point to point has one algorithm only");
    GYRE_TRY(bench_rank_agree(rank, status));
    if (rank->member.rank == 0)
        print_header(rank, &list);
    struct bench_case wanted = {.coll = rank->kind->coll,
                                .dtype = (gyre_dtype)options->dtype,
                                .op = (gyre_op)options->op,
                                .root = options->root,
                                .n_bytes = options->min_bytes};
    while (wanted.n_bytes <= options->max_bytes) {
        const struct bench_case what = bench_case_of(&wanted, rank->member.n_ranks);
        GYRE_TRY(compare_size(rank, &list, &what));
        wanted.n_bytes = bench_options_next_bytes(options, wanted.n_bytes);
    }
    return GYRE_SUCCESS;
}
