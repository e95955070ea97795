/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/model/program_file.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

static char text[1 << 16];

static void add_text(const char *more)
{
    strncat(text, more, sizeof(text) - strlen(text) - 1);
}

static int add_shape(const struct gyre_algorithm *algorithm, enum gyre_collective coll, int n_ranks)
{
    const struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)n_ranks};
    struct gyre_program **programs = emit_all(algorithm, &shape);
    CHECK_MSG(programs != NULL, "%s", gyre_cause());
    for (int rank = 0; programs != NULL && rank < n_ranks; rank++) {
        char *one = NULL;
        CHECK_OK(gyre_program_to_text(programs[rank], &one));
        add_text(one);
        free(one);
    }
    if (programs != NULL)
        free_programs(programs, n_ranks);
    return n_ranks;
}

TEST_CASE("programs of several shapes are read as one set each")
{
    struct gyre_program_file file = {0};
    text[0] = '\0';
    add_text("# a comment first\n");
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3);
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3); /* the same once more */
    add_shape(&gyre_algorithm_tree, GYRE_COLL_BROADCAST, 2);
    add_shape(&gyre_algorithm_ring, GYRE_COLL_BROADCAST, 2);
    add_text("# and one last\n\n");
    CHECK_OK(gyre_program_file_parse(text, "some.gyre", &file));
    CHECK(file.n_programs == 10 && file.n_sets == 4);
    static const int firsts[] = {0, 3, 6, 8}, counts[] = {3, 3, 2, 2};
    for (int set = 0; set < file.n_sets && set < 4; set++) {
        CHECK(file.sets[set].first == firsts[set]);
        CHECK(file.sets[set].n_programs == counts[set]);
        for (int rank = 0; rank < counts[set]; rank++)
            CHECK(gyre_program_file_set(&file, set)[rank]->rank == rank);
    }
    gyre_program_file_free(&file);
    CHECK(file.n_programs == 0);
}

static uint64_t hash_of_text(void)
{
    struct gyre_program_file file = {0};
    CHECK_OK(gyre_program_file_parse(text, "some.gyre", &file));
    const uint64_t hash = file.hash;
    gyre_program_file_free(&file);
    return hash;
}

TEST_CASE("the hash is that of the programs and not of their text")
{
    text[0] = '\0';
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3);
    const uint64_t plain = hash_of_text();
    text[0] = '\0';
    add_text("\n# a comment\n");
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3);
    CHECK(hash_of_text() == plain);
    text[0] = '\0';
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3);
    char *depth = strstr(text, "depth 2");
    CHECK(depth != NULL);
    if (depth != NULL)
        depth[6] = '3';
    CHECK(hash_of_text() != plain);
}

TEST_CASE("what is wrong is named with the file and the line")
{
    struct gyre_program_file file = {0};
    char empty[] = "  \n# nothing\n";
    CHECK_BAD_ARGUMENT(gyre_program_file_parse(empty, "no.gyre", &file),
                       "no.gyre holds no program");
    text[0] = '\0';
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 2); /* 16 lines */
    int n_lines = 0;
    for (const char *at = text; *at != '\0'; at++)
        n_lines += *at == '\n';
    add_text("\nprogram ring all_reduce\nranks 2 nonsense\nend\n");
    char expected[96];
    snprintf(expected, sizeof(expected), "bad.gyre: line %d: expected rank", n_lines + 3);
    CHECK_BAD_ARGUMENT(gyre_program_file_parse(text, "bad.gyre", &file), expected);
    CHECK(file.n_programs == 0);

    /* All lines of a program that is wrong as a whole are named. The parser changed the text, so it
     * is printed again. */
    text[0] = '\0';
    add_shape(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 2);
    add_text("# mine\nprogram x all_reduce\nranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\n"
             "worker 0\nchunk 0: in 0 -> to 0\nend\n");
    snprintf(expected, sizeof(expected), "bad.gyre: lines %d to %d: ", n_lines + 2, n_lines + 6);
    CHECK_BAD_ARGUMENT(gyre_program_file_parse(text, "bad.gyre", &file), expected);
}
