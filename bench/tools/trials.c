/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials take turns, so that clock rates and other programs' load affect all.
 */
#include "bench/tools/trials.h"

#include "bench/driver/rank.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A trial's share of a round. */
#define TRIAL_US    5000.0
#define MAX_CALLS   500
#define MIN_CALLS   3
#define PROBE_CALLS 3

/* First calls load programs into cold caches within MOST_WARMUP_US. A longer one is too slow only
 * beyond FIRST_CALL_DOUBT. */
#define MOST_WARMUP_US   10000.0
#define FIRST_CALL_DOUBT 3.0

static struct gyre_call call_of(const struct bench_case *what)
{
    return (struct gyre_call){.coll = what->coll,
                              .count = what->count,
                              .dtype = what->dtype,
                              .op = what->op,
                              .is_send = true};
}

/* Skips impossible, forbidden and, from `first` on, equal choices. */
static void add_trial(const struct bench_rank *rank, const struct bench_case *what,
                      const struct gyre_choice *forced, int first, struct bench_trials *trials)
{
    struct bench_trial trial = {.what = *what, .is_tuned = forced == NULL};
    gyre_plan_force(gyre_comm_plans(rank->comm), forced);
    struct gyre_plan_summary summary;
    const struct gyre_call call = call_of(what);
    gyre_status status = gyre_plan_choice(gyre_comm_plans(rank->comm), &call, &trial.choice);
    if (status == GYRE_SUCCESS)
        status = gyre_plan_describe(gyre_comm_plans(rank->comm), &call, &summary);
    gyre_plan_force(gyre_comm_plans(rank->comm), NULL);
    if (status != GYRE_SUCCESS || trials->n_trials == BENCH_MAX_TRIALS)
        return;
    trial.choice.n_channels = summary.n_channels; /* pairs may need several connections */
    trial.predicted_us = summary.predicted_us;
    for (int i = first; i < trials->n_trials; i++)
        if ((trials->trials[i].choice.algorithm == trial.choice.algorithm &&
             trials->trials[i].choice.proto == trial.choice.proto &&
             trials->trials[i].choice.n_channels == trial.choice.n_channels &&
             trials->trials[i].choice.tile_bytes == trial.choice.tile_bytes))
            return;
    trials->trials[trials->n_trials++] = trial;
}

static void add_algorithm(const struct bench_rank *rank, const struct bench_case *what,
                          const struct gyre_choice *algorithm, int first,
                          struct bench_trials *trials)
{
    const struct gyre_tuner_facts *facts = gyre_plan_facts(gyre_comm_plans(rank->comm));
    const uint32_t most_bytes =
        gyre_tuner_payload_bytes(facts, algorithm->algorithm, what->coll, algorithm->proto, false) /
        16 * 16;
    struct gyre_choice forced = *algorithm;
    add_trial(rank, what, &forced, first, trials);
    for (uint32_t n = facts->min_channels; n <= facts->max_channels; n *= 4)
        for (uint32_t tile = most_bytes; tile >= most_bytes / 16; tile /= 4) {
            if (tile < most_bytes && tile * n > what->count * gyre_dtype_bytes(what->dtype))
                continue;
            forced.n_channels = n;
            forced.tile_bytes = tile / 16 * 16;
            add_trial(rank, what, &forced, first, trials);
        }
}

