/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"
#include "tests/support/check.h"
#include "tests/support/interpret.h"

#define MOST_WORKERS 80
#define MOST_SLOTS   4000
#define MOST_VALUES  400

static uint64_t random_state = 27;

static uint32_t pick(uint32_t n)
{
    return (uint32_t)(next_random(&random_state) % n);
}

/* With the snapshot, and what it has to contain. */
struct slot {
    uint32_t snapshot;
    int32_t times[MOST_WORKERS];
};

/* A random execution. Worker 0 never sends. */
struct course {
    struct gyre_clocks *clocks;
    uint32_t n_workers;
    int32_t times[MOST_WORKERS][MOST_WORKERS]; /* the plain clocks, by worker */
    int32_t learned[MOST_WORKERS];             /* of the steps that may overlap */
    struct slot slots[MOST_SLOTS];
    uint32_t n_slots;
    long n_after, n_not_after;
};

static void raise_all(int32_t *times, const int32_t *known, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        times[i] = times[i] > known[i] ? times[i] : known[i];
}

/* Receives some slots, perhaps asks, perhaps sends. Only a step beside others must have few inputs.
 */
static void run_step(struct course *course, struct gyre_view *view, uint32_t n_receives,
                     uint32_t n_sends)
{
    const uint32_t n = course->n_workers;
    int32_t known[MOST_WORKERS];
    memcpy(known, course->times[view->worker], sizeof(known));
    view->n_snapshots = 0;
    if (view->is_apart && n_receives > GYRE_STEP_MAX_INS)
        n_receives = GYRE_STEP_MAX_INS;
    for (uint32_t i = 0; i < n_receives && course->n_slots > 0; i++) {
        struct slot *slot = &course->slots[pick(course->n_slots)];
        CHECK(gyre_clocks_receive(course->clocks, view, slot->snapshot));
        raise_all(known, slot->times, n);
        *slot = course->slots[--course->n_slots];
    }
    raise_all(view->is_apart ? course->learned : course->times[view->worker], known, n);
    const bool is_asked = pick(4) == 0;
    for (uint32_t of = 0; of < n && is_asked; of++)
        if (of != view->worker) {
            /* Both clocks, at times around the known one. */
            for (int32_t time = known[of] < 1 ? 1 : known[of]; time <= known[of] + 1; time++) {
                const bool is_after = known[of] >= time;
                CHECK_MSG(gyre_view_is_after(course->clocks, view, of, time) == is_after,
                          "worker %u of worker %u: knows time %d, was asked for %d", view->worker,
                          of, known[of], time);
                course->n_after += is_after;
                course->n_not_after += !is_after;
            }
        }
    if (view->worker == 0 || n_sends == 0 || course->n_slots + n_sends > MOST_SLOTS)
        return;
    const uint32_t snapshot = gyre_clocks_snapshot(course->clocks, view, n_sends);
    CHECK(snapshot != GYRE_NO_SNAPSHOT);
    for (uint32_t i = 0; i < n_sends; i++) {
        struct slot *slot = &course->slots[course->n_slots++];
        slot->snapshot = snapshot;
        memcpy(slot->times, known, sizeof(known));
    }
}

/* Receives the only slot, and sends the next one. */
static void run_relay(struct course *course, uint32_t worker)
{
    const int32_t time = gyre_clocks_own_time(course->clocks, worker) + 1;
    struct gyre_view view = {.worker = worker, .time = time};
    gyre_clocks_set_time(course->clocks, worker, time);
    course->times[worker][worker] = time;
    run_step(course, &view, 1, 1);
}

static void follow(uint32_t n_workers, int n_turns, uint64_t max_time, bool is_relay)
{
    struct gyre_network_fifo fifos[MOST_WORKERS];
    const struct gyre_verify_network network = {
        .n_workers = n_workers, .n_fifos = n_workers - 1, .fifos = fifos};
    struct course *course = calloc(1, sizeof(*course));
    CHECK(course != NULL);
    if (course == NULL)
        return;
    course->n_workers = n_workers;
    for (uint32_t i = 0; i + 1 < n_workers; i++)
        fifos[i] = (struct gyre_network_fifo){.sender = i + 1};
    CHECK_OK(gyre_clocks_open(&network, max_time, &course->clocks));
    for (int turn = 0; turn < n_turns && course->clocks != NULL; turn++)
        if (is_relay)
            run_relay(course, 1 + (uint32_t)turn % (n_workers - 1));
        else {
            /* One step, or several at a time, in whose clocks the worker has its previous time. */
            const uint32_t worker = pick(n_workers);
            const uint32_t n_receives = pick(8) == 0 ? n_workers / 3 : pick(3);
            const int32_t time = gyre_clocks_own_time(course->clocks, worker) + 1;
            const bool is_apart = pick(3) == 0;
            struct gyre_view view = {.worker = worker, .time = time, .is_apart = is_apart};
            CHECK(time == course->times[worker][worker] + 1);
            memset(course->learned, 0, sizeof(course->learned));
            if (!is_apart) {
                gyre_clocks_set_time(course->clocks, worker, time);
                course->times[worker][worker] = time;
            }
            for (uint32_t i = 0; i < (is_apart ? 1 + pick(3) : 1); i++)
                run_step(course, &view, n_receives, pick(3) == 0 ? course->n_workers : pick(3));
            CHECK(gyre_clocks_learn(course->clocks, worker));
            raise_all(course->times[worker], course->learned, course->n_workers);
            gyre_clocks_set_time(course->clocks, worker, time);
            course->times[worker][worker] = time;
        }
    CHECK(course->n_after > n_turns / 100 && course->n_not_after > n_turns / 100);
    gyre_clocks_close(course->clocks);
    free(course);
}

