/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective is a program, and the program is data. There is one instruction:
 *
 *     out[] <- reduce(in[])
 *
 * It reads all inputs, reduces them in the written order, and writes the result to all outputs. A
 * program is one rank's part of one shape. For every worker it has a list of steps; the worker runs
 * them in order, once for each tile. A program holds no pointer, no size and no data type.
 * Executors, verifier, simulator and printer read the same arrays (docs/schedule.md). Valid as C11
 * and as CUDA.
 */
#ifndef GYRE_MODEL_SCHEDULE_H
#define GYRE_MODEL_SCHEDULE_H

#include "core/foundation/model/types.h"

#define GYRE_STEP_MAX_RECVS     8 /* incoming connections of one step */
#define GYRE_STEP_MAX_SENDS     8 /* outgoing connections of one step */
#define GYRE_STEP_MAX_LOCAL_INS 2 /* local chunks that one step reads */
#define GYRE_STEP_MAX_INS       (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_LOCAL_INS)
#define GYRE_STEP_MAX_OUTS      (GYRE_STEP_MAX_SENDS + 1) /* one local chunk besides */
#define GYRE_MAX_RANKS          16384
#define GYRE_MAX_WORKERS        16 /* of one program */
#define GYRE_MAX_LANES          8
#define GYRE_MAX_VARIANTS       16 /* of one shape */

/* The kinds of operands. X(enum suffix, word in the text form) */
#define GYRE_OPERAND_TABLE(X)                                                                  \
    X(IN, in)           /* chunk of the caller's input; multiplied when read if the op asks */ \
    X(OUT, out)         /* chunk of the caller's output */                                     \
    X(SCRATCH, scratch) /* area of one tile that one worker owns; valid within a tile only */  \
    X(CONNECTION, connection)

enum gyre_operand_kind {
#define GYRE_OPERAND_ENUM(id, name) GYRE_OPERAND_##id,
    GYRE_OPERAND_TABLE(GYRE_OPERAND_ENUM)
#undef GYRE_OPERAND_ENUM
        GYRE_N_OPERAND_KINDS
};

/* A placed connection operand moves no bytes through the slot. The sender writes the data directly
 * into the receiving rank's OUT, at the step's chunk, and the slot only reports that. The operand
 * is placed in the sending step and in the receiving step. All ranks must be able to address the
 * OUT buffers. */
struct gyre_operand {
    uint8_t kind;      /* enum gyre_operand_kind */
    uint8_t is_placed; /* 0 or 1; connections only */
    uint16_t index;    /* chunk number, or index into the program's connections */
};

enum gyre_step_flag {
    /* This step and the next one may run at the same time. They share no connection, and no chunk
     * that one of them writes. The verifier treats a run of such steps as unordered. */
    GYRE_STEP_WITH_NEXT = 1,
    /* The result holds all contributions for the first time. An integer average divides here, once.
     * The flag is set on exactly these steps. */
    GYRE_STEP_FINAL = 2
};

/* Which chunks a step moves. Chunk number i of them, from 0, is at the distance
 *
 *     (i >> log2_run << log2_stride) + (i & ((1 << log2_run) - 1))
 *
 * from the first one: runs of 1 << log2_run consecutive chunks, which begin 1 << log2_stride chunks
 * after each other. Chunks are counted round: chunk 0 follows the last one. With both logarithms 0
 * the chunks follow each other without a gap. */
struct gyre_chunks {
    uint16_t first;
    uint16_t n; /* >= 1 */
    uint8_t log2_run;
    uint8_t log2_stride; /* >= log2_run */
};

/* A step moves the tile of one chunk, or of a range of chunks. Tile t of a range consists of tile t
 * of each of its chunks. These pieces lie one after the other in a slot, in the order of struct
 * gyre_chunks and without gaps between them. The pieces of a step may be carried out in any order.
 * In IN, OUT and scratch, an operand's index is that of the first piece; the other pieces have the
 * same distances from it as their chunks have from `chunk`, and are counted round likewise. */
