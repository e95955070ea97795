/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/local.h"
#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"
#include "core/engine/plan/plan_cache.h"
#include "core/foundation/base/param.h"
#include "tests/support/ranks.h"
#include "tests/support/shapes.h"

#include <fcntl.h>

#define N_ELEMS 5000

struct text_file {
    char path[64];
    FILE *file;
};

static struct text_file open_text(void)
{
    struct text_file text = {.path = "/tmp/gyre_test_algo_file_XXXXXX"};
    const int fd = mkstemp(text.path);
    text.file = fdopen(fd, "w");
    CHECK(text.file != NULL);
    return text;
}

/* Under another name, with `from` replaced by `to` in rank 1's program. */
static void write_shape(FILE *file, const struct gyre_algorithm *algorithm,
                        const struct gyre_shape *shape, const char *name, const char *from,
                        const char *to)
{
    struct gyre_program **programs = emit_all(algorithm, shape);
    CHECK_MSG(programs != NULL, "%s", gyre_cause());
    for (int rank = 0; programs != NULL && rank < shape->n_ranks; rank++) {
        char *text = NULL;
        if (name != NULL)
            snprintf(programs[rank]->algorithm, sizeof(programs[rank]->algorithm), "%s", name);
        CHECK_OK(gyre_program_to_text(programs[rank], &text));
        char *at = from != NULL && rank == 1 ? strstr(text, from) : NULL;
        CHECK(from == NULL || rank != 1 || at != NULL);
        if (at != NULL)
            fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        else
            fputs(text, file);
        free(text);
    }
    if (programs != NULL)
        free_programs(programs, shape->n_ranks);
}

static struct gyre_shape shape_of(enum gyre_collective coll, int n_ranks, int root)
{
    return (struct gyre_shape){.coll = coll, .n_ranks = (uint16_t)n_ranks, .root = (uint16_t)root};
}

static void algorithm_of(gyre_comm *comm, enum gyre_collective coll, int root, char *name_out)
{
    static char send[N_ELEMS * 64], recv[N_ELEMS * 64];
    const struct gyre_call call = {.coll = coll,
                                   .send = send,
                                   .recv = recv,
                                   .count = N_ELEMS,
                                   .dtype = GYRE_FLOAT32,
                                   .op = GYRE_SUM,
                                   .root = root};
    struct gyre_plan_summary summary;
    CHECK_OK(gyre_plan_describe(gyre_comm_plans(comm), &call, &summary));
    CHECK_MSG(summary.predicted_us > 0, "no prediction for %s", summary.algorithm);
    snprintf(name_out, sizeof(summary.algorithm), "%s", summary.algorithm);
}

