/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective is a program and the program is data. There is one instruction:
 *
 *     out[] <- reduce(in[])
 *
 * read all inputs, reduce them in the written order, write the result to all outputs. A program
 * is one rank's part of one shape: for every worker a list of steps that the worker runs in order,
 * once per tile. It holds no pointer, no size, no data type. Executors, verifier, simulator and
 * printer read the same arrays (docs/schedule.md). Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_SCHEDULE_H
#define GYRE_MODEL_SCHEDULE_H

#include "core/model/types.h"

#define GYRE_STEP_MAX_RECVS     8 /* incoming connections of one step */
#define GYRE_STEP_MAX_SENDS     8 /* outgoing connections of one step */
#define GYRE_STEP_MAX_LOCAL_INS 2 /* local chunks read */
#define GYRE_STEP_MAX_INS       (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_LOCAL_INS)
#define GYRE_STEP_MAX_OUTS      (GYRE_STEP_MAX_SENDS + 1) /* and one local chunk written */
#define GYRE_MAX_RANKS          4096
#define GYRE_MAX_WORKERS        16 /* of one program */
#define GYRE_MAX_LANES          8

/* What an operand names. X(enum suffix, word in the text form) */
#define GYRE_OPERAND_TABLE(X)                                                                    \
    X(IN, in)           /* chunk of the caller's input; pre-multiplied on load if the op asks */ \
    X(OUT, out)         /* chunk of the caller's output */                                       \
    X(SCRATCH, scratch) /* tile-sized area owned by one worker; contents last within a tile */   \
    X(CONNECTION, connection)

enum gyre_operand_kind {
#define GYRE_OPERAND_ENUM(id, name) GYRE_OPERAND_##id,
    GYRE_OPERAND_TABLE(GYRE_OPERAND_ENUM)
#undef GYRE_OPERAND_ENUM
        GYRE_N_OPERAND_KINDS
};

/* A placed connection operand moves no bytes through the slot: the sender writes them where they
 * belong, into OUT of the receiving rank at the step's own chunk, and the slot only says so. Both
 * ends of the slot name it so. It takes OUT buffers that all ranks can address. */
struct gyre_operand {
    uint8_t kind;      /* enum gyre_operand_kind */
    uint8_t is_placed; /* 0 or 1; of a connection */
    uint16_t index;    /* chunk number, or index into the program's connections */
};

enum gyre_step_flag {
    /* This step and the next may run at the same time: they share no connection and no chunk that
     * either writes. Verifiers treat a run of such steps as unordered. */
    GYRE_STEP_WITH_NEXT = 1,
    /* The result is the finished reduction: an integer average divides here, once. Set on exactly
     * the steps whose result first holds all contributions. */
    GYRE_STEP_FINAL = 2
};

struct gyre_step {
    uint8_t n_ins;
    uint8_t n_outs; /* 0: the step only waits for what is placed */
    uint8_t flags;
    uint8_t pad;
    uint16_t chunk; /* whose tile range gives the number of elements that the step moves */
    uint16_t pad2;
    struct gyre_operand ins[GYRE_STEP_MAX_INS]; /* in reduction order */
    struct gyre_operand outs[GYRE_STEP_MAX_OUTS];
};

/* One end of a FIFO. A FIFO is an ordered pair of ranks and a lane, within one channel; it has one
 * sending and one receiving worker. Lanes let two workers of a program talk to the same peer. */
struct gyre_connection {
    uint16_t peer; /* rank in the shape */
    uint8_t lane;
    uint8_t is_send;
};

struct gyre_worker {
    uint32_t first_step;
    uint32_t n_steps;
};

/* Which ranks share a host; rings and trees keep them together. NULL grouping = one host. */
struct gyre_grouping {
    uint16_t n_hosts;
    uint16_t host_of[GYRE_MAX_RANKS]; /* 0 <= host < n_hosts, hosts numbered by first appearance */
};

/* Everything that an algorithm may depend on. */
struct gyre_shape {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root; /* SEND_RECV: the sender, of two ranks (or of one: a local copy) */
    const struct gyre_grouping *grouping;
    bool
        is_placed; /* all ranks can address each other's OUT: algorithms may place what they send */
};

struct gyre_program {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t rank;
    uint16_t n_chunks;  /* pieces a vector is cut into; 1 where IN or OUT is made of blocks */
    uint16_t n_scratch; /* tile-sized areas */
    uint16_t n_lanes;   /* the same on all ranks of the shape */
    uint16_t n_workers;
    uint16_t n_connections;
    uint16_t min_depth; /* slots that each FIFO needs so that the shape cannot deadlock */
    uint16_t is_placed; /* some operand is placed */
    uint32_t n_steps;
    struct gyre_worker *workers;
    struct gyre_connection *connections;
    struct gyre_step *steps;
    char algorithm[16];
};

/** gyre_program_n_parts - how many chunks IN or OUT (`kind`) has in this program: the blocks, where
 * the buffer is made of blocks, else the pieces of the vector. */
static inline uint32_t gyre_program_n_parts(const struct gyre_program *program,
                                            enum gyre_operand_kind kind)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    const bool in_blocks = kind == GYRE_OPERAND_IN ? traits->in_blocks : traits->out_blocks;
    return in_blocks ? program->n_ranks : program->n_chunks;
}

#ifdef __cplusplus
#define GYRE_STATIC_ASSERT static_assert
#else
#define GYRE_STATIC_ASSERT _Static_assert
#endif
GYRE_STATIC_ASSERT(sizeof(struct gyre_operand) == 4, "read by devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_step) == 84, "read by devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_connection) == 4, "read by devices");