struct gyre_step {
    uint8_t n_ins;
    uint8_t n_outs; /* 0: the step only waits until placed data have arrived */
    uint8_t flags;
    uint8_t spacing;   /* log2_run << 4 | log2_stride; 0 where a smaller one means the same */
    uint16_t chunk;    /* the first chunk; the tiles are as long as the step's chunks are */
    uint16_t n_chunks; /* >= 1; if more, nothing is placed */
    struct gyre_operand ins[GYRE_STEP_MAX_INS]; /* in reduction order */
    struct gyre_operand outs[GYRE_STEP_MAX_OUTS];
};

/* One end of a FIFO. Within a channel, a FIFO is named by an ordered pair of ranks and a lane. One
 * worker sends to it and one worker receives from it. Two workers of a program that talk to the
 * same peer use different lanes. */
struct gyre_connection {
    uint16_t peer; /* rank in the shape */
    uint8_t lane;
    uint8_t is_send;
};

struct gyre_worker {
    uint32_t first_step;
    uint32_t n_steps;
};

/* Which ranks share a host. Rings and trees keep the ranks of a host together. A NULL grouping
 * means that all ranks are on one host. */
struct gyre_grouping {
    uint16_t n_hosts;
    uint16_t n_nics; /* NICs that the ranks of one host use, of the host that uses most; 0 = one
                      * for each rank */
    uint16_t host_of[GYRE_MAX_RANKS]; /* 0 <= host < n_hosts, hosts numbered by first appearance */
};

/* Everything that a program may depend on. */
struct gyre_shape {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root; /* SEND_RECV has two ranks, and this is the sender; one rank copies locally */
    /* Several hosts: programs of different variants cross between hosts at different ranks, so that
     * all NICs work. Channel c of a call runs variant c mod gyre_algorithm_variants(). */
    uint16_t variant;
    const struct gyre_grouping *grouping;
    bool is_placed; /* all ranks can address each other's OUT, so algorithms may place data there */
};

struct gyre_program {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t rank;
    uint16_t n_chunks;  /* pieces of a vector; 1 if IN or OUT consists of blocks */
    uint16_t n_scratch; /* tile-sized areas */
    uint16_t n_lanes;   /* the same on all ranks of the shape */
    uint16_t n_workers;
    uint16_t n_connections;
    uint16_t min_depth; /* fewest slots of each FIFO with which the shape cannot deadlock */
    uint16_t max_range; /* most chunks of a step on any rank of the shape; the same on all ranks.
                         * A slot has to hold so many pieces */
    uint16_t is_placed; /* 1: some operand is placed */
    uint32_t n_steps;
    struct gyre_worker *workers;
    struct gyre_connection *connections;
    struct gyre_step *steps;
    char algorithm[16];
};

/** gyre_program_n_parts - how many chunks IN or OUT (`kind`) has in this program: the number of
 * blocks if the buffer consists of blocks, else the number of pieces of the vector. For scratch:
 * the number of areas after which ranges continue with area 0, the larger of those two. */
static inline uint32_t gyre_program_n_parts(const struct gyre_program *program,
                                            enum gyre_operand_kind kind)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    const bool has_blocks = kind == GYRE_OPERAND_IN    ? traits->in_blocks
                            : kind == GYRE_OPERAND_OUT ? traits->out_blocks
                                                       : traits->in_blocks || traits->out_blocks;
    return has_blocks ? program->n_ranks : program->n_chunks;
}

/** gyre_step_distance - how many chunks after the first one the step's chunk number `i` is. */
static GYRE_HOST_DEVICE inline uint32_t gyre_step_distance(const struct gyre_step *step, uint32_t i)
{
    const uint32_t log2_run = step->spacing >> 4;
    return (i >> log2_run << (step->spacing & 15)) + (i & ((1U << log2_run) - 1));
}

/** gyre_step_part - the number of the step's i-th piece in a buffer.
 * @first: the number of the first piece, which is an operand's index.
 * @n_parts: gyre_program_n_parts() of the buffer. */
static GYRE_HOST_DEVICE inline uint32_t gyre_step_part(const struct gyre_step *step, uint32_t first,
                                                       uint32_t i, uint32_t n_parts)
{
    return i == 0 ? first : (first + gyre_step_distance(step, i)) % n_parts;
}

