/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/model/schedule.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

static const struct gyre_shape four = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};

static struct gyre_builder *open_builder(const struct gyre_shape *shape, int n_chunks)
{
    struct gyre_builder *builder = NULL;
    CHECK_OK(gyre_builder_open("test", shape, 0, n_chunks, &builder));
    return builder;
}

TEST_CASE("a step is stored as it was given")
{
    struct gyre_builder *builder = open_builder(&four, 4);
    struct gyre_program *p = NULL;
    const struct gyre_ref ins[] = {gyre_peer(3, 1), gyre_in(2)};
    const struct gyre_ref outs[] = {gyre_out(2), gyre_peer(1, 0)};
    gyre_builder_lanes(builder, 2);
    gyre_builder_min_depth(builder, 2);
    gyre_builder_step(builder, 2, ins, 2, outs, 2, GYRE_STEP_FINAL);
    CHECK_OK(gyre_builder_close(builder, &p));
    if (p == NULL)
        return;
    CHECK(p->n_steps == 1 && p->n_workers == 1 && p->n_connections == 2);
    CHECK(p->n_chunks == 4 && p->n_lanes == 2 && p->min_depth == 2 && p->n_scratch == 0);
    CHECK(p->steps[0].chunk == 2 && p->steps[0].flags == GYRE_STEP_FINAL);
    CHECK(p->steps[0].ins[0].kind == GYRE_OPERAND_CONNECTION && p->steps[0].ins[0].index == 0);
    CHECK(p->steps[0].ins[1].kind == GYRE_OPERAND_IN && p->steps[0].ins[1].index == 2);
    CHECK(p->steps[0].outs[1].kind == GYRE_OPERAND_CONNECTION && p->steps[0].outs[1].index == 1);
    CHECK(p->connections[0].peer == 3 && p->connections[0].lane == 1 && !p->connections[0].is_send);
    CHECK(p->connections[1].peer == 1 && p->connections[1].lane == 0 && p->connections[1].is_send);
    gyre_program_free(p);
}

/* From IN to the next rank. NULL, with the cause, if refused. */
static struct gyre_program *range_of(const struct gyre_shape *shape, int n_chunks, int max_range,
                                     struct gyre_chunks chunks, const struct gyre_ref *out)
{
    struct gyre_builder *builder = open_builder(shape, n_chunks);
    struct gyre_program *p = NULL;
    const struct gyre_ref in = gyre_in(chunks.first), to = gyre_peer(1, 0);
    gyre_builder_max_range(builder, max_range);
    gyre_builder_range_step(builder, chunks, &in, 1, out != NULL ? out : &to, 1, 0);
    return gyre_builder_close(builder, &p) == GYRE_SUCCESS ? p : NULL;
}

TEST_CASE("a range counts its chunks round")
{
    static const struct {
        struct gyre_chunks chunks;
        uint16_t run, stride;
        uint32_t expected[6];
    } ranges[] = {
        {{2, 4, 0, 0}, 0, 0, {2, 3, 4, 5}},
        {{6, 4, 0, 0}, 0, 0, {6, 7, 0, 1}},
        {{5, 4, 1, 2}, 1, 2, {5, 7, 1, 3}},
        {{5, 4, 0, 2}, 1, 2, {5, 7, 1, 3}},
        {{1, 4, 2, 4}, 2, 4, {1, 2, 5, 6}},
        {{7, 4, 2, 3}, 2, 3, {7, 0, 2, 3}}, /* no powers of two */
        {{4, 3, 1, 3}, 1, 3, {4, 7, 2}},
        {{3, 6, 2, 4}, 0, 0, {0}},       /* the sixth is 3 + 9, after the first again */
        {{2, 3, 4, 4}, 0, 0, {2, 3, 4}}, /* runs without gaps or too short: no spacing */
        {{2, 4, 4, 8}, 0, 0, {2, 3, 4, 5}},
        {{7, 1, 2, 8}, 0, 0, {7}},
    };
    const struct gyre_shape eight = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 8};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct gyre_program *p = range_of(&eight, 8, 6, ranges[i].chunks, NULL);
        if (ranges[i].chunks.n == 6) {
            CHECK_MSG(p == NULL, "%s", gyre_cause());
            CHECK_HAS(gyre_cause(), "moves 6 chunks of 8");
            gyre_program_free(p);
            continue;
        }
        CHECK_MSG(p != NULL, "%s", gyre_cause());
        if (p == NULL)
            continue;
        CHECK(p->steps[0].run == ranges[i].run && p->steps[0].stride == ranges[i].stride &&
              p->max_range == 6);
        for (uint32_t k = 0; k < ranges[i].chunks.n; k++)
            CHECK(gyre_step_part(&p->steps[0], p->steps[0].chunk, k, 8) == ranges[i].expected[k]);
        gyre_program_free(p);
    }
}

