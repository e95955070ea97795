/* SPDX-License-Identifier: Apache-2.0 */
#define GYRE_PLUGIN_HOST
#include "core/engine/plan/plan.h"

#include "algorithms/plugin.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/program_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)

static const struct gyre_plugin_host host = {
    .version = GYRE_PLUGIN_VERSION,
    .collectives = gyre_collectives,
    .allocate = gyre_builder_allocate,
    .worker = gyre_builder_worker,
    .step = gyre_builder_step,
    .range_step = gyre_builder_range_step,
    .max_range = gyre_builder_max_range,
    .reduce = gyre_builder_reduce,
    .scatter = gyre_builder_scatter,
    .min_depth = gyre_builder_min_depth,
    .lanes = gyre_builder_lanes,
    .peers_from_next = gyre_peers_from_next,
};

/* Of the process. Under the lock; written until the first load succeeds, then never. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool is_set;
    char files[GYRE_PARAM_MAX_BYTES]; /* GYRE_ALGORITHMS */
    struct gyre_algorithm algorithms[GYRE_MAX_ALGORITHMS];
    int n_algorithms;
    char names[GYRE_MAX_ALGORITHMS][64]; /* of files */
    void *libraries[GYRE_MAX_ALGORITHMS];
    int n_files;
} loaded;

/* @algorithm: is copied. */
static gyre_status add(struct gyre_algorithm algorithm, uint64_t build)
{
    if (loaded.n_algorithms == GYRE_MAX_ALGORITHMS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "more than %d algorithms", GYRE_MAX_ALGORITHMS);
    struct gyre_algorithm *own = &loaded.algorithms[loaded.n_algorithms];
    algorithm.from = loaded.names[loaded.n_files];
    algorithm.build = build;
    *own = algorithm;
    GYRE_TRY(gyre_algorithms_add(own));
    loaded.n_algorithms++;
    return GYRE_SUCCESS;
}

static gyre_status add_library(const char *path, uint64_t build)
{
    char file[GYRE_PARAM_MAX_BYTES + 2];
    /* Without a slash dlopen() would look in the folders of libraries. */
    snprintf(file, sizeof(file), "%s%s", strchr(path, '/') == NULL ? "./" : "", path);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s", dlerror());
    loaded.libraries[loaded.n_files] = library;
    gyre_plugin_entry *entry;
    *(void **)&entry = dlsym(library, "gyre_algorithms_v1");
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it exports no gyre_algorithms_v1 (docs/extend.md)");
    const struct gyre_plugin *plugin = entry(&host);
    if (plugin == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it does not work with version %d",
                         GYRE_PLUGIN_VERSION);
    if (plugin->version != GYRE_PLUGIN_VERSION)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it is of version %u, this gyre knows version %d: build it again",
                         plugin->version, GYRE_PLUGIN_VERSION);
    if (plugin->algorithm_bytes != sizeof(struct gyre_algorithm) ||
        plugin->shape_bytes != sizeof(struct gyre_shape) ||
        plugin->ability_bytes != sizeof(struct gyre_ability) ||
        plugin->ref_bytes != sizeof(struct gyre_ref))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it was built with the headers of another gyre: build it again");
    if (plugin->n_algorithms == 0 || plugin->algorithms == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it has no algorithm");
    for (uint32_t i = 0; i < plugin->n_algorithms; i++)
        GYRE_TRY(add(*plugin->algorithms[i], build));
    return GYRE_SUCCESS;
}

