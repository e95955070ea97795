/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/foundation/topo/topo.h"
#include "core/foundation/topo/topo_nvml.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#define PCI "bus/pci/devices/%s"

struct detect {
    const char *root;
    struct gyre_topo *topo;
};

#define PCI_MAX_CHAIN (2 * GYRE_TOPO_MAX_DEPTH + 2)

struct pci_chain {
    int n;
    char bus_ids[PCI_MAX_CHAIN][GYRE_TOPO_BUS_ID_BYTES];
};

static bool read_formatted(const struct detect *detect, char *text_out, size_t n_bytes,
                           const char *format, va_list args)
{
    char path[PATH_MAX];
    const int n_root = snprintf(path, sizeof(path), "%s/", detect->root);
    text_out[0] = '\0';
    if (n_root >= (int)sizeof(path) || vsnprintf(path + n_root, sizeof(path) - (size_t)n_root,
                                                 format, args) >= (int)sizeof(path) - n_root)
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const bool got = fgets(text_out, (int)n_bytes, file) != NULL;
    fclose(file);
    text_out[strcspn(text_out, "\n")] = '\0';
    return got && text_out[0] != '\0';
}

__attribute__((format(printf, 4, 5))) static bool
read_line(const struct detect *detect, char *text_out, size_t n_bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const bool is_read = read_formatted(detect, text_out, n_bytes, format, args);
    va_end(args);
    return is_read;
}

/* In C's bases; `fallback` = no number. */
__attribute__((format(printf, 3, 4))) static long
read_number(const struct detect *detect, long fallback, const char *format, ...)
{
    char text[64];
    char *end = text;
    va_list args;
    va_start(args, format);
    const bool is_read = read_formatted(detect, text, sizeof(text), format, args);
    va_end(args);
    const long number = is_read ? strtol(text, &end, 0) : 0;
    return end == text ? fallback : number;
}

/* alphasort() uses the caller's locale: ranks would number their devices differently. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int list_names(const struct detect *detect, const char *path, struct dirent ***names_out)
{
    char whole[PATH_MAX];
    *names_out = NULL;
    if (snprintf(whole, sizeof(whole), "%s/%s", detect->root, path) >= (int)sizeof(whole))
        return 0;
    const int n_names = scandir(whole, names_out, NULL, compare_names);
    return n_names < 0 ? 0 : n_names;
}

static void free_names(struct dirent **names, int n_names)
{
    for (int i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

static gyre_status add_cpu(struct detect *detect, int numa_id)
{
    struct gyre_topo_node cpu;
    struct utsname host;
    gyre_topo_node_init(&cpu, GYRE_TOPO_CPU, -1);
    cpu.numa_id = numa_id;
    if (uname(&host) == 0)
        snprintf(cpu.arch, sizeof(cpu.arch), "%.15s", host.machine);
#if defined(__x86_64__) || defined(__i386__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        const unsigned words[3] = {b, d, c};
        memcpy(cpu.vendor, words, sizeof(words));
    }
    if (__get_cpuid(1, &a, &b, &c, &d)) { /* Intel SDM, CPUID leaf 1 */
        cpu.family = (int32_t)(((a >> 8) & 15) + ((a >> 20) & 255));
        cpu.model = (int32_t)(((a >> 4) & 15) + ((a >> 12) & 0xf0));
    }
#endif
    read_line(detect, cpu.affinity, sizeof(cpu.affinity), "devices/system/node/node%d/cpumap",
              numa_id);
    return gyre_topo_add_node(detect->topo, &cpu, NULL);
}

static uint32_t read_link_speed(const struct detect *detect, const char *bus_id)
{
    char text[64];
    if (!read_line(detect, text, sizeof(text), PCI "/max_link_speed", bus_id))
        return 0;
    const double gt_per_s = gyre_text_to_double(text, NULL);
    return gt_per_s > 0.0 && gt_per_s < 1000.0 ? (uint32_t)(gt_per_s * 1000.0 + 0.5) : 0;
}

