/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the figures for people, and the ceilings that follow from them.
 */
#include "bench/limits/limits.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define POINTS_blocks      \
    {                      \
        8, 16, 32, 64, 132 \
    } /* 132 blocks: one on every SM of an H100 or H200 */
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
    double best[BENCH_N_WAYS] = {0};
    for (int path = 0; path < BENCH_LIMITS_N_PATHS; path++) {
        const enum bench_way way = bench_limits_paths[path].way;
        for (int point = 0; point < BENCH_LIMITS_N_POINTS && path != BENCH_LIMITS_STORE_ALL;
             point++)
            if (ring->gbytes_per_s[path][point] > best[way])
                best[way] = ring->gbytes_per_s[path][point];
    }
    return bench_ceiling_of(ceiling, best);
}

static void print_gbytes_per_s(double gbytes_per_s)
{
    if (gbytes_per_s > 0)
        printf(" %8.1f", gbytes_per_s);
    else
        printf(" %8s", "-");
}

static void print_points(const struct bench_limits_path_traits *path)
{
    const bool is_bytes = strcmp(path->unit, "bytes") == 0;
    printf("# %-52s", is_bytes ? "MiB" : path->unit);
    for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++)
        printf(" %8" PRIu64, is_bytes ? path->points[point] >> 20 : path->points[point]);
    printf("\n");
}

static void print_ring(const struct bench_limits_ring *ring)
{
    const char *unit = "";
    printf("#\n# Ring of %d GPUs, all at once; GB/s of one GPU in one direction\n", ring->n_gpus);
    for (int i = 0; i < BENCH_LIMITS_N_PATHS; i++) {
        const struct bench_limits_path_traits *path = &bench_limits_paths[i];
        if (strcmp(path->unit, unit) != 0)
            print_points(path);
        unit = path->unit;
        printf("  %-52s", path->description);
        for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++)
            print_gbytes_per_s(ring->gbytes_per_s[i][point]);
        printf("\n");
    }
}

/* A line for each ceiling and a column for each ring, the smallest first. */
static void print_ceilings(const struct bench_limits *limits)
{
    if (limits->n_rings == 0)
        return;
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
    print_ceilings(limits);
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
