/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/records.h"
#include "tests/support/check.h"

enum { CAPACITY = 64, N_BLOCKS = 3 };

static union gyre_cuda_record rings[N_BLOCKS * CAPACITY];
static struct gyre_cuda_recorder recorder;

/* One worker sends its input to peer 1, reduces what comes from peer 2, passes the sum on to peer
 * 1, and takes a result from peer 2. */
static struct {
    struct gyre_cuda_program head;
    struct gyre_cuda_worker worker;
    struct gyre_cuda_connection connections[2];
    struct gyre_cuda_step steps[3];
} lowered;

/* Of peer p, FIFO f: (p * 4 + f) * 2, and 1 more at the sender's side. */
enum { ENDS_PER_RANK = 8, FROM_2 = 2 * ENDS_PER_RANK, TO_1 = ENDS_PER_RANK + 1 };

static uint64_t host_of(uint64_t gpu_ns)
{
    return gpu_ns + 5000 + gpu_ns / 1000;
}

static struct gyre_cuda_clock made_clock(void)
{
    const uint64_t moments[] = {0, 100000000}; /* of the GPU; behind the rounds' step */
    struct gyre_cuda_clock clock = {0};
    for (int i = 0; i < 2; i++) {
        struct gyre_cuda_clock_round rounds[4];
        for (uint64_t k = 0; k < 4; k++) { /* an answer takes 2 us; the halves differ */
            const uint64_t gpu_ns = moments[i] + 3000 * k;
            rounds[k] = (struct gyre_cuda_clock_round){host_of(gpu_ns) - 500 - 200 * k, gpu_ns,
                                                       host_of(gpu_ns) + 1500 - 300 * k};
        }
        gyre_cuda_clock_add(&clock, rounds, 4);
    }
    return clock;
}

static void empty_rings(void)
{
    memset(&recorder, 0, sizeof(recorder));
    memset(rings, 0, sizeof(rings));
    recorder.entries = rings;
    recorder.capacity = CAPACITY;
    memset(&lowered, 0, sizeof(lowered));
    lowered.head = (struct gyre_cuda_program){
        .n_bytes = sizeof(lowered),
        .workers_offset = (uint32_t)((char *)&lowered.worker - (char *)&lowered),
        .connections_offset = (uint32_t)((char *)lowered.connections - (char *)&lowered),
        .steps_offset = (uint32_t)((char *)lowered.steps - (char *)&lowered)};
    lowered.worker = (struct gyre_cuda_worker){.n_steps = 3, .n_connections = 2};
    lowered.connections[0] = (struct gyre_cuda_connection){.index = TO_1, .n_uses = 2};
    lowered.connections[1] = (struct gyre_cuda_connection){.index = FROM_2, .n_uses = 2};
    lowered.steps[0] = (struct gyre_cuda_step){.n_ins = 1, .n_outs = 1, .send_mask = 1};
    lowered.steps[1] =
        (struct gyre_cuda_step){.n_ins = 2, .n_outs = 1, .recv_mask = 1, .send_mask = 1};
    lowered.steps[1].ins[0].ref = 1;
    lowered.steps[1].outs[0].use = 1;
    lowered.steps[2] = (struct gyre_cuda_step){.n_ins = 1, .n_outs = 1, .recv_mask = 1};
    lowered.steps[2].ins[0] = (struct gyre_cuda_operand){.ref = 1, .use = 1};
}

static union gyre_cuda_record *put(uint32_t ring)
{
    union gyre_cuda_record *entry =
        &rings[ring * CAPACITY + recorder.blocks[ring].n_entries++ % CAPACITY];
    memset(entry, 0xee, sizeof(*entry)); /* kernels write the members that they use */
    return entry;
}

/* After `number` slots to peer 1, and one more from peer 2. @channel: whose FIFOs they are. */
static void put_ends(uint32_t ring, uint32_t channel, uint32_t number)
{
    union gyre_cuda_record *entry = put(ring);
    entry->ends[0].index = TO_1 + channel * 2;
    entry->ends[0].number = number;
    entry->ends[1].index = FROM_2 + channel * 2;
    entry->ends[1].number = number + 1;
}

static void put_step(uint32_t ring, uint64_t begin_ns, uint32_t data_ns, uint32_t ready_ns,
                     uint64_t end_ns)
{
    union gyre_cuda_record *entry = put(ring);
    entry->step.begin_ns = begin_ns;
    entry->step.data_ns = data_ns;
    entry->step.ready_ns = ready_ns;
    entry->step.end_ns = end_ns;
    entry->step.n_bytes = 4096;
}

