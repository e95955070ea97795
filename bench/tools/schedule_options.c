/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `schedule`. A function that finds a mistake prints it on standard error and
 * returns false.
 */
#include "bench/tools/schedule_options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

void bench_schedule_print_usage(FILE *out)
{
    fprintf(
        out,
        "usage: schedule --algo NAME --coll NAME --ranks N [options]\n"
        "       schedule --file PROGRAMS [options]\n"
        "       schedule --from-msccl ALGO.xml [options]\n"
        "       schedule --predict --coll NAME {--ranks N | --hosts 2x8} [options]\n"
        "  -a, --algo NAME     the algorithm\n"
        "  -c, --coll NAME     the collective\n"
        "  -n, --ranks N       the number of ranks, 1 to %d (default: as --hosts says)\n"
        "  -r, --root R        the root (default 0)\n"
        "  -k, --rank R        print the program of this rank only\n"
        "  -H, --hosts LIST    the hosts: 2x8 (2 hosts of 8 ranks), 7+8 (the ranks of each), or "
        "the\n"
        "                      host of each rank, 0,0,1,1 (default: one host)\n"
        "      --nics N        NICs that the ranks of a host use (default: one for each rank)\n"
        "      --variant V     print and prove this variant only (channel c runs variant c mod "
        "the\n"
        "                      number of variants; default: print variant 0, prove all)\n"
        "  -R, --rounds        print all ranks side by side, one line for each round\n"
        "  -P, --placed        results lie in windows: finished data is placed there\n"
        "  -v, --verify        prove the programs; the exit status is 1 if the proof fails\n"
        "  -f, --file FILE     read the programs from FILE (- = standard input)\n"
        "      --from-msccl XML   read an algorithm of MSCCL, and print it as programs that are "
        "proved\n"
        "  -p, --predict       predict the time for each size; without --algo for all algorithms\n"
        "      --bytes SIZES   sizes for --predict: 1M, or 1K:1G in factors of 4 (default)\n"
        "      --cost NAME     the machine for --predict: host, h200 (default), or a file\n"
        "                      that build/bench/tune wrote\n"
        "      --proto NAME    the protocol for --predict: simple, ll, ll128 or lamport\n"
        "                      (default: the tuner's choice)\n"
        "      --channels N, --tile BYTES, --depth SLOTS    for --predict, likewise\n"
        "      --nic-rate R    GB/s of one NIC in each direction, for --predict\n"
        "      --json FILE     write the results of --verify or --predict as JSON, too\n"
        "  -h, --help          print this text\n\nalgorithms:\n",
        GYRE_MAX_RANKS);
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        fprintf(out, "  %-14s %s:", gyre_algorithms[i]->name, gyre_algorithms[i]->summary);
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            if (gyre_algorithm_has(gyre_algorithms[i], (enum gyre_collective)coll))
                fprintf(out, " %s", gyre_collectives[coll].name);
        fputc('\n', out);
    }
}

/* Reads a number from `least` to `most`, which must be the whole text. */
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

static bool parse_rate(const char *name, const char *text, double *rate_out)
{
    char *end;
    const double rate = strtod(text, &end);
    if (end == text || *end != '\0' || !(rate > 0) || rate > 1e6) {
        fprintf(stderr, "schedule: %s %s: expected GB/s, above 0\n", name, text);
        return false;
    }
    *rate_out = rate;
    return true;
}

/* Ids of the long options without a letter, which all belong to --predict. */
enum { BYTES = 256, COST, PROTO, CHANNELS, TILE, DEPTH, NICS, NIC_RATE, VARIANT, JSON, MSCCL };

static bool take_predict_option(int id, struct bench_schedule_request *request)
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
    case NIC_RATE:
        return parse_rate("--nic-rate", optarg, &request->nic_gbytes_per_s);
    case CHANNELS:
        return parse_number("--channels", optarg, 1, 1024, &request->n_channels);
    case TILE:
        return parse_number("--tile", optarg, 1, 1 << 30, &request->tile_bytes);
    default: /* DEPTH */
        return parse_number("--depth", optarg, 1, 64, &request->depth);
    }
}

