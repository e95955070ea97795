/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/simulate.h"
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

enum { COUNT = 1000, N = 4 };

static gyre_call_args all_reduce_of(float *data)
{
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    args.send = data;
    args.recv = data;
    args.count = COUNT;
    args.dtype = GYRE_FLOAT32;
    args.op = GYRE_SUM;
    return args;
}

static void fill(float *data, int rank)
{
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)(rank * COUNT + i);
}

static void check_values(const float *data)
{
    for (int i = 0; i < COUNT; i++)
        CHECK_MSG(data[i] == (float)(N * (N - 1) / 2 * COUNT + N * i), "element %d: %g", i,
                  (double)data[i]);
}

static void check_algorithm(gyre_comm *comm, const gyre_call_args *args, const char *expected)
{
    struct gyre_plan_summary summary = {.n_channels = 0};
    struct gyre_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                             .send = args->send,
                             .recv = args->recv,
                             .count = args->count,
                             .dtype = args->dtype,
                             .op = args->op,
                             .root = -1};
    CHECK_OK(gyre_call_options_parse(call.coll, args, &call.options));
    CHECK_OK(gyre_plan_describe(&comm->plans, &call, &summary));
    CHECK_MSG(strcmp(summary.algorithm, expected) == 0, "%s, expected %s", summary.algorithm,
              expected);
    if (args->max_channels > 0)
        CHECK_MSG(summary.n_channels <= (unsigned)args->max_channels, "%u", summary.n_channels);
}

TEST_ON_THREADS("a call is carried out by the algorithm that it names", N)
{
    static const char *const algorithms[] = {"ring", "tree", "twoshot"};
    float data[COUNT];
    for (int repeat = 0; repeat < 2; repeat++)
        for (int i = 0; i < 3; i++) {
            gyre_call_args args = all_reduce_of(data);
            args.algorithm = algorithms[i];
            args.protocol = "simple";
            args.max_channels = 1;
            fill(data, rank);
            check_algorithm(comm, &args, algorithms[i]);
            CHECK_OK(gyre_collective(&args, comm, NULL));
            CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
            check_values(data);
        }
}

TEST_ON_THREADS("every collective has a kind", N)
{
    float in[N], out[N];
    for (int kind = GYRE_CALL_ALL_REDUCE; kind <= GYRE_CALL_SCATTER; kind++) {
        gyre_call_args args = GYRE_CALL_ARGS_INIT;
        for (int i = 0; i < n_ranks; i++) {
            in[i] = (float)(10 * rank + i);
            out[i] = -1;
        }
        args.kind = kind;
        args.root = 1;
        args.send = in;
        args.recv = out;
        args.count = 1;
        args.dtype = GYRE_FLOAT32;
        args.max_channels = 2;
        CHECK_OK(gyre_collective(&args, comm, NULL));
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        const float me = (float)rank;
        const float expected[] = {60,          10, rank == 1 ? 60.0F : -1.0F, 0,
                                  60 + 4 * me, me, rank == 1 ? 0.0F : -1.0F,  10 + me};
        CHECK_MSG(out[0] == expected[kind], "kind %d: %g", kind, (double)out[0]);
    }
}

TEST_ON_THREADS_WITH("empty lists of algorithms and protocols are no options", N,
                     "GYRE_CHECK=calls")
{
    float data[COUNT];
    gyre_call_args args = all_reduce_of(data);
    struct gyre_call_options options;
    args.algorithm = args.protocol = "";
    CHECK_OK(gyre_call_options_parse(GYRE_COLL_ALL_REDUCE, &args, &options));
    CHECK(!gyre_call_options_any(&options));
    fill(data, rank);
    if (rank != 0) /* these set none */
        args.algorithm = args.protocol = NULL;
    CHECK_OK(gyre_collective(&args, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    check_values(data);
}

/* The linker sends calls to the function with "wrap". */
gyre_status __real_gyre_simulator_open(const struct gyre_algorithm *, const struct gyre_shape *,
                                       const struct gyre_machine *, bool, struct gyre_simulator **);
gyre_status __wrap_gyre_simulator_open(const struct gyre_algorithm *, const struct gyre_shape *,
                                       const struct gyre_machine *, bool, struct gyre_simulator **);

static _Thread_local uint32_t n_simulators; /* opened by this thread */

gyre_status __wrap_gyre_simulator_open(const struct gyre_algorithm *algorithm,
                                       const struct gyre_shape *shape,
                                       const struct gyre_machine *machine, bool all_ranks,
                                       struct gyre_simulator **simulator_out)
{
    n_simulators++;
    return __real_gyre_simulator_open(algorithm, shape, machine, all_ranks, simulator_out);
}

static uint32_t choose(gyre_comm *comm, const char *algorithm, int max_channels,
                       struct gyre_choice *choice_out)
{
    struct gyre_call call = {
        .coll = GYRE_COLL_ALL_REDUCE, .count = COUNT, .dtype = GYRE_FLOAT32, .root = -1};
    const uint32_t n_before = n_simulators;
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    args.algorithm = algorithm;
    args.max_channels = max_channels;
    CHECK_OK(gyre_call_options_parse(call.coll, &args, &call.options));
    CHECK_OK(gyre_plan_choice(&comm->plans, &call, choice_out));
    return n_simulators - n_before;
}

TEST_CASE("a choice on several hosts is predicted once for its options")
{
    gyre_comm *comms[2] = {NULL, NULL};
    struct gyre_choice ring, tree, narrow;
    gyre_config config = test_host_config();
    gyre_unique_id id;
    setenv("GYRE_NET", "Socket", 1);
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++) {
        setenv("GYRE_HOSTID", rank == 0 ? "hostA" : "hostB", 1);
        CHECK_OK(gyre_comm_init_rank(&comms[rank], 2, &id, rank, &config));
    }
    CHECK_OK(gyre_group_end());
    unsetenv("GYRE_HOSTID");
    unsetenv("GYRE_NET");
    CHECK(choose(comms[0], "ring", 0, &ring) > 0);
    CHECK(choose(comms[0], "tree", 0, &tree) > 0);
    CHECK(choose(comms[0], "ring", 1, &narrow) > 0);
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(choose(comms[0], "ring", 0, &ring) == 0, "predicted again");
        CHECK_MSG(strcmp(ring.algorithm->name, "ring") == 0, "%s", ring.algorithm->name);
        CHECK_MSG(choose(comms[0], "tree", 0, &tree) == 0, "predicted again");
        CHECK_MSG(strcmp(tree.algorithm->name, "tree") == 0, "%s", tree.algorithm->name);
        CHECK_MSG(choose(comms[0], "ring", 1, &narrow) == 0, "predicted again");
        CHECK_MSG(narrow.n_channels == 1, "%u channels", narrow.n_channels);
    }
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_comm_destroy(comms[0]));
    CHECK_OK(gyre_comm_destroy(comms[1]));
    CHECK_OK(gyre_group_end());
}

