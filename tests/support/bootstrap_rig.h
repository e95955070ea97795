/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's end of the bootstrap on loopback.
 */
#ifndef GYRE_TESTS_BOOTSTRAP_RIG_H
#define GYRE_TESTS_BOOTSTRAP_RIG_H

#include "bootstrap/bootstrap_wire.h"
#include "tests/support/check.h"

#define MAX_RANKS     8
#define TIMEOUT_NS    30000000000ULL
#define EVENT_WAIT_MS 20000

static inline gyre_status open_tcp(const struct gyre_params *params, const gyre_unique_id *id,
                                   int n_ranks, int rank, struct gyre_bootstrap **bootstrap_out)
{
    const struct gyre_bootstrap_place place = {n_ranks, rank, NULL};
    gyre_unique_id own = *id;
    GYRE_TRY(gyre_unique_id_settle(params, &place, TIMEOUT_NS, &own));
    return gyre_bootstrap_tcp_open(params, &own, &place, bootstrap_out);
}

static inline struct gyre_params params_with(const char *timeout)
{
    struct gyre_params params;
    char text[64];
    char ifname[] = "GYRE_SOCKET_IFNAME==lo";
    char family[] = "GYRE_SOCKET_FAMILY=AF_INET";
    char *environment[] = {text, ifname, family, NULL};
    snprintf(text, sizeof(text), "GYRE_BOOTSTRAP_TIMEOUT=%s", timeout);
    CHECK_OK(gyre_params_from(environment, &params));
    return params;
}

/* Below Linux's ephemeral ports, so that the kernel gives it to no other program meanwhile. */
static inline int free_port(void)
{
    for (unsigned tries = 0; tries < 100; tries++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const unsigned spread = (unsigned)now.tv_nsec / 64 + (unsigned)getpid() * 251;
        const uint16_t port = (uint16_t)(10000 + spread % 22000);
        const struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const bool is_free = bind(fd, (const struct sockaddr *)&name, sizeof(name)) == 0;
        close(fd);
        if (is_free)
            return port;
    }
    CHECK_MSG(false, "%s", "no port is free");
    return 0;
}

/* The rendezvous', for strangers. */
static inline struct gyre_sock_address address_of(const struct gyre_id_layout *layout)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    CHECK(gyre_sock_list_read(&layout->list, addresses) > 0);
    return addresses[0];
}

static inline struct gyre_event next_event(struct gyre_bootstrap *bootstrap)
{
    struct gyre_event event;
    CHECK_OK(bootstrap->ops->poll(bootstrap, EVENT_WAIT_MS, &event));
    return event;
}

#endif
