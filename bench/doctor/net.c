/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network interfaces and addresses of a root folder, and makes the library's choice among
 * them.
 */
#include "bench/doctor/machine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* linux/if.h and linux/if_arp.h */
#define FLAG_UP       0x1
#define FLAG_LOOPBACK 0x8

static const char *path_of(const char *name, const char *file, char *text_out)
{
    snprintf(text_out, 192, "/sys/class/net/%.15s/%.63s", name, file);
    return text_out;
}

static int64_t number_of(const char *root, const char *name, const char *file)
{
    char path[192];
    int64_t number = 0;
    /* A link that is down or virtual has the speed -1. */
    return bench_read_number(root, path_of(name, file, path), &number) == BENCH_READ_OK &&
                   number > 0
               ? number
               : 0;
}

/* "Device: eth0" of /proc/net/vlan/NAME is the interface below. */
static bool read_vlan(const char *root, struct bench_netdev *device)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/net/vlan/%s", device->name);
    if (bench_read_text(root, path, text, sizeof(text)) != BENCH_READ_OK)
        return false;
    const char *line = strstr(text, "Device: ");
    if (line != NULL)
        sscanf(line, "Device: %15s", device->parent);
    return true;
}

static void read_kind(const char *root, int64_t flags, struct bench_netdev *device)
{
    char path[192];
    const char *kind = "virtual";
    if ((flags & FLAG_LOOPBACK) != 0)
        kind = "loopback";
    else if (bench_exists(root, path_of(device->name, "bonding", path)))
        kind = "bond";
    else if (bench_exists(root, path_of(device->name, "bridge", path)))
        kind = "bridge";
    else if (read_vlan(root, device))
        kind = "vlan";
    else if (bench_exists(root, path_of(device->name, "device", path)))
        kind = "physical";
    snprintf(device->kind, sizeof(device->kind), "%s", kind);
}

static void read_device(const char *root, const char *name, struct bench_netdev *device)
{
    char path[192], state[32] = "";
    int64_t flags = 0;
    memset(device, 0, sizeof(*device));
    snprintf(device->name, sizeof(device->name), "%.15s", name);
    (void)bench_read_number(root, path_of(name, "flags", path), &flags);
    (void)bench_read_text(root, path_of(name, "operstate", path), state, sizeof(state));
    (void)bench_read_text(root, path_of(name, "duplex", path), device->duplex,
                          sizeof(device->duplex));
    (void)bench_read_link(root, path_of(name, "master", path), device->master,
                          sizeof(device->master));
    device->is_up = (flags & FLAG_UP) != 0;
    /* Loopback and tunnels have no carrier, and their state is "unknown" (RFC 2863). */
    device->has_link = device->is_up && (strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0);
    device->mtu = number_of(root, name, "mtu");
    device->mbit_per_s = number_of(root, name, "speed");
    (void)bench_read_link(root, path_of(name, "device", path), device->bus_id,
                          sizeof(device->bus_id));
    read_kind(root, flags, device);
}

static int compare_by_index(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* In the order of their index, as getifaddrs(). */
static bool read_devices(struct bench_machine *machine)
{
    char(*names)[BENCH_NAME_BYTES];
    const int n = bench_read_names(machine->root, "/sys/class/net", &names);
    int64_t(*order)[2] = calloc((size_t)n + 1, sizeof(*order));
    machine->netdevs = calloc((size_t)n + 1, sizeof(*machine->netdevs));
    const bool has_memory = order != NULL && machine->netdevs != NULL;
    for (int i = 0; has_memory && i < n; i++) {
        order[i][0] = number_of(machine->root, names[i], "ifindex");
        order[i][1] = i;
    }
    if (has_memory)
        qsort(order, (size_t)n, sizeof(order[0]), compare_by_index);
    for (int i = 0; has_memory && i < n; i++) {
        char path[192];
        const char *name = names[order[i][1]];
        /* A file of the folder, such as bonding_masters, is no interface. */
        if (bench_exists(machine->root, path_of(name, "flags", path)))
            read_device(machine->root, name, &machine->netdevs[machine->n_netdevs++]);
    }
    free(order);
    free(names);
    return has_memory;
}

/* ---- addresses of proc/net ----------------------------------------------------------------- */

static struct gyre_sock_interface *add_address(struct bench_machine *machine, const char *name,
                                               int family, const void *bytes, int prefix_bits)
{
    const struct bench_netdev *device = bench_net_find(machine, name);
    void *more = device == NULL ? NULL
                                : bench_grow(machine->addresses, machine->n_addresses,
                                             sizeof(*machine->addresses));
    if (more == NULL)
        return NULL;
    machine->addresses = more;
    struct gyre_sock_interface *entry = &machine->addresses[machine->n_addresses++];
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->address.family = (uint16_t)family;
    memcpy(entry->address.bytes, bytes, family == AF_INET ? 4 : 16);
    entry->prefix_bits = (uint8_t)prefix_bits;
    entry->is_up = device->is_up;
    entry->is_running = device->has_link;
    entry->is_loopback = strcmp(device->kind, "loopback") == 0;
    return entry;
}

static bool has_ipv4(const struct bench_machine *machine, const char *name)
{
    for (int i = 0; i < machine->n_addresses; i++)
        if (strcmp(machine->addresses[i].name, name) == 0)
            return true;
    return false;
}

/* Without a gateway; address and mask in network byte order. */
struct route {
    char name[16];
    unsigned destination, mask;
};

static struct route *read_routes(const char *root, int *n_out)
{
    struct route *routes = NULL;
    char *text = NULL;
    *n_out = 0;
    if (bench_read_all(root, "/proc/net/route", &text) != BENCH_READ_OK)
        return NULL;
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        struct route route;
        unsigned gateway = 0;
        if (sscanf(line, "%15s %x %x %*x %*d %*d %*d %x", route.name, &route.destination, &gateway,
                   &route.mask) != 4 ||
            gateway != 0 || route.mask == 0)
            continue;
        void *more = bench_grow(routes, *n_out, sizeof(*routes));
        if (more == NULL)
            break;
        routes = more;
        routes[(*n_out)++] = route;
    }
    free(text);
    return routes;
}

