/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre explain: where the time of calls went.
 *
 *    gyre explain trace.json
 *    gyre explain trace.0.json trace.1.json predicted.json --json explained.json
 */
#include "bench/command/command.h"
#include "bench/explain/trace_reader.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIFFERENCE 0.05 /* between parts and measured time */
#define MAX_RANKS      16384

struct source {
    struct bench_trace trace;
    struct bench_accounts accounts;
};

struct options {
    const char *json;
    bool wants_calls;
};

struct group {
    const struct bench_trace_call *like;
    int rank; /* -1 = all */
    uint32_t n;
    double measured_us;
    double spent_us[BENCH_N_SPENT];
};

static bool is_alike(const struct bench_trace_call *a, const struct bench_trace_call *b)
{
    return fabs(a->n_bytes - b->n_bytes) < 0.5 && strcmp(a->collective, b->collective) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0;
}

static struct group sum_up(const struct bench_accounts *accounts,
                           const struct bench_trace_call *like, int rank)
{
    struct group group = {.like = like, .rank = rank};
    for (uint32_t i = 0; i < accounts->n; i++) {
        const struct bench_account *account = &accounts->accounts[i];
        if (!is_alike(account->call, like) || (rank >= 0 && account->rank != rank))
            continue;
        group.n++;
        group.measured_us += account->measured_us;
        for (int k = 0; k < BENCH_N_SPENT; k++)
            group.spent_us[k] += account->spent_us[k];
    }
    group.measured_us /= group.n > 0 ? group.n : 1;
    for (int k = 0; k < BENCH_N_SPENT; k++)
        group.spent_us[k] /= group.n > 0 ? group.n : 1;
    return group;
}

static double sum_of(const double *spent_us)
{
    double sum_us = 0;
    for (int k = 0; k < BENCH_N_SPENT; k++)
        sum_us += spent_us[k];
    return sum_us;
}

static bool is_first(const struct bench_accounts *accounts, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (is_alike(accounts->accounts[i].call, accounts->accounts[at].call))
            return false;
    return true;
}

static int count_ranks(const struct bench_accounts *accounts)
{
    int n_ranks = 0;
    for (uint32_t i = 0; i < accounts->n; i++)
        n_ranks = accounts->accounts[i].rank >= n_ranks ? accounts->accounts[i].rank + 1 : n_ranks;
    return n_ranks;
}

/* Accounts whose parts miss the measured time. */
static uint32_t count_wrong(const struct bench_accounts *accounts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < accounts->n; i++) {
        const struct bench_account *account = &accounts->accounts[i];
        n += fabs(sum_of(account->spent_us) - account->measured_us) >
             MAX_DIFFERENCE * account->measured_us;
    }
    return n;
}

static void print_row(const char *name, uint32_t n, double measured_us, const double *spent_us)
{
    printf("%-10s %6u %10.2f", name, n, measured_us);
    for (int k = 0; k < BENCH_N_SPENT; k++)
        printf(" %9.2f", spent_us[k]);
    printf(" %10.2f\n", sum_of(spent_us));
}

static void print_header(const char *first)
{
    printf("%-10s %6s %10s", first, "calls", "time");
    for (int k = 0; k < BENCH_N_SPENT; k++)
        printf(" %9s", bench_spent_names[k]);
    printf(" %10s\n", "sum");
}

static void print_source(const char *title, const struct source *source,
                         const struct options *options)
{
    const struct bench_accounts *accounts = &source->accounts;
    char name[24];
    for (uint32_t i = 0; i < accounts->n; i++) {
        const struct bench_trace_call *like = accounts->accounts[i].call;
        if (!is_first(accounts, i))
            continue;
        printf("\n# %s: %s %s, %.0f B; us, means over calls\n", title, like->algorithm,
               like->collective, like->n_bytes);
        print_header("# rank");
        for (int rank = 0; rank < count_ranks(accounts); rank++) {
            const struct group group = sum_up(accounts, like, rank);
            snprintf(name, sizeof(name), "%d", rank);
            if (group.n > 0)
                print_row(name, group.n, group.measured_us, group.spent_us);
        }
        const struct group all = sum_up(accounts, like, -1);
        print_row("all", all.n, all.measured_us, all.spent_us);
    }
    if (options->wants_calls && accounts->n > 0) {
        printf("\n# calls one by one; \"calls\" is the number of the call\n");
        print_header("# rank");
        for (uint32_t i = 0; i < accounts->n; i++) {
            const struct bench_account *account = &accounts->accounts[i];
            snprintf(name, sizeof(name), "%d", account->rank);
            print_row(name, (uint32_t)account->call->call, account->measured_us, account->spent_us);
        }
    }
    if (accounts->n_left_out > 0)
        printf("# left out: %u calls of a rank, whose events were lost\n", accounts->n_left_out);
    if (accounts->n_unrecorded > 0)
        printf("# not recorded: %.0f launches of a rank\n", accounts->n_unrecorded);
    if (accounts->n_unpaired > 0)
        printf("# %u slots have no sending step in these files; their time counts as `peer`\n",
               accounts->n_unpaired);
}

