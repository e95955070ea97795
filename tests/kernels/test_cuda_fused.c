/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan.h"
#include "kernels/cuda/host/kernel_rows.h"
#include "kernels/cuda/host/lower.h"
#include "kernels/numeric.h"
#include "tests/support/check.h"

#include <math.h>

#define MAX_RANKS  9
#define N_CHANNELS 3

/* Only addresses of these ends are compared. */
struct place {
    struct gyre_fifo_spec spec;
    struct gyre_connector *connectors;
};

static void open_place(struct place *place, int n_ranks)
{
    const struct gyre_fifo_spec spec = {.n_fifos = 8, .depth = 4, .slot_bytes = {4096, 4096, 4096}};
    const uint32_t n_ends = (uint32_t)n_ranks * spec.n_fifos * 2;
    place->spec = spec;
    place->connectors = calloc(n_ends, sizeof(*place->connectors));
    for (uint32_t i = 0; i < n_ends; i++) {
        struct gyre_connector *end = &place->connectors[i];
        for (uint32_t proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
            end->slots[proto] =
                (unsigned char *)(uintptr_t)(0x10000000 * (proto + 1) + i * 0x10000);
        end->inbox = (struct gyre_inbox *)(uintptr_t)(0x1000 + i * sizeof(struct gyre_inbox));
        end->credit = (struct gyre_credit *)(uintptr_t)(0x100000 + i * sizeof(struct gyre_credit));
        end->slot_bytes = spec.slot_bytes[GYRE_PROTO_SIMPLE];
        end->depth = (uint16_t)spec.depth;
    }
}

/* Of rank 0, in block numbers. False: it could not be resolved. */
static bool resolve_program(const struct place *place, enum gyre_proto proto,
                            const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                            int n_ranks, struct gyre_cuda_fused *resolved_out)
{
    const struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)n_ranks};
    struct gyre_fused_program fused;
    struct gyre_program *program = NULL;
    CHECK_OK(gyre_algorithm_emit(algorithm, &shape, 0, &program));
    const struct gyre_load_config config = {
        .program = program, .n_channels = N_CHANNELS, .proto = proto};
    gyre_fused_find(program, &fused);
    CHECK(fused.pattern != GYRE_FUSED_NONE);
    const bool is_resolved =
        gyre_cuda_fused_resolve(&place->spec, place->connectors, &config, &fused, resolved_out);
    gyre_program_free(program);
    return is_resolved;
}

static bool resolve(const struct place *place, enum gyre_proto proto, int n_ranks,
                    struct gyre_cuda_fused *resolved_out)
{
    return resolve_program(place, proto, &gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, n_ranks,
                           resolved_out);
}

static void check_ends(const struct place *place, enum gyre_proto proto, int n_ranks,
                       const struct gyre_cuda_fused *resolved)
{
    const enum gyre_proto slots = gyre_proto_slots(proto);
    CHECK(resolved->n_peers == n_ranks - 1);
    CHECK(resolved->scatters == 1 && resolved->reduces == 1 && resolved->gathers == 1);
    CHECK(resolved->own_chunk == 0 && resolved->own_place == 0 && resolved->depth == 4);
    for (uint32_t p = 0; p < resolved->n_peers; p++) {
        const struct gyre_cuda_peer *peer = &resolved->peers[p];
        CHECK(peer->chunk == p + 1); /* rank 0's peers are 1, 2, ... */
        CHECK(peer->send_end == gyre_connector_index(&place->spec, p + 1, 0, true));
        CHECK(peer->recv_end == gyre_connector_index(&place->spec, p + 1, 0, false));
        for (uint32_t c = 0; c < N_CHANNELS; c++) {
            const struct gyre_connector *send = &place->connectors[peer->send_end + c * 2];
            const struct gyre_connector *recv = &place->connectors[peer->recv_end + c * 2];
            const bool is_simple = proto == GYRE_PROTO_SIMPLE;
            CHECK(peer->to + c * resolved->slots_stride ==
                  (is_simple ? (unsigned char *)send->inbox : send->slots[slots]));
            CHECK(peer->from + c * resolved->slots_stride ==
                  (is_simple ? (unsigned char *)recv->inbox : recv->slots[slots]));
            CHECK((uintptr_t)peer->head + c * resolved->credit_stride ==
                  (uintptr_t)&send->credit->head[slots]);
            CHECK((uintptr_t)peer->posted + c * resolved->credit_stride ==
                  (uintptr_t)&recv->credit->head[slots]);
        }
    }
}

