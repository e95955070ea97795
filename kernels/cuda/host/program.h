/* SPDX-License-Identifier: Apache-2.0
 *
 * The layouts that host and GPU share: lowered programs, kernel parameters, and the words by which
 * kernels report; also recording.h. Between calls only the counters of FIFOs
 * change; kernels keep them, so a captured launch replays without the host. Valid as C11 and as
 * CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_PROGRAM_H
#define GYRE_KERNELS_CUDA_PROGRAM_H

#include "core/foundation/model/connector.h"
#include "core/foundation/model/line.h"
#include "core/foundation/model/tile.h"
#include "kernels/cuda/host/recording.h"

/* core/foundation/model/tile.h without divisions on the GPU. gyre_part()'s quotients: a range takes
 * eight 64-bit divisions of some 100 instructions each. */
struct gyre_cuda_split {
    uint64_t count;
    uint64_t share_units; /* the first extra_channels have one more */
    uint32_t extra_channels;
    uint32_t n_chunks;
    uint32_t tile_elems;
    uint32_t unit_elems;
    uint64_t chunk_share_units[2]; /* in channels with share_units, with one more */
    uint32_t extra_chunks[2];
    uint32_t n_tiles;
    uint32_t pad;
};

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

/* A channel's part of the vector, in elements. */
struct gyre_cuda_share {
    uint64_t begin;
    uint64_t end;
    uint64_t chunk_elems;  /* the first extra_chunks have a unit more */
    uint32_t extra_chunks; /* of one chunk: 0 */
    uint32_t unit_elems;
    uint32_t tile_elems;
    uint32_t chunk_mask; /* 0: one chunk, whatever the steps call it */
};

/** Once a block. */
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

/* `ref` of a connection is its number in the worker, and `use` counts its earlier uses in the tile,
 * so no slot number needs a shared counter. `ref` of a chunk: two bits kind, then index. */
struct gyre_cuda_operand {
    uint16_t ref;
    uint16_t use;
};

#define GYRE_CUDA_REF_KIND_SHIFT 14
#define GYRE_CUDA_REF_INDEX_MASK 0x3fffU
#define GYRE_CUDA_REF_PLACED     0x4000U /* of a connection, which has no kind */

struct gyre_cuda_step {
    uint8_t n_ins;
    uint8_t n_outs;
    uint8_t is_final;
    uint8_t n_pieces; /* > 1: a range of chunks, in SIMPLE; tile after tile in a slot */
    uint16_t chunk;
    uint16_t recv_mask;   /* bit i: ins[i] is a connection */
    uint16_t send_mask;   /* bit i: outs[i] is a connection */
    uint16_t caller_mask; /* bit i: ins[i] is the caller's, multiplied if the op asks */
    struct gyre_cuda_operand ins[GYRE_STEP_MAX_INS];
    struct gyre_cuda_operand outs[GYRE_STEP_MAX_OUTS];
    /* As in struct gyre_step; chunks, blocks and areas are counted round n_parts. */
    uint16_t run, stride, n_parts, more_pad;
} __attribute__((aligned(16))); /* the GPU reads neighbours together */

struct gyre_cuda_connection {
    uint32_t index;  /* gyre_connector_index() in channel 0 */
    uint16_t n_uses; /* slots in a tile; never 0 */
    uint8_t is_placed;
    uint8_t is_simple; /* of a proxy, within a line protocol */
};

struct gyre_cuda_worker {
    uint32_t first_step;
    uint32_t n_steps;
    uint32_t first_connection;
    uint32_t n_connections;
};

/* Offsets are from here, multiples of 16. A variant's unused workers have n_steps 0. */
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

/* All 0 between launches. */
struct gyre_cuda_places {
    uint32_t taken[GYRE_CUDA_MAX_BLOCKS / 32]; /* a bit a place */
    uint32_t n_taken;
    uint32_t n_leaving; /* blocks without a place so far; as many stay as places are left */
    uint64_t begin_ns;  /* when the first of them began to wait */
};

/* In device memory. Written by the executor's kernels only. */
struct gyre_cuda_control {
    uint64_t sequence;   /* completed works << GYRE_CUDA_SEQUENCE_SHIFT | begun blocks of the next
                          * launch */
    uint32_t is_aborted; /* sticky: later kernels and graph nodes end at once */
    uint32_t n_ended;    /* SIMPLE: blocks of this launch */
    struct gyre_cuda_places places;
};

