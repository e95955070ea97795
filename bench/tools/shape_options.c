/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/shape_options.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static_assert(GYRE_MAX_RANKS == 16384, "the help of --ranks says so");

const char *const bench_net_words[] = {"", "ib", "socket"};

static void print_algorithm(const struct gyre_algorithm *algorithm, FILE *out)
{
    fprintf(out, "  %-15s %s:", algorithm->name, algorithm->summary);
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
        if (gyre_algorithm_has(algorithm, (enum gyre_collective)coll))
            fprintf(out, " %s", gyre_collectives[coll].name);
    fputc('\n', out);
}

void bench_shape_print_algorithms(FILE *out)
{
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        print_algorithm(gyre_algorithms[i], out);
    fputs("of the library, which calls run only as programs from a file:\n", out);
    for (int i = 0; gyre_library[i] != NULL; i++)
        print_algorithm(gyre_library[i], out);
}

/* False if too many. */
static bool add_host(struct gyre_grouping *grouping, long n_of_host, int *n_ranks)
{
    if (n_of_host < 1 || n_of_host > GYRE_MAX_RANKS - *n_ranks)
        return false;
    for (long i = 0; i < n_of_host; i++)
        grouping->host_of[(*n_ranks)++] = grouping->n_hosts;
    grouping->n_hosts++;
    return true;
}

/* "2x8" or "7+8". Returns ranks, 0 = neither. */
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

static void print_wrong_hosts(const char *user, const char *text, int n_ranks)
{
    if (n_ranks > 0)
        fprintf(stderr,
                "%s: --hosts %s: expected %d numbers separated by commas, one a rank, or "
                "HOSTSxRANKS or RANKS+RANKS+... of as many ranks as --ranks says\n",
                user, text, n_ranks);
    else
        fprintf(stderr,
                "%s: --hosts %s: expected HOSTSxRANKS (2x8), RANKS+RANKS+... (7+8) or the "
                "host of each rank (0,0,1,1), of at most %d ranks\n",
                user, text, GYRE_MAX_RANKS);
}

/* "0,0,1,1" (renumbered by appearance), "2x8" or "7+8". @n_ranks_inout: 0 = by the text, else it
 * must match. */
static bool parse_hosts(const char *user, const char *text, int *n_ranks_inout,
                        struct gyre_grouping *grouping)
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
    if (n_ranks > GYRE_MAX_RANKS) {
        print_wrong_hosts(user, text, 0);
        return false;
    }
    *n_ranks_inout = n_ranks;
    grouping->n_hosts = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        char *end;
        const long host = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || *end != (rank < n_ranks - 1 ? ',' : '\0')) {
            print_wrong_hosts(user, text, is_given ? n_ranks : 0);
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

/* "8x8". False: it is something else. */
static bool parse_sides(const char *text, uint16_t *sides)
{
    for (int i = 0; i < GYRE_MAX_SIDES; i++) {
        char *end;
        const long side = strtol(text, &end, 10);
        if (!isdigit((unsigned char)*text) || side < 1 || side > GYRE_MAX_RANKS)
            return false;
        sides[i] = (uint16_t)side;
        if (*end == '\0')
            return true;
        if (*end != 'x')
            return false;
        text = end + 1;
    }
    return false;
}

/* It joins this process's algorithms, so that all code knows it. @name: "swing" or "swing:8x8". */
static const struct gyre_algorithm *take_from_library(const char *name)
{
    static struct gyre_algorithm taken; /* one job a process */
    static const char *taken_as;
    if (taken_as != NULL && strcmp(name, taken_as) == 0)
        return &taken;
    const size_t n = strcspn(name, ":");
    char word[16] = "";
    if (n >= sizeof(word))
        return NULL;
    memcpy(word, name, n);
    const struct gyre_algorithm *found = gyre_library_find(word);
    if (found == NULL)
        return NULL;
    taken = *found;
    taken.from = "library";
    if (name[n] == ':' && !parse_sides(&name[n + 1], taken.sides))
        return NULL;
    taken_as = name;
    return gyre_algorithms_add(&taken) == GYRE_SUCCESS ? &taken : NULL;
}

bool bench_shape_find(const struct bench_shape_options *options, bool needs_algorithm,
                      const struct gyre_algorithm **algorithm_out, struct gyre_shape *shape_out)
{
    static struct gyre_grouping grouping;
    if (gyre_plugins_load_own() != GYRE_SUCCESS) {
        fprintf(stderr, "%s: %s\n", options->user, gyre_cause());
        return false;
    }
    const struct gyre_algorithm *algorithm =
        options->algorithm == NULL ? NULL : gyre_algorithm_find(options->algorithm);
    if (algorithm == NULL && options->algorithm != NULL)
        algorithm = take_from_library(options->algorithm);
    const int coll = options->collective == NULL ? -1 : gyre_collective_find(options->collective);
    const bool no_algorithm = algorithm == NULL && needs_algorithm;
    int n_ranks = options->n_ranks;
    if (no_algorithm || coll < 0 || (n_ranks == 0 && options->hosts == NULL)) {
        const char *wrong = no_algorithm ? "--algo" : coll < 0 ? "--coll" : "--ranks";
        const char *given = no_algorithm ? options->algorithm : options->collective;
        if (coll >= 0 && !no_algorithm)
            given = NULL;
        if (given == NULL)
            fprintf(stderr, "%s: %s is missing; --help lists what there is\n", options->user,
                    wrong);
        else {
            fprintf(stderr, "%s: %s: \"%s\" is none of", options->user,
                    no_algorithm ? "--algo" : "--coll", given);
            for (int i = 0; no_algorithm && gyre_algorithms[i] != NULL; i++)
                fprintf(stderr, " %s", gyre_algorithms[i]->name);
            for (int i = 0; no_algorithm && gyre_library[i] != NULL; i++)
                fprintf(stderr, " %s", gyre_library[i]->name);
            for (int i = 0; !no_algorithm && i < GYRE_N_COLLECTIVES; i++)
                fprintf(stderr, " %s", gyre_collectives[i].name);
            fputc('\n', stderr);
        }
        return false;
    }
    if (options->hosts != NULL && !parse_hosts(options->user, options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *shape_out =
        (struct gyre_shape){.coll = (enum gyre_collective)coll,
                            .n_ranks = (uint16_t)n_ranks,
                            .root = (uint16_t)options->root,
                            .is_placed = options->is_placed,
                            .grouping = options->hosts == NULL ? options->grouping : &grouping};
    *algorithm_out = algorithm;
    return true;
}

bool bench_shape_is_right(const struct bench_shape_options *options, bool needs_algorithm)
{
    const struct gyre_algorithm *algorithm;
    struct gyre_shape shape;
    return bench_shape_find(options, needs_algorithm, &algorithm, &shape);
}

bool bench_shape_find_hosts(const struct bench_shape_options *options, int n_ranks,
                            const struct gyre_grouping **grouping_out)
{
    static struct gyre_grouping grouping;
    *grouping_out = options->grouping;
    if (options->grouping != NULL && options->n_ranks != n_ranks) {
        fprintf(stderr, "%s: the fabric has %d GPUs, the programs have %d ranks\n", options->user,
                options->n_ranks, n_ranks);
        return false;
    }
    if (options->hosts == NULL)
        return true;
    if (!parse_hosts(options->user, options->hosts, &n_ranks, &grouping))
        return false;
    grouping.n_nics = (uint16_t)options->n_nics;
    *grouping_out = &grouping;
    return true;
}