TEST_CASE("the kernel is told the ends of all peers")
{
    for (int n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++)
        for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
            struct gyre_cuda_fused resolved;
            struct place place;
            open_place(&place, n_ranks);
            CHECK(resolve(&place, (enum gyre_proto)proto, n_ranks, &resolved));
            check_ends(&place, (enum gyre_proto)proto, n_ranks, &resolved);
            free(place.connectors);
        }
}

TEST_CASE("an all-to-all names the block of each peer")
{
    for (int n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++) {
        struct gyre_cuda_fused resolved;
        struct place place;
        uint32_t seen = 0;
        open_place(&place, n_ranks);
        CHECK(resolve_program(&place, GYRE_PROTO_LL, &gyre_algorithm_direct, GYRE_COLL_ALL_TO_ALL,
                              n_ranks, &resolved));
        CHECK(resolved.n_peers == n_ranks - 1 && resolved.own_chunk == 0);
        CHECK(resolved.scatters == 1 && resolved.reduces == 0 && resolved.gathers == 1);
        CHECK(gyre_fused_slots_per_tile(GYRE_FUSED_ALL_TO_ALL) == 1);
        CHECK(resolved.own_offset == 0 && resolved.own_out_offset == 0);
        for (uint32_t p = 0; p < resolved.n_peers; p++) {
            const struct gyre_cuda_peer *peer = &resolved.peers[p];
            const uint32_t rank = (uint32_t)peer->in_offset;
            CHECK(rank > 0 && peer->out_offset == rank && peer->chunk == 0);
            CHECK(peer->send_end == gyre_connector_index(&place.spec, rank, 0, true));
            CHECK(peer->recv_end == gyre_connector_index(&place.spec, rank, 0, false));
            seen |= 1U << rank;
        }
        CHECK(seen == (1U << n_ranks) - 2);
        free(place.connectors);
    }
}

static bool resolve_message(const struct place *place, uint16_t peer, bool sends,
                            struct gyre_cuda_fused *resolved_out)
{
    const uint16_t rank_of[2] = {sends ? 0 : peer, sends ? peer : 0}; /* the sender is the first */
    const struct gyre_shape shape = {.coll = GYRE_COLL_SEND_RECV, .n_ranks = 2};
    struct gyre_fused_program fused;
    struct gyre_program *program = NULL;
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_sendrecv, &shape, sends ? 0 : 1, &program));
    const struct gyre_load_config config = {.program = program,
                                            .n_channels = N_CHANNELS,
                                            .proto = GYRE_PROTO_LL128,
                                            .rank_of = rank_of};
    gyre_fused_find(program, &fused);
    const bool is_resolved =
        gyre_cuda_fused_resolve(&place->spec, place->connectors, &config, &fused, resolved_out);
    gyre_program_free(program);
    return is_resolved;
}

TEST_CASE("a send before a receive gives the credit of all its channels")
{
    struct gyre_cuda_fused send, receive;
    struct place place;
    open_place(&place, 4);
    CHECK(resolve_message(&place, 1, true, &send) && resolve_message(&place, 3, false, &receive));
    CHECK(send.n_channels_behind == 0 && receive.n_channels_behind == 0);
    CHECK(gyre_cuda_fused_join(&send, &receive).n_channels_behind == 0);
    const struct gyre_cuda_fused first = gyre_cuda_fused_before(&send, &receive, N_CHANNELS);
    const struct gyre_cuda_peer *peer = &first.peers[0];
    CHECK(first.scatters == 1 && first.gathers == 0 && first.n_channels_behind == N_CHANNELS);
    CHECK(peer->send_end == send.peers[0].send_end && peer->to == send.peers[0].to);
    CHECK(peer->head == send.peers[0].head);
    for (uint32_t c = 0; c < N_CHANNELS; c++) {
        const uint32_t end = gyre_connector_index(&place.spec, 3, c, false);
        CHECK(peer->recv_end + c * 2 == end);
        CHECK((uintptr_t)peer->posted + c * first.credit_stride ==
              (uintptr_t)&place.connectors[end].credit->head[gyre_proto_slots(GYRE_PROTO_LL128)]);
    }
    free(place.connectors);
}

