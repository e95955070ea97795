/* SPDX-License-Identifier: Apache-2.0
 *
 * Over TCP through the unique id's rendezvous server, or in one process's memory (threads). A peer
 * first proves that it knows the job's secret.
 */
#ifndef GYRE_BOOTSTRAP_BOOTSTRAP_H
#define GYRE_BOOTSTRAP_BOOTSTRAP_H

#include "core/foundation/base/thread.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/status.h"

#define GYRE_SECRET_BYTES      32
#define GYRE_MESSAGE_MAX_BYTES 2048

/* LOST: gone without a goodbye. */
enum gyre_event_kind { GYRE_EVENT_NONE, GYRE_EVENT_MESSAGE, GYRE_EVENT_LOST, GYRE_EVENT_LEFT };

struct gyre_event {
    enum gyre_event_kind kind;
    int rank;
    uint32_t n_bytes;
    union {
        uint8_t message[GYRE_MESSAGE_MAX_BYTES];
        char text[256];
    };
};

struct gyre_bootstrap_ops;

struct gyre_bootstrap {
    const struct gyre_bootstrap_ops *ops;
    int rank;
    int n_ranks;
    uint8_t secret[GYRE_SECRET_BYTES];
    const struct gyre_fault *fault;       /* NULL = never raised */
    struct gyre_sock_address own_address; /* on the link to the rendezvous; family 0 = none */
    int server_rank;                      /* lowest rank in the server's process; -1 = none */
    char server_text[96];                 /* "" = this process */
};

static inline bool gyre_bootstrap_is_cancelled(const struct gyre_bootstrap *bootstrap)
{
    return bootstrap->fault != NULL && gyre_fault_is_raised(bootstrap->fault);
}

struct gyre_bootstrap_ops {
    const char *name;
    /* Collective. @n_bytes: the same on all ranks, at most 16 MiB / n_ranks. @all_out: by rank.
     * Errors: TIMEOUT naming the missing ranks, REMOTE naming the failed rank and its reason. */
    gyre_status (*all_gather)(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                              void *all_out);
    /* Each rank may give another n_bytes. *all_out is malloc'ed; rank r's bytes start at
     * offsets_out[r], and offsets_out[n_ranks] is the end. */
    gyre_status (*all_gather_v)(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                                void **all_out, size_t *offsets_out);
    /* Could a collective still succeed? Shows another rank's end to a rank that waits for data.
     * Does not wait. Not while a thread polls. Errors: those of all_gather, ABORTED. */
    gyre_status (*check)(struct gyre_bootstrap *bootstrap);
    /* The ranks that wait in a collective get REMOTE with this text. */
    void (*fail)(struct gyre_bootstrap *bootstrap, const char *text);

    /* After set-up. @rank: -1 = all others. Never blocks long; any thread. */
    gyre_status (*post)(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                        size_t n_bytes);
    /* One thread only. wake() ends the wait early with NONE. */
    gyre_status (*poll)(struct gyre_bootstrap *bootstrap, int timeout_ms,
                        struct gyre_event *event_out);
    void (*wake)(struct gyre_bootstrap *bootstrap);
    /* The end of this rank is no fault any more. */
    void (*leave)(struct gyre_bootstrap *bootstrap);
    void (*close)(struct gyre_bootstrap *bootstrap);
};

gyre_status gyre_unique_id_create(const struct gyre_params *params, gyre_unique_id *id_out);

/** Every process makes the same id from COMM_ID. Errors: INVALID_ARGUMENT. */
gyre_status gyre_unique_id_at_address(const struct gyre_params *params, gyre_unique_id *id_out);

struct gyre_bootstrap_place {
    int n_ranks;
    int rank;
    const struct gyre_fault *fault; /* raised: give up within a second; NULL = never */
};

/** Replaces an id of gyre_unique_id_at_address() by rank 0's. Errors: those of gyre_meet_open(). */
gyre_status gyre_unique_id_settle(const struct gyre_params *params,
                                  const struct gyre_bootstrap_place *place, uint64_t timeout_ns,
                                  gyre_unique_id *id);

/** Returns when all ranks joined. Errors: INVALID_ARGUMENT (not an id, rank out of range),
 * INVALID_USAGE (rank taken, n_ranks or build differ), TIMEOUT (names missing ranks), ABORTED,
 * SYSTEM. */
gyre_status gyre_bootstrap_tcp_open(const struct gyre_params *params, const gyre_unique_id *id,
                                    const struct gyre_bootstrap_place *place,
                                    struct gyre_bootstrap **bootstrap_out);

/** Instead of joining, tells the other ranks that this rank's init failed. Takes at most two
 * seconds and keeps the thread's cause. */
void gyre_bootstrap_tcp_give_up(const gyre_unique_id *id, const struct gyre_bootstrap_place *place,
                                const char *text);

/** For threads of this process. Each rank uses and closes its own entry. */
gyre_status gyre_bootstrap_local_open(const struct gyre_params *params, int n_ranks,
                                      struct gyre_bootstrap **bootstraps_out);

/* The remaining ranks of a communicator make a new one, even if the server is dead. Every rank
 * listens from the start; the lowest remaining one hands out the new unique id. */

/* A shrink. Only `rank`, `check` and `context` differ between members. */
struct gyre_regroup {
    const struct gyre_params *params;
    const uint8_t *secret;
    int rank;
    int n_ranks;
    const bool *is_member;
    bool may_lose_ranks; /* ranks may be dead, so members may not know the same list yet */
    /* Polled; a failure ends the wait. @missing: the awaited ranks; NULL = not known. */
    gyre_status (*check)(void *context, const bool *missing);
    void *context;
    gyre_status failure; /* not SUCCESS: this rank cannot take part */
    const char *failure_text;
};

/** The lowest member waits for all others. If ranks may be lost, a rank whose list has more members
 * is told so and awaited again. All members get the same error: the first failure of a member,
 * INVALID_USAGE (lists differ), TIMEOUT naming missing ranks, REMOTE (a member died), check()'s. */
gyre_status gyre_regroup_serve(const struct gyre_sock_listeners *listeners,
                               const struct gyre_regroup *regroup, gyre_unique_id *id_out);

/** @list: of the lowest member. Errors: those of gyre_regroup_serve(), REMOTE (lowest member gone),
 * TIMEOUT. */
gyre_status gyre_regroup_join(const struct gyre_sock_list *list, const struct gyre_regroup *regroup,
                              gyre_unique_id *id_out);

/** Both sides prove that they know the secret. Errors: TIMEOUT, REMOTE (wrong proof), SYSTEM. */
gyre_status gyre_authenticate(int fd, const uint8_t secret[GYRE_SECRET_BYTES], bool is_server,
                              uint64_t deadline_ns);

/** Starts libcrypto on an application's thread, before a thread of the library needs it, because
 * libcrypto must not start while the process exits. */
void gyre_authenticate_prepare(void);

/** Frees what libcrypto keeps for this thread, for threads of the library that nobody joins. */
void gyre_authenticate_release(void);

#endif
