/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host makes of the rings that recording kernels write. No GPU: the rings are written by
 * hand, with a clock that is off and drifts.
 */
#include "kernels/cuda/host/records.h"
#include "tests/support/check.h"

enum { CAPACITY = 64, N_BLOCKS = 3 };

static struct gyre_trace_event rings[N_BLOCKS * CAPACITY];
static struct gyre_cuda_recorder recorder;

/* The GPU's clock is 5000 ns behind, and 1000 ns of it are 1001 ns of the host. */
static uint64_t host_of(uint64_t gpu_ns)
{
    return gpu_ns + 5000 + gpu_ns / 1000;
}

static struct gyre_cuda_clock made_clock(void)
{
    const uint64_t moments[] = {0, 100000000}; /* of the GPU; behind the step between the rounds */
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
    recorder.events = rings;
    recorder.capacity = CAPACITY;
}

static void put(uint32_t block, const struct gyre_trace_event *event)
{
    const uint64_t number = recorder.blocks[block].n_events++;
    rings[block * CAPACITY + number % CAPACITY] = *event;
}

static void put_step(uint32_t block, uint64_t begin_ns, uint64_t end_ns)
{
    const struct gyre_trace_event event = {.kind = GYRE_TRACE_STEP,
                                           .worker = (uint8_t)block,
                                           .begin_ns = begin_ns,
                                           .data_ns = begin_ns,
                                           .ready_ns = begin_ns,
                                           .end_ns = end_ns};
    put(block, &event);
}

static void put_run(uint32_t block, uint64_t call, uint64_t begin_ns, uint64_t end_ns)
{
    const struct gyre_trace_event event = {.kind = GYRE_TRACE_RUN,
                                           .call = call,
                                           .begin_ns = begin_ns,
                                           .data_ns = begin_ns,
                                           .ready_ns = begin_ns,
                                           .end_ns = end_ns};
    put(block, &event);
}

static struct gyre_trace_events read_all(void)
{
    uint32_t first_steps[N_BLOCKS] = {0, 10, 20};
    const struct gyre_cuda_record_program program = {first_steps, N_BLOCKS};
    const struct gyre_cuda_records records = {.recorder = &recorder,
                                              .n_blocks = N_BLOCKS,
                                              .clock = {.n_points = 1},
                                              .programs = &program,
                                              .n_programs = 1};
    struct gyre_trace_events events = {0};
    CHECK_OK(gyre_cuda_records_read(&records, &events));
    return events;
}

static void times_of_a_drifting_clock_are_found_within_the_error(void)
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

static void launches_of_all_blocks_become_one(void)
{
    empty_rings();
    put_step(0, 110, 120);
    put_run(0, 7, 100, 150);
    put_step(1, 95, 130);
    put_run(1, 7, 90, 160);
    put_run(0, 8, 200, 210);
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == 4 && events.n_lost == 0);
    unsigned n_steps = 0, n_first = 0, n_second = 0;
    for (uint64_t i = 0; i < events.n_events; i++) {
        const struct gyre_trace_event *event = &events.events[i];
        n_steps += event->kind == GYRE_TRACE_STEP && event->call == 7 &&
                   event->step == 10U * event->worker;
        n_first += event->kind == GYRE_TRACE_RUN && event->call == 7 && event->begin_ns == 90 &&
                   event->end_ns == 160;
        n_second += event->kind == GYRE_TRACE_RUN && event->call == 8 && event->begin_ns == 200 &&
                    event->end_ns == 210;
    }
    CHECK(n_steps == 2 && n_first == 1 && n_second == 1);
    free(events.events);
}

static void a_step_begins_after_the_step_before_it(void)
{
    empty_rings();
    put_step(2, 105, 150);
    put_step(2, 110, 170); /* its wait began while the step before it ran */
    put_step(2, 180, 190);
    put_run(2, 0, 100, 200);
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == 4);
    CHECK(events.events[0].begin_ns == 105 && events.events[0].end_ns == 150);
    CHECK(events.events[1].begin_ns == 150 && events.events[1].data_ns == 150 &&
          events.events[1].ready_ns == 150 && events.events[1].end_ns == 170);
    CHECK(events.events[2].begin_ns == 180);
    free(events.events);
}

static void a_full_ring_keeps_the_newest_events_and_counts_the_others(void)
{
    empty_rings();
    for (uint64_t call = 0; call < 50; call++) { /* 100 events */
        put_step(1, 1000 * call, 1000 * call + 10);
        put_run(1, call, 1000 * call, 1000 * call + 20);
    }
    struct gyre_trace_events events = read_all();
    CHECK(events.n_events == CAPACITY && events.n_lost == 100 - CAPACITY);
    CHECK(events.complete_ns == 18010); /* the oldest one is the step of call 18 */
    for (uint64_t i = 0; i < events.n_events; i++)
        CHECK(events.events[i].call >= 18 &&
              events.events[i].begin_ns / 1000 == events.events[i].call);
    free(events.events);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"times of a drifting clock are found within the error",
         times_of_a_drifting_clock_are_found_within_the_error},
        {"launches of all blocks become one", launches_of_all_blocks_become_one},
        {"a step begins after the step before it", a_step_begins_after_the_step_before_it},
        {"a full ring keeps the newest events and counts the others",
         a_full_ring_keeps_the_newest_events_and_counts_the_others},
    };
    return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
