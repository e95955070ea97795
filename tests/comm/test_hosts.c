/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of one process count as several hosts, between which connections go through sockets, so
 * on GPUs a call uses two protocols. Random calls with checked values, on GPUs also graphs. With
 * and without lines between hosts, on the host device also over the verbs device in memory.
 *
 *   test_hosts [case [ranks a host [random calls [seed]]]]
 *
 * On GPUs (TEST_DEVICE=cuda) all ranks share the first one (GYRE_SHARE_GPU).
 */
#define TEST_OWN_MAIN
#include "core/engine/comm/local.h"
#include "core/engine/plan/plan.h"
#include "tests/fuzz/random.h"
#include "tests/support/jobs.h"

#ifdef TEST_WITH_CUDA
#include <cuda_runtime_api.h>
#endif
#ifdef TEST_WITH_VERBS
#include "tests/nic/verbs_memory.h"
#endif

enum { MAX_RANKS = 8, MAX_COUNT = 20011, N_REPLAYS = 3 };

static int n_hosts = 2;
static int n_per_host = 2;
static bool is_rdma; /* between hosts by RDMA, else by sockets */
static uint32_t n_calls = 60;
static uint64_t first_seed = 1;

/* What all ranks share. */
struct team {
    pthread_barrier_t barrier;
    gyre_comm *comms[MAX_RANKS];
    struct gyre_plan_summary plans[MAX_RANKS];
    bool in_graphs;
    int n_ranks;
};

struct rank {
    struct team *team;
    struct test_place place;
    char *in;
    char *out;
};

static struct test_job make_job(uint64_t number, const struct team *team)
{
    static const size_t counts[] = {1, 3, 33, 1000, 1031, 4099, MAX_COUNT};
    static const enum gyre_collective colls[] = {
        GYRE_COLL_ALL_REDUCE, GYRE_COLL_BROADCAST,      GYRE_COLL_REDUCE,
        GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_ALL_TO_ALL,
        GYRE_COLL_GATHER,     GYRE_COLL_SCATTER,        GYRE_COLL_SEND_RECV};
    uint64_t random = fuzz_mix(number);
    struct test_job job = {.seed = (uint32_t)number};
    job.coll = colls[number % GYRE_ARRAY_LENGTH(colls)];
    job.dtype = (gyre_dtype)(random % GYRE_N_DTYPES);
    random /= GYRE_N_DTYPES;
    job.op = (gyre_op)(random % GYRE_N_OPS);
    random /= GYRE_N_OPS;
    job.count = counts[random % GYRE_ARRAY_LENGTH(counts)];
    random /= GYRE_ARRAY_LENGTH(counts);
    job.root = (int)(random % (unsigned)team->n_ranks);
    random /= (unsigned)team->n_ranks;
    job.in_place = random % 3 == 0 && job.coll == GYRE_COLL_ALL_REDUCE;
    return job;
}

/* Nobody allocates while a kernel runs, and no rank launches its graph again before all ranks have
 * launched theirs. CUDA does not promise that kernels of different streams of one GPU run at the
 * same time: a rank's second kernel can keep another rank's first one from starting
 * (docs/lab_notes.md), for which its own first kernel waits. */
static void carry_out(const struct test_job *job, const struct rank *own, const void *in, void *out)
{
#ifdef TEST_WITH_CUDA
    cudaStream_t stream = (cudaStream_t)own->place.stream;
    if (own->team->in_graphs) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        /* In place, a replay would reduce the results of the last one. */
        const int n_replays = job->in_place ? 1 : N_REPLAYS;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK_OK(test_job_call(job, &own->place, in, out));
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        for (int i = 0; i < n_replays; i++) {
            pthread_barrier_wait(&own->team->barrier);
            CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
        }
        CHECK_OK(gyre_stream_synchronize(own->place.stream, test_device()));
        pthread_barrier_wait(&own->team->barrier);
        CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        return;
    }
#endif
    CHECK_OK(test_job_call(job, &own->place, in, out));
    CHECK_OK(gyre_stream_synchronize(own->place.stream, test_device()));
}

