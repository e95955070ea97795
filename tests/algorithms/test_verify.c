/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/verify.h"
#include "tests/support/check.h"
#include "tests/support/halves.h"
#include "tests/support/shapes.h"

static const int many_ranks[] = {48, 64, 96, 128, 256};

static long n_proved;

struct summary {
    uint32_t max_depth;
    bool elidable;
    long n_programs;
};

static int max_ranks(void)
{
    return getenv("TEST_FEW") != NULL ? 64 : 256;
}

static void prove(struct gyre_program **programs, int n_ranks, bool in_place, const char *hosts,
                  struct summary *summary)
{
    const struct gyre_verify_options options = {.in_place = in_place};
    struct gyre_verify_report report;
    const struct gyre_program *p = programs[0];
    const gyre_status status =
        gyre_verify((const struct gyre_program *const *)programs, n_ranks, &options, &report);
    CHECK_MSG(status == GYRE_SUCCESS && report.reason[0] == '\0',
              "%s %s, %d ranks, root %u, %s%s: %s", p->algorithm, gyre_collectives[p->coll].name,
              n_ranks, p->root, hosts, in_place ? ", in place" : "", report.reason);
    /* Exactly what is needed: depth costs memory. One or two ranks may need less than the shape's
     * family. */
    CHECK(p->min_depth >= report.min_depth);
    if (report.min_depth > summary->max_depth)
        summary->max_depth = report.min_depth;
    if (n_ranks > 1)
        summary->elidable &= report.credits_elidable;
    summary->n_programs += n_ranks;
    n_proved += n_ranks;
}

static bool any_placed(struct gyre_program **programs, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++)
        if (programs[rank]->is_placed)
            return true;
    return false;
}

/* If its programs differ from one host's. False: nothing could be placed although the shape asks
 * for it, so they are proved already. */
static bool prove_variant(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                          const char *name, uint64_t *hash_of_one_host, struct summary *summary)
{
    struct gyre_program **programs = emit_all(algorithm, shape);
    CHECK_MSG(programs != NULL, "%s", gyre_cause());
    if (programs == NULL)
        return false;
    const int n_ranks = shape->n_ranks;
    uint64_t hash = 0;
    for (int rank = 0; rank < n_ranks; rank++)
        hash = hash * 31 + gyre_program_hash(programs[rank]);
    const bool is_new = !shape->is_placed || any_placed(programs, shape->n_ranks);
    if (shape->grouping == NULL)
        *hash_of_one_host = hash;
    if (is_new && (shape->grouping == NULL || hash != *hash_of_one_host)) {
        prove(programs, shape->n_ranks, false, name, summary);
        prove(programs, shape->n_ranks, true, name, summary);
    }
    free_programs(programs, shape->n_ranks);
    return is_new;
}

static void prove_groupings(const struct gyre_algorithm *algorithm, struct gyre_shape shape,
                            struct summary *summary)
{
    struct gyre_grouping storage;
    uint64_t hash_of_one_host = 0;
    for (int g = 0; g < N_GROUPINGS; g++) {
        shape.grouping = make_grouping(g, shape.n_ranks, &storage);
        const int n_variants = gyre_algorithm_variants(algorithm, &shape);
        for (int v = 0; v < n_variants; v++) {
            char name[48];
            if (shape.n_ranks > 12 && v > 0 && v < n_variants - 1)
                continue; /* only in the positions of ranks */
            snprintf(name, sizeof(name), "%s, variant %d", grouping_names[g], v);
            shape.variant = (uint16_t)v;
            if (!prove_variant(algorithm, &shape, name, &hash_of_one_host, summary))
                return;
        }
        shape.variant = 0;
    }
}

static void prove_ranks(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                        int n_ranks, struct summary *summary)
{
    struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)n_ranks};
    const int few[] = {0, n_ranks / 2, n_ranks - 1};
    const int n_roots = !gyre_collectives[coll].has_root ? 1 : n_ranks <= 9 ? n_ranks : 3;
    for (int i = 0; i < n_roots; i++) {
        shape.root = (uint16_t)(n_ranks <= 9 ? i : few[i]);
        shape.is_placed = false;
        prove_groupings(algorithm, shape, summary);
        shape.is_placed = true;
        prove_groupings(algorithm, shape, summary);
    }
}

/* The sizes of hosts, ended by 0. */
static const int host_sizes[][9] = {{2, 2, 0},       {7, 8, 0},
                                    {1, 8, 0},       {3, 5, 2, 0},
                                    {4, 4, 4, 4, 0}, {2, 2, 2, 2, 2, 2, 2, 0},
                                    {6, 1, 3, 0},    {8, 8, 8, 8, 8, 8, 8, 8, 0},
                                    {16, 16, 0},     {8, 7, 8, 6, 0}};

