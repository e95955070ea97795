/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks find each other, gather set-up data and watch each other: over TCP, through the
 * rendezvous server that the unique id names, or in the memory of one process (threads). Every wait
 * has a deadline; a peer proves that it knows the job's secret before a byte of it is used.
 */
#ifndef GYRE_BOOTSTRAP_BOOTSTRAP_H
#define GYRE_BOOTSTRAP_BOOTSTRAP_H

#include "core/foundation/base/thread.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/status.h"

#define GYRE_SECRET_BYTES      32
#define GYRE_MESSAGE_MAX_BYTES 2048

enum gyre_event_kind {
    GYRE_EVENT_NONE,
    GYRE_EVENT_MESSAGE,
    GYRE_EVENT_LOST, /* gone without a goodbye */
    GYRE_EVENT_LEFT
};

struct gyre_event {
    enum gyre_event_kind kind;
    int rank;
    uint32_t n_bytes;
    union {
        uint8_t message[GYRE_MESSAGE_MAX_BYTES];
        char text[256]; /* "pid 4321 on hostB closed its connection", or "" */
    };
};

struct gyre_bootstrap_ops;

struct gyre_bootstrap {
    const struct gyre_bootstrap_ops *ops;
    int rank;
    int n_ranks;
    uint8_t secret[GYRE_SECRET_BYTES];
    const struct gyre_fault *fault;       /* raised: waits end; NULL = never */
    struct gyre_sock_address own_address; /* of the link to the rendezvous; family 0 = none */
    int server_rank;                      /* the lowest rank in the server's process; -1 = none */
    char server_text[96];                 /* "pid 4321 on hostB"; "" = this process */
};

static inline bool gyre_bootstrap_is_cancelled(const struct gyre_bootstrap *bootstrap)
{
    return bootstrap->fault != NULL && gyre_fault_is_raised(bootstrap->fault);
}

struct gyre_bootstrap_ops {
    const char *name;
    /* Collective over all ranks. @mine: n_bytes, the same on all ranks and at most 16 MiB /
     * n_ranks. @all_out: by rank. Errors: TIMEOUT naming the ranks that are missing, REMOTE naming
     * the rank that died or failed and its reason. */
    gyre_status (*all_gather)(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                              void *all_out);
    /* Each rank may give another number of bytes. *all_out is malloc'ed. Rank r's bytes start at
     * offsets_out[r], and offsets_out[n_ranks] is the end. */
    gyre_status (*all_gather_v)(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                                void **all_out, size_t *offsets_out);
    /* Could a collective still succeed? Does not wait, so that a rank that waits for a data
     * connection also notices the end of another rank. Not while another thread polls. Errors:
     * those of all_gather, ABORTED when the fault is raised. */
    gyre_status (*check)(struct gyre_bootstrap *bootstrap);
    /* Give up while the other ranks wait in a collective. They get REMOTE with this text. */
    void (*fail)(struct gyre_bootstrap *bootstrap, const char *text);

    /* After set-up: send a small message to one rank, or to all others (@rank -1). Never blocks
     * long; any thread. */
    gyre_status (*post)(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                        size_t n_bytes);
    /* One thread only. wake() ends the wait early with NONE. */
    gyre_status (*poll)(struct gyre_bootstrap *bootstrap, int timeout_ms,
                        struct gyre_event *event_out);
    void (*wake)(struct gyre_bootstrap *bootstrap);
    /* From now on the end of this rank is no fault. */
    void (*leave)(struct gyre_bootstrap *bootstrap);
    void (*close)(struct gyre_bootstrap *bootstrap);
};

gyre_status gyre_unique_id_create(const struct gyre_params *params, gyre_unique_id *id_out);

/** The id that every process makes itself from COMM_ID. Errors: INVALID_ARGUMENT. */
gyre_status gyre_unique_id_at_address(const struct gyre_params *params, gyre_unique_id *id_out);

struct gyre_bootstrap_place {
    int n_ranks;
    int rank;
    const struct gyre_fault *fault; /* raised: give up within about a second; NULL = never */
};