static void *run_rank(void *pointer)
{
    struct rank *own = pointer;
    struct team *team = own->team;
    const size_t n_bytes = ((size_t)MAX_COUNT * (size_t)own->team->n_ranks + 8) * 8;
    own->place = test_place_open(own->place.comm);
    const struct gyre_device_ops *ops = own->place.device->ops;
    CHECK_OK(ops->mem_alloc(own->place.device, n_bytes, (void **)&own->in));
    CHECK_OK(ops->mem_alloc(own->place.device, n_bytes, (void **)&own->out));
    pthread_barrier_wait(&team->barrier);
    for (uint32_t i = 0; i < n_calls && test_n_failures == 0; i++) {
        const struct test_job job = make_job(first_seed * 1000003 + i, team);
        const int n = own->team->n_ranks;
        const size_t element = gyre_dtype_bytes(job.dtype);
        const size_t n_in = job.count * (gyre_collectives[job.coll].in_blocks ? (size_t)n : 1);
        const struct gyre_pattern pattern = test_job_pattern(&job, n);
        char *in = own->in + job.seed % 3 * element; /* not always at a multiple of 16 */
        char *out = job.in_place ? in : own->out + job.seed % 2 * element;
        CHECK_OK(
            gyre_pattern_fill(own->place.device, &pattern, (uint32_t)own->place.rank, 0, n_in, in));
        pthread_barrier_wait(&own->team->barrier);
        carry_out(&job, own, in, out);
        pthread_barrier_wait(&own->team->barrier);
        struct gyre_pattern_errors errors = {0};
        const uint64_t n_wrong = test_job_wrong(&job, &own->place, out, &errors);
        CHECK_MSG(n_wrong == 0, "job %u: %s %s %s count %zu root %d rank %d of %d: %llu wrong",
                  job.seed, gyre_collectives[job.coll].name, gyre_dtype_names[job.dtype],
                  gyre_op_names[job.op], job.count, job.root, own->place.rank, n,
                  (unsigned long long)n_wrong);
        pthread_barrier_wait(&team->barrier); /* all see the same number of failures */
    }
    pthread_barrier_wait(&team->barrier);
    CHECK_OK(own->place.device->ops->mem_free(own->place.device, own->in));
    CHECK_OK(own->place.device->ops->mem_free(own->place.device, own->out));
    test_place_close(&own->place);
    return NULL;
}

/* Each rank reads GYRE_HOSTID in its init, so one thread makes these calls. False if there is no
 * such communicator. */
static bool open_team(struct team *team, bool in_turns)
{
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_unique_id id;
    memset(team, 0, sizeof(*team));
    team->n_ranks = n_hosts * n_per_host;
    config.device_kind = (int)test_device();
    config.device_ordinal = test_device() == GYRE_DEVICE_CUDA ? 0 : config.device_ordinal;
    setenv("GYRE_NET", is_rdma ? "IB" : "Socket", 1);
    setenv("GYRE_SHARE_GPU", "1", 1);
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < team->n_ranks; rank++) {
        char host[16];
        snprintf(host, sizeof(host), "host%d", in_turns ? rank % n_hosts : rank / n_per_host);
        setenv("GYRE_HOSTID", host, 1);
        CHECK_OK(gyre_comm_init_rank(&team->comms[rank], team->n_ranks, &id, rank, &config));
    }
    CHECK_OK(gyre_group_end());
    unsetenv("GYRE_HOSTID");
    pthread_barrier_init(&team->barrier, NULL, (unsigned)team->n_ranks);
    return test_n_failures == 0;
}

static void close_team(struct team *team)
{
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < team->n_ranks; rank++)
        CHECK_OK(gyre_comm_destroy(team->comms[rank]));
    CHECK_OK(gyre_group_end());
    pthread_barrier_destroy(&team->barrier);
}