struct made_run {
    uint64_t call, begin_ns, end_ns, marks_ns[4];
    uint32_t block, n_ends, n_steps, n_tiles;
    enum gyre_cuda_run kind;
};

static void put_run(uint32_t ring, const struct made_run *made)
{
    union gyre_cuda_record *entry = put(ring);
    entry->run.begin_ns = made->begin_ns;
    entry->run.end_ns = made->end_ns;
    entry->run.call = made->call;
    entry->run.sequence = 100 + made->call;
    memcpy(put(ring)->marks_ns, made->marks_ns, sizeof(made->marks_ns));
    entry = put(ring);
    entry->facts.program = 0;
    entry->facts.block = made->block;
    entry->facts.n_ends = made->n_ends;
    entry->facts.n_steps = made->n_steps;
    entry->facts.n_tiles = made->n_tiles;
    entry->facts.kind = made->kind;
    entry->facts.slot_bytes = 512;
    entry->facts.first_program = 0;
    put(ring)->call.n_bytes = 1 << 20;
}

static struct gyre_trace_events read_in_flight(uint32_t n_in_flight)
{
    const struct gyre_cuda_record_program program = {.lowered = &lowered.head,
                                                     .n_workers = 1,
                                                     .n_in_flight = n_in_flight,
                                                     .channel_stride = 2,
                                                     .n_kernel_steps = 2};
    const struct gyre_cuda_records records = {.recorder = &recorder,
                                              .n_blocks = N_BLOCKS,
                                              .ends_per_rank = ENDS_PER_RANK,
                                              .clock = {.n_points = 1},
                                              .programs = &program,
                                              .n_programs = 1};
    struct gyre_trace_events events = {0};
    CHECK_OK(gyre_cuda_records_read(&records, &events));
    return events;
}

static struct gyre_trace_events read_all(void)
{
    return read_in_flight(1);
}

static const struct gyre_trace_event *step_of(const struct gyre_trace_events *events, uint64_t call,
                                              uint32_t n)
{
    for (uint64_t i = 0; i < events->n_events; i++)
        if (events->events[i].kind == GYRE_TRACE_STEP && events->events[i].call == call && n-- == 0)
            return &events->events[i];
    CHECK_MSG(false, "call %llu has too few steps", (unsigned long long)call);
    abort();
}

static const struct gyre_trace_event *run_of(const struct gyre_trace_events *events, uint64_t call)
{
    const struct gyre_trace_event *found = NULL;
    for (uint64_t i = 0; i < events->n_events; i++) {
        if (events->events[i].kind != GYRE_TRACE_RUN || events->events[i].call != call)
            continue;
        CHECK(found == NULL); /* the blocks' events have become one */
        found = &events->events[i];
    }
    CHECK(found != NULL);
    return found;
}

static void check_times(const struct gyre_trace_event *event, uint64_t begin_ns, uint64_t data_ns,
                        uint64_t ready_ns, uint64_t end_ns)
{
    CHECK_MSG(event->begin_ns == begin_ns && event->data_ns == data_ns &&
                  event->ready_ns == ready_ns && event->end_ns == end_ns,
              "%d %d %d %d", (int)event->begin_ns, (int)event->data_ns, (int)event->ready_ns,
              (int)event->end_ns);
}

static void check_slot(const struct gyre_trace_slot *slot, uint16_t peer, uint16_t fifo,
                       uint32_t number)
{
    CHECK_MSG(slot->peer == peer && slot->fifo == fifo && slot->number == number,
              "peer %u fifo %u number %u", slot->peer, slot->fifo, slot->number);
}

TEST_CASE("times of a drifting clock are found within the error")
{
    const struct gyre_cuda_clock clock = made_clock();
    CHECK(clock.n_points == 2);
    CHECK_MSG(clock.error_ns > 0 && clock.error_ns <= 1000, "%d ns", (int)clock.error_ns);
    for (uint64_t gpu_ns = 0; gpu_ns <= 100000000; gpu_ns += 9999991) {
        const int64_t off_ns = (int64_t)(gyre_cuda_clock_to_host(&clock, gpu_ns) - host_of(gpu_ns));
        CHECK_MSG(llabs(off_ns) <= (int64_t)clock.error_ns, "%lld ns at %llu ns", (long long)off_ns,
                  (unsigned long long)gpu_ns);
    }
}

