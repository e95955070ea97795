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

/* More words than fit a parameter's text. */
#define MAX_LIST_WORDS 100000

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

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

static size_t address_bytes(const struct gyre_sock_address *address)
{
    return address->family == AF_INET6 ? 16 : 4;
}

bool gyre_sock_is_same_host(const struct gyre_sock_address *a, const struct gyre_sock_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, address_bytes(a)) == 0;
}

static uint8_t count_prefix_bits(const struct sockaddr *mask)
{
    uint8_t bytes[16] = {0};
    uint8_t n_bits = 0;
    if (mask == NULL)
        return 0;
    if (mask->sa_family == AF_INET6)
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr, 16);
    else
        memcpy(bytes, &((const struct sockaddr_in *)(const void *)mask)->sin_addr, 4);
    while (n_bits < 128 && (bytes[n_bits / 8] >> (7 - n_bits % 8) & 1) != 0)
        n_bits++;
    return n_bits;
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
    interface_out->prefix_bits = count_prefix_bits(entry->ifa_netmask);
    interface_out->is_up = (entry->ifa_flags & IFF_UP) != 0;
    interface_out->is_running = interface_out->is_up && (entry->ifa_flags & IFF_RUNNING) != 0;
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

/* Rank of an interface by its kind, best first: fabric, real, virtual, without a link, loopback. */
static int kind_of(const struct gyre_sock_interface *interface)
{
    if (interface->is_loopback)
        return 4;
    if (!interface->is_running)
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
    const int order = !by_list                ? kind_of(interface)
                      : interface->is_running ? position
                                              : position + MAX_LIST_WORDS;
    const int address_order = gyre_sock_is_link_local(&interface->address) ? 2
                              : interface->address.family == AF_INET6      ? 1
                                                                           : 0;
    return order * 3 + address_order;
}

static const char *state_of(const struct gyre_sock_interface *interface)
{
    return !interface->is_up ? ", down" : !interface->is_running ? ", up but without a link" : "";
}

/* The address without a port. */
static const char *host_text(const struct gyre_sock_address *address, char *text_out,
                             size_t text_bytes)
{
    gyre_sock_to_text(address, text_out, text_bytes);
    char *port = strrchr(text_out, ':');
    if (port != NULL)
        *port = '\0';
    return text_out;
}

static gyre_status fail_no_match(const struct gyre_sock_interface *interfaces, int n,
                                 const char *ifname, int family)
{
    char list[512] = "";
    size_t n_list = 0;
    for (int i = 0; i < n && n_list < sizeof(list) - 96; i++) {
        char text[64];
        host_text(&interfaces[i].address, text, sizeof(text));
        n_list += (size_t)snprintf(list + n_list, sizeof(list) - n_list, "%s%s (%s%s)",
                                   i == 0 ? "" : ", ", interfaces[i].name, text,
                                   state_of(&interfaces[i]));
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

/* Keep the leading entries, or those of them that are better than the last resort. */
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
    static const int families[] = {AF_INET, AF_INET6}; /* in the order of the table's words */
    struct gyre_sock_interface all[GYRE_MAX_INTERFACES];
    int n = 0;
    const int64_t word = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY);
    const int family = word == 0 || word == 1 ? families[word] : 0;
    GYRE_TRY(gyre_sock_interfaces(all, &n));
    GYRE_TRY(gyre_sock_select(all, n, gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME), family,
                              addresses_out, &n));
    /* Loopback goes first, because a link-local address reaches another host and loopback does
     * not. */
    n = drop_unless_alone(addresses_out, n, gyre_sock_is_loopback);
    *n_out = drop_unless_alone(addresses_out, n, gyre_sock_is_link_local);
    return GYRE_SUCCESS;
}

/* Moves the first `n_moved` addresses to the end. */
static void rotate(struct gyre_sock_interface *addresses, int n, int n_moved)
{
    for (; n_moved > 0; n_moved--) {
        const struct gyre_sock_interface first = addresses[0];
        memmove(addresses, addresses + 1, (size_t)(n - 1) * sizeof(*addresses));
        addresses[n - 1] = first;
    }
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
    rotate(addresses, n, at);
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

/* ---- a peer's addresses ------------------------------------------------------------------- */

static bool is_in_subnet(const struct gyre_sock_interface *own,
                         const struct gyre_sock_address *address)
{
    const size_t n_bytes = own->prefix_bits / 8;
    const unsigned n_bits = own->prefix_bits % 8;
    if (own->prefix_bits == 0 || own->address.family != address->family)
        return false;
    if (memcmp(own->address.bytes, address->bytes, n_bytes) != 0)
        return false;
    return n_bits == 0 ||
           (own->address.bytes[n_bytes] ^ address->bytes[n_bytes]) >> (8 - n_bits) == 0;
}

/* Lower is better: in a common subnet, elsewhere, this host's own. */
static int distance_of(const struct gyre_sock_interface *own, int n_own,
                       const struct gyre_sock_address *address)
{
    int distance = 1;
    for (int i = 0; i < n_own; i++) {
        if (gyre_sock_is_same_host(&own[i].address, address))
            return 2;
        if (is_in_subnet(&own[i], address))
            distance = 0;
    }
    return distance;
}

void gyre_sock_order_for(const struct gyre_sock_interface *own, int n_own,
                         struct gyre_sock_address *addresses, int n_addresses)
{
    /* Insertion keeps the order among equals. */
    for (int i = 1; i < n_addresses; i++) {
        const struct gyre_sock_address moved = addresses[i];
        const int distance = distance_of(own, n_own, &moved);
        int at = i;
        for (; at > 0 && distance_of(own, n_own, &addresses[at - 1]) > distance; at--)
            addresses[at] = addresses[at - 1];
        addresses[at] = moved;
    }
}

/* ---- words -------------------------------------------------------------------------------- */

/* Appends the interface called `name`: its addresses, then its state. */
static void describe_one(const struct ifaddrs *list, const struct ifaddrs *link, char *text_out,
                         size_t text_bytes)
{
    struct gyre_sock_interface interface = {
        .is_up = (link->ifa_flags & IFF_UP) != 0,
        .is_running = (link->ifa_flags & IFF_RUNNING) != 0,
    };
    const char *state = state_of(&interface);
    size_t used = strlen(text_out);
    int n_addresses = 0;
    snprintf(text_out + used, text_bytes - used, "%s%s (", used > 0 ? ", " : "", link->ifa_name);
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        char text[64];
        if (strcmp(entry->ifa_name, link->ifa_name) != 0 || !read_interface(entry, &interface))
            continue;
        used = strlen(text_out);
        snprintf(text_out + used, text_bytes - used, "%s%s", n_addresses++ > 0 ? ", " : "",
                 host_text(&interface.address, text, sizeof(text)));
    }
    used = strlen(text_out);
    snprintf(text_out + used, text_bytes - used, "%s%s)", n_addresses > 0 ? "" : "no address",
             state);
}

const char *gyre_sock_describe_interfaces(char *text_out, size_t text_bytes)
{
    struct ifaddrs *list = NULL;
    snprintf(text_out, text_bytes, "%s", "");
    if (getifaddrs(&list) != 0) {
        snprintf(text_out, text_bytes, "unknown (getifaddrs: errno %d)", errno);
        return text_out;
    }
    /* Every interface has one entry of the link layer, with or without addresses. */
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next)
        if (entry->ifa_addr != NULL && entry->ifa_addr->sa_family == AF_PACKET)
            describe_one(list, entry, text_out, text_bytes);
    freeifaddrs(list);
    return text_out;
}