/* Both sides' lesser maximum (0 = unknown), because idle GPUs train their link down. */
static void read_link(const struct detect *detect, const char *port_above,
                      struct gyre_topo_node *node)
{
    node->link_mt_per_s = read_link_speed(detect, node->bus_id);
    const long width = read_number(detect, 0, PCI "/max_link_width", node->bus_id);
    node->link_width = width > 0 && width <= 32 ? (uint32_t)width : 0;
    if (port_above == NULL)
        return;
    const uint32_t speed_above = read_link_speed(detect, port_above);
    const long width_above = read_number(detect, 0, PCI "/max_link_width", port_above);
    if (speed_above != 0 && speed_above < node->link_mt_per_s)
        node->link_mt_per_s = speed_above;
    if (width_above > 0 && width_above < (long)node->link_width)
        node->link_width = (uint32_t)width_above;
}

static bool read_chain(const struct detect *detect, const char *path, struct pci_chain *chain_out)
{
    char whole[PATH_MAX], real[PATH_MAX];
    char cause[GYRE_CAUSE_MAX_BYTES];
    if (snprintf(whole, sizeof(whole), "%s/%s", detect->root, path) >= (int)sizeof(whole) ||
        realpath(whole, real) == NULL)
        return false;
    chain_out->n = 0;
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    char *rest = NULL;
    for (char *part = strtok_r(real, "/", &rest); part != NULL; part = strtok_r(NULL, "/", &rest)) {
        char bus_id[GYRE_TOPO_BUS_ID_BYTES];
        if (strlen(part) < 12 || gyre_topo_bus_id_parse(part, bus_id) != GYRE_SUCCESS)
            continue;
        if (chain_out->n == PCI_MAX_CHAIN)
            return false;
        memcpy(chain_out->bus_ids[chain_out->n++], bus_id, sizeof(bus_id));
    }
    gyre_set_cause(cause); /* other parts of a path are no failure */
    return chain_out->n > 0;
}

static gyre_status add_function(struct detect *detect, const struct pci_chain *chain,
                                enum gyre_topo_kind kind, int32_t *index_out)
{
    const char *bus_id = chain->bus_ids[chain->n - 1];
    *index_out = gyre_topo_find_bus_id(detect->topo, bus_id);
    if (*index_out >= 0)
        return GYRE_SUCCESS;
    const long numa_id = read_number(detect, -1, PCI "/numa_node", bus_id);
    int32_t parent = 0;
    if (numa_id >= 0 && numa_id <= INT32_MAX) {
        if (gyre_topo_find_numa(detect->topo, (int)numa_id) < 0)
            GYRE_TRY(add_cpu(detect, (int)numa_id));
        parent = gyre_topo_find_numa(detect->topo, (int)numa_id);
    }
    struct gyre_topo_node node;
    /* Root port, each switch's upstream and downstream port, function; the upstream port names a
     * switch. */
    for (int i = 1; i + 1 < chain->n; i += 2) {
        int32_t switch_index = gyre_topo_find_bus_id(detect->topo, chain->bus_ids[i]);
        if (switch_index < 0) {
            gyre_topo_node_init(&node, GYRE_TOPO_PCI, parent);
            memcpy(node.bus_id, chain->bus_ids[i], sizeof(node.bus_id));
            node.pci_class = (uint32_t)read_number(detect, 0, PCI "/class", node.bus_id);
            read_link(detect, chain->bus_ids[i - 1], &node);
            GYRE_TRY(gyre_topo_add_node(detect->topo, &node, &switch_index));
        }
        parent = switch_index;
    }
    gyre_topo_node_init(&node, kind, parent);
    memcpy(node.bus_id, bus_id, sizeof(node.bus_id));
    node.pci_class = (uint32_t)read_number(detect, 0, PCI "/class", bus_id);
    read_link(detect, chain->n > 1 ? chain->bus_ids[chain->n - 2] : NULL, &node);
    return gyre_topo_add_node(detect->topo, &node, index_out);
}

#define PCI_CLASS_IS_DISPLAY(class) ((class) >> 16 == 0x03)
#define PCI_VENDOR_NVIDIA           0x10de