/* Newest first. */
static gyre_status add_shape(const struct gyre_program_file *file, int set,
                             struct gyre_algorithm *algorithm)
{
    const struct gyre_program *const *programs = gyre_program_file_set(file, set);
    const struct gyre_program *first = programs[0];
    const bool is_same = algorithm->given != NULL && algorithm->given->coll == first->coll &&
                         algorithm->given->n_ranks == first->n_ranks &&
                         algorithm->given->root == first->root;
    struct gyre_given_programs *given = calloc(1, sizeof(*given));
    struct gyre_algorithm shape;
    if (given == NULL)
        return gyre_fail_errno(ENOMEM, "programs");
    given->n_variants = 1;
    given->programs[0] = programs;
    gyre_status status =
        file->sets[set].n_programs == first->n_ranks
            ? gyre_algorithm_give(given, NULL, &shape)
            : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d of %u ranks' programs are there",
                        file->sets[set].n_programs, first->n_ranks);
    if (status == GYRE_SUCCESS && is_same && given->is_placed == algorithm->given->is_placed)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "it stands there twice; one program a shape, without variants");
    if (status != GYRE_SUCCESS) {
        free(given);
        return gyre_fail_context(status, "%s %s of %u ranks, root %u", first->algorithm,
                                 gyre_collectives[first->coll].name, first->n_ranks, first->root);
    }
    given->next = algorithm->given;
    algorithm->given = given;
    algorithm->collectives |= shape.collectives;
    algorithm->name = first->algorithm;
    algorithm->summary = "programs of a file";
    return GYRE_SUCCESS;
}

/* All ranks may be the root of a call. */
static gyre_status check_roots(const struct gyre_algorithm *algorithm)
{
    for (const struct gyre_given_programs *at = algorithm->given; at != NULL; at = at->next) {
        uint32_t n_roots = 0;
        for (const struct gyre_given_programs *other = algorithm->given; other != NULL;
             other = other->next)
            n_roots += other->coll == at->coll && other->n_ranks == at->n_ranks &&
                       other->is_placed == at->is_placed;
        if (gyre_collectives[at->coll].has_root && n_roots != at->n_ranks)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%s %s of %u ranks has programs for %u roots; it needs all "
                             "(GYRE_ALGO_FILE does not)",
                             algorithm->name, gyre_collectives[at->coll].name, at->n_ranks,
                             n_roots);
    }
    return GYRE_SUCCESS;
}

static void free_shapes(const struct gyre_given_programs *given)
{
    while (given != NULL) {
        const struct gyre_given_programs *next = given->next;
        free((void *)(uintptr_t)given);
        given = next;
    }
}

/* The programs and shapes stay as long as the process. */
static gyre_status add_programs(char *text, const char *path)
{
    struct gyre_program_file file;
    struct gyre_algorithm algorithm = {.name = NULL};
    GYRE_TRY(gyre_program_file_parse(text, path, &file));
    gyre_status status = GYRE_SUCCESS;
    for (int set = 0; set < file.n_sets && status == GYRE_SUCCESS; set++) {
        const char *name = gyre_program_file_set(&file, set)[0]->algorithm;
        if (algorithm.name != NULL && strcmp(algorithm.name, name) != 0)
            status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                               "it has programs of %s and of %s; one algorithm a file",
                               algorithm.name, name);
        else
            status = add_shape(&file, set, &algorithm);
    }
    if (status == GYRE_SUCCESS)
        status = check_roots(&algorithm);
    if (status == GYRE_SUCCESS)
        status = add(algorithm, file.hash);
    if (status != GYRE_SUCCESS) {
        free_shapes(algorithm.given);
        gyre_program_file_free(&file);
    }
    return status;
}

static gyre_status add_file(const char *path)
{
    GYRE_FREED char *bytes = NULL;
    size_t n_bytes = 0;
    const char *slash = strrchr(path, '/');
    if (loaded.n_files == GYRE_MAX_ALGORITHMS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "more than %d files", GYRE_MAX_ALGORITHMS);
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const bool is_library = n_bytes > 4 && memcmp(bytes, "\177ELF", 4) == 0;
    loaded.libraries[loaded.n_files] = NULL;
    snprintf(loaded.names[loaded.n_files], sizeof(loaded.names[0]), "%s",
             slash != NULL ? slash + 1 : path);
    const gyre_status status = is_library
                                   ? add_library(path, gyre_hash(GYRE_HASH_INIT, bytes, n_bytes))
                                   : add_programs(bytes, path);
    loaded.n_files++;
    return status;
}

