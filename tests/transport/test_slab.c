/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "transport/slab.h"

struct part {
    uint64_t first_byte;
    uint64_t n_bytes;
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *left = a, *right = b;
    return left->first_byte < right->first_byte ? -1 : left->first_byte > right->first_byte;
}

static size_t collect(const struct gyre_fifo_spec *spec, const struct gyre_slab_layout *layout,
                      uint32_t n_peers, struct part *parts)
{
    size_t n = 0;
    for (uint32_t peer = 0; peer < n_peers; peer++) {
        for (uint32_t fifo = 0; fifo < spec->n_fifos; fifo++) {
            parts[n++] = (struct part){gyre_slab_inbox_offset(layout, peer, fifo),
                                       sizeof(struct gyre_inbox)};
            parts[n++] = (struct part){gyre_slab_credit_offset(layout, peer, fifo),
                                       sizeof(struct gyre_credit)};
            for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++) {
                CHECK((layout->area_bytes[proto] > 0) == (spec->slot_bytes[proto] > 0));
                if (layout->area_bytes[proto] == 0)
                    continue;
                const uint64_t offset = gyre_slab_slots_offset(layout, peer, fifo, proto);
                CHECK(offset % GYRE_SLAB_PAGE_BYTES == 0);
                const bool is_ring_prev =
                    proto == GYRE_PROTO_SIMPLE && peer == layout->ring_prev_peer;
                const uint64_t slot_bytes =
                    is_ring_prev ? spec->ring_slot_bytes : spec->slot_bytes[proto];
                parts[n++] = (struct part){offset, spec->depth * slot_bytes};
            }
        }
    }
    return n;
}

static void check_spec(const struct gyre_fifo_spec *spec, uint32_t n_peers, uint32_t ring_prev_peer)
{
    struct gyre_slab_layout layout;
    CHECK_OK(gyre_slab_layout_make(spec, n_peers, ring_prev_peer, &layout));
    struct part *parts = calloc((size_t)n_peers * spec->n_fifos * 5 + 1, sizeof(*parts));
    const size_t n = collect(spec, &layout, n_peers, parts);
    qsort(parts, n, sizeof(*parts), compare_parts);
    uint64_t end = GYRE_SLAB_PAGE_BYTES; /* the first page is the memory kind's */
    for (size_t i = 0; i < n; i++) {
        CHECK_MSG(parts[i].first_byte >= end,
                  "part at %" PRIu64 ", the one before ends at %" PRIu64, parts[i].first_byte, end);
        CHECK(parts[i].first_byte % GYRE_CACHE_LINE_BYTES == 0);
        end = parts[i].first_byte + parts[i].n_bytes;
    }
    CHECK(end <= layout.n_bytes);
    CHECK(layout.n_bytes % GYRE_SLAB_PAGE_BYTES == 0);
    free(parts);
}

TEST_CASE("parts of a slab never overlap")
{
    static const uint32_t sizes[] = {1, 64, 4095, 4096, 4097, 131072};
    static const uint32_t n_peers[] = {1, 2, 7, 33};
    static const uint32_t n_fifos[] = {1, 3, 16};
    for (uint32_t depth = 2; depth <= GYRE_MAX_DEPTH; depth += 3)
        for (size_t s = 0; s < GYRE_ARRAY_LENGTH(sizes); s++)
            for (size_t p = 0; p < GYRE_ARRAY_LENGTH(n_peers); p++)
                for (size_t f = 0; f < GYRE_ARRAY_LENGTH(n_fifos); f++)
                    for (unsigned protos = 0; protos < 4; protos++) {
                        struct gyre_fifo_spec spec = {
                            .n_fifos = n_fifos[f],
                            .depth = depth,
                            .slot_bytes = {[GYRE_PROTO_SIMPLE] = sizes[s],
                                           [GYRE_PROTO_LL] = (protos & 1) * 16384,
                                           [GYRE_PROTO_LL128] = (protos & 2) * 8704}};
                        check_spec(&spec, n_peers[p], GYRE_SLAB_NO_RING_PREV);
                        spec.ring_slot_bytes = sizes[s] * 2 + 1;
                        check_spec(&spec, n_peers[p], n_peers[p] / 2);
                    }
}

TEST_CASE("a slab without peers has one page")
{
    const struct gyre_fifo_spec spec = {.n_fifos = 4, .depth = 2, .slot_bytes = {4096}};
    struct gyre_slab_layout layout;
    CHECK_OK(gyre_slab_layout_make(&spec, 0, GYRE_SLAB_NO_RING_PREV, &layout));
    CHECK(layout.n_bytes == GYRE_SLAB_PAGE_BYTES);
}

TEST_CASE("impossible specs are refused")
{
    struct gyre_slab_layout layout;
    struct gyre_fifo_spec spec = {.n_fifos = 1, .depth = GYRE_MAX_DEPTH + 1, .slot_bytes = {64}};
    CHECK_BAD_ARGUMENT(gyre_slab_layout_make(&spec, 1, 0, &layout), "depth 9");
    spec.depth = 2;
    spec.ring_slot_bytes = 32;
    CHECK_BAD_ARGUMENT(gyre_slab_layout_make(&spec, 1, 0, &layout), "smaller than the others");
    spec.ring_slot_bytes = 0;
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = 0;
    CHECK_BAD_ARGUMENT(gyre_slab_layout_make(&spec, 1, 0, &layout), "0 bytes");
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = UINT32_MAX;
    spec.n_fifos = UINT32_MAX;
    CHECK_BAD_ARGUMENT(gyre_slab_layout_make(&spec, UINT32_MAX, 0, &layout), "do not fit");
}

static size_t n_released;

static void count_release(void *base, size_t n_bytes)
{
    CHECK(base == &n_released && n_bytes == 8);
    n_released++;
}

TEST_CASE("a slab lives until its last user left")
{
    const uint8_t token[GYRE_SLAB_TOKEN_BYTES] = "token of a slab";
    const uint8_t other[GYRE_SLAB_TOKEN_BYTES] = "of another slab";
    struct gyre_slab_entry *owner = NULL, *peer = NULL;
    void *base = NULL;
    n_released = 0;
    CHECK_FAILS(gyre_slab_registry_acquire(token, 8, &base, &peer), GYRE_ERROR_REMOTE, "gone");
    CHECK_OK(gyre_slab_registry_add(token, &n_released, 8, count_release, &owner));
    CHECK_FAILS(gyre_slab_registry_acquire(other, 8, &base, &peer), GYRE_ERROR_REMOTE, "gone");
    CHECK_FAILS(gyre_slab_registry_acquire(token, 9, &base, &peer), GYRE_ERROR_REMOTE, "8 bytes");
    CHECK_OK(gyre_slab_registry_acquire(token, 8, &base, &peer));
    CHECK(base == &n_released);
    gyre_slab_registry_release(owner);
    CHECK(n_released == 0);
    CHECK(gyre_slab_registry_count() == 1);
    gyre_slab_registry_release(peer);
    CHECK(n_released == 1);
    CHECK(gyre_slab_registry_count() == 0);
}
