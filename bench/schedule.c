/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: print the programs of a collective, or all ranks' rounds side by side, and prove them.
 *
 *   schedule --algo tree --coll all_reduce --ranks 8 --hosts 0,0,0,0,1,1,1,1 --rounds --verify
 *   schedule --predict --coll all_reduce --ranks 4096 --hosts 512x8
 */
#include "algorithms/algorithm.h"
#include "algorithms/verify.h"
#include "bench/driver/options.h"
#include "bench/tools/schedule_predict.h"
#include "bench/driver/streams.h"
#include "core/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of --file: direct all_to_all of 512 ranks is 21 MB of text, of 4096 ranks 64 times as much. */
#define MAX_FILE_BYTES ((size_t)2 << 30)

struct options {
    const char *algorithm;
    const char *collective;
    const char *hosts;
    const char *file;
    int n_ranks;
    int root;
    int rank; /* -1 = all */
    bool rounds;
    bool verify;
    bool is_placed;
    bool predict;
    bool wants_help;
    struct predict_request request; /* of --predict: what only it uses */
};

struct job {
    struct gyre_program *programs[GYRE_MAX_RANKS];
    int n_programs;
};

static void print_usage(FILE *out)
{
    fprintf(
        out,
        "usage: schedule --algo NAME --coll NAME --ranks N [options]\n"
        "       schedule --file PROGRAMS [options]\n"
        "       schedule --predict --coll NAME --ranks N [options]\n"
        "  -a, --algo NAME     algorithm\n"
        "  -c, --coll NAME     collective\n"
        "  -n, --ranks N       number of ranks, 1 to %d\n"
        "  -r, --root R        root (default 0)\n"
        "  -k, --rank R        print this rank's program only\n"
        "  -H, --hosts LIST    host of every rank, as 0,0,1,1, or 2x8: 2 hosts of 8 ranks\n"
        "                      (default: one host)\n"
        "  -R, --rounds        print all ranks side by side, a line a round\n"
        "  -P, --placed        results in windows: finished data are placed where they may be\n"
        "  -v, --verify        prove the programs; exit status 1 if they are refused\n"
        "  -f, --file FILE     read the programs from FILE (- = standard input)\n"
        "  -p, --predict       how long they take, by size; without --algo: all algorithms\n"
        "      --bytes SIZES   with --predict: 1M, or 1K:1G by factors of 4 (default)\n"
        "      --cost NAME     with --predict: the machine: host, h200 (default), or a file\n"
        "                      that build/bench/tune wrote\n"
        "      --proto NAME    with --predict: simple, ll, ll128, lamport (default: the tuner's)\n"
        "      --channels N, --tile BYTES, --depth SLOTS    with --predict: likewise\n"
        "  -h, --help          this text\n\nalgorithms:\n",
        GYRE_MAX_RANKS);
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        fprintf(out, "  %-10s %s:", gyre_algorithms[i]->name, gyre_algorithms[i]->summary);
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            if (gyre_algorithm_has(gyre_algorithms[i], (enum gyre_collective)coll))
                fprintf(out, " %s", gyre_collectives[coll].name);
        fputc('\n', out);
    }
}

/* A number from `least` to `most`, the whole text; says what is wrong. */
static bool parse_number(const char *option, const char *text, int least, int most, int *number_out)
{
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < least || number > most) {
        fprintf(stderr, "schedule: %s %s: expected a number from %d to %d\n", option, text, least,
                most);
        return false;
    }
    *number_out = (int)number;
    return true;
}

/* Long options without a letter, all of --predict. */
enum { BYTES = 256, COST, PROTO, CHANNELS, TILE, DEPTH };

static bool take_predict_option(int id, struct predict_request *request)
{
    switch (id) {
    case BYTES:
        request->bytes = optarg;
        return true;
    case COST:
        request->cost = optarg;
        return true;
    case PROTO:
        request->proto = optarg;
        return true;
    case CHANNELS:
        return parse_number("--channels", optarg, 1, 1024, &request->n_channels);
    case TILE:
        return parse_number("--tile", optarg, 1, 1 << 30, &request->tile_bytes);
    default: /* DEPTH */
        return parse_number("--depth", optarg, 1, 64, &request->depth);
    }
}