/* @is_mixed: a host's ranks are not neighbours. */
static void make_hosts(const int *sizes, bool is_mixed, struct gyre_shape *shape,
                       struct gyre_grouping *storage)
{
    int left[8], n_hosts = 0, n_ranks = 0, rank = 0;
    for (; sizes[n_hosts] > 0; n_hosts++) {
        left[n_hosts] = sizes[n_hosts];
        n_ranks += sizes[n_hosts];
    }
    for (int host = 0; rank < n_ranks; host = (host + 1) % n_hosts) {
        const int n = is_mixed && left[host] > 1 ? 1 : left[host];
        for (int i = 0; i < n; i++, rank++, left[host]--)
            storage->host_of[rank] = (uint16_t)host;
    }
    storage->n_hosts = (uint16_t)n_hosts;
    storage->n_nics = 0;
    storage->weak_part = 0;
    shape->n_ranks = (uint16_t)n_ranks;
    shape->grouping = storage;
}

TEST_CASE("two levels are right on even and uneven hosts")
{
    struct gyre_grouping storage;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
            struct gyre_shape shape = {.coll = (enum gyre_collective)c};
            struct summary summary = {.elidable = true};
            uint64_t no_hash = 0;
            if (!ability_of(gyre_algorithms[a], c, 4).two_level)
                continue;
            for (size_t i = 0; i < 2 * sizeof(host_sizes) / sizeof(host_sizes[0]); i++) {
                make_hosts(host_sizes[i / 2], i % 2 != 0, &shape, &storage);
                if (shape.n_ranks > max_ranks())
                    continue;
                const int n_variants = gyre_algorithm_variants(gyre_algorithms[a], &shape);
                shape.root = gyre_collectives[c].has_root ? (uint16_t)(shape.n_ranks / 2) : 0;
                for (int v = 0; v < n_variants; v++) {
                    shape.variant = (uint16_t)v;
                    prove_variant(gyre_algorithms[a], &shape, "hosts", &no_hash, &summary);
                }
            }
            printf("%-15s %-15s depth %u  %ld programs\n", gyre_algorithms[a]->name,
                   gyre_collectives[c].name, summary.max_depth, summary.n_programs);
        }
}

static void count_slots(const struct gyre_program *program, int *n_sent_out, int *n_received_out)
{
    *n_sent_out = *n_received_out = 0;
    for (uint32_t i = 0; i < program->n_steps; i++) {
        for (unsigned k = 0; k < program->steps[i].n_outs; k++)
            *n_sent_out += program->steps[i].outs[k].kind == GYRE_OPERAND_CONNECTION;
        for (unsigned k = 0; k < program->steps[i].n_ins; k++)
            *n_received_out += program->steps[i].ins[k].kind == GYRE_OPERAND_CONNECTION;
    }
}

TEST_CASE("whichever host is weak, it moves each chunk once, and the others move alike")
{
    struct gyre_grouping grouping = {.weak_part = 0.5};
    for (int n = 3; n <= (max_ranks() > 64 ? 32 : 12); n++) {
        const struct gyre_shape shape = {
            .coll = GYRE_COLL_ALL_REDUCE, .n_ranks = (uint16_t)n, .grouping = &grouping};
        struct summary summary = {.elidable = true};
        grouping.n_hosts = (uint16_t)n;
        for (int rank = 0; rank < n; rank++)
            grouping.host_of[rank] = (uint16_t)rank;
        for (int weak = 0; weak < n; weak++) {
            uint64_t no_hash = 0;
            grouping.weak_host = (uint16_t)weak;
            prove_variant(&gyre_algorithm_leaf, &shape, "a weak host", &no_hash, &summary);
            for (int rank = 0; rank < n; rank++) {
                struct gyre_program *program = NULL;
                int n_sent, n_received;
                CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_leaf, &shape, rank, &program));
                count_slots(program, &n_sent, &n_received);
                const int expected = rank == weak ? n - 1 : 2 * (n - 1) - 1;
                CHECK_MSG(n_sent == expected && n_received == expected &&
                              program->n_chunks == n - 1,
                          "%d ranks, weak %d: rank %d sends %d and receives %d of %d", n, weak,
                          rank, n_sent, n_received, program->n_chunks);
                gyre_program_free(program);
            }
        }
        CHECK(summary.max_depth <= 2 && summary.n_programs > 0);
    }
}

