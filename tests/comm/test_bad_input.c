/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"
#include "tests/support/ranks.h"

#define HOST GYRE_DEVICE_HOST

TEST_ON_THREADS("bad arguments are refused and lose nothing", 2)
{
    float data[64];
    float out[64];
    CHECK_BAD_ARGUMENT(gyre_all_reduce(NULL, out, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                       "send buffer is NULL");
    CHECK_BAD_ARGUMENT(gyre_all_reduce(data, NULL, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                       "recv buffer is NULL");
    CHECK_BAD_ARGUMENT(gyre_all_reduce(data, data + 1, 8, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                       "overlap");
    CHECK_BAD_ARGUMENT(gyre_all_gather(data, data, 4, GYRE_FLOAT32, NULL, NULL),
                       "communicator is NULL");
    CHECK_BAD_ARGUMENT(gyre_all_reduce(data, out, SIZE_MAX / 2, GYRE_FLOAT64, GYRE_SUM, comm, NULL),
                       "2^63");
    CHECK_BAD_ARGUMENT(gyre_all_reduce(data, out, 1, (gyre_dtype)12, GYRE_SUM, comm, NULL),
                       "dtype 12");
    CHECK_BAD_ARGUMENT(gyre_all_reduce(data, out, 1, GYRE_FLOAT32, (gyre_op)9, comm, NULL), "op 9");
    CHECK_BAD_ARGUMENT(gyre_broadcast(data, out, 1, GYRE_FLOAT32, n_ranks, comm, NULL), "root");
    CHECK_BAD_ARGUMENT(gyre_reduce(data, out, 1, GYRE_FLOAT32, GYRE_SUM, -1, comm, NULL), "root");
    CHECK_BAD_ARGUMENT(gyre_send(data, 1, GYRE_FLOAT32, n_ranks, comm, NULL), "peer");
    CHECK_BAD_USAGE(gyre_send(data, 1, GYRE_FLOAT32, rank, comm, NULL), "itself");
    CHECK_BAD_USAGE(gyre_group_end(), "without group_start");
    /* Nothing was lost: the next good call works. */
    data[0] = 1.0F;
    CHECK_OK(gyre_all_reduce(data, out, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, HOST));
    CHECK(out[0] == (float)n_ranks);
}

struct lone_init {
    gyre_unique_id id;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *init_rank_0(void *argument)
{
    struct lone_init *init = argument;
    gyre_config config = test_host_config();
    gyre_comm *comm = NULL;
    init->status = gyre_comm_init_rank(&comm, 2, &init->id, 0, &config);
    snprintf(init->cause, sizeof(init->cause), "%s", gyre_last_error());
    return NULL;
}

TEST_CASE("the others hear why a rank cannot init")
{
    struct lone_init other;
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comm = NULL;
    pthread_t thread;
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "3600", 1);
    CHECK_OK(gyre_get_unique_id(&other.id));
    CHECK(pthread_create(&thread, NULL, init_rank_0, &other) == 0);
    config.device_kind = HOST;
    config.timeout_ms = -5;
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 2, &other.id, 1, &config),
                       "config.timeout_ms is -5");
    pthread_join(thread, NULL);
    CHECK_MSG(other.status == GYRE_ERROR_REMOTE, "%s", other.cause);
    CHECK_HAS(other.cause, "rank 1 failed: config.timeout_ms is -5");
}

TEST_CASE("a bad init names what is wrong")
{
    gyre_comm *comm;
    gyre_unique_id id;
    memset(&id, 0, sizeof(id));
    gyre_config config = test_host_config();
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 0, &id, 0, &config), "n_ranks");
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 2, &id, 2, &config), "rank 2");
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 2, NULL, 0, &config), "NULL");
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 2, &id, 0, &config), "id");
    config.traffic_class = 256;
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config), "traffic_class");
    config.traffic_class = GYRE_CONFIG_UNDEFINED;
    config.transport = "carrier pigeon";
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config), "carrier pigeon");
    config.transport = NULL;
    config.net = "smoke";
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config),
                       "config.net=smoke is not legal: expected IB Socket");
    config.struct_bytes = offsetof(gyre_config, net); /* the caller does not know the field */
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    CHECK_OK(gyre_comm_destroy(comm));
}

TEST_CASE("unknown and unparsable variables fail at init")
{
    gyre_comm *comm;
    gyre_config config = test_host_config();
    setenv("GYRE_IB_HCAS", "mlx5_0", 1);
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config), "GYRE_IB_HCA");
    unsetenv("GYRE_IB_HCAS");
    setenv("GYRE_IB_TC", "abc", 1);
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config), "abc");
    unsetenv("GYRE_IB_TC");
    setenv("GYRE_ALGO", "rign", 1);
    CHECK_BAD_ARGUMENT(gyre_comm_init_all(&comm, 1, NULL, &config), "ring");
}

