/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the network: the interfaces that gyre uses, and settings that slow them down.
 */
#include "bench/doctor/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAST_MBIT_PER_S 25000 /* at this rate packets of 1500 bytes cost processors too much */

/* ---- net.interfaces ------------------------------------------------------------------------ */

/* Describe an interface for the list of evidence. */
static void describe(const struct bench_net *net, const struct gyre_sock_interface *interface,
                     char *text_out, size_t text_bytes)
{
    char host[80];
    const struct bench_netdev *device = bench_net_find(net, interface->name);
    size_t used = (size_t)snprintf(text_out, text_bytes, "%s %s", interface->name,
                                   bench_net_host_text(interface, host, sizeof(host)));
    if (device == NULL || used >= text_bytes)
        return;
    used += (size_t)snprintf(text_out + used, text_bytes - used, ", %s", device->kind);
    if (device->parent[0] != '\0' && used < text_bytes)
        used += (size_t)snprintf(text_out + used, text_bytes - used, " on %s", device->parent);
    if (device->mbit_per_s > 0 && used < text_bytes)
        used += (size_t)snprintf(text_out + used, text_bytes - used, ", %.4g Gbit/s",
                                 (double)device->mbit_per_s / 1000);
    if (used < text_bytes)
        snprintf(text_out + used, text_bytes - used, ", MTU %" PRId64 "%s", device->mtu,
                 !device->is_up      ? ", down"
                 : !device->has_link ? ", up but without a link"
                                     : "");
}

static bool is_chosen(const struct bench_net *net, const struct gyre_sock_interface *interface)
{
    for (int i = 0; i < net->n_chosen; i++)
        if (strcmp(net->chosen[i].name, interface->name) == 0 &&
            gyre_sock_is_same_host(&net->chosen[i].address, &interface->address))
            return true;
    return false;
}

/* List the chosen addresses in their order, and the addresses that were left out. */
static void list_choice(const struct bench_net *net, char *text_out, size_t text_bytes)
{
    char one[160];
    size_t used = 0;
    text_out[0] = '\0';
    for (int i = 0; i < net->n_chosen && used < text_bytes; i++) {
        describe(net, &net->chosen[i], one, sizeof(one));
        used += (size_t)snprintf(text_out + used, text_bytes - used, "%s%d. %s", i > 0 ? "\n" : "",
                                 i + 1, one);
    }
    for (int i = 0; i < net->n_addresses && used < text_bytes; i++) {
        if (is_chosen(net, &net->addresses[i]))
            continue;
        describe(net, &net->addresses[i], one, sizeof(one));
        used += (size_t)snprintf(text_out + used, text_bytes - used, "%snot used: %s",
                                 used > 0 ? "\n" : "", one);
    }
}