/* ---- building (core/model/schedule.c) ----------------------------------------------------- */

/* An operand while building: connections are still named by peer and lane. */
struct gyre_ref {
    enum gyre_operand_kind kind;
    uint16_t index; /* chunk, or peer */
    uint8_t lane;   /* of a connection */
    bool is_placed; /* likewise */
};

static inline struct gyre_ref gyre_in(int chunk)
{
    struct gyre_ref ref = {GYRE_OPERAND_IN, (uint16_t)chunk, 0, false};
    return ref;
}

static inline struct gyre_ref gyre_out(int chunk)
{
    struct gyre_ref ref = {GYRE_OPERAND_OUT, (uint16_t)chunk, 0, false};
    return ref;
}

static inline struct gyre_ref gyre_scratch(int index)
{
    struct gyre_ref ref = {GYRE_OPERAND_SCRATCH, (uint16_t)index, 0, false};
    return ref;
}

/** The FIFO to or from `peer`: an input receives from it, an output sends to it. */
static inline struct gyre_ref gyre_peer(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, false};
    return ref;
}

/** The same, placed: see struct gyre_operand. As an input it stands alone. */
static inline struct gyre_ref gyre_placed(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, true};
    return ref;
}

struct gyre_builder;

/** gyre_builder_open - start a program. @n_chunks as in struct gyre_program. */
gyre_status gyre_builder_open(const char *algorithm, const struct gyre_shape *shape, int rank,
                              int n_chunks, struct gyre_builder **builder_out);

/** gyre_builder_worker - the steps that follow belong to a new worker. A worker without steps is
 * dropped. */
void gyre_builder_worker(struct gyre_builder *builder);

/** gyre_builder_step - append one step. Errors stick to the builder and are reported at close, so
 * that algorithms need no error path.
 * @chunk: whose range the step moves: the chunk of every IN and OUT operand that is a vector cut
 * into n_chunks pieces; where IN or OUT is made of blocks all ranges are alike, and the number of
 * the block that moves is written for people.
 * @ins, @outs: at most GYRE_STEP_MAX_INS / GYRE_STEP_MAX_OUTS.
 * @flags: enum gyre_step_flag. */
void gyre_builder_step(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                       int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** gyre_builder_reduce - append steps for an input list of any length, as chains over the same
 * groups of GYRE_STEP_MAX_RECVS consecutive entries on every rank; intermediate results go to
 * scratch (one area of the worker's own, above those used so far) and are the first input of the
 * next link. */
void gyre_builder_reduce(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** gyre_builder_scatter - append steps (WITH_NEXT; one after the other where outputs are placed,
 * since each announces what it wrote) that write one input to any number of outputs. A local output
 * (at most one) is written by the last step, which is ordered after the others, so that it may
 * alias the input. */
void gyre_builder_scatter(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                          const struct gyre_ref *outs, int n_outs);

/** gyre_builder_min_depth - the FIFO depth that the algorithm needs (default 1). The verifier
 * accepts at most GYRE_MAX_DEPTH (8); a communicator's FIFOs have GYRE_COMM_DEPTH (4) slots. */
void gyre_builder_min_depth(struct gyre_builder *builder, int min_depth);

/** gyre_builder_lanes - how many lanes the shape uses on any rank (default 1; the same on all ranks
 * of the shape). */
void gyre_builder_lanes(struct gyre_builder *builder, int n_lanes);

/** gyre_builder_close - check the structure, hand over the program, free the builder (always).
 * Errors: INTERNAL with the step that is wrong, OUT_OF_MEMORY. */
gyre_status gyre_builder_close(struct gyre_builder *builder, struct gyre_program **program_out);

void gyre_program_free(struct gyre_program *program);

/** gyre_program_check - the structure of one program: operand counts, indices in range, local
 * counts, one worker per connection end, no IN written, scratch owned by one worker, WITH_NEXT
 * runs disjoint, lanes below n_lanes. What all ranks together do is for the verifier. */
gyre_status gyre_program_check(const struct gyre_program *program);

/** gyre_program_hash - of everything that executors read. Equal programs, equal hash. */
uint64_t gyre_program_hash(const struct gyre_program *program);

/** gyre_program_copy_tail - the first step of the tail that only copies: from there on the
 * program's one worker copies from IN, OUT or what was placed into OUT of this rank and, placed, of
 * others, or waits for what is placed, and before it nothing is placed. A tail may run after all
 * tiles of the steps before it, without them, and a tile may then be of any size: no slot holds its
 * data. n_steps: there is none. */
uint32_t gyre_program_copy_tail(const struct gyre_program *program);

/** gyre_program_clone - a deep copy. */
gyre_status gyre_program_clone(const struct gyre_program *program,
                               struct gyre_program **program_out);

/* ---- text (core/model/schedule_text.c) ---------------------------------------------------- */

/** gyre_program_to_text - the program as text that gyre_program_from_text() reads back.
 * @text_out: malloc'ed. */
gyre_status gyre_program_to_text(const struct gyre_program *program, char **text_out);

/** gyre_program_from_text - parse one program; the structure is checked. @text: untrusted.
 * Errors: INVALID_ARGUMENT with the line and what was expected. */
gyre_status gyre_program_from_text(const char *text, struct gyre_program **program_out);

/** gyre_rounds_to_text - all ranks side by side, one line per round (a round = one step of every
 * worker that can run), for people. @programs: n, by rank. */
gyre_status gyre_rounds_to_text(const struct gyre_program *const *programs, int n_ranks,
                                char **text_out);

#endif