/* Refuses options that nothing would read. */
static bool check_together(const struct bench_schedule_options *options)
{
    const struct bench_schedule_request *request = &options->request;
    const char *wrong = NULL;
    const bool is_about_predictions = request->bytes != NULL || request->cost != NULL ||
                                      request->proto != NULL || request->n_channels > 0 ||
                                      request->tile_bytes > 0 || request->depth > 0 ||
                                      request->nic_gbytes_per_s > 0;
    const bool is_given = options->file != NULL || options->msccl_path != NULL;
    const bool prints = options->rank >= 0 || options->rounds;
    if (is_about_predictions && !options->predict)
        wrong = "--bytes, --cost, --proto, --channels, --tile, --depth and --nic-rate need "
                "--predict";
    else if (options->predict && (prints || options->verify || options->is_placed))
        wrong = "--predict does not go with --rank, --rounds, --verify or --placed";
    else if (is_given && (options->algorithm != NULL || options->collective != NULL ||
                          options->n_ranks > 0 || options->root > 0 ||
                          (options->hosts != NULL && !options->predict) || options->is_placed))
        wrong = "--algo, --coll, --ranks, --root, --hosts and --placed do not go with --file or "
                "--from-msccl, which say all of that (--hosts goes with --predict --file)";
    else if (options->msccl_path != NULL && (options->file != NULL || options->predict))
        wrong = "--from-msccl does not go with --file or --predict: save the programs that it "
                "prints, and predict that file";
    else if (options->json_path != NULL && !options->predict && !options->verify)
        wrong = "--json needs --verify or --predict";
    else if (options->n_nics > 0 && options->hosts == NULL)
        wrong = "--nics needs --hosts: NICs are between hosts";
    else if (options->rank >= 0 && options->rounds)
        wrong = "--rank does not go with --rounds, which shows all ranks";
    if (wrong != NULL)
        fprintf(stderr, "schedule: %s\n", wrong);
    return wrong == NULL;
}