TEST_CASE("a range that does not fit is refused")
{
    const struct gyre_shape scatter = {.coll = GYRE_COLL_REDUCE_SCATTER, .n_ranks = 4};
    const struct gyre_shape gather = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = 4};
    const struct gyre_chunks two = {.first = 0, .n = 2};
    const struct gyre_ref block = gyre_out(0), placed = gyre_placed(1, 0), area = gyre_scratch(4);
    CHECK(range_of(&four, 4, 1, two, NULL) == NULL);
    CHECK_HAS(gyre_cause(), "moves 2 chunks (1..1)");
    CHECK(range_of(&four, 4, 4, (struct gyre_chunks){.first = 1, .n = 0}, NULL) == NULL);
    CHECK_HAS(gyre_cause(), "moves 0 chunks (1..4)");
    CHECK(range_of(&scatter, 1, 4, two, &block) == NULL); /* OUT is one block */
    CHECK_HAS(gyre_cause(), "2 pieces from out 0 on, of 1");
    CHECK(range_of(&gather, 1, 4, two, NULL) == NULL); /* and here IN is */
    CHECK_HAS(gyre_cause(), "2 pieces from in 0 on, of 1");
    CHECK(range_of(&four, 4, 4, two, &placed) == NULL);
    CHECK_HAS(gyre_cause(), "places a range of 2 chunks");
    CHECK(range_of(&four, 4, 4, two, &area) == NULL);
    CHECK_HAS(gyre_cause(), "from scratch 4 on");
    CHECK(range_of(&four, 4, 4, (struct gyre_chunks){0, 4, 3, 2}, NULL) == NULL);
    CHECK_HAS(gyre_cause(), "4 chunks in runs of 3, 2 apart");
    struct gyre_program *p = range_of(&four, 4, 4, two, NULL);
    if (p == NULL)
        return;
    p->steps[0].run = 4;
    p->steps[0].stride = 2;
    CHECK_FAILS(gyre_program_check(p), GYRE_ERROR_INTERNAL, "in runs of 4, 2 apart");
    p->steps[0].run = p->steps[0].stride = 0;
    p->max_range = 0;
    CHECK_FAILS(gyre_program_check(p), GYRE_ERROR_INTERNAL, "longest range");
    gyre_program_free(p);
}

TEST_CASE("a range is not moved within one buffer")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_TO_ALL, .n_ranks = 4};
    const struct gyre_chunks two = {.first = 0, .n = 2};
    for (int shift = 0; shift < 4; shift++) {
        struct gyre_builder *builder = open_builder(&shape, 1);
        struct gyre_program *p = NULL;
        const struct gyre_ref in = gyre_out(0), out = gyre_out(shift);
        gyre_builder_max_range(builder, 2);
        gyre_builder_range_step(builder, two, &in, 1, &out, 1, 0);
        const gyre_status status = gyre_builder_close(builder, &p);
        /* Shifted by 2, the ranges are disjoint. */
        CHECK((status == GYRE_SUCCESS) == (shift == 0 || shift == 2));
        CHECK(status == GYRE_SUCCESS || strstr(gyre_cause(), "for another chunk than") != NULL);
        gyre_program_free(p);
    }
}

TEST_CASE("a worker without steps is dropped")
{
    struct gyre_builder *builder = open_builder(&four, 1);
    struct gyre_program *p = NULL;
    const struct gyre_ref in = gyre_in(0), out = gyre_out(0);
    gyre_builder_worker(builder);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
    gyre_builder_worker(builder);
    CHECK_OK(gyre_builder_close(builder, &p));
    CHECK(p != NULL && p->n_workers == 1 && p->workers[0].n_steps == 1);
    gyre_program_free(p);
}