/* Trees of blocks along the rails, and the hosts' order, differ from those of few hosts. */
TEST_CASE("blocks find their way between many hosts")
{
    const enum gyre_collective colls[] = {GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_ALL_GATHER};
    struct gyre_grouping storage = {.n_hosts = 0};
    for (int n_hosts = 9; n_hosts <= (max_ranks() > 64 ? 129 : 40);
         n_hosts += n_hosts < 34 ? 1 : 19)
        for (int c = 0; c < 2; c++) {
            struct gyre_shape shape = {.coll = colls[c], .grouping = &storage};
            struct summary summary = {.elidable = true};
            uint64_t no_hash = 0;
            storage.n_hosts = (uint16_t)n_hosts;
            shape.n_ranks = (uint16_t)(n_hosts + n_hosts / 3); /* every third host has two ranks */
            for (int rank = 0; rank < shape.n_ranks; rank++)
                storage.host_of[rank] = (uint16_t)(rank < n_hosts ? rank : (rank - n_hosts) * 3);
            prove_variant(&gyre_algorithm_two_level_tree, &shape, "many hosts", &no_hash, &summary);
            CHECK(summary.max_depth <= 4); /* slots of a FIFO in a communicator */
        }
}

/* Workers share a rail's blocks from 256 hosts on. Pairs inside a host, whose lanes then depend on
 * a block's distance, need two rails. */
TEST_CASE("many workers share the blocks of a rail")
{
    const enum gyre_collective colls[] = {GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_ALL_GATHER};
    struct gyre_grouping storage = {.n_hosts = 256};
    if (max_ranks() <= 64) {
        printf("not with TEST_FEW=1\n");
        return;
    }
    for (int is_even = 0; is_even < 2; is_even++)
        for (int c = 0; c < 2; c++) {
            struct gyre_shape shape = {.coll = colls[c], .grouping = &storage};
            struct summary summary = {.elidable = true};
            uint64_t no_hash = 0;
            storage.n_hosts = is_even ? 256 : 259;
            shape.n_ranks = is_even ? 512 : 269; /* else ten hosts have two ranks */
            for (int rank = 0; rank < shape.n_ranks; rank++)
                storage.host_of[rank] =
                    (uint16_t)(rank < storage.n_hosts ? rank : rank - storage.n_hosts);
            prove_variant(&gyre_algorithm_two_level_tree, &shape, "workers", &no_hash, &summary);
            CHECK(summary.max_depth <= 4); /* slots of a FIFO in a communicator */
        }
}

/* A GPU runs all workers as thread blocks at the same time: 132 of an H100 or H200. A pair has at
 * most 64 FIFOs, a channel one for each lane. */
TEST_CASE("the workers of two levels fit a GPU")
{
    const unsigned hosts[] = {2, 3, 4, 5, 64, 255, 256, 257, 2048};
    static struct gyre_grouping storage;
    for (size_t h = 0; h < 2 * sizeof(hosts) / sizeof(hosts[0]); h++)
        for (int a = 0; gyre_algorithms[a] != NULL; a++)
            for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
                const unsigned n_hosts = hosts[h / 2], is_uneven = h % 2;
                const struct gyre_shape shape = {.coll = (enum gyre_collective)c,
                                                 .n_ranks = (uint16_t)(8 * n_hosts - is_uneven),
                                                 .grouping = &storage};
                struct gyre_program *program = NULL;
                if (!ability_of(gyre_algorithms[a], c, 4).two_level)
                    continue;
                storage.n_hosts = (uint16_t)n_hosts;
                for (unsigned rank = 0; rank < shape.n_ranks; rank++)
                    storage.host_of[rank] = (uint16_t)(rank / 8);
                for (int rank = 0; rank < 8; rank++) { /* of the first host, which has 8 ranks */
                    CHECK_OK(gyre_algorithm_emit(gyre_algorithms[a], &shape, rank, &program));
                    if (program == NULL)
                        return;
                    CHECK_MSG(program->n_workers * (64 / program->n_lanes) <= 132,
                              "%s %s on %u hosts: %u workers, %u lanes", program->algorithm,
                              gyre_collectives[c].name, n_hosts, program->n_workers,
                              program->n_lanes);
                    gyre_program_free(program);
                    program = NULL;
                }
            }
}

static void prove_algorithm(const struct gyre_algorithm *algorithm)
{
    for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
        const enum gyre_collective coll = (enum gyre_collective)c;
        struct summary summary = {.elidable = true};
        if (!gyre_algorithm_has(algorithm, coll))
            continue;
        const int most = coll == GYRE_COLL_SEND_RECV ? 2 : max_ranks();
        for (int n = 1; n <= 33 && n <= most; n++)
            prove_ranks(algorithm, coll, n, &summary);
        for (size_t i = 0; i < sizeof(many_ranks) / sizeof(many_ranks[0]); i++)
            if (many_ranks[i] <= most)
                prove_ranks(algorithm, coll, many_ranks[i], &summary);
        printf("%-15s %-15s depth %u  credits %s  %ld programs\n", algorithm->name,
               gyre_collectives[coll].name, summary.max_depth,
               summary.elidable ? "elidable" : "needed", summary.n_programs);
        fflush(stdout);
    }
}

