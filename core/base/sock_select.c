/* SPDX-License-Identifier: Apache-2.0
 *
 * Which network interface to use: what exists, and the rules of SOCKET_IFNAME over it.
 */
#include "core/base/sock.h"

#include "core/base/util.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* Names of virtual bridges and containers: reachable from other hosts only by luck. */
static const char *const virtual_prefixes[] = {"docker", "virbr", "veth", "br-"};

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_link_local(const struct gyre_sock_address *address)
{
    return address->family == AF_INET6 && address->bytes[0] == 0xfe &&
           (address->bytes[1] & 0xc0) == 0x80;
}

static bool read_interface(const struct ifaddrs *entry, struct gyre_sock_interface *interface_out)
{
    if (entry->ifa_addr == NULL)
        return false;
    memset(interface_out, 0, sizeof(*interface_out));
    struct gyre_sock_address *address = &interface_out->address;
    address->family = entry->ifa_addr->sa_family;
    if (address->family == AF_INET) {
        const struct sockaddr_in *four = (const void *)entry->ifa_addr;
        memcpy(address->bytes, &four->sin_addr, sizeof(four->sin_addr));
    } else if (address->family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)entry->ifa_addr;
        memcpy(address->bytes, &six->sin6_addr, sizeof(six->sin6_addr));
        address->scope = six->sin6_scope_id;
    } else {
        return false;
    }
    snprintf(interface_out->name, sizeof(interface_out->name), "%s", entry->ifa_name);
    const unsigned up = IFF_UP | IFF_RUNNING;
    interface_out->is_up = (entry->ifa_flags & up) == up;
    interface_out->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    return true;
}

gyre_status gyre_sock_interfaces(struct gyre_sock_interface *interfaces_out, int *n_out)
{
    struct ifaddrs *list = NULL;
    int n = 0;
    if (getifaddrs(&list) != 0)
        return gyre_fail_errno(errno, "getifaddrs");
    for (const struct ifaddrs *entry = list; entry != NULL && n < GYRE_MAX_INTERFACES;
         entry = entry->ifa_next)
        n += read_interface(entry, &interfaces_out[n]);
    freeifaddrs(list);
    *n_out = n;
    return GYRE_SUCCESS;
}

/* Position of the first list entry that takes `name`, or -1. @exact: whole names, not prefixes. */
static int match_position(const char *list, bool exact, const char *name)
{
    int position = 0;
    const size_t n_name = strlen(name);
    for (const char *at = list; *at != '\0'; position++) {
        const size_t n_word = strcspn(at, ",");
        if (n_word > 0 && strncmp(at, name, n_word) == 0 && (!exact || n_word == n_name))
            return position;
        at += n_word + (at[n_word] == ',');
    }
    return -1;
}

/* Lower is better: fabric, real, virtual, loopback. */
static int kind_of(const struct gyre_sock_interface *interface)
{
    if (interface->is_loopback)
        return 3;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(virtual_prefixes); i++) {
        if (has_prefix(interface->name, virtual_prefixes[i]))
            return 2;
    }
    return has_prefix(interface->name, "ib") ? 0 : 1;
}

/* Lower is better; -1 = not taken. */
static int score(const struct gyre_sock_interface *interface, const char *ifname, int family)
{
    const bool inverted = ifname[0] == '^';
    const bool exact = ifname[inverted] == '=';
    const char *list = ifname + inverted + exact;
    const int position = match_position(list, exact, interface->name);
    if (!interface->is_up || (family != 0 && interface->address.family != family))
        return -1;
    if (list[0] != '\0' && (position >= 0) == inverted)
        return -1;
    /* A list's own order counts first. An address that needs a scope comes last of its kind. */
    const bool by_list = list[0] != '\0' && !inverted;
    const int order = by_list ? position : kind_of(interface);
    const int address_order = is_link_local(&interface->address)      ? 2
                              : interface->address.family == AF_INET6 ? 1
                                                                      : 0;
    return order * 3 + address_order;
}

static gyre_status fail_no_match(const struct gyre_sock_interface *interfaces, int n,
                                 const char *ifname, int family)
{
    char list[512] = "";
    size_t n_list = 0;
    for (int i = 0; i < n && n_list < sizeof(list) - 96; i++) {
        char text[64];
        gyre_sock_to_text(&interfaces[i].address, text, sizeof(text));
        char *port = strrchr(text, ':');
        if (port != NULL)
            *port = '\0'; /* an interface has none */
        n_list += (size_t)snprintf(list + n_list, sizeof(list) - n_list, "%s%s (%s%s)",
                                   i == 0 ? "" : ", ", interfaces[i].name, text,
                                   interfaces[i].is_up ? "" : ", down");
    }
    return gyre_fail(
        GYRE_ERROR_INVALID_ARGUMENT,
        "no network interface that is up matches SOCKET_IFNAME=\"%s\"%s; there are: %s", ifname,
        family == AF_INET    ? " with an IPv4 address"
        : family == AF_INET6 ? " with an IPv6 address"
                             : "",
        n == 0 ? "none" : list);
}

gyre_status gyre_sock_select(const struct gyre_sock_interface *interfaces, int n,
                             const char *ifname, int family, struct gyre_sock_interface *chosen_out,
                             int *n_chosen_out)
{
    int scores[GYRE_MAX_INTERFACES];
    int n_chosen = 0;
    if (n < 0 || n > GYRE_MAX_INTERFACES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d interfaces; at most %d are looked at", n,
                         GYRE_MAX_INTERFACES);
    /* Insertion keeps the system's order among equals. */
    for (int i = 0; i < n; i++) {
        const int own = score(&interfaces[i], ifname, family);
        int at = n_chosen;
        if (own < 0)
            continue;
        for (; at > 0 && scores[at - 1] > own; at--) {
            scores[at] = scores[at - 1];
            chosen_out[at] = chosen_out[at - 1];
        }
        scores[at] = own;
        chosen_out[at] = interfaces[i];
        n_chosen++;
    }
    if (n_chosen == 0)
        return fail_no_match(interfaces, n, ifname, family);
    *n_chosen_out = n_chosen;
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_choose(const struct gyre_params *params,
                             struct gyre_sock_interface *chosen_out)
{
    static const int families[] = {AF_INET, AF_INET6}; /* in the order of the table's words */
    struct gyre_sock_interface all[GYRE_MAX_INTERFACES];
    struct gyre_sock_interface chosen[GYRE_MAX_INTERFACES];
    int n = 0;
    int n_chosen = 0;
    const int64_t word = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY);
    const int family = word == 0 || word == 1 ? families[word] : 0;
    GYRE_TRY(gyre_sock_interfaces(all, &n));
    GYRE_TRY(gyre_sock_select(all, n, gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME), family,
                              chosen, &n_chosen));
    *chosen_out = chosen[0];
    return GYRE_SUCCESS;
}