TEST_CASE("a long reduction is a chain over groups of eight")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_REDUCE, .n_ranks = 20};
    struct gyre_builder *builder = open_builder(&shape, 1);
    struct gyre_program *p = NULL;
    struct gyre_ref ins[20];
    const struct gyre_ref out = gyre_out(0);
    for (int i = 0; i < 20; i++)
        ins[i] = i == 0 ? gyre_in(0) : gyre_peer(i, 0);
    gyre_builder_reduce(builder, 0, ins, 20, &out, 1, GYRE_STEP_FINAL);
    CHECK_OK(gyre_builder_close(builder, &p));
    if (p == NULL)
        return;
    CHECK(p->n_steps == 3 && p->n_scratch == 1);
    const int n_ins[] = {8, 9, 5};
    for (int i = 0; i < 3; i++) {
        CHECK(p->steps[i].n_ins == n_ins[i] && p->steps[i].n_outs == 1);
        CHECK((p->steps[i].flags == GYRE_STEP_FINAL) == (i == 2));
        if (i > 0)
            CHECK(p->steps[i].ins[0].kind == GYRE_OPERAND_SCRATCH);
    }
    gyre_program_free(p);
}

TEST_CASE("a scatter orders the local output after the rest")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = 20};
    for (int n = 1; n < 20; n++) {
        struct gyre_builder *builder = open_builder(&shape, 1);
        struct gyre_program *p = NULL;
        struct gyre_ref outs[20];
        int n_sends = 0;
        outs[0] = gyre_out(0);
        for (int i = 1; i <= n; i++)
            outs[i] = gyre_peer(i, 0);
        gyre_builder_scatter(builder, 0, gyre_in(0), outs, n + 1);
        CHECK_OK(gyre_builder_close(builder, &p));
        if (p == NULL)
            return;
        for (uint32_t s = 0; s < p->n_steps; s++) {
            const bool is_last = s + 1 == p->n_steps;
            const struct gyre_step *step = &p->steps[s];
            n_sends += step->n_outs - is_last;
            CHECK((step->outs[step->n_outs - 1].kind == GYRE_OPERAND_OUT) == is_last);
            if (s + 2 >= p->n_steps)
                CHECK((step->flags & GYRE_STEP_WITH_NEXT) == 0);
            else
                CHECK((step->flags & GYRE_STEP_WITH_NEXT) != 0);
        }
        CHECK(n_sends == n);
        gyre_program_free(p);
    }
}

TEST_CASE("the first error sticks until close")
{
    struct gyre_builder *builder = open_builder(&four, 1);
    struct gyre_program *p = NULL;
    const struct gyre_ref in = gyre_in(0), out = gyre_out(0), nobody = gyre_peer(4, 0);
    gyre_builder_step(builder, 0, &in, 1, &nobody, 1, 0);
    gyre_builder_step(builder, 0, &in, 0, &out, 1, 0);
    CHECK_FAILS(gyre_builder_close(builder, &p), GYRE_ERROR_INTERNAL,
                "rank 4 of 4, counted from 0");
    CHECK(p == NULL);
    builder = open_builder(&four, 1);
    for (int i = 0; i < GYRE_MAX_WORKERS + 1; i++) {
        gyre_builder_worker(builder);
        gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
    }
    CHECK_FAILS(gyre_builder_close(builder, &p), GYRE_ERROR_INTERNAL, "workers");
}

static struct gyre_program *sample(void)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 12};
    struct gyre_program *p = NULL;
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_direct, &shape, 1, &p));
    return p;
}

static int sends_of(const struct gyre_program *p, uint32_t step)
{
    return p->steps[step].outs[0].index;
}

