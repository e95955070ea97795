/* SPDX-License-Identifier: Apache-2.0
 *
 * How the sends and receives of a group become launches. A launch begins when the one before it on
 * its rank has ended, and ends when every message of it has its other end in a launch that has
 * begun.
 */
#include "core/foundation/base/util.h"
#include "core/engine/call/batch.h"
#include "tests/support/check.h"

enum { MAX_RANKS = 4, MAX_CALLS = 8, MAX_LAUNCHES = 16, MANY_RANKS = 150 };

/* Both ends of a message name the same protocol. */
struct move {
    int rank;
    bool is_send;
    int peer;
    enum gyre_proto proto;
    int group; /* those of a rank with one number are a group */
};

struct launch {
    struct gyre_call *calls;
    int n_calls;
};

struct rank {
    struct launch launches[MAX_LAUNCHES];
    int n_launches;
    int n_ended;
};

static enum gyre_proto proto_of(const struct gyre_call *call)
{
    return (enum gyre_proto)call->count; /* a message's size decides its protocol */
}

static struct gyre_call call_of(int peer, bool is_send, enum gyre_proto proto)
{
    return (struct gyre_call){
        .coll = GYRE_COLL_SEND_RECV, .root = peer, .is_send = is_send, .count = proto};
}

static void add_launch(struct rank *own, struct gyre_item *const *items, int n_calls)
{
    struct launch *launch = &own->launches[own->n_launches++];
    CHECK(own->n_launches <= MAX_LAUNCHES && n_calls > 0);
    launch->calls = malloc((size_t)n_calls * sizeof(*launch->calls));
    launch->n_calls = n_calls;
    for (int i = 0; i < n_calls; i++)
        launch->calls[i] = items[i]->call;
}

static void free_ranks(struct rank *ranks, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++)
        for (int l = 0; l < ranks[rank].n_launches; l++)
            free(ranks[rank].launches[l].calls);
}

static void launch_group(struct rank *own, const struct gyre_order_place *place,
                         const struct gyre_call *group, int n_run)
{
    static const struct gyre_plan plans[GYRE_N_PROTOS] = {
        [GYRE_PROTO_SIMPLE] = {.choice = {.proto = GYRE_PROTO_SIMPLE}},
        [GYRE_PROTO_LL] = {.choice = {.proto = GYRE_PROTO_LL}},
        [GYRE_PROTO_LL128] = {.choice = {.proto = GYRE_PROTO_LL128}},
    };
    struct gyre_item *items = calloc((size_t)n_run + 1, sizeof(*items));
    struct gyre_item **run = malloc(((size_t)n_run + 1) * sizeof(*run));
    uint32_t *latest = calloc((size_t)place->n_ranks * 2, sizeof(*latest));
    for (int i = 0; i < n_run; i++) {
        items[i] = (struct gyre_item){.call = group[i], .plan = &plans[proto_of(&group[i])]};
        run[i] = &items[i];
    }
    gyre_order_messages(place, latest, run, n_run);
    for (int i = 0, end; i < n_run; i = end) {
        for (end = i + 1; end < n_run && run[end]->launch == run[i]->launch;)
            end++;
        CHECK(end == n_run || run[end]->launch == run[i]->launch + 1);
        add_launch(own, &run[i], end - i);
    }
    for (int i = 0; i < place->n_ranks * 2; i++)
        CHECK(latest[i] == 0);
    free(latest);
    free(run);
    free(items);
}

static void launch_all(const struct move *moves, size_t n_moves, int n_ranks, struct rank *ranks)
{
    memset(ranks, 0, (size_t)n_ranks * sizeof(*ranks));
    for (int rank = 0; rank < n_ranks; rank++)
        for (int group = 0; group < MAX_CALLS; group++) {
            const struct gyre_order_place place = {rank, n_ranks, 132, false};
            struct gyre_call calls[MAX_CALLS];
            int n_calls = 0;
            for (size_t i = 0; i < n_moves; i++)
                if (moves[i].rank == rank && moves[i].group == group)
                    calls[n_calls++] = call_of(moves[i].peer, moves[i].is_send, moves[i].proto);
            launch_group(&ranks[rank], &place, calls, n_calls);
        }
}

static int count_messages(const struct rank *own, int last_launch, int peer, bool is_send)
{
    int n = 0;
    for (int l = 0; l <= last_launch && l < own->n_launches; l++)
        for (int i = 0; i < own->launches[l].n_calls; i++)
            n += own->launches[l].calls[i].root == peer &&
                 own->launches[l].calls[i].is_send == is_send;
    return n;
}

static bool can_end(const struct rank *ranks, int rank)
{
    const struct rank *own = &ranks[rank];
    const struct launch *launch = &own->launches[own->n_ended];
    for (int i = 0; i < launch->n_calls; i++) {
        const struct gyre_call *call = &launch->calls[i];
        if (call->root != rank &&
            count_messages(&ranks[call->root], ranks[call->root].n_ended, rank, !call->is_send) <
                count_messages(own, own->n_ended, call->root, call->is_send))
            return false;
    }
    return true;
}

