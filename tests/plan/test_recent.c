/* SPDX-License-Identifier: Apache-2.0
 *
 * Works that are kept for calls that come again.
 */
#include "core/engine/plan/recent.h"
#include "tests/support/check.h"

static struct gyre_recent recent;

static const struct gyre_call a_call = {.coll = GYRE_COLL_SEND_RECV,
                                        .send = &recent,
                                        .recv = &recent.works[1],
                                        .count = 100,
                                        .dtype = GYRE_FLOAT32,
                                        .op = GYRE_SUM,
                                        .root = 1,
                                        .scalar = 5};

static const struct gyre_work *keep_and_find(const struct gyre_call *kept,
                                             const struct gyre_call *sought)
{
    const struct gyre_work work = {.in = kept->send, .out_offset_bytes = kept->count};
    gyre_recent_forget(&recent);
    gyre_recent_keep(&recent, kept, &work, GYRE_PROTO_LL128);
    const struct gyre_recent_work *found = gyre_recent_find(&recent, sought);
    return found != NULL ? &found->work : NULL;
}

static void the_same_call_finds_its_work_on_any_stream(void)
{
    struct gyre_call again = a_call;
    again.stream = &again;
    const struct gyre_work *work = keep_and_find(&a_call, &again);
    CHECK(work != NULL && work->in == a_call.send && work->out_offset_bytes == a_call.count);
    CHECK(gyre_recent_find(&recent, &again)->proto == GYRE_PROTO_LL128);
}

static bool share_a_place(const struct gyre_call *a, const struct gyre_call *b)
{
    const struct gyre_work work = {.in = NULL};
    gyre_recent_forget(&recent);
    gyre_recent_keep(&recent, a, &work, GYRE_PROTO_LL);
    gyre_recent_keep(&recent, b, &work, GYRE_PROTO_LL);
    return gyre_recent_find(&recent, a) == NULL;
}

/* Calls that share a place with the first, so that only the field tells them apart. Calls that
 * differ in their collective alone never do. */
static void another_call_finds_nothing(void)
{
    enum { SEND, RECV, COUNT, ROOT, DTYPE, OP, IS_SEND, SCALAR, TERMS, N_FIELDS };
    for (int field = 0; field < N_FIELDS; field++) {
        struct gyre_call other = a_call;
        int step = 0;
        do {
            step++;
            other.send = field == SEND ? (const char *)a_call.send + 16 * step : a_call.send;
            other.recv = field == RECV ? (char *)a_call.recv + 16 * step : a_call.recv;
            other.count = field == COUNT ? a_call.count + (uint64_t)step : a_call.count;
            other.root = field == ROOT ? a_call.root + step : a_call.root;
            other.dtype = field == DTYPE ? GYRE_INT32 : a_call.dtype;
            other.terms.max_channels = field == TERMS ? 2 : 0;
            other.op = field == OP ? GYRE_MAX : a_call.op;
            other.is_send = field == IS_SEND ? !a_call.is_send : a_call.is_send;
            other.scalar = field == SCALAR ? a_call.scalar + 1 : a_call.scalar;
        } while (step < 100000 && !share_a_place(&a_call, &other) &&
                 keep_and_find(&a_call, &other) == NULL);
        CHECK_MSG(step < 100000, "field %d: no call shares the place", field);
        CHECK_MSG(keep_and_find(&a_call, &other) == NULL, "field %d does not count", field);
    }
}

static void nothing_is_found_before_and_after(void)
{
    static struct gyre_recent fresh;
    const struct gyre_call none = {.count = 0};
    CHECK(gyre_recent_find(&fresh, &none) == NULL);
    CHECK(gyre_recent_find(&fresh, &a_call) == NULL);
    CHECK(keep_and_find(&none, &none) == NULL);
    CHECK(keep_and_find(&a_call, &a_call) != NULL);
    gyre_recent_forget(&recent);
    CHECK(gyre_recent_find(&recent, &a_call) == NULL);
}

/* As a training step repeats them: a few dozen buffers of one size, one after the other in memory.
 */
static void most_of_a_steps_calls_are_kept(void)
{
    const struct gyre_work work = {.in = NULL};
    int n_found = 0;
    gyre_recent_forget(&recent);
    struct gyre_call calls[32];
    for (int i = 0; i < 32; i++) {
        char *buffer = (char *)((uintptr_t)0x7f0000000000 + (uintptr_t)i * (25U << 20));
        calls[i] = a_call;
        calls[i].send = calls[i].recv = buffer;
        calls[i].count = (25U << 20) / sizeof(float);
        gyre_recent_keep(&recent, &calls[i], &work, GYRE_PROTO_SIMPLE);
    }
    for (int i = 0; i < 32; i++)
        n_found += gyre_recent_find(&recent, &calls[i]) != NULL;
    CHECK_MSG(n_found >= 16, "%d of 32 are kept", n_found);
}

static const struct test_case cases[] = {
    {"the same call finds its work on any stream", the_same_call_finds_its_work_on_any_stream},
    {"another call finds nothing", another_call_finds_nothing},
    {"nothing is found before and after", nothing_is_found_before_and_after},
    {"most of a step's calls are kept", most_of_a_steps_calls_are_kept},
};

TEST_MAIN(cases)
