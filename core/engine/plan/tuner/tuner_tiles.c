/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the number of channels and the tile of a call whose algorithm and protocol are given.
 * Pure, as tuner.c. Each threshold cites the measurement that it comes from.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"
#include "core/foundation/model/tile.h"
#include "kernels/executor.h"

#define MIN_TILE_BYTES 4096

/* Over TCP a tile takes at most so long on the wire. Predictions count the mean time of a hop, but
 * a thread that waits for its core is late by up to some milliseconds. With long tiles the rank has
 * little else to send meanwhile. Fast networks reach the size of a slot first. All-reduce of 1 MiB
 * on 2 hosts of 2 ranks by two_level_log, links of 200 Mbit/s, cores with other work: 22.0 ms with
 * tiles of 24 KiB, 25 to 45 with 128 KiB; reduce-scatter by two_level_ring 11.1 and 16.4 ms. The
 * links allow 21.9 and 11.0 (2026-11). */
#define MOST_TCP_TILE_NS 1e6

struct gyre_fifo_size gyre_tuner_fifos(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll)
{
    const bool keeps_near =
        coll == GYRE_COLL_SEND_RECV ? facts->is_near : (algorithm->keeps_near >> coll & 1U) != 0;
    return gyre_fifo_size_of(&facts->spec, !keeps_near);
}

uint32_t gyre_tuner_payload_bytes(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  enum gyre_proto proto, bool is_placed)
{
    const struct gyre_fifo_spec *spec = &facts->spec;
    const uint32_t bytes = proto == GYRE_PROTO_SIMPLE
                               ? gyre_tuner_fifos(facts, algorithm, coll).slot_bytes
                               : spec->slot_bytes[gyre_proto_slots(proto)];
    const bool is_ring = algorithm->follows_ring || (is_placed && algorithm->stages_in_ring);
    uint32_t payload_bytes = proto == GYRE_PROTO_SIMPLE && is_ring && spec->ring_slot_bytes > 0
                                 ? spec->ring_slot_bytes
                                 : gyre_slot_payload_bytes(proto, bytes);
    if (proto != GYRE_PROTO_SIMPLE &&
        facts->is_proxied) /* a tile goes through both kinds of slot */
        payload_bytes =
            gyre_min_u32(payload_bytes, gyre_tuner_fifos(facts, algorithm, coll).slot_bytes);
    return facts->device_kind == GYRE_DEVICE_CUDA && algorithm->keeps_sums &&
                   gyre_cuda_has_small_areas(facts->n_ranks)
               ? gyre_min_u32(payload_bytes, GYRE_CUDA_SMALL_AREA_BYTES)
               : payload_bytes;
}

uint32_t gyre_tuner_net_payload_bytes(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    return proto == GYRE_PROTO_SIMPLE
               ? UINT32_MAX
               : gyre_slot_payload_bytes(proto, facts->spec.net_line_bytes) / 16 * 16;
}

static uint64_t square_root(uint64_t value)
{
    uint64_t root = 0;
    for (uint64_t bit = 1ULL << 31; bit > 0; bit >>= 1)
        if ((root + bit) * (root + bit) <= value)
            root += bit;
    return root;
}

static bool is_chain(enum gyre_collective coll, const struct gyre_algorithm *algorithm)
{
    return (algorithm->chains >> coll & 1U) != 0;
}

/* Do thread blocks write the tiles to the peer themselves? So it is in protocol SIMPLE on GPUs
 * without a proxy. */
static bool is_pushed(const struct gyre_tuner_facts *facts, enum gyre_proto proto)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && !facts->is_proxied &&
           proto == GYRE_PROTO_SIMPLE;
}

/* Channels of a call in a line protocol between all pairs of ranks. Each channel moves about as
 * many bytes as the threads that a block has for one peer move in one round (2 and 4 H200, 1 KiB to
 * 4 MiB: bench_cuda_exec, 2026-11). All-gathers of two ranks use up to four channels for fewer
 * bytes: 8 KiB in 2, 4 and 8 channels take 2.81, 2.73 and 2.83 us (docs/lab_notes.md). All-to-alls
 * of two ranks move the same lines. */