TEST_CASE("a send and a receive become one peer")
{
    struct gyre_cuda_fused send, receive;
    struct place place;
    open_place(&place, 4);
    CHECK(resolve_message(&place, 1, true, &send) && resolve_message(&place, 3, false, &receive));
    CHECK(send.scatters == 1 && send.gathers == 0 && send.n_peers == 1);
    CHECK(receive.scatters == 0 && receive.gathers == 1);
    CHECK(gyre_cuda_fused_joins(&send, &receive));
    const struct gyre_cuda_fused both = gyre_cuda_fused_join(&send, &receive);
    const struct gyre_cuda_peer *peer = &both.peers[0];
    const uint32_t send_end = gyre_connector_index(&place.spec, 1, 0, true);
    const uint32_t recv_end = gyre_connector_index(&place.spec, 3, 0, false);
    const enum gyre_proto slots = gyre_proto_slots(GYRE_PROTO_LL128);
    CHECK(both.scatters == 1 && both.gathers == 1 && both.reduces == 0);
    CHECK(peer->send_end == send_end && peer->recv_end == recv_end);
    CHECK(peer->to == place.connectors[send_end].slots[slots]);
    CHECK(peer->from == place.connectors[recv_end].slots[slots]);
    CHECK(peer->head == &place.connectors[send_end].credit->head[slots]);
    CHECK(peer->posted == &place.connectors[recv_end].credit->head[slots]);
    receive.slots_stride += 16;
    CHECK(!gyre_cuda_fused_joins(&send, &receive));
    place.connectors[gyre_connector_index(&place.spec, 3, 0, false)].is_proxied = 1;
    CHECK(!resolve_message(&place, 3, false, &receive));
    free(place.connectors);
}

TEST_CASE("ends that cannot be addressed are refused")
{
    struct gyre_cuda_fused resolved;
    struct place place;
    open_place(&place, 4);
    struct gyre_connector *end =
        &place.connectors[gyre_connector_index(&place.spec, 2, N_CHANNELS - 1, true)];
    const struct gyre_connector whole = *end;
    CHECK(resolve(&place, GYRE_PROTO_LL, 4, &resolved));
    end->slots[GYRE_PROTO_LL] += 16;
    CHECK(!resolve(&place, GYRE_PROTO_LL, 4, &resolved));
    CHECK(resolve(&place, GYRE_PROTO_SIMPLE, 4, &resolved));
    *end = whole;
    end->credit += 1;
    CHECK(!resolve(&place, GYRE_PROTO_SIMPLE, 4, &resolved));
    *end = whole;
    place.connectors[gyre_connector_index(&place.spec, 3, 0, false)].is_proxied = 1;
    CHECK(!resolve(&place, GYRE_PROTO_SIMPLE, 4, &resolved));
    place.connectors[gyre_connector_index(&place.spec, 3, 0, false)].is_proxied = 0;
    place.spec.depth = 6; /* rings of slots are indexed by a mask */
    CHECK(!resolve(&place, GYRE_PROTO_LL, 4, &resolved));
    free(place.connectors);
}

static struct gyre_fused_call call_of(enum gyre_proto proto, enum gyre_fused_pattern pattern)
{
    const bool reduces = gyre_fused_patterns[pattern].reduces;
    return (struct gyre_fused_call){
        .proto = proto,
        .pattern = pattern,
        .arithmetic = reduces ? GYRE_FUSED_FLOAT_SUM : GYRE_FUSED_COPY,
        .is_placed = proto == GYRE_PROTO_SIMPLE && pattern == GYRE_FUSED_ALL_GATHER,
        .is_aligned = true,
        .is_unscaled = true,
        .n_peers = 3,
        .n_tiles = 1,
        .depth = 4,
        .n_threads = 512,
        .most_shared_bytes = 227 << 10,
    };
}

