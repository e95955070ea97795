/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns calls into works. A call's key (struct gyre_plan_key) determines algorithm, protocol,
 * channels and tile. Each rank plans alone, but from settings that all ranks agreed on, so all
 * choose the same.
 */
#ifndef GYRE_PLAN_PLAN_H
#define GYRE_PLAN_PLAN_H

#include "algorithms/algorithm.h"
#include "algorithms/simulate/simulate.h"
#include "core/engine/links/links.h"
#include "core/engine/plan/tuner/filter.h"
#include "core/engine/plan/tuner/rows.h"
#include "core/engine/plan/tuner/tuner.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/program_file.h"
#include "core/foundation/model/types.h"
#include "kernels/executor.h"

#include <limits.h>

/** A step that moves a range counts once for each chunk. */
static inline uint64_t gyre_proof_steps(const struct gyre_program *program)
{
    uint64_t n_steps = 0;
    for (uint32_t i = 0; i < program->n_steps; i++)
        n_steps += program->steps[i].n_chunks;
    return n_steps;
}

/** NULL = not too large for a communicator to wait for (docs/schedule.md). @n_steps:
 * gyre_proof_steps(), and @n_workers: of one rank. */
const char *gyre_proof_obstacle(uint32_t n_ranks, uint64_t n_steps, uint64_t n_workers);

/** Prove one variant, out of place and in place. Errors: as gyre_algorithm_emit(); INVALID_ARGUMENT
 * with the verifier's finding; OUT_OF_MEMORY. */
gyre_status gyre_proof_of_shape(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, bool any_order);

/* Zeros = there is none. */
struct gyre_algo_file {
    char name[PATH_MAX + 32]; /* for messages: "GYRE_ALGO_FILE mine.gyre" */
    struct gyre_program_file content;
};

/** Checks programs' structure. @source: "GYRE_ALGO_FILE" or "--algo-file". Errors: SYSTEM,
 * OUT_OF_MEMORY, INVALID_ARGUMENT naming source, file, line and what is wrong. */
gyre_status gyre_algo_file_load(const char *path, const char *source,
                                struct gyre_algo_file *file_out);
void gyre_algo_file_free(struct gyre_algo_file *file);

/* A communicator's limits, the same on all ranks. */
struct gyre_algo_limits {
    uint32_t n_ranks;
    gyre_device_kind device_kind;
    struct gyre_fifo_spec spec;
    uint32_t max_blocks; /* of a call on a GPU; UINT32_MAX = no limit */
    bool any_order;      /* GYRE_ANY_ORDER */
    const struct gyre_grouping *grouping;
};

struct gyre_file_shape {
    struct gyre_given_programs given;
    struct gyre_algorithm algorithm;
    bool same_bits; /* in one order on all ranks */
    struct gyre_file_shape *next;
};

/** Make algorithms and prove them. @file: must live as long as the shapes. @shapes_out: NULL = none
 * for so many ranks. Errors: INVALID_ARGUMENT (programs are missing or refuted), UNSUPPORTED (more
 * lanes, depth or workers than there are, or too large to be proved), naming file and shape. */
gyre_status gyre_file_shapes_open(const struct gyre_algo_file *file,
                                  const struct gyre_algo_limits *limits,
                                  struct gyre_file_shape **shapes_out);
void gyre_file_shapes_close(struct gyre_file_shape *shapes);

struct gyre_algo_use {
    const struct gyre_algo_file *file; /* NULL = none */
    struct gyre_file_shape *shapes;
    bool is_paused;
    struct gyre_algo_file own;       /* of gyre_algo_use_replace() */
    struct gyre_file_shape *retired; /* loaded programs may refer to them */
};

/** @file: outlives the use; may have no programs. Errors: as gyre_file_shapes_open(). */
gyre_status gyre_algo_use_open(struct gyre_algo_use *use, const struct gyre_algo_file *file,
                               const struct gyre_algo_limits *limits, int rank);
void gyre_algo_use_close(struct gyre_algo_use *use);

