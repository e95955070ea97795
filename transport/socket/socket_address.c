/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank listens on all of its usable addresses, because only the other rank knows which it can
 * reach: an interface may have a second subnet without a route from the other host.
 */
#include "transport/socket/socket.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SOCKET_MAGIC 0x336e696f6a636f73ULL /* "socjoin3", little endian */

GYRE_STATIC_ASSERT(sizeof(struct socket_blob) == 32 + SOCKET_MAX_ADDRESSES * 28,
                   "hosts send it to each other");

gyre_status socket_listen(struct socket_transport *transport)
{
    const struct gyre_transport_config *config = &transport->config;
    struct gyre_sock_interface list[GYRE_MAX_INTERFACES];
    char words[SOCKET_MAX_ADDRESSES * 96] = "";
    char text[64];
    int n = 0, position = 0, n_positions = 0;
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_sock_list_addresses(config->params, list, &n));
    for (int i = 0; config->rendezvous != NULL && i < n; i++) {
        const struct gyre_sock_interface moved = list[i];
        if (!gyre_sock_is_same_host(config->rendezvous, &moved.address))
            continue;
        for (; i > 0 && strcmp(list[i - 1].name, moved.name) == 0; i--)
            list[i] = list[i - 1];
        list[i] = moved;
        break;
    }
    /* Other hosts try the addresses in this order, so each rank of this host begins with another
     * interface. */
    for (int rank = 0; rank < config->n_ranks; rank++) {
        const bool is_here = config->infos[rank].host_hash == config->infos[config->rank].host_hash;
        position += rank < config->rank && is_here;
        n_positions += is_here;
    }
    (void)gyre_sock_spread(list, n, gyre_param_text(config->params, GYRE_PARAM_SOCKET_IFNAME),
                           position, n_positions);
    for (int i = 0; i < n && transport->n_addresses < SOCKET_MAX_ADDRESSES; i++) {
        const int at = transport->n_addresses;
        struct gyre_sock_address bound;
        status = gyre_sock_listen(&list[i].address, &transport->listen_fds[at], &bound);
        if (gyre_cause_is_limit(status))
            return status;
        if (status != GYRE_SUCCESS) { /* e.g. the address was removed */
            GYRE_INFO(NET, "NET/Socket : %s is left out: %s", list[i].name, gyre_cause());
            continue;
        }
        transport->addresses[at] = list[i];
        transport->addresses[at].address = bound;
        transport->n_addresses++;
        gyre_text_append(words, sizeof(words), "%s[%d]%.15s:%s", at > 0 ? " " : "", at,
                         list[i].name, gyre_sock_to_text(&bound, text, sizeof(text)));
    }
    if (transport->n_addresses == 0)
        return status;
    GYRE_INFO(NET, "NET/Socket : Using %s, %d connections a pair", words, transport->n_links);
    return GYRE_SUCCESS;
}

void socket_stop_listening(struct socket_transport *transport)
{
    for (int i = 0; i < transport->n_addresses; i++) {
        if (transport->listen_fds[i] >= 0)
            gyre_sock_close(transport->listen_fds[i]);
        transport->listen_fds[i] = -1;
    }
}

/* The same for processes that share 127.0.0.1, whatever GYRE_HOSTID says. */
static gyre_status find_network_id(uint64_t *id_out)
{
    struct stat file;
    uint64_t id = 0;
    GYRE_TRY(gyre_boot_hash(GYRE_HASH_INIT, &id));
    if (stat("/proc/self/ns/net", &file) == 0) {
        id = gyre_hash(id, &file.st_dev, sizeof(file.st_dev));
        id = gyre_hash(id, &file.st_ino, sizeof(file.st_ino));
    }
    *id_out = id;
    return GYRE_SUCCESS;
}

gyre_status socket_make_blob(const struct socket_transport *transport,
                             struct socket_blob **blob_out)
{
    struct socket_blob *blob = calloc(1, sizeof(*blob));
    if (blob == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "blob of %zu bytes", sizeof(*blob));
    const gyre_status status = find_network_id(&blob->network_id);
    if (status != GYRE_SUCCESS) {
        free(blob);
        return status;
    }
    blob->magic = SOCKET_MAGIC;
    blob->rank = (uint32_t)transport->config.rank;
    blob->n_links = (uint32_t)transport->n_links;
    blob->n_addresses = (uint32_t)transport->n_addresses;
    uint32_t place = 0;
    for (int i = 0; i < transport->n_addresses; i++) {
        if (i > 0 && strcmp(transport->addresses[i].name, transport->addresses[i - 1].name) != 0)
            place++;
        blob->addresses[i].address = transport->addresses[i].address;
        blob->addresses[i].place = place;
    }
    *blob_out = blob;
    return GYRE_SUCCESS;
}