TEST_CASE("every algorithm is proved")
{
    n_proved = 0;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        prove_algorithm(gyre_algorithms[i]);
    printf("programs proved: %ld\n", n_proved);
    CHECK(n_proved > 0);
}

#define EVERY_RANK (-1)

/* Of programs of which one rank's, or all, were spoiled. */
static gyre_status verify_with(const struct gyre_algorithm *algorithm, struct gyre_shape shape,
                               void (*spoil)(struct gyre_program *program), int victim,
                               bool in_place, struct gyre_verify_report *report)
{
    const struct gyre_verify_options options = {.in_place = in_place};
    struct gyre_program **programs = emit_all(algorithm, &shape);
    if (programs == NULL)
        return GYRE_ERROR_INTERNAL;
    for (int rank = 0; rank < shape.n_ranks; rank++)
        if (victim == rank || victim == EVERY_RANK)
            spoil(programs[rank]);
    const gyre_status status =
        gyre_verify((const struct gyre_program *const *)programs, shape.n_ranks, &options, report);
    free_programs(programs, shape.n_ranks);
    return status;
}

#define CHECK_REFUSED(algorithm, collective, n, victim, spoil, in_place, words)                 \
    do {                                                                                        \
        struct gyre_verify_report report_;                                                      \
        const struct gyre_shape shape_ = {.coll = (collective), .n_ranks = (n)};                \
        const gyre_status status_ =                                                             \
            verify_with((algorithm), shape_, (spoil), (victim), (in_place), &report_);          \
        CHECK_MSG(status_ == GYRE_ERROR_INVALID_ARGUMENT, "%s", gyre_status_name(status_));     \
        CHECK_MSG(strstr(report_.reason, (words)) != NULL, "reason is \"%s\"", report_.reason); \
    } while (0)

static void no_final(struct gyre_program *program)
{
    for (uint32_t i = 0; i < program->n_steps; i++)
        program->steps[i].flags &= (uint8_t)~GYRE_STEP_FINAL;
}

static void all_final(struct gyre_program *program)
{
    for (uint32_t i = 0; i < program->n_steps; i++)
        program->steps[i].flags |= GYRE_STEP_FINAL;
}

static void first_input_twice(struct gyre_program *program)
{
    /* Ring, rank 1: the next rank adds the first chunk once more. */
    program->steps[1].ins[1] = program->steps[0].ins[0];
    program->steps[1].chunk = program->steps[0].chunk;
}

static void reversed_order(struct gyre_program *program)
{
    struct gyre_step *step = &program->steps[program->n_steps - 1];
    const struct gyre_operand first = step->ins[0];
    step->ins[0] = step->ins[1];
    step->ins[1] = first;
}

static void receive_before_send(struct gyre_program *program)
{
    const struct gyre_step first = program->steps[0];
    program->steps[0] = program->steps[1];
    program->steps[1] = first;
}

static void claims_depth_one(struct gyre_program *program)
{
    program->min_depth = 1;
}

static void all_at_once(struct gyre_program *program)
{
    for (uint32_t i = 0; i + 1 < program->n_steps; i++)
        program->steps[i].flags |= GYRE_STEP_WITH_NEXT;
}

static void root_keeps_quiet(struct gyre_program *program)
{
    program->steps[0].n_outs--; /* direct broadcast: the last output is OUT */
}

TEST_CASE("each mistake is refused with its reason")
{
    const struct gyre_algorithm *ring = &gyre_algorithm_ring, *direct = &gyre_algorithm_direct;
    CHECK_REFUSED(ring, GYRE_COLL_ALL_REDUCE, 4, 1, no_final, false, "is not final");
    CHECK_REFUSED(ring, GYRE_COLL_ALL_REDUCE, 4, 1, all_final, false,
                  "is final, but holds the contributions of");
    CHECK_REFUSED(ring, GYRE_COLL_ALL_REDUCE, 4, 1, first_input_twice, false, "gets chunk");
    CHECK_REFUSED(direct, GYRE_COLL_ALL_REDUCE, 4, 2, reversed_order, false,
                  "reduced in another order");
    CHECK_REFUSED(direct, GYRE_COLL_ALL_REDUCE, 4, EVERY_RANK, receive_before_send, false,
                  "deadlock");
    CHECK_REFUSED(direct, GYRE_COLL_ALL_TO_ALL, 4, 2, all_at_once, true, "may");
    CHECK_REFUSED(ring, GYRE_COLL_ALL_REDUCE, 4, 0, claims_depth_one, false, "rank 1 has");
    CHECK_REFUSED(ring, GYRE_COLL_ALL_REDUCE, 4, EVERY_RANK, claims_depth_one, false,
                  "depth 1 is enough, but they need 2");
    CHECK_REFUSED(direct, GYRE_COLL_BROADCAST, 4, 0, root_keeps_quiet, false, "never written");
}

