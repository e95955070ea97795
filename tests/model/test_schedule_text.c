/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/check.h"
#include "tests/support/interpret.h"
#include "tests/support/shapes.h"

static const char sample[] = "# ring all-reduce of three ranks\n"
                             "program ring all_reduce\n"
                             "ranks 3 rank 1 root 0 chunks 3 lanes 1 depth 2\n"
                             "\n"
                             "worker 0\n"
                             "  chunk 0: in 0 -> to 2        # own input\n"
                             "  chunk 2: from 0 + in 2 -> to 2\n"
                             "  chunk 1: from 0+in 1->out 1, to 2 final\n"
                             "  chunk 0: from 0/0 -> out 0, to 2\n"
                             "  chunk 2: from 0 -> out 2\n"
                             "end\n";

static void round_trip(const struct gyre_program *p)
{
    char *text = NULL, *again = NULL;
    struct gyre_program *read = NULL;
    CHECK_OK(gyre_program_to_text(p, &text));
    if (text == NULL)
        return;
    CHECK_OK(gyre_program_from_lines(text, 1, &read));
    if (read != NULL) {
        CHECK(gyre_program_hash(read) == gyre_program_hash(p));
        CHECK(strcmp(read->algorithm, p->algorithm) == 0);
        CHECK_OK(gyre_program_to_text(read, &again));
        CHECK(again != NULL && strcmp(again, text) == 0);
    }
    gyre_program_free(read);
    free(text);
    free(again);
}

TEST_CASE("every program reads back as itself")
{
    static const int n_ranks_of[] = {1, 2, 3, 4, 5, 7, 8, 9, 10, 17, 33, 64};
    struct gyre_grouping storage;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++)
            for (size_t i = 0; i < sizeof(n_ranks_of) / sizeof(n_ranks_of[0]); i++) {
                const int n = n_ranks_of[i];
                if (!gyre_algorithm_has(gyre_algorithms[a], (enum gyre_collective)c) ||
                    (c == GYRE_COLL_SEND_RECV && n > 2))
                    continue;
                const struct gyre_shape shape = {
                    .coll = (enum gyre_collective)c,
                    .n_ranks = (uint16_t)n,
                    .root = (uint16_t)(n / 2),
                    .grouping = make_grouping((int)i % N_GROUPINGS, (unsigned)n, &storage),
                    .is_placed = i % 2 == 0};
                struct gyre_program **programs = emit_all(gyre_algorithms[a], &shape);
                CHECK_MSG(programs != NULL, "%s", gyre_cause());
                if (programs == NULL)
                    return;
                for (int rank = 0; rank < n; rank++)
                    round_trip(programs[rank]);
                free_programs(programs, n);
            }
}

TEST_CASE("comments, blanks and tight spacing are read")
{
    struct gyre_program *p = NULL, *emitted = NULL;
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 3};
    CHECK_OK(gyre_program_from_lines(sample, 1, &p));
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 1, &emitted));
    CHECK(p != NULL && emitted != NULL && gyre_program_hash(p) == gyre_program_hash(emitted));
    gyre_program_free(p);
    gyre_program_free(emitted);
}

TEST_CASE("ranges are printed by their first and last chunk")
{
    static const char expected[] = "ranks 4 rank 3 root 0 chunks 1 lanes 1 depth 1 range 2\n";
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_TO_ALL, .n_ranks = 4};
    struct gyre_program *p = NULL;
    char *text = NULL;
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_bruck, &shape, 3, &p));
    if (p == NULL)
        return;
    CHECK_OK(gyre_program_to_text(p, &text));
    CHECK(text != NULL && strstr(text, expected) != NULL);
    CHECK(text != NULL && strstr(text, "  chunks 0-2 by 2: out 0 -> to 2\n") != NULL);
    CHECK(text != NULL && strstr(text, "  chunks 1-2: from 1 -> out 1\n") != NULL);
    free(text);
    gyre_program_free(p);
}

#define RANGES                                                                        \
    "program x all_to_all\nranks 16 rank 1 root 0 chunks 1 lanes 1 depth 2 range 9\n" \
    "worker 0\n"

