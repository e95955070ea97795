/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry is a tag, the port (two bytes, little endian), and the address: 4 bytes, 16, or 16 and a
 * scope of 4. Tag 0 ends the list.
 */
#include "core/foundation/base/sock.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static_assert(sizeof(struct gyre_sock_list) == 64,
              "ranks send it to each other, and part of the unique id");

enum { TAG_END, TAG_FOUR, TAG_SIX, TAG_SIX_SCOPED, N_TAGS };

static const size_t entry_bytes[N_TAGS] = {0, 3 + 4, 3 + 16, 3 + 16 + 4};

static size_t packed_bytes(const struct gyre_sock_list *list, int *n_out)
{
    size_t at = 0;
    *n_out = 0;
    while (at < sizeof(list->packed) && list->packed[at] != TAG_END) {
        const uint8_t tag = list->packed[at];
        if (tag >= N_TAGS || at + entry_bytes[tag] > sizeof(list->packed) ||
            *n_out == GYRE_SOCK_LIST_MAX)
            break;
        at += entry_bytes[tag];
        (*n_out)++;
    }
    return at;
}

bool gyre_sock_list_pack(struct gyre_sock_list *list, const struct gyre_sock_address *address)
{
    int n = 0;
    uint8_t *at = list->packed + packed_bytes(list, &n);
    const uint8_t tag = address->family == AF_INET ? TAG_FOUR
                        : address->scope == 0      ? TAG_SIX
                                                   : TAG_SIX_SCOPED;
    if (n == GYRE_SOCK_LIST_MAX || at + entry_bytes[tag] > list->packed + sizeof(list->packed))
        return false;
    *at++ = tag;
    *at++ = (uint8_t)address->port;
    *at++ = (uint8_t)(address->port >> 8);
    memcpy(at, address->bytes, tag == TAG_FOUR ? 4 : 16);
    if (tag == TAG_SIX_SCOPED)
        memcpy(at + 16, &address->scope, sizeof(address->scope));
    return true;
}

int gyre_sock_list_read(const struct gyre_sock_list *list, struct gyre_sock_address *addresses_out)
{
    int n = 0;
    packed_bytes(list, &n);
    const uint8_t *at = list->packed;
    for (int i = 0; i < n; i++) {
        struct gyre_sock_address *address = &addresses_out[i];
        const uint8_t tag = at[0];
        memset(address, 0, sizeof(*address));
        address->family = tag == TAG_FOUR ? AF_INET : AF_INET6;
        address->port = (uint16_t)(at[1] | at[2] << 8);
        memcpy(address->bytes, at + 3, tag == TAG_FOUR ? 4 : 16);
        if (tag == TAG_SIX_SCOPED)
            memcpy(&address->scope, at + 19, sizeof(address->scope));
        at += entry_bytes[tag];
    }
    return n;
}

gyre_status gyre_sock_network(uint64_t *network_out)
{
    struct stat space;
    uint64_t hash = 0;
    GYRE_TRY(gyre_host_hash(NULL, &hash));
    /* Containers have loopbacks of their own. */
    if (stat("/proc/self/ns/net", &space) == 0) {
        const uint64_t inode = (uint64_t)space.st_ino;
        hash = gyre_hash(hash, &inode, sizeof(inode));
    }
    *network_out = hash;
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_listen_all(const struct gyre_params *params,
                                 const struct gyre_sock_address *first,
                                 struct gyre_sock_listeners *listeners_out,
                                 struct gyre_sock_list *list_out)
{
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    struct gyre_sock_list list;
    struct gyre_sock_listeners listeners = {.n = 0};
    char interfaces[512];
    int n = 0;
    gyre_status status = GYRE_SUCCESS;
    memset(&list, 0, sizeof(list));
    GYRE_TRY(gyre_sock_network(&list.network));
    GYRE_TRY(gyre_sock_list_addresses(params, addresses, &n));
    for (int i = 1; first != NULL && i < n; i++) {
        const struct gyre_sock_interface moved = addresses[i];
        if (!gyre_sock_is_same_host(&moved.address, first))
            continue;
        memmove(addresses + 1, addresses, (size_t)i * sizeof(*addresses));
        addresses[0] = moved;
        break;
    }
    for (int i = 0; i < n && listeners.n < GYRE_SOCK_LIST_MAX; i++) {
        struct gyre_sock_address *bound = &listeners.addresses[listeners.n];
        int fd = -1;
        /* An address may not be ready yet (IPv6). */
        status = gyre_sock_listen(&addresses[i].address, &fd, bound);
        if (gyre_cause_is_limit(status)) {
            gyre_sock_close_all(&listeners);
            return status;
        }
        if (status != GYRE_SUCCESS)
            continue;
        if (!gyre_sock_list_pack(&list, bound)) {
            gyre_sock_close(fd);
            continue;
        }
        listeners.fds[listeners.n++] = fd;
    }
    if (listeners.n == 0)
        return status;
    if (listeners.n < n)
        GYRE_INFO(BOOTSTRAP, "init: of %d addresses, ranks are told the best %d; %s chooses others",
                  n, listeners.n, gyre_param_called(params, GYRE_PARAM_SOCKET_IFNAME));
    if (addresses[0].is_loopback && gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME)[0] == '\0')
        GYRE_INFO(BOOTSTRAP,
                  "init: only loopback is up, ranks on other hosts cannot reach this one; "
                  "interfaces: %s",
                  gyre_sock_describe_interfaces(interfaces, sizeof(interfaces)));
    *listeners_out = listeners;
    *list_out = list;
    return GYRE_SUCCESS;
}