/* An all-reduce of whole vectors in pairs at distance 1, then 2. */
static struct gyre_program **pairs_of_four(bool lower_first)
{
    struct gyre_program **programs = calloc(4, sizeof(struct gyre_program *));
    for (int rank = 0; programs != NULL && rank < 4; rank++) {
        const int near = rank ^ 1, far = rank ^ 2;
        const bool near_second = !lower_first || rank < near,
                   far_second = !lower_first || rank < far;
        char text[512], two[2][32];
        snprintf(two[0], sizeof(two[0]), near_second ? "in 0 + from %d" : "from %d + in 0", near);
        snprintf(two[1], sizeof(two[1]), far_second ? "scratch 0 + from %d" : "from %d + scratch 0",
                 far);
        snprintf(text, sizeof(text),
                 "program pairs all_reduce\nranks 4 rank %d root 0 chunks 1 lanes 1 depth 1\n"
                 "worker 0\nchunk 0: in 0 -> to %d\nchunk 0: %s -> scratch 0, to %d\n"
                 "chunk 0: %s -> out 0 final\nend\n",
                 rank, near, two[0], far, two[1]);
        CHECK_OK(gyre_program_from_lines(text, 1, &programs[rank]));
    }
    return programs;
}

TEST_CASE("other orders are shown and can be allowed")
{
    struct gyre_verify_options options = {.in_place = false};
    struct gyre_verify_report report;
    for (int lower_first = 0; lower_first < 2; lower_first++) {
        struct gyre_program **programs = pairs_of_four(lower_first == 1);
        for (int any_order = 0; programs != NULL && any_order < 2; any_order++) {
            options.any_order = any_order == 1;
            const gyre_status status =
                gyre_verify((const struct gyre_program *const *)programs, 4, &options, &report);
            const bool is_right = lower_first == 1 || any_order == 1;
            CHECK_MSG((status == GYRE_SUCCESS) == is_right, "%s", report.reason);
            CHECK(!is_right || report.same_bits == (lower_first == 1));
            CHECK_MSG(is_right || strstr(report.reason, "\n  rank 0    (0+1)+(2+3)\n"
                                                        "  rank 1    (1+0)+(3+2)\n"
                                                        "  first difference: 0 | 1\n") != NULL,
                      "reason is \"%s\"", report.reason);
        }
        if (programs != NULL)
            free_programs(programs, 4);
    }
}

/* Nothing counts twice or is left out. */
TEST_CASE("any order counts every contribution once")
{
    const struct gyre_verify_options options = {.any_order = true};
    struct gyre_verify_report report;
    struct gyre_program **programs = pairs_of_four(false);
    if (programs == NULL)
        return;
    programs[2]->steps[1].n_ins = 1; /* leaves out what rank 3 has sent */
    CHECK(gyre_verify((const struct gyre_program *const *)programs, 4, &options, &report) !=
          GYRE_SUCCESS);
    programs[2]->steps[1].n_ins = 2;
    programs[2]->steps[2].ins[0] = programs[2]->steps[1].ins[0]; /* the own input again */
    CHECK(gyre_verify((const struct gyre_program *const *)programs, 4, &options, &report) !=
          GYRE_SUCCESS);
    free_programs(programs, 4);
}

