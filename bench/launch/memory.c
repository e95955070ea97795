/* SPDX-License-Identifier: Apache-2.0
 *
 * The prediction of memory. Pages of memory count once they are touched. The kernel fills the
 * slabs of threads on demand, so of those only the part counts that the smallest and the largest
 * call touch. The slabs of processes count whole, because transport/shm.c reserves them.
 */
#include "bench/launch/memory.h"

#include "algorithms/algorithm.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/device.h"
#include "core/engine/plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096
/* Descriptions and connectors of one peer, and data of set-up. Measured: an all-reduce of 8 bytes
 * by ring takes 4.1 KiB for each pair of 256 threads, and 4.8 KiB for each pair of 128. */
#define PEER_BYTES 4096
/* A call with fewer bytes for each chunk of each channel may leave some of them empty. */
#define MIN_PART_BYTES 64

extern char **environ;

/* The tuner's facts if all ranks are threads or processes of hosts like this one. */
static struct gyre_tuner_facts facts_of(const struct gyre_params *params, uint64_t n_ranks,
                                        uint64_t n_ranks_here)
{
    const int64_t buffer_bytes = gyre_param_number(params, GYRE_PARAM_BUFFSIZE);
    struct gyre_tuner_facts facts = {
        .device_kind = GYRE_DEVICE_HOST,
        .n_ranks = (uint32_t)n_ranks,
        .n_hosts = 1,
        .is_proxied = n_ranks_here < n_ranks,
        .is_unscaled = true,
        .min_channels = 1,
    };
    facts.spec = gyre_tuner_fifo_spec(GYRE_DEVICE_HOST, facts.n_ranks, facts.is_proxied,
                                      buffer_bytes > 0 ? (uint64_t)buffer_bytes : 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

/* The slots of a FIFO that the calls of one size touch. Each call takes at least one slot. */
static uint64_t count_slots(const struct bench_options *options, uint32_t depth)
{
    const uint64_t n_calls = 2 * ((uint64_t)options->n_warmup + (uint64_t)options->n_iters);
    return gyre_min_u64(n_calls, depth);
}

/* The bytes that calls of n_bytes touch on one rank: a page for each slot that they receive into
 * and for each scratch area. 0 if chunks may be empty, because these touch nothing, and for a call
 * that is refused later with its reason. */
static uint64_t slots_bytes(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                            const struct bench_kind *kind, const struct bench_options *options,
                            size_t n_bytes)
{
    const enum gyre_collective coll = kind->coll;
    const bool has_blocks = gyre_collectives[coll].in_blocks || gyre_collectives[coll].out_blocks;
    const size_t n_own_bytes = has_blocks ? n_bytes / facts->n_ranks : n_bytes;
    const struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)facts->n_ranks};
    struct gyre_choice choice;
    struct gyre_program *program = NULL;
    if (coll == GYRE_COLL_SEND_RECV ||
        gyre_tuner_choose(facts, filter, coll, n_own_bytes, &choice) != GYRE_SUCCESS ||
        gyre_algorithm_emit(choice.algorithm, &shape, (int)facts->n_ranks / 2, &program) !=
            GYRE_SUCCESS)
        return 0;
    uint64_t n_pages = 0;
    for (int i = 0; i < program->n_connections; i++)
        n_pages += program->connections[i].is_send ? 0 : count_slots(options, facts->spec.depth);
    n_pages = (n_pages + program->n_scratch) * choice.n_channels;
    const size_t n_parts = (size_t)program->n_chunks * choice.n_channels;
    if (n_own_bytes == 0 || (n_parts > 1 && n_own_bytes < n_parts * MIN_PART_BYTES))
        n_pages = 0;
    gyre_program_free(program);
    return n_pages * PAGE_BYTES;
}

/* The slab of one rank that its peers in other processes of this host map. */
static uint64_t shared_bytes(const struct gyre_tuner_facts *facts, const struct gyre_params *params,
                             uint64_t n_peers)
{
    const struct gyre_fifo_spec *spec = &facts->spec;
    const uint64_t slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
    /* If the user sets a host id, it is not known here which ranks share memory. */
    if (gyre_param_number(params, GYRE_PARAM_SHM_DISABLE) == 1 ||
        gyre_param_is_set(params, GYRE_PARAM_HOSTID))
        return 0;
    return n_peers * spec->n_fifos * gyre_round_up(spec->depth * slot_bytes, PAGE_BYTES);
}