#define GYRE_CUDA_SEQUENCE_SHIFT 16

/* Pinned, written by kernels for the host, `abort` by the host for kernels. */
struct gyre_cuda_mailbox {
    uint64_t begun;    /* gyre_cuda_begun_word(), from the launch's first block */
    uint64_t mismatch; /* as in struct gyre_progress */
    uint32_t abort;    /* for kernels that have waited for long */
    uint32_t pad;
    uint64_t late_signal; /* as in struct gyre_progress */
    uint64_t lost_signal; /* likewise */
    /* By block: works complete when its last reported launch is over. Only grows. */
    uint64_t ended[GYRE_CUDA_MAX_BLOCKS];
    /* By block: polled for milliseconds. The host clears the addresses; waiting blocks write
     * again. */
    struct {
        uint64_t address;
        uint64_t value; /* must_stop_at() in device/sync.cuh */
    } awaited[GYRE_CUDA_MAX_BLOCKS] __attribute__((aligned(16)));
};

struct gyre_cuda_common {
    const struct gyre_connector *connectors;
    uint64_t *counters;        /* by connector index, of this protocol */
    uint64_t *simple_counters; /* of SIMPLE, with a proxy */
    struct gyre_cuda_control *control;
    struct gyre_cuda_mailbox *mailbox;
    uint32_t slot_bytes;     /* SIMPLE: each connection has its own */
    uint32_t net_line_bytes; /* of LL, with a proxy */
    uint32_t n_blocks;
    uint32_t n_places;   /* blocks that work; if fewer than n_blocks, they choose their places */
    uint32_t n_reports;  /* blocks that report their end: all that work, or one */
    uint16_t n_works;    /* under way in this launch; 0: it reports nothing */
    uint16_t ends_works; /* the last launch of those works */
    uint32_t ends_per_rank;
    struct gyre_cuda_recording recording;
};

/** Works completed << 17, `ends_works` in bit 16, `n_works` in 8 bits,
 * `n_reports` less one in 8 bits. */
static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_begun_word(const struct gyre_cuda_common *common,
                                                             uint64_t n_completed)
{
    return n_completed << 17 | (uint64_t)(common->ends_works != 0) << 16 |
           (uint64_t)common->n_works << 8 | (common->n_reports - 1);
}

struct gyre_cuda_work {
    const unsigned char *in;
    unsigned char *out;
    unsigned char *scratch;       /* by channel */
    const unsigned char *program; /* in device memory */
    struct gyre_cuda_split split;
    uint64_t scalar;
    uint32_t signature;
    uint32_t divisor;
    uint32_t first_block;
    uint32_t channel_stride; /* connectors to the next channel */
    uint32_t area_bytes;     /* of scratch */
    uint16_t n_areas;        /* of one channel */
    uint8_t elem_bytes;
    uint8_t premultiply;
    uint8_t in_blocks;
    uint8_t out_blocks;
    uint16_t n_workers;   /* of each variant */
    uint16_t n_variants;  /* channel c runs c % n_variants */
    uint16_t n_in_flight; /* SIMPLE */
    uint8_t posts_late;   /* line protocols: credit is given once a tile, because no slot is used
                           * twice in it */
    uint8_t shares_steps; /* are copied to shared memory */
    void *const *bases;   /* gyre_placement.device_bases */
    uint64_t out_offset_bytes;
    uint32_t inline_words;    /* of 16 bytes, in the parameters; 0 = not there */
    uint32_t max_connections; /* of one worker */
    uint32_t traced;          /* variant 0's number, in recorded launches */
};

/* Shorter programs travel with the launch and save a read. Kernel parameters may take 4 KiB on all
 * drivers that CUDA 12 and 13 support. */
#define GYRE_CUDA_INLINE_BYTES 3072
/* Shorter workers are copied to shared memory. */
#define GYRE_CUDA_SHARED_STEPS 256
/* Resolved at a time in shared memory, by line protocols. */
#define GYRE_CUDA_LINE_STEPS      32
#define GYRE_CUDA_LINE_STEP_BYTES 352
/* Of one launch; each takes at least one multiprocessor. */
#define GYRE_CUDA_MAX_WORKS 160
/* A launch copies all parameters, used or not, and those of GYRE_CUDA_MAX_WORKS take 27 KiB, so few
 * works have their own kernels. */
