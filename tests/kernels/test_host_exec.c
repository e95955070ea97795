/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/host_programs.h"
#include "tests/support/test_work.h"

static struct test_work byte_work(struct gyre_loaded *loaded, const void *in, void *out,
                                  uint64_t count)
{
    return (struct test_work){.loaded = loaded,
                              .in = in,
                              .out = out,
                              .split = {count, 1, 1, 64, 1},
                              .reduction = {.dtype = GYRE_UINT8, .op = GYRE_SUM},
                              .signature = 7};
}

static void check_misfit(uint64_t count, uint32_t signature)
{
    struct host_rig rig;
    unsigned char buffers[2][128] = {{0}};
    struct gyre_loaded *loaded[2];
    host_rig_open(&rig, 2, N_LANES, 2, 64);
    for (int rank = 0; rank < 2; rank++) {
        loaded[rank] = load(&rig, rank, &kinds[4], 0, 1);
        struct test_work work = byte_work(loaded[rank], buffers[rank], buffers[rank], 50);
        if (rank == 1) {
            work.split.count = count;
            work.signature = signature;
        }
        CHECK_OK(test_enqueue(rig.executors[rank], &work, 1, rig.streams[rank]));
    }
    CHECK_OK(gyre_host_stream_synchronize(rig.streams[0])); /* credit is enough for the sender */
    for (int i = 0; i < 1000; i++)
        CHECK(gyre_host_stream_query(rig.streams[1]) == GYRE_IN_PROGRESS);
    CHECK(gyre_executor_host.progress(rig.executors[1]).mismatch == 1 + 0);
    gyre_fault_raise(&rig.faults[1], GYRE_ERROR_INVALID_USAGE, "calls differ");
    CHECK_BAD_USAGE(gyre_host_stream_synchronize(rig.streams[1]), "calls differ");
    for (int rank = 0; rank < 2; rank++)
        gyre_executor_host.unload(rig.executors[rank], loaded[rank]);
    host_rig_close(&rig);
}

TEST_RUNS("a slot of another call is noticed and not used", check_misfit(50, 8))

TEST_CASE("a slot of another size is noticed and not used")
{
    check_misfit(51, 7);
    check_misfit(49, 7);
}

