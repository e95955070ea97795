/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sock.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Virtual links, bridges and tunnels, which other hosts reach only by luck. */
static const char *const virtual_prefixes[] = {
    "docker",  "virbr", "veth",      "br-",   "cni",  "flannel", "cali",   "kube-",
    "cilium",  "lxc",   "lxd",       "incus", "tun",  "tap",     "vnet",   "vmnet",
    "podman",  "weave", "antrea",    "ovs-",  "ovn-", "genev_",  "vxlan",  "dummy",
    "nerdctl", "wg",    "tailscale", "zt",    "gre",  "sit",     "ip6tnl", "nodelocal",
};

/* more than a parameter's words, or an interface's addresses */
#define MAX_LIST_WORDS 100000
#define MAX_PLACES     10000

#define MAX_DESCRIBED  3

#define MAX_ROUTES     4096

bool gyre_sock_is_link_local(const struct gyre_sock_address *address)
{
    return address->family == AF_INET6 && address->bytes[0] == 0xfe &&
           (address->bytes[1] & 0xc0) == 0x80;
}

bool gyre_sock_is_loopback(const struct gyre_sock_address *address)
{
    static const uint8_t six[16] = {[15] = 1};
    return address->family == AF_INET6 ? memcmp(address->bytes, six, sizeof(six)) == 0
                                       : address->bytes[0] == 127;
}

bool gyre_sock_is_same_host(const struct gyre_sock_address *a, const struct gyre_sock_address *b)
{
    return a->family == b->family &&
           memcmp(a->bytes, b->bytes, a->family == AF_INET6 ? 16 : 4) == 0;
}

static bool read_interface(const struct ifaddrs *entry, struct gyre_sock_interface *interface_out)
{
    if (entry->ifa_addr == NULL)
        return false;
    memset(interface_out, 0, sizeof(*interface_out));
    interface_out->address = gyre_sock_from_sockaddr(entry->ifa_addr);
    interface_out->address.port = 0;
    if (interface_out->address.family == 0)
        return false;
    snprintf(interface_out->name, sizeof(interface_out->name), "%s", entry->ifa_name);
    if (entry->ifa_netmask != NULL) {
        const struct gyre_sock_address mask = gyre_sock_from_sockaddr(entry->ifa_netmask);
        uint8_t n_bits = 0;
        while (n_bits < 128 && (mask.bytes[n_bits / 8] >> (7 - n_bits % 8) & 1) != 0)
            n_bits++;
        interface_out->prefix_bits = n_bits;
    }
    interface_out->is_up = (entry->ifa_flags & IFF_UP) != 0;
    interface_out->is_running = interface_out->is_up && (entry->ifa_flags & IFF_RUNNING) != 0;
    interface_out->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    return true;
}

gyre_status gyre_sock_interfaces(struct gyre_sock_interface **interfaces_out, int *n_out)
{
    struct ifaddrs *list = NULL;
    size_t n_entries = 1;
    int n = 0;
    if (getifaddrs(&list) != 0)
        return gyre_fail_errno(errno, "getifaddrs");
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next)
        n_entries++;
    struct gyre_sock_interface *interfaces = calloc(n_entries, sizeof(*interfaces));
    for (const struct ifaddrs *entry = list; entry != NULL && interfaces != NULL;
         entry = entry->ifa_next)
        n += read_interface(entry, &interfaces[n]);
    freeifaddrs(list);
    if (interfaces == NULL)
        return gyre_fail_errno(ENOMEM, "addresses of interfaces");
    static const struct {
        uint16_t family;
        const char *path;
    } tables[] = {{AF_INET, "/proc/net/route"}, {AF_INET6, "/proc/net/ipv6_route"}};
    for (size_t t = 0; t < GYRE_ARRAY_LENGTH(tables); t++) {
        char line[256];
        FILE *file = fopen(tables[t].path, "re");
        for (int i = 0; file != NULL && i < MAX_ROUTES && fgets(line, sizeof(line), file) != NULL;
             i++) {
            char name[17], destination[33];
            unsigned bits = 0, flags = 0;
            const int n_fields =
                tables[t].family == AF_INET
                    ? sscanf(line, "%16s %32[0-9A-F] %*x %x %*u %*u %*u %x", name, destination,
                             &flags, &bits)
                    : sscanf(line, "%32[0-9a-f] %x %*x %*x %*x %*x %*x %*x %x %16s", destination,
                             &bits, &flags, name);
            /* RTF_REJECT: a route to nowhere */
            if (n_fields != 4 || bits != 0 || (flags & (RTF_UP | RTF_REJECT)) != RTF_UP ||
                destination[strspn(destination, "0")] != '\0')
                continue;
            for (int k = 0; k < n; k++)
                if (interfaces[k].address.family == tables[t].family &&
                    strcmp(interfaces[k].name, name) == 0)
                    interfaces[k].has_default_route = true;
        }
        if (file != NULL)
            fclose(file);
    }
    *interfaces_out = interfaces;
    *n_out = n;
    return GYRE_SUCCESS;
}

