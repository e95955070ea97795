/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of topo (docs/transports.md lists its keys).
 */
#include "bench/tools/topo_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void bench_topo_name(const struct gyre_topo *topo, int32_t index, char *text_out, size_t n_bytes)
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

bool bench_topo_is_end(const struct gyre_topo *topo, int32_t index)
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
    bench_topo_name(topo, index, name, sizeof(name));
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

static void add_links(struct json_object *root, const struct gyre_topo *topo)
{
    struct json_object *list = add_array(root, "links");
    for (int32_t i = 0; i < topo->n_links; i++) {
        const struct gyre_topo_link *link = &topo->links[i];
        struct json_object *object = json_object_new_object();
        add_text(object, "kind", link->kind == GYRE_TOPO_NVLINK ? "NVLink" : "C2C");
        add_int(object, "from", link->from);
        add_int(object, "to", link->to);
        add_int(object, "lanes", link->n_lanes);
        add_number(object, "gbytes_per_s", link->bytes_per_ns);
        json_object_array_add(list, object);
    }
}

static gyre_status add_paths(struct json_object *root, const struct gyre_topo *topo)
{
    struct json_object *list = add_array(root, "paths");
    for (int32_t from = 0; from < topo->n_nodes; from++)
        for (int32_t to = 0; to < topo->n_nodes; to++) {
            struct gyre_topo_path path;
            if (from == to || !bench_topo_is_end(topo, from) || !bench_topo_is_end(topo, to))
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

static gyre_status write_root(struct json_object *root, const char *path)
{
    const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE;
    const char *text = json_object_to_json_string_ext(root, flags);
    if (text == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s", path);
    return gyre_file_replace(path, text, strlen(text));
}

gyre_status bench_topo_write_json(const struct gyre_topo *topo, const char *path)
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
    add_links(root, topo);
    gyre_status status = add_paths(root, topo);
    if (status == GYRE_SUCCESS)
        status = write_root(root, path);
    json_object_put(root);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "--json");
}

#else

gyre_status bench_topo_write_json(const struct gyre_topo *topo, const char *path)
{
    (void)topo;
    (void)path;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json: built without json-c; install libjson-c-dev and build again");
}

#endif