gyre_status bench_list_trials(const struct bench_rank *rank, const struct bench_case *wanted,
                              size_t n_wanted, struct bench_trials *trials)
{
    const struct bench_options *options = rank->options;
    for (size_t n_bytes = options->min_bytes; n_bytes <= options->max_bytes;
         n_bytes = bench_options_next_bytes(options, n_bytes))
        for (size_t k = 0; k < n_wanted; k++) {
            struct bench_case what = wanted[k];
            what.n_bytes = n_bytes;
            what = bench_case_of(&what, rank->self.n_ranks);
            if (what.count == 0)
                continue;
            const struct gyre_call call = call_of(&what);
            const struct gyre_tuner_facts facts =
                gyre_plan_facts_of(gyre_comm_plans(rank->comm), &call);
            const int first = trials->n_trials;
            struct gyre_plan_summary summary;
            const gyre_status status =
                gyre_plan_describe(gyre_comm_plans(rank->comm), &call, &summary);
            if (status != GYRE_SUCCESS && rank->window != 0)
                return gyre_fail_context(status, "here calls are planned as if in no window");
            GYRE_TRY(status);
            const struct gyre_shape shape = {
                .coll = what.coll, .n_ranks = (uint16_t)facts.n_ranks, .grouping = facts.grouping};
            add_trial(rank, &what, NULL, first, trials);
            for (int i = 0; gyre_algorithms[i] != NULL; i++)
                for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
                    const struct gyre_choice algorithm = {.algorithm = gyre_algorithms[i],
                                                          .proto = (enum gyre_proto)proto};
                    if (gyre_algorithm_suits(gyre_algorithms[i], &shape) &&
                        gyre_tuner_proto_obstacle(&facts, (enum gyre_proto)proto) == NULL)
                        add_algorithm(rank, &what, &algorithm, first, trials);
                }
            if (trials->n_trials == BENCH_MAX_TRIALS)
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "there are more than %d choices to try: give fewer sizes",
                                 BENCH_MAX_TRIALS - 1);
        }
    return GYRE_SUCCESS;
}

static gyre_status time_calls(const struct bench_rank *rank, const struct bench_trial *trial,
                              const struct bench_call *call, double *us, size_t n)
{
    const bool ranks_may_drift = gyre_collectives[trial->what.coll].has_root;
    for (size_t i = 0; i < n; i++) {
        const uint64_t start_ns = gyre_now_ns();
        GYRE_TRY(bench_enqueue(rank, call));
        GYRE_TRY(bench_wait(rank));
        us[i] = (double)(gyre_now_ns() - start_ns) / 1e3;
        if (ranks_may_drift) {
            gyre_plan_force(gyre_comm_plans(rank->comm), NULL);
            const gyre_status status =
                gyre_all_reduce(rank->buffers.send, rank->buffers.send, 1, GYRE_FLOAT32, GYRE_SUM,
                                rank->comm, rank->stream);
            gyre_plan_force(gyre_comm_plans(rank->comm), &trial->choice);
            GYRE_TRY(status);
            GYRE_TRY(bench_wait(rank));
        }
    }
    return GYRE_SUCCESS;
}

/* us[i]: longest over ranks. */
static gyre_status time_trial(struct bench_rank *rank, const struct bench_trial *trial, double *us,
                              size_t n)
{
    const struct bench_call call = bench_call_of(rank, &rank->buffers, &trial->what, false);
    gyre_plan_force(gyre_comm_plans(rank->comm), &trial->choice);
    GYRE_TRY(bench_ranks_barrier(&rank->self));
    gyre_status status = GYRE_SUCCESS;
    if (rank->options->n_graph_launches == 0) {
        status = time_calls(rank, trial, &call, us, n);
    } else {
        status = bench_enqueue(rank, &call); /* loading cannot be captured */
        if (status == GYRE_SUCCESS)
            status = bench_wait(rank);
        if (status == GYRE_SUCCESS)
            status = bench_time_graph(rank, &call, (int)n, &us[0]);
        for (size_t i = 1; i < n; i++) /* all calls get the mean */
            us[i] = us[0];
    }
    gyre_plan_force(gyre_comm_plans(rank->comm), NULL);
    GYRE_TRY(bench_rank_agree(rank, status));
    return bench_max_over_ranks(rank, us, n);
}

/* @doubt: possible factor over its first calls. */
static bool is_too_slow(const struct bench_trials *trials, const struct bench_trial *trial,
                        double doubt)
{
    double fastest_us = INFINITY;
    for (int i = 0; i < trials->n_trials; i++)
        if (trials->trials[i].what.n_bytes == trial->what.n_bytes && trials->trials[i].us > 0)
            fastest_us = fmin(fastest_us, trials->trials[i].us);
    return trials->most_slowness > 0 && !trial->is_tuned &&
           trial->us > doubt * trials->most_slowness * fastest_us;
}

/* Times the trial twice after a call; the shorter counts. Only a trial that warm-up may explain is
 * timed again. All ranks decide alike. */