struct bench_memory bench_memory_predict(const struct bench_kind *kind,
                                         const struct bench_options *options, uint64_t n_ranks,
                                         uint64_t n_ranks_here, uint64_t n_local)
{
    struct gyre_params params;
    struct gyre_filter filter;
    const uint64_t buffer_bytes = gyre_round_up(options->max_bytes, 16) + 16;
    struct bench_memory memory = {.n_ranks = n_ranks_here,
                                  .buffers_bytes = n_ranks_here * 2 * buffer_bytes};
    const struct gyre_filter_words allowed = bench_options_allowed(options);
    struct gyre_param_sources sources;
    gyre_param_sources_open(&sources);
    const gyre_status status = gyre_params_take(&sources, &params);
    gyre_param_sources_close(&sources);
    if (n_ranks < 2 || status != GYRE_SUCCESS || gyre_filter_of(&params, &filter) != GYRE_SUCCESS ||
        gyre_filter_override(&allowed, &filter) != GYRE_SUCCESS)
        return memory; /* making the communicator reports what is wrong with them */
    const struct gyre_tuner_facts facts = facts_of(&params, n_ranks, n_ranks_here);
    const uint64_t slots =
        gyre_max_u64(slots_bytes(&facts, &filter, kind, options, options->min_bytes),
                     slots_bytes(&facts, &filter, kind, options, options->max_bytes));
    const uint64_t shared = shared_bytes(&facts, &params, n_ranks_here - n_local);
    memory.comms_bytes = n_ranks_here * (n_ranks * PEER_BYTES + gyre_max_u64(slots, shared));
    return memory;
}

/* ---- free memory -------------------------------------------------------------------------- */

/* Reads the number behind `name` in a file of names and numbers. With "" it reads the number at the
 * start of the file. */
static bool find_number(const char *path, const char *name, uint64_t *number_out)
{
    char line[512];
    bool is_found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (!is_found && fgets(line, sizeof(line), file) != NULL) {
        char *end = NULL;
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        *number_out = strtoull(line + strlen(name), &end, 10);
        is_found = end != line + strlen(name); /* there was a number, and not "max" */
    }
    fclose(file);
    return is_found;
}

/* The memory that one control group leaves: its limit less the memory in use that cannot be
 * dropped. */
static uint64_t group_leaves(const char *folder, const char *limit, const char *usage)
{
    char path[PATH_MAX];
    uint64_t most = 0, used = 0, cached = 0;
    if (snprintf(path, sizeof(path), "%s/%s", folder, limit) >= (int)sizeof(path) ||
        !find_number(path, "", &most))
        return UINT64_MAX;
    if (snprintf(path, sizeof(path), "%s/%s", folder, usage) >= (int)sizeof(path) ||
        !find_number(path, "", &used))
        return UINT64_MAX;
    if (snprintf(path, sizeof(path), "%s/memory.stat", folder) < (int)sizeof(path))
        (void)find_number(path, "inactive_file ", &cached);
    used -= gyre_min_u64(used, cached);
    return most - gyre_min_u64(most, used);
}

/* The least that the group at `folder` below `base` and the groups above it leave, because any of
 * them may have the limit. A container sees its own group at `base`. */