/* What is given and would not be read is refused. */
static bool check_together(const struct options *options)
{
    const struct predict_request *request = &options->request;
    const char *wrong = NULL;
    const bool is_about_predictions = request->bytes != NULL || request->cost != NULL ||
                                      request->proto != NULL || request->n_channels > 0 ||
                                      request->tile_bytes > 0 || request->depth > 0;
    const bool prints = options->rank >= 0 || options->rounds;
    if (is_about_predictions && !options->predict)
        wrong = "--bytes, --cost, --proto, --channels, --tile and --depth need --predict";
    else if (options->predict &&
             (prints || options->verify || options->is_placed || options->file != NULL))
        wrong = "--predict does not go with --rank, --rounds, --verify, --placed or --file";
    else if (options->file != NULL &&
             (options->algorithm != NULL || options->collective != NULL || options->n_ranks > 0 ||
              options->root > 0 || options->hosts != NULL || options->is_placed))
        wrong =
            "--algo, --coll, --ranks, --root, --hosts and --placed do not go with --file, which "
            "says all of that";
    else if (options->rank >= 0 && options->rounds)
        wrong = "--rank does not go with --rounds, which shows all ranks";
    if (wrong != NULL)
        fprintf(stderr, "schedule: %s\n", wrong);
    return wrong == NULL;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {{"algo", required_argument, NULL, 'a'},
                                          {"coll", required_argument, NULL, 'c'},
                                          {"ranks", required_argument, NULL, 'n'},
                                          {"root", required_argument, NULL, 'r'},
                                          {"rank", required_argument, NULL, 'k'},
                                          {"hosts", required_argument, NULL, 'H'},
                                          {"rounds", no_argument, NULL, 'R'},
                                          {"verify", no_argument, NULL, 'v'},
                                          {"placed", no_argument, NULL, 'P'},
                                          {"file", required_argument, NULL, 'f'},
                                          {"predict", no_argument, NULL, 'p'},
                                          {"bytes", required_argument, NULL, BYTES},
                                          {"cost", required_argument, NULL, COST},
                                          {"proto", required_argument, NULL, PROTO},
                                          {"channels", required_argument, NULL, CHANNELS},
                                          {"tile", required_argument, NULL, TILE},
                                          {"depth", required_argument, NULL, DEPTH},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    bool ok = true;
    while (ok && (letter = getopt_long(argc, argv, "a:c:n:r:k:H:RvPf:ph", longs, NULL)) != -1) {
        switch (letter) {
        case 'a':
            options->algorithm = optarg;
            break;
        case 'c':
            options->collective = optarg;
            break;
        case 'n':
            ok = parse_number("--ranks", optarg, 1, GYRE_MAX_RANKS, &options->n_ranks);
            break;
        case 'r':
            ok = parse_number("--root", optarg, 0, GYRE_MAX_RANKS - 1, &options->root);
            break;
        case 'k':
            ok = parse_number("--rank", optarg, 0, GYRE_MAX_RANKS - 1, &options->rank);
            break;
        case 'H':
            options->hosts = optarg;
            break;
        case 'R':
            options->rounds = true;
            break;
        case 'v':
            options->verify = true;
            break;
        case 'P':
            options->is_placed = true;
            break;
        case 'f':
            options->file = optarg;
            break;
        case 'p':
            options->predict = true;
            break;
        case 'h':
            options->wants_help = true;
            return true;
        case '?': /* getopt_long has said what it is */
            return false;
        default:
            ok = take_predict_option(letter, &options->request);
        }
    }
    if (ok && optind < argc) {
        fprintf(stderr, "schedule: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    return ok && check_together(options);
}

/* "0,0,1,1": any numbers; they are renumbered by first appearance. */
static bool parse_hosts(const char *text, int n_ranks, struct gyre_grouping *grouping)
{
    long seen[GYRE_MAX_RANKS];
    const char *at = text;
    int n_hosts, n_of_host, n_read = 0;
    grouping->n_hosts = 0;
    if (sscanf(text, "%dx%d%n", &n_hosts, &n_of_host, &n_read) == 2 && text[n_read] == '\0' &&
        n_hosts > 0 && n_hosts <= n_ranks && n_of_host > 0 && n_ranks == n_hosts * n_of_host) {
        grouping->n_hosts = (uint16_t)n_hosts;
        for (int rank = 0; rank < n_ranks; rank++)
            grouping->host_of[rank] = (uint16_t)(rank / n_of_host);
        return true;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        char *end;
        const long host = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || *end != (rank < n_ranks - 1 ? ',' : '\0')) {
            fprintf(stderr,
                    "schedule: --hosts %s: expected %d numbers separated by commas, one a rank, "
                    "or HOSTSxRANKS with that product\n",
                    text, n_ranks);
            return false;
        }
        uint16_t i = 0;
        while (i < grouping->n_hosts && seen[i] != host)
            i++;
        if (i == grouping->n_hosts)
            seen[grouping->n_hosts++] = host;
        grouping->host_of[rank] = i;
        at = end + 1;
    }
    return true;
}

/* What the options name. @algorithm_out: NULL where none need be named. */
static bool find_shape(const struct options *options, const struct gyre_algorithm **algorithm_out,
                       struct gyre_shape *shape_out)
{
    static struct gyre_grouping grouping; /* large; one job a process */
    const struct gyre_algorithm *algorithm =
        options->algorithm == NULL ? NULL : gyre_algorithm_find(options->algorithm);
    const int coll = options->collective == NULL ? -1 : gyre_collective_find(options->collective);
    const bool needs_algorithm = !options->predict || options->algorithm != NULL;
    const bool no_algorithm = algorithm == NULL && needs_algorithm;
    if (no_algorithm || coll < 0 || options->n_ranks == 0) {
        const char *wrong = no_algorithm ? "--algo" : coll < 0 ? "--coll" : "--ranks";
        const char *given = no_algorithm ? options->algorithm : options->collective;
        if (coll >= 0 && !no_algorithm)
            given = NULL;
        fprintf(stderr, "schedule: %s%s%s; --help lists what there is\n", wrong,
                given == NULL ? " is missing" : ": there is no ", given == NULL ? "" : given);
        return false;
    }
    if (options->hosts != NULL && !parse_hosts(options->hosts, options->n_ranks, &grouping))
        return false;
    *shape_out = (struct gyre_shape){.coll = (enum gyre_collective)coll,
                                     .n_ranks = (uint16_t)options->n_ranks,
                                     .root = (uint16_t)options->root,
                                     .is_placed = options->is_placed,
                                     .grouping = options->hosts == NULL ? NULL : &grouping};
    *algorithm_out = algorithm;
    return true;
}

static bool emit(const struct options *options, struct job *job)
{
    const struct gyre_algorithm *algorithm;
    struct gyre_shape shape;
    if (!find_shape(options, &algorithm, &shape))
        return false;
    for (int rank = 0; rank < options->n_ranks; rank++) {
        if (gyre_algorithm_emit(algorithm, &shape, rank, &job->programs[rank]) != GYRE_SUCCESS) {
            fprintf(stderr, "schedule: %s\n", gyre_cause());
            return false;
        }
        job->n_programs++;
    }
    return true;
}

/* The whole file, malloc'ed and terminated; NULL with a message. */
static char *read_all(const char *path)
{
    char *text = NULL;
    const bool is_stdin = strcmp(path, "-") == 0;
    const gyre_status status =
        is_stdin ? gyre_file_read_open(STDIN_FILENO, "standard input", MAX_FILE_BYTES, &text, NULL)
                 : gyre_file_read(path, MAX_FILE_BYTES, &text, NULL);
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: --file: %s%s\n", gyre_cause(),
                status == GYRE_ERROR_INVALID_ARGUMENT && !is_stdin
                    ? " (to read a pipe, give --file - and redirect the input)"
                    : "");
        return NULL;
    }
    return text;
}