/** Collective; once in a communicator's life. Errors: as gyre_plan_use_file(). */
gyre_status gyre_algo_use_replace(struct gyre_algo_use *use, const char *path, const char *source,
                                  const struct gyre_algo_limits *limits,
                                  const struct gyre_rank *self);

/** NULL if the filter allows no path of the file's. @root: -1 without one. @in_window: the result
 * lies in a window. */
const struct gyre_algorithm *gyre_algo_use_find(const struct gyre_algo_use *use,
                                                const struct gyre_filter *filter,
                                                enum gyre_collective coll, int root,
                                                bool in_window);

/** As gyre_plan_check_file(). */
gyre_status gyre_algo_use_check(const struct gyre_algo_use *use, const struct gyre_filter *filter,
                                enum gyre_collective coll, bool in_window, uint32_t n_ranks);

/* Registering is collective, so windows have the same numbers on all ranks. */

/* What a call's caller allows, within GYRE_ALGO, GYRE_PROTO and the communicator's channels. Zeros
 * = no options. Compared byte by byte. */
struct gyre_call_options {
    uint32_t algorithms; /* bit i = gyre_algorithms[i]; 0 = all */
    uint32_t protos;     /* bit i = enum gyre_proto; 0 = all */
    uint8_t min_channels;
    uint8_t max_channels;
    uint8_t prefers; /* 1: all are allowed if these cannot carry out the call */
    uint8_t zero;
};

_Static_assert(sizeof(struct gyre_call_options) == 12, "no padding");

struct gyre_filter;
struct gyre_tuner_facts;

/** An empty list, and with args->prefers an unknown algorithm, is as NULL. Errors: INVALID_ARGUMENT
 * with the word or number and the legal ones. */
gyre_status gyre_call_options_parse(enum gyre_collective coll, const gyre_call_args *args,
                                    struct gyre_call_options *options_out);

static inline bool gyre_call_options_any(const struct gyre_call_options *options)
{
    return (options->algorithms | options->protos | options->min_channels |
            options->max_channels) != 0;
}

/** 0 if there are no options. */
uint32_t gyre_call_options_hash(const struct gyre_call_options *options);

/** The communicator's channels count where the options have none in common with them. */
void gyre_call_options_apply(const struct gyre_call_options *options, enum gyre_collective coll,
                             struct gyre_filter *filter, struct gyre_tuner_facts *facts);

struct gyre_observed;
struct gyre_share_mapping;

struct gyre_window_entry {
    struct gyre_window_entry *next;      /* the next older one */
    uint32_t number;                     /* from 1 */
    unsigned char *base;                 /* this rank's */
    uint64_t n_bytes;                    /* the smallest rank's */
    struct gyre_share_mapping *mappings; /* by rank */
    void **bases;                        /* by rank */
    bool is_remote; /* some rank's base is NULL: it has no address here. The same on all ranks */
    bool has_large_pages; /* on all ranks, as the others map it */
    int8_t residue;       /* of all bases modulo 16; -1 = they differ */
    struct gyre_placement placement;
};

struct gyre_windows {
    struct gyre_window_entry *newest;
    uint32_t n_made;
};

struct gyre_call {
    enum gyre_collective coll;
    const void *send;
    void *recv;
    uint64_t count;
    gyre_dtype dtype;
    gyre_op op;
    int root;     /* or the peer; -1 without one */
    bool is_send; /* SEND_RECV */
    gyre_stream stream;
    uint64_t scalar; /* of a user's op, which may be gone before the group ends */
    struct gyre_call_options options;
    /* By gyre_window_find(), right before planning. */
    const struct gyre_window_entry *window; /* that holds recv; or NULL */
    uint64_t window_offset;                 /* of recv */
    struct gyre_observed *observed;         /* core/engine/call/batch.h; or NULL */
};

/** The newest one that holds the result and that all ranks address, for collectives whose result
 * has one size and place on all ranks: all-reduce, all-gather, all-to-all and broadcast. Valid
 * until deregistered, which no thread does during a call. */
void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call);

/** An average is a sum with a factor ahead (floating point) or a division after it (integers), a
 * user's operation a sum with its factor. Without a reduction: a sum of one summand. */
struct gyre_reduction gyre_call_reduction(const struct gyre_call *call, uint32_t n_ranks);

