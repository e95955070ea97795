/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/health/watch.h"
#include "tests/support/pace.h"
#include "tests/support/ranks.h"
#include "tests/support/stall_rig.h"

#include <poll.h>
#include <signal.h>

#define HOST     GYRE_DEVICE_HOST
#define BOUND_MS 5000 /* see tests/support/pace.h */

enum { N = 4, COUNT = 4096, TIMEOUT_MS = 1000, N_AT_ONCE = 4 };

/* In an error; the rest is NULL. */
struct words {
    const char *texts[8];
};

static void check_words(const char *text, int rank, const struct words *words)
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words->texts) && words->texts[i] != NULL; i++)
        CHECK_MSG(strstr(text, words->texts[i]) != NULL, "rank %d: no \"%s\" in: %s", rank,
                  words->texts[i], text);
}

/* Within the bound. @pace: started with the call; stopped here. */
static void expect_error(gyre_comm *comm, int rank, struct test_pace *pace,
                         const struct words *words)
{
    (void)gyre_stream_synchronize(NULL, HOST);
    const gyre_status status = test_await_error(comm);
    const uint32_t took_ms = test_pace_stop(pace);
    CHECK_MSG(status == GYRE_ERROR_TIMEOUT, "rank %d: %s: %s", rank, gyre_status_name(status),
              gyre_comm_last_error(comm));
    CHECK_MSG(took_ms < BOUND_MS, "rank %d: after %.1f s", rank, (double)took_ms / 1e3);
    check_words(gyre_comm_last_error(comm), rank, words);
    if (rank == 0)
        printf("     %s\n", gyre_comm_last_error(comm));
}

static gyre_config config_of(const char *transport)
{
    gyre_config config = test_host_config();
    config.max_channels = 1;
    config.timeout_ms = TIMEOUT_MS;
    config.transport = transport;
    return config;
}

struct rank_thread {
    gyre_comm *comm;
    gyre_comm *other; /* a second communicator, or NULL */
    int rank;
    int n_ranks;
    const void *argument;
};

/* @n_comms: 1 or 2 communicators of the same ranks. */
static void on_threads(int n_ranks, int n_comms, void *(*run)(void *), const void *argument)
{
    gyre_comm *comms[2][N] = {{NULL}};
    struct rank_thread threads[N];
    const gyre_config config = config_of("p2p");
    gyre_config patient = config; /* one error ends the wait of both */
    patient.timeout_ms = 0;
    for (int c = 0; c < n_comms; c++)
        CHECK_OK(gyre_comm_init_all(comms[c], n_ranks, NULL, c == 0 ? &config : &patient));
    for (int rank = 0; rank < n_ranks; rank++)
        threads[rank] =
            (struct rank_thread){comms[0][rank], comms[1][rank], rank, n_ranks, argument};
    test_run_threads(run, threads, n_ranks, sizeof(threads[0]));
    for (int c = 0; c < n_comms; c++)
        for (int rank = 0; rank < n_ranks; rank++)
            CHECK_OK(gyre_comm_destroy(comms[c][rank]));
}

struct wrong_programs {
    const char *texts[N]; /* by rank */
    struct words words;
};

#define HEAD(ranks, lanes, rank)                                                           \
    "program wrong all_reduce\nranks " ranks " rank " rank " root 0 chunks 1 lanes " lanes \
    " depth 1\n"

static void *run_wrong_program(void *pointer)
{
    const struct rank_thread *own = pointer;
    const struct wrong_programs *wrong = own->argument;
    const float in[1] = {0};
    float out[1];
    struct stall_program program = {.in = in, .out = out};
    struct test_pace pace;
    test_pace_start(&pace);
    CHECK_OK(stall_launch_text(own->comm, wrong->texts[own->rank], 1, &program));
    expect_error(own->comm, own->rank, &pace, &wrong->words);
    stall_unload(own->comm, &program);
    return NULL;
}