/* The interface whose subnet holds the address; of two, the one without an address yet. Returns the
 * bits of the subnet; -1 = none. */
static int find_route(const struct bench_machine *machine, const struct route *routes, int n,
                      uint32_t address, char *name_out)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        const int bits = __builtin_popcount(routes[i].mask);
        if ((address & routes[i].mask) == routes[i].destination &&
            (bits > best ||
             (bits == best && has_ipv4(machine, name_out) && !has_ipv4(machine, routes[i].name)))) {
            best = bits;
            snprintf(name_out, 16, "%s", routes[i].name);
        }
    }
    return best;
}

static void add_ipv4(struct bench_machine *machine)
{
    char *trie = NULL, text[32] = "";
    struct in_addr last = {0};
    int n_routes = 0;
    if (bench_read_all(machine->root, "/proc/net/fib_trie", &trie) != BENCH_READ_OK)
        return;
    struct route *routes = read_routes(machine->root, &n_routes);
    char *rest = trie;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        char name[16] = "lo";
        bool is_known = false;
        const char *leaf = strstr(line, "|-- ");
        if (leaf != NULL)
            snprintf(text, sizeof(text), "%s", leaf + 4);
        if (strstr(line, "/32 host LOCAL") == NULL || inet_pton(AF_INET, text, &last) != 1)
            continue;
        for (int i = 0; i < machine->n_addresses; i++)
            is_known = is_known || memcmp(machine->addresses[i].address.bytes, &last, 4) == 0;
        const int bits = strncmp(text, "127.", 4) == 0
                             ? 8
                             : find_route(machine, routes, n_routes, last.s_addr, name);
        if (!is_known && bits >= 0)
            add_address(machine, name, AF_INET, &last, bits);
    }
    free(routes);
    free(trie);
}

static void add_ipv6(struct bench_machine *machine)
{
    char *text = NULL;
    if (bench_read_all(machine->root, "/proc/net/if_inet6", &text) != BENCH_READ_OK)
        return;
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        char hex[40], name[16];
        unsigned index = 0, prefix = 0;
        uint8_t bytes[16];
        bool is_hex = true;
        if (sscanf(line, "%32s %x %x %*x %*x %15s", hex, &index, &prefix, name) != 4 ||
            strlen(hex) != 32 || prefix > 128)
            continue;
        for (int i = 0; i < 16; i++) {
            unsigned byte = 0;
            is_hex = is_hex && sscanf(hex + 2 * i, "%2x", &byte) == 1;
            bytes[i] = (uint8_t)byte;
        }
        struct gyre_sock_interface *entry =
            is_hex ? add_address(machine, name, AF_INET6, bytes, (int)prefix) : NULL;
        if (entry != NULL && gyre_sock_is_link_local(&entry->address))
            entry->address.scope = index;
    }
    free(text);
}

static void sort_by_device(const struct bench_machine *machine, struct gyre_sock_interface *list,
                           int n)
{
    int n_sorted = 0;
    for (int k = 0; k < machine->n_netdevs; k++)
        for (int i = n_sorted; i < n; i++)
            if (strcmp(list[i].name, machine->netdevs[k].name) == 0) {
                const struct gyre_sock_interface moved = list[i];
                memmove(&list[n_sorted + 1], &list[n_sorted],
                        (size_t)(i - n_sorted) * sizeof(*list));
                list[n_sorted++] = moved;
            }
}

/* ---- all together -------------------------------------------------------------------------- */

bool bench_net_read(const struct gyre_params *params, struct bench_machine *machine)
{
    if (!read_devices(machine))
        return false;
    if (machine->root[0] == '\0') {
        machine->net_status = gyre_sock_interfaces(&machine->addresses, &machine->n_addresses);
    } else {
        add_ipv4(machine);
        const int n_ipv4 = machine->n_addresses;
        sort_by_device(machine, machine->addresses, n_ipv4);
        add_ipv6(machine);
        if (machine->n_addresses > n_ipv4)
            sort_by_device(machine, machine->addresses + n_ipv4, machine->n_addresses - n_ipv4);
    }
    machine->chosen = calloc((size_t)machine->n_addresses + 1, sizeof(*machine->chosen));
    if (machine->chosen == NULL)
        return false;
    const int64_t family = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY);
    if (machine->net_status == GYRE_SUCCESS)
        machine->net_status = gyre_sock_select(machine->addresses, machine->n_addresses,
                                               gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME),
                                               family == 0   ? AF_INET
                                               : family == 1 ? AF_INET6
                                                             : 0,
                                               machine->chosen, &machine->n_chosen);
    if (machine->net_status != GYRE_SUCCESS)
        snprintf(machine->net_cause, sizeof(machine->net_cause), "%s", gyre_cause());
    return true;
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

static bool is_taken(const struct gyre_params *params, const struct bench_machine *machine,
                     const struct bench_netdev *device)
{
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
    return is_taken(params, machine, device);
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

const char *bench_net_host_text(const struct gyre_sock_interface *interface, char *text_out,
                                size_t text_bytes)
{
    char host[64];
    if (inet_ntop(interface->address.family, interface->address.bytes, host, sizeof(host)) == NULL)
        snprintf(host, sizeof(host), "?");
    snprintf(text_out, text_bytes, "%s/%d", host, interface->prefix_bits);
    return text_out;
}
