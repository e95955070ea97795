/* SPDX-License-Identifier: Apache-2.0
 *
 * What host and GPU share: the layouts that kernels read and write. These are a program lowered for
 * one rank (one blob: workers, connections, steps), a split whose divisions were done on the host,
 * the parameter blocks of all kinds of launches, and the words by which kernels report. Of what
 * changes from call to call only the counters of the FIFO ends are in device memory, and kernels
 * keep them, so a captured launch replays without the host. Valid as C11 and as CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_PROGRAM_H
#define GYRE_KERNELS_CUDA_PROGRAM_H

#include "core/model/connector.h"
#include "core/model/line.h"
#include "core/model/tile.h"

/* An operand. For a connection, `ref` is its number among the worker's connections, and `use`
 * counts the earlier uses of that connection within the tile. So every thread knows the slot's
 * number without shared counters. For a chunk, the two highest bits of `ref` are the kind, and the
 * other bits are the index. */
struct gyre_cuda_operand {
    uint16_t ref;
    uint16_t use;
};

#define GYRE_CUDA_REF_KIND_SHIFT 14
#define GYRE_CUDA_REF_INDEX_MASK 0x3fffU
#define GYRE_CUDA_REF_PLACED     0x4000U /* of a connection, which has no kind in these bits */

struct gyre_cuda_step {
    uint8_t n_ins;
    uint8_t n_outs;
    uint8_t is_final;
    uint8_t pad;
    uint16_t chunk;
    uint16_t recv_mask;   /* bit i: ins[i] is a connection */
    uint16_t send_mask;   /* bit i: outs[i] is a connection */
    uint16_t caller_mask; /* bit i: ins[i] is the caller's input: multiplied if the op asks */
    struct gyre_cuda_operand ins[GYRE_STEP_MAX_INS];
    struct gyre_cuda_operand outs[GYRE_STEP_MAX_OUTS];
    uint32_t more_pad[2];
};

struct gyre_cuda_connection {
    uint32_t index;    /* gyre_connector_index() in channel 0 */
    uint16_t n_uses;   /* slots in a tile; never 0 */
    uint8_t is_placed; /* some of them are placed */
    uint8_t is_simple; /* the launch has a line protocol, but a proxy serves this connection, and it
                        * goes by SIMPLE */
};

struct gyre_cuda_worker {
    uint32_t first_step;
    uint32_t n_steps;
    uint32_t first_connection;
    uint32_t n_connections;
};

/* The blob begins with this; offsets are from its start, multiples of 16. It has n_workers workers
 * for each variant; n_steps is 0 where a variant has fewer. */
struct gyre_cuda_program {
    uint32_t n_bytes;
    uint32_t workers_offset;
    uint32_t connections_offset;
    uint32_t steps_offset;
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_step) == 96, "copied in 16-byte words");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_connection) == 8, "read as one word");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_worker) == 16, "copied in 16-byte words");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_program) == 16, "keeps the workers aligned");

/* struct gyre_split with the quotients that gyre_part() needs. A 64-bit division costs a GPU thread
 * some 100 instructions, and to find a range takes eight of them. */
struct gyre_cuda_split {
    uint64_t count;
    uint64_t share_units; /* of a channel; the first extra_channels have one more */
    uint32_t extra_channels;
    uint32_t n_chunks;
    uint32_t tile_elems;
    uint32_t unit_elems;
    uint64_t chunk_share_units[2]; /* of a chunk, in channels with share_units and with one more */
    uint32_t extra_chunks[2];
    uint32_t n_tiles;
    uint32_t pad;
};