TEST_CASE("two ranks that both receive first are a cycle")
{
    const struct wrong_programs wrong = {
        {HEAD("2", "1", "0") "worker 0\nchunk 0: from 1 -> out 0\nchunk 0: in 0 -> to 1\nend\n",
         HEAD("2", "1", "1") "worker 0\nchunk 0: from 0 -> out 0\nchunk 0: in 0 -> to 0\nend\n"},
        {{"rank 0, channel 0, worker 0, step 0 of wrong all_reduce seq 1, tile 0 of 1 "
          "(chunk 0: from 1 -> out 0) waits for slot 0 from rank 1 over p2p",
          "rank 1 is at step 0 (chunk 0: from 0 -> out 0) and waits for slot 0 from rank 0",
          "these waits form a cycle: 0 -> 1 -> 0"}}};
    on_threads(2, 1, run_wrong_program, &wrong);
}

#define SEND_5(peer)                                                                        \
    "chunk 0: in 0 -> to " peer "\nchunk 0: in 0 -> to " peer "\nchunk 0: in 0 -> to " peer \
    "\nchunk 0: in 0 -> to " peer "\nchunk 0: in 0 -> to " peer "\n"

TEST_CASE("two ranks that send more than a FIFO holds are a cycle")
{
    const struct wrong_programs wrong = {
        {HEAD("2", "1", "0") "worker 0\n" SEND_5("1") "chunk 0: from 1 -> out 0\nend\n",
         HEAD("2", "1", "1") "worker 0\n" SEND_5("0") "chunk 0: from 0 -> out 0\nend\n"},
        {{"rank 0, channel 0, worker 0, step 4 of wrong",
          "waits for credit from rank 1 over p2p, which has to consume slot 0",
          "rank 1 is at step 4 (chunk 0: in 0 -> to 0) and waits for credit from rank 0",
          "these waits form a cycle: 0 -> 1 -> 0"}}};
    on_threads(2, 1, run_wrong_program, &wrong);
}

TEST_CASE("a cycle of three other ranks is found")
{
    const struct wrong_programs wrong = {
        {HEAD("4", "1", "0") "worker 0\nchunk 0: from 1 -> out 0\nend\n",
         HEAD("4", "1",
              "1") "worker 0\nchunk 0: from 3 -> out 0, to 2\nchunk 0: in 0 -> to 0\nend\n",
         HEAD("4", "1", "2") "worker 0\nchunk 0: from 1 -> out 0, to 3\nend\n",
         HEAD("4", "1", "3") "worker 0\nchunk 0: from 2 -> out 0, to 1\nend\n"},
        {{"(chunk 0: from 1 -> out 0) waits for slot 0 from rank 1 over p2p",
          "rank 1 is at step 0 (chunk 0: from 3 -> out 0, to 2) and waits for slot 0 from rank 3",
          "these waits form a cycle: 1 -> 3 -> 2 -> 1"}}};
    on_threads(4, 1, run_wrong_program, &wrong);
}

/* Too long for an error, so the waits are cut, and the cycle is told. */
#define LONG_STEP(from, a, b, c)                                                        \
    "chunk 0: from " from " + in 0 -> out 0, to " a "/0, to " a "/1, to " a "/2, to " a \
    "/3, to " b "/0, to " b "/1, to " b "/2, to " c "/0 final\n"

TEST_CASE("the end of a chain of long steps is not cut off")
{
    const struct wrong_programs wrong = {
        {HEAD("4", "4", "0") "worker 0\n" LONG_STEP("1", "1", "2", "3") "end\n",
         HEAD("4", "4", "1") "worker 0\n" LONG_STEP("2", "0", "2", "3") "end\n",
         HEAD("4", "4", "2") "worker 0\n" LONG_STEP("3", "0", "1", "3") "end\n",
         HEAD("4", "4", "3") "worker 0\n" LONG_STEP("0", "0", "1", "2") "end\n"},
        {{"rank 0, channel 0, worker 0, step 0 of wrong", "waits for slot 0 from rank 1 over p2p",
          "rank 1 is at step 0 (", "these waits form a cycle: 0 -> 1 -> 2 -> 3 -> 0"}}};
    on_threads(4, 1, run_wrong_program, &wrong);
}