TEST_CASE("a launch ran from its first begin to its last end")
{
    static struct gyre_cuda_span spans[GYRE_CUDA_SPANS * N_BLOCKS];
    const struct gyre_cuda_clock clock = made_clock();
    const uint64_t work = GYRE_CUDA_SPANS + 7; /* its place was that of work 7 */
    struct gyre_cuda_span *own = &spans[7 * N_BLOCKS];
    uint64_t begin_ns = 0, end_ns = 0;
    own[0] = (struct gyre_cuda_span){work + 1, 1000000, 1005000};
    own[1] = (struct gyre_cuda_span){work + 1, 999000, 1004000};
    own[2] = (struct gyre_cuda_span){7 + 1, 5000, 9000000}; /* only the older launch had it */
    CHECK(gyre_cuda_span_read(spans, N_BLOCKS, work, &clock, &begin_ns, &end_ns));
    CHECK(begin_ns == gyre_cuda_clock_to_host(&clock, 999000) &&
          end_ns == gyre_cuda_clock_to_host(&clock, 1005000));
    CHECK(!gyre_cuda_span_read(spans, N_BLOCKS, work + 1, &clock, &begin_ns, &end_ns));
    CHECK(
        !gyre_cuda_span_read(spans, N_BLOCKS, work + GYRE_CUDA_SPANS, &clock, &begin_ns, &end_ns));
}

TEST_CASE("launches of all blocks become one")
{
    empty_rings();
    put_run(0, &(struct made_run){.call = 7, .begin_ns = 100, .end_ns = 150});
    put_run(1, &(struct made_run){.call = 7, .begin_ns = 90, .end_ns = 160, .block = 1});
    put_run(0, &(struct made_run){.call = 8, .begin_ns = 200, .end_ns = 210});
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == 2 && events.n_lost == 0);
    check_times(run_of(&events, 7), 90, 0, 0, 160);
    check_times(run_of(&events, 8), 200, 0, 0, 210);
    CHECK(run_of(&events, 8)->sequence == 108 && run_of(&events, 8)->n_bytes == 1 << 20);
    free(events.events);
}

TEST_CASE("a step has its times and the slots of its program")
{
    empty_rings();
    put_ends(2, 1, 40);
    put_step(2, 105, 0, 10, 150);
    put_step(2, 110, 20, 30, 170); /* its wait overlaps the step before */
    put_step(2, 180, 4, 4, 190);
    put_run(
        2,
        &(struct made_run){
            .begin_ns = 100, .end_ns = 200, .block = 1, .n_ends = 2, .n_steps = 3, .n_tiles = 1});
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == 4);
    check_times(step_of(&events, 0, 0), 105, 105, 115, 150);
    check_times(step_of(&events, 0, 1), 150, 150, 150, 170);
    check_times(step_of(&events, 0, 2), 180, 184, 184, 190);
    const struct gyre_trace_event *reduce = step_of(&events, 0, 1);
    CHECK(reduce->step == 1 && reduce->channel == 1 && reduce->n_bytes == 4096);
    CHECK(reduce->n_ins == 1 && reduce->n_outs == 1);
    check_slot(&reduce->slots[0], 2, 1, 41); /* the first from peer 2 in this launch */
    check_slot(&reduce->slots[1], 1, 1, 41); /* the second one to peer 1 */
    check_slot(&step_of(&events, 0, 2)->slots[0], 2, 1, 42);
    free(events.events);
}

TEST_CASE("steps of tiles in flight are told apart")
{
    empty_rings();
    put_ends(0, 0, 0);
    for (uint64_t k = 0; k < 9; k++)
        put_step(0, 100 + 10 * k, 0, 0, 105 + 10 * k);
    put_run(0, &(struct made_run){
                   .begin_ns = 100, .end_ns = 300, .n_ends = 2, .n_steps = 9, .n_tiles = 3});
    struct gyre_trace_events events = read_in_flight(2);
    static const uint8_t steps[] = {0, 0, 1, 1, 2, 2, 0, 1, 2},
                         tiles[] = {0, 1, 0, 1, 0, 1, 2, 2, 2};
    static const uint8_t sent[] = {0, 1, 2, 3, 99, 99, 4, 5};
    for (uint32_t k = 0; k < 9; k++) {
        const struct gyre_trace_event *step = step_of(&events, 0, k);
        CHECK_MSG(step->step == steps[k] && step->tile == tiles[k], "k %u: step %u tile %u", k,
                  step->step, step->tile);
        if (step->n_outs > 0)
            check_slot(&step->slots[step->n_ins], 1, 0, sent[k]);
    }
    free(events.events);
}

