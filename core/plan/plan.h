/* SPDX-License-Identifier: Apache-2.0
 *
 * From a call to something an executor can launch: (collective, bytes, dtype, op) -> algorithm,
 * protocol, channels, tile -> program, loaded once and cached. A plan is made locally from what all
 * ranks agreed on at init, so all ranks make the same.
 */
#ifndef GYRE_COMM_PLAN_H
#define GYRE_COMM_PLAN_H

#include "algorithms/simulate.h"
#include "kernels/executor.h"

struct gyre_comm;
struct gyre_params;

/* How results get into OUT. X(enum suffix, word) */
#define GYRE_PATH_TABLE(X)                                                          \
    X(STAGED, staged)           /* through slots, whose receiver copies them out */ \
    X(PLACED, placed)           /* written into a peer's window by the kernel */    \
    X(COPY_ENGINE, copy_engine) /* likewise, by copy engines: a program's last part */

enum gyre_path {
#define GYRE_PATH_ENUM(id, name) GYRE_PATH_##id,
    GYRE_PATH_TABLE(GYRE_PATH_ENUM)
#undef GYRE_PATH_ENUM
        GYRE_N_PATHS
};

extern const char *const gyre_path_names[GYRE_N_PATHS];

/* What the choice may depend on; the same on all ranks. */
struct gyre_tuner_facts {
    gyre_device_kind device_kind;
    uint32_t n_ranks;
    uint32_t n_hosts;
    bool is_proxied;      /* some pair of ranks talks through a proxy */
    bool is_ll128_safe;   /* every pair's 128-byte stores arrive whole (NVLink) */
    bool has_lamport;     /* the call is a sum that this protocol carries */
    bool is_plain;        /* nothing is multiplied or divided */
    bool in_window;       /* the call's result lies in a window */
    bool has_large_pages; /* that window, which copy engines need to be fast */
    uint32_t min_channels;
    uint32_t max_channels; /* already limited by the SM budget */
    struct gyre_fifo_spec spec;
    const struct gyre_grouping *grouping;
    const struct gyre_cost *cost; /* choose by prediction; NULL = by the tables of tuner.c */
};

/* What GYRE_TUNING_FILE says. */
struct gyre_tuning {
    bool is_set;
    struct gyre_cost cost;
    uint64_t hash; /* of the constants, not of the text; 0 = not set */
};

/** gyre_tuning_load - read a file of constants; those it does not name are gyre_cost_host's.
 * Errors: SYSTEM (it cannot be read), INVALID_ARGUMENT naming file, line and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);

/* How a call is carried out. */
struct gyre_choice {
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t tile_bytes; /* payload of one slot; a multiple of 16 */
    bool by_copy_engines;
};

/* Which algorithms, protocols and paths the user allows (GYRE_ALGO, GYRE_PROTO, GYRE_PATH). */
struct gyre_filter {
    /* Bit i = gyre_algorithms[i] allowed, per collective. */
    uint32_t algorithms[GYRE_N_COLLECTIVES];
    uint32_t protos[GYRE_N_COLLECTIVES];
    uint32_t paths[GYRE_N_COLLECTIVES];
    bool is_forced[GYRE_N_COLLECTIVES]; /* the user named algorithms for this collective */
    /* How messages name the user's words: "GYRE_ALGO", or what else the user gave them by. */
    const char *algo_source;
    const char *proto_source;
    const char *path_source;
};

/* A user's words about algorithms, protocols and paths, and how messages name each ("--algo"). A
 * NULL text leaves that part of a filter as it is. */
struct gyre_filter_words {
    const char *algos;
    const char *protos;
    const char *paths;
    const char *algo_source; /* sources live as long as the filter */
    const char *proto_source;
    const char *path_source;
};

/** gyre_filter_parse - "[^]ring,tree" or "all_reduce:ring;broadcast:^tree". Errors:
 * INVALID_ARGUMENT with the word and the legal ones. */
gyre_status gyre_filter_parse(const char *algos, const char *protos, const char *paths,
                              struct gyre_filter *filter_out);