gyre_status gyre_plugins_load(const struct gyre_params *params)
{
    const char *files = gyre_param_text(params, GYRE_PARAM_ALGORITHMS);
    GYRE_LOCKED(&lock);
    if (!loaded.is_set) {
        char list[GYRE_PARAM_MAX_BYTES], *rest = NULL;
        int n_before = 0;
        while (gyre_algorithms[n_before] != NULL)
            n_before++;
        snprintf(list, sizeof(list), "%s", files);
        for (char *path = strtok_r(list, ",", &rest); path != NULL;
             path = strtok_r(NULL, ",", &rest)) {
            const gyre_status status = add_file(path);
            if (status != GYRE_SUCCESS) {
                gyre_algorithms_drop(n_before);
                for (int j = 0; j < loaded.n_algorithms; j++)
                    free_shapes(loaded.algorithms[j].given);
                for (int j = 0; j < loaded.n_files; j++)
                    if (loaded.libraries[j] != NULL)
                        dlclose(loaded.libraries[j]);
                loaded.n_algorithms = loaded.n_files = 0;
                return gyre_fail_context(status, "GYRE_ALGORITHMS: %s", path);
            }
        }
        for (int i = 0; i < loaded.n_algorithms; i++)
            GYRE_INFO(TUNING, "algorithm %s joins from %s, build %016" PRIx64,
                      loaded.algorithms[i].name, loaded.algorithms[i].from,
                      loaded.algorithms[i].build);
        loaded.is_set = true;
        snprintf(loaded.files, sizeof(loaded.files), "%s", files);
    } else if (strcmp(loaded.files, files) != 0) {
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "GYRE_ALGORITHMS is \"%s\", but this process began with \"%s\", which "
                         "counts as long as it runs",
                         files, loaded.files);
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_plugins_load_own(void)
{
    GYRE_FREED struct gyre_params *params = calloc(1, sizeof(*params));
    if (params == NULL)
        return gyre_fail_errno(ENOMEM, "parameters");
    GYRE_TRY(gyre_params_load(params));
    return gyre_plugins_load(params);
}

static uint32_t list_rows(const struct gyre_rows *rows, struct gyre_links_row *list_out)
{
    for (size_t i = 0; i < rows->n_rows; i++) {
        const struct gyre_row *row = &rows->rows[i];
        list_out[i].hash = gyre_row_hash(row);
        snprintf(list_out[i].text, sizeof(list_out[i].text), "%s:%u: %.*s", row->file, row->line,
                 (int)strcspn(row->text, "\n"), row->text);
    }
    return (uint32_t)rows->n_rows;
}

uint32_t gyre_plan_list_agreed(const struct gyre_tuning *tuning, struct gyre_links_row *list_out)
{
    uint32_t n = GYRE_MAX_ALGORITHMS;
    bool is_end = false;
    /* As many places on every rank, so that a missing algorithm is told as such. */
    for (uint32_t i = 0; i < n; i++) {
        const struct gyre_algorithm *algorithm = gyre_algorithms[i];
        struct gyre_links_row *row = &list_out[i];
        is_end = is_end || algorithm == NULL;
        *row = (struct gyre_links_row){.text = "no algorithm"};
        if (is_end)
            continue;
        row->hash = gyre_hash(GYRE_HASH_INIT, algorithm->name, strlen(algorithm->name));
        row->hash = gyre_hash(row->hash, &algorithm->build, sizeof(algorithm->build));
        snprintf(row->text, sizeof(row->text), "algorithm %s", algorithm->name);
        if (algorithm->from != NULL)
            snprintf(row->text, sizeof(row->text), "algorithm %s of %s, build %016" PRIx64,
                     algorithm->name, algorithm->from, algorithm->build);
    }
    for (int file = 0; file < GYRE_N_ROW_FILES; file++)
        n += list_rows(gyre_rows_of((enum gyre_row_file)file), &list_out[n]);
    return n + (tuning->rows != NULL ? list_rows(tuning->rows, &list_out[n]) : 0);
}