/** Replace an id of gyre_unique_id_at_address() by rank 0's. Errors: those of gyre_meet_open(). */
gyre_status gyre_unique_id_settle(const struct gyre_params *params,
                                  const struct gyre_bootstrap_place *place, uint64_t timeout_ns,
                                  gyre_unique_id *id);

/** Returns when all n_ranks joined. Errors: INVALID_ARGUMENT (not an id, rank out of range),
 * INVALID_USAGE (rank taken, n_ranks or build differ), TIMEOUT (names the missing ranks), ABORTED
 * (place->fault was raised), SYSTEM. */
gyre_status gyre_bootstrap_tcp_open(const struct gyre_params *params, const gyre_unique_id *id,
                                    const struct gyre_bootstrap_place *place,
                                    struct gyre_bootstrap **bootstrap_out);

/** Tell the other ranks, instead of joining, that this rank's init failed. Takes at most two
 * seconds and keeps the thread's cause. */
void gyre_bootstrap_tcp_give_up(const gyre_unique_id *id, const struct gyre_bootstrap_place *place,
                                const char *text);

/** For threads of this process. @bootstraps_out: n_ranks entries, each used and closed by its
 * rank. */
gyre_status gyre_bootstrap_local_open(const struct gyre_params *params, int n_ranks,
                                      struct gyre_bootstrap **bootstraps_out);

/* ---- finding each other again -------------------------------------------------------------- *
 * The remaining ranks of a communicator make a new one, even if the server is dead. Each rank
 * listens from the start (the regroup listener); the lowest remaining one hands out the new unique
 * id. */

struct gyre_regroup_listener;

/** On all addresses of the bootstrap's interfaces. */
gyre_status gyre_regroup_listen(const struct gyre_params *params,
                                struct gyre_regroup_listener **listener_out,
                                struct gyre_sock_list *list_out);
void gyre_regroup_close(struct gyre_regroup_listener *listener);

/* A shrink. All members pass the same values, except for `rank`, `check` and `context`. */
struct gyre_regroup {
    const struct gyre_params *params;
    const uint8_t *secret;
    int rank; /* of the old communicator, as all ranks here */
    int n_ranks;
    const bool *is_member; /* by rank */
    bool may_lose_ranks;   /* members may not know the same list yet, because ranks may be dead */
    /* Polled while waiting; another status than SUCCESS ends the wait. @missing: by rank, the
     * awaited ones; NULL = not known. */
    gyre_status (*check)(void *context, const bool *missing);
    void *context;
    gyre_status failure; /* not SUCCESS: this rank cannot take part */
    const char *failure_text;
};

/** The lowest member waits for all others and gives them a new unique id. A rank whose list has
 * more members is told so and awaited again if ranks may be lost. Errors, of which all members are
 * told: the first failure of a member, INVALID_USAGE (a rank's list has other members), TIMEOUT
 * naming the missing ranks, REMOTE (a member joined and died), the status of check(). */
gyre_status gyre_regroup_serve(struct gyre_regroup_listener *listener,
                               const struct gyre_regroup *regroup, gyre_unique_id *id_out);

/** For all other members. @list: of the lowest member. Errors: REMOTE (the lowest member is gone),
 * those of gyre_regroup_serve(), TIMEOUT. */
gyre_status gyre_regroup_join(const struct gyre_sock_list *list, const struct gyre_regroup *regroup,
                              gyre_unique_id *id_out);

/** Both sides prove that they know the secret. @is_server: the accepting side. Errors: TIMEOUT,
 * REMOTE (wrong proof), SYSTEM. */
gyre_status gyre_authenticate(int fd, const uint8_t secret[GYRE_SECRET_BYTES], bool is_server,
                              uint64_t deadline_ns);

/** Start libcrypto on an application's thread, before a thread of the library makes a proof,
 * because libcrypto must not start while the process exits. */
void gyre_authenticate_prepare(void);

/** Free what libcrypto keeps for this thread. For the library's threads that nobody joins: at exit
 * libcrypto forgets it. */
void gyre_authenticate_release(void);

#endif