static const char *kernel_name(const struct gyre_fused_call *call)
{
    struct gyre_run run;
    gyre_kernel_choose(call, &run);
    return run.kernel;
}

static bool runs(const struct gyre_fused_call *call, const char *name)
{
    const char *found = kernel_name(call);
    return name == NULL || found == NULL ? name == found : strcmp(name, found) == 0;
}

TEST_CASE("each protocol has its patterns")
{
    static const char *const names[GYRE_N_PROTOS][GYRE_N_FUSED_PATTERNS] = {
        [GYRE_PROTO_SIMPLE] = {[GYRE_FUSED_TWO_SHOT] = "simple two-shot",
                               [GYRE_FUSED_ALL_GATHER] = "simple all-gather"},
        [GYRE_PROTO_LL] = {NULL, "ll one-shot", "ll one-shot", "ll sum", "ll copy", "ll copy",
                           "ll copy", "ll copy", "ll copy"},
        [GYRE_PROTO_LL128] = {NULL, "ll128 sum", "ll128 sum", "ll128 sum", "ll128 copy",
                              "ll128 copy", "ll128 copy", "ll128 copy", "ll128 copy"},
        [GYRE_PROTO_LAMPORT] = {NULL, "lamport sum", "lamport sum", "lamport sum"},
    };
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        for (int pattern = 0; pattern < GYRE_N_FUSED_PATTERNS; pattern++) {
            const struct gyre_fused_call call =
                call_of((enum gyre_proto)proto, (enum gyre_fused_pattern)pattern);
            CHECK_MSG(runs(&call, names[proto][pattern]), "%s %s", gyre_proto_names[proto],
                      gyre_fused_patterns[pattern].name);
        }
}

TEST_CASE("a call that a kernel cannot run does not fit")
{
    struct gyre_fused_call call = call_of(GYRE_PROTO_SIMPLE, GYRE_FUSED_TWO_SHOT);
    CHECK(runs(&call, "simple two-shot"));
#define REFUSED(field, value)                      \
    do {                                           \
        struct gyre_fused_call changed = call;     \
        changed.field = value;                     \
        CHECK(!runs(&changed, "simple two-shot")); \
    } while (0)
    REFUSED(proto, GYRE_PROTO_LL);
    REFUSED(pattern, GYRE_FUSED_ALL_GATHER);
    REFUSED(pattern, GYRE_FUSED_NONE);
    REFUSED(arithmetic, GYRE_FUSED_OTHER);
    REFUSED(arithmetic, GYRE_FUSED_COPY);
    REFUSED(is_aligned, false);
    REFUSED(is_unscaled, false);
    REFUSED(n_peers, GYRE_CUDA_MAX_PEERS + 1);
    REFUSED(n_tiles, 3);
    REFUSED(depth, 1);
#undef REFUSED
    call.is_placed = call.places_blocks = true;
    call.n_tiles = 2;
    call.n_peers = GYRE_CUDA_MAX_PEERS;
    call.most_shared_bytes = 0;
    CHECK(runs(&call, "simple two-shot"));
    call = call_of(GYRE_PROTO_SIMPLE, GYRE_FUSED_ALL_GATHER);
    CHECK(kernel_name(&call) != NULL);
    call.places_blocks = true;
    CHECK(kernel_name(&call) == NULL);
    call.places_blocks = call.is_placed = false;
    CHECK(kernel_name(&call) == NULL);
}