#define GYRE_CUDA_FEW_WORKS 4

struct gyre_cuda_args_one {
    struct gyre_cuda_common common;
    struct gyre_cuda_work work;
    unsigned char program[GYRE_CUDA_INLINE_BYTES] __attribute__((aligned(16)));
};

struct gyre_cuda_args_many {
    struct gyre_cuda_common common;
    struct gyre_cuda_work works[GYRE_CUDA_MAX_WORKS];
};

/* The beginning of struct gyre_cuda_args_many. */
struct gyre_cuda_args_few {
    struct gyre_cuda_common common;
    struct gyre_cuda_work works[GYRE_CUDA_FEW_WORKS];
};

/* Works of several protocols. */
struct gyre_cuda_args_mixed {
    struct gyre_cuda_common
        commons[GYRE_N_SLOT_PROTOS];     /* by protocol; differ in counters and slot_bytes */
    uint8_t protos[GYRE_CUDA_MAX_WORKS]; /* of the works: enum gyre_proto */
    struct gyre_cuda_work works[GYRE_CUDA_MAX_WORKS];
};

/* The beginning of struct gyre_cuda_args_mixed. */
struct gyre_cuda_args_mixed_few {
    struct gyre_cuda_common commons[GYRE_N_SLOT_PROTOS];
    uint8_t protos[GYRE_CUDA_MAX_WORKS];
    struct gyre_cuda_work works[GYRE_CUDA_FEW_WORKS];
};

/* Both sides of its FIFOs in channel 0. "I" is this rank. */
struct gyre_cuda_peer {
    unsigned char *to;         /* its slots for my data; SIMPLE: its inbox */
    const unsigned char *from; /* my slots for its data; SIMPLE: my inbox */
    const uint64_t *head;      /* credit that it gave me */
    uint64_t *posted;          /* credit that I give it */
    uint32_t send_end;         /* connector indices */
    uint32_t recv_end;
    uint64_t in_offset;  /* from IN to the chunk for it */
    uint64_t out_offset; /* from OUT to its chunk */
    uint32_t chunk;      /* of both, where a vector is cut */
    uint32_t pad;
};

#define GYRE_CUDA_MAX_PEERS 7

/* A fused program (core/foundation/model/fused.h). With `scatters`, each peer gets a chunk of IN;
 * with `reduces`, this rank reduces its own chunk with those received; without, the result is its
 * own chunk of IN. The result goes to OUT and, with `gathers`, to all peers, whose results go to
 * OUT. If it only scatters, the peers' chunks go to OUT. A send only scatters and a receive only
 * gathers; one launch of both has one peer, whose ends may be of two ranks. */
struct gyre_cuda_fused {
    uint64_t own_offset;     /* from IN to the chunk that I reduce or send */
    uint64_t own_out_offset; /* from OUT to the result */
    uint64_t slots_stride;   /* to the next channel's `to` and `from` */
    uint32_t credit_stride;  /* likewise */
    uint32_t depth;          /* a power of two */
    uint32_t own_chunk;
    uint16_t n_peers;
    uint16_t own_place; /* peers before this rank in the reduction */
    uint16_t scatters;  /* 0 or 1: a connection's first slot of a tile holds a chunk of IN */
    uint16_t reduces;   /* 0 or 1: that chunk is reduced */
    uint16_t gathers;   /* 0 or 1: the next slot, or the only one, is stored to OUT */
    /* A send launched before this rank's receive gives its credit in so many channels; else 0. */
    uint16_t n_channels_behind;
    uint32_t threads_per_peer; /* whole warps */
    /* In the order of the reduction, the same on all ranks. LAMPORT and SIMPLE rotate it to begin
     * with the next rank, so that not all ranks send to the same peer first. LL128 does not,
     * because the reduction would pick its inputs from shared memory: 0.4 us (4 H200, 2026-11). */
    struct gyre_cuda_peer peers[GYRE_CUDA_MAX_PEERS];
};

struct gyre_cuda_args_fused {
    struct gyre_cuda_common common;
    struct gyre_cuda_work work;
    struct gyre_cuda_fused fused;
};