/* Is this the line "end", comments aside? */
static bool is_end_line(const char *line)
{
    line += strspn(line, " \t");
    return strncmp(line, "end", 3) == 0 && strchr(" \t\r\n#", line[3]) != NULL;
}

/* One program after the other, each up to its "end". */
static bool load(const char *path, struct job *job)
{
    char *text = read_all(path);
    char *at = text;
    int first_line = 0;
    bool ok = text != NULL;
    while (ok && at[strspn(at, " \t\r\n")] != '\0') {
        char *line = at;
        int n_lines = 0;
        while (*line != '\0' && !is_end_line(line)) {
            line += strcspn(line, "\n");
            line += *line == '\n';
            n_lines++;
        }
        char *next = line + strcspn(line, "\n");
        const bool is_last = *next == '\0';
        *next = '\0';
        if (job->n_programs == GYRE_MAX_RANKS) {
            fprintf(stderr, "schedule: %s holds more than %d programs\n", path, GYRE_MAX_RANKS);
            ok = false;
        } else if (gyre_program_from_text(at, &job->programs[job->n_programs]) != GYRE_SUCCESS) {
            fprintf(stderr, "schedule: %s, program that starts after line %d: %s\n", path,
                    first_line, gyre_cause());
            ok = false;
        } else {
            job->n_programs++;
        }
        at = is_last ? next : next + 1;
        first_line += n_lines + 1;
    }
    free(text);
    if (ok && job->n_programs == 0) {
        fprintf(stderr, "schedule: %s holds no program\n", path);
        ok = false;
    }
    return ok;
}