TEST_CASE("what NCCL's variables say ends no init")
{
    /* Refused for GYRE_* by the code that uses them. */
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"ALGO", "foo"},
        {"ALGO", "allreduce:foo;broadcast:ring"},
        {"ALGO", "foocast:ring"},
        {"ALGO", "^"},
        {"PROTO", "LL256"},
        {"TOPO_FILE", "/nonexistent"},
        {"TOPO_FILE", "/"},
        {"TOPO_DUMP_FILE", "/nonexistent/dump"},
        {"P2P_LEVEL", "near"},
        {"DEBUG_SUBSYS", "TUNIN"},
        {"DEBUG_FILE", "/nonexistent/log"},
        {"IB_HCA", "mlx5_0:0"},
        {"MIN_NCHANNELS", "32"}, /* more than GYRE_MAX_NCHANNELS */
    };
    gyre_comm *comm;
    gyre_config config = test_host_config();
    setenv("GYRE_MAX_NCHANNELS", "4", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static const char *const prefixes[] = {"GYRE_", "NCCL_"};
        for (int is_nccl = 0; is_nccl < 2; is_nccl++) {
            char variable[64];
            snprintf(variable, sizeof(variable), "%s%s", prefixes[is_nccl], rows[i].name);
            setenv(variable, rows[i].value, 1);
            const gyre_status status = gyre_comm_init_all(&comm, 1, NULL, &config);
            const bool is_used = strcmp(rows[i].name, "IB_HCA") != 0 &&
                                 strncmp(rows[i].name, "DEBUG", 5) != 0; /* by this communicator */
            CHECK_MSG((status == GYRE_SUCCESS) == (is_nccl || !is_used), "%s=%s: %s", variable,
                      rows[i].value, gyre_last_error());
            if (status == GYRE_SUCCESS)
                CHECK_OK(gyre_comm_destroy(comm));
            else
                CHECK_HAS(gyre_last_error(), variable);
            unsetenv(variable);
        }
    }
}

struct misfit {
    enum gyre_collective coll[2];
    size_t count[2];
    gyre_dtype dtype[2];
    gyre_op op[2];
    int root[2];
};