TEST_CASE("the worker that holds the connection is followed among two")
{
    const struct wrong_programs wrong = {
        {HEAD("3", "2", "0") "worker 0\nchunk 0: from 1 -> out 0\nchunk 0: in 0 -> to 2\n"
                             "chunk 0: in 0 -> to 1/1\nend\n",
         HEAD("3", "2", "1") "worker 0\nchunk 0: from 0/1 -> out 0\n"
                             "worker 1\nchunk 0: from 2 -> to 0\nend\n",
         HEAD("3", "2", "2") "worker 0\nchunk 0: from 0 -> to 1\nend\n"},
        {{"rank 0, channel 0, worker 0, step 0 of wrong",
          "rank 1 is at step 0 (chunk 0: from 2 -> to 0) and waits for slot 0 from rank 2",
          "these waits form a cycle: 0 -> 1 -> 2 -> 0"}}};
    on_threads(3, 1, run_wrong_program, &wrong);
}

TEST_CASE("a rank whose program sends too little ends the chain")
{
    const struct wrong_programs wrong = {
        {HEAD("2", "1", "0") "worker 0\nchunk 0: from 1 -> out 0\nchunk 0: from 1 -> out 0\nend\n",
         HEAD("2", "1", "1") "worker 0\nchunk 0: in 0 -> to 0\nend\n"},
        {{"rank 0, channel 0, worker 0, step 1 of wrong", "waits for slot 1 from rank 1 over p2p",
          "rank 1 waits in no call"}}};
    on_threads(2, 1, run_wrong_program, &wrong);
}

/* In the second call, of data to rank 2 or their credit. */
struct loss {
    bool of_slots;
    struct words words;
};

static gyre_status reduce_once(gyre_comm *comm, float *data)
{
    GYRE_TRY(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_MAX, comm, NULL));
    return gyre_stream_synchronize(NULL, HOST);
}

static void lose_in_second_call(gyre_comm *comm, int rank, const struct loss *loss)
{
    struct stall_nowhere nowhere = {0};
    float *data = calloc(COUNT, sizeof(*data));
    CHECK_OK(reduce_once(comm, data));
    if (loss->of_slots && rank == 1)
        stall_lose(comm, 2, true, &nowhere);
    if (!loss->of_slots && rank == 2)
        stall_lose(comm, 1, false, &nowhere);
    struct test_pace pace;
    test_pace_start(&pace);
    (void)reduce_once(comm, data);
    expect_error(comm, rank, &pace, &loss->words);
    free(data);
}

static void *lose_on_thread(void *pointer)
{
    const struct rank_thread *own = pointer;
    lose_in_second_call(own->comm, own->rank, own->argument);
    return NULL;
}

static const struct loss lost_slot = {
    true,
    {{"rank 0, channel 0, worker 0, step ", " of ring all_reduce seq 2",
      "rank 2 is at step 1 (chunk 0: from 1 + in 0 -> to 3) and waits for slot 6 from rank 1",
      "rank 1 has sent slot 6 (", "and 6 have arrived: the rest is lost"}}};

TEST_CASE("a lost slot is told from one that was not sent")
{
    setenv("GYRE_ALGO", "ring", 1);
    on_threads(N, 1, lose_on_thread, &lost_slot);
}

TEST_CASE("lost credit is told from a slot that was not consumed")
{
    static const struct loss loss = {
        false,
        {{"rank 1, channel 0, worker 0, step 4 of ring all_reduce seq 2",
          "waits for credit from rank 2 over p2p, which has to consume slot 6",
          "rank 2 has consumed slot 6 (", "and 6 have arrived: the rest is lost"}}};
    setenv("GYRE_ALGO", "ring", 1);
    on_threads(N, 1, lose_on_thread, &loss);
}

TEST_RANK(lose_in_process)
{
    const char *over = argument;
    struct loss loss = lost_slot;
    loss.words.texts[5] = over;
    lose_in_second_call(comm, rank, &loss);
}

