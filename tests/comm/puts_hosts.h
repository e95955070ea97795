/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that a proxy serves, for the tests of one-sided calls: threads that count as several hosts,
 * and processes without shared memory.
 */
#ifndef GYRE_TESTS_PUTS_HOSTS_H
#define GYRE_TESTS_PUTS_HOSTS_H

#include "tests/support/ranks.h"

#include <pthread.h>
#ifdef TEST_WITH_VERBS
#include "tests/nic/verbs_memory.h"
#endif

/* ---- threads as hosts ---------------------------------------------------------------------- */

/* Run `run` on n_hosts hosts of n_per_host ranks, all of them threads. Each rank reads GYRE_HOSTID
 * in its own call of init, and one thread makes these calls. */
static inline void on_hosts(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    const int n_ranks = n_hosts * n_per_host;
    gyre_comm *comms[TEST_MAX_RANKS];
    struct test_thread threads[TEST_MAX_RANKS];
    gyre_unique_id id;
    test_had_threads = true;
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < n_ranks; rank++) {
        const gyre_config config = test_config(rank);
        char host[16];
        snprintf(host, sizeof(host), "host%d", rank / n_per_host);
        setenv("GYRE_HOSTID", host, 1);
        CHECK_OK(gyre_comm_init_rank(&comms[rank], n_ranks, &id, rank, &config));
    }
    CHECK_OK(gyre_group_end());
    unsetenv("GYRE_HOSTID");
    if (test_n_failures > 0)
        return;
    for (int rank = 0; rank < n_ranks; rank++) {
        threads[rank] = (struct test_thread){0, comms[rank], rank, n_ranks, run, argument};
        pthread_create(&threads[rank].thread, NULL, test_thread_main, &threads[rank]);
    }
    for (int rank = 0; rank < n_ranks; rank++)
        pthread_join(threads[rank].thread, NULL);
}

static inline void over_sockets(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    setenv("GYRE_NET", "Socket", 1);
    on_hosts(n_hosts, n_per_host, run, argument);
    unsetenv("GYRE_NET");
}

#ifdef TEST_WITH_VERBS
static inline void over_rdma(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    CHECK(vm_install(vm_one_nic));
    setenv("GYRE_NET", "IB", 1);
    on_hosts(n_hosts, n_per_host, run, argument);
    unsetenv("GYRE_NET");
    CHECK(vm_uninstall());
}
#endif

static inline void over_networks(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    over_sockets(n_hosts, n_per_host, run, argument);
#ifdef TEST_WITH_VERBS
    over_rdma(n_hosts, n_per_host, run, argument);
#endif
}

/* Run `run` on processes of one host that share no memory, so all pairs go by sockets. */
static inline void set_apart(bool is_apart)
{
    if (is_apart)
        setenv("GYRE_SHM_DISABLE", "1", 1);
    else
        unsetenv("GYRE_SHM_DISABLE");
}

static inline void on_processes(int n_ranks, test_rank_fn run, void *argument)
{
    set_apart(true);
    test_on_processes(n_ranks, run, argument);
    set_apart(false);
}

#endif