static gyre_status probe(struct bench_rank *rank, const struct bench_trials *trials,
                         struct bench_trial *trial)
{
    double us[PROBE_CALLS];
    bench_progress_begin(rank->progress, trial->what.n_bytes, "first calls of every way");
    GYRE_TRY(time_trial(rank, trial, us, 1));
    trial->us = us[0];
    if (trial->us > MOST_WARMUP_US && is_too_slow(trials, trial, FIRST_CALL_DOUBT))
        return GYRE_SUCCESS;
    for (int pass = 0; pass < 2; pass++) {
        GYRE_TRY(time_trial(rank, trial, us, PROBE_CALLS));
        const double median_us = bench_median_of(us, PROBE_CALLS);
        if (pass == 0 || median_us < trial->us)
            trial->us = median_us;
    }
    return GYRE_SUCCESS;
}

/* @n_calls: by trial. @medians: by trial and round. */
static gyre_status run_rounds(struct bench_rank *rank, struct bench_trials *trials, size_t *n_calls,
                              double *medians)
{
    const size_t n_rounds = (size_t)rank->options->n_rounds;
    double us[MAX_CALLS];
    for (int i = 0; i < trials->n_trials; i++)
        GYRE_TRY(probe(rank, trials, &trials->trials[i]));
    for (int i = 0; i < trials->n_trials; i++) {
        trials->trials[i].is_dropped = is_too_slow(trials, &trials->trials[i], 1);
        n_calls[i] = (size_t)fmax(MIN_CALLS, fmin(MAX_CALLS, TRIAL_US / trials->trials[i].us));
    }
    for (size_t round = 0; round < n_rounds; round++)
        for (int i = 0; i < trials->n_trials; i++) {
            if (trials->trials[i].is_dropped)
                continue;
            bench_progress_begin(rank->progress, trials->trials[i].what.n_bytes,
                                 "timing every way in turns");
            GYRE_TRY(time_trial(rank, &trials->trials[i], us, n_calls[i]));
            medians[(size_t)i * n_rounds + round] = bench_median_of(us, n_calls[i]);
        }
    for (int i = 0; i < trials->n_trials; i++)
        if (!trials->trials[i].is_dropped)
            trials->trials[i].us = bench_median_of(&medians[(size_t)i * n_rounds], n_rounds);
    return GYRE_SUCCESS;
}

gyre_status bench_time_trials(struct bench_rank *rank, struct bench_trials *trials)
{
    const size_t n_trials = (size_t)trials->n_trials;
    GYRE_FREED size_t *n_calls = calloc(n_trials + 1, sizeof(*n_calls));
    GYRE_FREED double *medians =
        calloc(n_trials * (size_t)rank->options->n_rounds + 1, sizeof(*medians));
    gyre_status status =
        rank->device->ops->zero(rank->device, rank->buffers.send, rank->buffers.n_bytes);
    if (medians == NULL || n_calls == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu trials", n_trials);
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS)
        status = run_rounds(rank, trials, n_calls, medians);
    bench_progress_end(rank->progress);
    return status;
}

/* --predict shows whether the simulator and the tuner are right. */
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
    if (rank->self.rank != 0)
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
    GYRE_FREED struct bench_trials *trials = calloc(1, sizeof(*trials));
    GYRE_FREED struct bench_trials *pairs = calloc(1, sizeof(*pairs));
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
    if (status == GYRE_SUCCESS && rank->self.rank == 0) {
        const struct gyre_tuner_facts *facts = gyre_plan_facts(gyre_comm_plans(rank->comm));
        printf("# %s, %d ranks on %u host%s; constants: %s; choices by %s\n",
               gyre_collectives[rank->kind->coll].name, rank->self.n_ranks, facts->n_hosts,
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
    if (status == GYRE_SUCCESS && rank->self.rank == 0 && summary.n_sizes > 0) {
        printf("# predicted and measured differ by a factor of %.2f (geometric mean)\n",
               exp(summary.log_sum / summary.n_sizes));
        printf("# the tuner loses over %.0f%% to the best choice at %d of %d sizes, at most %.1f%% "
               "(%zu B)\n",
               MOST_LOSS * 100, summary.n_losses, summary.n_sizes, summary.worst_loss * 100,
               summary.worst_bytes);
    }
    return status;
}
