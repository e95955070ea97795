/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

#define FAST_MBIT_PER_S 25000 /* above it packets of 1500 bytes cost too much processor time */
#define GIVE_ADDRESS    "ip link set dev NETDEV up; ip addr add A.B.C.D/24 dev NETDEV"

/* "10.0.0.1/24". */
static const char *host_text(const struct gyre_sock_interface *interface)
{
    char host[64] = "?";
    (void)inet_ntop(interface->address.family, interface->address.bytes, host, sizeof(host));
    return bench_text("%s/%d", host, interface->prefix_bits);
}

static void describe(const struct bench_machine *machine,
                     const struct gyre_sock_interface *interface, char *text, size_t text_bytes)
{
    const struct bench_netdev *device = bench_net_find(machine, interface->name);
    gyre_text_append(text, text_bytes, "%s %s", interface->name, host_text(interface));
    if (device == NULL)
        return;
    gyre_text_append(text, text_bytes, ", %s", device->kind);
    if (device->parent[0] != '\0')
        gyre_text_append(text, text_bytes, " on %s", device->parent);
    if (device->mbit_per_s > 0)
        gyre_text_append(text, text_bytes, ", %.4g Gbit/s", (double)device->mbit_per_s / 1000);
    gyre_text_append(text, text_bytes, ", MTU %" PRId64 "%s", device->mtu,
                     !device->is_up      ? ", down"
                     : !device->has_link ? ", up but without a link"
                                         : "");
}