/* Print text that a call has just made, or why it could not. */
static bool print_text(gyre_status status, char **text)
{
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "schedule: %s\n", gyre_cause());
        return false;
    }
    fputs(*text, stdout);
    free(*text);
    return true;
}

static bool print_programs(const struct options *options, const struct job *job)
{
    char *text = NULL;
    if (options->rounds) {
        const gyre_status status = gyre_rounds_to_text(
            (const struct gyre_program *const *)job->programs, job->n_programs, &text);
        return print_text(status, &text);
    }
    if (options->rank >= job->n_programs) {
        fprintf(stderr, "schedule: --rank %d: there are %d programs\n", options->rank,
                job->n_programs);
        return false;
    }
    for (int rank = 0; rank < job->n_programs; rank++) {
        if (options->rank >= 0 && options->rank != rank)
            continue;
        const gyre_status status = gyre_program_to_text(job->programs[rank], &text);
        if (!print_text(status, &text))
            return false;
    }
    return true;
}

static bool verify(const struct job *job)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        const char *where = in_place == 1 ? "in place" : "out of place";
        if (gyre_verify((const struct gyre_program *const *)job->programs, job->n_programs,
                        &options, &report) != GYRE_SUCCESS) {
            printf("# refused %s: %s\n", where, report.reason);
            return false;
        }
        printf("# proved %s: depth %u is enough, %llu steps, credits %s at depth 2\n", where,
               report.min_depth, (unsigned long long)report.n_steps,
               report.credits_elidable ? "can be left out" : "are needed");
    }
    return true;
}

static bool predict(const struct options *options)
{
    struct predict_request request = options->request;
    struct gyre_shape shape;
    if (!find_shape(options, &request.algorithm, &shape))
        return false;
    request.coll = shape.coll;
    request.n_ranks = shape.n_ranks;
    request.root = shape.root;
    request.grouping = shape.grouping;
    if (predict_print(&request) == GYRE_SUCCESS)
        return true;
    const struct bench_options given = {.proto = request.proto};
    char cause[GYRE_CAUSE_MAX_BYTES];
    bench_options_blame(&given, cause);
    fprintf(stderr, "schedule: %s\n", cause);
    return false;
}

static int run(int argc, char **argv)
{
    struct options options = {.rank = -1};
    static struct job job; /* large */
    if (argc == 1) {
        print_usage(stderr);
        return 2;
    }
    if (!parse_options(argc, argv, &options))
        return 2;
    if (options.wants_help) {
        print_usage(stdout);
        return 0;
    }
    if (options.predict)
        return predict(&options) ? 0 : 1;
    bool ok = options.file != NULL ? load(options.file, &job) : emit(&options, &job);
    ok = ok && print_programs(&options, &job);
    ok = ok && (!options.verify || verify(&job));
    for (int rank = 0; rank < job.n_programs; rank++)
        gyre_program_free(job.programs[rank]);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("schedule", run(argc, argv));
}