static void run_with(const char *protos, const char *algos, bool in_turns, bool in_graphs)
{
    struct team team;
    setenv("GYRE_PROTO", protos, 1);
    setenv("GYRE_ALGO", algos, 1);
    if (open_team(&team, in_turns)) {
        team.in_graphs = in_graphs;
        struct rank ranks[MAX_RANKS];
        for (int rank = 0; rank < team.n_ranks; rank++)
            ranks[rank] = (struct rank){.team = &team, .place.comm = team.comms[rank]};
        test_run_threads(run_rank, ranks, team.n_ranks, sizeof(ranks[0]));
        close_team(&team);
    }
    unsetenv("GYRE_PROTO");
    unsetenv("GYRE_ALGO");
}

#define LAMPORT_LISTS \
    "all_reduce:lamport,ll/simple;reduce:lamport,ll/simple;reduce_scatter:lamport,ll/simple"

static const char *const all_protos[] = {"", "ll/simple", "ll128/simple", LAMPORT_LISTS, "simple"};

static size_t n_protos(void)
{
    return test_device() == GYRE_DEVICE_CUDA ? GYRE_ARRAY_LENGTH(all_protos) : 1;
}

TEST_CASE("random calls on two hosts are right")
{
    for (size_t i = 0; i < n_protos(); i++)
        run_with(all_protos[i], "", i % 2 != 0, false);
}

TEST_CASE("so are those of each algorithm")
{
    static const char *const algos[] = {
        "all_reduce:two_level_log;broadcast:two_level_tree;reduce:two_level_tree",
        "all_reduce:ring;all_gather:ring;reduce_scatter:ring",
        "all_reduce:doubling;broadcast:tree;reduce:tree"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(algos); i++)
        run_with(all_protos[i % n_protos()], algos[i], false, false);
}

TEST_CASE("so are those in graphs")
{
    for (size_t i = 0; i < n_protos() && test_device() == GYRE_DEVICE_CUDA; i++)
        run_with(all_protos[i], "", false, true);
}

TEST_CASE("the choice is the same on all ranks and has both protocols")
{
    struct team team;
    uint32_t n_mixed = 0;
    const bool may_be_lines = test_device() == GYRE_DEVICE_CUDA;
    if (!open_team(&team, false))
        return;
    for (uint64_t i = 0; i < 200; i++) {
        const struct test_job job = make_job(i, &team);
        struct gyre_plan_summary first;
        if (job.coll == GYRE_COLL_SEND_RECV)
            continue;
        for (int rank = 0; rank < team.n_ranks; rank++) {
            const struct gyre_call asked = {.coll = job.coll,
                                            .count = job.count,
                                            .dtype = job.dtype,
                                            .op = job.op,
                                            .root = job.root};
            struct gyre_plan_summary plan;
            memset(&plan, 0, sizeof(plan));
            CHECK_OK(gyre_plan_describe(gyre_comm_plans(team.comms[rank]), &asked, &plan));
            if (rank == 0)
                first = plan;
            CHECK_MSG(strcmp(plan.algorithm, first.algorithm) == 0 &&
                          strcmp(plan.proto, first.proto) == 0 &&
                          strcmp(plan.net_proto, first.net_proto) == 0 &&
                          plan.n_channels == first.n_channels &&
                          plan.slot_bytes == first.slot_bytes,
                      "rank %d: %s %s/%s, rank 0: %s %s/%s", rank, plan.algorithm, plan.proto,
                      plan.net_proto, first.algorithm, first.proto, first.net_proto);
        }
        const bool is_lines = strcmp(first.net_proto, "ll") == 0;
        CHECK(is_lines ? may_be_lines && strcmp(first.proto, "ll") == 0
                       : strcmp(first.net_proto, "simple") == 0);
        n_mixed += strcmp(first.proto, "simple") != 0;
    }
    printf("# %u of 200 choices have a line protocol inside the hosts\n", n_mixed);
    CHECK((n_mixed > 0) == (test_device() == GYRE_DEVICE_CUDA));
    close_team(&team);
}