TEST_CASE("clocks know what plain clocks know")
{
    static const uint32_t n_workers_of[] = {2, 3, 8, 33, MOST_WORKERS};
    for (size_t i = 0; i < sizeof(n_workers_of) / sizeof(n_workers_of[0]); i++) {
        follow(n_workers_of[i], 4000, INT16_MAX, false);
        follow(n_workers_of[i], 4000, INT16_MAX + 1, false);
    }
}

TEST_CASE("a clock knows all workers that passed on its slot")
{
    follow(3, 1000, INT16_MAX, true);
    follow(MOST_WORKERS, 4000, INT16_MAX, true);
    follow(MOST_WORKERS, 4000, INT16_MAX + 1, true);
}

TEST_CASE("times beyond 16 bits are kept")
{
    follow(2, 80000, 80000, false); /* about 40000 turns of each worker */
}

struct plain {
    uint32_t value;
    bool has[MOST_WORKERS];
};

static struct plain plains[MOST_VALUES];

/* False if they share a rank. */
static bool unite(uint32_t n_ranks, const uint32_t *ins, uint32_t n_ins, struct plain *sum)
{
    bool is_disjoint = true;
    memset(sum, 0, sizeof(*sum));
    for (uint32_t i = 0; i < n_ins; i++)
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            is_disjoint = is_disjoint && !(sum->has[rank] && plains[ins[i]].has[rank]);
            sum->has[rank] = sum->has[rank] || plains[ins[i]].has[rank];
        }
    return is_disjoint;
}

static void reduce_at_random(uint32_t n_ranks)
{
    struct gyre_values *values = NULL;
    uint32_t n = 0, n_twice = 0;
    CHECK_OK(gyre_values_open(n_ranks, false, &values));
    for (; n < n_ranks; n++) {
        plains[n] = (struct plain){.value = gyre_values_input(n)};
        plains[n].has[n] = true;
    }
    for (int turn = 0; turn < 6000 && n < MOST_VALUES && values != NULL; turn++) {
        struct plain sum;
        uint32_t ins[3], numbers[3], again;
        /* Ranks in a row, a rank and the newest value, or anything. */
        const uint32_t kind = pick(3), first = pick(n_ranks);
        for (uint32_t i = 0; i < 3; i++)
            ins[i] = kind == 0 ? (first + i) % n_ranks : kind == 1 ? first : pick(n);
        if (kind == 1)
            ins[pick(2)] = n - 1;
        const uint32_t n_ins = kind == 1 ? 2 : 1 + pick(3);
        const bool is_disjoint = unite(n_ranks, ins, n_ins, &sum), is_final = pick(4) == 0;
        for (uint32_t i = 0; i < 3; i++)
            numbers[i] = plains[ins[i]].value;
        const enum gyre_value_fault fault =
            gyre_values_reduce(values, numbers, n_ins, is_final, &sum.value);
        CHECK((fault == GYRE_VALUE_FINE) == is_disjoint);
        n_twice += fault == GYRE_VALUE_TWICE;
        if (fault != GYRE_VALUE_FINE)
            continue;
        uint32_t n_ranks_in = 0;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            CHECK(gyre_values_has(values, sum.value, rank) == sum.has[rank]);
            n_ranks_in += sum.has[rank];
        }
        CHECK(gyre_values_get(values, sum.value)->n_ranks_in == n_ranks_in);
        CHECK(gyre_values_get(values, sum.value)->is_final == is_final);
        CHECK(gyre_values_reduce(values, numbers, n_ins, is_final, &again) == GYRE_VALUE_FINE);
        CHECK(again == sum.value);
        CHECK(gyre_values_reduce(values, numbers, n_ins, !is_final, &again) == GYRE_VALUE_FINE);
        CHECK(again != sum.value);
        plains[n++] = sum;
    }
    CHECK(n_twice > 0 && n > n_ranks);
    gyre_values_close(values);
}

TEST_CASE("values have the ranks that plain sets have")
{
    static const uint32_t n_ranks_of[] = {1, 2, 3, 10, 64, 65, MOST_WORKERS};
    for (size_t i = 0; i < sizeof(n_ranks_of) / sizeof(n_ranks_of[0]); i++)
        reduce_at_random(n_ranks_of[i]);
}
