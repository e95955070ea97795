/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures copies between each pair of devices of this machine, in both directions, through gyre's
 * own calls. The copies are verified and limited in time. A copy may hang even if the driver claims
 * to support it, so a child process, which can be killed, makes the copies.
 */
#ifndef GYRE_BENCH_DOCTOR_PAIRS_H
#define GYRE_BENCH_DOCTOR_PAIRS_H

#include "core/foundation/base/status.h"

#include <stdint.h>

#define BENCH_MAX_PAIR_DEVICES 32

enum bench_pair_event_kind {
    BENCH_PAIR_COUNT, /* `from` is the number of devices; comes first */
    BENCH_PAIR_START, /* the copy from -> to begins */
    BENCH_PAIR_DONE,
    BENCH_PAIR_FAILED, /* the cause says why; ends everything. from < 0: before the first pair */
    BENCH_PAIR_END
};

/* The child writes these to a pipe: fixed layout, less than PIPE_BUF. */
struct bench_pair_event {
    int32_t kind;
    int32_t from;
    int32_t to;
    double latency_us; /* of a call of 8 bytes, launch and synchronisation included */
    double gbytes_per_s;
    char cause[256];
};

/* Measures in the child. It tells each event with bench_pair_tell(fd, ...). */
typedef void bench_pairs_function(int fd, int kind);

struct bench_pairs {
    int n;
    double latency_us[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES]; /* NAN = not measured */
    double gbytes_per_s[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES];
    int from; /* the last pair that began; -1 = none */
    int to;
};

void bench_pair_tell(int fd, const struct bench_pair_event *event);

/** bench_pairs_measure - the function for bench_pairs_run(). @kind: a gyre_device_kind. On the host
 * there are three devices. */
void bench_pairs_measure(int fd, int kind);

/** bench_pairs_run - run `measure` in a child process and collect its events.
 * @timeout_ms: the child is ended if no event comes for so long.
 * @pairs_out: set also on failure, as far as it is known. Errors: TIMEOUT (pairs_out says at which
 * pair), DEVICE with the child's cause, SYSTEM. */
gyre_status bench_pairs_run(bench_pairs_function *measure, int kind, int timeout_ms,
                            struct bench_pairs *pairs_out);

#endif