/** gyre_cuda_split_make - the same ranges as `split`, without divisions. */
static inline struct gyre_cuda_split gyre_cuda_split_make(const struct gyre_split *split)
{
    struct gyre_cuda_split own;
    const uint64_t n_units = (split->count + split->unit_elems - 1) / split->unit_elems;
    own.count = split->count;
    own.share_units = n_units / split->n_channels;
    own.extra_channels = (uint32_t)(n_units % split->n_channels);
    own.n_chunks = split->n_chunks;
    own.tile_elems = split->tile_elems;
    own.unit_elems = split->unit_elems;
    for (uint32_t longer = 0; longer < 2; longer++) {
        own.chunk_share_units[longer] = (own.share_units + longer) / split->n_chunks;
        own.extra_chunks[longer] = (uint32_t)((own.share_units + longer) % split->n_chunks);
    }
    own.n_tiles = (uint32_t)gyre_tile_count(split);
    own.pad = 0;
    return own;
}

static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A channel's share of the vector, in elements: the part of the computation that the ranges of all
 * its steps have in common. */
struct gyre_cuda_share {
    uint64_t begin;
    uint64_t end;
    uint64_t chunk_elems;  /* of a chunk; the first extra_chunks have a unit more */
    uint32_t extra_chunks; /* of one chunk only: 0 */
    uint32_t unit_elems;
    uint32_t tile_elems;
    uint32_t chunk_mask; /* 0: there is one chunk, whatever the steps call it */
};

/** gyre_cuda_share_make - the share of a channel; each block computes it once. */
static GYRE_HOST_DEVICE inline struct gyre_cuda_share
gyre_cuda_share_make(const struct gyre_cuda_split *split, uint32_t channel)
{
    const uint32_t longer = channel < split->extra_channels ? 1 : 0;
    const uint64_t unit = split->unit_elems;
    const uint64_t first_unit =
        split->share_units * channel + (longer != 0 ? channel : split->extra_channels);
    struct gyre_cuda_share share;
    share.begin = gyre_cuda_min(first_unit * unit, split->count);
    share.end = gyre_cuda_min((first_unit + split->share_units + longer) * unit, split->count);
    share.chunk_elems = split->chunk_share_units[longer] * unit;
    share.extra_chunks = split->extra_chunks[longer];
    share.unit_elems = split->unit_elems;
    share.tile_elems = split->tile_elems;
    share.chunk_mask = split->n_chunks == 1 ? 0 : UINT32_MAX;
    return share;
}

/** gyre_cuda_tile_range - as gyre_tile_range(), in few instructions, because every step asks. */
static GYRE_HOST_DEVICE inline struct gyre_range
gyre_cuda_tile_range(const struct gyre_cuda_share *share, uint32_t chunk, uint32_t tile)
{
    const uint32_t part = chunk & share->chunk_mask;
    const uint32_t n_extra = part < share->extra_chunks ? part : share->extra_chunks;
    const uint64_t from =
        share->begin + share->chunk_elems * part + (uint64_t)n_extra * share->unit_elems;
    const uint64_t own = share->chunk_elems + (part < share->extra_chunks ? share->unit_elems : 0);
    const uint64_t part_end = gyre_cuda_min(from + own, share->end);
    struct gyre_range range;
    range.first_elem = gyre_cuda_min(
        gyre_cuda_min(from, share->end) + (uint64_t)tile * share->tile_elems, part_end);
    range.n_elems = gyre_cuda_min(part_end - range.first_elem, share->tile_elems);
    return range;
}

/* Most blocks of a launch. Each multiprocessor has one at most, and no GPU has more of those. */
#define GYRE_CUDA_MAX_BLOCKS 256

/* Block placement: which of the launch's places are taken. All 0 between launches. */
struct gyre_cuda_places {
    uint32_t taken[GYRE_CUDA_MAX_BLOCKS / 32]; /* a bit for each place */
    uint32_t n_taken;
    uint32_t n_leaving; /* blocks without a place so far; as many of them stay as places are left */
    uint64_t begin_ns;  /* when the first of them began to wait */
};