TEST_CASE("a deadlock is told once and with what helps")
{
    static const char *const text[] = {
        "program hand all_gather\nranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\nworker 0\n"
        "chunk 0: in 0 -> out 0\nchunk 1: from 1 -> out 1\nchunk 0: in 0 -> to 1\nend\n",
        "program hand all_gather\nranks 2 rank 1 root 0 chunks 1 lanes 1 depth 1\nworker 0\n"
        "chunk 1: in 0 -> out 1\nchunk 0: from 0 -> out 0\nchunk 1: in 0 -> to 0\nend\n"};
    struct gyre_program *programs[2] = {NULL, NULL};
    const struct gyre_verify_options options = {.in_place = false};
    struct gyre_verify_report report;
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_program_from_lines(text[rank], 1, &programs[rank]));
    CHECK(gyre_verify((const struct gyre_program *const *)programs, 2, &options, &report) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_MSG(strstr(report.reason,
                     "rank 0, worker 0, step 1, tile 0 waits for a slot from rank 1, lane 0; rank "
                     "1, worker 0, step 1, tile 0 waits for a slot from rank 0, lane 0; so they "
                     "wait for each other; the proof succeeds if rank 0, worker 0, takes what "
                     "follows step 1 before it") != NULL,
              "reason is \"%s\"", report.reason);
    for (int rank = 0; rank < 2; rank++)
        gyre_program_free(programs[rank]);
    struct gyre_program **ring = emit_all(
        &gyre_algorithm_ring, &(struct gyre_shape){.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4});
    const struct gyre_verify_options shallow = {.depth = 1};
    if (ring == NULL)
        return;
    CHECK(gyre_verify((const struct gyre_program *const *)ring, 4, &shallow, &report) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_MSG(strstr(report.reason, "so they wait for each other; depth 2 is enough") != NULL,
              "reason is \"%s\"", report.reason);
    free_programs(ring, 4);
}

static void last_is_scratch(struct gyre_program *program)
{
    struct gyre_step *step = &program->steps[program->n_steps - 1];
    program->n_scratch = 1;
    step->outs[0] = (struct gyre_operand){GYRE_OPERAND_SCRATCH, 0, 0};
}

static void check_place(void (*spoil)(struct gyre_program *program), int victim, int rank,
                        int worker, int step, int chunk)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};
    struct gyre_verify_report report;
    CHECK(verify_with(&gyre_algorithm_ring, shape, spoil, victim, false, &report) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    const struct gyre_verify_place *place = &report.place;
    CHECK_MSG(place->rank == rank && place->worker == worker && place->step == step &&
                  place->chunk == chunk,
              "\"%s\" is at rank %d, worker %d, step %d, chunk %d", report.reason, place->rank,
              place->worker, place->step, place->chunk);
}

TEST_CASE("a finding says where it is")
{
    const struct gyre_verify_options options = {.in_place = false};
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};
    struct gyre_verify_report report;
    /* Step n - 1 is the first one with all contributions. */
    check_place(no_final, 1, 1, 0, 3, -1);
    check_place(all_final, 2, 2, 0, 0, -1);
    /* Every rank sends once, then waits for a second slot. */
    check_place(claims_depth_one, EVERY_RANK, 0, 0, 1, -1);
    /* The ring's last chunk at rank r is r + 1 (mod 4). */
    check_place(last_is_scratch, 3, 3, -1, -1, 0);
    check_place(claims_depth_one, 0, -1, -1, -1, -1);
    struct gyre_program **programs = emit_all(&gyre_algorithm_ring, &shape);
    CHECK(programs != NULL);
    if (programs == NULL)
        return;
    CHECK_OK(gyre_verify((const struct gyre_program *const *)programs, 4, &options, &report));
    CHECK(report.place.rank == -1 && report.place.worker == -1 && report.place.step == -1);
    free_programs(programs, 4);
}

#define HEAD(rank, lanes, depth)                                                                  \
    "program hand all_reduce\nranks 2 rank " rank " root 0 chunks 1 lanes " lanes " depth " depth \
    "\nworker 0\n"

/* Written by hand. */
static void check_texts(const char *text_of_0, const char *text_of_1, bool in_place,
                        const char *words)
{
    const struct gyre_verify_options options = {.in_place = in_place};
    struct gyre_verify_report report = {.reason = "not read"};
    struct gyre_program *programs[2] = {NULL, NULL};
    CHECK_OK(gyre_program_from_lines(text_of_0, 1, &programs[0]));
    CHECK_OK(gyre_program_from_lines(text_of_1, 1, &programs[1]));
    if (programs[0] != NULL && programs[1] != NULL)
        gyre_verify((const struct gyre_program *const *)programs, 2, &options, &report);
    CHECK_MSG(words[0] == '\0' ? report.reason[0] == '\0' : strstr(report.reason, words) != NULL,
              "expected \"%s\", reason is \"%s\"", words, report.reason);
    gyre_program_free(programs[0]);
    gyre_program_free(programs[1]);
}