TEST_CASE("ranges are read with gaps and round the end")
{
    static const struct {
        const char *line;
        struct gyre_step expected;
    } steps[] = {
        {"chunks 2-5: out 2 -> to 2", {.chunk = 2, .n_chunks = 4}},
        {"chunks 15-1: out 15 -> to 2", {.chunk = 15, .n_chunks = 3}},
        {"chunks 1 - 7", {.n_chunks = 0}},
        {"chunks 9-9: out 9 -> to 2", {.chunk = 9, .n_chunks = 1}},
        {"chunks 1-15 by 2: out 1 -> to 2", {.chunk = 1, .n_chunks = 8, .run = 1, .stride = 2}},
        {"chunks 12-5 by 8/4: out 12 -> to 2", {.chunk = 12, .n_chunks = 6, .run = 4, .stride = 8}},
        {"chunks 2-12 by 5: out 2 -> to 2", {.chunk = 2, .n_chunks = 3, .run = 1, .stride = 5}},
        {"chunks 10-7 by 6/3: out 10 -> to 2", {.chunk = 10, .n_chunks = 8, .run = 3, .stride = 6}},
        {"chunks 0-3 by 8/4: out 0 -> to 2", {.chunk = 0, .n_chunks = 4}},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        char text[256];
        struct gyre_program *p = NULL;
        snprintf(text, sizeof(text), RANGES "%s\nend\n", steps[i].line);
        const gyre_status status = gyre_program_from_lines(text, 1, &p);
        if (steps[i].expected.n_chunks == 0) { /* blanks do not belong there */
            CHECK(status == GYRE_ERROR_INVALID_ARGUMENT);
            continue;
        }
        CHECK_OK(status);
        if (p == NULL)
            continue;
        const struct gyre_step *step = &p->steps[0];
        CHECK_MSG(step->chunk == steps[i].expected.chunk &&
                      step->n_chunks == steps[i].expected.n_chunks &&
                      step->run == steps[i].expected.run &&
                      step->stride == steps[i].expected.stride,
                  "%s: %u chunks from %u on, runs of %u, %u apart", steps[i].line, step->n_chunks,
                  step->chunk, step->run, step->stride);
        round_trip(p);
        gyre_program_free(p);
    }
}

TEST_CASE("blocks may have chunks and names")
{
    static const char text[] = "program x all_gather\n"
                               "ranks 3 rank 1 root 0 chunks 2 lanes 1 depth 1 range 2\n"
                               "names 2 0 1\n"
                               "worker 0\n"
                               "  chunks 4-5: in 0 -> out 4, to 2\n"
                               "  chunk 3: from 0 -> out 3\n"
                               "end\n";
    struct gyre_program *p = NULL;
    CHECK_OK(gyre_program_from_lines(text, 1, &p));
    if (p == NULL)
        return;
    CHECK(gyre_program_n_parts(p, GYRE_OPERAND_OUT) == 6);
    CHECK(gyre_program_n_parts(p, GYRE_OPERAND_IN) == 2);
    CHECK(gyre_program_block(p, 4) == 1 && gyre_program_block(p, 1) == 2);
    CHECK(gyre_program_chunk_of(p, 1) == 4 && gyre_program_chunk_of(p, 2) == 0);
    round_trip(p);
    const uint64_t hash = gyre_program_hash(p);
    p->names[0] = 0;
    CHECK_FAILS(gyre_program_check(p), GYRE_ERROR_INTERNAL, "no permutation of the ranks");
    p->names[1] = 2;
    CHECK_OK(gyre_program_check(p));
    CHECK(gyre_program_hash(p) != hash);
    p->steps[1].outs[0].index = 2; /* of the first block, in place of the second */
    CHECK_FAILS(gyre_program_check(p), GYRE_ERROR_INTERNAL, "in a step that moves chunk 3");
    gyre_program_free(p);
}

#define HEAD "program x all_reduce\nranks 3 rank 1 root 0 chunks 3 lanes 1 depth 2\n"