/* Words in device memory that belong to the executor. Written by its kernels only. */
struct gyre_cuda_control {
    uint64_t sequence;   /* launch sequence: works completed << GYRE_CUDA_SEQUENCE_SHIFT | blocks of
                          * the next launch that have begun */
    uint32_t is_aborted; /* sticky: later kernels and graph nodes end at once */
    uint32_t n_ended;    /* SIMPLE: blocks of this launch that have ended */
    struct gyre_cuda_places places;
};

#define GYRE_CUDA_SEQUENCE_SHIFT 16

/* The progress mailbox, in pinned host memory: words that kernels write for the host, and `abort`,
 * which the host writes for kernels. */
struct gyre_cuda_mailbox {
    uint64_t begun;    /* gyre_cuda_begun_word() of the last launch; its first block writes it */
    uint64_t mismatch; /* as in struct gyre_progress */
    uint32_t abort;    /* written by the host, read by kernels that have waited for long */
    uint32_t pad;
    uint64_t late_signal; /* as in struct gyre_progress */
    uint64_t lost_signal; /* likewise */
    /* Indexed by block: how many works are complete when the last launch whose end the block has
     * reported is over. It only grows. */
    uint64_t ended[GYRE_CUDA_MAX_BLOCKS];
    /* Indexed by block of the grid: what a block has polled for milliseconds. The host clears the
     * addresses, and blocks that still wait write theirs again some milliseconds later. */
    struct {
        uint64_t address;
        uint64_t value; /* must_stop_at() in device/sync.cuh */
    } awaited[GYRE_CUDA_MAX_BLOCKS] __attribute__((aligned(16)));
};

/* Recording for GYRE_TRACE_FILE (device/record.cuh). Every block of the grid appends entries of 32
 * bytes to a ring of its own. A launch appends
 *
 *   its FIFO ends, four to an entry   how many slots each end had moved before the launch
 *   an entry for each step            the times; only the interpreter records steps
 *   GYRE_CUDA_RUN_ENTRIES entries     what the launch was; they come last
 *
 * so the host reads a ring from its newest entry backwards. Everything else that an event of the
 * trace says follows from the program, which the host knows. */
union gyre_cuda_record {
    struct {
        uint64_t begin_ns; /* the block begins to wait for the step's slots */
        uint32_t data_ns;  /* so long after begin_ns the data were there */
        uint32_t ready_ns; /* so long after begin_ns there was room as well */
        uint64_t end_ns;   /* the step has moved its bytes and published its slots */
        uint32_t n_bytes;  /* of each slot */
        uint32_t pad;
    } step;
    struct {
        uint32_t index;  /* of the connector */
        uint32_t number; /* slots before this launch, modulo 2^32 */
    } ends[4];
    struct { /* the first entry of a run */
        uint64_t begin_ns;
        uint64_t end_ns;
        uint64_t call;
        uint64_t sequence;
    } run;
    uint64_t marks_ns[4]; /* the second one: enum gyre_cuda_mark; 0 = was not reached */
    struct {              /* the third one */
        uint32_t program; /* of the block's work: variant 0 */
        uint32_t block;   /* among the blocks of its work */
        uint32_t n_ends;
        uint32_t n_steps; /* that were recorded */
        uint32_t n_tiles;
        uint32_t kind; /* enum gyre_cuda_run */
        uint32_t slot_bytes;
        uint32_t first_program; /* of the launch's first call */
    } facts;
    struct {              /* the last one */
        uint64_t n_bytes; /* of the first call */
        uint64_t pad[3];
    } call;
};

#define GYRE_CUDA_RUN_ENTRIES 4

/* Moments in a block's run of a fused program. */
enum gyre_cuda_mark {
    GYRE_CUDA_MARK_SENT,      /* it has sent its inputs, or its chunk */
    GYRE_CUDA_MARK_ARRIVED,   /* the first lines or slots of all peers are there */
    GYRE_CUDA_MARK_PASSED_ON, /* two-shot: it has sent its results */
    GYRE_CUDA_MARK_GATHERED   /* two-shot: the first lines of the peers' results are there */
};