void gyre_sock_close_all(struct gyre_sock_listeners *listeners)
{
    for (int i = 0; i < listeners->n; i++)
        gyre_sock_close(listeners->fds[i]);
    listeners->n = 0;
}

/* a common subnet, elsewhere, this host */
static int distance_of(const struct gyre_sock_interface *own, int n_own,
                       const struct gyre_sock_address *address)
{
    int distance = 1;
    for (int i = 0; i < n_own; i++) {
        const uint8_t *bytes = own[i].address.bytes;
        const size_t n_bytes = own[i].prefix_bits / 8;
        const unsigned n_bits = own[i].prefix_bits % 8;
        if (gyre_sock_is_same_host(&own[i].address, address))
            return 2;
        if (own[i].prefix_bits > 0 && own[i].address.family == address->family &&
            memcmp(bytes, address->bytes, n_bytes) == 0 &&
            (n_bits == 0 || (bytes[n_bytes] ^ address->bytes[n_bytes]) >> (8 - n_bits) == 0))
            distance = 0;
    }
    return distance;
}

void gyre_sock_order_for(const struct gyre_sock_interface *own, int n_own,
                         struct gyre_sock_address *addresses, int n_addresses)
{
    for (int i = 1; i < n_addresses; i++) {
        const struct gyre_sock_address moved = addresses[i];
        const int distance = distance_of(own, n_own, &moved);
        int at = i;
        for (; at > 0 && distance_of(own, n_own, &addresses[at - 1]) > distance; at--)
            addresses[at] = addresses[at - 1];
        addresses[at] = moved;
    }
}

int gyre_sock_localise(const struct gyre_sock_interface *own, int n_own,
                       struct gyre_sock_address *addresses, int n, int n_max)
{
    GYRE_FREED struct gyre_sock_address *localised = calloc((size_t)n_max + 1, sizeof(*localised));
    int n_localised = 0;
    if (localised == NULL)
        return n;
    for (int i = 0; i < n; i++) {
        if (!gyre_sock_is_link_local(&addresses[i])) {
            if (n_localised < n_max)
                localised[n_localised++] = addresses[i];
            continue;
        }
        for (int k = 0; k < n_own && n_localised < n_max; k++) {
            const struct gyre_sock_interface *through = &own[k];
            if (!gyre_sock_is_link_local(&through->address) || !through->is_running)
                continue;
            localised[n_localised] = addresses[i];
            localised[n_localised++].scope = through->address.scope;
        }
    }
    memcpy(addresses, localised, (size_t)n_localised * sizeof(*addresses));
    return n_localised;
}

gyre_status gyre_sock_list_targets(const struct gyre_sock_list *list,
                                   struct gyre_sock_address *addresses_out, int *n_out)
{
    GYRE_FREED struct gyre_sock_interface *own = NULL;
    uint64_t network = 0;
    int n_own = 0, n_sorted = 0, n_kept = 0;
    const int n = gyre_sock_list_read(list, addresses_out);
    if (n == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "there is no address in it");
    GYRE_TRY(gyre_sock_network(&network));
    if (network == list->network) {
        *n_out = n;
        return GYRE_SUCCESS;
    }
    for (int i = 0; i < n; i++)
        if (!gyre_sock_is_loopback(&addresses_out[i]))
            addresses_out[n_kept++] = addresses_out[i];
    if (n_kept == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "it can be reached on its own host alone: no interface but loopback was "
                         "up or allowed there (GYRE_SOCKET_IFNAME or NCCL_SOCKET_IFNAME, "
                         "GYRE_SOCKET_FAMILY or NCCL_SOCKET_FAMILY)");
    GYRE_TRY(gyre_sock_interfaces(&own, &n_own));
    gyre_sock_order_for(own, n_own, addresses_out, n_kept);
    GYRE_FREED struct gyre_sock_interface *sorted = calloc((size_t)n_own + 1, sizeof(*sorted));
    if (sorted == NULL ||
        gyre_sock_select(own, n_own, "", AF_INET6, sorted, &n_sorted) != GYRE_SUCCESS)
        n_sorted = 0;
    n_kept = gyre_sock_localise(sorted, n_sorted, addresses_out, n_kept, GYRE_SOCK_LIST_MAX);
    if (n_kept == 0)
        return gyre_fail(GYRE_ERROR_SYSTEM,
                         "it has link-local IPv6 addresses alone, and this host has no interface "
                         "with one");
    *n_out = n_kept;
    return GYRE_SUCCESS;
}

const char *gyre_sock_list_to_text(const struct gyre_sock_address *addresses, int n, char *text_out,
                                   size_t text_bytes)
{
    char one[64];
    text_out[0] = '\0';
    for (int i = 0; i < n; i++)
        gyre_text_append(text_out, text_bytes, "%s%s", i == 0 ? "" : ", ",
                         gyre_sock_to_text(&addresses[i], one, sizeof(one)));
    return text_out;
}
