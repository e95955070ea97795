/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network interfaces of a root folder.
 */
#include "bench/doctor/net.h"

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

/* "Device: eth0" of /proc/net/vlan/NAME is the interface below a VLAN. */
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
    read_kind(root, flags, device);
}

static int compare_by_index(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Interfaces in the order of their index, which is the order of getifaddrs(). */
static void read_devices(const char *root, struct bench_net *net)
{
    char(*names)[BENCH_NAME_BYTES];
    int64_t order[BENCH_MAX_NETDEVS][2];
    int n = bench_read_names(root, "/sys/class/net", &names);
    if (n > BENCH_MAX_NETDEVS)
        n = BENCH_MAX_NETDEVS;
    for (int i = 0; i < n; i++) {
        order[i][0] = number_of(root, names[i], "ifindex");
        order[i][1] = i;
    }
    qsort(order, (size_t)n, sizeof(order[0]), compare_by_index);
    for (int i = 0; i < n; i++) {
        char path[192];
        /* A file of the folder, such as bonding_masters, is no interface. */
        if (bench_exists(root, path_of(names[order[i][1]], "flags", path)))
            read_device(root, names[order[i][1]], &net->devices[net->n_devices++]);
    }
    free(names);
}

/* ---- addresses of proc/net ----------------------------------------------------------------- */

static bool add_address(const struct bench_net *net, const char *name, int family,
                        const void *bytes, int prefix_bits,
                        struct gyre_sock_interface *addresses_out, int *n)
{
    const struct bench_netdev *device = bench_net_find(net, name);
    if (*n == BENCH_MAX_ADDRESSES || device == NULL)
        return false;
    struct gyre_sock_interface *entry = &addresses_out[(*n)++];
    memset(entry, 0, sizeof(*entry));
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->address.family = (uint16_t)family;
    memcpy(entry->address.bytes, bytes, family == AF_INET ? 4 : 16);
    entry->prefix_bits = (uint8_t)prefix_bits;
    entry->is_up = device->is_up;
    entry->is_running = device->has_link;
    entry->is_loopback = strcmp(device->kind, "loopback") == 0;
    return true;
}

static bool has_ipv4(const struct gyre_sock_interface *addresses, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(addresses[i].name, name) == 0)
            return true;
    return false;
}

/* Find the interface whose subnet holds the address, among the routes without a gateway in
 * proc/net/route. Address and routes are in network byte order. If two interfaces are in one
 * subnet, the result is the interface that has no address yet. */
static int find_route(char *routes, uint32_t address, const struct gyre_sock_interface *addresses,
                      int n, char *name_out)
{
    int best = -1;
    for (char *line; (line = bench_next_line(&routes)) != NULL;) {
        char name[16];
        unsigned destination = 0, gateway = 0, mask = 0;
        if (sscanf(line, "%15s %x %x %*x %*d %*d %*d %x", name, &destination, &gateway, &mask) !=
                4 ||
            gateway != 0 || mask == 0 || (address & mask) != destination)
            continue;
        const int bits = __builtin_popcount(mask);
        if (bits > best ||
            (bits == best && has_ipv4(addresses, n, name_out) && !has_ipv4(addresses, n, name))) {
            best = bits;
            snprintf(name_out, 16, "%s", name);
        }
    }
    return best;
}

/* Adds each address that proc/net/fib_trie lists as "/32 host LOCAL", once. */
static void add_ipv4(const char *root, const struct bench_net *net,
                     struct gyre_sock_interface *addresses_out, int *n)
{
    char *trie = NULL, *routes = NULL;
    struct in_addr last = {0};
    char text[32] = "";
    if (bench_read_all(root, "/proc/net/fib_trie", &trie) == BENCH_READ_OK) {
        char *rest = trie;
        for (char *line; (line = bench_next_line(&rest)) != NULL;) {
            char name[16] = "lo";
            bool is_known = false;
            const char *leaf = strstr(line, "|-- ");
            if (leaf != NULL)
                snprintf(text, sizeof(text), "%s", leaf + 4);
            if (strstr(line, "/32 host LOCAL") == NULL || inet_pton(AF_INET, text, &last) != 1)
                continue;
            for (int i = 0; i < *n; i++)
                is_known = is_known || memcmp(addresses_out[i].address.bytes, &last, 4) == 0;
            int bits = 8;
            if (text[0] != '1' || strncmp(text, "127.", 4) != 0) {
                free(routes);
                bits = bench_read_all(root, "/proc/net/route", &routes) == BENCH_READ_OK
                           ? find_route(routes, last.s_addr, addresses_out, *n, name)
                           : -1;
            }
            if (!is_known && bits >= 0)
                add_address(net, name, AF_INET, &last, bits, addresses_out, n);
        }
    }
    free(routes);
    free(trie);
}

