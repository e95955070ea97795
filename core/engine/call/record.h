/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a rank's calls, their comparison between ranks, and their text in an error. A rank
 * posts a record of every call in its own call log and waits for no other rank; call logs are
 * compared only when a wait stalls (core/engine/health/health_calls.c) or when GYRE_CHECK=calls
 * asks for it.
 */
#ifndef GYRE_CALL_RECORD_H
#define GYRE_CALL_RECORD_H

#include "core/foundation/model/types.h"

#include <pthread.h>

/* The record of one call. Ranks send it to each other, so its layout is fixed. */
struct gyre_record {
    uint64_t sequence; /* collectives: n-th of the communicator; point to point: n-th of this pair
                        * and direction; from 1, 0 = no call */
    uint64_t count;
    uint8_t coll; /* enum gyre_collective; SEND_RECV for both directions */
    uint8_t dtype;
    uint8_t op; /* 0 where nothing is reduced; GYRE_FIRST_USER_OP for every user operation */
    uint8_t is_send;
    int32_t root;           /* or the peer; -1 where the collective has none */
    uint64_t window_offset; /* of recv, where data may be placed */
    uint32_t window;        /* in which; 0 = none */
    uint32_t terms;         /* hash of the call's own terms; 0 = it has none */
};

_Static_assert(sizeof(struct gyre_record) == 40, "exchanged between ranks");

/** gyre_record_text - "all_reduce(1048576 B, 262144 x float sum, seq 41)". @text_out: >= 128
 * bytes. */
const char *gyre_record_text(const struct gyre_record *record, char *text_out, size_t text_bytes);

/** gyre_record_signature - equal for calls that fit each other; travels with every slot.
 * @rank: the caller's, for point to point. */
uint32_t gyre_record_signature(const struct gyre_record *record, int rank);

/** gyre_record_same_place - are these two ranks' records of calls that must fit each other (the
 * same collective call number, or the two ends of the same message)? */
bool gyre_record_same_place(const struct gyre_record *a, int rank_a, const struct gyre_record *b,
                            int rank_b);

/** gyre_record_fits - given gyre_record_same_place: do they agree? */
bool gyre_record_fits(const struct gyre_record *a, const struct gyre_record *b);

#define GYRE_CALL_LOG_RECORDS 256
#define GYRE_CALL_LOG_WORKS   4096

/* The latest calls of one rank. Posted by the caller's thread, read by the health thread. */
struct gyre_call_log {
    pthread_mutex_t lock;
    uint64_t n_posted; /* record i (from 0) stands in records[i % GYRE_CALL_LOG_RECORDS] */
    uint64_t n_collectives;
    struct gyre_record records[GYRE_CALL_LOG_RECORDS];
    uint64_t record_of_work[GYRE_CALL_LOG_WORKS]; /* one writer: the caller; release */
};

void gyre_call_log_init(struct gyre_call_log *call_log);
void gyre_call_log_fini(struct gyre_call_log *call_log);

/** gyre_call_log_post - add a record; its index in the call log. A collective gets its number,
 * record->sequence. */
uint64_t gyre_call_log_post(struct gyre_call_log *call_log, struct gyre_record *record);

/** gyre_call_log_launched - work number `work`, as the executor counts them, carries out record
 * `record`. Before the launch. */
void gyre_call_log_launched(struct gyre_call_log *call_log, uint64_t work, uint64_t record);

/** gyre_call_log_record_of - the record that a work carries out, which must be one of the latest
 * GYRE_CALL_LOG_WORKS. Any thread. */
uint64_t gyre_call_log_record_of(const struct gyre_call_log *call_log, uint64_t work);

/** gyre_call_log_get - record `index`; false if it was not posted yet or was overwritten. */
bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out);

/** gyre_call_log_find - this rank's record that must fit the other rank's; false if there is none
 * (yet, or any more). */
bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out);

#endif
