/* SPDX-License-Identifier: Apache-2.0
 *
 * The network interfaces of the root, and gyre's choice among them.
 */
#ifndef GYRE_BENCH_DOCTOR_NET_H
#define GYRE_BENCH_DOCTOR_NET_H

#include "bench/doctor/doctor.h"
#include "core/foundation/base/sock.h"

#define BENCH_MAX_NETDEVS   4096
#define BENCH_MAX_ADDRESSES 8192

struct bench_netdev {
    char name[16];
    char kind[16];      /* "physical", "bond", "vlan", "bridge", "loopback", "virtual" */
    char parent[16];    /* of a VLAN: the interface below it; "" = none or unknown */
    char master[16];    /* the bond or bridge that it is part of; "" = none */
    char duplex[16];    /* "full", "half", "unknown", "" */
    bool is_up;         /* the administrator has enabled it */
    bool has_link;      /* and there is a carrier */
    int64_t mtu;        /* 0 = unknown */
    int64_t mbit_per_s; /* 0 = unknown */
};

struct bench_net {
    struct bench_netdev devices[BENCH_MAX_NETDEVS];
    int n_devices;
    struct gyre_sock_interface addresses[BENCH_MAX_ADDRESSES];
    int n_addresses;
    struct gyre_sock_interface chosen[BENCH_MAX_ADDRESSES]; /* best first */
    int n_chosen;
    gyre_status status; /* of the choice; the cause is in `cause` */
    char cause[512];
};

/** bench_net_read - read the interfaces and addresses, and make the library's choice among them.
 * The addresses of this machine come from getifaddrs(), those of another root from proc/net. Freed
 * by the caller; NULL if there is no memory. */
struct bench_net *bench_net_read(const struct bench_doctor *doctor);

/** bench_net_addresses_of_proc - IPv4 addresses from proc/net/fib_trie and proc/net/route, IPv6
 * from proc/net/if_inet6. Returns their number. */
int bench_net_addresses_of_proc(const char *root, const struct bench_net *net,
                                struct gyre_sock_interface *addresses_out);

/** bench_net_find - the interface with this name, or NULL. */
const struct bench_netdev *bench_net_find(const struct bench_net *net, const char *name);

/** bench_net_first - the interface that gyre uses, or NULL if there is none but loopback. */
const struct bench_netdev *bench_net_first(const struct bench_net *net);

/** bench_net_real - the name of the interface of an adapter or bond that is most likely meant for
 * other hosts: one that has a link, else one that is enabled, else any. "" = there is none. */
const char *bench_net_real(const struct bench_net *net);

/** bench_net_host_text - "10.0.0.1/24". Returns text_out. */
const char *bench_net_host_text(const struct gyre_sock_interface *interface, char *text_out,
                                size_t text_bytes);

#endif