static const struct option long_options[] = {{"algo", required_argument, NULL, 'a'},
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
                                             {"nics", required_argument, NULL, NICS},
                                             {"variant", required_argument, NULL, VARIANT},
                                             {"nic-rate", required_argument, NULL, NIC_RATE},
                                             {"json", required_argument, NULL, JSON},
                                             {"from-msccl", required_argument, NULL, MSCCL},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_option(int id, struct bench_schedule_options *options)
{
    switch (id) {
    case 'a':
        options->algorithm = optarg;
        return true;
    case 'c':
        options->collective = optarg;
        return true;
    case 'n':
        return parse_number("--ranks", optarg, 1, GYRE_MAX_RANKS, &options->n_ranks);
    case 'r':
        return parse_number("--root", optarg, 0, GYRE_MAX_RANKS - 1, &options->root);
    case 'k':
        return parse_number("--rank", optarg, 0, GYRE_MAX_RANKS - 1, &options->rank);
    case 'H':
        options->hosts = optarg;
        return true;
    case 'R':
        options->rounds = true;
        return true;
    case 'v':
        options->verify = true;
        return true;
    case 'P':
        options->is_placed = true;
        return true;
    case 'f':
        options->file = optarg;
        return true;
    case 'p':
        options->predict = true;
        return true;
    case 'h':
        options->wants_help = true;
        return true;
    case JSON:
        options->json_path = optarg;
        return true;
    case MSCCL:
        options->msccl_path = optarg;
        return true;
    case NICS:
        return parse_number("--nics", optarg, 1, GYRE_MAX_RANKS, &options->n_nics);
    case VARIANT:
        return parse_number("--variant", optarg, 0, GYRE_MAX_VARIANTS - 1, &options->variant);
    case '?': /* getopt_long() has printed the reason */
        return false;
    default:
        return take_predict_option(id, &options->request);
    }
}

bool bench_schedule_parse(int argc, char **argv, struct bench_schedule_options *options_out)
{
    struct bench_schedule_options options = {.rank = -1, .variant = -1};
    for (;;) {
        const int id = getopt_long(argc, argv, "a:c:n:r:k:H:RvPf:ph", long_options, NULL);
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

/* Adds a host with so many ranks; false if there are too many. */
static bool add_host(struct gyre_grouping *grouping, long n_of_host, int *n_ranks)
{
    if (n_of_host < 1 || n_of_host > GYRE_MAX_RANKS - *n_ranks)
        return false;
    for (long i = 0; i < n_of_host; i++)
        grouping->host_of[(*n_ranks)++] = grouping->n_hosts;
    grouping->n_hosts++;
    return true;
}

/* Reads "2x8" or "7+8". Returns the number of ranks, or 0 if the text is neither. */
static int parse_host_sizes(const char *text, struct gyre_grouping *grouping)
{
    int n_hosts, n_of_host, n_ranks = 0, n_read = 0;
    grouping->n_hosts = 0;
    if (sscanf(text, "%dx%d%n", &n_hosts, &n_of_host, &n_read) == 2 && text[n_read] == '\0') {
        for (int host = 0; host < n_hosts; host++)
            if (!add_host(grouping, n_of_host, &n_ranks))
                return 0;
        return n_ranks;
    }
    for (const char *at = text; strchr(text, '+') != NULL; at++) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || (*end != '+' && *end != '\0') ||
            !add_host(grouping, n, &n_ranks))
            return 0;
        if (*end == '\0')
            return n_ranks;
        at = end;
    }
    return 0;
}

/* @n_ranks: as --ranks says; 0 = it was not given. */
static void print_wrong_hosts(const char *text, int n_ranks)
{
    if (n_ranks > 0)
        fprintf(stderr,
                "schedule: --hosts %s: expected %d numbers separated by commas, one a rank, or "
                "HOSTSxRANKS or RANKS+RANKS+... of as many ranks as --ranks says\n",
                text, n_ranks);
    else
        fprintf(stderr,
                "schedule: --hosts %s: expected HOSTSxRANKS (2x8), RANKS+RANKS+... (7+8) or the "
                "host of each rank (0,0,1,1), of at most %d ranks\n",
                text, GYRE_MAX_RANKS);
}

/* Reads "0,0,1,1", "2x8" or "7+8". The numbers of the first form are renumbered in the order in
 * which they appear. @n_ranks: 0 = as the text says; else it must say the same. */
static bool parse_hosts(const char *text, int *n_ranks_inout, struct gyre_grouping *grouping)
{
    static long seen[GYRE_MAX_RANKS];
    const char *at = text;
    const int n_of_sizes = parse_host_sizes(text, grouping);
    const bool is_given = *n_ranks_inout > 0;
    if (n_of_sizes > 0 && (*n_ranks_inout == 0 || *n_ranks_inout == n_of_sizes)) {
        *n_ranks_inout = n_of_sizes;
        return true;
    }
    int n_ranks = *n_ranks_inout;
    for (const char *comma = text; *n_ranks_inout == 0 && comma != NULL;
         comma = strchr(comma + 1, ','))
        n_ranks++;
    *n_ranks_inout = n_ranks;
    grouping->n_hosts = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        char *end;
        const long host = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || *end != (rank < n_ranks - 1 ? ',' : '\0')) {
            print_wrong_hosts(text, is_given ? n_ranks : 0);
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

bool bench_schedule_find_shape(const struct bench_schedule_options *options,
                               const struct gyre_algorithm **algorithm_out,
                               struct gyre_shape *shape_out)
{
    static struct gyre_grouping grouping; /* large; one job a process */
    const struct gyre_algorithm *algorithm =
        options->algorithm == NULL ? NULL : gyre_algorithm_find(options->algorithm);
    const int coll = options->collective == NULL ? -1 : gyre_collective_find(options->collective);
    const bool needs_algorithm = !options->predict || options->algorithm != NULL;
    const bool no_algorithm = algorithm == NULL && needs_algorithm;
    int n_ranks = options->n_ranks;
    if (no_algorithm || coll < 0 || (n_ranks == 0 && options->hosts == NULL)) {
        const char *wrong = no_algorithm ? "--algo" : coll < 0 ? "--coll" : "--ranks";
        const char *given = no_algorithm ? options->algorithm : options->collective;
        if (coll >= 0 && !no_algorithm)
            given = NULL;
        fprintf(stderr, "schedule: %s%s%s; --help lists what there is\n", wrong,
                given == NULL ? " is missing" : ": there is no ", given == NULL ? "" : given);
        return false;
    }
    if (options->hosts != NULL && !parse_hosts(options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *shape_out = (struct gyre_shape){.coll = (enum gyre_collective)coll,
                                     .n_ranks = (uint16_t)n_ranks,
                                     .root = (uint16_t)options->root,
                                     .is_placed = options->is_placed,
                                     .grouping = options->hosts == NULL ? NULL : &grouping};
    *algorithm_out = algorithm;
    return true;
}

bool bench_schedule_find_hosts(const struct bench_schedule_options *options, int n_ranks,
                               const struct gyre_grouping **grouping_out)
{
    static struct gyre_grouping grouping; /* large; one job a process */
    *grouping_out = NULL;
    if (options->hosts == NULL)
        return true;
    if (!parse_hosts(options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *grouping_out = &grouping;
    return true;
}