TEST_CASE("a message depends on the link of its pair")
{
    struct team team;
    if (!open_team(&team, true))
        return;
    for (int rank = 0; rank < team.n_ranks; rank++)
        for (int peer = 0; peer < team.n_ranks; peer++) {
            const struct gyre_call call = {
                .coll = GYRE_COLL_SEND_RECV, .count = 64, .dtype = GYRE_UINT8, .root = peer};
            const struct gyre_tuner_facts facts =
                gyre_plan_facts_of(gyre_comm_plans(team.comms[rank]), &call);
            const bool is_inside = rank % n_hosts == peer % n_hosts;
            CHECK_MSG(facts.is_proxied == !is_inside, "%d to %d", rank, peer);
            CHECK_MSG(facts.n_ranks == (uint32_t)(is_inside ? n_per_host : team.n_ranks),
                      "%d to %d: %u ranks", rank, peer, facts.n_ranks);
        }
    close_team(&team);
}

static const char *lines(void)
{
    return test_device() == GYRE_DEVICE_HOST ? "simple/ll" : "ll/ll";
}

static void run_lines(void)
{
    run_with(lines(), "", false, false);
    if (test_device() == GYRE_DEVICE_CUDA)
        run_with(lines(), "", false, true);
}

static void run_algorithms(void)
{
    static const char *const algos[] = {
        "all_reduce:two_level_log;broadcast:two_level_tree;reduce:two_level_tree",
        "all_reduce:ring;all_gather:ring;reduce_scatter:ring",
        "all_reduce:doubling;broadcast:tree;reduce:tree",
        "all_reduce:halving;all_gather:bruck;reduce_scatter:halving;all_to_all:bruck"};
    const bool has_ranges = test_device() == GYRE_DEVICE_HOST; /* the last one's steps move them */
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(algos) - (has_ranges ? 0 : 1); i++)
        run_with(lines(), algos[i], false, false);
}

static void run_in_turns(void)
{
    run_with("all_reduce:/ll;broadcast:simple;reduce:/ll;all_gather:simple;send_recv:/ll", "",
             false, false);
}

/* The first host calls and waits for lines of the second one, which never calls. */
static void run_abort(void)
{
    struct team team;
    gyre_stream streams[MAX_RANKS];
    static float vectors[MAX_RANKS][2];
    setenv("GYRE_PROTO", "/ll", 1);
    if (open_team(&team, false)) {
        for (int rank = 0; rank < n_per_host; rank++) {
            CHECK_OK(gyre_stream_create(&streams[rank], GYRE_DEVICE_HOST, -1));
            CHECK_OK(gyre_all_reduce(vectors[rank], vectors[rank], 2, GYRE_FLOAT32, GYRE_SUM,
                                     team.comms[rank], streams[rank]));
        }
        CHECK_OK(gyre_comm_abort(team.comms[team.n_ranks - 1]));
        for (int rank = 0; rank < n_per_host; rank++) {
            CHECK(gyre_stream_synchronize(streams[rank], GYRE_DEVICE_HOST) != GYRE_SUCCESS);
            CHECK_OK(gyre_stream_destroy(streams[rank], GYRE_DEVICE_HOST));
        }
        for (int rank = 0; rank + 1 < team.n_ranks; rank++)
            CHECK_OK(gyre_comm_abort(team.comms[rank]));
        for (int rank = 0; rank < team.n_ranks; rank++)
            CHECK_OK(gyre_comm_destroy(team.comms[rank]));
        pthread_barrier_destroy(&team.barrier);
    }
    unsetenv("GYRE_PROTO");
}

static void run_refusals(void)
{
    static const struct {
        const char *protos;
        const char *words;
    } rows[] = {
        {"/ll128", "a network may write a line of another protocol than ll in parts"},
        {"ll/ll", "the host device has simple only"},
    };
    const size_t n_rows = test_device() == GYRE_DEVICE_HOST ? GYRE_ARRAY_LENGTH(rows) : 1;
    for (size_t i = 0; i < n_rows; i++) {
        struct team team;
        struct gyre_plan_summary plan;
        const struct gyre_call asked = {
            .coll = GYRE_COLL_ALL_REDUCE, .count = 4, .dtype = GYRE_FLOAT32, .op = GYRE_SUM};
        setenv("GYRE_PROTO", rows[i].protos, 1);
        if (open_team(&team, false)) {
            CHECK(gyre_plan_describe(gyre_comm_plans(team.comms[0]), &asked, &plan) ==
                  GYRE_ERROR_INVALID_USAGE);
            CHECK_HAS(gyre_cause(), rows[i].words);
            close_team(&team);
        }
        unsetenv("GYRE_PROTO");
    }
}