TEST_CASE("the short kernel of LL takes one tile and any operation")
{
    struct gyre_fused_call call = call_of(GYRE_PROTO_LL, GYRE_FUSED_ONE_SHOT);
    call.arithmetic = GYRE_FUSED_OTHER;
    call.is_aligned = call.is_unscaled = false;
    CHECK(runs(&call, "ll one-shot"));
    CHECK(gyre_kernel_most_tiles(&call) == 1);
    call.n_tiles = 2;
    CHECK(kernel_name(&call) == NULL);
    call.arithmetic = GYRE_FUSED_FLOAT_SUM;
    CHECK(runs(&call, "ll sum"));
    CHECK(gyre_kernel_most_tiles(&call) == call.depth);
    call.n_tiles = call.depth + 1;
    CHECK(kernel_name(&call) == NULL && gyre_kernel_most_tiles(&call) == 0);
}

TEST_CASE("kernels that want more shared memory than there is do not fit")
{
    struct gyre_fused_call call = call_of(GYRE_PROTO_LL128, GYRE_FUSED_TWO_SHOT);
    call.n_peers = 2;
    call.most_shared_bytes = 3 * 256 * 16 * 6 * 2;
    CHECK(runs(&call, "ll128 sum"));
    call.most_shared_bytes--;
    CHECK(!runs(&call, "ll128 sum"));
    call.n_peers = 1; /* shares nothing */
    CHECK(runs(&call, "ll128 sum"));
}

static struct gyre_run plan(const struct gyre_fused_call *call, uint64_t step_bytes)
{
    struct gyre_fused_call sized = *call;
    struct gyre_run run;
    sized.step_bytes = step_bytes;
    gyre_kernel_choose(&sized, &run);
    CHECK(run.kernel != NULL);
    return run;
}

TEST_CASE("launches in two rows have any number of tiles")
{
    static const enum gyre_fused_pattern patterns[] = {
        GYRE_FUSED_SEND, GYRE_FUSED_RECEIVE, GYRE_FUSED_SEND_RECEIVE, GYRE_FUSED_ALL_TO_ALL};
    for (unsigned i = 0; i < GYRE_ARRAY_LENGTH(patterns); i++) {
        const bool is_both = i >= 2;
        struct gyre_fused_call call = call_of(GYRE_PROTO_LL128, patterns[i]);
        call.n_peers = 1;
        call.n_tiles = call.depth + 1;
        CHECK((kernel_name(&call) == NULL) == is_both);
        call.fits_two_rows = true;
        CHECK(plan(&call, 30000).kernel != NULL && plan(&call, 30000).n_rows == (is_both ? 2 : 1));
        /* one warp gives tiles back */
        CHECK(plan(&call, 30000).n_threads == (is_both ? GYRE_CUDA_ROW_THREADS : 512) + 32);
        call.n_tiles = 1;
        CHECK(plan(&call, 30000).n_rows == 1 && plan(&call, 30000).n_threads == 512);
        call.n_peers = 2;
        call.n_tiles = call.depth + 1;
        CHECK(!is_both || kernel_name(&call) == NULL);
        call.n_peers = 1;
        call.proto = GYRE_PROTO_LL;
        CHECK(!is_both || kernel_name(&call) == NULL);
    }
}

TEST_CASE("launches are as large as the data wants")
{
    struct gyre_fused_call call = call_of(GYRE_PROTO_LL, GYRE_FUSED_ONE_SHOT);
    CHECK(plan(&call, 8).n_threads == 3 * 64); /* two warps a peer at least */
    CHECK(plan(&call, 8 * 128).n_threads == 3 * 128);
    CHECK(plan(&call, 1 << 20).n_threads == 3 * 160); /* 512 among three, in whole warps */
    CHECK(plan(&call, 8).shared_bytes == 4 * 64 * 16 * 2 * 2);
    call.in_host_memory = true;
    CHECK(plan(&call, 8 * 34).n_threads == 3 * 64);
    call.step_bytes = 8 * 64; /* more lines than a warp reads */
    CHECK(kernel_name(&call) == NULL);
    call = call_of(GYRE_PROTO_LAMPORT, GYRE_FUSED_TWO_SHOT);
    CHECK(plan(&call, 16).n_threads == 64 && plan(&call, 16 * 65).n_threads == 96);
    CHECK(plan(&call, 1 << 20).n_threads == 512 && plan(&call, 16).shared_bytes == 0);
    call.n_peers = 1;
    CHECK(plan(&call, 1 << 20).n_threads == 1024);
    call = call_of(GYRE_PROTO_SIMPLE, GYRE_FUSED_TWO_SHOT);
    CHECK(plan(&call, 1 << 20).n_threads == 512 + 64);
    call = call_of(GYRE_PROTO_SIMPLE, GYRE_FUSED_ALL_GATHER);
    CHECK(plan(&call, 1 << 20).n_threads == 512);
    call.n_threads = 256;
    CHECK(plan(&call, 1 << 20).n_threads == 256);
}