static void lose_between_processes(const char *transport, const char *over)
{
    test_set("GYRE_ALGO=ring", "GYRE_MAX_NCHANNELS=1", "GYRE_TIMEOUT=1000", NULL);
    setenv("GYRE_TRANSPORT", transport, 1);
    test_on_processes(N, lose_in_process, (void *)(uintptr_t)over);
}

TEST_RUNS("a slot that is lost between processes is named",
          lose_between_processes("shm", "still under way over shm"))
TEST_RUNS("a slot that is lost over sockets is named",
          lose_between_processes("socket", "still under way over socket"))

TEST_CASE("a slot of lines that is lost over sockets is named")
{
    setenv("GYRE_PROTO", "/ll", 1);
    lose_between_processes("socket", "still under way over socket");
}

TEST_CASE("a slot that is lost over rdma is named")
{
    if (getenv("TEST_RDMA") != NULL)
        lose_between_processes("ib", "still under way over ib");
}

static void *all_but_rank_2_call(void *pointer)
{
    static const struct words words = {{"rank 0, channel 0, worker 0, step ", "(chunk ",
                                        "from rank ", "over p2p",
                                        "rank 2 has not begun all_reduce(16384 B", "seq 1)"}};
    const struct rank_thread *own = pointer;
    float *data = calloc(COUNT, sizeof(*data));
    struct test_pace pace;
    test_pace_start(&pace);
    if (own->rank != 2)
        (void)reduce_once(own->comm, data);
    expect_error(own->comm, own->rank, &pace, &words);
    free(data);
    return NULL;
}

TEST_CASE("a rank that does not call ends the chain")
{
    setenv("GYRE_ALGO", "ring", 1);
    on_threads(N, 1, all_but_rank_2_call, NULL);
}

static void *call_in_other_order(void *pointer)
{
    static const struct words words = {
        {"rank 0, channel 0, worker 0, step ", "from rank 1 over p2p",
         "rank 1 has made the call, but it has not begun: other work is ahead of it"}};
    const struct rank_thread *own = pointer;
    float *data = calloc(COUNT, sizeof(*data));
    struct test_pace pace;
    test_pace_start(&pace);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_MAX,
                                 i == own->rank ? own->comm : own->other, NULL));
    expect_error(own->comm, own->rank, &pace, &words);
    free(data);
    return NULL;
}

TEST_RUNS("communicators that are called in another order are told apart",
          on_threads(2, 2, call_in_other_order, NULL))

TEST_ON_PROCESSES_WITH("a message that is not sent is named by its sender", 2, "GYRE_TIMEOUT=1000",
                       "GYRE_TRANSPORT=socket")
{
    static const struct words words = {
        {"rank 0, channel 0, worker 0, step 0 of sendrecv", "seq 1",
         "(chunk 0: from 1 -> out 0) waits for slot 0 from rank 1 over socket",
         "rank 1 has not made the call that fits recv(16384 B"}};
    float *data = calloc(COUNT, sizeof(*data));
    struct test_pace pace;
    test_pace_start(&pace);
    if (rank == 0)
        CHECK_OK(gyre_recv(data, COUNT, GYRE_FLOAT32, 1, comm, NULL));
    expect_error(comm, rank, &pace, &words);
    free(data);
}

/* Between the ranks and the parent. */
struct shared {
    uint64_t n_calls[N];
    uint32_t may_call; /* before rank 2's 5th call */
    int log[2];        /* pipe: what the ranks print */
};

static struct shared *share(void)
{
    struct shared *shared = test_share(sizeof(*shared));
    CHECK(pipe(shared->log) == 0);
    return shared;
}

