/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a job that the fault campaign attacks. Written against the installed header alone.
 */
#ifndef GYRE_TESTS_FAULTS_VICTIM_H
#define GYRE_TESTS_FAULTS_VICTIM_H

#include "core/gyre.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define VICTIM_MAX_ELEMS 65536 /* of one rank in one call */

struct victim_options {
    int n_ranks;
    int first_rank; /* this process runs ranks first_rank .. first_rank + n_threads - 1 */
    int n_threads;
    const char *directory; /* where rank 0 writes all rounds' ids */
    const char *phase;
    double run_s;
    uint64_t seed;
    int dead_rank;         /* survivors shrink without it; -1 = they do not */
    const char *misbehave; /* "", "hang" or "misname": what the campaign must notice */
};

struct victim_rank {
    const struct victim_options *options;
    int rank;
    gyre_comm *comm;
    gyre_comm *second; /* the phase's own communicator, if one is open */
    int32_t *in;
    int32_t *out;
    uint64_t random;
    uint64_t n_calls;
    double end_s;
    pthread_mutex_t lock; /* for a signal's abort, and the end of `comm` */
    bool is_done;
};

/** CLOCK_MONOTONIC, which the campaign reads as well. */
double victim_now_s(void);

/** One line "TIME RANK text". */
void victim_say(const struct victim_rank *own, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** An "error" line if the call failed, a "slow" line over 2 s. Returns the status. */
gyre_status victim_ended(const struct victim_rank *own, const char *call, gyre_comm *comm,
                         double began_s, gyre_status status);

#define VICTIM_TRY(own, call, comm, expr)                                           \
    do {                                                                            \
        const double began_s_ = victim_now_s();                                     \
        const gyre_status status_ = (expr);                                         \
        if (victim_ended((own), (call), (comm), began_s_, status_) != GYRE_SUCCESS) \
            return status_;                                                         \
    } while (0)

/** Of a random kind and size, awaited and checked. */
gyre_status victim_call(struct victim_rank *own, gyre_comm *comm);

/** One round; NULL if there is none of this name. It sets is_done once rank 0's time is over. */
typedef gyre_status (*victim_phase)(struct victim_rank *own);
victim_phase victim_find_phase(const char *name);

/** Anew for each round of this phase. */
bool victim_makes_comm(const char *phase);

/** victim_init / victim_destroy - own->comm, by the id of the next round. */
gyre_status victim_init(struct victim_rank *own);
gyre_status victim_destroy(struct victim_rank *own);

#endif