/* X(name, what spoils the program p, words of the refusal) */
#define MISTAKES(X)                                                                              \
    X(no_ranks, p->n_ranks = 0, "number of ranks")                                               \
    X(rank, p->rank = 12, "rank")                                                                \
    X(root, p->root = 12, "root")                                                                \
    X(no_chunks, p->n_chunks = 0, "number of chunks")                                            \
    X(blocks, (p->coll = GYRE_COLL_ALL_GATHER, p->n_chunks = GYRE_MAX_RANKS), "blocks")          \
    X(lanes, p->n_lanes = 9, "number of lanes")                                                  \
    X(depth, p->min_depth = 9, "depth 9 of at most 8, range 1: minimum depth")                   \
    X(worker, p->workers[0].n_steps--, "workers hold")                                           \
    X(first_step, p->workers[0].first_step = 1, "expected at least one from 0")                  \
    X(peer, p->connections[0].peer = 12,                                                         \
      "rank 12 of 12, lane 0 of 1, counted from 0: no such rank")                                \
    X(self, p->connections[0].peer = 1, "a rank has no connection with itself")                  \
    X(lane, p->connections[0].lane = 1, "no such lane")                                          \
    X(twice, p->connections[1].peer = p->connections[0].peer, "twice")                           \
    X(direction, p->steps[0].outs[0].index = (uint16_t)(p->n_connections - 1), "used as output") \
    X(no_ins, p->steps[0].n_ins = 0, "0 inputs")                                                 \
    X(many_ins, p->steps[0].n_ins = GYRE_STEP_MAX_INS + 1, "11 inputs")                          \
    X(no_outs, p->steps[0].n_outs = 0, "no output, and nothing placed")                          \
    X(many_outs, p->steps[0].n_outs = GYRE_STEP_MAX_OUTS + 1, "10 outputs")                      \
    X(placed_in, p->steps[0].ins[0].is_placed = 1, "is placed")                                  \
    X(placed_unsaid, p->steps[0].outs[0].is_placed = 1, "the program says that nothing is")      \
    X(kind, p->steps[0].ins[0].kind = GYRE_N_OPERAND_KINDS, "unknown kind")                      \
    X(in_range, p->steps[0].ins[0].index = 1, "input: there is no in 1: there are 1,")           \
    X(connection_range, p->steps[0].outs[0].index = p->n_connections, "no connection 22: there") \
    X(scratch_range, p->n_scratch = 0, "no scratch 0: there are 0")                              \
    X(scratch_unused, p->n_scratch = 2, "no step uses scratch 1")                                \
    X(writes_in, p->steps[3].outs[0].kind = GYRE_OPERAND_IN, "writes in")                        \
    X(out_twice, p->steps[0].outs[1] = p->steps[0].outs[0], "twice")                             \
    X(overlap, p->steps[1].outs[0].index = (uint16_t)sends_of(p, 0), "at the same time")         \
    X(last_with_next, p->steps[3].flags |= GYRE_STEP_WITH_NEXT, "worker's last")                 \
    X(flags, p->steps[0].flags |= 4, "unknown flags")                                            \
    X(final, (p->coll = GYRE_COLL_BROADCAST), "does not reduce")                                 \
    X(chunk, p->steps[0].chunk = 1, "there is no chunk 1: there are 1,")                         \
    X(local_ins,                                                                                 \
      (p->steps[0].n_ins = 3, p->steps[0].ins[1] = (struct gyre_operand){1, 0, 0},               \
       p->steps[0].ins[2] = (struct gyre_operand){2, 0, 0}),                                     \
      "local inputs")                                                                            \
    X(local_outs,                                                                                \
      (p->steps[2].n_outs = 2,                                                                   \
       p->steps[2].outs[1] = (struct gyre_operand){.kind = GYRE_OPERAND_OUT}),                   \
      "2 local outputs")

#define SPOIL(name, statement, words)                \
    static void spoil_##name(struct gyre_program *p) \
    {                                                \
        statement;                                   \
    }
MISTAKES(SPOIL)

TEST_CASE("each kind of malformed program is refused")
{
    static const struct {
        void (*spoil)(struct gyre_program *p);
        const char *words;
    } mistakes[] = {
#define ROW(name, statement, words) {spoil_##name, words},
        MISTAKES(ROW)};
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct gyre_program *p = sample();
        if (p == NULL)
            return;
        CHECK_OK(gyre_program_check(p));
        mistakes[i].spoil(p);
        CHECK_FAILS(gyre_program_check(p), GYRE_ERROR_INTERNAL, mistakes[i].words);
        gyre_program_free(p);
    }
}

TEST_CASE("a connection or scratch of two workers is refused")
{
    const struct gyre_ref in = gyre_in(0), to = gyre_peer(1, 0), scratch = gyre_scratch(0);
    for (int i = 0; i < 2; i++) {
        const struct gyre_ref *out = i == 0 ? &to : &scratch;
        struct gyre_builder *builder = open_builder(&four, 1);
        struct gyre_program *p = NULL;
        gyre_builder_step(builder, 0, &in, 1, out, 1, 0);
        gyre_builder_worker(builder);
        gyre_builder_step(builder, 0, &in, 1, out, 1, 0);
        CHECK_FAILS(gyre_builder_close(builder, &p), GYRE_ERROR_INTERNAL, "belongs to worker 0");
    }
}