TEST_RANK(reduce_until_error)
{
    static const struct words words = {{"rank 0, channel 0, worker 0, step ", " of ring all_reduce",
                                        "over shm", "from rank 2", "; rank 2 does not answer"}};
    struct shared *shared = argument;
    float *data = calloc(COUNT, sizeof(*data));
    struct test_pace pace;
    gyre_status status = GYRE_SUCCESS;
    test_pace_start(&pace);
    while (status == GYRE_SUCCESS) {
        test_pace_restart(&pace);
        status = reduce_once(comm, data);
        gyre_fetch_add_u64(&shared->n_calls[rank], 1);
    }
    if (rank != 2) /* its own stop is not its error */
        expect_error(comm, rank, &pace, &words);
    else
        test_pace_stop(&pace);
    free(data);
}

TEST_CASE("a stopped rank ends the chain")
{
    pid_t pids[N];
    struct shared *shared = share();
    test_set("GYRE_ALGO=ring", "GYRE_MAX_NCHANNELS=1", "GYRE_TIMEOUT=1000", "GYRE_TRANSPORT=shm",
             NULL);
    test_fork_ranks(N, reduce_until_error, shared, pids);
    test_await_u64(&shared->n_calls[2], 10);
    kill(pids[2], SIGSTOP);
    for (int rank = 0; rank < N; rank++)
        if (rank != 2)
            CHECK_MSG(test_wait_rank(pids[rank]), "rank %d", rank);
    kill(pids[2], SIGCONT);
    CHECK(test_wait_rank(pids[2]));
}

TEST_RANK(reduce_ten_times)
{
    struct shared *shared = argument;
    float *data = calloc(COUNT, sizeof(*data));
    dup2(shared->log[1], STDERR_FILENO);
    for (int i = 0; i < 10; i++) {
        while (rank == 2 && i == 4 && gyre_load_acquire_u32(&shared->may_call) == 0)
            poll(NULL, 0, 1);
        CHECK_OK(reduce_once(comm, data));
    }
    free(data);
}

static bool wait_for_line(const struct shared *shared, const struct words *words)
{
    FILE *log = fdopen(dup(shared->log[0]), "r");
    char line[4096];
    bool is_found = false;
    while (!is_found && log != NULL && fgets(line, sizeof(line), log) != NULL) {
        is_found = true;
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words->texts) && words->texts[i] != NULL; i++)
            is_found = is_found && strstr(line, words->texts[i]) != NULL;
        if (is_found)
            printf("     %s", strstr(line, "GYRE "));
    }
    if (log != NULL)
        fclose(log);
    return is_found;
}

TEST_CASE("a rank that calls late is named in a warning and goes on")
{
    static const struct words words = {
        {"makes no progress for ", "rank 0, channel 0, worker 0, step ", "ring all_reduce seq 5",
         "from rank 3 over shm", "; rank 2 has not begun all_reduce(", "seq 5)"}};
    pid_t pids[N];
    struct shared *shared = share();
    test_set("GYRE_ALGO=ring", "GYRE_MAX_NCHANNELS=1", "GYRE_STALL_WARN=1", "GYRE_TRANSPORT=shm",
             NULL);
    test_fork_ranks(N, reduce_ten_times, shared, pids);
    close(shared->log[1]); /* the pipe ends with the ranks */
    CHECK(wait_for_line(shared, &words));
    gyre_store_release_u32(&shared->may_call, 1);
    for (int rank = 0; rank < N; rank++)
        CHECK_MSG(test_wait_rank(pids[rank]), "rank %d", rank);
}