static int kind_of(const struct gyre_sock_interface *interface)
{
    if (interface->is_loopback)
        return 5;
    if (!interface->is_running)
        return 4;
    if (strncmp(interface->name, "ib", strlen("ib")) == 0)
        return 0;
    if (interface->has_default_route)
        return 1;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(virtual_prefixes); i++) {
        if (strncmp(interface->name, virtual_prefixes[i], strlen(virtual_prefixes[i])) == 0)
            return 3;
    }
    return 2;
}

/* Lower is better; -1 = not taken. Second addresses come last in their kind, so that an interface
 * with hundreds crowds out no other. @place: among the interface's of the family. */
static int64_t score(const struct gyre_sock_interface *interface, const char *ifname, int family,
                     int place)
{
    ifname += strspn(ifname, " ");
    const bool inverted = ifname[0] == '^';
    const bool exact = ifname[inverted] == '=';
    const char *list = ifname + inverted + exact;
    const size_t n_name = strlen(interface->name);
    const char *word;
    size_t n_word;
    int position = -1, index = 0; /* of the first entry that takes the name; -1 = none */
    for (const char *at = list; position < 0 && gyre_list_next(&at, &word, &n_word); index++)
        if (strncmp(word, interface->name, n_word) == 0 && (!exact || n_word == n_name))
            position = index;
    if (!interface->is_up || (family != 0 && interface->address.family != family))
        return -1;
    if (list[0] != '\0' && (position >= 0) == inverted)
        return -1;
    const bool by_list = list[0] != '\0' && !inverted;
    const int order = !by_list                ? kind_of(interface)
                      : interface->is_running ? position
                                              : position + MAX_LIST_WORDS;
    const int address_order = gyre_sock_is_link_local(&interface->address) ? 2
                              : interface->address.family == AF_INET6      ? 1
                                                                           : 0;
    const int64_t kept_place = by_list ? 0 : place < MAX_PLACES ? place : MAX_PLACES - 1;
    return ((int64_t)order * 3 + address_order) * MAX_PLACES + kept_place;
}

static const char *state_of(const struct gyre_sock_interface *interface)
{
    return !interface->is_up ? ", down" : !interface->is_running ? ", up but without a link" : "";
}

static const char *host_text(const struct gyre_sock_address *address, char *text_out,
                             size_t text_bytes)
{
    gyre_sock_to_text(address, text_out, text_bytes);
    char *port = strrchr(text_out, ':');
    if (port != NULL)
        *port = '\0';
    return text_out;
}

struct candidate {
    int64_t score;
    int index;
};

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *first = a, *second = b;
    if (first->score != second->score)
        return first->score < second->score ? -1 : 1;
    return first->index < second->index ? -1 : 1;
}