void bench_check_net_interfaces(struct bench_doctor *doctor)
{
    static const char *const prefixes[] = {"docker", "virbr", "veth", "br-"};
    const struct bench_machine *machine = &doctor->machine;
    const struct gyre_sock_interface *first = machine->chosen;
    const char *rule = gyre_param_text(&doctor->params, GYRE_PARAM_SOCKET_IFNAME);
    const char *source =
        rule[0] != '\0' ? gyre_param_source(&doctor->params, GYRE_PARAM_SOCKET_IFNAME) : "by rules";
    const char *real = bench_net_real(machine);
    const char *fix = bench_fix_of_port(GIVE_ADDRESS, NULL, real);
    char list[1300];
    list[0] = '\0';
    for (int i = 0; i < machine->n_chosen; i++) {
        gyre_text_append(list, sizeof(list), "%s%d. ", i > 0 ? "\n" : "", i + 1);
        describe(machine, &machine->chosen[i], list, sizeof(list));
    }
    for (int i = 0; i < machine->n_addresses; i++) {
        const struct gyre_sock_interface *entry = &machine->addresses[i];
        bool is_chosen = false;
        for (int k = 0; k < machine->n_chosen; k++)
            is_chosen =
                is_chosen || (strcmp(machine->chosen[k].name, entry->name) == 0 &&
                              gyre_sock_is_same_host(&machine->chosen[k].address, &entry->address));
        if (is_chosen)
            continue;
        gyre_text_append(list, sizeof(list), "%snot used: ", list[0] != '\0' ? "\n" : "");
        describe(machine, &machine->addresses[i], list, sizeof(list));
    }
    bool is_bridge = false; /* of containers */
    for (size_t i = 0; machine->n_chosen > 0 && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        is_bridge = is_bridge || strncmp(first->name, prefixes[i], strlen(prefixes[i])) == 0;
    if (machine->n_netdevs == 0)
        bench_say_unreadable(doctor, NULL, "/sys/class/net", BENCH_READ_ABSENT);
    else if (machine->net_status != GYRE_SUCCESS && rule[0] != '\0')
        bench_fail(doctor, NULL, "unset the variable, or name an interface of the list",
                   "%s=%s: %s", source, rule, machine->net_cause);
    else if (machine->net_status != GYRE_SUCCESS)
        bench_fail(doctor, NULL, fix, "%s", machine->net_cause);
    else if (first->is_loopback)
        bench_warn(doctor, NULL, fix,
                   "only loopback can be used: ranks on other hosts cannot reach this one\n%s",
                   list);
    else if (!first->is_running)
        bench_fail(doctor, first->name,
                   "plug in the cable, or name another interface in GYRE_SOCKET_IFNAME",
                   "the first choice (%s) has no link\n%s", source, list);
    else if (is_bridge) {
        for (int i = 0; i < machine->n_addresses; i++)
            if (strcmp(machine->addresses[i].name, real) == 0)
                fix = bench_text("export GYRE_SOCKET_IFNAME=%s", real);
        bench_warn(doctor, first->name, fix,
                   "the first choice (%s) is a bridge of containers or virtual machines, which "
                   "other hosts hardly reach\n%s",
                   source, list);
    } else
        bench_ok(doctor, first->name, "chosen %s\n%s", source, list);
}

void bench_check_net_ipv4(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    const char *routable = NULL;
    int n_four = 0, n_six = 0, n_link_local = 0;
    for (int i = 0; i < machine->n_addresses; i++) {
        const struct gyre_sock_address *address = &machine->addresses[i].address;
        if (machine->addresses[i].is_loopback || !machine->addresses[i].is_up)
            continue;
        /* RFC 3927: 169.254/16 is made up when no DHCP server answers. */
        const bool is_made_up =
            address->family == AF_INET && address->bytes[0] == 169 && address->bytes[1] == 254;
        n_link_local += is_made_up || gyre_sock_is_link_local(address);
        n_four += address->family == AF_INET && !is_made_up;
        if (address->family == AF_INET6 && !gyre_sock_is_link_local(address) && n_six++ == 0)
            routable = machine->addresses[i].name;
    }
    const bool is_six_meant =
        gyre_text_same(gyre_param_text(&doctor->params, GYRE_PARAM_SOCKET_FAMILY), "AF_INET6") &&
        (machine->n_used_ports == 0 ||
         gyre_text_same(gyre_param_text(&doctor->params, GYRE_PARAM_IB_ADDR_FAMILY), "AF_INET6"));
    if (n_four > 0 || (n_six > 0 && is_six_meant))
        bench_ok(doctor, NULL, "addresses: %d of IPv4, %d routable of IPv6", n_four, n_six);
    else if (n_six > 0)
        bench_warn(doctor, NULL,
                   bench_fix_of_port(
                       "ip addr add A.B.C.D/24 dev NETDEV, or set NCCL_SOCKET_FAMILY=AF_INET6 and, "
                       "for RoCE, NCCL_IB_ADDR_FAMILY=AF_INET6",
                       NULL, routable),
                   "no IPv4 address, %d of IPv6: gyre uses IPv6 by itself, but NCCL's rules look "
                   "for IPv4 GIDs first",
                   n_six);
    else
        bench_warn(
            doctor, NULL,
            bench_fix_of_port(
                "ip addr add A.B.C.D/24 dev NETDEV; look at the DHCP client: networkctl status",
                NULL, bench_net_real(machine)),
            "no address that other hosts can route to; %d of one link only", n_link_local);
}

void bench_check_net_link(struct bench_doctor *doctor)
{
    int n_good = 0;
    for (int i = 0; i < doctor->machine.n_netdevs; i++) {
        const struct bench_netdev *device = &doctor->machine.netdevs[i];
        if (!device->is_up || !bench_net_is_used(&doctor->params, &doctor->machine, device) ||
            (strcmp(device->kind, "physical") != 0 && strcmp(device->kind, "bond") != 0))
            continue;
        if (!device->has_link)
            bench_warn(doctor, device->name,
                       "plug in the cable and look at the switch's port; ip link set dev NETDEV "
                       "down if it is not used",
                       "/sys/class/net/%s/operstate: enabled, but without a link", device->name);
        else if (strcmp(device->duplex, "half") == 0)
            bench_warn(doctor, device->name,
                       "switch autonegotiation on at both ends: ethtool -s NETDEV autoneg on",
                       "/sys/class/net/%s/duplex: half", device->name);
        n_good += device->has_link;
    }
    if (!bench_said(doctor))
        bench_say(doctor, n_good > 0 ? BENCH_OK : BENCH_SKIPPED, NULL, NULL,
                  n_good > 0 ? "/sys/class/net/*/operstate: every enabled port has a link (%d)"
                             : "no enabled port of an adapter here (%d)",
                  n_good);
}

void bench_check_net_speed(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    const struct bench_netdev *first = bench_net_first(machine), *fastest = first;
    for (int i = 0; first != NULL && i < machine->n_chosen; i++) {
        const struct bench_netdev *device = bench_net_find(machine, machine->chosen[i].name);
        bool is_rail = false; /* RDMA carries its data, so TCP may be slower */
        BENCH_EACH_PORT(doctor, port)
        is_rail = is_rail || (device != NULL && port->is_active && !port->is_soft &&
                              strcmp(port->netdev, device->name) == 0);
        if (device != NULL && machine->chosen[i].is_running &&
            device->mbit_per_s > fastest->mbit_per_s && !is_rail)
            fastest = device;
    }
    if (first == NULL)
        bench_skip(doctor, "no interface but loopback is used");
    else if (first->mbit_per_s == 0)
        bench_say(doctor, BENCH_SKIPPED, first->name, NULL,
                  "/sys/class/net/%s/speed: the driver does not tell it", first->name);
    else if (fastest->mbit_per_s > first->mbit_per_s)
        bench_warn(doctor, first->name, bench_text("export GYRE_SOCKET_IFNAME=%s", fastest->name),
                   "/sys/class/net/*/speed: gyre's first choice has %.4g Gbit/s, but %s has %.4g",
                   (double)first->mbit_per_s / 1000, fastest->name,
                   (double)fastest->mbit_per_s / 1000);
    else
        bench_ok(doctor, first->name, "/sys/class/net/%s/speed: %.4g Gbit/s", first->name,
                 (double)first->mbit_per_s / 1000);
}

void bench_check_net_mtu(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    const struct bench_netdev *first = bench_net_first(machine);
    if (first == NULL) {
        bench_skip(doctor, "no interface but loopback is used");
        return;
    }
    /* Packets above the MTU of a lower interface are lost without an error. */
    for (int i = 0; i < machine->n_netdevs; i++) {
        const struct bench_netdev *below = &machine->netdevs[i];
        if ((strcmp(first->parent, below->name) == 0 || strcmp(below->master, first->name) == 0) &&
            below->mtu > 0 && below->mtu < first->mtu)
            bench_fail(doctor, first->name,
                       bench_text("ip link set dev %s mtu %" PRId64 ", and on its switch port",
                                  below->name, first->mtu),
                       "/sys/class/net/%s/mtu: %" PRId64 ", but %s below it has %" PRId64,
                       first->name, first->mtu, below->name, below->mtu);
    }
    if (first->mtu == 0)
        bench_say_unreadable(doctor, first->name, "/sys/class/net/*/mtu", BENCH_READ_BROKEN);
    else if (first->mtu < 1280) /* RFC 8200, section 5 */
        bench_fail(doctor, first->name, "ip link set dev NETDEV mtu 1500",
                   "/sys/class/net/%s/mtu: %" PRId64 "; IPv6 needs 1280", first->name, first->mtu);
    else if (first->mtu < 4096 && first->mbit_per_s >= FAST_MBIT_PER_S)
        bench_warn(doctor, first->name,
                   "ip link set dev NETDEV mtu 9000, likewise on every host and switch port of "
                   "this network",
                   "/sys/class/net/%s/mtu: %" PRId64
                   " at %.4g Gbit/s: small packets limit TCP, and RoCE on this port sends packets "
                   "of 1024 bytes",
                   first->name, first->mtu, (double)first->mbit_per_s / 1000);
    else if (!bench_said(doctor))
        bench_ok(doctor, first->name, "/sys/class/net/%s/mtu: %" PRId64, first->name, first->mtu);
}

void bench_check_net_bond(struct bench_doctor *doctor)
{
    for (int i = 0; i < doctor->machine.n_netdevs; i++) {
        const struct bench_netdev *device = &doctor->machine.netdevs[i];
        const char *name = device->name;
        if (strcmp(device->kind, "bond") != 0 ||
            !bench_net_is_used(&doctor->params, &doctor->machine, device))
            continue;
        const char *path = bench_text("/proc/net/bonding/%s", name);
        char mode[64] = "?", *text = bench_get(doctor, name, path);
        int n_ports = 0, n_up = 0;
        bool is_port = false;
        if (text == NULL)
            continue;
        BENCH_EACH_LINE(text, line)
        {
            sscanf(line, "Bonding Mode: %63[^\n]", mode);
            is_port = is_port || strncmp(line, "Slave Interface:", 16) == 0;
            n_ports += strncmp(line, "Slave Interface:", 16) == 0;
            n_up += is_port && strcmp(line, "MII Status: up") == 0;
        }
        if (n_ports == 0)
            bench_say_unreadable(doctor, name, path, BENCH_READ_BROKEN);
        else if (n_up < n_ports)
            bench_say(
                doctor, n_up == 0 ? BENCH_FAIL : BENCH_WARN, name,
                "look at the cables and switch ports that cat /proc/net/bonding/NETDEV calls down",
                "%s: %d of %d ports are up", path, n_up, n_ports);
        else
            bench_say(doctor, BENCH_OK, name, NULL,
                      "%s: %d ports are up, %s; one connection uses one port, GYRE_SOCKET_NSOCKS "
                      "opens several",
                      path, n_up, mode);
    }
}

void bench_check_net_ports(struct bench_doctor *doctor)
{
    static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range";
    char text[64];
    int low = 0, high = 0;
    const enum bench_read result = bench_read_text(path, text, sizeof(text));
    if (result != BENCH_READ_OK || sscanf(text, "%d %d", &low, &high) != 2 || low < 1 || high < low)
        bench_say_unreadable(doctor, NULL, path, result);
    else if (high - low < 1000)
        bench_warn(doctor, NULL, "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
                   "%s: %d to %d: too few ports for the connections of many ranks", path, low,
                   high);
    else
        bench_ok(doctor, NULL, "%s: %d to %d; a firewall between the hosts must let them through",
                 path, low, high);
}

static uint32_t subnet_of(const struct gyre_sock_interface *interface)
{
    uint32_t address;
    memcpy(&address, interface->address.bytes, sizeof(address));
    const unsigned bits = interface->prefix_bits;
    return ntohl(address) & (bits == 0 ? 0 : 0xffffffffU << (32 - bits));
}

static bool is_used(const struct bench_doctor *doctor, const struct gyre_sock_interface *address)
{
    const struct bench_netdev *device = bench_net_find(&doctor->machine, address->name);
    return device == NULL || bench_net_is_used(&doctor->params, &doctor->machine, device);
}

/* A host with two interfaces in one subnet sends through the first and answers address requests for
 * either on both. */
void bench_check_net_same_subnet(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    for (int i = 0; i < machine->n_addresses; i++)
        for (int j = i + 1; j < machine->n_addresses; j++) {
            const struct gyre_sock_interface *a = &machine->addresses[i],
                                             *b = &machine->addresses[j];
            if (a->address.family != AF_INET || b->address.family != AF_INET || a->is_loopback ||
                !a->is_running || !b->is_running || a->prefix_bits != b->prefix_bits ||
                a->prefix_bits > 30 || !is_used(doctor, a) || !is_used(doctor, b) ||
                strcmp(a->name, b->name) == 0 || subnet_of(a) != subnet_of(b))
                continue;
            bench_warn(
                doctor, b->name,
                "give each rail a subnet of its own; or sysctl -w net.ipv4.conf.all.arp_announce=2 "
                "net.ipv4.conf.all.arp_ignore=1 and a routing table a source address",
                "%s %s and %s %s are in one subnet: packets for both leave through one of them",
                a->name, host_text(a), b->name, host_text(b));
        }
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "no two interfaces share an IPv4 subnet");
}