TEST_CASE("malformed text is refused with its line")
{
    static const struct {
        const char *text;
        const char *words;
    } mistakes[] = {
        {"", "line 1: the text ends"},
        {"\n\nring\n", "line 3: expected program, found \"ring\""},
        {"program\n", "line 1: expected an algorithm's name"},
        {"program a_name_of_many_letters all_reduce\n", "at most 15"},
        {"program x all_reduced\n",
         "line 1: expected a collective: all_reduce broadcast reduce all_gather reduce_scatter "
         "send_recv all_to_all gather scatter, found \"all_reduced\""},
        {"program x all_reduce more\n", "line 1: expected the end of the line"},
        {"program x all_reduce\nranks 3 root 0\n", "line 2: expected rank, found \"root\""},
        {"program x all_reduce\nranks 0 rank 0 root 0 chunks 1 lanes 1 depth 1\n", "line 2"},
        {"program x all_reduce\nranks 2 rank 2 root 0 chunks 1 lanes 1 depth 1\n", "line 2"},
        {"program x all_reduce\nranks 9999999999 rank",
         "line 2: expected a number from 0 to 16384"},
        {"program x all_reduce\nranks -1 rank", "line 2: expected a number"},
        {HEAD "chunk 0: in 0 -> out 0\nend\n", "line 3: expected \"worker 0\""},
        {HEAD "worker 1\n", "line 3: expected worker 0"},
        {HEAD "worker 0\nchunk 0 in 0 -> out 0\n", "line 4: expected :, found \"in\""},
        {HEAD "worker 0\nchunk 0: in -> out 0\n", "line 4: expected a number"},
        {HEAD "worker 0\nchunk 0: in 0 > out 0\n", "line 4: expected ->"},
        {HEAD "worker 0\nchunk 0: in 0 -> in 0\n", "line 4: expected out, scratch, to or into"},
        {HEAD "worker 0\nchunk 0: to 0 -> out 0\n",
         "line 4: expected in, out, scratch, from or placed"},
        {HEAD "worker 0\nchunk 0: in 0 -> out 0 finally\n", "found \"finally\""},
        {HEAD "worker 0\nchunk 0: in 0 -> to 2/9\n", "line 4: expected a number from 0 to 7"},
        {HEAD "worker 0\nchunk 0: in 0 -> final\n", "line 4: expected out, scratch, to or into"},
        {HEAD "worker 0\nchunk 0: in 0 ->\nend\n", "no output, and nothing placed to wait for"},
        {HEAD "worker 0\nchunk 0: placed 2 + in 0 -> out 0\nend\n", "reduces what is placed"},
        {HEAD "worker 0\nchunk 0: placed 2 -> out 0\nend\n", "where its input is placed"},
        {RANGES "chunks 2: out 2 -> to 2\n", "line 4: expected the first and the last chunk"},
        {RANGES "chunks 2-16: out 2 -> to 2\n", "line 4: expected the first and the last chunk"},
        {RANGES "chunks 2-4-6: out 2 -> to 2\n", "line 4: expected the first and the last chunk"},
        {RANGES "chunks 2-4 by 3: out 2 -> to 2\n", "chunk 4 is in none of the runs"},
        {RANGES "names 1 0\n", "expected \"chunk\""},
        {RANGES "chunks 2-5 by 2: out 2 -> to 2\n", "chunk 5 is in none of the runs"},
        {RANGES "chunks 2-8 by 4/2: out 2 -> to 2\n", "chunk 8 is in none of the runs"},
        {RANGES "chunks 0-3 by 2/4: out 0 -> to 2\n", "runs of 4 chunks cannot begin 2 after"},
        {RANGES "chunks 0-3 by 0: out 0 -> to 2\n", "cannot begin 0 after each other"},
        {RANGES "chunks 0-9: out 0 -> to 2\nend\n", "moves 10 chunks (1..9)"},
        {HEAD "worker 0\nchunks 0-1: in 0 -> out 0\nend\n", "moves 2 chunks (1..1)"},
        {HEAD "worker 0\nchunk 0: in 0 -> out 0\n", "the text ends before \"end\""},
        {HEAD "worker 0\nchunk 0: in 0 -> out 0\nend\nmore\n", "nothing after"},
        {HEAD "worker 0\nchunk 1: in 0 -> out 0\nend\n", "lines 1 to 5: "},
        {HEAD "worker 0\nchunk 0: in 0 -> to 1\nend\n", "lines 1 to 5: "},
        {HEAD "worker 0\nchunk 0: in 0 -> to 1\nend\n", "no connection with itself"},
        {HEAD "worker 0\nchunk 0: in 0 -> to 3\nend\n", "rank 3 of 3, counted from 0"},
        {HEAD
         "worker 0\nchunk 0: in 0+in 0+in 0+in 0+in 0+in 0+in 0+in 0+in 0+in 0+in 0 -> out 0\n",
         "line 4: more than 10 inputs"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct gyre_program *p = NULL;
        CHECK_BAD_ARGUMENT(gyre_program_from_lines(mistakes[i].text, 1, &p), mistakes[i].words);
        CHECK(p == NULL);
        gyre_program_free(p);
    }
}

TEST_CASE("random damage is refused or still a program")
{
    static const char letters[] = "0123456789 \n:,+/->#chunkfromtoinoutscratchworkerend\x80\xff";
    uint64_t state = 7;
    long n_read = 0, n_refused = 0;
    for (int i = 0; i < 50000; i++) {
        char text[sizeof(sample)];
        struct gyre_program *p = NULL;
        memcpy(text, sample, sizeof(sample));
        for (uint64_t n = next_random(&state) % 4 + 1; n > 0; n--)
            text[next_random(&state) % (sizeof(sample) - 1)] =
                letters[next_random(&state) % (sizeof(letters) - 1)];
        if (next_random(&state) % 8 == 0)
            text[next_random(&state) % sizeof(sample)] = '\0';
        if (gyre_program_from_lines(text, 1, &p) == GYRE_SUCCESS) {
            CHECK_OK(gyre_program_check(p));
            n_read++;
        } else {
            CHECK(strstr(gyre_cause(), "line ") != NULL || strstr(gyre_cause(), "lines ") != NULL);
            n_refused++;
        }
        gyre_program_free(p);
    }
    printf("damaged texts: %ld refused, %ld still programs\n", n_refused, n_read);
    CHECK(n_refused > 0 && n_read > 0);
}

TEST_CASE("rounds show all ranks of a ring")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};
    struct gyre_program **programs = emit_all(&gyre_algorithm_ring, &shape);
    char *text = NULL;
    CHECK(programs != NULL);
    if (programs == NULL)
        return;
    CHECK_OK(gyre_rounds_to_text((const struct gyre_program *const *)programs, 4, &text));
    CHECK(text != NULL && strstr(text, "    6  c1:3>out ") != NULL);
    CHECK(text != NULL && strstr(text, "    7  ") == NULL); /* 2(n-1) hops, and the first sending */
    free(text);
    text = NULL;
    /* Later ranks wait for rank 0. */
    programs[0]->workers[0].n_steps = 0;
    CHECK_OK(gyre_rounds_to_text((const struct gyre_program *const *)programs, 4, &text));
    CHECK(text != NULL && strstr(text, "no further step can run") != NULL);
    free(text);
    free_programs(programs, 4);
}

static gyre_status note_round(void *last_round, const struct gyre_round_steps *steps)
{
    *(uint32_t *)last_round = steps->round;
    return GYRE_SUCCESS;
}

TEST_CASE("a FIFO of one slot takes a round to fill and one to empty")
{
    static const char *const texts[] = {
        "program two all_reduce\nranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\nworker 0\n"
        "chunk 0: in 0 -> to 1\nchunk 0: in 0 -> to 1\nend\n",
        "program two all_reduce\nranks 2 rank 1 root 0 chunks 1 lanes 1 depth 1\nworker 0\n"
        "chunk 0: from 0 -> out 0\nchunk 0: from 0 -> out 0\nend\n"};
    struct gyre_program *programs[2] = {NULL, NULL};
    uint32_t last_round = 0;
    bool is_stuck = true;
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_program_from_lines(texts[rank], 1, &programs[rank]));
    CHECK_OK(gyre_rounds_walk((const struct gyre_program *const *)programs, 2, note_round,
                              &last_round, &is_stuck));
    CHECK_MSG(!is_stuck && last_round + 1 == 2 * 2, "%u rounds", last_round + 1);
    for (int rank = 0; rank < 2; rank++)
        gyre_program_free(programs[rank]);
}