TEST_CASE("a step keeps to its own chunk of a vector")
{
    struct gyre_builder *builder = open_builder(&four, 4);
    struct gyre_program *p = NULL;
    const struct gyre_ref in = gyre_in(1), out = gyre_out(2);
    gyre_builder_step(builder, 2, &in, 1, &out, 1, 0);
    CHECK_FAILS(gyre_builder_close(builder, &p), GYRE_ERROR_INTERNAL, "moves chunk 2");
}

TEST_CASE("equal programs hash equal and any change shows")
{
    struct gyre_program *a = sample(), *b = NULL;
    if (a == NULL)
        return;
    CHECK_OK(gyre_program_clone(a, &b));
    if (b == NULL)
        return;
    CHECK(a->steps != b->steps && a->workers != b->workers && a->connections != b->connections);
    const uint64_t hash = gyre_program_hash(a);
    CHECK(gyre_program_hash(b) == hash);
    b->steps[1].outs[GYRE_STEP_MAX_OUTS - 1].index = 1; /* no code reads it */
    CHECK(gyre_program_hash(b) == hash);
    b->steps[3].ins[2].index ^= 1;
    CHECK(gyre_program_hash(b) != hash);
    b->steps[3].ins[2].index ^= 1;
    b->steps[2].flags ^= GYRE_STEP_FINAL;
    CHECK(gyre_program_hash(b) != hash);
    b->steps[2].flags ^= GYRE_STEP_FINAL;
    b->connections[5].peer ^= 1;
    CHECK(gyre_program_hash(b) != hash);
    b->connections[5].peer ^= 1;
    b->min_depth++;
    CHECK(gyre_program_hash(b) != hash);
    b->min_depth--;
    b->max_range++;
    CHECK(gyre_program_hash(b) != hash);
    b->max_range--;
    b->steps[0].n_chunks++;
    CHECK(gyre_program_hash(b) != hash);
    b->steps[0].n_chunks--;
    b->steps[0].run = 1;
    CHECK(gyre_program_hash(b) != hash);
    b->steps[0].run = 0;
    b->steps[0].stride = 2;
    CHECK(gyre_program_hash(b) != hash);
    CHECK(gyre_program_hash(a) == hash);
    gyre_program_free(a);
    gyre_program_free(b);
}

TEST_CASE("impossible shapes are refused")
{
    struct gyre_program *p = NULL;
    struct gyre_grouping grouping = {.n_hosts = 2, .host_of = {1, 0, 0, 0}};
    struct gyre_shape shape = four;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 4, &p), "rank 4 of 4");
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, -1, &p), "rank -1");
    shape.grouping = &grouping;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 0, &p),
                       "first appearance");
    shape.grouping = NULL;
    shape.root = 4;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 0, &p), "root 4");
    shape.root = 0;
    shape.n_ranks = 0;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 0, &p), "0 ranks");
    shape.n_ranks = 4;
    shape.coll = GYRE_COLL_ALL_TO_ALL;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 0, &p), "no all_to_all");
}

TEST_CASE("every rank count can be emitted")
{
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++)
            for (int n = 1; n <= GYRE_MAX_RANKS; n++) {
                const struct gyre_shape shape = {.coll = (enum gyre_collective)c,
                                                 .n_ranks = (uint16_t)n,
                                                 .root = (uint16_t)(n / 3)};
                struct gyre_program *p = NULL;
                if (!gyre_algorithm_has(gyre_algorithms[a], shape.coll) ||
                    (c == GYRE_COLL_SEND_RECV && n > 2) ||
                    (n > 70 && n % (n <= 4096 ? 251 : 9003) != 0 && n < GYRE_MAX_RANKS))
                    continue;
                for (int rank = 0; rank < n; rank += n / 5 + 1) {
                    CHECK_OK(gyre_algorithm_emit(gyre_algorithms[a], &shape, rank, &p));
                    gyre_program_free(p);
                    p = NULL;
                }
            }
}

static void read_ring(const struct gyre_shape *shape, int first, uint16_t *order_out)
{
    int rank = first;
    for (int i = 0; i < shape->n_ranks; i++) {
        struct gyre_program *p = NULL;
        order_out[i] = (uint16_t)rank;
        CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_ring, shape, rank, &p));
        for (unsigned c = 0; p != NULL && c < p->n_connections; c++)
            if (p->connections[c].is_send)
                rank = p->connections[c].peer;
        gyre_program_free(p);
    }
}

static void check_ring(const struct gyre_shape *shape, const uint16_t *expected)
{
    uint16_t order[64];
    read_ring(shape, expected[0], order);
    for (int i = 0; i < shape->n_ranks; i++)
        CHECK(order[i] == expected[i]);
}

