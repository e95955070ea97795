/* SPDX-License-Identifier: Apache-2.0
 *
 * The network devices of this machine: ports of RDMA devices, and interfaces on PCI.
 */
#include "core/foundation/topo/detect.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Switches above a NIC, the NIC and its ports. */
#define MOST_NODES_OF_ONE (GYRE_TOPO_MAX_DEPTH + 16)

/* The NIC node of what root/path points at; a NIC of its own below the first CPU if not on PCI. */
static gyre_status add_nic(struct gyre_detect *detect, const char *path, int32_t *nic_out)
{
    struct gyre_pci_chain chain;
    if (gyre_detect_read_chain(detect, path, &chain))
        return gyre_detect_add_function(detect, &chain, GYRE_TOPO_NIC, nic_out);
    struct gyre_topo_node nic;
    gyre_topo_node_init(&nic, GYRE_TOPO_NIC, 0);
    return gyre_topo_add_node(detect->topo, &nic, nic_out);
}

/* "0c42:a103:0012:3456" as a number; 0 if it is none. */
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

/* The greatest number that is a name in a folder, or -1. */
static int last_number(const struct gyre_detect *detect, const char *path)
{
    struct dirent **names;
    const int n_names = gyre_detect_list_names(detect, path, &names);
    long last = -1;
    for (int i = 0; i < n_names; i++) {
        char *end;
        const long number = strtol(names[i]->d_name, &end, 10);
        if (*end == '\0' && number > last && number <= UINT16_MAX)
            last = number;
    }
    gyre_detect_free_names(names, n_names);
    return (int)last;
}

/* Rows of a bond or of a virtual function may be empty, row 0 too; the kernel has no interface for
 * an empty row. */
bool gyre_topo_port_netdev(const char *sysfs_root, const char *device, int port, char *netdev_out,
                           size_t n_bytes)
{
    const struct gyre_detect detect = {sysfs_root, NULL};
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/%d/gid_attrs/ndevs", device, port);
    const int last = last_number(&detect, path);
    for (int row = 0; row <= last; row++) {
        snprintf(path, sizeof(path), "class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", device,
                 port, row);
        if (gyre_detect_read_line(&detect, path, netdev_out, n_bytes))
            return true;
    }
    snprintf(path, sizeof(path), "class/infiniband/%s/parent", device); /* of a software device */
    return gyre_detect_read_line(&detect, path, netdev_out, n_bytes);
}

static gyre_status add_rdma_port(struct gyre_detect *detect, const char *name, int port,
                                 int32_t nic, int *n_nets)
{
    struct gyre_topo_node net;
    char path[PATH_MAX], text[64];
    gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
    snprintf(net.name, sizeof(net.name), "%.63s", name);
    net.is_rdma = true;
    net.port = port;
    net.ordinal = (*n_nets)++;
    /* The system image GUID is the same for all functions of a card, so it names the card. */
    snprintf(path, sizeof(path), "class/infiniband/%s/sys_image_guid", name);
    if (gyre_detect_read_line(detect, path, text, sizeof(text)))
        net.guid = parse_guid(text);
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/%d/rate", name, port);
    if (gyre_detect_read_line(detect, path, text, sizeof(text))) { /* "400 Gb/sec (4X NDR)" */
        const double gbit_per_s = gyre_text_to_double(text, NULL);
        if (gbit_per_s > 0.0 && gbit_per_s < 100000.0)
            net.speed_mbit_per_s = (uint32_t)(gbit_per_s * 1000.0);
    }
    gyre_topo_port_netdev(detect->root, name, port, net.netdev, sizeof(net.netdev));
    return gyre_topo_add_node(detect->topo, &net, NULL);
}