TEST_CASE("long calls of LL128 keep more rounds in flight")
{
    struct gyre_fused_call call = call_of(GYRE_PROTO_LL128, GYRE_FUSED_TWO_SHOT);
    CHECK(plan(&call, 4800).unroll == 2 && plan(&call, 4801).unroll == 5);
    CHECK(plan(&call, 12000).unroll == 5 && plan(&call, 12001).unroll == 6);
    call.n_tiles = 2;
    CHECK(plan(&call, 4801).unroll == 6);
    call = call_of(GYRE_PROTO_LL128, GYRE_FUSED_ONE_SHOT);
    CHECK(plan(&call, 4801).unroll == 6);
    call = call_of(GYRE_PROTO_LL, GYRE_FUSED_TWO_SHOT);
    CHECK(plan(&call, 12001).unroll == 2);
    call = call_of(GYRE_PROTO_LL128, GYRE_FUSED_SEND_RECEIVE);
    CHECK(plan(&call, 12001).unroll == 2); /* there is no other kernel for messages */
}

TEST_CASE("LAMPORT has a kernel for what fits its registers")
{
    for (uint32_t n_peers = 1; n_peers <= GYRE_CUDA_MAX_PEERS; n_peers++) {
        struct gyre_fused_call call = call_of(GYRE_PROTO_LAMPORT, GYRE_FUSED_TWO_SHOT);
        call.n_peers = n_peers;
        CHECK(plan(&call, 4096).is_exact == (n_peers == 1 || n_peers == 3 || n_peers == 7));
        call.n_tiles = 2;
        CHECK(!plan(&call, 4096).is_exact);
        call.n_tiles = 1;
        call.is_aligned = false;
        CHECK(!plan(&call, 4096).is_exact);
        call.is_aligned = true;
        call.is_unscaled = false;
        CHECK(!plan(&call, 4096).is_exact);
    }
}

static struct gyre_tuner_facts gpu_facts(uint32_t n_ranks)
{
    return (struct gyre_tuner_facts){
        .device_kind = GYRE_DEVICE_CUDA,
        .n_ranks = n_ranks,
        .n_hosts = 1,
        .is_ll128_safe = true,
        .has_lamport = true,
        .is_unscaled = true,
        .min_channels = 1,
        .max_channels = 64,
        .spec = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, 64),
    };
}

static const char *kernel_of(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                             uint64_t n_bytes, const struct gyre_choice *choice)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = (uint16_t)facts->n_ranks, .is_placed = facts->in_window};
    struct gyre_program *program = NULL;
    struct gyre_fused_program fused;
    CHECK_OK(gyre_algorithm_emit(choice->algorithm, &shape, 0, &program));
    gyre_fused_find(program, &fused);
    const struct gyre_split split = {.count = n_bytes / 4,
                                     .n_channels = choice->n_channels,
                                     .n_chunks = program->n_chunks,
                                     .tile_elems = choice->tile_bytes / 4,
                                     .unit_elems = 4};
    struct gyre_fused_call call = call_of(choice->proto, fused.pattern);
    call.is_placed = fused.is_placed;
    call.n_peers = fused.n_peers;
    call.n_tiles = (uint32_t)gyre_tile_count(&split);
    call.depth = facts->spec.depth;
    call.fits_two_rows = 2 * choice->n_channels <= 128; /* of 132 multiprocessors, out of place */
    gyre_program_free(program);
    return kernel_name(&call);
}