static void write_spent(FILE *file, double measured_us, const double *spent_us)
{
    fprintf(file, "\"time_us\":%.3f,\"sum_us\":%.3f", measured_us, sum_of(spent_us));
    for (int k = 0; k < BENCH_N_SPENT; k++)
        fprintf(file, ",\"%s_us\":%.3f", bench_spent_names[k], spent_us[k]);
}

static void write_source(FILE *file, const char *name, const struct source *source)
{
    const struct bench_accounts *accounts = &source->accounts;
    bool has_group = false;
    fprintf(file, "\"%s\":{\"left_out\":%u,\"unpaired_slots\":%u,\"groups\":[", name,
            accounts->n_left_out, accounts->n_unpaired);
    for (uint32_t i = 0; i < accounts->n; i++) {
        const struct bench_trace_call *like = accounts->accounts[i].call;
        bool has_rank = false;
        if (!is_first(accounts, i))
            continue;
        fprintf(file, "%s\n{\"collective\":", has_group ? "," : "");
        gyre_text_put_json(file, like->collective, SIZE_MAX);
        fputs(",\"algorithm\":", file);
        gyre_text_put_json(file, like->algorithm, SIZE_MAX);
        fprintf(file, ",\"bytes\":%.0f,\"ranks\":[", like->n_bytes);
        has_group = true;
        for (int rank = 0; rank < count_ranks(accounts); rank++) {
            const struct group group = sum_up(accounts, like, rank);
            if (group.n == 0)
                continue;
            fprintf(file, "%s\n  {\"rank\":%d,\"calls\":%u,", has_rank ? "," : "", rank, group.n);
            write_spent(file, group.measured_us, group.spent_us);
            fputc('}', file);
            has_rank = true;
        }
        fputs("]}", file);
    }
    fputs("],\n\"calls\":[", file);
    for (uint32_t i = 0; i < accounts->n; i++) {
        const struct bench_account *account = &accounts->accounts[i];
        fprintf(file, "%s\n{\"rank\":%d,\"call\":%d,", i > 0 ? "," : "", account->rank,
                account->call->call);
        write_spent(file, account->measured_us, account->spent_us);
        fputc('}', file);
    }
    fputs("]}", file);
}

static gyre_status write_json(const char *path, const struct source *measured,
                              const struct source *predicted)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %s", path);
    fputc('{', file);
    write_source(file, "measured", measured);
    fputs(",\n", file);
    write_source(file, "predicted", predicted);
    fputs("}\n", file);
    gyre_status status = fclose(file) == 0
                             ? GYRE_SUCCESS
                             : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %s", path);
    if (status == GYRE_SUCCESS && strcmp(path, "-") == 0)
        fputs(text, stdout);
    else if (status == GYRE_SUCCESS)
        status = gyre_file_replace(path, text, n_bytes);
    free(text);
    return status;
}

/* Ranks must be possible and new. @n_before: of earlier files. */
static gyre_status check_trace(const char *path, const struct bench_trace *trace, uint32_t n_before)
{
    for (uint32_t i = n_before; i < trace->n_ranks; i++) {
        const struct bench_trace_rank *rank = &trace->ranks[i];
        if (rank->rank < 0 || rank->rank >= MAX_RANKS)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: rank %d is not one of 0 to %d", path,
                             rank->rank, MAX_RANKS - 1);
        for (uint32_t k = 0; k < n_before; k++)
            if (trace->ranks[k].rank == rank->rank &&
                strcmp(trace->ranks[k].communicator, rank->communicator) == 0)
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "%s: rank %d of communicator %s stands in an earlier file, too",
                                 path, rank->rank, rank->communicator);
    }
    for (uint32_t i = 0; i < trace->n_calls; i++)
        if (!(trace->calls[i].n_bytes >= 0) || isinf(trace->calls[i].n_bytes))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: a call has no size in bytes", path);
    return GYRE_SUCCESS;
}