static gyre_status check_loopback(const struct socket_peer *peer, struct socket_blob *blob)
{
    const struct socket_transport *transport = peer->transport;
    uint64_t network_id = 0;
    char text[512];
    GYRE_TRY(find_network_id(&network_id));
    if (network_id == blob->network_id)
        return GYRE_SUCCESS;
    /* The peer finds the same mismatch; this rank waits for its cause. */
    if (gyre_sock_is_loopback(&blob->addresses[0].address))
        blob->n_addresses = 0;
    if (transport->addresses[0].is_loopback)
        return gyre_fail(
            GYRE_ERROR_INVALID_USAGE,
            "is on another host, and rank %d (%s) has only loopback addresses that it may use; its "
            "interfaces: %s (%s=\"%s\")",
            transport->config.rank, transport->config.infos[transport->config.rank].host_name,
            gyre_sock_describe_interfaces(text, sizeof(text)),
            gyre_param_source(transport->config.params, GYRE_PARAM_SOCKET_IFNAME),
            gyre_param_text(transport->config.params, GYRE_PARAM_SOCKET_IFNAME));
    return GYRE_SUCCESS;
}

gyre_status socket_read_blob(struct socket_peer *peer, const unsigned char *bytes, size_t n_bytes,
                             uint32_t *n_links_out)
{
    struct socket_blob blob;
    if (n_bytes != sizeof(blob))
        return gyre_fail(GYRE_ERROR_REMOTE, "announced its addresses in %zu bytes, expected %zu",
                         n_bytes, sizeof(blob));
    memcpy(&blob, bytes, sizeof(blob));
    if (blob.magic != SOCKET_MAGIC || blob.rank != (uint32_t)peer->rank || blob.n_links < 1 ||
        blob.n_links > SOCKET_MAX_LINKS || blob.n_addresses < 1 ||
        blob.n_addresses > SOCKET_MAX_ADDRESSES)
        return gyre_fail(GYRE_ERROR_REMOTE, "announced addresses that are none");
    GYRE_TRY(check_loopback(peer, &blob));
    const struct socket_transport *transport = peer->transport;
    const bool is_same_host = transport->config.infos[peer->rank].host_hash ==
                              transport->config.infos[transport->config.rank].host_hash;
    int first = 0;
    bool has_scopes = false;
    peer->n_addresses = (int)blob.n_addresses;
    for (int i = 0; i < peer->n_addresses; i++) {
        peer->addresses[i] = blob.addresses[i].address;
        has_scopes = has_scopes || gyre_sock_is_link_local(&peer->addresses[i]);
    }
    /* The user may have chosen the order of interfaces. */
    for (int i = 1; i <= peer->n_addresses && !is_same_host; i++) {
        if (i < peer->n_addresses && blob.addresses[i].place == blob.addresses[first].place)
            continue;
        gyre_sock_order_for(transport->addresses, transport->n_addresses, peer->addresses + first,
                            i - first);
        first = i;
    }
    uint64_t network_id = 0;
    if (has_scopes && find_network_id(&network_id) == GYRE_SUCCESS &&
        network_id != blob.network_id) {
        /* Scopes are numbers of a host's interfaces. */
        struct gyre_sock_interface *all = NULL;
        int n_all = 0;
        int n = gyre_sock_localise(transport->addresses, transport->n_addresses, peer->addresses,
                                   peer->n_addresses, SOCKET_MAX_ADDRESSES);
        if (n < peer->n_addresses && gyre_sock_interfaces(&all, &n_all) == GYRE_SUCCESS)
            n = gyre_sock_localise(all, n_all, peer->addresses, peer->n_addresses,
                                   SOCKET_MAX_ADDRESSES);
        free(all);
        peer->n_addresses = n;
    }
    *n_links_out = blob.n_links;
    return GYRE_SUCCESS;
}