/** gyre_filter_override - put the user's words in place of what the filter held before.
 * Errors: as gyre_filter_parse(), naming the source of the word; the filter is then unchanged. */
gyre_status gyre_filter_override(const struct gyre_filter_words *words, struct gyre_filter *filter);

/** gyre_filter_of - the same of parameters, which the filter then refers to. */
gyre_status gyre_filter_of(const struct gyre_params *params, struct gyre_filter *filter_out);

/** gyre_filter_allows - the algorithm, for this collective. */
bool gyre_filter_allows(const struct gyre_filter *filter, enum gyre_collective coll,
                        const struct gyre_algorithm *algorithm);

/** gyre_tuner_choose - the way to carry out a collective of `n_bytes` (of the vector, or of one
 * block where buffers are made of blocks). Pure. With facts->cost it simulates: tens of
 * microseconds for few ranks, up to a second for a thousand; cache the result by
 * gyre_tuner_size_class().
 * Errors: INVALID_USAGE when the filter leaves nothing that can do it, saying why. */
gyre_status gyre_tuner_choose(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_choose_fused - is this a call of middle size that a fused kernel carries in protocol
 * SIMPLE: an all-gather into windows, or a two-shot? If so, how. Pure. */
bool gyre_tuner_choose_fused(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                             enum gyre_collective coll, uint64_t n_bytes,
                             struct gyre_choice *choice_out);

/** gyre_tuner_all_bytes - of the vector; of all blocks where @n_bytes counts one. */
uint64_t gyre_tuner_all_bytes(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes);

/** gyre_tuner_size_class - the size that stands for all from the class below it: four classes from
 * a power of two to the next. Pure. */
uint64_t gyre_tuner_size_class(uint64_t n_bytes);

/** gyre_tuner_search - as gyre_tuner_choose, by facts->cost only. Pure.
 * @choice_out: algorithm is NULL when the filter leaves nothing that fits. */
gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out);

/** gyre_tuner_predict - how long a choice takes, by @cost. Pure.
 * Errors: UNSUPPORTED (too large to simulate). */
gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out);

/** gyre_tuner_proto_obstacle - why a protocol cannot be used here; NULL if it can. */
const char *gyre_tuner_proto_obstacle(const struct gyre_tuner_facts *facts, enum gyre_proto proto);

/** gyre_tuner_payload_bytes - what one slot holds, without the flags of its lines.
 * @is_placed: the algorithm places what it can. */
uint32_t gyre_tuner_payload_bytes(const struct gyre_fifo_spec *spec,
                                  const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                                  bool is_placed);

/** gyre_tuner_channels - channels of a call by the choice's algorithm and protocol, as many as
 * configured at most. Pure. */
uint32_t gyre_tuner_channels(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                             enum gyre_collective coll, uint64_t n_bytes);

/** gyre_tuner_tile - bytes of its tiles, which fit a slot; the choice's channels count too.
 * @is_placed: the algorithm places what it can. Pure. */
uint32_t gyre_tuner_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                         enum gyre_collective coll, uint64_t n_bytes, bool is_placed);

/** gyre_tuner_may_place - does the kernel place what it can in a call of this collective, by this
 * protocol? */
bool gyre_tuner_may_place(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                          enum gyre_collective coll, enum gyre_proto proto);

/** gyre_tuner_check_path - whether the filter allows the path that a call has come to.
 * Errors: INVALID_USAGE, saying what the allowed ones need. */
gyre_status gyre_tuner_check_path(const struct gyre_tuner_facts *facts,
                                  const struct gyre_filter *filter, enum gyre_collective coll,
                                  const struct gyre_algorithm *algorithm, enum gyre_path path);

/** gyre_tuner_fifo_spec - how FIFOs are dimensioned for a communicator: within the budget of
 * GYRE_FIFO_BUDGET_BYTES a rank, of which rings get the larger part where they gain from large
 * slots. @buffer_bytes: GYRE_BUFFSIZE, 0 = unset. @max_channels: that calls may use, UINT32_MAX =
 * any number. Pure. */
struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels);

#define GYRE_FIFO_BUDGET_BYTES (64ULL << 20)

/* GPUs: where a rank transfers so many bytes, the blocks of a kernel choose their multiprocessors;
 * below, that gains nothing (2 H200, 2026-11). */
#define GYRE_BLOCK_PLACEMENT_BYTES ((uint64_t)(16 << 20))

struct gyre_plan_cache;

gyre_status gyre_plan_cache_open(struct gyre_comm *comm, struct gyre_plan_cache **cache_out);
void gyre_plan_cache_close(struct gyre_plan_cache *cache);

/* A call, as the API took it. */
struct gyre_call {
    enum gyre_collective coll;
    const void *send;
    void *recv;
    uint64_t count;
    gyre_dtype dtype;
    gyre_op op;
    int root;     /* or the peer; -1 where there is none */
    bool is_send; /* SEND_RECV */
    gyre_stream stream;
    uint64_t scalar; /* of a user's op, which may be gone before the group ends */
};

/** gyre_plan_prepare - load what gyre_plan_work() would load for `call`: before the first launch of
 * a group, because loading may wait for kernels that run. */
gyre_status gyre_plan_prepare(struct gyre_comm *comm, const struct gyre_call *call);

/** gyre_plan_work - make the work that carries out `call`; loads the program on first use.
 * signature and sequence are left to the caller. */
gyre_status gyre_plan_work(struct gyre_comm *comm, const struct gyre_call *call,
                           struct gyre_work *work_out);

/** gyre_plan_force - from now on carry collectives out so; NULL: as tuned again. All ranks alike,
 * between calls; for benches that try every way. What is 0 in @choice is left to the tuner.
 * Point to point is not touched. A choice that is impossible, or that GYRE_ALGO, GYRE_PROTO or
 * GYRE_PATH forbid, fails when it is used. */
void gyre_plan_force(struct gyre_comm *comm, const struct gyre_choice *choice);

/** gyre_plan_restrict - from now on choose among what @words allow, in place of what GYRE_ALGO,
 * GYRE_PROTO and GYRE_PATH allow. All ranks alike, between calls; for programs that have options of
 * their own for this. Errors: as gyre_filter_override(). */
gyre_status gyre_plan_restrict(struct gyre_comm *comm, const struct gyre_filter_words *words);

/** gyre_plan_forget - calls may get other works now than the same calls before: a window came or
 * goes. Before what they refer to is freed. */
void gyre_plan_forget(struct gyre_comm *comm);

/** gyre_plan_choice - the choice that a call gets now (as gyre_tuner_choose) if its result lies in
 * no window. */
gyre_status gyre_plan_choice(struct gyre_comm *comm, const struct gyre_call *call,
                             struct gyre_choice *choice_out);

/** gyre_plan_facts_of - what the choice for a call depends on, if its result lies in no window. */
struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_comm *comm,
                                           const struct gyre_call *call);

/** gyre_plan_facts - the same of all calls, without what depends on the call; lives as long as the
 * communicator does. */
const struct gyre_tuner_facts *gyre_plan_facts(const struct gyre_comm *comm);

/** gyre_plan_cost - the constants that predict for this communicator: GYRE_TUNING_FILE's, else the
 * shipped ones of its kind of device. */
const struct gyre_cost *gyre_plan_cost(const struct gyre_comm *comm);

/* What a call would use, for people and benches. */
struct gyre_plan_summary {
    char algorithm[16];
    char proto[8];
    unsigned n_channels;
    unsigned slot_bytes;
    unsigned n_blocks; /* thread blocks (CUDA) or cooperative workers (host) of one rank */
    char path[16];     /* of results: gyre_path_names */
    char transports[64];
    double predicted_us; /* 0 = no prediction */
};

/** gyre_plan_describe - how a call would be carried out now.
 * @call: buffers only say whether they lie in a window; NULL = in none. */
gyre_status gyre_plan_describe(struct gyre_comm *comm, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out);

#endif