TEST_CASE("a fault ends everything on every stream")
{
    struct host_rig rig;
    unsigned char buffer[64] = {0};
    gyre_stream second = NULL;
    host_rig_open(&rig, 3, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&rig, 1, &kinds[4], 0, 1); /* waits for rank 0 */
    const struct test_work work = byte_work(loaded, buffer, buffer, 60);
    CHECK_OK(gyre_host_stream_create(&second));
    for (int i = 0; i < 4; i++)
        CHECK_OK(test_enqueue(rig.executors[1], &work, 1, i % 2 == 0 ? second : rig.streams[1]));
    CHECK(gyre_host_stream_query(second) == GYRE_IN_PROGRESS);
    gyre_fault_raise(&rig.faults[1], GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK_FAILS(gyre_host_stream_synchronize(rig.streams[1]), GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK_FAILS(gyre_host_stream_synchronize(second), GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK(gyre_executor_host.progress(rig.executors[1]).completed == 0);
    gyre_executor_host.unload(rig.executors[1], loaded);
    CHECK_OK(gyre_host_stream_destroy(second));
    host_rig_close(&rig);
}

TEST_CASE("a closed executor touches nothing any more")
{
    struct host_rig rig;
    unsigned char *buffer = malloc(64);
    host_rig_open(&rig, 2, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&rig, 1, &kinds[4], 0, 1);
    const struct test_work work = byte_work(loaded, buffer, buffer, 60);
    CHECK_OK(test_enqueue(rig.executors[1], &work, 1, rig.streams[1]));
    CHECK(gyre_host_stream_query(rig.streams[1]) == GYRE_IN_PROGRESS);
    gyre_executor_host.unload(rig.executors[1], loaded);
    for (int rank = 0; rank < 2; rank++)
        gyre_executor_host.close(rig.executors[rank]);
    free(buffer);
    host_rig_free_memory(&rig);
    CHECK_FAILS(gyre_host_stream_synchronize(rig.streams[1]), GYRE_ERROR_ABORTED, "rank 1 ended");
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_host_stream_destroy(rig.streams[rank]));
}

TEST_CASE("launches run in order over two streams")
{
    enum { COUNT = 50000, N_ROUNDS = 30 };
    static unsigned char buffers[3][COUNT];
    struct host_rig rig;
    gyre_stream second = NULL;
    host_rig_open(&rig, 1, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&rig, 0, &send_recv_kind, 0, 1);
    CHECK_OK(gyre_host_stream_create(&second));
    for (int round = 1; round <= N_ROUNDS; round++) {
        memset(buffers[0], round, COUNT);
        const struct test_work works[] = {byte_work(loaded, buffers[0], buffers[1], COUNT),
                                          byte_work(loaded, buffers[1], buffers[2], COUNT)};
        CHECK_OK(test_enqueue(rig.executors[0], &works[0], 1, rig.streams[0]));
        CHECK_OK(test_enqueue(rig.executors[0], &works[1], 1, second));
        CHECK_OK(gyre_host_stream_synchronize(second)); /* the first stream's helper runs it */
        CHECK(memcmp(buffers[0], buffers[2], COUNT) == 0);
    }
    CHECK_OK(gyre_host_stream_synchronize(rig.streams[0]));
    gyre_executor_host.unload(rig.executors[0], loaded);
    CHECK_OK(gyre_host_stream_destroy(second));
    host_rig_close(&rig);
}

/* Three messages each way, by one launch of rank 0 and three of rank 1. They share the pair's
 * FIFOs, so on rank 0 the first must end before the third begins. The second one is empty. One
 * after the other, both ranks would send first, and wait for ever. */
TEST_CASE("works of one launch run at the same time, or after the end of the one they follow")
{
    enum { COUNT = 5000, N_MESSAGES = 3, N_WORKS = 2 * N_MESSAGES };
    static const uint16_t orders[2][2] = {{0, 1}, {1, 0}}; /* even works: from 0 to 1; odd: back */
    static const uint64_t counts[N_MESSAGES] = {COUNT, 0, COUNT - 100};
    static unsigned char in[2][N_MESSAGES][COUNT];
    static unsigned char out[2][N_MESSAGES][COUNT];
    struct host_rig rig;
    struct gyre_loaded *loaded[2][2];
    host_rig_open(&rig, 2, N_LANES, 2, 64);
    for (int rank = 0; rank < 2; rank++) {
        struct test_work works[N_WORKS];
        for (int k = 0; k < 2; k++) {
            struct gyre_program *program = make_program(&send_recv_kind, 2, rank ^ k, 0);
            const struct gyre_load_config config = {
                .program = program, .rank_of = orders[k], .n_channels = 1};
            CHECK_OK(gyre_executor_host.load(rig.executors[rank], &config, &loaded[rank][k]));
            gyre_program_free(program);
        }
        for (int k = 0; k < N_WORKS; k++) {
            const int message = k / 2;
            memset(in[rank][message], 10 * message + rank, counts[message]);
            struct test_work *work = &works[k ^ rank];
            *work = byte_work(loaded[rank][k % 2], in[rank][message], out[rank][message],
                              counts[message]);
            work->follows = k < 2 || rank == 1 ? 0 : (uint32_t)k - 1;
        }
        const int n_together = rank == 0 ? N_WORKS : 2;
        for (int k = 0; k < N_WORKS; k += n_together)
            CHECK_OK(test_enqueue(rig.executors[rank], works + k, n_together, rig.streams[rank]));
        works[1].follows = 2;
        CHECK_FAILS(test_enqueue(rig.executors[rank], works, 2, rig.streams[rank]),
                    GYRE_ERROR_INTERNAL, "work 1 of a launch follows work 1");
    }
    CHECK(host_rig_run_in_one_thread(&rig));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(memcmp(out[rank], in[1 - rank], sizeof(out[rank])) == 0);
        CHECK(gyre_executor_host.progress(rig.executors[rank]).completed == N_WORKS);
        for (int k = 0; k < 2; k++)
            gyre_executor_host.unload(rig.executors[rank], loaded[rank][k]);
    }
    host_rig_close(&rig);
}

TEST_CASE("what cannot be loaded or launched is refused with the reason")
{
    struct host_rig rig;
    unsigned char buffer[64];
    struct gyre_loaded *loaded = NULL;
    host_rig_open(&rig, 2, 1, 2, 64);
    struct gyre_program *program = make_program(&kinds[0], 2, 0, 0);
    struct gyre_load_config config = {.program = program, .n_channels = 1, .proto = GYRE_PROTO_LL};
    struct gyre_executor *executor = rig.executors[0];
    CHECK_FAILS(gyre_executor_host.load(executor, &config, &loaded), GYRE_ERROR_UNSUPPORTED,
                "only simple");
    config.proto = GYRE_PROTO_SIMPLE;
    config.n_channels = 2;
    CHECK_BAD_USAGE(gyre_executor_host.load(executor, &config, &loaded), "no connection");
    config.n_channels = 1;
    program->min_depth = 3;
    CHECK_FAILS(gyre_executor_host.load(executor, &config, &loaded), GYRE_ERROR_UNSUPPORTED,
                "needs FIFOs of 3 slots");
    program->min_depth = 2;
    CHECK_OK(gyre_executor_host.load(executor, &config, &loaded));
    struct test_work work = byte_work(loaded, buffer, buffer, 64);
    CHECK_FAILS(test_enqueue(executor, &work, 1, NULL), GYRE_ERROR_INTERNAL,
                "1 chunks for a program of 1 channels, 2 chunks");
    work.split.n_chunks = 2;
    work.split.tile_elems = 65;
    CHECK_FAILS(test_enqueue(executor, &work, 1, NULL), GYRE_ERROR_INTERNAL,
                "does not fit a slot of 64");
    gyre_executor_host.unload(executor, loaded);
    gyre_program_free(program);
    host_rig_close(&rig);
}

TEST_CASE("a plan that does not suit its program is refused")
{
    const struct gyre_ready_needs needs = {.n_channels = 1, .n_chunks = 1, .most_tile_bytes = 64};
    const struct gyre_ready good = {.split = {64, 1, 1, 64, 1},
                                    .reduction = {.dtype = GYRE_UINT8, .op = GYRE_SUM}};
    CHECK_OK(gyre_ready_check(&good, &needs));
    const struct {
        const char *words;
        struct gyre_split split;
        uint8_t dtype;
        uint8_t op;
    } mistakes[] = {
        {"a split of 2 channels", {64, 2, 1, 64, 1}, GYRE_UINT8, GYRE_SUM},
        {"2 chunks for a program", {64, 1, 2, 64, 1}, GYRE_UINT8, GYRE_SUM},
        {"0 elements a tile", {64, 1, 1, 0, 1}, GYRE_UINT8, GYRE_SUM},
        {"0 a unit", {64, 1, 1, 64, 0}, GYRE_UINT8, GYRE_SUM},
        {"does not fit a slot of 64", {64, 1, 1, 65, 1}, GYRE_UINT8, GYRE_SUM},
        {"a tile of 256 bytes", {64, 1, 1, 64, 1}, GYRE_FLOAT32, GYRE_SUM},
        {"on type 12", {64, 1, 1, 64, 1}, GYRE_N_DTYPES, GYRE_SUM},
        {"operation 4", {64, 1, 1, 64, 1}, GYRE_UINT8, GYRE_AVG},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct gyre_ready ready = good;
        ready.split = mistakes[i].split;
        ready.reduction.dtype = mistakes[i].dtype;
        ready.reduction.op = mistakes[i].op;
        CHECK_FAILS(gyre_ready_check(&ready, &needs), GYRE_ERROR_INTERNAL, mistakes[i].words);
    }
}
