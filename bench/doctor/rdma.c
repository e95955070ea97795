/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads sysfs without libibverbs, so that a port that cannot be opened can be described.
 */
#include "bench/doctor/machine.h"

#include "core/foundation/base/text.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path_of(const char *device, const char *file)
{
    return bench_text("/sys/class/infiniband/%s/%s", device, file);
}

const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file)
{
    return bench_text("/sys/class/infiniband/%s/ports/%d/%s", port->device, port->port, file);
}

static void read_port_file(const struct bench_rdma_port *port, const char *file, char *text_out,
                           size_t text_bytes)
{
    (void)bench_read_text(bench_rdma_path(port, file), text_out, text_bytes);
}

void bench_rdma_read(struct bench_machine *machine)
{
    char(*devices)[BENCH_NAME_BYTES], (*ports)[BENCH_NAME_BYTES];
    machine->n_rdma_devices = bench_read_names("/sys/class/infiniband", &devices);
    for (int i = 0; i < machine->n_rdma_devices; i++) {
        const char *device = devices[i];
        const int n = bench_read_names(path_of(device, "ports"), &ports);
        for (int j = 0; j < n; j++) {
            int64_t number = 0;
            if (!bench_text_to_number(ports[j], &number) || number <= 0 || number >= 256)
                continue;
            machine->ports = bench_grow(machine->ports, machine->n_ports, sizeof(*machine->ports));
            struct bench_rdma_port *port = &machine->ports[machine->n_ports++];
            char word[16], *rest;
            snprintf(port->device, sizeof(port->device), "%.63s", device);
            port->port = (int)number;
            snprintf(port->name, sizeof(port->name), "%.63s:%d", device, port->port);
            read_port_file(port, "state", port->state, sizeof(port->state));
            read_port_file(port, "phys_state", port->physical, sizeof(port->physical));
            read_port_file(port, "rate", port->rate, sizeof(port->rate));
            read_port_file(port, "link_layer", port->layer, sizeof(port->layer));
            (void)gyre_topo_port_netdev(bench_text("%s/sys", bench_root), device, port->port,
                                        port->netdev, sizeof(port->netdev));
            (void)bench_read_text(path_of(device, "fw_ver"), port->firmware,
                                  sizeof(port->firmware));
            (void)bench_read_text(path_of(device, "board_id"), port->board, sizeof(port->board));
            port->gbit_per_s = gyre_text_to_double(port->rate, &rest);
            (void)sscanf(rest, " Gb/sec (%d%1[X]", &port->width, word);
            if (bench_read_link(path_of(device, "device"), port->bus_id, sizeof(port->bus_id)) !=
                    BENCH_READ_OK ||
                strchr(port->bus_id, ':') == NULL)
                port->bus_id[0] = '\0';
            port->is_soft = port->bus_id[0] == '\0' || bench_exists(path_of(device, "parent"));
            port->is_active = strcmp(port->state, "4: ACTIVE") == 0;
            port->is_roce = strcmp(port->layer, "Ethernet") == 0;
        }
    }
}

bool bench_can_reach(const struct gyre_params *params, const struct gyre_transport_ops *ops,
                     const struct gyre_peer_info *mine, const struct gyre_peer_info *peer,
                     char *why_out, size_t why_bytes)
{
    const char *allowed = gyre_param_text(params, GYRE_PARAM_TRANSPORT);
    if (allowed[0] == '\0' || gyre_text_same(allowed, ops->name))
        return ops->reachable(params, mine, peer, why_out, why_bytes);
    snprintf(why_out, why_bytes, "%s=%.40s", gyre_param_source(params, GYRE_PARAM_TRANSPORT),
             allowed);
    return false;
}

/* Only variables keep two ranks with working adapters apart. */
const char *bench_rdma_off(const struct gyre_params *params)
{
    char why[96];
    const struct gyre_peer_info ranks[2] = {{.ib_usable = 1}, {.rank = 1, .ib_usable = 1}};
    for (int i = 0; gyre_transports[i] != NULL; i++)
        if (gyre_transports[i]->is_rdma &&
            !bench_can_reach(params, gyre_transports[i], &ranks[0], &ranks[1], why, sizeof(why)))
            return bench_text("%s", why);
    return NULL;
}

static bool is_idle(const struct bench_machine *machine, const struct bench_rdma_port *port)
{
    const struct bench_netdev *device = bench_net_find(machine, port->netdev);
    return !port->is_active && (port->is_roce ? device != NULL && !device->is_up
                                              : strncmp(port->physical, "3:", 2) == 0);
}