TEST_CASE("the phases of a fused program are steps")
{
    empty_rings();
    put_ends(1, 0, 8);
    put_run(1, &(struct made_run){.begin_ns = 100,
                                  .end_ns = 200,
                                  .marks_ns = {120, 140, 160, 170},
                                  .n_ends = 2,
                                  .n_tiles = 2,
                                  .kind = GYRE_CUDA_RUN_FUSED});
    struct gyre_trace_events events = read_in_flight(2);
    CHECK(events.n_events == 4);
    check_times(step_of(&events, 0, 0), 100, 100, 100, 120);
    check_times(step_of(&events, 0, 1), 120, 140, 140, 160);
    check_times(step_of(&events, 0, 2), 160, 170, 170, 200);
    const struct gyre_trace_event *reduce = step_of(&events, 0, 1);
    CHECK(reduce->step == 1 && reduce->n_ins == 2 && reduce->n_outs == 2 && reduce->n_bytes == 512);
    check_slot(&reduce->slots[0], 2, 0, 9); /* both tiles' first slots, then the second */
    check_slot(&reduce->slots[1], 2, 0, 10);
    check_slot(&reduce->slots[2], 1, 0, 10);
    check_slot(&reduce->slots[3], 1, 0, 11);
    free(events.events);
}

TEST_CASE("a phase whose arrival is not marked is a wait")
{
    empty_rings();
    put_ends(1, 0, 8);
    put_run(1, &(struct made_run){.begin_ns = 100,
                                  .end_ns = 200,
                                  .marks_ns = {120, 140, 160},
                                  .n_ends = 2,
                                  .n_tiles = 1,
                                  .kind = GYRE_CUDA_RUN_FUSED});
    struct gyre_trace_events events = read_all();
    check_times(step_of(&events, 0, 1), 120, 140, 140, 160);
    check_times(step_of(&events, 0, 2), 160, 200, 200, 200);
    free(events.events);
}

TEST_CASE("copies take the time between the sync kernels")
{
    empty_rings();
    put_run(0, &(struct made_run){
                   .call = 3, .begin_ns = 100, .end_ns = 110, .kind = GYRE_CUDA_RUN_OPENS});
    put_run(0, &(struct made_run){
                   .call = 3, .begin_ns = 150, .end_ns = 170, .kind = GYRE_CUDA_RUN_CLOSES});
    put_ends(0, 0, 8); /* of a call whose tail is copied */
    put_run(0, &(struct made_run){
                   .call = 4, .begin_ns = 200, .end_ns = 210, .n_ends = 2, .n_tiles = 1});
    put_run(0, &(struct made_run){
                   .call = 4, .begin_ns = 250, .end_ns = 270, .kind = GYRE_CUDA_RUN_CLOSES});
    struct gyre_trace_events events = read_all();
    check_times(run_of(&events, 3), 100, 0, 0, 170);
    check_times(step_of(&events, 3, 0), 100, 100, 110, 150);
    check_times(step_of(&events, 3, 1), 150, 170, 170, 170);
    CHECK(step_of(&events, 3, 0)->step == 2);
    check_times(run_of(&events, 4), 200, 0, 0, 270);
    check_times(step_of(&events, 4, 0), 210, 210, 210, 250);
    check_times(step_of(&events, 4, 1), 250, 270, 270, 270);
    free(events.events);
}

/* A launch of one step takes 6 entries: 64 keep 10 launches and the run of an 11th. */
TEST_CASE("a full ring keeps the newest launches and counts the other entries")
{
    empty_rings();
    for (uint64_t call = 0; call < 50; call++) {
        put_ends(1, 0, 0);
        put_step(1, 1000 * call, 0, 0, 1000 * call + 10);
        put_run(1, &(struct made_run){.call = call,
                                      .begin_ns = 1000 * call,
                                      .end_ns = 1000 * call + 20,
                                      .n_ends = 2,
                                      .n_steps = 1,
                                      .n_tiles = 1});
    }
    struct gyre_trace_events events = read_all();
    CHECK_MSG(events.n_events == 2 * 10 + 1 && events.n_lost == 300 - CAPACITY, "%d events",
              (int)events.n_events);
    CHECK(events.complete_ns == 39020); /* of call 39, whose step is lost */
    for (uint64_t i = 0; i < events.n_events; i++)
        CHECK(events.events[i].call >= 39 &&
              events.events[i].begin_ns / 1000 == events.events[i].call);
    free(events.events);
}

TEST_CASE("a launch that is longer than the ring keeps its run")
{
    empty_rings();
    put_ends(1, 0, 0);
    for (uint64_t k = 0; k < 90; k++)
        put_step(1, 100 + k, 0, 0, 100 + k);
    put_run(
        1,
        &(struct made_run){
            .call = 2, .begin_ns = 100, .end_ns = 500, .n_ends = 2, .n_steps = 90, .n_tiles = 30});
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == 1 && run_of(&events, 2)->end_ns == 500 && events.complete_ns == 500);
    free(events.events);
}