static gyre_status add_gpu(struct detect *detect, const char *bus_id, int ordinal, int arch_sm)
{
    struct pci_chain chain;
    char path[64];
    int32_t index;
    snprintf(path, sizeof(path), "bus/pci/devices/%s", bus_id);
    if (!read_chain(detect, path, &chain)) {
        chain.n = 1;
        snprintf(chain.bus_ids[0], sizeof(chain.bus_ids[0]), "%.15s", bus_id);
    }
    GYRE_TRY(add_function(detect, &chain, GYRE_TOPO_GPU, &index));
    detect->topo->nodes[index].ordinal = ordinal;
    detect->topo->nodes[index].arch_sm = arch_sm;
    return GYRE_SUCCESS;
}

static gyre_status add_nvlinks(struct detect *detect, const struct gyre_nvml_gpu *gpu)
{
    struct gyre_topo *topo = detect->topo;
    const int32_t from = gyre_topo_find_bus_id(topo, gpu->bus_id);
    for (uint32_t i = 0; from >= 0 && i < gpu->n_links; i++) {
        int32_t to = gyre_topo_next(topo, GYRE_TOPO_NVSWITCH, 0);
        if (!gpu->links[i].is_switch) {
            to = gyre_topo_find_bus_id(topo, gpu->links[i].target);
        } else if (to < 0) {
            struct gyre_topo_node node;
            gyre_topo_node_init(&node, GYRE_TOPO_NVSWITCH, -1);
            GYRE_TRY(gyre_topo_add_node(topo, &node, &to));
        }
        if (to < 0 || to == from ||
            (topo->nodes[to].kind != GYRE_TOPO_GPU && topo->nodes[to].kind != GYRE_TOPO_NVSWITCH))
            continue;
        const struct gyre_topo_link link = {GYRE_TOPO_NVLINK, from, to, 1, 0.0};
        GYRE_TRY(gyre_topo_add_link(topo, &link));
    }
    return GYRE_SUCCESS;
}

static gyre_status add_gpus(struct detect *detect, const struct gyre_topo_detect_options *options)
{
    GYRE_FREED struct gyre_nvml_gpu *known = NULL;
    size_t n_known = 0;
    gyre_status status = GYRE_SUCCESS;
    const char *library =
        options->nvml_library != NULL ? options->nvml_library : "libnvidia-ml.so.1";
    const bool asked = library[0] != '\0';
    const bool answered = asked && gyre_nvml_scan(library, &known, &n_known) == GYRE_SUCCESS;
    if (asked && !answered)
        GYRE_INFO(GRAPH, "NVLinks are not known: %s", gyre_cause());
    if (!answered && options->gpu_bus_ids == NULL) {
        struct dirent **names;
        const int n_names = list_names(detect, "bus/pci/devices", &names);
        int ordinal = 0;
        for (int i = 0; i < n_names && status == GYRE_SUCCESS; i++) {
            const char *name = names[i]->d_name;
            if (name[0] == '.' || strlen(name) >= GYRE_TOPO_BUS_ID_BYTES)
                continue;
            if (PCI_CLASS_IS_DISPLAY(read_number(detect, 0, PCI "/class", name)) &&
                read_number(detect, 0, PCI "/vendor", name) == PCI_VENDOR_NVIDIA)
                status = add_gpu(detect, name, ordinal++, 0);
        }
        free_names(names, n_names);
        return status;
    }
    for (size_t i = 0; i < options->n_gpu_bus_ids; i++) {
        char bus_id[GYRE_TOPO_BUS_ID_BYTES];
        int arch_sm = 0;
        GYRE_TRY(gyre_topo_bus_id_parse(options->gpu_bus_ids[i], bus_id));
        for (size_t j = 0; j < n_known; j++)
            arch_sm = strcmp(known[j].bus_id, bus_id) == 0 ? known[j].arch_sm : arch_sm;
        GYRE_TRY(add_gpu(detect, bus_id, (int)i, arch_sm));
    }
    for (size_t j = 0; options->gpu_bus_ids == NULL && j < n_known; j++)
        GYRE_TRY(add_gpu(detect, known[j].bus_id, known[j].ordinal, known[j].arch_sm));
    for (size_t j = 0; j < n_known; j++)
        GYRE_TRY(add_nvlinks(detect, &known[j]));
    return GYRE_SUCCESS;
}

