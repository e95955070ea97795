/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective is a program, and the program is data. There is one instruction:
 *
 * out[] <- reduce(in[])
 *
 * It reduces all inputs in the written order and writes the result to all outputs. A program is one
 * rank's part of one shape: each worker's steps, run in order, once a tile. It holds no pointer,
 * size or data type (docs/schedule.md). Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_SCHEDULE_H
#define GYRE_MODEL_SCHEDULE_H

#include "core/foundation/model/types.h"

#define GYRE_STEP_MAX_RECVS     8
#define GYRE_STEP_MAX_SENDS     8
#define GYRE_STEP_MAX_LOCAL_INS 2
#define GYRE_STEP_MAX_INS       (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_LOCAL_INS)
#define GYRE_STEP_MAX_OUTS      (GYRE_STEP_MAX_SENDS + 1) /* and one local chunk */
#define GYRE_MAX_RANKS          16384
#define GYRE_MAX_WORKERS        16
#define GYRE_MAX_LANES          8
#define GYRE_MAX_VARIANTS       16

/* X(enum suffix, word in the text form) */
#define GYRE_OPERAND_TABLE(X)                                     \
    X(IN, in) /* the caller's input, multiplied if the op asks */ \
    X(OUT, out)                                                   \
    X(SCRATCH, scratch) /* of one worker, within a tile */        \
    X(CONNECTION, connection)

enum gyre_operand_kind {
#define GYRE_OPERAND_ENUM(id, name) GYRE_OPERAND_##id,
    GYRE_OPERAND_TABLE(GYRE_OPERAND_ENUM)
#undef GYRE_OPERAND_ENUM
        GYRE_N_OPERAND_KINDS
};

/* A placed connection operand moves no bytes through the slot. The sender writes directly into the
 * receiving rank's OUT, at the step's chunk, and the slot only reports that. It is placed in both
 * steps, and all ranks must be able to address the OUT buffers. */
struct gyre_operand {
    uint8_t kind; /* enum gyre_operand_kind */
    uint8_t is_placed;
    uint16_t index;
};

enum gyre_step_flag {
    /* May run with the next step. They share no connection, and no chunk that one of them writes.
     * The verifier treats a run of such steps as unordered. */
    GYRE_STEP_WITH_NEXT = 1,
    /* The first result of all contributions, where an integer average divides. */
    GYRE_STEP_FINAL = 2
};

/* The chunks of a step: runs of `run` consecutive chunks, which begin `stride` chunks apart. Chunk
 * number i lies (i / run) * stride + i % run behind the first. Chunk 0 follows the last one. */
struct gyre_chunks {
    uint16_t first;
    uint16_t n;
    uint16_t run;    /* 0 stands for 1 */
    uint16_t stride; /* >= run; 0 = consecutive chunks */
};

/* A step moves the tile of one chunk or of a range. Tile t of a range is tile t of each chunk, in
 * any order; in a slot they begin a whole tile's length apart. An operand's index is the first
 * piece's; the others lie at their chunks' distances from `chunk`. */
struct gyre_step {
    uint8_t n_ins;
    uint8_t n_outs; /* 0: only waits for placed data */
    uint8_t flags;
    uint8_t pad;
    uint16_t chunk; /* the first one; as long as tiles */
    uint16_t n_chunks;
    uint16_t run;
    uint16_t stride;                            /* > run; both are 0 for consecutive chunks */
    struct gyre_operand ins[GYRE_STEP_MAX_INS]; /* in reduction order */
    struct gyre_operand outs[GYRE_STEP_MAX_OUTS];
};

/* One side of a FIFO: a lane of an ordered pair of ranks in a channel. One worker sends to it and
 * one receives from it. */
struct gyre_connection {
    uint16_t peer;
    uint8_t lane;
    uint8_t is_send;
};

struct gyre_worker {
    uint32_t first_step;
    uint32_t n_steps;
};

/* NULL = all ranks are on one host. */
struct gyre_grouping {
    uint16_t n_hosts;
    uint16_t n_nics;                  /* on the host whose ranks use most; 0 = one a rank */
    uint16_t host_of[GYRE_MAX_RANKS]; /* numbered by first appearance */
    uint16_t weak_host;               /* has less bandwidth than every other one */
    double weak_part;                 /* of the next host's bandwidth; 0 = no host is weak */
};