/* The text is good until the next call of this thread. */
static const char *dump(gyre_comm *comm)
{
    static _Thread_local char text[8192];
    FILE *file = tmpfile();
    CHECK(file != NULL);
    if (file == NULL)
        exit(1);
    CHECK_OK(gyre_comm_dump(comm, fileno(file)));
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void check_dump(gyre_comm *comm, int rank, const struct words *words)
{
    const char *text = dump(comm);
    check_words(text, rank, words);
    if (rank == 1)
        printf("%s", text);
}

static void *dump_then_call(void *pointer)
{
    static const struct words idle = {{"positions of 4 ranks, as rank 3 sees them",
                                       "waits in no call; the latest was all_reduce(16384 B"}};
    static const struct words busy = {{"as rank 1 sees them", "waits in all_reduce(16384 B",
                                       "channel 0, worker 0, step ", "of ring all_reduce seq 2",
                                       "waits for slot 6 from rank 0 over p2p",
                                       "waits in no call; the latest was all_reduce(16384 B"}};
    const struct rank_thread *own = pointer;
    pthread_barrier_t *barrier = (pthread_barrier_t *)(uintptr_t)own->argument;
    gyre_stream stream = NULL;
    float *data = calloc(COUNT, sizeof(*data));
    CHECK_OK(gyre_stream_create(&stream, HOST, -1));
    for (int i = 0; i < 2; i++) {
        if (i == 1) /* all have ended the first call */
            pthread_barrier_wait(barrier);
        if (i == 1 && own->rank == 3)
            check_dump(own->comm, own->rank, &idle);
        if (i == 1 && own->rank != 1)
            pthread_barrier_wait(barrier);
        CHECK_OK(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_MAX, own->comm, stream));
        if (i == 1 && own->rank == 1) {
            (void)gyre_stream_query(stream, HOST); /* polls once: the call begins */
            check_dump(own->comm, own->rank, &busy);
            pthread_barrier_wait(barrier);
        }
        CHECK_OK(gyre_stream_synchronize(stream, HOST));
    }
    CHECK_OK(gyre_stream_destroy(stream, HOST));
    free(data);
    return NULL;
}

TEST_CASE("a dump tells where all ranks are and disturbs no call")
{
    pthread_barrier_t barrier;
    setenv("GYRE_ALGO", "ring", 1);
    pthread_barrier_init(&barrier, NULL, N);
    on_threads(N, 1, dump_then_call, &barrier);
}

TEST_CASE("a dump of many ranks describes the most useful ones and counts the other ones")
{
    enum { N_MANY = 20, N_DESCRIBED = 16 };
    gyre_comm *comms[N_MANY];
    const char *text = "";
    int n_lines = 0;
    const gyre_config config = config_of(NULL);
    CHECK_OK(gyre_comm_init_all(comms, N_MANY, NULL, &config));
    CHECK_OK(gyre_comm_finalize(comms[19]));
    while (strstr(text, "has left") == NULL) /* until the message is there */
        text = dump(comms[5]);
    for (const char *at = text; (at = strstr(at, "\n  rank ")) != NULL; at++) {
        CHECK_MSG(n_lines != 0 || strncmp(at, "\n  rank 5 ", 10) == 0, "%s", text);
        CHECK_MSG(n_lines != 1 || strncmp(at, "\n  rank 19 ", 11) == 0, "%s", text);
        n_lines++;
    }
    CHECK_MSG(n_lines == N_DESCRIBED, "%d ranks: %s", n_lines, text);
    CHECK_HAS(text, " and 4 more ranks wait in no call\n");
    test_destroy_all(comms, N_MANY);
}

TEST_CASE("a dump that cannot be written is an error")
{
    gyre_comm *comm = NULL;
    const gyre_config config = config_of(NULL);
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    CHECK_BAD_ARGUMENT(gyre_comm_dump(NULL, 2), "");
    CHECK_FAILS(gyre_comm_dump(comm, -1), GYRE_ERROR_SYSTEM, "descriptor -1");
    CHECK_OK(gyre_comm_destroy(comm));
}

static gyre_status tell_no_positions(struct gyre_executor *executor, struct gyre_position *out,
                                     uint32_t most, uint32_t *n_out)
{
    (void)executor;
    (void)out;
    (void)most;
    (void)n_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "as on GPUs");
}

static gyre_status tell_no_end(struct gyre_executor *executor, const struct gyre_side_name *name,
                               struct gyre_side_state *state_out)
{
    (void)executor;
    (void)name;
    (void)state_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "as on GPUs");
}

static struct gyre_progress two_of_three(const struct gyre_executor *executor)
{
    return (struct gyre_progress){.completed = 2, .activity = executor->n_launched};
}