void bench_rdma_find_unused(const struct gyre_params *params, int n_expected,
                            struct bench_machine *machine)
{
    struct gyre_ib_hca_rule rule;
    const char *hca = gyre_param_text(params, GYRE_PARAM_IB_HCA), *widened;
    const char *off = bench_rdma_off(params);
    const bool has_rule = hca[0] != '\0' && gyre_ib_hca_parse(hca, &rule) == GYRE_SUCCESS;
    int n_active = 0;
    for (int i = 0; i < machine->n_ports; i++) {
        struct bench_rdma_port *port = &machine->ports[i];
        const bool is_taken =
            !has_rule || gyre_ib_hca_takes(&rule, port->device, port->port, &widened);
        if (n_expected == 0)
            snprintf(port->why_unused, sizeof(port->why_unused), "not expected");
        else if (off != NULL)
            snprintf(port->why_unused, sizeof(port->why_unused), "%s", off);
        else if (!is_taken)
            snprintf(port->why_unused, sizeof(port->why_unused), "left out by %.80s",
                     gyre_param_source(params, GYRE_PARAM_IB_HCA));
        n_active += port->is_active && port->why_unused[0] == '\0';
    }
    for (int i = 0; i < machine->n_ports; i++) {
        struct bench_rdma_port *port = &machine->ports[i];
        const bool is_named = has_rule && !rule.is_inverted;
        if (port->why_unused[0] == '\0' && !port->is_active && n_expected >= 0 &&
            n_active >= n_expected)
            snprintf(port->why_unused, sizeof(port->why_unused), "not expected");
        else if (port->why_unused[0] == '\0' && !is_named && n_active > 0 && is_idle(machine, port))
            snprintf(port->why_unused, sizeof(port->why_unused), "%s, and nobody has enabled it",
                     port->state);
        machine->n_used_ports += port->why_unused[0] == '\0';
    }
    machine->has_nic = false;
    for (int i = 0; i < machine->n_pci; i++) {
        struct bench_pci *pci = &machine->pci[i];
        bool has_port = false, is_used = false;
        for (int k = 0; k < machine->n_ports; k++)
            if (strcmp(machine->ports[k].bus_id, pci->bus_id) == 0) {
                has_port = true;
                is_used = is_used || machine->ports[k].why_unused[0] == '\0';
            }
        pci->is_nic = pci->is_nic && (is_used || !has_port);
        machine->has_nic = machine->has_nic || pci->is_nic;
    }
}

/* The kernel hides the type and interface of empty rows and of other network namespaces. */
static void read_row(const struct bench_machine *machine, const struct bench_rdma_port *port,
                     struct gyre_ib_gid_row *row)
{
    char type[32], text[256];
    read_port_file(port, bench_text("gid_attrs/types/%u", row->index), type, sizeof(type));
    row->type = strcmp(type, "RoCE v2") == 0      ? GYRE_IB_GID_ROCE_V2
                : strcmp(type, "IB/RoCE v1") == 0 ? GYRE_IB_GID_ROCE_V1
                                                  : GYRE_IB_GID_UNREADABLE;
    read_port_file(port, bench_text("gid_attrs/ndevs/%u", row->index), row->netdev,
                   sizeof(row->netdev));
    const struct bench_netdev *device = bench_net_find(machine, row->netdev);
    row->is_netdev_down = device != NULL && !device->is_up;
    if (row->netdev[0] != '\0' && bench_read_text(bench_text("/proc/net/vlan/%s", row->netdev),
                                                  text, sizeof(text)) == BENCH_READ_OK) {
        const char *id = strstr(text, "VID:");
        row->vlan = id == NULL ? 0 : (uint16_t)strtoul(id + 4, NULL, 10);
    }
}

int bench_rdma_gids(const struct bench_machine *machine, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row **rows_out)
{
    char(*names)[BENCH_NAME_BYTES];
    int n_rows = 0;
    const int n = bench_read_names(bench_rdma_path(port, "gids"), &names);
    *rows_out = bench_keep((size_t)n, sizeof(**rows_out));
    for (int i = 0; i < n; i++) {
        char text[64];
        int64_t index = 0;
        struct gyre_ib_gid_row row = {0};
        const enum bench_read result = bench_read_text(
            bench_rdma_path(port, bench_text("gids/%s", names[i])), text, sizeof(text));
        if (result == BENCH_READ_ABSENT)
            continue;
        if (result != BENCH_READ_OK || !bench_text_to_number(names[i], &index) ||
            inet_pton(AF_INET6, text, row.raw) != 1)
            return -1;
        row.index = (uint32_t)index;
        if (gyre_ib_gid_classify(row.raw) == GYRE_IB_GID_ZERO)
            continue;
        read_row(machine, port, &row);
        (*rows_out)[n_rows++] = row;
    }
    return n_rows;
}
