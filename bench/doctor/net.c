/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces and addresses of a root folder.
 */
#include "bench/doctor/machine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* linux/if.h and linux/if_arp.h */
#define FLAG_UP       0x1
#define FLAG_LOOPBACK 0x8

static const char *path_of(const char *name, const char *file)
{
    return bench_text("/sys/class/net/%.15s/%s", name, file);
}

static int64_t number_of(const char *name, const char *file)
{
    int64_t number = 0;
    const enum bench_read result = bench_read_number(path_of(name, file), &number);
    return result == BENCH_READ_OK && number > 0 ? number : 0; /* a speed of -1: down or virtual */
}

static void read_device(const char *name, struct bench_netdev *device)
{
    char state[32] = "", vlan[1024];
    int64_t flags = 0;
    snprintf(device->name, sizeof(device->name), "%.15s", name);
    (void)bench_read_number(path_of(name, "flags"), &flags);
    (void)bench_read_text(path_of(name, "operstate"), state, sizeof(state));
    (void)bench_read_text(path_of(name, "duplex"), device->duplex, sizeof(device->duplex));
    (void)bench_read_link(path_of(name, "master"), device->master, sizeof(device->master));
    (void)bench_read_link(path_of(name, "device"), device->bus_id, sizeof(device->bus_id));
    device->is_up = (flags & FLAG_UP) != 0;
    /* Loopback and tunnels have no carrier and are "unknown" (RFC 2863). */
    device->has_link = device->is_up && (strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0);
    device->index = number_of(name, "ifindex");
    device->mtu = number_of(name, "mtu");
    device->mbit_per_s = number_of(name, "speed");
    const char *kind = "virtual";
    if ((flags & FLAG_LOOPBACK) != 0) {
        kind = "loopback";
    } else if (bench_exists(path_of(name, "bonding"))) {
        kind = "bond";
    } else if (bench_exists(path_of(name, "bridge"))) {
        kind = "bridge";
    } else if (bench_read_text(bench_text("/proc/net/vlan/%s", device->name), vlan, sizeof(vlan)) ==
               BENCH_READ_OK) {
        const char *line = strstr(vlan, "Device: "); /* names the interface below */
        if (line != NULL)
            sscanf(line, "Device: %15s", device->parent);
        kind = "vlan";
    } else if (bench_exists(path_of(name, "device"))) {
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
        if (bench_exists(path_of(names[i], "flags")))
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
