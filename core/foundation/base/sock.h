/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP with deadlines, and which network interface to use. Sockets made here are non-blocking,
 * close-on-exec, TCP_NODELAY, with keepalive; sends never raise SIGPIPE. A child that this process
 * forks closes them first thing. Deadlines are on gyre_now_ns().
 */
#ifndef GYRE_BASE_SOCK_H
#define GYRE_BASE_SOCK_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address with port; fixed layout, it is exchanged between ranks. */
struct gyre_sock_address {
    uint16_t family; /* AF_INET or AF_INET6 */
    uint16_t port;   /* host order */
    uint32_t scope;  /* of an IPv6 link-local address, on the owner */
    uint8_t bytes[16];
};

#define GYRE_MAX_INTERFACES                                              \
    32 /* addresses that gyre_sock_list_addresses() gives, the best ones \
        */

/* One address of one interface. */
struct gyre_sock_interface {
    char name[16];
    struct gyre_sock_address address; /* port 0 */
    uint8_t prefix_bits;              /* of the address's subnet: 24 of 10.0.0.1/24 */
    bool is_up;                       /* the administrator has enabled the interface */
    bool is_running;                  /* and its link is there: a cable, a carrier */
    bool is_loopback;
    bool has_default_route;
};

/** gyre_sock_interfaces - all addresses of all interfaces, however many there are.
 * @interfaces_out: to be freed by the caller. */
gyre_status gyre_sock_interfaces(struct gyre_sock_interface **interfaces_out, int *n_out);

/** gyre_sock_select - pure: which of them SOCKET_IFNAME's rules take, best first. Without a rule:
 * ib* first, then those with a default route, then other real ones, then virtual ones by their
 * names (docker*, veth*, tun*, ...), then those that are up but not running (a link that may still
 * come), and last loopback; second addresses come after all first ones of a kind. A list's own
 * order comes before that; interfaces of it that are not running still come after those that are.
 * @ifname: [^][=]name,... or ""; blanks around names do not count. @family: AF_INET, AF_INET6 or 0
 * = both. @chosen_out: room for n. Errors, listing the interfaces that exist: INVALID_ARGUMENT
 * (none matches ifname and family; the text does not name the variables), SYSTEM (neither is
 * given). */
gyre_status gyre_sock_select(const struct gyre_sock_interface *interfaces, int n,
                             const char *ifname, int family, struct gyre_sock_interface *chosen_out,
                             int *n_chosen_out);

/** gyre_sock_list_addresses - every address that other ranks may reach this process at, best first:
 * gyre_sock_interfaces + gyre_sock_select with the params. A loopback address is listed only when
 * there is no other, and then all entries have is_loopback set: such a list is good for ranks of
 * this network namespace alone. A link-local IPv6 address likewise only when there is no better
 * one. @addresses_out: GYRE_MAX_INTERFACES entries; *n_out is at least 1 on success. */
gyre_status gyre_sock_list_addresses(const struct gyre_params *params,
                                     struct gyre_sock_interface *addresses_out, int *n_out);

/** gyre_sock_spread - put the interface first that one of several ranks of a host is to use, so
 * that ranks spread over the interfaces that the user listed. Pure.
 * @addresses: as from gyre_sock_list_addresses(): those of an interface follow each other. They are
 * rotated by whole interfaces.
 * @ifname: SOCKET_IFNAME's text. Ranks spread only if it is a list of several names without "^".
 * @position: of the rank among the @n_positions ranks of its host; position p uses interface
 * p * n_interfaces / n_positions if there are more ranks than interfaces, else interface p.
 * Returns over how many interfaces ranks spread, at least 1. */
int gyre_sock_spread(struct gyre_sock_interface *addresses, int n, const char *ifname, int position,
                     int n_positions);

/** gyre_sock_choose - the first one of gyre_sock_list_addresses. */
gyre_status gyre_sock_choose(const struct gyre_params *params,
                             struct gyre_sock_interface *chosen_out);

/** gyre_sock_order_for - sort a peer's addresses by how likely this process reaches them: first
 * those that share a subnet with an address of `own`, last those that `own` has itself (two hosts
 * may both have a bridge 172.17.0.1). Equals keep their order. A peer on this host has this host's
 * addresses: leave its list as it is. */
void gyre_sock_order_for(const struct gyre_sock_interface *own, int n_own,
                         struct gyre_sock_address *addresses, int n_addresses);

/** gyre_sock_localise - give the link-local addresses of another host the scopes of this one: a
 * scope is the number of an interface, and each host has its own numbers. Such an address becomes
 * one for each running interface of `own` that has a link-local address, in their order.
 * @addresses: n, with room for n_max. Returns their new number. */
int gyre_sock_localise(const struct gyre_sock_interface *own, int n_own,
                       struct gyre_sock_address *addresses, int n, int n_max);

/** gyre_sock_describe_interfaces - for messages: all interfaces, also those without an address,
 * with their addresses and state: "lo (127.0.0.1), eth0 (10.0.0.1, up but without a link)". */
const char *gyre_sock_describe_interfaces(char *text_out, size_t text_bytes);

/** gyre_sock_own_address / gyre_sock_peer_address - of a connected socket: the address on this side
 * and on the other one, ports included. */
gyre_status gyre_sock_own_address(int fd, struct gyre_sock_address *address_out);
gyre_status gyre_sock_peer_address(int fd, struct gyre_sock_address *address_out);

/** gyre_sock_is_loopback / gyre_sock_is_link_local - by the address alone. */
bool gyre_sock_is_loopback(const struct gyre_sock_address *address);
bool gyre_sock_is_link_local(const struct gyre_sock_address *address);

/** gyre_sock_is_same_host - the addresses without their ports (and without scope) are equal. */
bool gyre_sock_is_same_host(const struct gyre_sock_address *a, const struct gyre_sock_address *b);

/** gyre_sock_listen - on that interface's address, a port of the kernel's choice. */
gyre_status gyre_sock_listen(const struct gyre_sock_address *address, int *fd_out,
                             struct gyre_sock_address *bound_out);

/** gyre_sock_accept - one connection. Errors: TIMEOUT. */
gyre_status gyre_sock_accept(int listen_fd, uint64_t deadline_ns, int *fd_out);

/** gyre_sock_connect - retries refused connections until the deadline. Errors: TIMEOUT, SYSTEM. */
gyre_status gyre_sock_connect(const struct gyre_sock_address *address, uint64_t deadline_ns,
                              int *fd_out);

/** gyre_sock_close - a socket made here is to be closed with this and nothing else. */
void gyre_sock_close(int fd);

/** gyre_sock_new / gyre_sock_take - socket(2) and accept4(2), without the options. -1 with errno.
 */
int gyre_sock_new(int family);
int gyre_sock_take(int listen_fd);

/** gyre_sock_send / gyre_sock_recv - exactly n bytes. Errors: TIMEOUT, REMOTE (closed), SYSTEM. */
gyre_status gyre_sock_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns);
gyre_status gyre_sock_recv(int fd, void *bytes, size_t n_bytes, uint64_t deadline_ns);

/** gyre_sock_to_sockaddr - the address (IPv4 or IPv6) as socket calls take it. Returns its bytes.
 */
socklen_t gyre_sock_to_sockaddr(const struct gyre_sock_address *address,
                                struct sockaddr_storage *out);

/** gyre_sock_to_text - "10.0.0.1:4242" or "[fe80::1%2]:4242". @text_out: >= 64 bytes. */
const char *gyre_sock_to_text(const struct gyre_sock_address *address, char *text_out,
                              size_t text_bytes);

/* ---- lists of addresses ---------------------------------------------------------------------- */

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
