/* SPDX-License-Identifier: Apache-2.0
 *
 * core/links/fifo_spec: FIFOs fit the budget whatever the number of ranks, and the ring's large
 * slots are where rings go.
 */
#include "core/base/util.h"
#include "core/plan/plan.h"
#include "tests/support/check.h"
#include "transport/slab.h"

static const int some_ranks[] = {2, 3, 4, 5, 8, 16, 33, 64, 128};

static void connection_memory_stays_within_the_budget(void)
{
    for (int kind = 0; kind < 2; kind++)
        for (int proxied = 0; proxied < 2; proxied++)
            for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_ranks); i++) {
                const uint32_t n_peers = (uint32_t)some_ranks[i] - 1;
                const uint32_t max_channels = i % 2 == 0 ? UINT32_MAX : 1 + (uint32_t)i * 4;
                const struct gyre_fifo_spec spec =
                    gyre_tuner_fifo_spec(kind == 0 ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA,
                                         n_peers + 1, proxied != 0, 0, max_channels);
                struct gyre_slab_layout layout;
                CHECK_OK(gyre_slab_layout_make(&spec, n_peers, n_peers / 2, &layout));
                const uint64_t n_bytes = layout.n_bytes * (proxied != 0 ? 2 : 1);
                const uint64_t budget_bytes = kind == 1 && proxied == 1
                                                  ? GYRE_FIFO_BUDGET_ACROSS_BYTES
                                                  : GYRE_FIFO_BUDGET_BYTES;
                CHECK_MSG(n_bytes <= budget_bytes + budget_bytes / 64,
                          "%d ranks: %" PRIu64 " bytes, slots of %u and %u", some_ranks[i], n_bytes,
                          spec.slot_bytes[GYRE_PROTO_SIMPLE], spec.ring_slot_bytes);
                CHECK(spec.n_fifos >= 2 && spec.depth >= 2);
            }
}

static void rings_on_gpus_have_large_slots(void)
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_ranks); i++) {
        const uint32_t n_ranks = (uint32_t)some_ranks[i];
        const struct gyre_fifo_spec spec =
            gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, UINT32_MAX);
        const uint32_t ring_bytes =
            spec.ring_slot_bytes > 0 ? spec.ring_slot_bytes : spec.slot_bytes[GYRE_PROTO_SIMPLE];
        CHECK_MSG(ring_bytes == 131072, "%u ranks: slots of %u bytes", n_ranks, ring_bytes);
    }
    const struct gyre_fifo_spec few = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 2, false, 0, 16);
    CHECK_MSG(few.n_fifos == 32 && few.slot_bytes[GYRE_PROTO_SIMPLE] == 384 * 1024,
              "%u FIFOs of %u bytes a slot", few.n_fifos, few.slot_bytes[GYRE_PROTO_SIMPLE]);
    const struct gyre_fifo_spec eight = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 8, false, 0, 8);
    CHECK_MSG(
        eight.ring_slot_bytes == 256 * 1024 && eight.slot_bytes[GYRE_PROTO_SIMPLE] == 64 * 1024,
        "slots of %u and %u bytes", eight.ring_slot_bytes, eight.slot_bytes[GYRE_PROTO_SIMPLE]);
    const struct gyre_fifo_spec set =
        gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 4, false, 1 << 20, UINT32_MAX);
    CHECK(set.slot_bytes[GYRE_PROTO_SIMPLE] == (1 << 20) / set.depth && set.ring_slot_bytes == 0);
}

static void the_fewest_channels_leave_every_lane_a_fifo(void)
{
    for (uint16_t n_ranks = 2; n_ranks <= 17; n_ranks++) {
        const struct gyre_fifo_spec spec =
            gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, 1);
        for (int i = 0; gyre_algorithms[i] != NULL; i++)
            for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
                const struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                                 .n_ranks = n_ranks};
                struct gyre_program *program;
                if (!gyre_algorithm_has(gyre_algorithms[i], shape.coll) ||
                    coll == GYRE_COLL_SEND_RECV)
                    continue;
                CHECK_OK(gyre_algorithm_emit(gyre_algorithms[i], &shape, 0, &program));
                CHECK_MSG(program->n_lanes <= spec.n_fifos, "%s %s: %u lanes, %u FIFOs",
                          gyre_algorithms[i]->name, gyre_collectives[coll].name, program->n_lanes,
                          spec.n_fifos);
                gyre_program_free(program);
            }
    }
}

/* Some step moves data through the connection's slots. */
static bool is_staged(const struct gyre_program *program, uint32_t connection)
{
    for (uint32_t i = 0; i < program->n_steps; i++) {
        const struct gyre_step *step = &program->steps[i];
        const struct gyre_operand *operands = step->ins;
        for (unsigned k = 0; k < step->n_ins + step->n_outs; k++) {
            const struct gyre_operand operand =
                k < step->n_ins ? operands[k] : step->outs[k - step->n_ins];
            if (operand.kind == GYRE_OPERAND_CONNECTION && operand.index == connection &&
                operand.is_placed == 0)
                return true;
        }
    }
    return false;
}

/* A rank receives slots only from the previous rank in the ring, and sends slots only to the next
 * rank. */
static void check_edges(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                        uint16_t n_ranks, uint16_t root, bool is_placed)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = n_ranks, .root = root, .is_placed = is_placed};
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_program *program;
        CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &program));
        for (uint32_t i = 0; i < program->n_connections; i++) {
            const struct gyre_connection *connection = &program->connections[i];
            if (!is_staged(program, i))
                continue;
            const int from = connection->is_send ? rank : connection->peer;
            const int to = connection->is_send ? connection->peer : rank;
            CHECK_MSG(to == (from + 1) % n_ranks, "%s %s of %u ranks, root %u: %d sends to %d",
                      algorithm->name, gyre_collectives[coll].name, n_ranks, root, from, to);
        }
        gyre_program_free(program);
    }
}

static void algorithms_that_follow_the_ring_do(void)
{
    int n_found = 0;
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        const bool is_placed = gyre_algorithms[i]->stages_in_ring;
        if (!gyre_algorithms[i]->follows_ring && !is_placed)
            continue;
        n_found++;
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (uint16_t n = 2; n <= 17; n++)
                for (uint16_t root = 0; root < n; root++)
                    if (gyre_algorithm_has(gyre_algorithms[i], (enum gyre_collective)coll))
                        check_edges(gyre_algorithms[i], (enum gyre_collective)coll, n, root,
                                    is_placed);
    }
    CHECK(n_found == 2);
}

static const struct test_case cases[] = {
    {"connection memory stays within the budget", connection_memory_stays_within_the_budget},
    {"rings on GPUs have large slots", rings_on_gpus_have_large_slots},
    {"the fewest channels leave every lane a FIFO", the_fewest_channels_leave_every_lane_a_fifo},
    {"algorithms that follow the ring do", algorithms_that_follow_the_ring_do},
};

TEST_MAIN(cases)