TEST_CASE("what the tuner takes for fused is fused")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_GATHER};
    uint32_t n_found[2] = {0, 0};
    struct gyre_filter any;
    CHECK_OK(gyre_filter_parse("", "", "", &any));
    for (uint32_t n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++)
        for (int i = 0; i < 2 * (int)GYRE_ARRAY_LENGTH(colls); i++)
            for (uint64_t n_bytes = 1 << 20; n_bytes <= 32 << 20; n_bytes += 1 << 18) {
                struct gyre_tuner_facts facts = gpu_facts(n_ranks);
                struct gyre_choice choice;
                facts.in_window = i >= 2;
                if (!gyre_tuner_choose_fused(&facts, &any, colls[i % 2], n_bytes, &choice))
                    continue;
                n_found[i % 2]++;
                CHECK_MSG(kernel_of(&facts, colls[i % 2], n_bytes, &choice) != NULL,
                          "%s of %" PRIu64 " bytes, %u ranks", gyre_collectives[colls[i % 2]].name,
                          n_bytes, n_ranks);
            }
    CHECK(n_found[0] > 0 && n_found[1] > 0);
}

TEST_CASE("all-gathers and all-to-alls in lines are fused")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_ALL_TO_ALL};
    struct gyre_filter any;
    CHECK_OK(gyre_filter_parse("", "", "", &any));
    for (uint32_t n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++)
        for (unsigned i = 0; i < GYRE_ARRAY_LENGTH(colls); i++) {
            const struct gyre_tuner_facts facts = gpu_facts(n_ranks);
            uint32_t n_found = 0;
            for (uint64_t n_bytes = 4; n_bytes <= 64 << 20; n_bytes += n_bytes / 5 / 4 * 4 + 4) {
                struct gyre_choice choice;
                CHECK_OK(gyre_tuner_choose(&facts, &any, colls[i], n_bytes, &choice));
                if (choice.proto == GYRE_PROTO_SIMPLE)
                    continue;
                n_found++;
                CHECK_MSG(kernel_of(&facts, colls[i], n_bytes, &choice) != NULL,
                          "%s of %" PRIu64 " bytes, %u ranks, %s, %u channels, tiles of %u",
                          gyre_collectives[colls[i]].name, n_bytes, n_ranks,
                          gyre_proto_names[choice.proto], choice.n_channels, choice.tile_bytes);
            }
            CHECK(n_found > 0);
        }
}

TEST_CASE("the host device has no fused kernels")
{
    const struct gyre_fused_call call = call_of(GYRE_PROTO_SIMPLE, GYRE_FUSED_TWO_SHOT);
    CHECK(gyre_executor_fused_tiles(GYRE_DEVICE_CUDA, &call) == 2);
    CHECK(gyre_executor_fused_tiles(GYRE_DEVICE_HOST, &call) == 0);
}

static double element_of(gyre_dtype dtype, uint64_t half, unsigned i)
{
    const uint64_t bits = half >> 8 * gyre_dtype_bytes(dtype) * i;
    switch (dtype) {
    case GYRE_FLOAT16:
        return gyre_f16_to_f32((uint16_t)bits);
    case GYRE_BFLOAT16:
        return gyre_bf16_to_f32((uint16_t)bits);
    case GYRE_FLOAT32:
        return gyre_f32_from_bits((uint32_t)bits);
    default:
        return gyre_f64_from_bits(bits);
    }
}

TEST_CASE("what lamport cannot carry stays NaN")
{
    const uint64_t half = gyre_cuda_lamport_half(UINT64_MAX);
    CHECK(~half != 0 && gyre_cuda_lamport_half(half) == half);
    CHECK(gyre_cuda_lamport_half(UINT64_MAX - 1) == UINT64_MAX - 1);
    CHECK(gyre_cuda_lamport_half(0) == 0);
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++)
        for (unsigned i = 0; gyre_lamport_adds((gyre_dtype)dtype, GYRE_SUM) &&
                             i < 8 / gyre_dtype_bytes((gyre_dtype)dtype);
             i++)
            CHECK_MSG(isnan(element_of((gyre_dtype)dtype, half, i)), "element %u of %s", i,
                      gyre_dtype_names[dtype]);
}