static uint64_t line_channels(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                              uint64_t n_bytes)
{
    const uint64_t n_rounds = gyre_div_round_up(n_bytes, gyre_max_u64(4096 / facts->n_ranks, 512));
    const bool is_copy =
        coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_ALL_TO_ALL || coll == GYRE_COLL_SEND_RECV;
    return is_copy && facts->n_ranks == 2
               ? gyre_max_u64(n_rounds, gyre_min_u64(gyre_div_round_up(n_bytes, 128), 4))
               : n_rounds;
}

/* Channels of a call between all pairs of ranks whose slots lie in host memory, in a line protocol.
 * One multiprocessor has few reads over PCIe in flight, so each channel gets only as many lines as
 * one warp reads at once: all-reduces of 4 KiB in 1, 4, 8 and 16 channels take 18.1, 12.4, 8.0 and
 * 4.9 us (2 H100 without P2P, 2026-11). */
static uint64_t host_line_channels(const struct gyre_tuner_facts *facts,
                                   const struct gyre_choice *choice, enum gyre_collective coll,
                                   uint64_t n_bytes)
{
    const bool has_chunks = coll == GYRE_COLL_ALL_REDUCE && !choice->algorithm->is_one_shot;
    return gyre_div_round_up(has_chunks ? gyre_div_round_up(n_bytes, facts->n_ranks) : n_bytes,
                             256);
}

/* Bytes of a call in one channel whose slots lie in host memory. A thread block copies them over
 * PCIe at a few bytes a nanosecond: an all-reduce of 64 KiB in one channel takes 16 us longer than
 * one of 16 KiB (2 H100 without P2P, 2026-11). */
#define HOST_CHANNEL_BYTES 8192

/* Channels of a message between two GPUs over RDMA. The first four have 64 KiB each, so that
 * several thread blocks copy them. A NIC sends long messages with less work: 1 MiB both ways in 16
 * channels takes 175 us over a stand-in NIC of two ports of 100 Gbit/s, where four times as many
 * bytes in as many channels take 272 (2 H100, 2026-11). */
static uint64_t rdma_send_channels(uint64_t n_bytes)
{
    return gyre_max_u64(gyre_min_u64(gyre_div_round_up(n_bytes, 64 << 10), 4),
                        gyre_div_round_up(n_bytes, 256 << 10));
}

/* Channels of a call on GPUs. In protocol SIMPLE a channel carries up to 128 KiB of a rank's part,
 * so that the part is two tiles, and the steps of one tile overlap those of the other. Calls of
 * 2 MiB or more use at least 32 channels (2 and 4 H200, 4 MiB to 64 MiB, all of 16, 32, 64 channels
 * x 16 to 256 KiB tiles: bench_cuda_exec with BENCH_TILE, 2026-11). With more than two ranks, calls
 * of 12 MiB or more carry twice as much in a channel and use at least 16 channels: an all-gather of
 * 16 MiB into windows takes 48.0 us in 32 channels and 46.1 in 16 (4 H200, likewise). */