TEST_RANK(misfitting_call)
{
    const struct misfit *misfit = argument;
    const int i = rank == n_ranks - 1;
    float in[4096] = {0};
    float out[4096];
    gyre_status status = misfit->coll[i] == GYRE_COLL_ALL_REDUCE
                             ? gyre_all_reduce(in, out, misfit->count[i], misfit->dtype[i],
                                               misfit->op[i], comm, NULL)
                             : gyre_broadcast(in, out, misfit->count[i], misfit->dtype[i],
                                              misfit->root[i], comm, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_stream_synchronize(NULL, HOST);
    /* A root that has sent everything may notice late. */
    for (int more = 0; more < 1000 && status == GYRE_SUCCESS; more++) {
        status = gyre_all_reduce(in, out, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(NULL, HOST);
    }
    CHECK_MSG(status == GYRE_ERROR_INVALID_USAGE, "%s: %s", gyre_status_name(status),
              gyre_last_error());
    char expected[32];
    snprintf(expected, sizeof(expected), "rank %d (", n_ranks - 1);
    CHECK_HAS(gyre_last_error(), expected);
    CHECK_HAS(gyre_last_error(), " called ");
    gyre_status async = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_async_error(comm, &async));
    CHECK(async == GYRE_ERROR_INVALID_USAGE);
    CHECK_HAS(gyre_comm_last_error(comm), " called ");
    CHECK_BAD_USAGE(gyre_all_reduce(in, out, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL), "called");
}

static const struct misfit misfits[] = {
    {{GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_REDUCE}, {1024, 1000}, {7, 7}, {0, 0}, {0, 0}},
    {{GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_REDUCE}, {1024, 1024}, {7, 2}, {0, 0}, {0, 0}},
    {{GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_REDUCE}, {1024, 1024}, {7, 7}, {0, 2}, {0, 0}},
    {{GYRE_COLL_ALL_REDUCE, GYRE_COLL_BROADCAST}, {1024, 1024}, {7, 7}, {0, 0}, {0, 0}},
    {{GYRE_COLL_BROADCAST, GYRE_COLL_BROADCAST}, {1024, 1024}, {7, 7}, {0, 0}, {0, 1}},
    {{GYRE_COLL_BROADCAST, GYRE_COLL_BROADCAST}, {16, 4000}, {7, 7}, {0, 0}, {0, 0}},
    {{GYRE_COLL_BROADCAST, GYRE_COLL_BROADCAST}, {10, 10}, {7, 7}, {0, 0}, {0, 1}},
};

TEST_CASE("calls that do not fit name both ranks and calls")
{
    for (size_t i = 0; i < sizeof(misfits) / sizeof(misfits[0]); i++) {
        struct misfit misfit = misfits[i];
        test_on_threads(3, misfitting_call, &misfit);
        test_on_threads(2, misfitting_call,
                        &misfit); /* both roots, if they differ: neither waits */
    }
}

TEST_CASE("GYRE_CHECK=calls refuses before data moves")
{
    setenv("GYRE_CHECK", "calls", 1);
    struct misfit misfit = misfits[0];
    test_on_threads(3, misfitting_call, &misfit);
}

TEST_CASE("a dead handle is refused")
{
    gyre_comm *comm;
    float data = 1.0F;
    gyre_config config = test_host_config();
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_FAILS(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                GYRE_ERROR_ABORTED, "aborted");
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_BAD_USAGE(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                    "destroyed");
    CHECK_BAD_USAGE(gyre_comm_destroy(comm), "destroyed");
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    CHECK_OK(gyre_comm_finalize(comm));
    CHECK_BAD_USAGE(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                    "finalized");
    CHECK_OK(gyre_comm_destroy(comm));
}

TEST_CASE("a rank whose work has ended may finalize")
{
    enum { N = 2 };
    gyre_comm *comms[N];
    gyre_stream streams[N];
    float data[N];
    gyre_config config = test_host_config();
    for (int is_cut_off = 0; is_cut_off < 2; is_cut_off++) {
        gyre_status status = GYRE_SUCCESS;
        CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
        for (int rank = 0; rank < N; rank++)
            CHECK_OK(gyre_stream_create(&streams[rank], HOST, -1));
        for (int round = 0; round < 1 + is_cut_off; round++)
            for (int rank = 0; rank < (round == 0 ? N : 1); rank++)
                CHECK_OK(gyre_all_reduce(&data[rank], &data[rank], 1, GYRE_FLOAT32, GYRE_SUM,
                                         comms[rank], streams[rank]));
        for (int rank = is_cut_off; rank < N; rank++)
            CHECK_OK(gyre_stream_synchronize(streams[rank], HOST));
        CHECK_OK(gyre_comm_abort(comms[1]));
        status = test_await_error(comms[0]);
        CHECK(status == GYRE_ERROR_REMOTE);
        if (is_cut_off)
            CHECK_FAILS(gyre_comm_finalize(comms[0]), GYRE_ERROR_REMOTE, "aborted");
        else
            CHECK_OK(gyre_comm_finalize(comms[0]));
        CHECK_OK(gyre_comm_async_error(comms[0], &status));
        CHECK(status == (is_cut_off ? GYRE_ERROR_REMOTE : GYRE_SUCCESS));
        CHECK_FAILS(gyre_comm_finalize(comms[0]), GYRE_ERROR_REMOTE, "aborted");
        for (int rank = 0; rank < N; rank++) {
            CHECK_OK(gyre_comm_destroy(comms[rank]));
            (void)gyre_stream_synchronize(streams[rank], HOST);
            (void)gyre_stream_destroy(streams[rank], HOST);
        }
    }
}

TEST_CASE("records compare the two ends of a message")
{
    const struct gyre_record send = {.sequence = 3,
                                     .count = 100,
                                     .coll = GYRE_COLL_SEND_RECV,
                                     .dtype = GYRE_FLOAT32,
                                     .is_send = 1,
                                     .root = 5};
    struct gyre_record recv = send;
    recv.is_send = 0;
    recv.root = 2;
    char text[160];
    CHECK(gyre_record_same_place(&send, 2, &recv, 5));
    CHECK(!gyre_record_same_place(&send, 2, &recv, 4));
    CHECK(gyre_record_fits(&send, &recv));
    CHECK(gyre_record_signature(&send, 2) == gyre_record_signature(&recv, 5));
    recv.count = 99;
    CHECK(!gyre_record_fits(&send, &recv));
    CHECK(gyre_record_signature(&send, 2) != gyre_record_signature(&recv, 5));
    CHECK(strcmp(gyre_record_text(&send, text, sizeof(text)),
                 "send(400 B, 100 x float to rank 5, seq 3)") == 0);
}
