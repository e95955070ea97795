/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/launch/launcher.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/device.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Descriptions, connectors and set-up data. An all-reduce of 8 bytes by ring takes 4.1 KiB for each
 * pair of 256 threads. */
#define PEER_BYTES 4096

uint64_t bench_memory_needed(const struct bench_options *options, uint64_t n_ranks,
                             uint64_t n_ranks_here)
{
    const uint64_t buffer_bytes = gyre_round_up(options->max_bytes, 16) + 16;
    return n_ranks_here * (2 * buffer_bytes + (n_ranks > 1 ? n_ranks * PEER_BYTES : 0));
}

/* @name: "" = at the file's start. */
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
        is_found = end != line + strlen(name); /* not "max" */
    }
    fclose(file);
    return is_found;
}

/* The limit less memory in use that cannot be dropped. Any group from `folder` up to `base` may
 * have the limit. A container sees its own at `base`. */
static uint64_t groups_leave(const char *base, char *folder, const char *limit, const char *usage)
{
    uint64_t least = UINT64_MAX;
    char path[3 * PATH_MAX];
    for (char *slash = folder; slash != NULL;) {
        uint64_t most = 0, used = 0, cached = 0;
        snprintf(path, sizeof(path), "%s%s/memory.stat", base, folder);
        (void)find_number(path, "inactive_file ", &cached);
        snprintf(path, sizeof(path), "%s%s/%s", base, folder, usage);
        const bool is_known = find_number(path, "", &used);
        snprintf(path, sizeof(path), "%s%s/%s", base, folder, limit);
        if (is_known && find_number(path, "", &most)) {
            used -= gyre_min_u64(used, cached);
            least = gyre_min_u64(least, most - gyre_min_u64(most, used));
        }
        slash = strrchr(folder, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return least;
}

/* /proc/self/cgroup has "0::/a/b" or, in version 1, "4:memory:/a/b". */
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

gyre_status bench_memory_check(uint64_t n_ranks_here, uint64_t needed_bytes, uint64_t free_bytes,
                               const char *what)
{
    const double gib = (double)(1ULL << 30);
    if (free_bytes >= needed_bytes)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                     "%llu ranks in host memory need %.1f GiB at least, but %.1f GiB are %s: give "
                     "a smaller -b and -e, or fewer ranks on this host",
                     (unsigned long long)n_ranks_here, (double)needed_bytes / gib,
                     (double)free_bytes / gib, what);
}

gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_options *options,
                               int n_local)
{
    const struct gyre_device_ops *ops;
    gyre_status status = GYRE_SUCCESS;
    if (launcher->local_process == 0 &&
        options->from_folder == NULL && /* tune --from measures nothing */
        gyre_device_find((gyre_device_kind)options->device, &ops) == GYRE_SUCCESS &&
        ops->kind == GYRE_DEVICE_HOST) {
        const char *what;
        const uint64_t n_here = (uint64_t)launcher->n_local_processes * (uint64_t)n_local;
        const uint64_t free_bytes = bench_memory_find_free("", &what);
        const uint64_t needed_bytes = bench_memory_needed(
            options, (uint64_t)launcher->n_processes * (uint64_t)n_local, n_here);
        status = bench_memory_check(n_here, needed_bytes, free_bytes, what);
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

/* Options that one message names. */
#define MOST_NAMED 8

static void put_word(const char *word, char *text)
{
    if (word == NULL)
        word = "(not given)";
    if (strlen(word) < BENCH_OPTION_TEXT_BYTES)
        strcpy(text, word);
    else
        snprintf(text, BENCH_OPTION_TEXT_BYTES, "%.14s~%016llx", word,
                 (unsigned long long)gyre_hash(GYRE_HASH_INIT, word, strlen(word)));
}

static bool is_agreed(const struct bench_option *row)
{
    return row->help != NULL && row->type != BENCH_FLAG && row->type != BENCH_IGNORED &&
           row->agreement != BENCH_OWN;
}

void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out)
{
    struct bench_option_texts texts = {{{0}}};
    size_t n = 0;
    put_word(kind->name, texts.texts[n++]);
    for (const struct bench_option *row = bench_option_rows; row->name != NULL; row++)
        if (is_agreed(row)) {
            assert(n < BENCH_MAX_AGREED_OPTIONS);
            const void *field = (const char *)options + row->at;
            char *text = texts.texts[n++];
            const bool is_text = row->type == BENCH_TEXT;
            const int number = row->type == BENCH_BOOL ? *(const bool *)field
                               : is_text               ? 0
                                                       : *(const int *)field;
            if (is_text && row->agreement == BENCH_PRESENT)
                put_word(*(const char *const *)field == NULL ? NULL : "given", text);
            else if (is_text)
                put_word(*(const char *const *)field, text);
            else if (row->type == BENCH_BYTES)
                snprintf(text, BENCH_OPTION_TEXT_BYTES, "%zu", *(const size_t *)field);
            else if (number == BENCH_ALL) /* no option is negative */
                put_word("all", text);
            else if (row->type == BENCH_DTYPE || row->type == BENCH_WORD)
                put_word((row->type == BENCH_DTYPE ? gyre_dtype_names : row->words)[number], text);
            else
                snprintf(text, BENCH_OPTION_TEXT_BYTES, "%d", number);
        }
    *texts_out = texts;
}

gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes)
{
    for (size_t i_option = 0; i_option < BENCH_MAX_AGREED_OPTIONS; i_option++) {
        const char *first = all[0].texts[i_option];
        char others[512] = "";
        int n_others = 0;
        for (int i = 1; i < n_processes; i++) {
            const char *text = all[i].texts[i_option];
            if (memcmp(text, first, BENCH_OPTION_TEXT_BYTES) != 0 && n_others++ < MOST_NAMED)
                gyre_text_append(others, sizeof(others), ", %d has %.*s", i,
                                 BENCH_OPTION_TEXT_BYTES, text);
        }
        if (n_others == 0)
            continue;
        char name[64] = "program";
        const struct bench_option *row = bench_option_rows;
        for (size_t n = is_agreed(row); n < i_option; n += is_agreed(row))
            row++;
        if (i_option > 0 && row->letter != 0 && row->agreement == BENCH_SAME)
            snprintf(name, sizeof(name), "-%c", row->letter);
        else if (i_option > 0)
            snprintf(name, sizeof(name), "--%s", row->name);
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT, "%s: process 0 has %.*s%s%s: all need the same", name,
            BENCH_OPTION_TEXT_BYTES, first, others, n_others > MOST_NAMED ? " and so on" : "");
    }
    return GYRE_SUCCESS;
}

gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options)
{
    struct bench_option_texts mine;
    struct bench_option_texts *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for options of %d processes",
                         launcher->n_processes);
    bench_option_texts_of(kind, options, &mine);
    gyre_status status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    if (status == GYRE_SUCCESS)
        status = bench_option_texts_compare(all, launcher->n_processes);
    free(all);
    return status;
}