static uint64_t cuda_channels(const struct gyre_tuner_facts *facts,
                              const struct gyre_choice *choice, enum gyre_collective coll,
                              uint64_t n_bytes)
{
    const uint64_t total = gyre_tuner_all_bytes(facts, coll, n_bytes);
    if (choice->proto != GYRE_PROTO_SIMPLE && is_chain(coll, choice->algorithm))
        /* Use so many channels that each has one tile: with a second tile a broadcast of 64 KiB
         * takes 6.3 us instead of 4.0 (4 H200). */
        return gyre_div_round_up(
            n_bytes, gyre_min_u64(2 * 1024, gyre_tuner_payload_bytes(facts, choice->algorithm, coll,
                                                                     choice->proto, false)));
    if (choice->proto != GYRE_PROTO_SIMPLE)
        return facts->in_host_memory ? host_line_channels(facts, choice, coll, n_bytes)
                                     : line_channels(facts, coll, n_bytes);
    /* A chain along a ring is as fast with 32 channels as with more, or faster: broadcasts of 64
     * MiB to 1 GiB over 4 H200 reach 347 to 363 GB/s, with 64 channels 337 to 358 (2026-11). */
    if (is_chain(coll, choice->algorithm) && choice->algorithm->follows_ring &&
        facts->n_ranks > 2 && !facts->is_proxied && n_bytes >= 12 << 20)
        return 32;
    if (facts->in_host_memory && !is_chain(coll, choice->algorithm) && total < 2 << 20)
        return gyre_min_u64(gyre_div_round_up(n_bytes, HOST_CHANNEL_BYTES), 32);
    if (coll == GYRE_COLL_SEND_RECV && facts->is_proxied && !facts->is_tcp && facts->n_ranks == 2)
        return rdma_send_channels(n_bytes);
    if (is_chain(coll, choice->algorithm) || total < 2 << 20 || facts->is_proxied)
        return gyre_div_round_up(n_bytes, 64 * 1024);
    if (facts->n_ranks > 2 && total >= 12 << 20)
        return gyre_max_u64(gyre_div_round_up(total, facts->n_ranks * 262144ULL), 16);
    return gyre_max_u64(gyre_div_round_up(total, facts->n_ranks * 131072ULL), 32);
}

uint32_t gyre_tuner_channels(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                             enum gyre_collective coll, uint64_t n_bytes)
{
    uint64_t wanted = 1;
    if (facts->device_kind == GYRE_DEVICE_CUDA)
        wanted = cuda_channels(facts, choice, coll, n_bytes);
    else if (facts->is_proxied && n_bytes > 65536)
        /* A link with a long round trip is busy only if slots of several FIFOs are in flight: one
         * channel fills 48% of a 1 Gbit/s, 1 ms link, four fill 99% (tests/lab, 2026-11). */
        wanted = 4;
    return gyre_clamp_u32(wanted, facts->min_channels, facts->max_channels);
}

/* The tile of a chain. Each rank passes a tile on before the next one arrives, so there should be
 * enough tiles to keep all ranks busy, but no tile should be too small. */
static uint32_t chain_tile(const struct gyre_tuner_facts *facts, uint64_t n_bytes,
                           uint32_t most_bytes)
{
    /* A channel's B bytes in tiles of t take (n - 1 + B / t) steps of (o + t / r); with o = 1.5 us
     * and r = 6 bytes/ns a channel on H200s the best t is sqrt(B o r / (n - 1)). */
    if (facts->device_kind == GYRE_DEVICE_CUDA) {
        const uint64_t hops = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
        return gyre_clamp_u32(gyre_round_up(square_root(n_bytes * 9000 / hops), 512),
                              gyre_min_u64(2048, most_bytes) & ~15U, most_bytes);
    }
    const uint64_t wanted = n_bytes / (4ULL * facts->n_ranks);
    return gyre_clamp_u32(gyre_round_up(wanted, 4096),
                          gyre_min_u64(MIN_TILE_BYTES, most_bytes) & ~15U, most_bytes);
}

/* The tile of LL128 and LAMPORT between all pairs of ranks. There are as few tiles as possible, and
 * each tile is a multiple of the bytes that the threads move in one round; otherwise the last tile
 * takes one round more (4 H200, all-reduce of 4 MiB: 35.2 us instead of 35.8, 2026-11). In LL128
 * the 512 threads of a block are divided among the peers, and a warp moves 480 bytes in a round. */
static uint32_t lines_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                           enum gyre_collective coll, uint64_t n_bytes, uint32_t most_bytes)
{
    const uint64_t n_peers = facts->n_ranks > 1 ? facts->n_ranks - 1 : 1;
    const uint64_t round_bytes =
        choice->proto == GYRE_PROTO_LAMPORT ? 512 * 16 : gyre_max_u64(512 / n_peers / 32, 1) * 480;
    const bool is_cut = (choice->algorithm->cuts_vector >> coll & 1U) != 0;
    const struct gyre_split split = {.count = n_bytes,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = is_cut ? facts->n_ranks : 1,
                                     .tile_elems = most_bytes,
                                     .unit_elems = 16};
    const uint64_t part = gyre_chunk_range(&split, 0, 0).n_elems; /* the longest */
    const uint64_t n_tiles = gyre_max_u64(gyre_div_round_up(part, most_bytes), 1);
    const uint64_t wanted =
        gyre_round_up(gyre_max_u64(gyre_div_round_up(part, n_tiles), 1), round_bytes);
    return (uint32_t)gyre_min_u64(wanted, most_bytes);
}