gyre_status gyre_sock_select(const struct gyre_sock_interface *interfaces, int n,
                             const char *ifname, int family, struct gyre_sock_interface *chosen_out,
                             int *n_chosen_out)
{
    int n_chosen = 0;
    GYRE_FREED struct candidate *candidates = calloc(n > 0 ? (size_t)n : 1, sizeof(*candidates));
    if (candidates == NULL)
        return gyre_fail_errno(ENOMEM, "%d addresses of interfaces", n);
    for (int i = 0, place = 0; i < n; i++) {
        const bool goes_on = i > 0 && strcmp(interfaces[i].name, interfaces[i - 1].name) == 0 &&
                             interfaces[i].address.family == interfaces[i - 1].address.family;
        place = goes_on ? place + 1 : 0;
        const int64_t own = score(&interfaces[i], ifname, family, place);
        if (own >= 0)
            candidates[n_chosen++] = (struct candidate){own, i};
    }
    qsort(candidates, (size_t)n_chosen, sizeof(*candidates), compare_candidates);
    for (int i = 0; i < n_chosen; i++)
        chosen_out[i] = interfaces[candidates[i].index];
    if (n_chosen == 0) {
        char list[512] = "";
        for (int j = 0; j < n; j++) {
            char text[64];
            if (strlen(list) > sizeof(list) - 128) {
                gyre_text_append(list, sizeof(list), " and %d more addresses", n - j);
                break;
            }
            host_text(&interfaces[j].address, text, sizeof(text));
            gyre_text_append(list, sizeof(list), "%s%s (%s%s)", j == 0 ? "" : ", ",
                             interfaces[j].name, text, state_of(&interfaces[j]));
        }
        const char *kind = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
        if (ifname[0] == '\0')
            return gyre_fail(family != 0 ? GYRE_ERROR_INVALID_ARGUMENT : GYRE_ERROR_SYSTEM,
                             "no network interface that is up has an %saddress; there are: %s",
                             kind, n == 0 ? "none" : list);
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "no network interface that is up and has an %saddress matches \"%s\"; there "
            "are: %s",
            kind, ifname, n == 0 ? "none" : list);
    }
    *n_chosen_out = n_chosen;
    return GYRE_SUCCESS;
}

static int drop_unless_alone(struct gyre_sock_interface *addresses, int n,
                             bool (*is_last_resort)(const struct gyre_sock_address *))
{
    int n_kept = 0;
    for (int i = 0; i < n; i++)
        if (!is_last_resort(&addresses[i].address))
            addresses[n_kept++] = addresses[i];
    return n_kept > 0 ? n_kept : n;
}

gyre_status gyre_sock_list_addresses(const struct gyre_params *params,
                                     struct gyre_sock_interface *addresses_out, int *n_out)
{
    static const int families[] = {AF_INET, AF_INET6}; /* by the words' index */
    GYRE_FREED struct gyre_sock_interface *all = NULL;
    int n_all = 0, n = 0;
    const int64_t word = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY);
    const int family = word == 0 || word == 1 ? families[word] : 0;
    const char *ifname = gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME);
    GYRE_TRY(gyre_sock_interfaces(&all, &n_all));
    GYRE_FREED struct gyre_sock_interface *chosen = calloc((size_t)n_all + 1, sizeof(*chosen));
    if (chosen == NULL)
        return gyre_fail_errno(ENOMEM, "%d addresses of interfaces", n_all);
    const gyre_status status = gyre_sock_select(all, n_all, ifname, family, chosen, &n);
    if (status == GYRE_ERROR_INVALID_ARGUMENT)
        gyre_fail_context(status, "%s",
                          gyre_param_called(params, ifname[0] != '\0' ? GYRE_PARAM_SOCKET_IFNAME
                                                                      : GYRE_PARAM_SOCKET_FAMILY));
    GYRE_TRY(status);
    /* First loopback: link-local addresses reach other hosts. */
    n = drop_unless_alone(chosen, n, gyre_sock_is_loopback);
    n = drop_unless_alone(chosen, n, gyre_sock_is_link_local);
    if (n > GYRE_MAX_INTERFACES)
        GYRE_INFO(BOOTSTRAP,
                  "init: %d addresses may be used, the best %d count; %s chooses interfaces", n,
                  GYRE_MAX_INTERFACES, gyre_param_called(params, GYRE_PARAM_SOCKET_IFNAME));
    n = n < GYRE_MAX_INTERFACES ? n : GYRE_MAX_INTERFACES;
    memcpy(addresses_out, chosen, (size_t)n * sizeof(*chosen));
    *n_out = n;
    return GYRE_SUCCESS;
}