/* What a recorded launch is. */
enum gyre_cuda_run {
    GYRE_CUDA_RUN_STEPS, /* the interpreter */
    GYRE_CUDA_RUN_FUSED, /* a fused kernel */
    GYRE_CUDA_RUN_OPENS, /* the sync kernel before the copies of copy engines */
    GYRE_CUDA_RUN_CLOSES /* the sync kernel after them */
};

struct gyre_cuda_record_block {
    uint64_t n_entries;   /* ever recorded, by the launches that have ended */
    uint64_t begin_ns;    /* when the running launch began */
    uint64_t call;        /* number of the running launch's call */
    uint64_t marks_ns[4]; /* of the running launch; 0 between launches */
    uint32_t n_steps;     /* likewise */
    uint32_t pad;
};

/* In device memory; written by kernels only. Times are those of the GPU's clock. */
struct gyre_cuda_recorder {
    union gyre_cuda_record *entries; /* [block][capacity] */
    uint32_t capacity;               /* a power of two */
    uint32_t pad;
    struct gyre_cuda_record_block blocks[GYRE_CUDA_MAX_BLOCKS];
};

/* When a block ran its part of a launch, for profilers. It lies in pinned host memory, in a ring of
 * GYRE_CUDA_SPANS launches by the number of their first work. */
struct gyre_cuda_span {
    uint64_t call; /* 1 + the number of the launch's first work */
    uint64_t begin_ns;
    uint64_t end_ns;
};
#define GYRE_CUDA_SPANS 512

/* What a launch needs to record itself. */
struct gyre_cuda_recording {
    struct gyre_cuda_recorder *recorder; /* NULL: the launch is not recorded */
    struct gyre_cuda_span *spans;        /* [GYRE_CUDA_SPANS][n_span_blocks]; NULL = for nobody */
    uint64_t first_work; /* works that were launched before it, or GYRE_CUDA_CAPTURED */
    uint64_t sequence;   /* number of its first call in the communicator */
    uint64_t n_bytes;    /* of the first call */
    uint32_t program;    /* of the first call: its program's number in the trace */
    uint32_t slot_bytes; /* about how many bytes the first call's largest slot holds */
    uint16_t kind;       /* enum gyre_cuda_run */
    uint16_t records_steps;
    uint32_t n_span_blocks;
};

/* The launch belongs to a graph, which may run it many times. Its events get the number of works
 * that the GPU has completed, from GYRE_CUDA_FIRST_REPLAY on, so that they differ from all calls
 * that the host numbers. */
#define GYRE_CUDA_CAPTURED     UINT64_MAX
#define GYRE_CUDA_FIRST_REPLAY (UINT64_C(1) << 30)

GYRE_STATIC_ASSERT(sizeof(union gyre_cuda_record) == 32, "written in 16-byte words");

/* Kernel arguments that all works of a launch share. */
struct gyre_cuda_common {
    const struct gyre_connector *connectors;
    uint64_t *counters;        /* of this protocol, by connector index: posted or consumed */
    uint64_t *simple_counters; /* of SIMPLE, for connections that a proxy serves */
    struct gyre_cuda_control *control;
    struct gyre_cuda_mailbox *mailbox;
    uint32_t slot_bytes;     /* of this protocol; SIMPLE: each connection has its own */
    uint32_t net_line_bytes; /* likewise of LL, on connections that a proxy serves */
    uint32_t n_blocks;
    uint32_t n_places;      /* blocks that work; if fewer than n_blocks, they choose their places */
    uint32_t n_reports;     /* blocks that report their end: all that work, or one for all */
    uint16_t n_works;       /* under way in this launch; 0: this launch reports nothing */
    uint16_t ends_works;    /* this is the last launch of those works */
    uint32_t ends_per_rank; /* connectors of one peer: turns an index into a rank */
    struct gyre_cuda_recording recording;
};