static void check_sum(gyre_comm *comm, int rank, int n_ranks)
{
    float *in = malloc(N_ELEMS * sizeof(*in)), *out = malloc(N_ELEMS * sizeof(*out));
    int n_wrong = 0;
    for (int i = 0; i < N_ELEMS; i++)
        in[i] = (float)(rank + i % 5);
    CHECK_OK(gyre_all_reduce(in, out, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    for (int i = 0; i < N_ELEMS; i++) {
        const float expected = (float)(n_ranks * (n_ranks - 1) / 2 + n_ranks * (i % 5));
        n_wrong += out[i] < expected || out[i] > expected;
    }
    CHECK_MSG(n_wrong == 0, "%d wrong", n_wrong);
    free(in);
    free(out);
}

TEST_RANK(check_use)
{
    char name[16];
    algorithm_of(comm, GYRE_COLL_ALL_REDUCE, -1, name);
    CHECK_MSG(strcmp(name, "mine") == 0, "%s", name);
    algorithm_of(comm, GYRE_COLL_BROADCAST, 2, name);
    CHECK_MSG(strcmp(name, "chained") == 0, "%s", name);
    algorithm_of(comm, GYRE_COLL_BROADCAST, 1, name); /* the file has root 2 only */
    CHECK_MSG(strcmp(name, "chained") != 0, "%s", name);
    algorithm_of(comm, GYRE_COLL_ALL_GATHER, -1, name); /* the file has it for 3 ranks */
    CHECK_MSG(strcmp(name, "theirs") != 0, "%s", name);
    check_sum(comm, rank, n_ranks);
}

TEST_CASE("programs of a file carry out the calls that they fit")
{
    struct text_file text = open_text();
    struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 4, 0);
    write_shape(text.file, &gyre_algorithm_tree, &shape, "mine", NULL, NULL);
    shape = shape_of(GYRE_COLL_BROADCAST, 4, 2);
    write_shape(text.file, &gyre_algorithm_ring, &shape, "chained", NULL, NULL);
    shape = shape_of(GYRE_COLL_ALL_GATHER, 3, 0);
    write_shape(text.file, &gyre_algorithm_ring, &shape, "theirs", NULL, NULL);
    fclose(text.file);
    setenv("GYRE_ALGO_FILE", text.path, 1);
    test_on_threads(4, check_use, NULL);
    unlink(text.path);
}

static void check_own_order(gyre_comm *comm, int rank, int n_ranks, void *context)
{
    char name[32];
    (void)context;
    algorithm_of(comm, GYRE_COLL_ALL_REDUCE, -1, name);
    CHECK_MSG(strcmp(name, "own") == 0, "%s", name);
    check_sum(comm, rank, n_ranks);
}

static void init_is_refused(const char *path, const char *words)
{
    gyre_comm *comms[2];
    gyre_config config = test_host_config();
    setenv("GYRE_ALGO_FILE", path, 1);
    CHECK(gyre_comm_init_all(comms, 2, NULL, &config) != GYRE_SUCCESS);
    CHECK_HAS(gyre_last_error(), words);
    CHECK_HAS(gyre_last_error(), "GYRE_ALGO_FILE");
    unsetenv("GYRE_ALGO_FILE");
}

TEST_CASE("init refuses programs that are wrong, with what is wrong")
{
    const struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 2, 0);
    /* found by the verifier; by the parser; by counting the programs */
    struct text_file text = open_text();
    write_shape(text.file, &gyre_algorithm_ring, &shape, NULL, " final", "");
    fclose(text.file);
    init_is_refused(text.path, "rank 1, worker 0, step 1, tile 0: holds all contributions, but is "
                               "not final");
    unlink(text.path);
    text = open_text();
    write_shape(text.file, &gyre_algorithm_ring, &shape, NULL, "chunk", "chunks");
    fclose(text.file);
    init_is_refused(text.path, ": line 9: expected chunks, found \"chunkss\""); /* rank 1 */
    unlink(text.path);
    text = open_text();
    fputs("program lonely all_reduce\nranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\nworker 0\n"
          "  chunk 0: in 0 -> out 0\nend\n",
          text.file);
    fclose(text.file);
    init_is_refused(text.path, "the programs of 1 ranks; it needs those of all 2");
    unlink(text.path);
    init_is_refused("/nonexistent/programs", "/nonexistent/programs");
}

TEST_CASE("other orders run only if they are allowed")
{
    struct text_file text = open_text();
    for (int rank = 0; rank < 2; rank++)
        fprintf(text.file,
                "program own all_reduce\nranks 2 rank %d root 0 chunks 1 lanes 1 depth 1\n"
                "worker 0\nchunk 0: in 0 -> to %d\nchunk 0: in 0 + from %d -> out 0 final\nend\n",
                rank, 1 - rank, 1 - rank);
    fclose(text.file);
    init_is_refused(text.path, "first difference: 0 | 1\n  add the sum of the lower ranks first");
    setenv("GYRE_ALGO_FILE", text.path, 1);
    setenv("GYRE_ANY_ORDER", "1", 1);
    test_on_threads(2, check_own_order, NULL);
    unsetenv("GYRE_ANY_ORDER");
    unsetenv("GYRE_ALGO_FILE");
    unlink(text.path);
}

static void init_with_file(const gyre_unique_id *id, int rank, int n_ranks, void *argument)
{
    const struct text_file *of_rank = argument;
    const gyre_config config = test_host_config();
    gyre_comm *comm;
    setenv("GYRE_ALGO_FILE", of_rank[rank].path, 1);
    CHECK(gyre_comm_init_rank(&comm, n_ranks, id, rank, &config) != GYRE_SUCCESS);
    CHECK_HAS(gyre_last_error(), "the programs in GYRE_ALGO_FILE differ");
}