static uint64_t groups_leave(const char *base, char *folder, const char *limit, const char *usage)
{
    uint64_t least = UINT64_MAX;
    char path[PATH_MAX];
    for (;;) {
        if (snprintf(path, sizeof(path), "%s%s", base, folder) < (int)sizeof(path))
            least = gyre_min_u64(least, group_leaves(path, limit, usage));
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Reads /proc/self/cgroup for both versions of control groups: "0::/a/b" and "4:memory:/a/b". */
static uint64_t find_group(const char *root)
{
    char line[PATH_MAX], path[PATH_MAX], base[PATH_MAX];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof(path), "%.4000s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return least;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *folder = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (folder == NULL)
            continue;
        *folder++ = '\0';
        const bool is_unified = strcmp(controllers, ":") == 0;
        if (!is_unified && strstr(controllers, "memory") == NULL)
            continue;
        snprintf(base, sizeof(base), "%.4000s/sys/fs/cgroup%s", root, is_unified ? "" : "/memory");
        least = gyre_min_u64(least, is_unified
                                        ? groups_leave(base, folder, "memory.max", "memory.current")
                                        : groups_leave(base, folder, "memory.limit_in_bytes",
                                                       "memory.usage_in_bytes"));
    }
    fclose(file);
    return least;
}

uint64_t bench_memory_find_free(const char *root, const char **what_out)
{
    char path[PATH_MAX];
    uint64_t available_kib = 0, swap_kib = 0, free_bytes = UINT64_MAX;
    snprintf(path, sizeof(path), "%.4000s/proc/meminfo", root);
    *what_out = "free in all";
    if (find_number(path, "MemAvailable:", &available_kib)) {
        (void)find_number(path, "SwapFree:", &swap_kib);
        free_bytes = (available_kib + swap_kib) * 1024;
    }
    const uint64_t left = find_group(root);
    if (left < free_bytes) {
        *what_out = "left by the control group (container)";
        free_bytes = left;
    }
    return free_bytes;
}

/* ---- the check ---------------------------------------------------------------------------- */

static double gib(uint64_t n_bytes)
{
    return (double)n_bytes / (double)(1ULL << 30);
}

/* The largest number of ranks that fit. Memory for buffers grows with their number, and memory for
 * communicators with its square. */
static uint64_t most_ranks(const struct bench_memory *memory, uint64_t free_bytes)
{
    const double of_all = (double)memory->n_ranks;
    const double of_rank = (double)memory->buffers_bytes / of_all;
    const double of_pair = (double)memory->comms_bytes / of_all / of_all;
    uint64_t n = memory->n_ranks;
    while (n > 0 && (of_rank + of_pair * (double)n) * (double)n > (double)free_bytes)
        n--;
    return n;
}

/* Writes the options of a run that would fit. */
static void suggest(const struct bench_memory *memory, const struct bench_options *options,
                    uint64_t free_bytes, char *text_out, size_t text_bytes)
{
    const uint64_t left = free_bytes - gyre_min_u64(free_bytes, memory->comms_bytes);
    const uint64_t mib = left / memory->n_ranks / 2 >> 20;
    const bool can_shrink = mib > 0 && options->min_bytes <= mib << 20;
    const uint64_t n_ranks = most_ranks(memory, free_bytes);
    char bytes[48] = "a smaller -b and -e", ranks[64] = "";
    if (can_shrink)
        snprintf(bytes, sizeof(bytes), "-e %lluM or less", (unsigned long long)mib);
    if (n_ranks > 0)
        snprintf(ranks, sizeof(ranks), ", or %llu ranks or fewer on this host",
                 (unsigned long long)n_ranks);
    snprintf(text_out, text_bytes, "%s%s", bytes, ranks);
}

gyre_status bench_memory_check(const struct bench_memory *memory,
                               const struct bench_options *options, uint64_t free_bytes,
                               const char *what)
{
    char fits[128];
    if (free_bytes >= memory->comms_bytes &&
        free_bytes - memory->comms_bytes >= memory->buffers_bytes)
        return GYRE_SUCCESS;
    suggest(memory, options, free_bytes, fits, sizeof(fits));
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                     "%llu ranks in host memory need %.1f GiB at least (%.1f for buffers of -e %zu "
                     "bytes, %.1f for communicators), but %.1f GiB are %s: give %s",
                     (unsigned long long)memory->n_ranks,
                     gib(memory->buffers_bytes + memory->comms_bytes), gib(memory->buffers_bytes),
                     options->max_bytes, gib(memory->comms_bytes), gib(free_bytes), what, fits);
}

static bool is_on_host(const struct bench_options *options)
{
    const struct gyre_device_ops *ops;
    return gyre_device_find((gyre_device_kind)options->device, &ops) == GYRE_SUCCESS &&
           ops->kind == GYRE_DEVICE_HOST;
}

gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                               const struct bench_options *options, int n_local)
{
    const char *what;
    gyre_status status = GYRE_SUCCESS;
    const bool is_idle = options->from_folder != NULL; /* tune --from measures nothing */
    if (launcher->local_process == 0 && !is_idle && is_on_host(options)) {
        const struct bench_memory memory = bench_memory_predict(
            kind, options, (uint64_t)launcher->n_processes * (uint64_t)n_local,
            (uint64_t)launcher->n_local_processes * (uint64_t)n_local, (uint64_t)n_local);
        const uint64_t free_bytes = bench_memory_find_free("", &what);
        status = bench_memory_check(&memory, options, free_bytes, what);
    }
    char cause[GYRE_CAUSE_MAX_BYTES];
    memcpy(cause, gyre_cause(), sizeof(cause));
    const uint8_t mine = status != GYRE_SUCCESS;
    uint8_t *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d processes",
                         launcher->n_processes);
    const gyre_status gathered = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    int refusing = -1;
    for (int i = launcher->n_processes - 1; gathered == GYRE_SUCCESS && i >= 0; i--)
        if (all[i] != 0)
            refusing = i;
    free(all);
    if (status != GYRE_SUCCESS) {
        gyre_set_cause(cause);
        return status;
    }
    GYRE_TRY(gathered);
    if (refusing >= 0)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the host of process %d has too little memory",
                         refusing);
    return GYRE_SUCCESS;
}