struct gyre_shape {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root; /* the sender of SEND_RECV */
    /* Rail programs cross between hosts at different ranks, so that all NICs work. Channel c runs
     * variant c mod gyre_algorithm_variants(). */
    uint16_t variant;
    uint16_t most_range; /* longer ranges are cut: gyre_program_cut(); 0 = none is */
    const struct gyre_grouping *grouping;
    bool is_placed;
    /* Sides of the torus that the algorithm's user named, ranks along the last one first; ended by
     * 0. NULL = none. Set by gyre_algorithm_emit() and the like. */
    const uint16_t *sides;
};

struct gyre_program {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t rank;
    uint16_t n_chunks; /* of a vector, or of each block of IN or OUT */
    uint16_t n_scratch;
    uint16_t n_lanes; /* the same on all ranks */
    uint16_t n_workers;
    uint16_t n_connections;
    uint16_t min_depth; /* fewest slots of a FIFO without deadlock */
    uint16_t max_range; /* most chunks of a step on any rank */
    uint16_t is_placed;
    uint32_t n_steps;
    struct gyre_worker *workers;
    struct gyre_connection *connections;
    struct gyre_step *steps;
    /* Blocks in the programs' order, the same on all ranks: chunk c of a buffer of blocks belongs
     * to block names[c / n_chunks]. NULL = block 0, 1, 2, ... */
    uint16_t *names;
    char algorithm[16];
};

/** Chunks of IN or OUT: of the vector, or of each block in turn. The larger for scratch, where a
 * range then wraps to area 0. */
static inline uint32_t gyre_program_n_parts(const struct gyre_program *program,
                                            enum gyre_operand_kind kind)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    const bool has_blocks = kind == GYRE_OPERAND_IN    ? traits->in_blocks
                            : kind == GYRE_OPERAND_OUT ? traits->out_blocks
                                                       : traits->in_blocks || traits->out_blocks;
    return has_blocks ? (uint32_t)program->n_ranks * program->n_chunks : program->n_chunks;
}

static inline uint32_t gyre_program_block(const struct gyre_program *program, uint32_t chunk)
{
    const uint32_t position = chunk / program->n_chunks;
    return program->names == NULL ? position : program->names[position];
}

static inline uint32_t gyre_program_chunk_of(const struct gyre_program *program, uint32_t block)
{
    uint32_t position = block;
    if (program->names != NULL)
        for (position = 0; program->names[position] != block;)
            position++;
    return position * program->n_chunks;
}

static GYRE_HOST_DEVICE inline uint32_t gyre_step_distance(const struct gyre_step *step, uint32_t i)
{
    return step->stride == 0 ? i : i / step->run * step->stride + i % step->run;
}