/** gyre_cuda_begun_word - what a launch reports when it begins: the number of works completed so
 * far << 17, `ends_works` in bit 16, `n_works` in 8 bits, `n_reports` less one in 8 bits. */
static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_begun_word(const struct gyre_cuda_common *common,
                                                             uint64_t n_completed)
{
    return n_completed << 17 | (uint64_t)(common->ends_works != 0) << 16 |
           (uint64_t)common->n_works << 8 | (common->n_reports - 1);
}

struct gyre_cuda_work {
    const unsigned char *in;
    unsigned char *out;
    unsigned char *scratch;       /* areas of channel 0, then of channel 1, ... */
    const unsigned char *program; /* the blob in device memory */
    struct gyre_cuda_split split;
    uint64_t scalar;
    uint32_t signature;
    uint32_t divisor;
    uint32_t first_block;
    uint32_t channel_stride; /* connectors from a channel to the next */
    uint32_t area_bytes;     /* of scratch */
    uint16_t n_areas;        /* of one channel */
    uint8_t elem_bytes;
    uint8_t premultiply;
    uint8_t in_blocks;
    uint8_t out_blocks;
    uint16_t n_workers;   /* of each variant */
    uint16_t n_variants;  /* channel c runs variant c % n_variants */
    uint16_t n_in_flight; /* SIMPLE: tiles in flight */
    uint8_t posts_late;   /* line protocols: no slot is needed twice in a tile, so credit is given
                           * back once a tile */
    uint8_t shares_steps; /* the block's steps are copied to shared memory */
    void *const *bases;   /* of placed data: gyre_placement.device_bases */
    uint64_t out_offset_bytes;
    uint32_t inline_words; /* 16-byte words of the program in the parameters; 0 = it is not there */
    uint32_t max_connections; /* of one worker */
    uint32_t traced;          /* number of variant 0 in the trace, for recorded launches */
};

/* Shorter programs travel with the launch, which saves a read from memory before the first step.
 * Kernel parameters may take 4 KiB on all drivers that CUDA 12 and 13 support. */
#define GYRE_CUDA_INLINE_BYTES 3072
/* The steps of other programs are copied to shared memory, if no worker has more steps than
 * this. */
#define GYRE_CUDA_SHARED_STEPS 256
/* The line protocols resolve so many steps at a time in shared memory, each in so many bytes. */
#define GYRE_CUDA_LINE_STEPS      32
#define GYRE_CUDA_LINE_STEP_BYTES 352
/* Most works of one launch; each takes at least one multiprocessor. */
#define GYRE_CUDA_MAX_WORKS 160

struct gyre_cuda_args_one {
    struct gyre_cuda_common common;
    struct gyre_cuda_work work;
    unsigned char program[GYRE_CUDA_INLINE_BYTES] __attribute__((aligned(16)));
};

struct gyre_cuda_args_many {
    struct gyre_cuda_common common;
    struct gyre_cuda_work works[GYRE_CUDA_MAX_WORKS];
};

/* A peer of a fused program: its FIFO ends in channel 0, resolved to addresses. "I" is this
 * rank. */
struct gyre_cuda_peer {
    unsigned char *to;         /* its slots for what I send; SIMPLE: its inbox */
    const unsigned char *from; /* my slots for what it sends; SIMPLE: my inbox */
    const uint64_t *head;      /* credit that it gave me */
    uint64_t *posted;          /* credit that I give it */
    uint32_t send_end;         /* connector indices */
    uint32_t recv_end;
    uint64_t in_offset;  /* bytes from IN to the chunk that it reduces */
    uint64_t out_offset; /* bytes from OUT to the chunk that it sends back */
    uint32_t chunk;      /* both of them, where a vector is cut into chunks */
    uint32_t pad;
};

#define GYRE_CUDA_MAX_PEERS 7