static bool is_container_bridge(const char *name)
{
    static const char *const prefixes[] = {"docker", "virbr", "veth", "br-"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* The first choice is a bridge that other hosts hardly reach. */
static const char *fix_of_bridge(const struct bench_net *net, char *text_out)
{
    const char *real = bench_net_real(net);
    for (int i = 0; i < net->n_addresses; i++)
        if (strcmp(net->addresses[i].name, real) == 0)
            return bench_fix_of_interface("export GYRE_SOCKET_IFNAME=NETDEV", real, text_out);
    return bench_fix_of_interface("ip link set dev NETDEV up; ip addr add A.B.C.D/24 dev NETDEV",
                                  real, text_out);
}

void bench_check_net_interfaces(struct bench_doctor *doctor)
{
    char list[1300], fix[BENCH_FIX_BYTES];
    struct bench_net *net = bench_net_read(doctor);
    if (net == NULL)
        return;
    const char *rule = gyre_param_text(&doctor->params, GYRE_PARAM_SOCKET_IFNAME);
    const char *source =
        rule[0] != '\0' ? gyre_param_source(&doctor->params, GYRE_PARAM_SOCKET_IFNAME) : "by rules";
    list_choice(net, list, sizeof(list));
    if (net->n_devices == 0)
        bench_say_unreadable(doctor, NULL, "/sys/class/net", BENCH_READ_ABSENT);
    else if (net->status != GYRE_SUCCESS && rule[0] != '\0')
        bench_say(doctor, BENCH_FAIL, NULL, "unset the variable, or name an interface of the list",
                  "%s=%s: %s", source, rule, net->cause);
    else if (net->status != GYRE_SUCCESS)
        bench_say(
            doctor, BENCH_FAIL, NULL,
            bench_fix_of_interface("ip link set dev NETDEV up; ip addr add A.B.C.D/24 dev NETDEV",
                                   bench_net_real(net), fix),
            "%s", net->cause);
    else if (net->chosen[0].is_loopback)
        bench_say(
            doctor, BENCH_WARN, NULL,
            bench_fix_of_interface("ip link set dev NETDEV up; ip addr add A.B.C.D/24 dev NETDEV",
                                   bench_net_real(net), fix),
            "only loopback can be used: ranks on other hosts cannot reach this one\n%s", list);
    else if (!net->chosen[0].is_running)
        bench_say(doctor, BENCH_FAIL, net->chosen[0].name,
                  "plug in the cable, or name another "
                  "interface in GYRE_SOCKET_IFNAME",
                  "the first choice (%s) has no link\n%s", source, list);
    else if (is_container_bridge(net->chosen[0].name))
        bench_say(
            doctor, BENCH_WARN, net->chosen[0].name, fix_of_bridge(net, fix),
            "the first choice (%s) is a bridge of containers or virtual machines, which other "
            "hosts hardly reach\n%s",
            source, list);
    else
        bench_say(doctor, BENCH_OK, net->chosen[0].name, NULL, "chosen %s\n%s", source, list);
    free(net);
}

/* ---- net.ipv4 ------------------------------------------------------------------------------ */

void bench_check_net_ipv4(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    const char *routable = NULL; /* the interface of the first routable address of IPv6 */
    char fix[BENCH_FIX_BYTES];
    int n_four = 0, n_six = 0, n_link_local = 0;
    if (net == NULL)
        return;
    for (int i = 0; i < net->n_addresses; i++) {
        const struct gyre_sock_address *address = &net->addresses[i].address;
        if (net->addresses[i].is_loopback || !net->addresses[i].is_up)
            continue;
        /* RFC 3927: an address of 169.254/16 was made up, because no DHCP server answered */
        const bool is_made_up =
            address->family == AF_INET && address->bytes[0] == 169 && address->bytes[1] == 254;
        n_link_local += is_made_up || gyre_sock_is_link_local(address);
        n_four += address->family == AF_INET && !is_made_up;
        if (address->family == AF_INET6 && !gyre_sock_is_link_local(address) && n_six++ == 0)
            routable = net->addresses[i].name;
    }
    if (n_four > 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "addresses: %d of IPv4, %d routable of IPv6",
                  n_four, n_six);
    else if (n_six > 0)
        bench_say(
            doctor, BENCH_WARN, NULL,
            bench_fix_of_interface(
                "ip addr add A.B.C.D/24 dev NETDEV, or set "
                "NCCL_SOCKET_FAMILY=AF_INET6 and, for RoCE, NCCL_IB_ADDR_FAMILY=AF_INET6",
                routable, fix),
            "no IPv4 address, %d of IPv6: gyre uses IPv6 by itself, but NCCL's rules look for "
            "IPv4 GIDs first",
            n_six);
    else
        bench_say(doctor, BENCH_WARN, NULL,
                  bench_fix_of_interface("ip addr add A.B.C.D/24 dev NETDEV; look at the DHCP "
                                         "client: networkctl status",
                                         bench_net_real(net), fix),
                  "no address that other hosts can route to; %d of one link only", n_link_local);
    free(net);
}

/* ---- net.link, net.speed ------------------------------------------------------------------- */

void bench_check_net_link(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    char fix[BENCH_FIX_BYTES];
    int n_good = 0;
    if (net == NULL)
        return;
    for (int i = 0; i < net->n_devices; i++) {
        const struct bench_netdev *device = &net->devices[i];
        const bool is_real =
            strcmp(device->kind, "physical") == 0 || strcmp(device->kind, "bond") == 0;
        if (!is_real || !device->is_up)
            continue;
        if (!device->has_link)
            bench_say(doctor, BENCH_WARN, device->name,
                      bench_fix_of_interface("plug in the cable and look at the switch's port; ip "
                                             "link set dev NETDEV down if it is not used",
                                             device->name, fix),
                      "/sys/class/net/%s/operstate: enabled, but without a link", device->name);
        else if (strcmp(device->duplex, "half") == 0)
            bench_say(doctor, BENCH_WARN, device->name,
                      bench_fix_of_interface("switch autonegotiation on at both ends: ethtool -s "
                                             "NETDEV autoneg on",
                                             device->name, fix),
                      "/sys/class/net/%s/duplex: half", device->name);
        n_good += device->has_link;
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, n_good > 0 ? BENCH_OK : BENCH_SKIPPED, NULL, NULL,
                  n_good > 0 ? "/sys/class/net/*/operstate: every enabled port has a link (%d)"
                             : "no enabled port of an adapter here (%d)",
                  n_good);
    free(net);
}

void bench_check_net_speed(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    const struct bench_netdev *first = net == NULL ? NULL : bench_net_first(net);
    const struct bench_netdev *fastest = first;
    for (int i = 0; first != NULL && i < net->n_chosen; i++) {
        const struct bench_netdev *device = bench_net_find(net, net->chosen[i].name);
        if (device != NULL && net->chosen[i].is_running && device->mbit_per_s > fastest->mbit_per_s)
            fastest = device;
    }
    if (first == NULL) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no interface but loopback is used");
    } else if (first->mbit_per_s == 0) {
        bench_say(doctor, BENCH_SKIPPED, first->name, NULL,
                  "/sys/class/net/%s/speed: the driver does not tell it", first->name);
    } else if (fastest->mbit_per_s > first->mbit_per_s) {
        char fix[128];
        snprintf(fix, sizeof(fix), "export GYRE_SOCKET_IFNAME=%s", fastest->name);
        bench_say(doctor, BENCH_WARN, first->name, fix,
                  "/sys/class/net/*/speed: gyre's first choice has %.4g Gbit/s, but %s has %.4g",
                  (double)first->mbit_per_s / 1000, fastest->name,
                  (double)fastest->mbit_per_s / 1000);
    } else {
        bench_say(doctor, BENCH_OK, first->name, NULL, "/sys/class/net/%s/speed: %.4g Gbit/s",
                  first->name, (double)first->mbit_per_s / 1000);
    }
    free(net);
}

/* ---- net.mtu ------------------------------------------------------------------------------- */

/* Check the interfaces below a device. Packets that are larger than the MTU of an interface below
 * are lost without an error. */
static void check_below(struct bench_doctor *doctor, const struct bench_net *net,
                        const struct bench_netdev *device)
{
    for (int i = 0; i < net->n_devices; i++) {
        const struct bench_netdev *below = &net->devices[i];
        char fix[BENCH_FIX_BYTES];
        const bool is_below =
            strcmp(device->parent, below->name) == 0 || strcmp(below->master, device->name) == 0;
        snprintf(fix, sizeof(fix), "ip link set dev %s mtu %" PRId64 ", and on its switch port",
                 below->name, device->mtu);
        if (is_below && below->mtu > 0 && below->mtu < device->mtu)
            bench_say(doctor, BENCH_FAIL, device->name, fix,
                      "/sys/class/net/%s/mtu: %" PRId64 ", but %s below it has %" PRId64,
                      device->name, device->mtu, below->name, below->mtu);
    }
}

void bench_check_net_mtu(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    const struct bench_netdev *first = net == NULL ? NULL : bench_net_first(net);
    char fix[BENCH_FIX_BYTES];
    if (first == NULL) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no interface but loopback is used");
        free(net);
        return;
    }
    bench_set_fact(doctor, BENCH_FACT_MTU, "%" PRId64, first->mtu);
    check_below(doctor, net, first);
    if (first->mtu == 0)
        bench_say_unreadable(doctor, first->name, "/sys/class/net/*/mtu", BENCH_READ_BROKEN);
    else if (first->mtu < 1280) /* RFC 8200, section 5 */
        bench_say(doctor, BENCH_FAIL, first->name,
                  bench_fix_of_interface("ip link set dev NETDEV mtu 1500", first->name, fix),
                  "/sys/class/net/%s/mtu: %" PRId64 "; IPv6 needs 1280", first->name, first->mtu);
    else if (first->mtu < 4096 && first->mbit_per_s >= FAST_MBIT_PER_S)
        bench_say(doctor, BENCH_WARN, first->name,
                  bench_fix_of_interface(
                      "ip link set dev NETDEV mtu 9000, likewise on every host and switch port "
                      "of this network",
                      first->name, fix),
                  "/sys/class/net/%s/mtu: %" PRId64 " at %.4g Gbit/s: small packets limit TCP, and "
                  "RoCE on this port sends packets of 1024 bytes",
                  first->name, first->mtu, (double)first->mbit_per_s / 1000);
    else if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, first->name, NULL, "/sys/class/net/%s/mtu: %" PRId64,
                  first->name, first->mtu);
    free(net);
}

