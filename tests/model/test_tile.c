/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/model/tile.h"
#include "kernels/cuda/host/program.h"
#include "tests/support/check.h"

static void check_on_gpus(const struct gyre_split *split, uint32_t channel, uint32_t chunk,
                          uint64_t tile)
{
    const struct gyre_cuda_split own = gyre_cuda_split_make(split);
    const struct gyre_cuda_share share = gyre_cuda_share_make(&own, channel);
    const struct gyre_range expected = gyre_tile_range(split, channel, chunk, tile);
    const struct gyre_range range = gyre_cuda_tile_range(&share, chunk, (uint32_t)tile);
    CHECK_MSG(range.n_elems == expected.n_elems &&
                  (range.n_elems == 0 || range.first_elem == expected.first_elem),
              "count %" PRIu64 ", channel %u, chunk %u, tile %" PRIu64, split->count, channel,
              chunk, tile);
}

static void check_split(const struct gyre_split *split)
{
    const uint64_t n_tiles = gyre_tile_count(split);
    uint64_t next = 0;
    for (uint32_t channel = 0; channel < split->n_channels; channel++)
        for (uint32_t chunk = 0; chunk < split->n_chunks; chunk++) {
            const struct gyre_range whole = gyre_chunk_range(split, channel, chunk);
            const uint64_t start = next;
            for (uint64_t tile = 0; tile < n_tiles + 1; tile++) {
                const struct gyre_range range = gyre_tile_range(split, channel, chunk, tile);
                CHECK_MSG(range.n_elems == 0 || range.first_elem == next,
                          "count %" PRIu64 ", channel %u, chunk %u, tile %" PRIu64, split->count,
                          channel, chunk, tile);
                CHECK(range.n_elems <= split->tile_elems);
                check_on_gpus(split, channel, chunk, tile);
                CHECK(tile < n_tiles || range.n_elems == 0);
                CHECK(range.n_elems == 0 || range.first_elem % split->unit_elems == 0);
                CHECK(range.first_elem + range.n_elems <= split->count);
                next += range.n_elems;
            }
            CHECK(whole.n_elems == next - start);
            CHECK(whole.n_elems == 0 || whole.first_elem == start);
        }
    CHECK_MSG(next == split->count, "%" PRIu64 " of %" PRIu64 " elements, %u channels, %u chunks",
              next, split->count, split->n_channels, split->n_chunks);
}

TEST_CASE("ranges part the vector exactly")
{
    static const uint64_t counts[] = {0,  1,  2,  3,   7,    8,    15,   16,   17,
                                      63, 64, 65, 100, 1000, 4096, 4097, 65537};
    static const uint32_t channels[] = {1, 2, 3, 8};
    static const uint32_t chunks[] = {1, 2, 3, 5, 8, 33};
    static const uint32_t units[] = {1, 2, 16, 120};
    static const uint32_t tiles[] = {1, 3, 1024};
    for (size_t a = 0; a < sizeof(counts) / sizeof(counts[0]); a++)
        for (size_t b = 0; b < sizeof(channels) / sizeof(channels[0]); b++)
            for (size_t c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c++)
                for (size_t d = 0; d < sizeof(units) / sizeof(units[0]); d++)
                    for (size_t e = 0; e < sizeof(tiles) / sizeof(tiles[0]); e++) {
                        if (counts[a] > 5000 && tiles[e] * units[d] < 16)
                            continue; /* the same thing, slowly */
                        const struct gyre_split split = {counts[a], channels[b], chunks[c],
                                                         tiles[e] * units[d], units[d]};
                        check_split(&split);
                    }
}

TEST_CASE("parts differ by at most one unit")
{
    for (uint64_t count = 0; count < 300; count += 7)
        for (uint32_t n_chunks = 1; n_chunks < 9; n_chunks++) {
            const struct gyre_split split = {count, 1, n_chunks, 16, 4};
            const uint64_t longest = gyre_chunk_range(&split, 0, 0).n_elems;
            for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
                const uint64_t n = gyre_chunk_range(&split, 0, chunk).n_elems;
                CHECK(n <= longest);
                CHECK(n + 8 > longest); /* one unit, and the last may be cut */
            }
        }
}

TEST_CASE("huge counts do not overflow")
{
    const struct gyre_split split = {UINT64_MAX / 2, 64, 1024, 1U << 20, 16};
    const struct gyre_range last = gyre_chunk_range(&split, 63, 1023);
    CHECK(last.first_elem + last.n_elems == split.count);
    const uint64_t n_tiles = gyre_tile_count(&split);
    CHECK(gyre_tile_range(&split, 0, 0, n_tiles - 1).n_elems > 0);
    CHECK(gyre_tile_range(&split, 0, 0, n_tiles).n_elems == 0);
}

TEST_CASE("a collective of blocks has one range for all")
{
    const struct gyre_split split = {1000, 2, 1, 64, 16};
    for (uint32_t block = 0; block < 12; block++) {
        const struct gyre_range first = gyre_tile_range(&split, 1, 0, 2);
        const struct gyre_range range = gyre_tile_range(&split, 1, block, 2);
        CHECK(range.first_elem == first.first_elem && range.n_elems == first.n_elems);
    }
}