/* A fused program (core/model/fused.h) as its kernel reads it. With `reduces`, each peer gets the
 * chunk of IN that it reduces, and this rank reduces its own chunk and the chunks that it receives.
 * Without `reduces`, the result is this rank's own chunk of IN. The result goes to OUT. With
 * `gathers`, it also goes to all peers, and the peers' results are stored to OUT. */
struct gyre_cuda_fused {
    uint64_t own_offset;     /* bytes from IN to the chunk that I reduce or send */
    uint64_t own_out_offset; /* bytes from OUT to where the result goes */
    uint64_t slots_stride;   /* of `to` and `from`: bytes from a channel to the next */
    uint32_t credit_stride;  /* likewise */
    uint32_t depth;          /* a power of two */
    uint32_t own_chunk;
    uint16_t n_peers;
    uint16_t own_place; /* how many peers come before this rank in the order of the reduction */
    uint16_t reduces; /* 0 or 1: the first slot of each connection in a tile holds data to reduce */
    uint16_t gathers; /* 0 or 1: the next slot of each connection holds a result */
    uint32_t threads_per_peer; /* threads that serve a peer, whole warps */
    /* The peers in the order of the reduction, which is the same on all ranks. Launches of LAMPORT
     * and SIMPLE rotate the list so that it begins with the next rank, because then not all ranks
     * send to the same peer first (4 H200, 2026-11: 1 MiB 9.0 -> 8.0 us, 4 MiB 23.1 -> 22.6 us).
     * LL128 does not rotate it. Rotated, LL128 would be 4 % faster at 4 MiB and 0.4 us slower at
     * any size, because the reduction would have to pick its inputs from shared memory. */
    struct gyre_cuda_peer peers[GYRE_CUDA_MAX_PEERS];
};

struct gyre_cuda_args_fused {
    struct gyre_cuda_common common;
    struct gyre_cuda_work work;
    struct gyre_cuda_fused fused;
};

/* A sync kernel publishes and awaits slots of the SIMPLE protocol and moves no data: copy engines
 * do that, before and after it in the stream. */
enum gyre_cuda_sync_act {
    GYRE_CUDA_SYNC_OPEN = 1,   /* receiving end: say that this rank has entered the call */
    GYRE_CUDA_SYNC_POST = 2,   /* sending end: publish the slot */
    GYRE_CUDA_SYNC_ENTER = 4,  /* sending end: wait until the receiver has entered the call */
    GYRE_CUDA_SYNC_CREDIT = 8, /* sending end: wait until the slot is free */
    GYRE_CUDA_SYNC_TAKE = 16,  /* receiving end: wait for the slot and give it back */
    GYRE_CUDA_SYNC_COUNT = 32  /* add `slot` to the end's counter */
};

struct gyre_cuda_sync_entry {
    uint32_t index; /* connector */
    uint32_t slot;  /* of this call on that end */
    uint32_t n_bytes;
    uint32_t acts; /* enum gyre_cuda_sync_act */
};

#define GYRE_CUDA_SYNC_ENTRIES 192
#define GYRE_CUDA_SYNC_THREADS 64

struct gyre_cuda_args_sync {
    struct gyre_cuda_common common;
    uint32_t signature;
    uint32_t n_entries;
    struct gyre_cuda_sync_entry entries[GYRE_CUDA_SYNC_ENTRIES];
};

/* Arguments of the kernel that copies within a GPU's memory. */
struct gyre_cuda_args_copy {
    const unsigned char *from;
    unsigned char *to;
    uint64_t n_bytes;
};

/* Arguments of the kernel that counts up a signal of another rank. */
struct gyre_cuda_args_signal {
    const struct gyre_cuda_control *control;
    uint64_t *sent;    /* this rank's counter, on this GPU */
    uint64_t *arrived; /* the peer's counter */
};

/* Arguments of the kernel that waits for signals. Of `common` it uses control and mailbox. */
#define GYRE_CUDA_AWAIT_ENTRIES 256
#define GYRE_CUDA_AWAIT_THREADS 32