TEST_CASE("hazards are found exactly where memory is shared")
{
    static const char answer[] =
        HEAD("1", "1", "1") "chunk 0: from 0 + in 0 -> out 0, to 0 final\nend\n";
    static const char keeps_early[] =
        HEAD("0", "1", "1") "chunk 0: in 0 -> out 0\nchunk 0: in 0 -> to 1\n"
                            "chunk 0: from 1 -> out 0\nend\n";
    static const char twice[] = HEAD("0", "1", "1") "chunk 0: in 0 -> scratch 0\n"
                                                    "chunk 0: scratch 0 + in 0 -> to 1\n"
                                                    "chunk 0: from 1 -> out 0\nend\n";
    static const char unwritten[] = HEAD("0", "1", "1") "chunk 0: in 0 -> to 1\n"
                                                        "chunk 0: scratch 0 -> out 0\n"
                                                        "chunk 0: from 1 -> scratch 0\nend\n";
    static const char two_workers[] = HEAD("0", "1", "1") "chunk 0: in 0 -> to 1\nworker 1\n"
                                                          "chunk 0: from 1 -> out 0\nend\n";
    /* The answer does not wait for the second reading of in 0. */
    static const char race[] =
        HEAD("0", "2", "1") "chunk 0: in 0 -> to 1\nchunk 0: in 0 -> to 1/1\n"
                            "worker 1\nchunk 0: from 1 -> out 0\nend\n";
    static const char race_answer[] =
        HEAD("1", "2", "1") "chunk 0: from 0 + in 0 -> out 0, to 0 final\n"
                            "chunk 0: from 0/1 -> scratch 0\nend\n";
    /* Worker 0 reads again what it wrote, and worker 1 reads it without waiting for the last write.
     * Three sends in a row need credit. */
    static const char rereads[] =
        HEAD("0", "2", "1") "chunk 0: in 0 -> out 0\nchunk 0: in 0 -> to 1\n"
                            "chunk 0: in 0 -> to 1\nchunk 0: in 0 -> to 1\n"
                            "chunk 0: from 1 -> out 0\nchunk 0: out 0 -> scratch 0\nworker 1\n"
                            "chunk 0: from 1/1 -> scratch 1\nchunk 0: out 0 -> scratch 1\nend\n";
    static const char answer_to_both[] =
        HEAD("1", "2", "1") "chunk 0: from 0 -> scratch 0\nchunk 0: from 0 -> scratch 0\n"
                            "chunk 0: from 0 + in 0 -> out 0, to 0, to 0/1 final\nend\n";
    check_texts(keeps_early, answer, false, "");
    check_texts(keeps_early, answer, true, "overwrote it in place");
    check_texts(rereads, answer_to_both, false, "while its worker");
    check_texts(twice, answer, false, "counts a contribution twice");
    check_texts(unwritten, answer, false, "before it is written in this tile");
    check_texts(two_workers, answer, true, "");
    check_texts(race, race_answer, false, "");
    check_texts(race, race_answer, true, "while its worker");
}

TEST_CASE("placed data must not meet what is still needed")
{
    static const char places[] =
        HEAD("0", "1", "1") "chunk 0: in 0 -> into 1\nchunk 0: from 1 -> out 0\nend\n";
    static const char sends[] =
        HEAD("0", "1", "1") "chunk 0: in 0 -> to 1\nchunk 0: from 1 -> out 0\nend\n";
    static const char adds[] = HEAD("1", "1", "1") "chunk 0: placed 0 ->\n"
                                                   "chunk 0: out 0 + in 0 -> out 0, to 0 final\n"
                                                   "end\n";
    /* Rank 0 may still read out 0 when it is placed. */
    static const char rereads[] =
        HEAD("0", "2", "1") "chunk 0: in 0 -> to 1\nchunk 0: placed 1 ->\nworker 1\n"
                            "chunk 0: in 0 -> to 1/1\nend\n";
    static const char answers[] =
        HEAD("1", "2", "1") "chunk 0: from 0 + in 0 -> out 0, into 0 final\n"
                            "chunk 0: from 0/1 -> scratch 0\nend\n";
    check_texts(places, adds, false, "");
    check_texts(places, adds, true, "overwrote it in place");
    check_texts(sends, adds, false, "sends what this step expects in place");
    check_texts(rereads, answers, false, "");
    check_texts(rereads, answers, true, "of rank 0 while its worker 1");
}

#define RANGE_HEAD(rank)                                                                       \
    "program hand all_to_all\nranks 2 rank " rank " root 0 chunks 1 lanes 1 depth 1 range 2\n" \
    "worker 0\n"

