/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the programs of a call: those of the chosen algorithm for the call's shape. Refuses a
 * program that the communicator's FIFOs cannot carry, and limits the channels to those that have
 * FIFOs and thread blocks.
 */
#include "core/engine/plan/plan_program.h"

#include "core/foundation/base/util.h"
#include "core/engine/plan/plan_choice.h"

#include <inttypes.h>

/* Fill in the shape of a call, this rank's number in the shape and, for point to point, the two
 * ranks of the communicator. */
static void shape_of(const struct gyre_plan_cache *cache, const struct gyre_call *call,
                     struct gyre_shape *shape_out, int *rank_out, uint16_t rank_of_out[2])
{
    const struct gyre_member *member = cache->member;
    struct gyre_shape shape = {.coll = call->coll,
                               .n_ranks = (uint16_t)member->n_ranks,
                               .root = (uint16_t)(call->root < 0 ? 0 : call->root),
                               .grouping = &cache->links->grouping};
    *rank_out = member->rank;
    if (call->coll == GYRE_COLL_SEND_RECV) {
        const bool is_self = call->root == member->rank;
        shape.n_ranks = is_self ? 1 : 2;
        shape.root = 0;
        shape.grouping = NULL;
        *rank_out = call->is_send || is_self ? 0 : 1;
        rank_of_out[*rank_out] = (uint16_t)member->rank;
        rank_of_out[1 - *rank_out] = (uint16_t)call->root;
    }
    *shape_out = shape;
}

/* Do the communicator's FIFOs carry the program? */
static gyre_status check_fifos(const struct gyre_fifo_spec *spec, uint32_t n_fifos,
                               const struct gyre_call *call, const struct gyre_program *program)
{
    if (program->n_lanes <= n_fifos && program->min_depth <= spec->depth)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s %s needs %u connections of depth %u a pair, this communicator has %u of "
                     "depth %u",
                     program->algorithm, gyre_collectives[call->coll].name, program->n_lanes,
                     program->min_depth, n_fifos, spec->depth);
}

/* Do slots of tile_bytes have room for 16 bytes of each chunk that a step moves? */
static gyre_status check_slots(const struct gyre_fifo_spec *spec, uint32_t n_fifos,
                               const struct gyre_call *call, const struct gyre_program *program,
                               uint32_t tile_bytes)
{
    if (gyre_piece_bytes(tile_bytes, program->max_range) > 0)
        return GYRE_SUCCESS;
    if (n_fifos != spec->n_fifos) /* far pairs: no variable makes their slots longer */
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "a step of %s %s moves up to %u chunks, 16 bytes of each in a slot at "
                         "least; between far ranks of so many hosts slots have %u bytes",
                         program->algorithm, gyre_collectives[call->coll].name, program->max_range,
                         tile_bytes);
    return gyre_fail(
        GYRE_ERROR_UNSUPPORTED,
        "a step of %s %s moves up to %u chunks, 16 bytes of each in a slot at least; with "
        "GYRE_BUFFSIZE=%" PRIu64 " slots would be large enough, this call has %u bytes of one",
        program->algorithm, gyre_collectives[call->coll].name, program->max_range,
        (uint64_t)program->max_range * 16 * spec->depth, tile_bytes);
}

/* The most channels of a program on a GPU, because the workers of all channels run as thread blocks
 * at the same time. Programs that a built-in algorithm emits are not limited here; they keep the
 * channels that the tuner chose for that algorithm. */
static uint32_t most_block_channels(const struct gyre_tuner_facts *facts,
                                    const struct gyre_algorithm *algorithm,
                                    const struct gyre_variants *variants)
{
    const bool is_emitted = algorithm->given == NULL || algorithm->given->like != NULL;
    if (facts->device_kind != GYRE_DEVICE_CUDA || is_emitted || variants->most_workers <= 1)
        return UINT32_MAX;
    return (uint32_t)gyre_max_u64(1, facts->max_channels / variants->most_workers);
}

/* Limit the channels to those that have FIFOs and, on a GPU, thread blocks.
 * @facts: of the communicator, not of a pair. */
static void limit_channels(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                           uint32_t n_fifos, const struct gyre_variants *variants,
                           struct gyre_choice *choice)
{
    const uint32_t n_lanes = variants->programs[0]->n_lanes;
    uint32_t most = most_block_channels(facts, choice->algorithm, variants);
    if (coll == GYRE_COLL_SEND_RECV)
        most = gyre_min_u32(most, gyre_tuner_pair_channels(facts, choice->proto));
    if (n_lanes > 0)
        most = gyre_min_u32(most, n_fifos / n_lanes);
    choice->n_channels = gyre_min_u32(choice->n_channels, most);
}

gyre_status gyre_plan_choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out,
                             const struct gyre_variants **variants_out, uint16_t rank_of_out[2])
{
    struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    struct gyre_shape shape;
    int rank;
    facts.in_window = call->window != NULL;
    facts.has_large_pages = call->window != NULL && call->window->has_large_pages;
    GYRE_TRY(gyre_plan_choose_way(cache, &facts, call, choice_out));
    GYRE_TRY(gyre_tuner_check_path(&facts, &cache->filter, call->coll, choice_out));
    shape_of(cache, call, &shape, &rank, rank_of_out);
    shape.is_placed = choice_out->path != GYRE_PATH_STAGED;
    GYRE_TRY(
        gyre_programs_find(&cache->programs, choice_out->algorithm, &shape, rank, variants_out));
    const struct gyre_program *program = (*variants_out)->programs[0];
    const struct gyre_fifo_spec *spec = &cache->links->spec;
    const uint32_t n_fifos = gyre_tuner_fifos(&facts, choice_out->algorithm, call->coll).n_fifos;
    GYRE_TRY(check_fifos(spec, n_fifos, call, program));
    GYRE_TRY(check_slots(spec, n_fifos, call, program, choice_out->tile_bytes));
    limit_channels(&cache->facts, call->coll, n_fifos, *variants_out, choice_out);
    return GYRE_SUCCESS;
}