static void add_ipv6(const char *root, const struct bench_net *net,
                     struct gyre_sock_interface *addresses_out, int *n)
{
    char *text = NULL;
    if (bench_read_all(root, "/proc/net/if_inet6", &text) != BENCH_READ_OK)
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
        if (is_hex && add_address(net, name, AF_INET6, bytes, (int)prefix, addresses_out, n) &&
            gyre_sock_is_link_local(&addresses_out[*n - 1].address))
            addresses_out[*n - 1].address.scope = index;
    }
    free(text);
}

/* Sorts addresses of one family by the order of their interfaces, as getifaddrs() lists them. */
static void sort_by_device(const struct bench_net *net, struct gyre_sock_interface *list, int n)
{
    int n_sorted = 0;
    for (int d = 0; d < net->n_devices; d++)
        for (int i = n_sorted; i < n; i++)
            if (strcmp(list[i].name, net->devices[d].name) == 0) {
                const struct gyre_sock_interface moved = list[i];
                memmove(&list[n_sorted + 1], &list[n_sorted],
                        (size_t)(i - n_sorted) * sizeof(*list));
                list[n_sorted++] = moved;
            }
}

int bench_net_addresses_of_proc(const char *root, const struct bench_net *net,
                                struct gyre_sock_interface *addresses_out)
{
    int n = 0;
    add_ipv4(root, net, addresses_out, &n);
    sort_by_device(net, addresses_out, n);
    const int n_ipv4 = n;
    add_ipv6(root, net, addresses_out, &n);
    sort_by_device(net, addresses_out + n_ipv4, n - n_ipv4);
    return n;
}

/* ---- all together -------------------------------------------------------------------------- */

static gyre_status read_own_addresses(struct bench_net *net)
{
    struct gyre_sock_interface *all;
    int n = 0;
    GYRE_TRY(gyre_sock_interfaces(&all, &n));
    net->n_addresses = n < BENCH_MAX_ADDRESSES ? n : BENCH_MAX_ADDRESSES;
    memcpy(net->addresses, all, (size_t)net->n_addresses * sizeof(*all));
    free(all);
    return GYRE_SUCCESS;
}

struct bench_net *bench_net_read(const struct bench_doctor *doctor)
{
    struct bench_net *net = calloc(1, sizeof(*net));
    if (net == NULL)
        return NULL;
    read_devices(doctor->root, net);
    if (doctor->root[0] != '\0')
        net->n_addresses = bench_net_addresses_of_proc(doctor->root, net, net->addresses);
    else
        net->status = read_own_addresses(net);
    const int64_t family = gyre_param_number(&doctor->params, GYRE_PARAM_SOCKET_FAMILY);
    if (net->status == GYRE_SUCCESS)
        net->status = gyre_sock_select(net->addresses, net->n_addresses,
                                       gyre_param_text(&doctor->params, GYRE_PARAM_SOCKET_IFNAME),
                                       family == 0   ? AF_INET
                                       : family == 1 ? AF_INET6
                                                     : 0,
                                       net->chosen, &net->n_chosen);
    if (net->status != GYRE_SUCCESS)
        snprintf(net->cause, sizeof(net->cause), "%s", gyre_cause());
    return net;
}

const struct bench_netdev *bench_net_find(const struct bench_net *net, const char *name)
{
    for (int i = 0; i < net->n_devices; i++)
        if (strcmp(net->devices[i].name, name) == 0)
            return &net->devices[i];
    return NULL;
}

const struct bench_netdev *bench_net_first(const struct bench_net *net)
{
    return net->n_chosen > 0 && !net->chosen[0].is_loopback
               ? bench_net_find(net, net->chosen[0].name)
               : NULL;
}

const char *bench_net_real(const struct bench_net *net)
{
    const struct bench_netdev *best = NULL;
    for (int i = 0; i < net->n_devices; i++) {
        const struct bench_netdev *device = &net->devices[i];
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