/* Both blocks are sent, where one would be enough. */
TEST_CASE("pieces of a range are proved each")
{
    static const char both[] = RANGE_HEAD("0") "chunks 0-1: in 0 -> to 1\n"
                                               "chunks 0-1: from 1 -> scratch 0\n"
                                               "chunk 0: in 0 -> out 0\n"
                                               "chunk 1: scratch 0 -> out 1\nend\n";
    static const char answer[] = RANGE_HEAD("1") "chunks 0-1: in 0 -> to 0\n"
                                                 "chunks 0-1: from 0 -> scratch 0\n"
                                                 "chunk 1: in 1 -> out 1\n"
                                                 "chunk 0: scratch 1 -> out 0\nend\n";
    static const char wrong_piece[] = RANGE_HEAD("0") "chunks 0-1: in 0 -> to 1\n"
                                                      "chunks 0-1: from 1 -> scratch 0\n"
                                                      "chunk 0: in 0 -> out 0\n"
                                                      "chunk 1: scratch 1 -> out 1\nend\n";
    static const char one_of_two[] = RANGE_HEAD("0") "chunks 0-1: in 0 -> to 1\n"
                                                     "chunk 0: from 1 -> scratch 0\n"
                                                     "chunk 0: in 0 -> out 0\n"
                                                     "chunk 1: scratch 0 -> out 1\nend\n";
    /* Block 1 is written before its other piece is read. */
    static const char turns[] = RANGE_HEAD("0") "chunks 0-1: in 1 -> out 0\n"
                                                "chunk 0: in 0 -> to 1\n"
                                                "chunk 1: from 1 -> out 1\nend\n";
    static const char other[] = RANGE_HEAD("1") "chunk 0: in 0 -> to 0\n"
                                                "chunk 1: in 1 -> out 1\n"
                                                "chunk 0: from 0 -> out 0\nend\n";
    check_texts(both, answer, false, "");
    check_texts(both, answer, true, "");
    check_texts(wrong_piece, answer, false, "out 1 holds in 1");
    check_texts(one_of_two, answer, false, "gets 2 chunks from rank 1, expects 1");
    check_texts(turns, other, true, "while rank 0 in its step 0 may write it");
}

#define VECTOR_HEAD(rank)                                                                      \
    "program hand all_reduce\nranks 2 rank " rank " root 0 chunks 4 lanes 1 depth 1 range 2\n" \
    "worker 0\n"

/* Chunks of a vector differ in length, so both ends name the same ones. */
TEST_CASE("both ends move the same chunks of a vector")
{
    static const char zero[] =
        VECTOR_HEAD("0") "chunks 0-2 by 2: in 0 -> to 1\n"
                         "chunks 0-2 by 2: in 0 + from 1 -> out 0 final\n"
                         "chunks 1-3 by 2: in 1 -> to 1\n"
                         "chunks 1-3 by 2: in 1 + from 1 -> out 1 final\nend\n";
    static const char one[] =
        VECTOR_HEAD("1") "chunks 0-2 by 2: in 0 -> to 0\n"
                         "chunks 0-2 by 2: from 0 + in 0 -> out 0 final\n"
                         "chunks 1-3 by 2: in 1 -> to 0\n"
                         "chunks 1-3 by 2: from 0 + in 1 -> out 1 final\nend\n";
    static const char other_gaps[] =
        VECTOR_HEAD("1") "chunks 0-2 by 2: in 0 -> to 0\n"
                         "chunks 0-1: from 0 + in 0 -> out 0 final\n"
                         "chunks 1-3 by 2: in 1 -> to 0\n"
                         "chunks 2-3: from 0 + in 2 -> out 2 final\nend\n";
    static const char other_order[] =
        VECTOR_HEAD("1") "chunks 0-2 by 2: in 0 -> to 0\n"
                         "chunks 2-0 by 2: from 0 + in 2 -> out 2 final\n"
                         "chunks 1-3 by 2: in 1 -> to 0\n"
                         "chunks 1-3 by 2: from 0 + in 1 -> out 1 final\nend\n";
    check_texts(zero, one, false, "");
    check_texts(zero, one, true, "");
    check_texts(zero, other_gaps, false, "gets chunk 0 of tile 0 from rank 0");
    check_texts(zero, other_order, false, "gets chunk 0 of tile 0 from rank 0");
}

static void wrong_name(struct gyre_program *program)
{
    const uint16_t first = program->names[0];
    program->names[0] = program->names[1];
    program->names[1] = first;
}

static void whole_range(struct gyre_program *program)
{
    program->steps[0].n_chunks = 1; /* the first half only */
}

TEST_CASE("blocks of several chunks and names are proved")
{
    for (int n = 1; n <= 9; n++)
        for (int c = 0; c < 2; c++) {
            const struct gyre_shape shape = {.coll = c == 0 ? GYRE_COLL_ALL_GATHER
                                                            : GYRE_COLL_ALL_TO_ALL,
                                             .n_ranks = (uint16_t)n};
            struct summary summary = {.elidable = true};
            uint64_t no_hash = 0;
            prove_variant(&halves, &shape, "one host", &no_hash, &summary);
        }
    CHECK_REFUSED(&halves, GYRE_COLL_ALL_GATHER, 4, 2, wrong_name, false,
                  "count the blocks in different orders");
    CHECK_REFUSED(&halves, GYRE_COLL_ALL_GATHER, 4, EVERY_RANK, wrong_name, false,
                  "does not hold the input of rank");
    CHECK_REFUSED(&halves, GYRE_COLL_ALL_TO_ALL, 4, 1, whole_range, false, "was never written");
}