static bool all_end(struct rank *ranks, int n_ranks)
{
    bool goes_on = true;
    while (goes_on) {
        bool have_ended = true;
        goes_on = false;
        for (int rank = 0; rank < n_ranks; rank++) {
            if (ranks[rank].n_ended == ranks[rank].n_launches)
                continue;
            have_ended = false;
            if (!can_end(ranks, rank))
                continue;
            ranks[rank].n_ended++;
            goes_on = true;
        }
        if (have_ended)
            return true;
    }
    return false;
}

static bool completes(const struct move *moves, size_t n_moves, int n_ranks)
{
    struct rank ranks[MAX_RANKS];
    launch_all(moves, n_moves, n_ranks, ranks);
    const bool is_complete = all_end(ranks, n_ranks);
    free_ranks(ranks, n_ranks);
    return is_complete;
}

#define COMPLETES(moves, n_ranks) CHECK(completes(moves, GYRE_ARRAY_LENGTH(moves), n_ranks))

#define LL                        GYRE_PROTO_LL
#define LL128                     GYRE_PROTO_LL128
#define SIMPLE                    GYRE_PROTO_SIMPLE

TEST_CASE("short and long messages of a group do not wait for each other")
{
    static const enum gyre_proto protos[] = {LL, LL128, SIMPLE};
    for (int first = 0; first < 3; first++)
        for (int second = 0; second < 3; second++) {
            const enum gyre_proto a = protos[first], b = protos[second];
            const struct move answers[] = {
                {0, true, 1, a, 0}, {0, false, 1, b, 0}, {1, false, 0, a, 0}, {1, true, 0, b, 1}};
            const struct move asks[] = {
                {0, true, 1, a, 0}, {0, false, 1, b, 0}, {1, true, 0, b, 0}, {1, false, 0, a, 1}};
            /* Rank 2 and then rank 0 pass on what rank 0 sent. */
            const struct move round[] = {{0, true, 1, a, 0},   {0, false, 2, b, 0},
                                         {1, false, 0, a, 0},  {1, true, 2, LL, 1},
                                         {2, false, 1, LL, 0}, {2, true, 0, b, 1}};
            COMPLETES(answers, 2);
            COMPLETES(asks, 2);
            COMPLETES(round, 3);
        }
}

TEST_CASE("a receive that nobody sends to hangs")
{
    const struct move moves[] = {{0, true, 1, LL, 0}, {0, false, 1, LL, 0}, {1, false, 0, LL, 0}};
    CHECK(!completes(moves, GYRE_ARRAY_LENGTH(moves), 2));
}

TEST_CASE("messages of a pair keep their order")
{
    const struct move moves[] = {{0, true, 1, SIMPLE, 0},  {0, true, 1, LL, 0},
                                 {0, true, 2, LL, 0},      {0, true, 1, LL128, 0},
                                 {1, false, 0, SIMPLE, 0}, {1, false, 0, LL, 0},
                                 {1, false, 0, LL128, 1},  {2, false, 0, LL, 0}};
    struct rank ranks[MAX_RANKS];
    launch_all(moves, GYRE_ARRAY_LENGTH(moves), 3, ranks);
    CHECK(ranks[0].n_launches == 3 && ranks[0].launches[0].n_calls == 2);
    CHECK(proto_of(&ranks[0].launches[0].calls[0]) == SIMPLE);
    CHECK(proto_of(&ranks[0].launches[1].calls[0]) == LL);
    CHECK(proto_of(&ranks[0].launches[2].calls[0]) == LL128);
    CHECK(all_end(ranks, 3));
    free_ranks(ranks, 3);
}

TEST_CASE("sends come before receives")
{
    const struct move moves[] = {
        {0, false, 1, LL, 0}, {0, false, 2, LL, 0}, {0, true, 1, LL, 0}, {0, true, 2, LL, 0}};
    struct rank ranks[MAX_RANKS];
    launch_all(moves, GYRE_ARRAY_LENGTH(moves), 3, ranks);
    CHECK(ranks[0].n_launches == 1 && ranks[0].launches[0].n_calls == 4);
    for (int i = 0; i < 4; i++)
        CHECK(ranks[0].launches[0].calls[i].is_send == (i < 2));
    free_ranks(ranks, 3);
}

static int count_launches(enum gyre_proto to_other, enum gyre_proto to_itself, int n_ranks)
{
    const struct move moves[] = {
        {0, true, 0, to_itself, 0}, {0, true, 1, to_other, 0}, {0, false, 1, to_other, 0}};
    struct rank ranks[MAX_RANKS];
    launch_all(moves, GYRE_ARRAY_LENGTH(moves), n_ranks, ranks);
    const struct launch *last = &ranks[0].launches[ranks[0].n_launches - 1];
    const int n_launches = ranks[0].n_launches;
    CHECK(n_launches == 1 || (last->n_calls == 1 && last->calls[0].root == 0));
    free_ranks(ranks, n_ranks);
    return n_launches;
}

