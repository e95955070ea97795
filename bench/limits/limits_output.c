/* SPDX-License-Identifier: Apache-2.0
 *
 * The file is written as a whole and read for one ceiling of one ring.
 */
#include "bench/limits/limits.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *const bench_ceiling_names[BENCH_N_CEILINGS] = {
#define CEILING_NAME(name, first, second) #name,
    BENCH_CEILING_TABLE(CEILING_NAME)
#undef CEILING_NAME
};

static bool is_rate(double gbytes_per_s)
{
    return isfinite(gbytes_per_s) && gbytes_per_s > 0;
}

double bench_ceiling_of_phases(double reduce_scatter_gbytes_per_s, double all_gather_gbytes_per_s)
{
    if (!is_rate(reduce_scatter_gbytes_per_s) || !is_rate(all_gather_gbytes_per_s))
        return 0;
    return 2 / (1 / reduce_scatter_gbytes_per_s + 1 / all_gather_gbytes_per_s);
}

#define POINTS_blocks      \
    {                      \
        8, 16, 32, 64, 132 \
    } /* 132 blocks: every SM of an H100 or H200 */
#define POINTS_bytes                                    \
    {                                                   \
        1 << 20, 4 << 20, 16 << 20, 64 << 20, 512 << 20 \
    }

const struct bench_limits_path_traits bench_limits_paths[BENCH_LIMITS_N_PATHS] = {
#define PATH_ROW(id, name, unit, way, description) \
    {#name, #unit, description, BENCH_WAY_##way, POINTS_##unit},
    BENCH_LIMITS_PATH_TABLE(PATH_ROW)
#undef PATH_ROW
};

void bench_limits_note(struct bench_limits *limits, const char *what, const char *why, ...)
{
    if (limits->n_notes == BENCH_LIMITS_MAX_NOTES)
        return;
    struct bench_limits_note *note = &limits->notes[limits->n_notes++];
    va_list arguments;
    va_start(arguments, why);
    snprintf(note->what, sizeof(note->what), "%s", what);
    vsnprintf(note->why, sizeof(note->why), why, arguments);
    va_end(arguments);
}

double bench_limits_ceiling(const struct bench_limits_ring *ring, enum bench_ceiling ceiling)
{
    static const enum bench_way phases[BENCH_N_CEILINGS][2] = {
#define CEILING_PHASES(name, first, second) {BENCH_WAY_##first, BENCH_WAY_##second},
        BENCH_CEILING_TABLE(CEILING_PHASES)
#undef CEILING_PHASES
    };
    double best[BENCH_N_WAYS] = {0};
    for (int path = 0; path < BENCH_LIMITS_N_PATHS; path++) {
        const enum bench_way way = bench_limits_paths[path].way;
        for (int point = 0; point < BENCH_LIMITS_N_POINTS && path != BENCH_LIMITS_STORE_ALL;
             point++)
            if (ring->gbytes_per_s[path][point] > best[way])
                best[way] = ring->gbytes_per_s[path][point];
    }
    return bench_ceiling_of_phases(best[phases[ceiling][0]], best[phases[ceiling][1]]);
}

static void print_gbytes_per_s(double gbytes_per_s)
{
    if (gbytes_per_s > 0)
        printf(" %8.1f", gbytes_per_s);
    else
        printf(" %8s", "-");
}

static void print_ring(const struct bench_limits_ring *ring)
{
    const char *unit = "";
    printf("#\n# Ring of %d GPUs, all at once; GB/s of one GPU in one direction\n", ring->n_gpus);
    for (int i = 0; i < BENCH_LIMITS_N_PATHS; i++) {
        const struct bench_limits_path_traits *path = &bench_limits_paths[i];
        if (strcmp(path->unit, unit) != 0) {
            const bool is_bytes = strcmp(path->unit, "bytes") == 0;
            printf("# %-52s", is_bytes ? "MiB" : path->unit);
            for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++)
                printf(" %8" PRIu64, is_bytes ? path->points[point] >> 20 : path->points[point]);
            printf("\n");
        }
        unit = path->unit;
        printf("  %-52s", path->description);
        for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++)
            print_gbytes_per_s(ring->gbytes_per_s[i][point]);
        printf("\n");
    }
}

static void print_figure(const char *description, double value, const char *unit)
{
    if (value > 0)
        printf("  %-52s %8.2f %s\n", description, value, unit);
}