TEST_CASE("ranks with different programs are told")
{
    struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 2, 0);
    struct text_file of_rank[2];
    for (int rank = 0; rank < 2; rank++) {
        of_rank[rank] = open_text();
        write_shape(of_rank[rank].file, rank == 0 ? &gyre_algorithm_ring : &gyre_algorithm_tree,
                    &shape, "same_name", NULL, NULL);
        fclose(of_rank[rank].file);
    }
    test_on_inits(2, init_with_file, of_rank);
    for (int rank = 0; rank < 2; rank++)
        unlink(of_rank[rank].path);
}

static struct gyre_algo_limits limits_of(gyre_device_kind kind, uint32_t n_ranks)
{
    return (struct gyre_algo_limits){
        .n_ranks = n_ranks,
        .device_kind = kind,
        .spec = gyre_tuner_fifo_spec(kind, n_ranks, false, 0, UINT32_MAX),
        .max_blocks = UINT32_MAX,
    };
}

static gyre_status read_shape(const struct gyre_algorithm *algorithm,
                              const struct gyre_shape *shape, const struct gyre_algo_limits *limits,
                              const char *from, const char *to)
{
    struct gyre_file_shape *shapes = NULL;
    struct gyre_algo_file file = {0};
    struct text_file text = open_text();
    struct gyre_program **programs = emit_all(algorithm, shape);
    for (int rank = 0; programs != NULL && rank < shape->n_ranks; rank++) {
        char *one = NULL;
        CHECK_OK(gyre_program_to_text(programs[rank], &one));
        char *at = strstr(one, from);
        CHECK(at != NULL);
        fprintf(text.file, "%.*s%s%s", (int)(at - one), one, to, at + strlen(from));
        free(one);
    }
    free_programs(programs, shape->n_ranks);
    fclose(text.file);
    CHECK_OK(gyre_algo_file_load(text.path, "GYRE_ALGO_FILE", &file));
    const gyre_status status = gyre_file_shapes_open(&file, limits, &shapes);
    gyre_file_shapes_close(shapes);
    gyre_algo_file_free(&file);
    unlink(text.path);
    return status;
}

TEST_CASE("what a communicator cannot give is refused, with what would help")
{
    const struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 4, 0);
    struct gyre_algo_limits host = limits_of(GYRE_DEVICE_HOST, 4);
    struct gyre_algo_limits gpu = limits_of(GYRE_DEVICE_CUDA, 4);
    CHECK_OK(read_shape(&gyre_algorithm_ring, &shape, &host, "depth 2", "depth 4"));
    CHECK_FAILS(read_shape(&gyre_algorithm_ring, &shape, &host, "depth 2", "depth 5"),
                GYRE_ERROR_UNSUPPORTED, "4 slots, which no variable changes");
    CHECK_OK(read_shape(&gyre_algorithm_ring, &shape, &host, "lanes 1", "lanes 4"));
    CHECK_FAILS(read_shape(&gyre_algorithm_ring, &shape, &host, "lanes 1", "lanes 5"),
                GYRE_ERROR_UNSUPPORTED, "no variable gives the host device more");
    CHECK_OK(read_shape(&gyre_algorithm_ring, &shape, &gpu, "lanes 1", "lanes 8"));
    gpu.spec.n_fifos = 2;
    CHECK_FAILS(read_shape(&gyre_algorithm_ring, &shape, &gpu, "lanes 1", "lanes 3"),
                GYRE_ERROR_UNSUPPORTED, "GYRE_MAX_NCHANNELS");
    CHECK_OK(read_shape(&gyre_algorithm_tree, &shape, &gpu, "tree", "tree"));
    gpu.max_blocks = 1;
    CHECK_FAILS(read_shape(&gyre_algorithm_tree, &shape, &gpu, "tree", "tree"),
                GYRE_ERROR_UNSUPPORTED, "set GYRE_SMS");
    CHECK_BAD_ARGUMENT(read_shape(&gyre_algorithm_ring, &shape, &host, "depth 2", "depth 1"),
                       "depth 1 is enough, but they need 2");
}

