/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of packets between each pair of hosts, by the kernel's own TCP and UDP: whether
 * connections come about (firewalls), and how large a packet may be that must not be cut (MTU). One
 * pair is tried at a time, in both directions.
 */
#ifndef GYRE_BENCH_DOCTOR_PATHS_H
#define GYRE_BENCH_DOCTOR_PATHS_H

#include "bench/doctor/hosts.h"
#include "core/foundation/base/sock.h"

#define BENCH_MAX_PATHS      256
#define BENCH_PATH_MAX_BYTES 16384 /* of a packet */

/* Where a process listens. Processes all-gather it. */
struct bench_path_listener {
    struct gyre_sock_address tcp, udp;
    char name[16]; /* of the interface */
    int32_t status;
    char cause[160];
};

/* What a process knows of a step. Processes all-gather it. */
struct bench_path_note {
    int32_t is_over; /* process 0: the time is up */
    int32_t error;   /* errno of the TCP connection */
    int32_t limit;   /* sender: the largest packet that its interface takes */
    int32_t known;   /* sender: the largest packet that its kernel knows to pass (path MTU) */
    int32_t n_bytes; /* receiver: the largest packet that came; 0 = none */
};

struct bench_path_pair {
    int from, to;
    struct bench_path_note note; /* of both ends together */
};

struct bench_paths {
    struct bench_hosts hosts;
    struct bench_path_listener *listeners; /* by process */
    struct bench_path_pair pairs[BENCH_MAX_PATHS];
    int n_pairs;          /* that were tried */
    int n_all;            /* that the job has */
    const char *why_left; /* why the other pairs were not tried; NULL = all were */
    gyre_status status;
    char cause[256];
};

/** bench_paths_measure - try all pairs, as far as time allows. Collective. The result, or the
 * failure, is in the returned object. NULL = there is no memory for it. Freed by
 * bench_paths_free(). */
struct bench_paths *bench_paths_measure(struct bench_doctor *doctor);

#endif