TEST_CASE("halving adds the sums of lower ranks first")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_REDUCE_SCATTER, .n_ranks = 8};
    for (int rank = 0; rank < 8; rank++) {
        struct gyre_program *p = NULL;
        int n_sums = 0;
        CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_halving, &shape, rank, &p));
        for (unsigned i = 0; i < p->n_steps; i++) {
            const struct gyre_operand *ins = p->steps[i].ins;
            if (p->steps[i].n_ins < 2)
                continue;
            const bool is_lower = ins[0].kind == GYRE_OPERAND_CONNECTION;
            CHECK((p->connections[ins[is_lower ? 0 : 1].index].peer < rank) == is_lower);
            n_sums++;
        }
        CHECK(n_sums == 3); /* log2(8) */
        gyre_program_free(p);
    }
}

TEST_CASE("hosts are kept together whatever the placement")
{
    struct gyre_grouping grouping = {
        .n_hosts = 3, .n_nics = 1, .host_of = {0, 1, 2, 0, 1, 2, 0, 1}};
    struct gyre_shape shape = {.n_ranks = 8, .root = 4, .grouping = &grouping};
    static const uint16_t by_host[] = {0, 3, 6, 1, 4, 7, 2, 5};
    static const uint16_t from_root[] = {4, 7, 1, 2, 5, 0, 3, 6};
    static const uint16_t to_root[] = {6, 3, 0, 5, 2, 1, 7, 4};
    shape.coll = GYRE_COLL_ALL_GATHER;
    check_ring(&shape, by_host);
    shape.coll = GYRE_COLL_BROADCAST;
    check_ring(&shape, from_root);
    shape.coll = GYRE_COLL_REDUCE;
    check_ring(&shape, to_root);
}

TEST_CASE("variants cross at every rank")
{
    struct gyre_grouping grouping = {.n_hosts = 2, .host_of = {0, 0, 0, 0, 1, 1, 1, 1}};
    struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 8, .grouping = &grouping};
    int n_sent[8] = {0}, n_received[8] = {0};
    CHECK(gyre_algorithm_variants(&gyre_algorithm_ring, &shape) == 4);
    CHECK(gyre_algorithm_variants(&gyre_algorithm_direct, &shape) == 1);
    for (shape.variant = 0; shape.variant < 4; shape.variant++) {
        uint16_t order[8];
        read_ring(&shape, 0, order);
        for (int i = 0; i < 8; i++) {
            const unsigned from = order[i], to = order[(i + 1) % 8];
            if (from / 4 == to / 4)
                continue;
            CHECK(from % 4 == to % 4);
            n_sent[from]++;
            n_received[to]++;
        }
    }
    for (int rank = 0; rank < 8; rank++)
        CHECK(n_sent[rank] == 1 && n_received[rank] == 1);
    struct gyre_program *p = NULL;
    CHECK(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 0, &p) == GYRE_ERROR_INVALID_ARGUMENT);
    grouping.n_nics = 2;
    CHECK(gyre_algorithm_variants(&gyre_algorithm_ring, &shape) == 2);
}

/* Each letter is a step of the cut program: s sends, r receives. */
static void check_cut(const char *receives, const char *order)
{
    char text[256], found[16] = "";
    struct gyre_program *program = NULL;
    snprintf(text, sizeof(text),
             "program hand all_reduce\nranks 2 rank 0 root 0 chunks 4 lanes 1 depth 1 range 4\n"
             "worker 0\nchunks 0-3: in 0 -> to 1\n%s\nend\n",
             receives);
    CHECK_OK(gyre_program_from_lines(text, 1, &program));
    if (program == NULL)
        return;
    CHECK_OK(gyre_program_cut(program, 1));
    for (uint32_t i = 0; i < program->n_steps && i + 1 < sizeof(found); i++)
        found[i] = program->steps[i].ins[0].kind == GYRE_OPERAND_CONNECTION ? 'r' : 's';
    CHECK_MSG(strcmp(found, order) == 0, "%s: %s, expected %s", receives, found, order);
    gyre_program_free(program);
}

TEST_CASE(
    "a cut lets sends and receptions take turns unless one would overwrite what is to be sent")
{
    check_cut("chunks 0-1: from 1 -> out 0", "ssrsrs");
    check_cut("chunks 2-3: from 1 -> out 2", "ssssrr");
}