TEST_CASE("a copy to the own rank joins calls that are no faster without it")
{
    CHECK(count_launches(SIMPLE, SIMPLE, 2) == 1);
    CHECK(count_launches(LL, LL, 2) == 2);
    CHECK(count_launches(LL128, LL128, 2) == 2);
    CHECK(count_launches(LL, LL, 3) == 1);
    CHECK(count_launches(LL, SIMPLE, 2) == 2);
    CHECK(count_launches(SIMPLE, LL, 3) == 2);
    const struct move alone[] = {{0, true, 0, LL, 0}};
    struct rank ranks[MAX_RANKS];
    launch_all(alone, 1, 2, ranks);
    CHECK(ranks[0].n_launches == 1 && ranks[0].launches[0].n_calls == 1);
    free_ranks(ranks, 2);
}

static void all_to_all(int n_ranks, uint32_t most_calls, int expected_launches)
{
    struct rank *ranks = calloc((size_t)n_ranks, sizeof(*ranks));
    struct gyre_call *group = malloc((size_t)n_ranks * 2 * sizeof(*group));
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct gyre_order_place place = {rank, n_ranks, most_calls, false};
        int n_calls = 0;
        for (int peer = 0; peer < n_ranks; peer++) {
            group[n_calls++] = call_of(peer, true, SIMPLE);
            if (peer != rank)
                group[n_calls++] = call_of(peer, false, SIMPLE);
        }
        launch_group(&ranks[rank], &place, group, n_calls);
        CHECK_MSG(ranks[rank].n_launches == expected_launches, "%d launches of %d ranks",
                  ranks[rank].n_launches, n_ranks);
        for (int l = 0; l < ranks[rank].n_launches; l++)
            CHECK_MSG(most_calls == 0 || ranks[rank].launches[l].n_calls <= (int)most_calls,
                      "%d calls", ranks[rank].launches[l].n_calls);
    }
    CHECK_MSG(all_end(ranks, n_ranks), "%d ranks, %u calls at most", n_ranks, most_calls);
    free_ranks(ranks, n_ranks);
    free(group);
    free(ranks);
}

TEST_CASE("more calls than a GPU takes are several launches")
{
    all_to_all(MANY_RANKS, 0, 1);
    all_to_all(66, 132, 1);
    all_to_all(67, 132, 2);
    all_to_all(MANY_RANKS, 132, 3);
    all_to_all(8, 3, 7);
    all_to_all(1, 1, 1);
}

/* Each message follows the one before it of its peer and direction. */
TEST_CASE("queued messages follow those of their peer")
{
    static const struct gyre_order_place place = {0, 3, 0, true};
    struct gyre_item items[] = {
        {.call = {.root = 1, .is_send = true}}, {.call = {.root = 1}},
        {.call = {.root = 1, .is_send = true}}, {.call = {.root = 2, .is_send = true}},
        {.call = {.root = 1, .is_send = true}}, {.call = {.root = 1}},
    };
    static const uint32_t follows[] = {0, 0, 1, 0, 3, 2};
    struct gyre_item *run[GYRE_ARRAY_LENGTH(items)];
    uint32_t latest[6] = {0};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(items); i++)
        run[i] = &items[i];
    gyre_order_messages(&place, latest, run, GYRE_ARRAY_LENGTH(items));
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(items); i++)
        CHECK_MSG(run[i] == &items[i] && run[i]->launch == 0 && run[i]->follows == follows[i],
                  "message %zu: launch %u, follows %u", i, run[i]->launch, run[i]->follows);
}

TEST_CASE("a copy takes the receives of a rank from itself")
{
    char buffers[3];
    struct gyre_item items[] = {
        {.call = {.root = 1, .recv = &buffers[0], .count = 5}},
        {.call = {.root = 0, .is_send = true, .count = 5}},
        {.call = {.root = 1, .is_send = true, .count = 5}},
        {.call = {.root = 1, .recv = &buffers[1], .count = 7}},
        {.call = {.root = 1, .is_send = true, .count = 7}},
    };
    struct gyre_item *run[] = {&items[0], &items[1], &items[2], &items[3], &items[4]};
    size_t n = 5;
    CHECK_OK(gyre_order_join_copies(1, run, &n));
    CHECK(n == 3 && run[0] == &items[1] && run[1] == &items[2] && run[2] == &items[4]);
    CHECK(items[2].call.recv == &buffers[0] && items[4].call.recv == &buffers[1]);
    CHECK(items[1].call.recv == NULL);
    struct gyre_item *differ[] = {&items[0], &items[4]};
    n = 2;
    CHECK_BAD_USAGE(gyre_order_join_copies(1, differ, &n), "as many");
    struct gyre_item *lone[] = {&items[2], &items[0], &items[3]};
    n = 3;
    CHECK_BAD_USAGE(gyre_order_join_copies(1, lone, &n), "without a send to itself");
}