static void between_hosts(int hosts, int per_host, void (*run)(void))
{
    const int before[] = {n_hosts, n_per_host};
    n_hosts = hosts;
    n_per_host = per_host;
    run();
    n_hosts = before[0];
    n_per_host = before[1];
}

TEST_CASE("lines over sockets carry random calls")
{
    between_hosts(2, 1, run_lines);
    between_hosts(2, 2, run_lines);
    between_hosts(3, 2, run_lines);
    between_hosts(2, 2, run_algorithms);
}

TEST_CASE("over sockets calls by lines and others take turns")
{
    between_hosts(2, 2, run_in_turns);
    between_hosts(3, 1, run_in_turns);
}

TEST_CASE("an abort ends ranks that wait for lines over sockets")
{
    if (test_device() == GYRE_DEVICE_HOST) /* its vectors lie in host memory */
        between_hosts(2, 2, run_abort);
}

TEST_RUNS("other line protocols are refused over sockets", between_hosts(2, 1, run_refusals))

#ifdef TEST_WITH_VERBS

/* With the verbs device in memory, or with TEST_RDMA=1 the environment's library. */
static void over_rdma(int hosts, int per_host, void (*run)(void))
{
    const bool is_in_memory = getenv("TEST_RDMA") == NULL;
    if (is_in_memory && test_device() != GYRE_DEVICE_HOST) /* it does not reach GPU memory */
        return;
    if (is_in_memory)
        CHECK(vm_install(vm_one_nic));
    is_rdma = true;
    between_hosts(hosts, per_host, run);
    is_rdma = false;
    if (is_in_memory)
        CHECK(vm_uninstall());
}

static void run_scrambled(void)
{
    vm_scramble(true);
    run_with(lines(), "", true, false);
    vm_scramble(false);
}

TEST_CASE("lines between hosts carry random calls")
{
    over_rdma(2, 2, run_lines);
    over_rdma(2, 4, run_lines);
    over_rdma(3, 2, run_lines);
}

TEST_CASE("so they do when their words come in another order")
{
    over_rdma(3, 1, run_scrambled);
    over_rdma(2, 2, run_scrambled);
}

TEST_RUNS("so they do with each algorithm", over_rdma(2, 2, run_algorithms))
TEST_RUNS("calls by lines and others may take turns", over_rdma(2, 2, run_in_turns))

TEST_CASE("an abort ends ranks that wait for lines")
{
    if (test_device() == GYRE_DEVICE_HOST) /* its vectors lie in host memory */
        over_rdma(2, 2, run_abort);
}

TEST_RUNS("other line protocols are refused between hosts", over_rdma(2, 1, run_refusals))

#endif

int main(int argc, char **argv)
{
    /* Before CUDA starts: with fewer connections, ranks' streams share one, and kernels of one wait
     * for another's. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (test_device() == GYRE_DEVICE_CUDA && test_n_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return TEST_SKIPPED;
    }
    if (argc > 2)
        n_per_host = atoi(argv[2]);
    if (argc > 3)
        n_calls = (uint32_t)atoi(argv[3]);
    else if (getenv("TEST_FEW") != NULL)
        n_calls = 15;
    if (argc > 4)
        first_seed = strtoull(argv[4], NULL, 10);
    if (n_per_host < 1 || n_per_host * n_hosts > MAX_RANKS) {
        printf("1 to %d ranks a host\n", MAX_RANKS / n_hosts);
        return 1;
    }
    return test_main(argc, argv);
}