TEST_CASE("an executor that knows no steps says whether the call has begun")
{
    static const struct gyre_executor_ops ops = {
        .positions = tell_no_positions, .side_state = tell_no_end, .progress = two_of_three};
    static const char *const words[] = {"its kernel has not begun",
                                        "the position in the program is not known on this device"};
    for (uint64_t is_running = 0; is_running < 2; is_running++) {
        struct gyre_executor executor = {.ops = &ops, .n_launched = 2 + is_running};
        gyre_comm *comm = calloc(1, sizeof(*comm));
        struct gyre_health_peer peers[2] = {{0}};
        struct gyre_health health = {.comm = comm, .peers = peers};
        const struct gyre_record mine = {.sequence = 3};
        char why[GYRE_HEALTH_WHY_BYTES];
        comm->self.n_ranks = 2;
        comm->executor = &executor;
        gyre_health_look(&health);
        CHECK(!gyre_health_explain(&health, &mine, gyre_now_ns(), why, sizeof(why)));
        CHECK_MSG(strstr(why, words[is_running]) == why, "%s", why);
        free(comm);
    }
}

/* Rank 1 of 2 tells rank 0 where its workers are. Returns what rank 0 keeps; NULL = it drops the
 * message. */
static const struct gyre_health_waits *take(struct gyre_health_message *message, size_t n_bytes)
{
    static struct gyre_health_peer peers[2];
    static gyre_comm comm;
    static struct gyre_health health;
    free(peers[1].waits);
    peers[1].waits = NULL;
    comm.self.n_ranks = 2;
    health.comm = &comm;
    health.peers = peers;
    gyre_health_take_waits(&health, 1, message, n_bytes);
    return peers[1].waits;
}

static size_t fill(struct gyre_health_message *message, uint16_t n_waits)
{
    memset(message, 0, sizeof(*message));
    message->waits.version = GYRE_HEALTH_WAITS_VERSION;
    message->waits.n_waits = n_waits;
    message->waits.n_all = n_waits;
    return offsetof(struct gyre_health_message, waits) + offsetof(struct gyre_health_waits, waits) +
           n_waits * sizeof(struct gyre_health_wait);
}

TEST_CASE("malformed positions are dropped")
{
    static struct gyre_health_message message;
    struct gyre_position *position = &message.waits.waits[0].position;
    size_t n_bytes = fill(&message, GYRE_HEALTH_MAX_WAITS);
    CHECK(take(&message, n_bytes) != NULL);
    CHECK(take(&message, n_bytes - 1) == NULL);
    CHECK(take(&message, n_bytes + 1) == NULL);
    CHECK(take(&message, offsetof(struct gyre_health_message, waits) + 2) == NULL);
    message.waits.version++;
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, GYRE_HEALTH_MAX_WAITS + 1);
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, 1);
    position->peer = 2; /* the ranks are 0 and 1 */
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, 1);
    position->waits_for = GYRE_N_WAITS;
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, 1);
    position->coll = GYRE_N_COLLECTIVES;
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, 1);
    message.waits.waits[0].answer = GYRE_N_PEER_ENDS;
    CHECK(take(&message, n_bytes) == NULL);
    n_bytes = fill(&message, 1);
    message.waits.waits[0].transport = 200;
    CHECK(take(&message, n_bytes) == NULL);
}

TEST_CASE("text of other ranks ends, and steers no terminal")
{
    static struct gyre_health_message message;
    struct gyre_position *position = &message.waits.waits[0].position;
    const size_t n_bytes = fill(&message, 1);
    memset(position->step_text, '\33', sizeof(position->step_text));
    const struct gyre_health_waits *waits = take(&message, n_bytes);
    CHECK(waits != NULL);
    if (waits == NULL)
        return;
    const char *text = waits->waits[0].position.step_text;
    CHECK(strnlen(text, GYRE_STEP_TEXT_BYTES) == GYRE_STEP_TEXT_BYTES - 1);
    CHECK(strspn(text, "?") == GYRE_STEP_TEXT_BYTES - 1);
}

TEST_TOGETHER(N_AT_ONCE)