/** @first: an operand's index. @n_parts: gyre_program_n_parts() of the buffer. */
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
GYRE_STATIC_ASSERT(sizeof(struct gyre_step) == 88, "read by devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_connection) == 4, "read by devices");

struct gyre_ref {
    enum gyre_operand_kind kind;
    uint16_t index;
    uint8_t lane;
    bool is_placed;
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

static inline struct gyre_ref gyre_peer(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, false};
    return ref;
}

/** An input is the step's only one. */
static inline struct gyre_ref gyre_placed(int peer, int lane)
{
    struct gyre_ref ref = {GYRE_OPERAND_CONNECTION, (uint16_t)peer, (uint8_t)lane, true};
    return ref;
}

struct gyre_builder;

gyre_status gyre_builder_open(const char *algorithm, const struct gyre_shape *shape, int rank,
                              int n_chunks, struct gyre_builder **builder_out);

/** Zeroed, until close. The builder notes the error of NULL. */
void *gyre_builder_allocate(struct gyre_builder *builder, size_t n_bytes);

/** Close frees this memory. Returns it. The builder notes the error of NULL. */
void *gyre_builder_keep(struct gyre_builder *builder, void *memory);

/** The worker of the steps that follow. One without steps is dropped. */
void gyre_builder_worker(struct gyre_builder *builder);

/** Close reports the first error. @chunk: of every IN or OUT that is a vector; else for readers.
 * @ins, @outs: at most GYRE_STEP_MAX_INS / GYRE_STEP_MAX_OUTS. */
void gyre_builder_step(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                       int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** Places no chunk. */
void gyre_builder_range_step(struct gyre_builder *builder, struct gyre_chunks chunks,
                             const struct gyre_ref *ins, int n_ins, const struct gyre_ref *outs,
                             int n_outs, unsigned flags);

/** Default 1, the same on all ranks. */
void gyre_builder_max_range(struct gyre_builder *builder, int max_range);

/** Block order for collectives of blocks; the same on all ranks. @names: copied permutation. */
void gyre_builder_names(struct gyre_builder *builder, const uint16_t *names);

/** Reduces any number of inputs, in groups of GYRE_STEP_MAX_RECVS. A new scratch area keeps the
 * result so far, the next step's first input. */
void gyre_builder_reduce(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags);

/** To any number of outputs, WITH_NEXT unless placed. Writes the local one last; it may alias the
 * input. */
void gyre_builder_scatter(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                          const struct gyre_ref *outs, int n_outs);

/** Default 1, at most GYRE_MAX_DEPTH; communicators have GYRE_COMM_DEPTH. */
void gyre_builder_min_depth(struct gyre_builder *builder, int min_depth);

/** Default 1, the same on all ranks. */
void gyre_builder_lanes(struct gyre_builder *builder, int n_lanes);

/** Frees the builder even on errors: INTERNAL naming the step, OUT_OF_MEMORY. */
gyre_status gyre_builder_close(struct gyre_builder *builder, struct gyre_program **program_out);

void gyre_program_free(struct gyre_program *program);

gyre_status gyre_program_check(const struct gyre_program *program);

/** The most chunks that fit a slot of @tile_bytes, a power of two; 0 = all ranges do. @n_bytes: of
 * the vector, or a block. */
uint16_t gyre_program_range_for(const struct gyre_program *program, uint64_t n_bytes,
                                uint32_t n_channels, uint32_t tile_bytes);

/** Cuts steps into steps of at most @most_range chunks each; 0 = none. Sends and receptions of the
 * cut steps take turns. The same on all ranks. Errors: OUT_OF_MEMORY. */
gyre_status gyre_program_cut(struct gyre_program *program, uint32_t most_range);

/** Of what executors read. */
uint64_t gyre_program_hash(const struct gyre_program *program);

/** Slots that one tile receives or sends, whichever is more. */
uint32_t gyre_program_transfers(const struct gyre_program *program);

/** The first step of the copy tail, or n_steps: a single worker's last steps that only copy from IN
 * or OUT into OUT or, placed, into other ranks' OUT, or wait for placed data, with no placing
 * before. It may run once, after all tiles of the earlier steps, because its data pass through no
 * slot. */
uint32_t gyre_program_copy_tail(const struct gyre_program *program);

gyre_status gyre_program_clone(const struct gyre_program *program,
                               struct gyre_program **program_out);

/** @text_out: malloc'ed. */
gyre_status gyre_program_to_text(const struct gyre_program *program, char **text_out);

/** Cut with "..." if too long, "" without memory. @n_parts: gyre_program_n_parts() of scratch. */
void gyre_step_to_text(const struct gyre_step *step, const struct gyre_connection *connections,
                       uint32_t n_parts, char *text_out, size_t text_bytes);

/** @text: untrusted. @first_line: its number in its file, from 1. Errors: INVALID_ARGUMENT with the
 * line and what was expected. */
gyre_status gyre_program_from_lines(const char *text, int first_line,
                                    struct gyre_program **program_out);

gyre_status gyre_rounds_to_text(const struct gyre_program *const *programs, int n_ranks,
                                char **text_out);

/* Runs one tile of all ranks' programs, for people. In a round every worker that can run does one
 * step, or one run of WITH_NEXT steps; the slots filled before the round decide. */

struct gyre_round_steps {
    uint32_t round;
    uint32_t rank;
    uint32_t worker;
    uint32_t first_step;
    uint32_t n_steps;
};

/** @programs: by rank. Wrong ones end where no step can run. @visit: by round, rank, worker; an
 * error ends the walk. @is_stuck_out: steps can never run. Errors: INVALID_ARGUMENT (not all ranks'
 * programs), OUT_OF_MEMORY, visit()'s. */
gyre_status gyre_rounds_walk(const struct gyre_program *const *programs, int n_ranks,
                             gyre_status (*visit)(void *context,
                                                  const struct gyre_round_steps *steps),
                             void *context, bool *is_stuck_out);

#endif
