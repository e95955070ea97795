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

/* linux/if.h and linux/if_arp.h */
#define FLAG_UP       0x1
#define FLAG_LOOPBACK 0x8

static const char *net_path(const char *name, const char *file)
{
    return bench_text("/sys/class/net/%.15s/%s", name, file);
}

static int64_t number_of(const char *name, const char *file)
{
    int64_t number = 0;
    const enum bench_read result = bench_read_number(net_path(name, file), &number);
    return result == BENCH_READ_OK && number > 0 ? number : 0; /* a speed of -1: down or virtual */
}

static void read_device(const char *name, struct bench_netdev *device)
{
    char state[32] = "", vlan[1024];
    int64_t flags = 0;
    snprintf(device->name, sizeof(device->name), "%.15s", name);
    (void)bench_read_number(net_path(name, "flags"), &flags);
    (void)bench_read_text(net_path(name, "operstate"), state, sizeof(state));
    (void)bench_read_text(net_path(name, "duplex"), device->duplex, sizeof(device->duplex));
    (void)bench_read_link(net_path(name, "master"), device->master, sizeof(device->master));
    (void)bench_read_link(net_path(name, "device"), device->bus_id, sizeof(device->bus_id));
    device->is_up = (flags & FLAG_UP) != 0;
    /* Loopback and tunnels have no carrier and are "unknown" (RFC 2863). */
    device->has_link = device->is_up && (strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0);
    device->index = number_of(name, "ifindex");
    device->mtu = number_of(name, "mtu");
    device->mbit_per_s = number_of(name, "speed");
    const char *kind = "virtual";
    if ((flags & FLAG_LOOPBACK) != 0) {
        kind = "loopback";
    } else if (bench_exists(net_path(name, "bonding"))) {
        kind = "bond";
    } else if (bench_exists(net_path(name, "bridge"))) {
        kind = "bridge";
    } else if (bench_read_text(bench_text("/proc/net/vlan/%s", device->name), vlan, sizeof(vlan)) ==
               BENCH_READ_OK) {
        const char *line = strstr(vlan, "Device: "); /* names the interface below */
        if (line != NULL)
            sscanf(line, "Device: %15s", device->parent);
        kind = "vlan";
    } else if (bench_exists(net_path(name, "device"))) {
        kind = "physical";
    }
    snprintf(device->kind, sizeof(device->kind), "%s", kind);
}

static int compare_by_index(const void *a, const void *b)
{
    const struct bench_netdev *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* "2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0". */
static void add_address(struct bench_machine *machine, const char *line, int family,
                        const struct bench_netdev *device)
{
    char name[16], host[64], kind[8];
    int index = 0, bits = 0;
    struct gyre_sock_interface entry = {.address.family = (uint16_t)family,
                                        .is_up = device->is_up,
                                        .is_running = device->has_link,
                                        .is_loopback = strcmp(device->kind, "loopback") == 0};
    if (sscanf(line, "%d: %15s %7s %63[^/]/%d", &index, name, kind, host, &bits) != 5 ||
        strcmp(kind, family == AF_INET ? "inet" : "inet6") != 0 ||
        strcmp(name, device->name) != 0 || inet_pton(family, host, entry.address.bytes) != 1)
        return;
    memcpy(entry.name, name, sizeof(entry.name));
    entry.prefix_bits = (uint8_t)bits;
    if (gyre_sock_is_link_local(&entry.address))
        entry.address.scope = (uint32_t)index;
    machine->addresses =
        bench_grow(machine->addresses, machine->n_addresses, sizeof(*machine->addresses));
    machine->addresses[machine->n_addresses++] = entry;
}

void bench_net_read(const struct gyre_params *params, struct bench_machine *machine)
{
    static const int families[] = {AF_INET, AF_INET6};
    char *text = NULL;
    char(*names)[BENCH_NAME_BYTES];
    const int n = bench_read_names("/sys/class/net", &names);
    machine->netdevs = bench_keep((size_t)n, sizeof(*machine->netdevs));
    for (int i = 0; i < n; i++)
        /* bonding_masters and the like are no interfaces. */
        if (bench_exists(net_path(names[i], "flags")))
            read_device(names[i], &machine->netdevs[machine->n_netdevs++]);
    qsort(machine->netdevs, (size_t)machine->n_netdevs, sizeof(*machine->netdevs),
          compare_by_index);
    if (bench_root[0] == '\0')
        machine->net_status = gyre_sock_interfaces(&machine->addresses, &machine->n_addresses);
    else
        (void)bench_read_program("ip -o addr show", &text);
    for (int i = 0; text != NULL && i < 2 * machine->n_netdevs; i++)
        for (const char *line = text; *line != '\0'; line += *line == '\n') {
            add_address(machine, line, families[i / machine->n_netdevs],
                        &machine->netdevs[i % machine->n_netdevs]);
            line += strcspn(line, "\n");
        }
    machine->chosen = bench_keep((size_t)machine->n_addresses, sizeof(*machine->chosen));
    const int64_t family = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY);
    if (machine->net_status == GYRE_SUCCESS)
        machine->net_status = gyre_sock_select(machine->addresses, machine->n_addresses,
                                               gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME),
                                               family == 0 || family == 1 ? families[family] : 0,
                                               machine->chosen, &machine->n_chosen);
    if (machine->net_status != GYRE_SUCCESS)
        snprintf(machine->net_cause, sizeof(machine->net_cause), "%s", gyre_cause());
}