static void print_usage(FILE *file)
{
    bench_command_print_examples("explain", file);
    fputs(
        "usage: gyre explain TRACE.json... [PREDICTED.json] [options]\n"
        "       TRACE.json: from GYRE_TRACE_FILE; PREDICTED.json: from schedule --predict --trace\n"
        "  --calls      print every call of every rank, too\n"
        "  --json FILE  write all figures as JSON; - = standard output, and no text\n"
        "  -h, --help   print this text\n\n"
        "The time of a call on a rank is divided into:\n",
        file);
    for (int k = 0; k < BENCH_N_SPENT; k++)
        fprintf(file, "  %-8s %s\n", bench_spent_names[k], bench_spent_meanings[k]);
    fputs("Exit status: 0; 1 if a file cannot be used or written, no call has steps, or the parts\n"
          "differ from the time by over 5 % anywhere; 2 = wrong usage.\n",
          file);
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option long_options[] = {{"json", required_argument, NULL, 'j'},
                                                 {"calls", no_argument, NULL, 'c'},
                                                 {NULL, 0, NULL, 0}};
    for (;;) {
        const int id = getopt_long(argc, argv, "", long_options, NULL);
        if (id == -1)
            return optind < argc;
        if (id == 'j')
            options->json = optarg;
        else if (id == 'c')
            options->wants_calls = true;
        else
            return false;
    }
}

static gyre_status explain(int n_paths, char **paths, const struct options *options,
                           struct source *sources, uint32_t *n_wrong_out)
{
    const bool is_quiet = options->json != NULL && strcmp(options->json, "-") == 0;
    struct bench_trace traces[2] = {{.n_ranks = 0}};
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n_paths && status == GYRE_SUCCESS; i++) {
        const uint32_t n_before[2] = {traces[0].n_ranks, traces[1].n_ranks};
        bool is_simulated = false;
        status = bench_trace_read(paths[i], traces, &is_simulated);
        if (status == GYRE_SUCCESS)
            status = check_trace(paths[i], &traces[is_simulated], n_before[is_simulated]);
    }
    sources[0].trace = traces[0];
    sources[1].trace = traces[1];
    GYRE_TRY(status);
    for (int i = 0; i < 2; i++) {
        GYRE_TRY(bench_account_all(&sources[i].trace, &sources[i].accounts));
        *n_wrong_out += count_wrong(&sources[i].accounts);
        if (!is_quiet)
            print_source(i == 0 ? "measured" : "predicted", &sources[i], options);
    }
    if (sources[0].accounts.n + sources[1].accounts.n == 0)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "no call with steps was recorded: the steps of ranks on GPUs are not");
    if (!is_quiet && sources[1].accounts.n > 0) {
        const struct source *measured = &sources[0];
        const struct source *predicted = &sources[1];
        for (uint32_t i = 0; i < measured->accounts.n; i++) {
            const struct bench_trace_call *call = measured->accounts.accounts[i].call;
            if (!is_first(&measured->accounts, i))
                continue;
            struct group own = sum_up(&measured->accounts, call, -1);
            const struct group other = sum_up(&predicted->accounts, call, -1);
            if (other.n == 0)
                continue;
            printf("\n# measured minus predicted: %s %s, %.0f B; us\n", call->algorithm,
                   call->collective, call->n_bytes);
            print_header("#");
            for (int k = 0; k < BENCH_N_SPENT; k++)
                own.spent_us[k] -= other.spent_us[k];
            print_row("difference", own.n, own.measured_us - other.measured_us, own.spent_us);
        }
    }
    return options->json != NULL ? write_json(options->json, &sources[0], &sources[1])
                                 : GYRE_SUCCESS;
}

int bench_command_explain(int argc, char **argv)
{
    struct options options = {0};
    struct source sources[2] = {{.accounts = {0}}};
    uint32_t n_wrong = 0;
    if (bench_command_asks_help(argc, argv)) {
        print_usage(stdout);
        return 0;
    }
    if (!parse(argc, argv, &options)) {
        print_usage(stderr);
        return 2;
    }
    const gyre_status status = explain(argc - optind, argv + optind, &options, sources, &n_wrong);
    if (status != GYRE_SUCCESS)
        fprintf(stderr, "explain: %s\n", gyre_cause());
    else if (n_wrong > 0)
        fprintf(stderr, "explain: the parts of %u calls do not add up to their time\n", n_wrong);
    for (int i = 0; i < 2; i++) {
        free(sources[i].accounts.accounts);
        bench_trace_free(&sources[i].trace);
    }
    return status == GYRE_SUCCESS && n_wrong == 0 ? 0 : 1;
}
