/* SPDX-License-Identifier: Apache-2.0
 *
 * Machine files (docs/published.md).
 */
#include "algorithms/contenders/contender.h"

#include "algorithms/simulate/fabric.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES 65536
#define MAX_LINE_BYTES 256
#define MOST_FILES     4 /* that are like each other */

static const char *const cpu_names[] = {"amd", "intel", "grace"};

static int find_word(const char *word, const char *const *words, int n_words)
{
    for (int i = 0; i < n_words; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

static gyre_status take_constant(const char *line, struct gyre_machine_file *file)
{
    if (sscanf(line, "p2p_efficiency = %lf", &file->p2p_efficiency) == 1 ||
        sscanf(line, "p2p_worker_efficiency = %lf", &file->p2p_worker_efficiency) == 1)
        return GYRE_SUCCESS;
    return gyre_cost_from_text(line, &file->cost, &file->cost);
}

/* Drops the lines that begin with a word, or with @keeps all others. */
static void drop_lines(char *text, const char *word, bool keeps)
{
    const size_t n_bytes = strlen(word);
    while (*text != '\0') {
        char *next = text + strcspn(text, "\n") + 1;
        const bool is_it = strncmp(text, word, n_bytes) == 0 && text[n_bytes] == ' ';
        if (is_it != keeps)
            memmove(text, next, strlen(next) + 1);
        else
            text = next;
    }
}

/* Of lines of one word the last one counts, as with constants, but links and tori add up. */
static gyre_status take_fabric(const char *line, const char *word, struct gyre_machine_file *file)
{
    if (strcmp(word, "link") != 0 && strcmp(word, "torus") != 0)
        drop_lines(file->fabric, word, false);
    const size_t used = strlen(file->fabric), room = sizeof(file->fabric) - used;
    if ((size_t)snprintf(&file->fabric[used], room, "%s\n", line) >= room)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the lines of its fabric are too long");
    return GYRE_SUCCESS;
}

static gyre_status take_words(const char *line, struct gyre_machine_file *file)
{
    struct gyre_contender_machine *facts = &file->facts;
    unsigned n_hosts, n_gpus, n_nics;
    double rate;
    char word[32] = "", value[32] = "", more[32] = "";
    const int n_words = sscanf(line, "%31s %31s %31s", word, value, more);
    if (n_words < 1 || strcmp(word, "name") == 0 || strcmp(word, "like") == 0)
        return GYRE_SUCCESS;
    if (sscanf(line, "hosts %u gpus %u nics %u rate %lf", &n_hosts, &n_gpus, &n_nics, &rate) == 4) {
        file->n_hosts = n_hosts;
        file->n_gpus = n_gpus;
        file->n_nics = n_nics;
        file->cost.nic_bytes_per_ns = rate;
    } else if (gyre_fabric_has_word(word)) {
        return take_fabric(line, word, file);
    } else if (strcmp(word, "gpu") == 0) {
        const int gpu = find_word(value, gyre_gpu_names, GYRE_N_GPUS);
        facts->gpu = gpu < 0 ? facts->gpu : (enum gyre_gpu)gpu; /* none: host memory */
    } else if (strcmp(word, "cpu") == 0) {
        const int cpu = find_word(value, cpu_names, GYRE_ARRAY_LENGTH(cpu_names));
        if (cpu < 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "cpu %s: amd, intel or grace", value);
        facts->cpu = (enum gyre_cpu)cpu;
    } else if (strcmp(word, "inside") == 0) {
        file->is_mesh = strcmp(value, "mesh") == 0;
        facts->has_nvls = strcmp(more, "reduces") == 0;
    } else if (strcmp(word, "nics") == 0) {
        facts->has_far_nics = true;
    } else if (strcmp(word, "library") == 0) {
        snprintf(file->library, sizeof(file->library), "%.15s", value);
    } else if (strcmp(word, "algorithm") == 0) {
        snprintf(file->algorithm, sizeof(file->algorithm), "%.15s", value);
    } else {
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is no word of a machine", word);
    }
    return GYRE_SUCCESS;
}

static gyre_status read_file(const char *path, const char *folder, int depth,
                             struct gyre_machine_file *file);

static gyre_status take_text(const char *text, const char *folder, int depth,
                             struct gyre_machine_file *file)
{
    char line[MAX_LINE_BYTES], like[64], path[512];
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
        if (sscanf(at, "like %63s", like) == 1) {
            snprintf(path, sizeof(path), "%s/%s.machine", folder, like);
            GYRE_TRY(read_file(path, folder, depth + 1, file));
        }
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
        if (strncmp(at, "torus ", 6) == 0 || strncmp(at, "dragonfly ", 10) == 0 ||
            strncmp(at, "leaves ", 7) == 0) /* a shape of its own */
            drop_lines(file->fabric, "latency", true);
    for (int number = 1; *text != '\0'; number++) {
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "#\n"), text);
        const gyre_status status =
            strchr(line, '=') != NULL ? take_constant(line, file) : take_words(line, file);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "line %d", number);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return GYRE_SUCCESS;
}

static gyre_status read_file(const char *path, const char *folder, int depth,
                             struct gyre_machine_file *file)
{
    char *text;
    if (depth > MOST_FILES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: its files are like each other", path);
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, NULL));
    const gyre_status status = take_text(text, folder, depth, file);
    free(text);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", path);
}

gyre_status gyre_machine_file_fabric(const struct gyre_machine_file *file, unsigned n_hosts,
                                     unsigned n_gpus, struct gyre_fabric **fabric_out)
{
    char text[sizeof(file->fabric) + 128];
    n_hosts = n_hosts > 0 ? n_hosts : file->n_hosts;
    n_gpus = n_gpus > 0 ? n_gpus : file->n_gpus;
    snprintf(text, sizeof(text), "hosts %u gpus %u nics %u rate %.6f\n%s", n_hosts, n_gpus,
             file->n_nics, file->cost.nic_bytes_per_ns, file->fabric);
    return gyre_fabric_from_text(text, fabric_out);
}

gyre_status gyre_machine_file_read(const char *path, const char *folder,
                                   struct gyre_machine_file *file_out)
{
    struct gyre_machine_file file = {.facts.gpu = GYRE_GPU_HOPPER,
                                     .cost = gyre_cost_h200,
                                     .p2p_efficiency = 1,
                                     .p2p_worker_efficiency = 1};
    GYRE_TRY(read_file(path, folder, 1, &file));
    file.facts.link_gbytes = file.cost.egress_bytes_per_ns[GYRE_LINK_HOST];
    file.facts.mesh_gpus = file.is_mesh ? file.n_gpus : 0;
    file.facts.nic_gbytes = file.cost.nic_bytes_per_ns;
    file.cost.ingress_bytes_per_ns[GYRE_LINK_HOST] = file.facts.link_gbytes;
    *file_out = file;
    return GYRE_SUCCESS;
}