const struct bench_netdev *bench_net_find(const struct bench_machine *machine, const char *name)
{
    for (int i = 0; i < machine->n_netdevs; i++)
        if (strcmp(machine->netdevs[i].name, name) == 0)
            return &machine->netdevs[i];
    return NULL;
}

const struct bench_netdev *bench_net_first(const struct bench_machine *machine)
{
    return machine->n_chosen > 0 && !machine->chosen[0].is_loopback
               ? bench_net_find(machine, machine->chosen[0].name)
               : NULL;
}

bool bench_net_is_used(const struct gyre_params *params, const struct bench_machine *machine,
                       const struct bench_netdev *device)
{
    for (int i = 0; i < machine->n_netdevs; i++) {
        const struct bench_netdev *above = &machine->netdevs[i];
        const bool lies_on_it =
            strcmp(above->parent, device->name) == 0 || strcmp(device->master, above->name) == 0;
        if (above != device && lies_on_it && bench_net_is_used(params, machine, above))
            return true;
    }
    const struct bench_netdev *first = bench_net_first(machine);
    bool is_left_out = false;
    for (int i = 0; i < machine->n_ports; i++)
        if (strcmp(machine->ports[i].netdev, device->name) == 0) {
            if (machine->ports[i].why_unused[0] == '\0')
                return true;
            is_left_out = true;
        }
    if (first != NULL && strcmp(first->name, device->name) == 0)
        return true;
    if (gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME)[0] == '\0')
        return !is_left_out;
    for (int i = 0; i < machine->n_chosen; i++)
        if (strcmp(machine->chosen[i].name, device->name) == 0)
            return true;
    return false;
}

const char *bench_net_real(const struct bench_machine *machine)
{
    const struct bench_netdev *best = NULL;
    for (int i = 0; i < machine->n_netdevs; i++) {
        const struct bench_netdev *device = &machine->netdevs[i];
        const bool is_real = (strcmp(device->kind, "physical") == 0 && device->master[0] == '\0') ||
                             strcmp(device->kind, "bond") == 0;
        if (is_real &&
            (best == NULL || device->is_up + device->has_link > best->is_up + best->has_link))
            best = device;
    }
    return best != NULL ? best->name : "";
}

static const char *device_path(const char *device, const char *file)
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
        const int n = bench_read_names(device_path(device, "ports"), &ports);
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
            (void)bench_read_text(device_path(device, "fw_ver"), port->firmware,
                                  sizeof(port->firmware));
            (void)bench_read_text(device_path(device, "board_id"), port->board,
                                  sizeof(port->board));
            port->gbit_per_s = gyre_text_to_double(port->rate, &rest);
            (void)sscanf(rest, " Gb/sec (%d%1[X]", &port->width, word);
            if (bench_read_link(device_path(device, "device"), port->bus_id,
                                sizeof(port->bus_id)) != BENCH_READ_OK ||
                strchr(port->bus_id, ':') == NULL)
                port->bus_id[0] = '\0';
            port->is_soft = port->bus_id[0] == '\0' || bench_exists(device_path(device, "parent"));
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