static void compare_choices(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                            struct gyre_tuner_facts facts)
{
    struct gyre_program **programs = emit_all(algorithm, shape);
    struct gyre_given_programs given = {.n_variants = 1,
                                        .programs = {(const struct gyre_program *const *)programs}};
    struct gyre_algorithm copy;
    struct gyre_filter filter;
    char words[64];
    snprintf(words, sizeof(words), "%s:%s", gyre_collectives[shape->coll].name, algorithm->name);
    CHECK_OK(gyre_algorithm_give(&given, NULL, &copy));
    CHECK(given.like == algorithm);
    CHECK(given.ability.ranges == (programs[0]->max_range > 1));
    for (uint64_t n_bytes = 16; n_bytes <= 1 << 28; n_bytes *= 16) {
        struct gyre_choice expected, choice;
        CHECK_OK(gyre_filter_parse(words, "", "", &filter));
        CHECK_OK(gyre_tuner_choose(&facts, &filter, shape->coll, n_bytes, &expected));
        CHECK_OK(gyre_filter_parse("", "", "", &filter));
        CHECK_OK(gyre_tuner_choose_given(&facts, &filter, &copy, n_bytes, &choice));
        CHECK(choice.algorithm == &copy);
        CHECK_MSG(choice.proto == expected.proto && choice.n_channels == expected.n_channels &&
                      choice.tile_bytes == expected.tile_bytes && choice.path == expected.path,
                  "%s, %llu bytes", words, (unsigned long long)n_bytes);
    }
    free_programs(programs, shape->n_ranks);
}

TEST_CASE("given programs are chosen as the algorithm that emits them")
{
    const gyre_device_kind kinds[] = {GYRE_DEVICE_HOST, GYRE_DEVICE_CUDA};
    for (int kind = 0; kind < 2; kind++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (int a = 0; gyre_algorithms[a] != NULL; a++) {
                const struct gyre_shape shape = shape_of((enum gyre_collective)coll, 4, 0);
                struct gyre_tuner_facts facts = {.device_kind = kinds[kind],
                                                 .n_ranks = 4,
                                                 .n_hosts = 1,
                                                 .is_ll128_safe = kind == 1,
                                                 .has_lamport = gyre_collectives[coll].reduces,
                                                 .min_channels = 1};
                facts.spec = gyre_tuner_fifo_spec(kinds[kind], 4, false, 0, UINT32_MAX);
                facts.max_channels = facts.spec.n_fifos;
                /* On one host two levels emit what twoshot does. */
                if (coll != GYRE_COLL_SEND_RECV && suits_hosts(gyre_algorithms[a], coll, 1) &&
                    gyre_algorithms[a] != &gyre_algorithm_spread)
                    compare_choices(gyre_algorithms[a], &shape, facts);
            }
}

TEST_CASE("programs of no built-in algorithm have the traits of their steps")
{
    const struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 4, 0);
    struct gyre_program **programs = emit_all(&gyre_algorithm_ring, &shape);
    struct gyre_given_programs given = {.n_variants = 1,
                                        .programs = {(const struct gyre_program *const *)programs}};
    struct gyre_algorithm copy;
    for (int rank = 0; rank < 4; rank++)
        programs[rank]->min_depth = 3; /* which no algorithm emits */
    CHECK_OK(gyre_algorithm_give(&given, NULL, &copy));
    const struct gyre_ability *can = &given.ability;
    CHECK(given.like == NULL && can->reach == GYRE_REACH_RING && can->flow == GYRE_FLOW_RELAY &&
          !can->places);
    programs[2]->connections[0].peer = 1; /* no longer a ring */
    programs[2]->connections[0].is_send = 1;
    CHECK_OK(gyre_algorithm_give(&given, NULL, &copy));
    CHECK(can->reach == GYRE_REACH_ALL && !can->ranges);
    programs[3]->max_range = 2;
    CHECK_BAD_ARGUMENT(gyre_algorithm_give(&given, NULL, &copy), "range 2");
    for (int rank = 0; rank < 3; rank++)
        programs[rank]->max_range = 2;
    CHECK_OK(gyre_algorithm_give(&given, NULL, &copy));
    CHECK(can->ranges);
    programs[2]->rank = 3;
    CHECK_BAD_ARGUMENT(gyre_algorithm_give(&given, NULL, &copy),
                       "expected the program of rank 2, found that of rank 3");
    free_programs(programs, 4);
}