static gyre_status add_rdma_device(struct gyre_detect *detect, const char *name, int *n_nets)
{
    char path[PATH_MAX], parent[GYRE_TOPO_NAME_BYTES];
    int32_t nic;
    snprintf(path, sizeof(path), "class/infiniband/%s/parent", name);
    if (gyre_detect_read_line(detect, path, parent,
                              sizeof(parent))) /* soft RoCE rides on an interface */
        snprintf(path, sizeof(path), "class/net/%s/device", parent);
    else
        snprintf(path, sizeof(path), "class/infiniband/%s/device", name);
    GYRE_TRY(add_nic(detect, path, &nic));
    if (detect->topo->nodes[nic].kind != GYRE_TOPO_NIC)
        return GYRE_SUCCESS; /* a GPU's function cannot be a NIC's: a broken tree */
    snprintf(path, sizeof(path), "class/infiniband/%s/ports", name);
    const int last = last_number(detect, path);
    for (int port = 1; port <= last && port <= 255; port++) {
        char state[64];
        snprintf(path, sizeof(path), "class/infiniband/%s/ports/%d/state", name, port);
        if (gyre_detect_read_line(detect, path, state, sizeof(state)))
            GYRE_TRY(add_rdma_port(detect, name, port, nic, n_nets));
    }
    return GYRE_SUCCESS;
}

static bool has_rdma_port(const struct gyre_topo *topo, int32_t nic, const char *netdev)
{
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        const struct gyre_topo_node *node = &topo->nodes[i];
        if (node->kind == GYRE_TOPO_NET && node->is_rdma &&
            (node->parent == nic || strcmp(node->netdev, netdev) == 0))
            return true;
    }
    return false;
}

/* An interface on PCI that is no RDMA port's. Virtual interfaces are nothing to route over. */
static gyre_status add_interface(struct gyre_detect *detect, const char *name, int *n_nets)
{
    struct gyre_pci_chain chain;
    struct gyre_topo_node net;
    char path[PATH_MAX];
    int32_t nic;
    snprintf(path, sizeof(path), "class/net/%s/device", name);
    if (!gyre_detect_read_chain(detect, path, &chain))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_detect_add_function(detect, &chain, GYRE_TOPO_NIC, &nic));
    if (detect->topo->nodes[nic].kind != GYRE_TOPO_NIC || has_rdma_port(detect->topo, nic, name))
        return GYRE_SUCCESS;
    gyre_topo_node_init(&net, GYRE_TOPO_NET, nic);
    snprintf(net.name, sizeof(net.name), "%.63s", name);
    net.ordinal = (*n_nets)++;
    snprintf(path, sizeof(path), "class/net/%s/speed", name);
    const long mbit_per_s =
        gyre_detect_read_number(detect, path, 0); /* -1 or EINVAL: link down, virtio */
    net.speed_mbit_per_s = mbit_per_s > 0 && mbit_per_s < 100000000 ? (uint32_t)mbit_per_s : 0;
    return gyre_topo_add_node(detect->topo, &net, NULL);
}

static gyre_status for_each_name(struct gyre_detect *detect, const char *path,
                                 gyre_status (*add)(struct gyre_detect *, const char *, int *),
                                 int *n_nets)
{
    struct dirent **names;
    const int n_names = gyre_detect_list_names(detect, path, &names);
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n_names && status == GYRE_SUCCESS; i++) {
        /* Hundreds of virtual functions must not end the job. */
        if (detect->topo->n_nodes > GYRE_TOPO_MAX_NODES - MOST_NODES_OF_ONE) {
            GYRE_WARN("topology: there is no room for %s and %d more of %s: %d nodes at most",
                      names[i]->d_name, n_names - i - 1, path, GYRE_TOPO_MAX_NODES);
            break;
        }
        if (names[i]->d_name[0] != '.' && strlen(names[i]->d_name) < GYRE_TOPO_NAME_BYTES)
            status = add(detect, names[i]->d_name, n_nets);
    }
    gyre_detect_free_names(names, n_names);
    return status;
}

gyre_status gyre_detect_nets(struct gyre_detect *detect)
{
    int n_nets = 0;
    GYRE_TRY(for_each_name(detect, "class/infiniband", add_rdma_device, &n_nets));
    return for_each_name(detect, "class/net", add_interface, &n_nets);
}