int gyre_sock_spread(struct gyre_sock_interface *addresses, int n, const char *ifname, int position,
                     int n_positions)
{
    int n_interfaces = n > 0 ? 1 : 0;
    if (ifname[0] == '^' || strchr(ifname, ',') == NULL)
        return 1;
    for (int i = 1; i < n; i++)
        n_interfaces += strcmp(addresses[i].name, addresses[i - 1].name) != 0;
    if (n_interfaces < 2)
        return 1;
    int to_skip = n_positions > n_interfaces ? position * n_interfaces / n_positions : position;
    int at = 0;
    for (; to_skip > 0; to_skip--)
        do
            at++;
        while (strcmp(addresses[at].name, addresses[at - 1].name) == 0);
    for (; at > 0; at--) {
        const struct gyre_sock_interface first = addresses[0];
        memmove(addresses, addresses + 1, (size_t)(n - 1) * sizeof(*addresses));
        addresses[n - 1] = first;
    }
    return n_interfaces;
}

gyre_status gyre_sock_choose(const struct gyre_params *params,
                             struct gyre_sock_interface *chosen_out)
{
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    int n = 0;
    GYRE_TRY(gyre_sock_list_addresses(params, addresses, &n));
    *chosen_out = addresses[0];
    return GYRE_SUCCESS;
}

static void describe_one(const struct ifaddrs *list, const struct ifaddrs *link, char *text_out,
                         size_t text_bytes)
{
    struct gyre_sock_interface interface = {
        .is_up = (link->ifa_flags & IFF_UP) != 0,
        .is_running = (link->ifa_flags & IFF_RUNNING) != 0,
    };
    const char *state = state_of(&interface);
    int n_addresses = 0;
    gyre_text_append(text_out, text_bytes, "%s%s (", text_out[0] != '\0' ? ", " : "",
                     link->ifa_name);
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        char text[64];
        if (strcmp(entry->ifa_name, link->ifa_name) != 0 || !read_interface(entry, &interface))
            continue;
        if (n_addresses++ < MAX_DESCRIBED)
            gyre_text_append(text_out, text_bytes, "%s%s", n_addresses > 1 ? ", " : "",
                             host_text(&interface.address, text, sizeof(text)));
    }
    if (n_addresses > MAX_DESCRIBED)
        gyre_text_append(text_out, text_bytes, " and %d more", n_addresses - MAX_DESCRIBED);
    gyre_text_append(text_out, text_bytes, "%s%s)", n_addresses > 0 ? "" : "no address", state);
}

const char *gyre_sock_describe_interfaces(char *text_out, size_t text_bytes)
{
    struct ifaddrs *list = NULL;
    snprintf(text_out, text_bytes, "%s", "");
    if (getifaddrs(&list) != 0) {
        snprintf(text_out, text_bytes, "unknown (getifaddrs: errno %d)", errno);
        return text_out;
    }
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_PACKET)
            continue;
        if (strlen(text_out) + 128 > text_bytes) {
            gyre_text_append(text_out, text_bytes, " and more");
            break;
        }
        describe_one(list, entry, text_out, text_bytes - 16);
    }
    freeifaddrs(list);
    return text_out;
}
