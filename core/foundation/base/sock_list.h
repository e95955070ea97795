/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a process can be reached: all its usable addresses in one small struct that ranks exchange,
 * the sockets that listen there, and what another process may try of it.
 */
#ifndef GYRE_BASE_SOCK_LIST_H
#define GYRE_BASE_SOCK_LIST_H

#include "core/foundation/base/sock.h"

#define GYRE_SOCK_LIST_MAX 8 /* IPv4 addresses; IPv6 addresses take the room of almost three */

/* Exchanged: fixed layout. All zero = nowhere. Addresses with their ports, packed, best first. */
struct gyre_sock_list {
    uint64_t network; /* of the host and network namespace: loopback means the same in them */
    uint8_t packed[56];
};

/* The listening sockets of one list, in its order. */
struct gyre_sock_listeners {
    int n;
    int fds[GYRE_SOCK_LIST_MAX];
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
};

/** gyre_sock_network - a number that differs between hosts and between network namespaces. */
gyre_status gyre_sock_network(uint64_t *network_out);

/** gyre_sock_listen_all - listen on each of gyre_sock_list_addresses, as many as fit the list.
 * @first: an address (port ignored) that comes first if it is among them; NULL = none.
 * Errors: as gyre_sock_list_addresses, SYSTEM if no socket could be made. */
gyre_status gyre_sock_listen_all(const struct gyre_params *params,
                                 const struct gyre_sock_address *first,
                                 struct gyre_sock_listeners *listeners_out,
                                 struct gyre_sock_list *list_out);

/** gyre_sock_close_all - n is 0 afterwards. */
void gyre_sock_close_all(struct gyre_sock_listeners *listeners);

/** gyre_sock_list_pack - append one address; false if it does not fit. */
bool gyre_sock_list_pack(struct gyre_sock_list *list, const struct gyre_sock_address *address);

/** gyre_sock_list_read - the addresses as they stand in the list.
 * @addresses_out: GYRE_SOCK_LIST_MAX entries. Returns their number; 0 also for a malformed list. */
int gyre_sock_list_read(const struct gyre_sock_list *list, struct gyre_sock_address *addresses_out);

/** gyre_sock_list_targets - the addresses that this process may try, most likely ones first.
 * Another host's loopback is not among them: behind it would be this host. @addresses_out, *n_out:
 * as gyre_sock_list_read. Errors: INVALID_USAGE (the list has nothing but another host's loopback),
 * INVALID_ARGUMENT (no list). */
gyre_status gyre_sock_list_targets(const struct gyre_sock_list *list,
                                   struct gyre_sock_address *addresses_out, int *n_out);

/** gyre_sock_list_to_text - "10.0.0.1:4242, 172.17.0.1:4243". Returns text_out. */
const char *gyre_sock_list_to_text(const struct gyre_sock_address *addresses, int n, char *text_out,
                                   size_t text_bytes);

#endif