#define MOST_NODES_OF_ONE (GYRE_TOPO_MAX_DEPTH + 16)

static uint64_t parse_guid(const char *text)
{
    uint64_t guid = 0;
    for (; *text != '\0'; text++) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, *text);
        if (digit != NULL)
            guid = guid << 4 | (uint64_t)(digit - digits);
        else if (*text != ':')
            return 0;
    }
    return guid;
}

static int last_number(const struct detect *detect, const char *path)
{
    struct dirent **names;
    const int n_names = list_names(detect, path, &names);
    long last = -1;
    for (int i = 0; i < n_names; i++) {
        char *end;
        const long number = strtol(names[i]->d_name, &end, 10);
        if (*end == '\0' && number > last && number <= UINT16_MAX)
            last = number;
    }
    free_names(names, n_names);
    return (int)last;
}

/* A bond's or a virtual function's rows may be empty, row 0 too. */
bool gyre_topo_port_netdev(const char *sysfs_root, const char *device, int port, char *netdev_out,
                           size_t n_bytes)
{
    const struct detect detect = {sysfs_root, NULL};
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/%d/gid_attrs/ndevs", device, port);
    const int last = last_number(&detect, path);
    for (int row = 0; row <= last; row++)
        if (read_line(&detect, netdev_out, n_bytes, "%s/%d", path, row))
            return true;
    return read_line(&detect, netdev_out, n_bytes, "class/infiniband/%s/parent", device);
}

static gyre_status add_rdma_device(struct detect *detect, const char *name, int *n_nets)
{
    char path[PATH_MAX], parent[GYRE_TOPO_NAME_BYTES];
    int32_t nic;
    if (read_line(detect, parent, sizeof(parent), "class/infiniband/%s/parent", name))
        snprintf(path, sizeof(path), "class/net/%s/device", parent);
    else
        snprintf(path, sizeof(path), "class/infiniband/%s/device", name);
    struct pci_chain chain;
    struct gyre_topo_node root_nic;
    gyre_topo_node_init(&root_nic, GYRE_TOPO_NIC, 0);
    if (read_chain(detect, path, &chain))
        GYRE_TRY(add_function(detect, &chain, GYRE_TOPO_NIC, &nic));
    else
        GYRE_TRY(gyre_topo_add_node(detect->topo, &root_nic, &nic));
    if (detect->topo->nodes[nic].kind != GYRE_TOPO_NIC)
        return GYRE_SUCCESS;
    snprintf(path, sizeof(path), "class/infiniband/%s/ports", name);
    const int last = last_number(detect, path);
    for (int port = 1; port <= last && port <= 255; port++) {
        char state[64];
        if (read_line(detect, state, sizeof(state), "class/infiniband/%s/ports/%d/state", name,
                      port)) {
            struct gyre_topo_node net;
            char text[64];
            gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
            snprintf(net.name, sizeof(net.name), "%.63s", name);
            net.is_rdma = true;
            net.port = port;
            net.ordinal = (*n_nets)++;
            /* All functions of a card have its system image GUID. */
            if (read_line(detect, text, sizeof(text), "class/infiniband/%s/sys_image_guid", name))
                net.guid = parse_guid(text);
            if (read_line(detect, text, sizeof(text), "class/infiniband/%s/ports/%d/rate", name,
                          port)) {
                const double gbit_per_s = gyre_text_to_double(text, NULL);
                if (gbit_per_s > 0.0 && gbit_per_s < 100000.0)
                    net.speed_mbit_per_s = (uint32_t)(gbit_per_s * 1000.0);
            }
            gyre_topo_port_netdev(detect->root, name, port, net.netdev, sizeof(net.netdev));
            GYRE_TRY(gyre_topo_add_node(detect->topo, &net, NULL));
        }
    }
    return GYRE_SUCCESS;
}