#ifdef __cplusplus
#define GYRE_STATIC_ASSERT static_assert
#else
#define GYRE_STATIC_ASSERT _Static_assert
#endif
GYRE_STATIC_ASSERT(sizeof(struct gyre_operand) == 4, "read by devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_step) == 84, "read by devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_connection) == 4, "read by devices");

/* ---- building (core/foundation/model/schedule.c)
 * --------------------------------------------- */

/* An operand while the program is built. A connection is named by peer and lane, not yet by index.
 */
struct gyre_ref {
    enum gyre_operand_kind kind;
    uint16_t index; /* chunk, or peer */
    uint8_t lane;   /* connections only */
    bool is_placed; /* connections only */
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

/** The FIFO that connects with `peer`. As an input it receives, as an output it sends. */
static inline struct gyre_ref gyre_peer(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, false};
    return ref;
}

/** As gyre_peer(), but placed (see struct gyre_operand). A placed input is the step's only input.
 */
static inline struct gyre_ref gyre_placed(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, true};
    return ref;
}

struct gyre_builder;

/** gyre_builder_open - start a program. @n_chunks: as in struct gyre_program. */
gyre_status gyre_builder_open(const char *algorithm, const struct gyre_shape *shape, int rank,
                              int n_chunks, struct gyre_builder **builder_out);

/** gyre_builder_allocate - allocate zeroed memory for an algorithm's own data. It is freed when the
 * builder is closed. Returns NULL when there is no memory; the builder remembers that error. */
void *gyre_builder_allocate(struct gyre_builder *builder, size_t n_bytes);

/** gyre_builder_keep - free() this memory when the builder is closed. Returns it. NULL counts as a
 * lack of memory, which the builder remembers. */
void *gyre_builder_keep(struct gyre_builder *builder, void *memory);

/** gyre_builder_worker - begin a new worker, which gets the steps that follow. A worker without
 * steps is dropped. */
void gyre_builder_worker(struct gyre_builder *builder);

/** gyre_builder_step - append one step. The builder remembers the first error and reports it at
 * close, so algorithms need no error path.
 * @chunk: the chunk whose range the step moves. Every IN or OUT operand that is a vector must be
 * this chunk of it. If IN or OUT consists of blocks, all ranges are equal; then `chunk` is the
 * number of the block that moves, and only helps people who read the program.
 * @ins, @outs: at most GYRE_STEP_MAX_INS / GYRE_STEP_MAX_OUTS.
 * @flags: enum gyre_step_flag. */
