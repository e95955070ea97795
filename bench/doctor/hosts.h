/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a job, and how processes tell each other how a step of a measurement went. The first
 * process of each host takes part in measurements between hosts; the others only gather.
 */
#ifndef GYRE_BENCH_DOCTOR_HOSTS_H
#define GYRE_BENCH_DOCTOR_HOSTS_H

#include "bench/doctor/doctor.h"

struct bench_hosts {
    int n;
    int *leaders;      /* n; process number of each host's first process */
    char (*names)[64]; /* n; "node1 (rank 0)", because one machine can count as several hosts */
    int me;            /* this process's host if it is the host's first process; else -1 */
};

/** bench_hosts_find - find the first process of each host, by the library's own notion of a host.
 * Collective. Freed by bench_hosts_free(), also after a failure. */
gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out);

void bench_hosts_free(struct bench_hosts *hosts);

/** bench_matrix_open - n rows without measurements; the caller fills in names and what.
 * Errors: OUT_OF_MEMORY. */
gyre_status bench_matrix_open(struct bench_matrix *matrix, int n);

/* The rates of a matrix. A pair is the index of its cell, row * n + column. */
struct bench_matrix_rates {
    int n_measured;
    int slow; /* pair with the lowest rate; -1 = nothing was measured */
    int fast; /* pair with the highest rate; likewise */
};

/** bench_matrix_rates - find the slowest and the fastest pair. */
struct bench_matrix_rates bench_matrix_rates(const struct bench_matrix *matrix);

#endif