static gyre_status add_interface(struct detect *detect, const char *name, int *n_nets)
{
    struct pci_chain chain;
    struct gyre_topo_node net;
    char path[PATH_MAX];
    int32_t nic;
    snprintf(path, sizeof(path), "class/net/%s/device", name);
    if (!read_chain(detect, path, &chain))
        return GYRE_SUCCESS;
    GYRE_TRY(add_function(detect, &chain, GYRE_TOPO_NIC, &nic));
    bool has_rdma_port = false;
    for (int32_t i = 0; i < detect->topo->n_nodes; i++) {
        const struct gyre_topo_node *node = &detect->topo->nodes[i];
        has_rdma_port = has_rdma_port || (node->kind == GYRE_TOPO_NET && node->is_rdma &&
                                          (node->parent == nic || strcmp(node->netdev, name) == 0));
    }
    if (detect->topo->nodes[nic].kind != GYRE_TOPO_NIC || has_rdma_port)
        return GYRE_SUCCESS;
    gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
    snprintf(net.name, sizeof(net.name), "%.63s", name);
    net.ordinal = (*n_nets)++;
    /* -1 or EINVAL: no link, virtio */
    const long mbit_per_s = read_number(detect, 0, "class/net/%s/speed", name);
    net.speed_mbit_per_s = mbit_per_s > 0 && mbit_per_s < 100000000 ? (uint32_t)mbit_per_s : 0;
    return gyre_topo_add_node(detect->topo, &net, NULL);
}

static gyre_status for_each_name(struct detect *detect, const char *path,
                                 gyre_status (*add)(struct detect *, const char *, int *),
                                 int *n_nets)
{
    struct dirent **names;
    const int n_names = list_names(detect, path, &names);
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n_names && status == GYRE_SUCCESS; i++) {
        if (detect->topo->n_nodes > GYRE_TOPO_MAX_NODES - MOST_NODES_OF_ONE) {
            GYRE_WARN("topology: there is no room for %s and %d more of %s: %d nodes at most",
                      names[i]->d_name, n_names - i - 1, path, GYRE_TOPO_MAX_NODES);
            break;
        }
        if (names[i]->d_name[0] != '.' && strlen(names[i]->d_name) < GYRE_TOPO_NAME_BYTES)
            status = add(detect, names[i]->d_name, n_nets);
    }
    free_names(names, n_names);
    return status;
}

gyre_status gyre_topo_detect(const struct gyre_topo_detect_options *options,
                             struct gyre_topo *topo_out)
{
    static const struct gyre_topo_detect_options defaults = {NULL, NULL, NULL, 0};
    struct gyre_topo topo;
    int n_nets = 0;
    if (options == NULL)
        options = &defaults;
    struct detect detect = {options->sysfs_root != NULL ? options->sysfs_root : "/sys", &topo};
    gyre_status status;
    gyre_topo_init(&topo);
    /* By number, because node10 sorts before node2. Skips nodes without processors. */
    for (int id = 0; id < 1024; id++) {
        char cpus[64];
        if (read_line(&detect, cpus, sizeof(cpus), "devices/system/node/node%d/cpulist", id))
            GYRE_TRY_GOTO(status, add_cpu(&detect, id), fail);
    }
    if (detect.topo->n_nodes == 0)
        GYRE_TRY_GOTO(status, add_cpu(&detect, 0), fail);
    GYRE_TRY_GOTO(status, add_gpus(&detect, options), fail);
    GYRE_TRY_GOTO(status, for_each_name(&detect, "class/infiniband", add_rdma_device, &n_nets),
                  fail);
    GYRE_TRY_GOTO(status, for_each_name(&detect, "class/net", add_interface, &n_nets), fail);
    *topo_out = topo;
    return GYRE_SUCCESS;
fail:
    gyre_topo_fini(&topo);
    return gyre_fail_context(status, "topology of %s", detect.root);
}
