/* SPDX-License-Identifier: Apache-2.0
 *
 * A round is some groups of calls, then all streams are waited for and everything is compared. All
 * ranks of a communicator derive its calls from the same numbers; a rank's own affairs (streams,
 * places in memory, pauses) come from generators of its own.
 */
#ifndef GYRE_TESTS_FUZZ_RANK_H
#define GYRE_TESTS_FUZZ_RANK_H

#include "tests/fuzz/device/device.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/calls/values.h"

#include <stdatomic.h>

enum {
    FUZZ_N_SLOTS = 4,    /* communicators at a time; slot 0 has all ranks */
    FUZZ_N_STREAMS = 3,  /* of a rank */
    FUZZ_MAX_GROUPS = 3, /* of a round */
    FUZZ_MAX_GROUP_CALLS = 6,
    FUZZ_MAX_MESSAGES = 3, /* of one send/receive pattern and rank */
    FUZZ_MAX_CALLS = FUZZ_MAX_GROUPS * FUZZ_MAX_GROUP_CALLS * FUZZ_MAX_MESSAGES,
    FUZZ_GUARD_BYTES = 96, /* before and after each buffer */
    FUZZ_SLACK_BYTES = 2 * FUZZ_GUARD_BYTES + 64 + 256
};

/** As it must be, computed without gyre. */
struct fuzz_comm {
    gyre_comm *handle; /* NULL: none in this slot */
    int n_ranks, rank, slot;
    uint64_t uid; /* the same on its ranks only */
    bool has_window, has_registration;
    gyre_window window;
    gyre_registration registration;
};

enum fuzz_collective {
    FUZZ_ALL_REDUCE,
    FUZZ_BROADCAST,
    FUZZ_REDUCE,
    FUZZ_ALL_GATHER,
    FUZZ_REDUCE_SCATTER,
    FUZZ_ALL_TO_ALL,
    FUZZ_GATHER,
    FUZZ_SCATTER,
    FUZZ_SEND_RECV,
    FUZZ_N_COLLECTIVES
};

/** Guard, data, guard. In bytes from the buffer's start. */
struct fuzz_region {
    size_t first, data, end;
};

enum fuzz_fate {
    FUZZ_MADE,     /* the usual case */
    FUZZ_CANCELED, /* by gyre_group_cancel(): no buffer changes */
    FUZZ_LEFT_OUT  /* by --only or --stop-at: its result is written without gyre */
};

/** A call, or a message of a pattern, as this rank takes part in it. */
struct fuzz_call {
    const struct fuzz_comm *comm;
    long index; /* in the sequence */
    enum fuzz_collective kind;
    enum fuzz_fate fate;
    struct fuzz_values values;
    int root;
    bool is_in_place;  /* on this rank */
    bool has_in_place; /* on some rank */
    bool is_windowed;
    int stream;
    int chain;                    /* the call whose result this one sends; -1: none */
    int to, from;                 /* peers of a message; -1: none */
    size_t count, n_send, n_recv; /* n_: elements that this rank's buffers hold */
    struct fuzz_region send, recv;
    gyre_op op;
};

struct fuzz_group {
    int first, n_calls;
    bool is_grouped, is_nested, is_canceled;
    bool is_divided; /* messages only, which each rank divides by itself */
};

struct fuzz_rank {
    int world_rank, ordinal;
    const struct fuzz_device *device;
    struct fuzz_comm comms[FUZZ_N_SLOTS];
    long n_worlds; /* world communicators made so far */
    gyre_stream streams[FUZZ_N_STREAMS];
    struct fuzz_rng own; /* of this rank; draws never depend on time */

    struct fuzz_call calls[FUZZ_MAX_CALLS];
    struct fuzz_group groups[FUZZ_MAX_GROUPS];
    int n_calls, n_groups, n_replays; /* n_replays > 0: captured in a graph */
    bool is_of_one_comm;              /* the round's calls have one communicator */

    uint8_t *send, *recv;     /* on the device */
    uint8_t *seen, *expected; /* one region each, in host memory */
    size_t arena_bytes;       /* of send; recv has the windows' parts after as much */
    size_t part_bytes;        /* of each slot in the windows */
    size_t send_used, recv_used, part_used[FUZZ_N_SLOTS]; /* in this round */

    _Atomic(const char *) phase; /* for messages */
    atomic_long round;
    atomic_int issuing; /* which of `calls` */
};

/** The rank goes on with this. @phase: a literal. */
void fuzz_rank_phase(struct fuzz_rank *rank, const char *phase);

#endif