/* Between copies by copy engines; slots of SIMPLE. */
enum gyre_cuda_sync_act {
    GYRE_CUDA_SYNC_OPEN = 1,   /* receiver: this rank has entered the call */
    GYRE_CUDA_SYNC_POST = 2,   /* sender: publish the slot */
    GYRE_CUDA_SYNC_ENTER = 4,  /* sender: wait until the receiver has entered */
    GYRE_CUDA_SYNC_CREDIT = 8, /* sender: wait until the slot is free */
    GYRE_CUDA_SYNC_TAKE = 16,  /* receiver: wait for the slot and give it back */
    GYRE_CUDA_SYNC_COUNT = 32  /* add `slot` to the end's counter */
};

struct gyre_cuda_sync_entry {
    uint32_t index; /* connector */
    uint32_t slot;  /* of this call */
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

struct gyre_cuda_args_copy {
    const unsigned char *from;
    unsigned char *to;
    uint64_t n_bytes;
};

struct gyre_cuda_args_signal {
    const struct gyre_cuda_control *control;
    uint64_t *sent;    /* this rank's, on this GPU */
    uint64_t *arrived; /* the peer's */
};

/* Of `common` the kernel uses control and mailbox. */
#define GYRE_CUDA_AWAIT_ENTRIES 256
#define GYRE_CUDA_AWAIT_THREADS 32

struct gyre_cuda_await_entry {
    uint32_t index; /* sending rank * GYRE_N_SIGNALS + signal */
    uint32_t count;
};

struct gyre_cuda_args_await {
    struct gyre_cuda_common common;
    const uint64_t *arrived; /* this rank's, on this GPU */
    uint64_t *awaited;       /* likewise */
    const uint64_t
        *has_left;       /* by rank, pinned, written by the host: 1 = it sends no more signals */
    uint64_t timeout_ns; /* 0 = none */
    uint32_t n_entries;
    uint32_t pad;
    struct gyre_cuda_await_entry entries[GYRE_CUDA_AWAIT_ENTRIES];
};

/* Pinned: the host asks for one time after the other. */
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
GYRE_STATIC_ASSERT(sizeof(struct gyre_cuda_args_mixed) <= 32764, "kernel parameters");
GYRE_STATIC_ASSERT(offsetof(struct gyre_cuda_args_few, works) ==
                           offsetof(struct gyre_cuda_args_many, works) &&
                       offsetof(struct gyre_cuda_args_mixed_few, works) ==
                           offsetof(struct gyre_cuda_args_mixed, works),
                   "one is the beginning of the other");

/** LAMPORT sends words inverted, and zero means empty, so it cannot carry
 * 8 bytes of ones: NaNs in every type, also without the last element's sign, and sent so. */
static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_lamport_half(uint64_t half)
{
    return half == UINT64_MAX ? UINT64_MAX >> 1 : half;
}

/* SIMPLE: the waiter's and the poster's warp. */
#define GYRE_CUDA_SERVICE_THREADS 64

/* Of a line protocol's block. */
#define GYRE_CUDA_LINE_THREADS 512

/* SIMPLE, if there are slots for them. */
#define GYRE_CUDA_TILES_IN_FLIGHT 2

/* Most that move data in a block; LAMPORT: GYRE_CUDA_LAMPORT_THREADS. */
#define GYRE_CUDA_FUSED_THREADS 512

/* Likewise in two rows: two blocks fit a multiprocessor's registers. */
#define GYRE_CUDA_ROW_THREADS 384

/* Rounds in flight of line protocols. In a round a thread moves one part of a line: 8 bytes in LL,
 * 15 on average in LL128. */
#define GYRE_CUDA_UNROLL      2
#define GYRE_CUDA_DEEP_UNROLL 5
#define GYRE_CUDA_LONG_UNROLL 6 /* without addresses in registers */

/* SAME: all peers get the same chunk of IN (one-shot all-reduce). APART: each gets another
 * (reduce-scatter). GATHERS: as APART, and the result goes to all (two-shot). */
enum gyre_cuda_lamport {
    GYRE_CUDA_LAMPORT_SAME,
    GYRE_CUDA_LAMPORT_APART,
    GYRE_CUDA_LAMPORT_GATHERS,
    GYRE_CUDA_LAMPORT_KINDS
};

/* With registers for 1, 3 or 7 peers. */
#define GYRE_CUDA_PEERS_KERNELS               3
#define GYRE_CUDA_LAMPORT_THREADS(most_peers) ((most_peers) > 1 ? 512 : 1024)

#endif