/* Zeros = GYRE_TUNING_FILE is not set. */
struct gyre_tuning {
    bool is_set; /* it has constants, so choices are predicted */
    struct gyre_cost cost;
    struct gyre_rows *rows; /* NULL = none */
    uint64_t hash;          /* of the constants; 0 = none */
};

/** Constants ("key = number"), rows, or both. Constants not named are gyre_cost_host's.
 * @tuning_out: to be freed by gyre_tuning_free(). Errors: SYSTEM, OUT_OF_MEMORY, INVALID_ARGUMENT
 * naming file, line and what is legal. */
gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out);
void gyre_tuning_free(struct gyre_tuning *tuning);

/** Pure, so all ranks get the same bits. @base: gives what the network does not know. */
struct gyre_cost gyre_network_cost(const struct gyre_cost *base,
                                   const struct gyre_network *network);

struct gyre_variants;

enum {
    GYRE_KEY_SEND = 1 << 0,
    GYRE_KEY_IN_PLACE = 1 << 1,
    GYRE_KEY_ALIGNED = 1 << 2, /* both buffers and a block, to 16 bytes */
    GYRE_KEY_IN_WINDOW = 1 << 3,
    GYRE_KEY_LARGE_PAGES = 1 << 4,    /* of that window, on all ranks */
    GYRE_KEY_WINDOW_ALIGNED = 1 << 5, /* the result's address to 16 bytes, on all ranks */
};

/* All that a call's plan and kernel depend on, without pointers, so calls with other buffers share
 * it. IN_PLACE and both ALIGNED bits are this rank's own: a choice that all ranks make alike never
 * reads them. */
struct gyre_plan_key {
    uint64_t count; /* of the vector, or of one block */
    struct gyre_call_options options;
    uint32_t settings; /* a new number whenever a choice may change */
    int32_t root;      /* or the peer; -1 without one */
    uint16_t flags;
    uint8_t coll;
    uint8_t dtype;
    uint8_t op; /* GYRE_SUM without a reduction, GYRE_FIRST_USER_OP for every user's */
};

/* How all calls with one key are carried out; never changes. */
struct gyre_plan {
    struct gyre_plan_key key;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    struct gyre_ready *ready; /* how this rank runs it */
    uint64_t scalar;          /* of the reduction, unless it is a user's */
    bool is_placed;           /* results go into windows */
    bool waits;               /* for other ranks */
    struct gyre_plan *next;   /* of replaced plans */
};

#define GYRE_PLAN_SETS    512
#define GYRE_PLAN_PER_SET 4

/* Zeros = empty. A set is in the order of last use; a new plan replaces the one unused for longest.
 * 256 keys almost never meet in one set. */
struct gyre_plan_table {
    struct gyre_plan *sets[GYRE_PLAN_SETS][GYRE_PLAN_PER_SET];
    struct gyre_plan *replaced; /* a batch may still refer to them */
};

/** The plan counts as used now. */
const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key);

/** The table owns the plan. No plan with its key is there. */
void gyre_plan_table_add(struct gyre_plan_table *table, struct gyre_plan *plan);

/** Frees replaced plans, between batches of calls. */
void gyre_plan_table_sweep(struct gyre_plan_table *table);

void gyre_plan_table_close(struct gyre_plan_table *table);

struct gyre_links;
struct gyre_rank;
struct gyre_plan_cache;

/* Each outlives the cache. */
struct gyre_plan_config {
    const struct gyre_rank *self;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    const struct gyre_tuning *tuning;
    const struct gyre_algo_file *algo_file; /* of GYRE_ALGO_FILE; zeros = not set */
    struct gyre_executor *executor;
};

/** For the thread that makes calls. @cache: zeros; gyre_plan_cache_close() also closes one that was
 * not opened. Errors: OUT_OF_MEMORY, those of gyre_filter_of and of gyre_file_shapes_open. */
gyre_status gyre_plan_cache_open(const struct gyre_plan_config *config,
                                 struct gyre_plan_cache *cache);
void gyre_plan_cache_close(struct gyre_plan_cache *cache);