static void emit_wrong(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_ref own = gyre_in(0), keep = gyre_out(0), peer = gyre_peer(1 - rank, 0);
    const struct gyre_ref both[] = {own, peer};
    (void)shape;
    gyre_builder_step(builder, 0, &own, 1, &peer, 1, 0);
    gyre_builder_step(builder, 0, rank == 0 ? both : &peer, rank == 0 ? 2 : 1, &keep, 1,
                      rank == 0 ? GYRE_STEP_FINAL : 0);
}

static int one_chunk(const struct gyre_shape *shape)
{
    (void)shape;
    return 1;
}

static bool can_do_wrong(const struct gyre_shape *shape, struct gyre_ability *can_out,
                         const char **why_not)
{
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    *why_not = "it is for two ranks";
    return shape->n_ranks == 2;
}

TEST_CASE("a proof refuses what is wrong, and bounds its cost")
{
    const struct gyre_algorithm wrong = {.name = "wrong",
                                         .collectives = 1U << GYRE_COLL_ALL_REDUCE,
                                         .can_do = can_do_wrong,
                                         .emit = emit_wrong,
                                         .n_chunks = one_chunk};
    const struct gyre_shape shape = shape_of(GYRE_COLL_ALL_REDUCE, 2, 0);
    CHECK_BAD_ARGUMENT(gyre_proof_of_shape(&wrong, &shape, false),
                       "wrong all_reduce of 2 ranks: the verifier refuses it out of place: rank 1");
    CHECK_OK(gyre_proof_of_shape(&gyre_algorithm_ring, &shape, false));
    /* a ring has 2n - 1 steps and one worker */
    CHECK(gyre_proof_obstacle(256, 511, 1) == NULL);
    CHECK(gyre_proof_obstacle(406, 811, 1) == NULL);
    CHECK(gyre_proof_obstacle(407, 813, 1) != NULL);
    CHECK(gyre_proof_obstacle(512, 1023, 1) != NULL);
    CHECK(gyre_proof_obstacle(16384, UINT32_MAX, 16) != NULL);
}

TEST_RANK(check_call)
{
    check_sum(comm, rank, n_ranks);
}

TEST_CASE("with GYRE_CHECK=programs every program is proved before its first use")
{
    struct text_file log = open_text();
    char text[4096] = "";
    fclose(log.file);
    test_set("GYRE_CHECK=calls,programs", "GYRE_DEBUG=INFO", "GYRE_DEBUG_SUBSYS=TUNING", NULL);
    setenv("GYRE_DEBUG_FILE", log.path, 1);
    setenv("GYRE_ALGO", "all_reduce:tree", 1);
    test_on_threads(2, check_call, NULL);
    const int fd = open(log.path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    CHECK_HAS(text, "tree all_reduce of 2 ranks is proved");
    close(fd);
    unlink(log.path);
}

/* The root of this gather has two workers, the other rank one. The number of channels follows from
 * that of workers, which are thread blocks on a GPU, and must be the same on both. */
TEST_CASE("ranks with different numbers of workers find the same number")
{
    static const char *const texts[2] = {
        "program apart gather\nranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\n"
        "worker 0\nchunk 1: from 1 -> out 1\nworker 1\nchunk 0: in 0 -> out 0\nend\n",
        "program apart gather\nranks 2 rank 1 root 0 chunks 1 lanes 1 depth 1\n"
        "worker 0\nchunk 1: in 0 -> to 0\nend\n"};
    struct gyre_program *own[2];
    struct gyre_algorithm algorithm;
    struct gyre_programs programs = {0};
    const struct gyre_shape shape = shape_of(GYRE_COLL_GATHER, 2, 0);
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_program_from_lines(texts[rank], 1, &own[rank]));
    const struct gyre_program *const by_rank[2] = {own[0], own[1]};
    struct gyre_given_programs given = {.n_variants = 1, .programs = {by_rank}};
    CHECK_OK(gyre_algorithm_give(&given, NULL, &algorithm));
    for (int rank = 0; rank < 2; rank++) {
        const struct gyre_variants *variants;
        CHECK_OK(gyre_programs_find(&programs, &algorithm, &shape, rank, &variants));
        CHECK_MSG(variants->most_workers == 2, "rank %d: %u", rank, variants->most_workers);
    }
    gyre_programs_close(&programs);
    for (int rank = 0; rank < 2; rank++)
        gyre_program_free(own[rank]);
}
