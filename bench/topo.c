/* SPDX-License-Identifier: Apache-2.0
 *
 * topo: prints what gyre finds out about this machine (or reads from a topology file), and the
 * matrix of path levels between GPUs and network ports.
 */
#include "bench/driver/option_table.h"
#include "bench/driver/streams.h"
#include "bench/tools/topo_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

static void print_node(const struct gyre_topo *topo, int32_t index, int depth)
{
    const struct gyre_topo_node *node = &topo->nodes[index];
    char name[80];
    bench_topo_name(topo, index, name, sizeof(name));
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
        bench_topo_name(topo, topo->links[i].to, name, sizeof(name));
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
        if (!bench_topo_is_end(topo, j))
            continue;
        bench_topo_name(topo, j, name, sizeof(name));
        printf(" %-10s", name);
    }
    printf("\n");
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        if (!bench_topo_is_end(topo, i))
            continue;
        bench_topo_name(topo, i, name, sizeof(name));
        printf("%-14s", name);
        for (int32_t j = 0; j < topo->n_nodes; j++)
            if (bench_topo_is_end(topo, j))
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
        bench_topo_name(topo, net, name, sizeof(name));
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
    const bool is_right = bench_options_take(&line, argc, argv, &options);
    if (!is_right || options.wants_help) {
        fputs(is_right ? "" : "\n", stderr);
        print_usage(argv[0], is_right ? stdout : stderr);
        return is_right ? 0 : 2;
    }
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
            status = bench_topo_write_json(&topo, options.json);
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
