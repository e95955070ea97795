/* SPDX-License-Identifier: Apache-2.0
 *
 * topo: this machine's or a file's topology, and the path levels between GPUs and network ports.
 */
#include "bench/driver/option_table.h"
#include "core/gyre_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct options {
    const char *xml;
    const char *dump;
    const char *json;
    bool levels;
    bool wants_help;
};

#define AT(field) .at = offsetof(struct options, field)

static const struct bench_option table[] = {
    {0, "xml", "FILE", "read a topology in NCCL's XML format instead of this machine's", BENCH_TEXT,
     AT(xml)},
    {0, "dump", "FILE", "write the topology in that format", BENCH_TEXT, AT(dump)},
    {0, "json", "FILE", "write nodes, links and paths as JSON", BENCH_TEXT, AT(json)},
    {0, "levels", NULL, "explain the levels of the matrix", BENCH_FLAG, AT(levels)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static void print_usage(const char *program, FILE *out)
{
    fprintf(out, "usage: %s [--xml FILE] [--dump FILE] [--json FILE] [--levels]\n", program);
    bench_options_print(table, 15, out);
    fputs("Exit status: 0; 1 the topology cannot be read or written; 2 wrong usage.\n", out);
}

/* "GPU0", "mlx5_0:1", "eth0". */
static void name_node(const struct gyre_topo *topo, int32_t index, char *text_out, size_t n_bytes)
{
    const struct gyre_topo_node *node = &topo->nodes[index];
    if (node->kind == GYRE_TOPO_GPU)
        snprintf(text_out, n_bytes, "GPU%d", node->ordinal);
    else if (node->kind == GYRE_TOPO_NET && node->is_rdma)
        snprintf(text_out, n_bytes, "%s:%d", node->name, node->port);
    else if (node->kind == GYRE_TOPO_NET)
        snprintf(text_out, n_bytes, "%s", node->name);
    else
        snprintf(text_out, n_bytes, "%s", gyre_topo_kind_name(node->kind));
}

/* Paths between these are shown. */
static bool is_end(const struct gyre_topo *topo, int32_t index)
{
    return topo->nodes[index].kind == GYRE_TOPO_GPU || topo->nodes[index].kind == GYRE_TOPO_NET;
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/file.h"

#define SCHEMA_VERSION 1

static struct json_object *node_of(const struct gyre_topo *topo, int32_t index)
{
    const struct gyre_topo_node *node = &topo->nodes[index];
    struct json_object *object = json_object_new_object();
    char name[80];
    name_node(topo, index, name, sizeof(name));
    add_int(object, "index", index);
    add_int(object, "parent", node->parent);
    add_text(object, "kind", gyre_topo_kind_name(node->kind));
    add_text(object, "name", name);
    if (node->kind == GYRE_TOPO_CPU)
        add_int(object, "numa_node", node->numa_id);
    if (node->bus_id[0] != '\0')
        add_text(object, "bus_id", node->bus_id);
    if (node->parent >= 0)
        add_number(object, "uplink_gbytes_per_s", gyre_topo_uplink_bytes_per_ns(node));
    if (node->kind == GYRE_TOPO_GPU && node->arch_sm != 0)
        add_int(object, "sm", node->arch_sm);
    if (node->kind == GYRE_TOPO_NET) {
        add_bool(object, "rdma", node->is_rdma);
        add_number(object, "gbit_per_s", node->speed_mbit_per_s / 1000.0);
        add_text(object, "interface", node->is_rdma ? node->netdev : node->name);
    }
    return object;
}

static gyre_status add_paths(struct json_object *root, const struct gyre_topo *topo)
{
    struct json_object *list = add_array(root, "paths");
    for (int32_t from = 0; from < topo->n_nodes; from++)
        for (int32_t to = 0; to < topo->n_nodes; to++) {
            struct gyre_topo_path path;
            if (from == to || !is_end(topo, from) || !is_end(topo, to))
                continue;
            GYRE_TRY(gyre_topo_path_find(topo, from, to, &path));
            struct json_object *object = json_object_new_object();
            add_int(object, "from", from);
            add_int(object, "to", to);
            add_text(object, "level", gyre_topo_level_name(path.level));
            add_number(object, "gbytes_per_s", path.bytes_per_ns);
            json_object_array_add(list, object);
        }
    return GYRE_SUCCESS;
}

static gyre_status write_json(const struct gyre_topo *topo, const char *path)
{
    char hash[20];
    struct json_object *root = json_object_new_object();
    snprintf(hash, sizeof(hash), "%016" PRIx64, gyre_topo_hash(topo));
    add_int(root, "schema_version", SCHEMA_VERSION);
    add_time(root, "written");
    add_text(root, "hash", hash);
    struct json_object *nodes = add_array(root, "nodes");
    for (int32_t i = 0; i < topo->n_nodes; i++)
        json_object_array_add(nodes, node_of(topo, i));
    struct json_object *links = add_array(root, "links");
    for (int32_t i = 0; i < topo->n_links; i++) {
        const struct gyre_topo_link *link = &topo->links[i];
        struct json_object *object = json_object_new_object();
        add_text(object, "kind", link->kind == GYRE_TOPO_NVLINK ? "NVLink" : "C2C");
        add_int(object, "from", link->from);
        add_int(object, "to", link->to);
        add_int(object, "lanes", link->n_lanes);
        add_number(object, "gbytes_per_s", link->bytes_per_ns);
        json_object_array_add(links, object);
    }
    gyre_status status = add_paths(root, topo);
    const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE;
    const char *text = json_object_to_json_string_ext(root, flags);
    if (status == GYRE_SUCCESS)
        status = text == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s", path)
                              : gyre_file_replace(path, text, strlen(text));
    json_object_put(root);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "--json");
}

#else

static gyre_status write_json(const struct gyre_topo *topo, const char *path)
{
    (void)topo;
    (void)path;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json: built without json-c; install libjson-c-dev and build again");
}

#endif

static void print_node(const struct gyre_topo *topo, int32_t index, int depth)
{
    const struct gyre_topo_node *node = &topo->nodes[index];
    char name[80];
    name_node(topo, index, name, sizeof(name));
    printf("%*s%s", 2 * depth, "", name);
    if (node->kind == GYRE_TOPO_CPU)
        printf(" NUMA node %d, %s %s", node->numa_id, node->arch, node->vendor);
    if (node->bus_id[0] != '\0')
        printf(" %s, %.1f GB/s to its parent", node->bus_id, gyre_topo_uplink_bytes_per_ns(node));
    if (node->kind == GYRE_TOPO_GPU && node->arch_sm != 0)
        printf(", sm_%d", node->arch_sm);
    if (node->kind == GYRE_TOPO_NET && node->speed_mbit_per_s != 0)
        printf(" %.4g Gbit/s", node->speed_mbit_per_s / 1000.0);
    if (node->kind == GYRE_TOPO_NET)
        printf("%s%s%s", node->is_rdma ? ", RDMA" : "", node->netdev[0] != '\0' ? ", " : "",
               node->netdev);
    printf("\n");
    for (int32_t i = 0; i < topo->n_links; i++) {
        if (topo->links[i].from != index)
            continue;
        name_node(topo, topo->links[i].to, name, sizeof(name));
        printf("%*s%s x%u to %s, %.1f GB/s\n", 2 * depth + 2, "",
               topo->links[i].kind == GYRE_TOPO_NVLINK ? "NVLink" : "C2C", topo->links[i].n_lanes,
               name, topo->links[i].bytes_per_ns);
    }
    for (int32_t i = 0; i < topo->n_nodes; i++)
        if (topo->nodes[i].parent == index)
            print_node(topo, i, depth + 1);
}

static void print_matrix(const struct gyre_topo *topo)
{
    char name[80];
    printf("\n%-14s", "");
    for (int32_t j = 0; j < topo->n_nodes; j++) {
        if (!is_end(topo, j))
            continue;
        name_node(topo, j, name, sizeof(name));
        printf(" %-10s", name);
    }
    printf("\n");
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        if (!is_end(topo, i))
            continue;
        name_node(topo, i, name, sizeof(name));
        printf("%-14s", name);
        for (int32_t j = 0; j < topo->n_nodes; j++)
            if (is_end(topo, j))
                printf(" %-10s",
                       i == j ? "X" : gyre_topo_level_name(gyre_topo_level_between(topo, i, j)));
        printf("\n");
    }
}

static void print_topo(const struct gyre_topo *topo)
{
    if (gyre_topo_count(topo, GYRE_TOPO_GPU) == 0)
        printf("No GPUs.\n");
    for (int32_t i = 0; i < topo->n_nodes; i++)
        if (topo->nodes[i].parent < 0)
            print_node(topo, i, 0);
    print_matrix(topo);
    for (int32_t gpu = gyre_topo_next(topo, GYRE_TOPO_GPU, 0); gpu >= 0;
         gpu = gyre_topo_next(topo, GYRE_TOPO_GPU, gpu + 1)) {
        int32_t net;
        char name[80];
        if (gyre_topo_nearest_nets(topo, gpu, false, 1, &net) == 0)
            continue;
        name_node(topo, net, name, sizeof(name));
        printf("GPU%d uses %s (%s)\n", topo->nodes[gpu].ordinal, name,
               gyre_topo_level_name(gyre_topo_level_between(topo, gpu, net)));
    }
    if (topo->skipped[0] != '\0')
        printf("\nof the file this was skipped: %s\n", topo->skipped);
    printf("\ntopology hash %016" PRIx64 "\n", gyre_topo_hash(topo));
}

static int run(int argc, char **argv)
{
    static const struct bench_command_line line = {
        .options = table, .user = "topo", .unknown = BENCH_NO_SUCH, .valueless = BENCH_NO_SUCH};
    struct options options = {0};
    struct gyre_topo topo;
    const int ended = bench_options_start(&line, argc, argv, &options, print_usage);
    if (ended >= 0)
        return ended;
#define PRINT_LEVEL(name, legacy, meaning) printf("%s  %s\n", #name, meaning);
    if (options.levels) {
        GYRE_TOPO_LEVEL_TABLE(PRINT_LEVEL)
    }
    gyre_status status = options.xml != NULL ? gyre_topo_xml_read(options.xml, &topo)
                                             : gyre_topo_detect(NULL, &topo);
    if (status == GYRE_SUCCESS) {
        print_topo(&topo);
        if (options.dump != NULL)
            status = gyre_topo_xml_write(&topo, options.dump);
        if (status == GYRE_SUCCESS && options.json != NULL)
            status = write_json(&topo, options.json);
        gyre_topo_fini(&topo);
    }
    if (status != GYRE_SUCCESS)
        fprintf(stderr, "topo: %s\n", gyre_cause());
    return status == GYRE_SUCCESS ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("topo", run(argc, argv));
}