void gyre_builder_step(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                       int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** gyre_builder_range_step - append one step that moves a range of chunks. Otherwise as
 * gyre_builder_step(); no operand may be placed. The builder writes equal ranges alike, so that
 * `spacing` is 0 for chunks without gaps. GPUs do not run such steps. */
void gyre_builder_range_step(struct gyre_builder *builder, struct gyre_chunks chunks,
                             const struct gyre_ref *ins, int n_ins, const struct gyre_ref *outs,
                             int n_outs, unsigned flags);

/** gyre_builder_max_range - the most chunks that a step of any rank moves (default 1), the same
 * number on all ranks. */
void gyre_builder_max_range(struct gyre_builder *builder, int max_range);

/** gyre_builder_reduce - append steps that reduce an input list of any length. A long list is cut
 * into groups of GYRE_STEP_MAX_RECVS consecutive entries, the same groups on every rank, with one
 * step for each group. The result so far is kept in a new scratch area of the worker and is the
 * first input of the next step. */
void gyre_builder_reduce(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** gyre_builder_scatter - append steps that write one input to any number of outputs. The steps are
 * WITH_NEXT, except where outputs are placed: there each step reports its own data, so they run one
 * after the other. At most one output is local. The last step writes it, after all others, so it
 * may alias the input. */
void gyre_builder_scatter(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                          const struct gyre_ref *outs, int n_outs);

/** gyre_builder_min_depth - the FIFO depth that the algorithm needs (default 1). The verifier
 * accepts at most GYRE_MAX_DEPTH (8); a communicator's FIFOs have GYRE_COMM_DEPTH (4) slots. */
void gyre_builder_min_depth(struct gyre_builder *builder, int min_depth);

/** gyre_builder_lanes - how many lanes the shape uses (default 1), the same number on all ranks. */
void gyre_builder_lanes(struct gyre_builder *builder, int n_lanes);

/** gyre_builder_close - check the program's structure and return the program. Always frees the
 * builder.
 * Errors: INTERNAL with the step that is wrong, OUT_OF_MEMORY. */
gyre_status gyre_builder_close(struct gyre_builder *builder, struct gyre_program **program_out);

void gyre_program_free(struct gyre_program *program);

/** gyre_program_check - check the structure of one program: operand counts and indices are in
 * range, each connection end and each scratch area has one worker, no step writes IN, the steps of
 * a WITH_NEXT run are disjoint, lanes are below n_lanes. The verifier checks what all ranks do
 * together. Errors: INTERNAL with the step that is wrong. */
gyre_status gyre_program_check(const struct gyre_program *program);

/** gyre_program_hash - a hash of everything that executors read. Equal programs have equal hashes.
 */
uint64_t gyre_program_hash(const struct gyre_program *program);

/** gyre_program_copy_tail - index of the first step of the program's copy tail, or n_steps if it
 * has none. A copy tail is the end of a program with one worker. Its steps only copy from IN or OUT
 * into this rank's OUT and, placed, into other ranks' OUT, or wait until placed data have arrived.
 * No step before it places anything. The tail may therefore run once, after all tiles of the
 * earlier steps, with tiles of any size, because its data pass through no slot. */
uint32_t gyre_program_copy_tail(const struct gyre_program *program);

/** gyre_program_clone - a deep copy. */
gyre_status gyre_program_clone(const struct gyre_program *program,
                               struct gyre_program **program_out);

/* ---- text (core/foundation/model/schedule_text.c)
 * ---------------------------- */

/** gyre_program_to_text - the program as text that gyre_program_from_text() reads back.
 * @text_out: malloc'ed. */
gyre_status gyre_program_to_text(const struct gyre_program *program, char **text_out);

/** gyre_step_to_text - one step as its line of the text form, without the blanks before it and the
 * newline. It is cut off with "..." if it is too long, and "" if there is no memory.
 * @connections: those of the step's program. @n_parts: its gyre_program_n_parts() of scratch. */
void gyre_step_to_text(const struct gyre_step *step, const struct gyre_connection *connections,
                       uint32_t n_parts, char *text_out, size_t text_bytes);

/** gyre_program_from_text - parse one program; the structure is checked. @text: untrusted.
 * Errors: INVALID_ARGUMENT with the line and what was expected. */
gyre_status gyre_program_from_text(const char *text, struct gyre_program **program_out);

/** gyre_program_from_lines - the same for a text that is a part of a file. @first_line: the line of
 * the file in which the text begins, counted from 1; errors name lines of the file. */
gyre_status gyre_program_from_lines(const char *text, int first_line,
                                    struct gyre_program **program_out);

/** gyre_rounds_to_text - a table for people: one column for each rank, one line for each round. In
 * a round every worker that can run runs one step. @programs: n_ranks programs, by rank. */
gyre_status gyre_rounds_to_text(const struct gyre_program *const *programs, int n_ranks,
                                char **text_out);

/* ---- rounds ---------------------------------------------------------------------------------- */

/* The steps that one worker does in one round. */
struct gyre_round_steps {
    uint32_t round;
    uint32_t rank;
    uint32_t worker;     /* of the rank */
    uint32_t first_step; /* of the program */
    uint32_t n_steps;
};

/** gyre_rounds_walk - run one tile. Which steps run in a round is decided by the slots that were
 * filled before the round.
 * @programs: n_ranks programs, by rank. They may be wrong: the walk then ends where no step can
 * run.
 * @visit: called once for each worker that runs in a round; by round, then rank, then worker. An
 * error ends the walk.
 * @is_stuck_out: set on success: some steps can never run.
 * Errors: INVALID_ARGUMENT (the programs are not those of all ranks), OUT_OF_MEMORY, those of
 * visit(). */
gyre_status gyre_rounds_walk(const struct gyre_program *const *programs, int n_ranks,
                             gyre_status (*visit)(void *context,
                                                  const struct gyre_round_steps *steps),
                             void *context, bool *is_stuck_out);

#endif