struct gyre_cuda_await_entry {
    uint32_t index; /* sending rank * GYRE_N_SIGNALS + signal */
    uint32_t count; /* signals to take */
};

struct gyre_cuda_args_await {
    struct gyre_cuda_common common;
    const uint64_t *arrived;  /* this rank's counters, on this GPU */
    uint64_t *awaited;        /* likewise */
    const uint64_t *has_left; /* by rank, in pinned host memory: 1 = the rank sends no more signals.
                               * Written by the host */
    uint64_t timeout_ns;      /* 0 = none */
    uint32_t n_entries;
    uint32_t pad;
    struct gyre_cuda_await_entry entries[GYRE_CUDA_AWAIT_ENTRIES];
};

/* Words in pinned host memory by which the clocks of GPU and host are compared. The host asks for
 * one time after the other; the kernel answers each. */
#define GYRE_CUDA_CLOCK_ROUNDS 32
struct gyre_cuda_clock_words {
    uint32_t n_asked; /* written by the host */
    uint32_t pad;
    uint64_t answers_ns[GYRE_CUDA_CLOCK_ROUNDS]; /* written by the kernel; 0 = not yet */
};

#define GYRE_CUDA_COPY_THREADS 512
#define GYRE_CUDA_COPY_PIECE   ((uint64_t)(64 << 10))

GYRE_STATIC_ASSERT(GYRE_CUDA_MAX_WORKS < 256 && GYRE_CUDA_MAX_BLOCKS <= 256,
                   "gyre_cuda_begun_word");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_args_sync) <= 4096, "kernel parameters");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_args_await) <= 4096, "kernel parameters");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_args_one) <= 4096, "kernel parameters");
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_args_many) <= 32764, "kernel parameters");

/** gyre_cuda_lamport_half - what LAMPORT carries of 8 bytes. LAMPORT sends them inverted, and zero
 * means empty, so it cannot carry 8 bytes of ones. These are NaNs in every floating-point type, and
 * they are still NaNs without the last element's sign, which is sent instead. */
static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_lamport_half(uint64_t half)
{
    return half == UINT64_MAX ? UINT64_MAX >> 1 : half;
}

/* Threads of a block of SIMPLE that do not move bytes: the waiter's and the poster's warp. */
#define GYRE_CUDA_SERVICE_THREADS 64

/* Most threads of a block of a line protocol. */
#define GYRE_CUDA_LINE_THREADS 512

/* Protocol SIMPLE: how many tiles are in flight together, if there are slots for them. */
#define GYRE_CUDA_TILES_IN_FLIGHT 2

/* Most threads that move data in a block of a fused kernel; LAMPORT: GYRE_CUDA_LAMPORT_THREADS. */
#define GYRE_CUDA_FUSED_THREADS 512

/* Line protocols: how many rounds of a phase are in flight. In a round every thread of a group
 * moves one part of a line: 8 bytes in LL, 15 bytes on average in LL128. */
#define GYRE_CUDA_UNROLL      2
#define GYRE_CUDA_DEEP_UNROLL 5
#define GYRE_CUDA_LONG_UNROLL 6 /* the addresses are not kept in registers */

/* Kinds of fused kernels of LAMPORT. SAME: all peers get the same chunk of IN (one-shot
 * all-reduce). APART: each peer gets another chunk (reduce-scatter). GATHERS: as APART, and the
 * result goes to all peers (two-shot). */
enum gyre_cuda_lamport {
    GYRE_CUDA_LAMPORT_SAME,
    GYRE_CUDA_LAMPORT_APART,
    GYRE_CUDA_LAMPORT_GATHERS,
    GYRE_CUDA_LAMPORT_KINDS
};

/* Fused kernels that have registers for 1, 3 or 7 peers. */
#define GYRE_CUDA_PEERS_KERNELS               3
#define GYRE_CUDA_LAMPORT_THREADS(most_peers) ((most_peers) > 1 ? 512 : 1024)

#endif
