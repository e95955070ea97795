/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"
#include "kernels/cuda/host/lower.h"
#include "kernels/cuda/host/position.h"
#include "tests/support/check.h"

enum { N_RANKS = 4, N_FIFOS = 4, N_ENDS = N_RANKS * N_FIFOS * 2, DEPTH = 4, N_CHANNELS = 2 };
enum { N_TILES = 5, TILES_BEFORE = 7 };

static struct gyre_inbox inboxes[N_ENDS];
static struct gyre_credit credits[N_ENDS];
static struct gyre_connector connectors[N_ENDS];
static uint64_t counters[N_ENDS * GYRE_N_SLOT_PROTOS];
static const struct gyre_fifo_spec spec = {
    .n_fifos = N_FIFOS, .depth = DEPTH, .slot_bytes = {4096}};
static struct gyre_program *program;
static struct gyre_cuda_known_work work;
static struct gyre_cuda_standstill still;

static void load(const char *algorithm, bool is_placed)
{
    const struct gyre_shape shape = {
        .coll = GYRE_COLL_ALL_REDUCE, .n_ranks = N_RANKS, .is_placed = is_placed};
    struct gyre_cuda_shape lowered_shape;
    struct gyre_cuda_program *lowered = NULL;
    for (uint32_t i = 0; i < N_ENDS; i++)
        connectors[i] = (struct gyre_connector){.slots = {(unsigned char *)&inboxes[i]},
                                                .inbox = &inboxes[i],
                                                .credit = &credits[i],
                                                .slot_bytes = 4096,
                                                .depth = DEPTH};
    CHECK_OK(gyre_algorithm_emit(gyre_algorithm_find(algorithm), &shape, 0, &program));
    const struct gyre_load_config config = {
        .program = program, .n_channels = N_CHANNELS, .proto = GYRE_PROTO_SIMPLE};
    CHECK_OK(gyre_cuda_lower(&spec, connectors, N_RANKS, &config, &lowered, &lowered_shape));
    work = (struct gyre_cuda_known_work){.sequence = 9,
                                         .lowered = lowered,
                                         .programs = (const struct gyre_program *const *)&program,
                                         .proto = GYRE_PROTO_SIMPLE,
                                         .n_channels = N_CHANNELS,
                                         .n_variants = 1,
                                         .n_workers = program->n_workers,
                                         .n_tiles = N_TILES,
                                         .n_in_flight = 2,
                                         .channel_stride = program->n_lanes * 2U};
    still = (struct gyre_cuda_standstill){.works = &work,
                                          .n_works = 1,
                                          .spec = &spec,
                                          .connectors = connectors,
                                          .n_ends = N_ENDS,
                                          .counters = counters};
    memset(counters, 0, sizeof(counters));
    gyre_cuda_count_slots(&work, TILES_BEFORE, N_ENDS, counters);
}

static void unload(void)
{
    free((void *)(uintptr_t)work.lowered);
    gyre_program_free(program);
}

static uint32_t end_of(const struct gyre_operand *operand, uint32_t channel)
{
    const struct gyre_connection *own = &program->connections[operand->index];
    return gyre_connector_index(&spec, own->peer, channel * program->n_lanes + own->lane,
                                own->is_send != 0);
}

static void check_wait(const struct gyre_operand *operand, bool is_out, uint32_t channel,
                       uint32_t worker, uint32_t step, uint32_t tile, uint64_t number)
{
    const uint32_t end = end_of(operand, channel);
    const uint64_t value = is_out ? number - DEPTH : number;
    const uint64_t *word = is_out ? &credits[end].head[0] : &inboxes[end].tail[0];
    struct gyre_position position;
    struct gyre_side_state state;
    CHECK(gyre_cuda_position(&still, (uint64_t)(uintptr_t)word, value, &position));
    CHECK_MSG(position.step == step && position.tile == tile, "step %u tile %u: %u %u", step, tile,
              position.step, (unsigned)position.tile);
    CHECK(position.channel == channel && position.worker == worker && position.sequence == 9);
    CHECK(position.waits_for == (is_out ? GYRE_WAIT_CREDIT : GYRE_WAIT_SLOT));
    CHECK(position.slot == value && position.n_seen == value);
    CHECK(position.peer == program->connections[operand->index].peer);
    CHECK(strncmp(position.step_text, "chunk ", 6) == 0);
    CHECK(gyre_cuda_end_of(&still, end, false, &position, 1, &state));
    CHECK_MSG(state.n_moved == number && state.is_held, "%d of %d", (int)state.n_moved,
              (int)number);
}

static void walk(uint32_t channel, uint32_t worker)
{
    const struct gyre_worker *own = &program->workers[worker];
    uint64_t moved[N_ENDS];
    memcpy(moved, counters, sizeof(moved)); /* SIMPLE's come first */
    for (uint32_t first = 0; first < N_TILES; first += 2)
        for (uint32_t s = 0; s < own->n_steps; s++)
            for (uint32_t tile = first; tile < N_TILES && tile < first + 2; tile++) {
                const struct gyre_step *step = &program->steps[own->first_step + s];
                for (uint32_t i = 0; i < step->n_ins; i++)
                    if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                        check_wait(&step->ins[i], false, channel, worker, s, tile,
                                   moved[end_of(&step->ins[i], channel)]++);
                for (uint32_t i = 0; i < step->n_outs; i++)
                    if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                        check_wait(&step->outs[i], true, channel, worker, s, tile,
                                   moved[end_of(&step->outs[i], channel)]++);
            }
}

TEST_CASE("every wait names its step and tile")
{
    static const char *const algorithms[] = {"ring", "tree", "direct"};
    for (uint32_t a = 0; a < 3; a++) {
        load(algorithms[a], false);
        for (uint32_t channel = 0; channel < N_CHANNELS; channel++)
            for (uint32_t worker = 0; worker < program->n_workers; worker++)
                walk(channel, worker);
        unload();
    }
}

TEST_CASE("a wait for entry names the step that places")
{
    load("twoshot", true);
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_operand operand = {.kind = GYRE_OPERAND_CONNECTION, .index = (uint16_t)i};
        struct gyre_position position;
        if (program->connections[i].is_send == 0)
            continue;
        const uint64_t *word = &credits[end_of(&operand, 1)].head[GYRE_HEAD_ENTERED];
        CHECK(gyre_cuda_position(&still, (uint64_t)(uintptr_t)word, 0, &position));
        CHECK(position.waits_for == GYRE_WAIT_ENTRY && position.channel == 1);
        bool places = false;
        const struct gyre_step *step = &program->steps[position.step];
        for (uint32_t o = 0; o < step->n_outs; o++)
            places = places || (step->outs[o].is_placed != 0 && step->outs[o].index == i);
        CHECK(places);
    }
    unload();
}

TEST_CASE("what is not awaited names nothing")
{
    struct gyre_position position;
    struct gyre_side_state state;
    load("ring", false);
    const uint32_t unused = gyre_connector_index(&spec, 2, 0, true); /* a ring skips rank 2 */
    CHECK(!gyre_cuda_position(&still, 0x1234, 1, &position));
    CHECK(!gyre_cuda_position(&still, (uint64_t)(uintptr_t)&credits[unused].head[0], 0, &position));
    const uint32_t used = gyre_connector_index(&spec, 3, 0, false);
    CHECK(!gyre_cuda_position(&still, (uint64_t)(uintptr_t)&inboxes[used].tail[0],
                              counters[used] - 1, &position)); /* arrived long ago */
    CHECK(!gyre_cuda_end_of(&still, used, false, NULL, 0, &state));
    unload();
}
