/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP with deadlines on gyre_now_ns(). Sockets are non-blocking, close-on-exec, TCP_NODELAY, with
 * keepalive; sends never raise SIGPIPE. A forked child closes them.
 */
#ifndef GYRE_BASE_SOCK_H
#define GYRE_BASE_SOCK_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Ranks send it to each other: fixed layout. */
struct gyre_sock_address {
    uint16_t family; /* AF_INET or AF_INET6 */
    uint16_t port;   /* host order */
    uint32_t scope;  /* of a link-local address, for its owner */
    uint8_t bytes[16];
};

#define GYRE_MAX_INTERFACES 32

struct gyre_sock_interface {
    char name[16];
    struct gyre_sock_address address;
    uint8_t prefix_bits; /* 24 of 10.0.0.1/24 */
    bool is_up;
    bool is_running;
    bool is_loopback;
    bool has_default_route;
};

/** Freed by the caller. */
gyre_status gyre_sock_interfaces(struct gyre_sock_interface **interfaces_out, int *n_out);

/** Pure. Applies SOCKET_IFNAME's rules, best first. Without a rule: ib*, those with a default
 * route, other real ones, virtual ones, those without a link, loopback; second addresses last
 * within a kind. @ifname: [^][=]name,... or ""; its order counts. @family: AF_INET, AF_INET6 or 0 =
 * both. @chosen_out: room for n. Errors, listing the interfaces: INVALID_ARGUMENT (none matches;
 * without the variables' names), SYSTEM (no rule). */
gyre_status gyre_sock_select(const struct gyre_sock_interface *interfaces, int n,
                             const char *ifname, int family, struct gyre_sock_interface *chosen_out,
                             int *n_chosen_out);

/** Where other ranks may reach this process, best first. Loopback and link-local IPv6 only for want
 * of better. @addresses_out: GYRE_MAX_INTERFACES entries. *n_out is at least 1 on success. */
gyre_status gyre_sock_list_addresses(const struct gyre_params *params,
                                     struct gyre_sock_interface *addresses_out, int *n_out);

/** Puts first the interface of a rank among its host's n_positions, if @ifname lists several names
 * without "^". Pure. Returns how many interfaces the ranks use, at least 1. */
int gyre_sock_spread(struct gyre_sock_interface *addresses, int n, const char *ifname, int position,
                     int n_positions);

gyre_status gyre_sock_choose(const struct gyre_params *params,
                             struct gyre_sock_interface *chosen_out);

/** Sorts another host's addresses: first those in a subnet of `own`, last those that `own` has
 * (both may have a bridge 172.17.0.1). */
void gyre_sock_order_for(const struct gyre_sock_interface *own, int n_own,
                         struct gyre_sock_address *addresses, int n_addresses);

/** Gives another host's link-local addresses this host's scopes, one for each running interface of
 * `own` with a link-local address. @addresses: room for n_max. Returns their new number. */
int gyre_sock_localise(const struct gyre_sock_interface *own, int n_own,
                       struct gyre_sock_address *addresses, int n, int n_max);

const char *gyre_sock_describe_interfaces(char *text_out, size_t text_bytes);

/** With the port. */
gyre_status gyre_sock_own_address(int fd, struct gyre_sock_address *address_out);
gyre_status gyre_sock_peer_address(int fd, struct gyre_sock_address *address_out);

bool gyre_sock_is_loopback(const struct gyre_sock_address *address);
bool gyre_sock_is_link_local(const struct gyre_sock_address *address);

/** Ignores ports and scopes. */
bool gyre_sock_is_same_host(const struct gyre_sock_address *a, const struct gyre_sock_address *b);

/** On a port of the kernel's choice. */
gyre_status gyre_sock_listen(const struct gyre_sock_address *address, int *fd_out,
                             struct gyre_sock_address *bound_out);

gyre_status gyre_sock_accept(int listen_fd, uint64_t deadline_ns, int *fd_out);

/** Retries refused connections. Errors: TIMEOUT, SYSTEM. */
gyre_status gyre_sock_connect(const struct gyre_sock_address *address, uint64_t deadline_ns,
                              int *fd_out);

/** Does the host refuse the connection? */
bool gyre_sock_is_refused(const struct gyre_sock_address *address, uint64_t deadline_ns);

/** The only way to close such a socket. */
void gyre_sock_close(int fd);

/** As socket(2) and accept4(2); -1 with errno. */
int gyre_sock_new(int family);
int gyre_sock_take(int listen_fd);

/** Exactly n bytes. Errors: TIMEOUT, REMOTE (closed), SYSTEM. */
gyre_status gyre_sock_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns);
gyre_status gyre_sock_recv(int fd, void *bytes, size_t n_bytes, uint64_t deadline_ns);

/** Family 0 = neither IPv4 nor IPv6. The latter returns the name's bytes. */
struct gyre_sock_address gyre_sock_from_sockaddr(const struct sockaddr *name);
socklen_t gyre_sock_to_sockaddr(const struct gyre_sock_address *address,
                                struct sockaddr_storage *out);

/** "10.0.0.1:4242" or "[fe80::1%2]:4242". @text_out: >= 64 bytes. */
const char *gyre_sock_to_text(const struct gyre_sock_address *address, char *text_out,
                              size_t text_bytes);

#define GYRE_SOCK_LIST_MAX 8 /* IPv6 takes the room of almost three */

/* Ranks send it to each other: fixed layout. All zero = nowhere. Best address first. */
struct gyre_sock_list {
    uint64_t network; /* hash of host and network namespace, where loopback works */
    uint8_t packed[56];
};

struct gyre_sock_listeners {
    int n;
    int fds[GYRE_SOCK_LIST_MAX];
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
};

gyre_status gyre_sock_network(uint64_t *network_out);

/** On as many of gyre_sock_list_addresses() as fit. @first: leads if among them, port ignored; NULL
 * = none. Errors: as there, SYSTEM. */
gyre_status gyre_sock_listen_all(const struct gyre_params *params,
                                 const struct gyre_sock_address *first,
                                 struct gyre_sock_listeners *listeners_out,
                                 struct gyre_sock_list *list_out);

void gyre_sock_close_all(struct gyre_sock_listeners *listeners);

bool gyre_sock_list_pack(struct gyre_sock_list *list, const struct gyre_sock_address *address);

/** @addresses_out: GYRE_SOCK_LIST_MAX entries. Returns their number; 0 = malformed. */
int gyre_sock_list_read(const struct gyre_sock_list *list, struct gyre_sock_address *addresses_out);

/** What this process may try, best first. Errors: INVALID_USAGE (only another host's loopback),
 * INVALID_ARGUMENT (no list), SYSTEM. */
gyre_status gyre_sock_list_targets(const struct gyre_sock_list *list,
                                   struct gyre_sock_address *addresses_out, int *n_out);

const char *gyre_sock_list_to_text(const struct gyre_sock_address *addresses, int n, char *text_out,
                                   size_t text_bytes);

#endif