void bench_limits_print(const struct bench_limits *limits)
{
    printf("# gyre limits: %d GPUs, passes of %" PRIu64 " MiB\n", limits->n_gpus,
           limits->buffer_bytes >> 20);
    for (int i = 0; i < limits->n_gpus; i++) {
        const struct bench_limits_gpu *gpu = &limits->gpus[i];
        printf("#  GPU %2d [%s] %s, sm_%u, %u SMs\n", i, gpu->pci, gpu->name, gpu->arch,
               gpu->n_sms);
    }
    if (limits->n_rings > 0)
        print_ring(&limits->rings[0]);
    if (limits->n_rings != 0) {
        printf("#\n# %-52s", "Ceilings of busbw, GB/s; by GPUs");
        for (int i = limits->n_rings - 1; i >= 0; i--)
            printf(" %8d", limits->rings[i].n_gpus);
        printf("\n");
        for (int c = 0; c < BENCH_N_CEILINGS; c++) {
            printf("  %-52s", bench_ceiling_names[c]);
            for (int i = limits->n_rings - 1; i >= 0; i--)
                print_gbytes_per_s(bench_limits_ceiling(&limits->rings[i], (enum bench_ceiling)c));
            printf("\n");
        }
    }
    printf("#\n# Alone\n");
    print_figure("flag from GPU 0 to GPU 1, one way", limits->flag_us, "us");
    print_figure("empty kernels of a stream, from one to the next", limits->launch_us, "us");
    print_figure("an empty kernel, launched and waited for", limits->launch_wait_us, "us");
    print_figure("empty kernels of a graph, from one to the next", limits->graph_launch_us, "us");
    print_figure("copy within GPU 0, bytes read and bytes written", limits->local_copy_gbytes_per_s,
                 "GB/s");
    for (int i = 0; i < limits->n_notes; i++)
        printf("# Not measured: %s: %s\n", limits->notes[i].what, limits->notes[i].why);
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/text.h"

#include <unistd.h>

#define SCHEMA_VERSION 1

static void add_gpus(struct json_object *root, const struct bench_limits *limits)
{
    struct json_object *list = add_array(root, "gpus");
    for (int i = 0; i < limits->n_gpus; i++) {
        struct json_object *gpu = json_object_new_object();
        add_int(gpu, "device", i);
        add_text(gpu, "name", limits->gpus[i].name);
        add_text(gpu, "pci", limits->gpus[i].pci);
        add_int(gpu, "arch", limits->gpus[i].arch);
        add_int(gpu, "sms", limits->gpus[i].n_sms);
        json_object_array_add(list, gpu);
    }
}

static void add_measured(struct json_object *object, const char *key, double value)
{
    if (value > 0)
        add_number(object, key, value);
}

static void add_ring(struct json_object *list, const struct bench_limits_ring *ring)
{
    struct json_object *object = json_object_new_object();
    add_int(object, "gpus", ring->n_gpus);
    struct json_object *rates = add_array(object, "rates");
    for (int i = 0; i < BENCH_LIMITS_N_PATHS; i++)
        for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++) {
            const struct bench_limits_path_traits *path = &bench_limits_paths[i];
            if (!(ring->gbytes_per_s[i][point] > 0))
                continue;
            struct json_object *rate = json_object_new_object();
            add_text(rate, "path", path->name);
            add_int(rate, path->unit, (int64_t)path->points[point]);
            add_number(rate, "gbytes_per_s", ring->gbytes_per_s[i][point]);
            json_object_array_add(rates, rate);
        }
    struct json_object *ceilings = add_object(object, "ceilings_gbytes_per_s");
    for (int i = 0; i < BENCH_N_CEILINGS; i++)
        add_measured(ceilings, bench_ceiling_names[i],
                     bench_limits_ceiling(ring, (enum bench_ceiling)i));
    json_object_array_add(list, object);
}