/* ---- net.bond ------------------------------------------------------------------------------ */

/* Counts the ports of a bond that are up, as /proc/net/bonding/NAME lists them. */
static void check_bond(struct bench_doctor *doctor, const char *name)
{
    char path[64], mode[64] = "?", fix[BENCH_FIX_BYTES];
    char *text = NULL;
    int n_ports = 0, n_up = 0;
    bool is_port = false;
    snprintf(path, sizeof(path), "/proc/net/bonding/%s", name);
    const enum bench_read result = bench_read_all(doctor->root, path, &text);
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, name, path, result);
        return;
    }
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        sscanf(line, "Bonding Mode: %63[^\n]", mode);
        is_port = is_port || strncmp(line, "Slave Interface:", 16) == 0;
        n_ports += strncmp(line, "Slave Interface:", 16) == 0;
        n_up += is_port && strcmp(line, "MII Status: up") == 0;
    }
    free(text);
    if (n_ports == 0)
        bench_say_unreadable(doctor, name, path, BENCH_READ_BROKEN);
    else if (n_up < n_ports)
        bench_say(doctor, n_up == 0 ? BENCH_FAIL : BENCH_WARN, name,
                  bench_fix_of_interface("look at the cables and switch ports that cat "
                                         "/proc/net/bonding/NETDEV calls down",
                                         name, fix),
                  "%s: %d of %d ports are up", path, n_up, n_ports);
    else
        bench_say(doctor, BENCH_OK, name, NULL,
                  "%s: %d ports are up, %s; one connection uses one port, GYRE_SOCKET_NSOCKS "
                  "opens several",
                  path, n_up, mode);
}

void bench_check_net_bond(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    for (int i = 0; net != NULL && i < net->n_devices; i++)
        if (strcmp(net->devices[i].kind, "bond") == 0)
            check_bond(doctor, net->devices[i].name);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no bond here");
    free(net);
}
