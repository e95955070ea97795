/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict shows whether the simulator and the tuner are right.
 */
#include "bench/tools/trials.h"

#include "bench/driver/measure.h"
#include "core/engine/comm/local.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct summary {
    int n_sizes;
    double log_sum;    /* of |log(predicted / measured)| */
    double worst_loss; /* tuner against fastest */
    size_t worst_bytes;
    int n_losses; /* above MOST_LOSS */
};

#define MOST_LOSS     0.05
#define MOST_SLOWNESS 3.0

/* The fastest of many was picked for its low time and looks too fast, so it is timed again beside
 * the tuner's choice. @pairs_out: a size's tuner's trial, which comes first, and the fastest other,
 * or itself if there is none. */
static void pair_with_fastest(const struct bench_trials *trials, struct bench_trials *pairs_out)
{
    for (int i = 0, next; i < trials->n_trials; i = next) {
        for (next = i + 1; next < trials->n_trials && !trials->trials[next].is_tuned; next++)
            ;
        const struct bench_trial *best = &trials->trials[next > i + 1 ? i + 1 : i];
        for (int k = i + 1; k < next; k++)
            if (best->is_dropped ||
                (!trials->trials[k].is_dropped && trials->trials[k].us < best->us))
                best = &trials->trials[k];
        pairs_out->trials[pairs_out->n_trials++] = trials->trials[i];
        pairs_out->trials[pairs_out->n_trials++] = *best;
    }
}

static void add_pair(const struct bench_rank *rank, const struct bench_trial *pair,
                     struct summary *summary)
{
    const struct bench_trial *tuned = &pair[0], *fastest = &pair[1];
    const struct bench_trial *best = fastest->us < tuned->us ? fastest : tuned;
    const double loss = best->us > 0 ? tuned->us / best->us - 1 : 0;
    summary->n_sizes++;
    if (tuned->predicted_us > 0 && tuned->us > 0)
        summary->log_sum += fabs(log(tuned->predicted_us / tuned->us));
    summary->n_losses += loss > MOST_LOSS;
    if (loss > summary->worst_loss) {
        summary->worst_loss = loss;
        summary->worst_bytes = tuned->what.n_bytes;
    }
    if (rank->member.rank != 0)
        return;
    printf("%12zu  %-8s %-7s %3u %7u %10.2f %10.2f %6.2f  %-8s %-7s %3u %7u %10.2f %5.1f%%\n",
           tuned->what.n_bytes, tuned->choice.algorithm->name,
           gyre_proto_names[tuned->choice.proto], tuned->choice.n_channels,
           tuned->choice.tile_bytes, tuned->predicted_us, tuned->us,
           tuned->us > 0 ? tuned->predicted_us / tuned->us : 0, best->choice.algorithm->name,
           gyre_proto_names[best->choice.proto], best->choice.n_channels, best->choice.tile_bytes,
           best->us, loss * 100);
    fflush(stdout);
}

static gyre_status check_options(const struct bench_rank *rank)
{
    const struct bench_options *options = rank->options;
    if (rank->kind->coll == GYRE_COLL_SEND_RECV)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--predict: there is only one way to carry out point to point");
    if (options->dtype == BENCH_ALL || options->op == BENCH_ALL || options->root == BENCH_ALL)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "--predict takes one type, one operation and one root: -d, -o and -r cannot be all");
    return GYRE_SUCCESS;
}

gyre_status bench_predict(struct bench_rank *rank)
{
    struct summary summary = {0};
    struct bench_trials *trials = calloc(1, sizeof(*trials));
    struct bench_trials *pairs = calloc(1, sizeof(*pairs));
    gyre_status status = trials == NULL || pairs == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for trials")
                             : check_options(rank);
    if (status == GYRE_SUCCESS) {
        trials->most_slowness = MOST_SLOWNESS;
        const struct bench_options *options = rank->options;
        const struct bench_case wanted = {.coll = rank->kind->coll,
                                          .dtype = (gyre_dtype)options->dtype,
                                          .op = (gyre_op)options->op,
                                          .root = options->root};
        status = bench_list_trials(rank, &wanted, 1, trials);
    }
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS && rank->member.rank == 0) {
        const struct gyre_tuner_facts *facts = gyre_plan_facts(gyre_comm_plans(rank->comm));
        printf("# %s, %d ranks on %u host%s; constants: %s; choices by %s\n",
               gyre_collectives[rank->kind->coll].name, rank->member.n_ranks, facts->n_hosts,
               facts->n_hosts == 1 ? "" : "s", facts->cost != NULL ? "GYRE_TUNING_FILE" : "shipped",
               facts->cost != NULL ? "prediction" : "the shipped tables");
        printf("# medians of %d interleaved rounds; %s\n", rank->options->n_rounds,
               rank->options->n_graph_launches > 0
                   ? "calls of a graph"
                   : "a call ends everywhere before the next starts");
        printf("#%11s  %-8s %-7s %3s %7s %10s %10s %6s  %-8s %-7s %3s %7s %10s %6s\n", "bytes",
               "tuner", "proto", "ch", "tile", "predicted", "measured", "ratio", "best", "proto",
               "ch", "tile", "measured", "loss");
    }
    if (status == GYRE_SUCCESS)
        status = bench_time_trials(rank, trials);
    if (status == GYRE_SUCCESS) {
        pair_with_fastest(trials, pairs);
        status = bench_time_trials(rank, pairs);
    }
    for (int i = 0; status == GYRE_SUCCESS && i + 1 < pairs->n_trials; i += 2)
        add_pair(rank, &pairs->trials[i], &summary);
    if (status == GYRE_SUCCESS && rank->member.rank == 0 && summary.n_sizes > 0) {
        printf("# predicted and measured differ by a factor of %.2f (geometric mean)\n",
               exp(summary.log_sum / summary.n_sizes));
        printf("# the tuner loses over %.0f%% to the best choice at %d of %d sizes, at most %.1f%% "
               "(%zu B)\n",
               MOST_LOSS * 100, summary.n_losses, summary.n_sizes, summary.worst_loss * 100,
               summary.worst_bytes);
    }
    free(pairs);
    free(trials);
    return status;
}