gyre_status bench_limits_write(const struct bench_limits *limits, const char *path)
{
    char host[64] = "";
    struct json_object *root = json_object_new_object();
    gethostname(host, sizeof(host) - 1);
    add_int(root, "schema_version", SCHEMA_VERSION);
    add_text(root, "bench", "limits");
    add_text(root, "host", host);
    add_time(root, "measured");
    add_gpus(root, limits);
    add_int(root, "pass_bytes", (int64_t)limits->buffer_bytes);
    add_measured(root, "flag_us", limits->flag_us);
    add_measured(root, "launch_us", limits->launch_us);
    add_measured(root, "launch_wait_us", limits->launch_wait_us);
    add_measured(root, "graph_launch_us", limits->graph_launch_us);
    add_measured(root, "local_copy_gbytes_per_s", limits->local_copy_gbytes_per_s);
    struct json_object *rings = add_array(root, "rings");
    for (int i = 0; i < limits->n_rings; i++)
        add_ring(rings, &limits->rings[i]);
    struct json_object *notes = add_array(root, "not_measured");
    for (int i = 0; i < limits->n_notes; i++) {
        struct json_object *note = json_object_new_object();
        add_text(note, "what", limits->notes[i].what);
        add_text(note, "why", limits->notes[i].why);
        json_object_array_add(notes, note);
    }
    const gyre_status status = bench_json_write(root, path);
    json_object_put(root);
    return status;
}

/* NULL = none of this type. */
static struct json_object *find(struct json_object *object, const char *key, enum json_type type)
{
    struct json_object *child = NULL;
    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, key, &child) || !json_object_is_type(child, type))
        return NULL;
    return child;
}

static gyre_status read_limit(struct json_object *root, int n_ranks, struct bench_limit *limit)
{
    char known[96] = ""; /* the file's rings */
    struct json_object *ring = NULL, *number = NULL;
    struct json_object *bench = find(root, "bench", json_type_string);
    struct json_object *version = find(root, "schema_version", json_type_int);
    if (bench == NULL || strcmp(json_object_get_string(bench), "limits") != 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "was not written by gyre limits (\"bench\" is not \"limits\")");
    if (version == NULL || json_object_get_int64(version) != SCHEMA_VERSION)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "its schema_version is not %d: measure the limits again", SCHEMA_VERSION);
    struct json_object *rings = find(root, "rings", json_type_array);
    const size_t n_rings = rings == NULL ? 0 : json_object_array_length(rings);
    for (size_t i = 0; i < n_rings && ring == NULL; i++) {
        struct json_object *other = json_object_array_get_idx(rings, i);
        struct json_object *count = find(other, "gpus", json_type_int);
        const int n = count == NULL ? 0 : json_object_get_int(count);
        ring = n == n_ranks ? other : NULL;
        gyre_text_append(known, sizeof(known), " %d", n);
    }
    if (ring == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "has no ring of %d GPUs, but of%s", n_ranks,
                         known[0] == '\0' ? " none" : known);
    struct json_object *ceilings = find(ring, "ceilings_gbytes_per_s", json_type_object);
    if (ceilings == NULL || !json_object_object_get_ex(ceilings, limit->ceiling, &number))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the ring of %d GPUs has no ceiling %s",
                         n_ranks, limit->ceiling);
    limit->gbytes_per_s =
        json_object_is_type(number, json_type_double) || json_object_is_type(number, json_type_int)
            ? json_object_get_double(number)
            : 0;
    if (!isfinite(limit->gbytes_per_s) || limit->gbytes_per_s <= 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "ring of %d GPUs: %s = %.40s: expected a number above 0", n_ranks,
                         limit->ceiling, json_object_to_json_string(number));
    return GYRE_SUCCESS;
}

gyre_status bench_limits_read(const char *path, enum gyre_collective coll, int n_ranks,
                              struct bench_limit *limit_out)
{
    struct bench_limit limit = {
        .ceiling =
            bench_ceiling_names[coll == GYRE_COLL_ALL_REDUCE ? BENCH_CEILING_all_reduce_push_push
                                                             : BENCH_CEILING_push]};
    struct json_object *root = NULL;
    gyre_status status = bench_json_read(path, &root);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--limits");
    status = read_limit(root, n_ranks, &limit);
    json_object_put(root);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--limits %s", path);
    *limit_out = limit;
    return GYRE_SUCCESS;
}

#else

static gyre_status refuse(const char *option)
{
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s: built without json-c; install libjson-c-dev and build again", option);
}

gyre_status bench_limits_write(const struct bench_limits *limits, const char *path)
{
    (void)limits;
    (void)path;
    return refuse("--json");
}

gyre_status bench_limits_read(const char *path, enum gyre_collective coll, int n_ranks,
                              struct bench_limit *limit_out)
{
    (void)path;
    (void)coll;
    (void)n_ranks;
    (void)limit_out;
    return refuse("--limits");
}

#endif