/* The tile as far as the protocol of links without a proxy decides it. */
static uint32_t tile_of(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                        enum gyre_collective coll, uint64_t n_bytes)
{
    const bool is_placed = choice->path != GYRE_PATH_STAGED;
    const uint32_t most_bytes =
        gyre_tuner_payload_bytes(facts, choice->algorithm, coll, choice->proto, is_placed) / 16 *
        16;
    const bool is_ring = choice->algorithm->follows_ring;
    if ((choice->proto == GYRE_PROTO_LL128 || choice->proto == GYRE_PROTO_LAMPORT) &&
        !is_chain(coll, choice->algorithm) && !is_ring)
        return lines_tile(facts, choice, coll, n_bytes, most_bytes);
    /* In the line protocols a rank passes on each line when it arrives, so small tiles gain nothing
     * (4 H200, broadcast of 1 MiB in whole slots 7.9 us, in tiles that fill the chain 10.1,
     * 2026-11). */
    if (facts->device_kind == GYRE_DEVICE_CUDA && choice->proto != GYRE_PROTO_SIMPLE)
        return most_bytes;
    if (is_chain(coll, choice->algorithm) && !(is_ring && is_pushed(facts, choice->proto)))
        return chain_tile(facts, n_bytes / choice->n_channels, most_bytes);
    /* In broadcast and reduce along a ring the next call starts at the first rank while this one is
     * still on its way. So the time of the steps counts and not the time from the first rank to the
     * last, and long tiles are better (4 H200, 4 MiB to 1 GiB, 2026-11). */
    if (is_chain(coll, choice->algorithm) || !is_pushed(facts, choice->proto))
        return most_bytes;
    /* A channel has two tiles. It has one tile where a block goes directly to the only other rank:
     * placed (2 H200, 16 MiB: 32.6 us instead of 33.2), staged without sums (2 H100, 8 MiB:
     * all-to-all 25.0 instead of 26.9, gather 17.9 and 19.1, scatter 19.1 and 21.6), and in sends
     * and receives (2 H100, 4 MiB both ways: in tiles of 128 KiB 24.7 us, of 64 KiB 25.6, of 32 KiB
     * 28.0; 2026-11). */
    const bool is_send = coll == GYRE_COLL_SEND_RECV;
    const uint64_t part = gyre_tuner_all_bytes(facts, coll, n_bytes) /
                          (is_send ? 1 : facts->n_ranks) / choice->n_channels;
    const bool is_one_hop = is_send || (facts->n_ranks == 2 && choice->algorithm->is_one_shot &&
                                        (is_placed || !gyre_collectives[coll].reduces));
    return gyre_clamp_u32(gyre_round_up(is_one_hop ? part : part / 2, 512),
                          gyre_min_u64(16384, most_bytes) & ~15U, most_bytes);
}

uint32_t gyre_tuner_tile(const struct gyre_tuner_facts *facts, const struct gyre_choice *choice,
                         enum gyre_collective coll, uint64_t n_bytes)
{
    return gyre_min_u32(tile_of(facts, choice, coll, n_bytes),
                        gyre_tuner_net_payload_bytes(facts, choice->net_proto));
}

uint32_t gyre_tuner_tile_in_time(const struct gyre_tuner_facts *facts, uint32_t largest_bytes,
                                 uint32_t least_bytes)
{
    const double in_time_bytes = facts->cost->nic_bytes_per_ns * MOST_TCP_TILE_NS;
    if (!facts->is_tcp || in_time_bytes <= 0 || in_time_bytes >= largest_bytes)
        return largest_bytes;
    const uint64_t tile_bytes = (uint32_t)in_time_bytes / 16 * 16;
    return gyre_min_u32(largest_bytes,
                        (uint32_t)gyre_max_u64(tile_bytes, gyre_round_up(least_bytes, 16)));
}