/** @call: with its window. The first call with a key loads the program, which may wait for running
 * kernels: call this before a group's first launch. @plan_out: valid until gyre_plan_table_sweep().
 * Errors: those of gyre_tuner_choose(), of emitting and loading; UNSUPPORTED if the communicator's
 * FIFOs cannot carry the program. */
gyre_status gyre_plan_get(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_plan **plan_out);

uint64_t gyre_plans_made(const struct gyre_plan_cache *cache);

/** The caller sets signature and sequence. */
void gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_plan *plan,
                    const struct gyre_call *call, struct gyre_work *work_out);

/** Load GYRE_ALGORITHMS (files or .so) before there is a communicator. */
gyre_status gyre_plugins_load_own(void);

/** Carry out collectives by this choice, for benches; the tuner chooses fields that are 0, or all
 * if it is NULL. All ranks pass the same, between calls. A choice that is impossible, or forbidden
 * by GYRE_ALGO, GYRE_PROTO or GYRE_PATH, fails when it is used. */
void gyre_plan_force(struct gyre_plan_cache *cache, const struct gyre_choice *choice);

/** In place of GYRE_ALGO, GYRE_PROTO and GYRE_PATH. If @words names algorithms, GYRE_ALGO_FILE no
 * longer counts. All ranks pass the same, between calls. Errors: as gyre_filter_override(). */
gyre_status gyre_plan_restrict(struct gyre_plan_cache *cache,
                               const struct gyre_filter_words *words);

/** In place of GYRE_ALGO_FILE's programs. Collective, between calls; the same programs on all
 * ranks. @source: the option, for messages; lives as long as the plans. Errors: as
 * gyre_algo_file_load() and gyre_file_shapes_open(); INVALID_USAGE (another rank could not read the
 * file, or has other programs). */
gyre_status gyre_plan_use_file(struct gyre_plan_cache *cache, const char *path, const char *source);

/** After gyre_plan_restrict(). All ranks, between calls. */
void gyre_plan_resume_file(struct gyre_plan_cache *cache);

/** @in_window: results lie in a window. Errors: INVALID_USAGE naming the file and its shapes. */
gyre_status gyre_plan_check_file(const struct gyre_plan_cache *cache, enum gyre_collective coll,
                                 bool in_window);

/** As gyre_tuner_choose(), for a result in no window. */
gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out);

/** For a result in no window. */
struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_plan_cache *cache,
                                           const struct gyre_call *call);

/** They live as long as the communicator. */
const struct gyre_tuner_facts *gyre_plan_facts(const struct gyre_plan_cache *cache);

/** GYRE_TUNING_FILE's, or the shipped constants of the device. */
const struct gyre_cost *gyre_plan_cost(const struct gyre_plan_cache *cache);

struct gyre_plan_summary {
    char algorithm[16];
    char proto[8];     /* of links without a proxy, or of all */
    char net_proto[8]; /* of links with a proxy; "" = there are none */
    unsigned n_channels;
    unsigned slot_bytes;
    unsigned n_blocks; /* of one rank: thread blocks (CUDA) or workers (host) */
    char path[16];     /* gyre_path_names */
    char transports[64];
    double predicted_us; /* 0 = no prediction */
};

/** @call: buffers only say whether they lie in a window; or NULL. */
gyre_status gyre_plan_describe(struct gyre_plan_cache *cache, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out);

/** A process reads the files once, before anything reads the list of algorithms; later calls
 * compare. After an error nothing has joined, and a later call tries again. Errors:
 * INVALID_ARGUMENT naming the file and what is wrong; SYSTEM; INVALID_USAGE (an earlier call had
 * other files). */
gyre_status gyre_plugins_load(const struct gyre_params *params);

#define GYRE_MAX_AGREED (GYRE_MAX_ALGORITHMS + (GYRE_N_ROW_FILES + 1) * GYRE_MAX_ROWS)

/** Algorithms, shipped rows, then the user's: ranks must have them alike. @list_out:
 * GYRE_MAX_AGREED. */
uint32_t gyre_plan_list_agreed(const struct gyre_tuning *tuning, struct gyre_links_row *list_out);

#endif