TEST_ON_THREADS("options that no algorithm meets are refused before anything is enqueued", N)
{
    float data[COUNT];
    gyre_status status;
    gyre_call_args args = all_reduce_of(data);
    fill(data, rank);
    args.algorithm = "rings";
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "the call's algorithm");
    args.algorithm = "tree";
    args.protocol = "fast";
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "the call's protocol");
    args.protocol = "ll/ll";
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "between hosts");
    args.protocol = NULL;
    args.max_channels = 65;
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "legal is 1..64");
    args.max_channels = 0;
    args.kind = GYRE_CALL_ALL_TO_ALL; /* has no tree */
    args.count = 1;
    args.recv = data + N;
    CHECK_BAD_USAGE(gyre_collective(&args, comm, NULL), "the call's algorithm");
    args.version = 0;
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "GYRE_CALL_ARGS_INIT");
    /* None of it was enqueued. */
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_SUCCESS);
    args = all_reduce_of(data);
    CHECK_OK(gyre_collective(&args, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    check_values(data);
}

TEST_ON_THREADS("in a group such options are refused at the call, and the other calls run", N)
{
    float first[COUNT], second[COUNT], blocks[N];
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    fill(first, rank);
    fill(second, rank);
    for (int i = 0; i < N; i++)
        blocks[i] = 7;
    args.kind = GYRE_CALL_ALL_TO_ALL; /* has no tree */
    args.algorithm = "tree";
    args.send = first;
    args.recv = blocks;
    args.count = 1;
    args.dtype = GYRE_FLOAT32;
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_all_reduce(first, first, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_BAD_USAGE(gyre_collective(&args, comm, NULL), "the call's algorithm");
    CHECK_OK(gyre_all_reduce(second, second, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    check_values(first);
    check_values(second);
    CHECK(blocks[0] == 7);
}

TEST_ON_THREADS_WITH(
    "a preference that no algorithm fulfils does not count, and the call is planned once", N,
    "GYRE_CHECK=calls")
{
    static const char *const preferences[] = {"tree", "nvls_tree", "two_level_ring", "^ring"};
    float data[COUNT], blocks[N], out[N];
    gyre_call_args args = all_reduce_of(data);
    args.prefers = 1;
    for (int i = 0; i < 4; i++) { /* one that can, an unknown one, one for several hosts */
        fill(data, rank);
        args.algorithm = preferences[i];
        CHECK_OK(gyre_collective(&args, comm, NULL));
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        check_values(data);
    }
    args.algorithm = "tree";
    check_algorithm(comm, &args, "tree");
    args.send = NULL; /* a call's other errors stay */
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "NULL");
    args.send = data;
    args.protocol = "fast";
    CHECK_BAD_ARGUMENT(gyre_collective(&args, comm, NULL), "the call's protocol");
    for (int i = 0; i < N; i++)
        blocks[i] = (float)(10 * rank + i);
    args = (gyre_call_args)GYRE_CALL_ARGS_INIT;
    args.kind = GYRE_CALL_ALL_TO_ALL; /* has no tree */
    args.algorithm = "tree";
    args.send = blocks;
    args.recv = out;
    args.count = 1;
    args.dtype = GYRE_FLOAT32;
    CHECK_BAD_USAGE(gyre_collective(&args, comm, NULL), "the call's algorithm");
    args.prefers = 1;
    for (int in_group = 0; in_group < 2; in_group++) {
        const uint64_t n_made = gyre_plans_made(&comm->plans);
        if (in_group)
            CHECK_OK(gyre_group_start());
        CHECK_OK(gyre_collective(&args, comm, NULL));
        if (in_group)
            CHECK_OK(gyre_group_end());
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        for (int i = 0; i < N; i++)
            CHECK_MSG(out[i] == (float)(10 * i + rank), "block %d: %g", i, (double)out[i]);
        CHECK(gyre_plans_made(&comm->plans) - n_made == (in_group ? 0 : 1));
    }
}

TEST_ON_THREADS_WITH("ranks with different options get an error that shows both calls", 2,
                     "GYRE_CHECK=calls")
{
    float data[COUNT];
    gyre_call_args args = all_reduce_of(data);
    fill(data, rank);
    args.algorithm = rank == 0 ? "ring" : "tree";
    CHECK_BAD_USAGE(gyre_collective(&args, comm, NULL), "with options");
}
