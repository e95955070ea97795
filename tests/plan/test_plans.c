/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "core/engine/plan/plan.h"
#include "tests/support/ranks.h"
#include "tests/support/shapes.h"

#ifdef TEST_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

static struct gyre_plan *plan_of(uint64_t count)
{
    struct gyre_plan *plan = calloc(1, sizeof(*plan));
    plan->key.count = count;
    plan->choice.n_channels = (uint32_t)count;
    return plan;
}

static const struct gyre_plan *find(struct gyre_plan_table *table, uint64_t count)
{
    const struct gyre_plan_key key = {.count = count};
    return gyre_plan_table_find(table, &key);
}

TEST_CASE("every byte of a key counts")
{
    static struct gyre_plan_table table;
    struct gyre_plan *plan = plan_of(1000);
    CHECK(find(&table, 1000) == NULL);
    gyre_plan_table_add(&table, plan);
    CHECK(find(&table, 1000) == plan);
    for (size_t byte = 0; byte <= offsetof(struct gyre_plan_key, op); byte++) {
        if (byte == offsetof(struct gyre_plan_key, options.zero))
            continue;
        /* With the plan's own key changed, only the comparison tells them apart. */
        unsigned char *bytes = (unsigned char *)&plan->key;
        bytes[byte] ^= 1;
        CHECK_MSG(find(&table, 1000) == NULL, "byte %zu does not count", byte);
        bytes[byte] ^= 1;
    }
    CHECK(find(&table, 1000) == plan);
    gyre_plan_table_close(&table);
}

static void find_neighbours(uint64_t *counts, int n)
{
    static struct gyre_plan_table table;
    int n_found = 1;
    counts[0] = 1;
    for (uint64_t count = 2; count < 1 << 20 && n_found < n; count++) {
        gyre_plan_table_add(&table, plan_of(1));
        for (int i = 0; i < GYRE_PLAN_PER_SET; i++)
            gyre_plan_table_add(&table, plan_of(count));
        if (find(&table, 1) == NULL)
            counts[n_found++] = count;
        gyre_plan_table_close(&table);
    }
    CHECK(n_found == n);
}

TEST_CASE("the plan that was not used for the longest time is replaced")
{
    static struct gyre_plan_table table;
    uint64_t counts[GYRE_PLAN_PER_SET + 1];
    const struct gyre_plan *plans[GYRE_PLAN_PER_SET + 1];
    find_neighbours(counts, GYRE_PLAN_PER_SET + 1);
    for (int i = 0; i < GYRE_PLAN_PER_SET; i++) {
        struct gyre_plan *plan = plan_of(counts[i]);
        gyre_plan_table_add(&table, plan);
        plans[i] = plan;
    }
    CHECK(find(&table, counts[0]) == plans[0]); /* used now: counts[1] is the oldest */
    gyre_plan_table_add(&table, plan_of(counts[GYRE_PLAN_PER_SET]));
    CHECK(find(&table, counts[1]) == NULL);
    CHECK(find(&table, counts[0]) == plans[0]);
    for (int i = 2; i < GYRE_PLAN_PER_SET; i++)
        CHECK(find(&table, counts[i]) == plans[i]);
    CHECK(find(&table, counts[GYRE_PLAN_PER_SET]) != NULL);
    /* A batch may still use it. */
    CHECK(plans[1]->key.count == counts[1] && plans[1]->choice.n_channels == counts[1]);
    CHECK(table.replaced == plans[1]);
    gyre_plan_table_sweep(&table);
    CHECK(table.replaced == NULL);
    gyre_plan_table_close(&table);
}

TEST_CASE("hundreds of plans are kept")
{
    static struct gyre_plan_table table;
    int n_kept = 0;
    for (uint64_t i = 0; i < 256; i++)
        gyre_plan_table_add(&table, plan_of(1000 + i * 4));
    for (uint64_t i = 0; i < 256; i++)
        n_kept += find(&table, 1000 + i * 4) != NULL;
    CHECK_MSG(n_kept >= 254, "%d of 256", n_kept);
    gyre_plan_table_close(&table);
}

enum { MAX_KEYS = 1024, ROOM_BYTES = 1 << 16, MAX_OFFSET = 16 };

/* Counts are of one block where buffers have blocks. */
struct test_call {
    enum gyre_collective coll;
    uint32_t count;
    gyre_dtype dtype; /* INT8 or INT32: sums wrap */
    gyre_op op;
    int root;
    bool in_place;
    bool in_window;
    uint32_t send_offset_bytes, recv_offset_bytes; /* from multiples of 16 */
    const char *algorithm;                         /* that the call names; NULL = none */
};

/* With its calls' keys. */
struct caller {
    gyre_comm *comm;
    int rank, n_ranks;
    gyre_stream stream;
    bool captures; /* into a graph, launched once */
    unsigned char *send, *recv, *window;
    unsigned char *image; /* of the host */
    int n_keys;
    struct plan_facts {
        enum gyre_collective coll;
        uint64_t count;
        gyre_dtype dtype;
        gyre_op op;
        int root;
        bool is_same, is_aligned, in_window, is_window_aligned;
        const char *algorithm;
        int settings;
    } keys[MAX_KEYS];
};

static const struct gyre_collective_traits *traits_of(const struct test_call *asked)
{
    return &gyre_collectives[asked->coll];
}

static int32_t input(int rank, uint64_t i)
{
    return (int32_t)(i % 11) + rank * 3 + 1;
}

static int32_t output(const struct caller *own, const struct test_call *asked, uint64_t i)
{
    const uint64_t count = asked->count;
    const bool in_blocks = traits_of(asked)->in_blocks;
    const uint64_t first = in_blocks ? (uint64_t)own->rank * count : 0;
    int32_t sum = 0;
    if (!traits_of(asked)->reduces) {
        const bool out_blocks = traits_of(asked)->out_blocks;
        const int from = out_blocks ? (int)(i / count) : asked->root;
        return input(from, first + (out_blocks ? i % count : i));
    }
    for (int rank = 0; rank < own->n_ranks; rank++)
        sum = asked->op == GYRE_MAX ? (input(rank, first + i) > sum ? input(rank, first + i) : sum)
                                    : sum + input(rank, first + i);
    return sum;
}

static void put(const struct caller *own, const struct test_call *asked, void *to, uint64_t n_elems)
{
    const uint64_t element = gyre_dtype_bytes(asked->dtype);
    for (uint64_t i = 0; i < n_elems; i++) {
        const int32_t value = input(own->rank, i);
        memcpy(own->image + i * element, &value, element); /* little-endian */
    }
    CHECK_OK(own->comm->self.device->ops->copy(own->comm->self.device, to, own->image,
                                               n_elems * element));
}

static void check(const struct caller *own, const struct test_call *asked, const void *from,
                  uint64_t n_elems)
{
    const uint64_t element = gyre_dtype_bytes(asked->dtype);
    uint64_t n_wrong = 0;
    CHECK_OK(own->comm->self.device->ops->copy(own->comm->self.device, own->image, from,
                                               n_elems * element));
    for (uint64_t i = 0; i < n_elems; i++) {
        const int32_t value = output(own, asked, i);
        n_wrong += memcmp(own->image + i * element, &value, element) != 0;
    }
    CHECK_MSG(n_wrong == 0, "%s of %u %s on rank %d, offsets %u and %u%s%s: %llu wrong",
              traits_of(asked)->name, asked->count, gyre_dtype_names[asked->dtype], own->rank,
              asked->send_offset_bytes, asked->recv_offset_bytes,
              asked->in_place ? ", in place" : "", asked->in_window ? ", in a window" : "",
              (unsigned long long)n_wrong);
}

static void note(struct caller *own, const struct plan_facts *facts)
{
    int i = 0;
    for (; i < own->n_keys; i++) {
        const struct plan_facts *at = &own->keys[i];
        if (at->coll == facts->coll && at->count == facts->count && at->dtype == facts->dtype &&
            at->op == facts->op && at->root == facts->root && at->is_same == facts->is_same &&
            at->is_aligned == facts->is_aligned && at->in_window == facts->in_window &&
            at->is_window_aligned == facts->is_window_aligned &&
            at->algorithm == facts->algorithm && at->settings == facts->settings)
            return;
    }
    CHECK(own->n_keys < MAX_KEYS);
    own->keys[own->n_keys++] = *facts;
}

static gyre_status call(const struct caller *own, const struct test_call *asked, const void *send,
                        void *recv)
{
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    static const int kinds[GYRE_N_COLLECTIVES] = {
        [GYRE_COLL_ALL_REDUCE] = GYRE_CALL_ALL_REDUCE,
        [GYRE_COLL_BROADCAST] = GYRE_CALL_BROADCAST,
        [GYRE_COLL_REDUCE] = GYRE_CALL_REDUCE,
        [GYRE_COLL_ALL_GATHER] = GYRE_CALL_ALL_GATHER,
        [GYRE_COLL_REDUCE_SCATTER] = GYRE_CALL_REDUCE_SCATTER,
        [GYRE_COLL_ALL_TO_ALL] = GYRE_CALL_ALL_TO_ALL,
        [GYRE_COLL_GATHER] = GYRE_CALL_GATHER,
        [GYRE_COLL_SCATTER] = GYRE_CALL_SCATTER,
    };
    args.kind = kinds[asked->coll];
    args.send = send;
    args.recv = recv;
    args.count = asked->count;
    args.dtype = asked->dtype;
    args.op = asked->op;
    args.root = asked->root;
    args.algorithm = asked->algorithm;
    return gyre_collective(&args, own->comm, own->stream);
}

#ifdef TEST_WITH_CUDA
static gyre_status call_by_graph(const struct caller *own, const struct test_call *asked,
                                 const void *send, void *recv)
{
    cudaStream_t stream = (cudaStream_t)own->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    CHECK(cudaSetDevice(own->comm->self.device_info.ordinal) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    const gyre_status status = call(own, asked, send, recv);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(ready, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(ready) == cudaSuccess);
    return status;
}
#else
#define call_by_graph call /* the host's streams cannot be captured */
#endif

/* Checks the values, too. @settings: a number for each state of the communicator's settings. */
static void run(struct caller *own, const struct test_call *asked, int settings)
{
    const struct gyre_collective_traits *traits = traits_of(asked);
    const uint64_t block = asked->count * gyre_dtype_bytes(asked->dtype);
    const uint64_t n = (uint64_t)own->n_ranks, own_block = block * (uint64_t)own->rank;
    const uint64_t n_in = (traits->in_blocks ? n : 1) * asked->count;
    const uint64_t n_out = (traits->out_blocks ? n : 1) * asked->count;
    const bool is_rooted = traits->has_root;
    const bool has_result = !is_rooted || asked->root == own->rank ||
                            asked->coll == GYRE_COLL_BROADCAST || asked->coll == GYRE_COLL_SCATTER;
    unsigned char *recv = (asked->in_window ? own->window : own->recv) + asked->recv_offset_bytes;
    unsigned char *send = own->send + asked->send_offset_bytes;
    if (asked->in_place && traits->in_blocks) /* as for a scatter and a reduce-scatter */
        recv = send + own_block;
    else if (asked->in_place)
        send = recv + (traits->out_blocks ? own_block : 0);
    CHECK(n_in * block / asked->count + MAX_OFFSET <= ROOM_BYTES);
    put(own, asked, send, n_in);
    CHECK_OK(own->captures ? call_by_graph(own, asked, send, recv) : call(own, asked, send, recv));
    CHECK_OK(gyre_stream_synchronize(own->stream, test_device()));
    if (has_result)
        check(own, asked, recv, n_out);
    const uintptr_t addresses = (uintptr_t)send | (uintptr_t)recv;
    const bool in_window =
        asked->in_window &&
        (asked->coll == GYRE_COLL_ALL_REDUCE || asked->coll == GYRE_COLL_ALL_GATHER ||
         asked->coll == GYRE_COLL_ALL_TO_ALL || asked->coll == GYRE_COLL_BROADCAST);
    const struct plan_facts facts = {
        .coll = asked->coll,
        .count = asked->count,
        .dtype = asked->dtype,
        .op = traits->reduces ? asked->op : GYRE_SUM,
        .root = is_rooted ? asked->root : -1,
        .is_same = send == recv,
        .is_aligned = addresses % 16 == 0 && block % 16 == 0,
        .in_window = in_window,
        .is_window_aligned = in_window && (uintptr_t)recv % 16 == 0,
        .algorithm = asked->algorithm,
        .settings = settings,
    };
    note(own, &facts);
}

static void open_caller(struct caller *own, gyre_comm *comm, int rank, int n_ranks)
{
    const int ordinal = comm->self.device_info.ordinal;
    unsigned char **const buffers[] = {&own->send, &own->recv, &own->window};
    memset(own, 0, sizeof(*own));
    own->comm = comm;
    own->rank = rank;
    own->n_ranks = n_ranks;
    own->image = malloc(ROOM_BYTES);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(buffers); i++) {
        CHECK_OK(gyre_mem_alloc((void **)buffers[i], ROOM_BYTES, test_device(), ordinal));
        CHECK((uintptr_t)*buffers[i] % 16 == 0);
    }
    CHECK_OK(gyre_stream_create(&own->stream, test_device(), ordinal));
}

static void check_plans(const struct caller *own, const char *what)
{
    CHECK_MSG(gyre_plans_made(&own->comm->plans) == (uint64_t)own->n_keys,
              "%s: %llu plans for %d keys", what,
              (unsigned long long)gyre_plans_made(&own->comm->plans), own->n_keys);
}

static void close_caller(struct caller *own)
{
    CHECK_OK(gyre_stream_destroy(own->stream, test_device()));
    CHECK_OK(gyre_mem_free(own->send, test_device()));
    CHECK_OK(gyre_mem_free(own->recv, test_device()));
    CHECK_OK(gyre_mem_free(own->window, test_device()));
    free(own->image);
}

static const enum gyre_collective colls[] = {
    GYRE_COLL_ALL_REDUCE,     GYRE_COLL_BROADCAST,  GYRE_COLL_REDUCE, GYRE_COLL_ALL_GATHER,
    GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_ALL_TO_ALL, GYRE_COLL_GATHER, GYRE_COLL_SCATTER};

static void run_all(struct caller *own, int settings)
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(colls); i++)
        for (uint32_t count = 64; count <= 256; count *= 2)
            for (uint32_t at = 0; at <= 48; at += 16) /* other buffers, the same key */
                run(own,
                    &(struct test_call){.coll = colls[i],
                                        .count = count,
                                        .dtype = GYRE_INT32,
                                        .root = (int)(count / 64) % own->n_ranks,
                                        .send_offset_bytes = at,
                                        .recv_offset_bytes = 48 - at},
                    settings);
}

TEST_RANK(call_collectives)
{
    static const gyre_op ops[] = {GYRE_SUM, GYRE_MAX};
    struct caller *own = malloc(sizeof(*own));
    const struct gyre_choice ring = {.algorithm = &gyre_algorithm_ring},
                             tree = {.algorithm = &gyre_algorithm_tree};
    const struct gyre_filter_words words = {.algos = "all_reduce:ring", .algo_source = "a test"};
    open_caller(own, comm, rank, n_ranks);
    for (int round = 0; round < 2; round++)
        run_all(own, 0);
    for (int i = 0; i < 4; i++)
        run(own,
            &(struct test_call){
                .coll = GYRE_COLL_ALL_REDUCE, .count = 64, .dtype = GYRE_INT32, .op = ops[i % 2]},
            0);
    check_plans(own, "collectives");
    const struct test_call reduce = {
        .coll = GYRE_COLL_ALL_REDUCE, .count = 128, .dtype = GYRE_INT32};
    for (int i = 0; i < 3; i++) {
        gyre_plan_force(&comm->plans, &ring);
        run(own, &reduce, 10 + i * 2);
        run(own, &reduce, 10 + i * 2);
        gyre_plan_force(&comm->plans, &tree);
        run(own, &reduce, 11 + i * 2);
        gyre_plan_force(&comm->plans, NULL);
        run(own, &reduce, 0); /* as before it was forced */
        check_plans(own, "forced ways");
    }
    for (int i = 0; i < 4; i++) { /* planned when they are checked, not launched */
        struct test_call named = reduce;
        named.algorithm = i % 2 == 0 ? "ring" : "tree";
        run(own, &named, 0);
    }
    check_plans(own, "calls that name their algorithm");
    CHECK_OK(gyre_plan_restrict(&comm->plans, &words));
    run(own, &reduce, 1);
    run(own, &reduce, 1);
    check_plans(own, "another filter");
    CHECK_OK(gyre_plan_use_file(&comm->plans, argument, "a test"));
    run(own, &reduce, 2);
    run(own, &reduce, 2);
    check_plans(own, "a file");
    gyre_plan_resume_file(&comm->plans);
    run(own, &reduce, 3);
    check_plans(own, "a file again");
    close_caller(own);
    free(own);
}

TEST_CASE("a plan is made once for each key")
{
    char path[] = "/tmp/gyre_test_plans_XXXXXX";
    FILE *to = fdopen(mkstemp(path), "w");
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};
    struct gyre_program **programs = emit_all(&gyre_algorithm_tree, &shape);
    for (int rank = 0; rank < shape.n_ranks; rank++) {
        char *text = NULL;
        CHECK_OK(gyre_program_to_text(programs[rank], &text));
        fputs(text, to);
        free(text);
    }
    free_programs(programs, shape.n_ranks);
    fclose(to);
    test_on_threads(1, call_collectives, path);
    test_on_threads(4, call_collectives, path);
    unlink(path);
}

/* Of old and new calls, and calls that only graphs had. */
static void call_in_graphs(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    struct caller *own = malloc(sizeof(*own));
    (void)argument;
    open_caller(own, comm, rank, n_ranks);
    for (int round = 0; round < 6; round++) {
        for (uint32_t i = 0; i <= 4; i++)
            run(own,
                &(struct test_call){.coll = colls[i],
                                    .count = 64U << round / 2,
                                    .dtype = GYRE_INT32,
                                    .recv_offset_bytes = 16 * i},
                0);
        check_plans(own, own->captures ? "graphs" : "calls between graphs");
        own->captures = round % 3 != 2; /* the second and third size are new in a graph */
    }
    close_caller(own);
    free(own);
}

TEST_CASE("a captured call has the plan of its key")
{
#ifdef TEST_WITH_CUDA
    const bool can_capture = test_device() == GYRE_DEVICE_CUDA;
#else
    const bool can_capture = false;
#endif
    if (!can_capture)
        test_skip_case("streams of the host cannot be captured");
    test_on_threads(1, call_in_graphs, NULL);
    test_on_threads(2, call_in_graphs, NULL);
}

static const struct plan_facts a_message = {
    .coll = GYRE_COLL_SEND_RECV, .dtype = GYRE_INT32, .is_aligned = true};

/* Messages to and from the next ranks and itself, and a collective. `op` tells sends and receives
 * of one peer and size apart. */
TEST_RANK(call_groups)
{
    struct caller *own = malloc(sizeof(*own));
    open_caller(own, comm, rank, n_ranks);
    for (int round = 0; round < 6; round++) {
        const uint64_t count = (uint64_t)64 << round % 2;
        put(own, &(struct test_call){.dtype = GYRE_INT32}, own->send, count);
        CHECK_OK(gyre_group_start());
        for (int peer = 0; peer < n_ranks; peer++) {
            struct plan_facts facts = a_message;
            const size_t at = (size_t)peer * 1024;
            facts.count = count;
            facts.root = peer;
            CHECK_OK(gyre_send(own->send, count, GYRE_INT32, peer, comm, own->stream));
            CHECK_OK(gyre_recv(own->recv + at, count, GYRE_INT32, peer, comm, own->stream));
            facts.op = GYRE_MAX; /* the send, with a copy to this rank */
            note(own, &facts);
            if (peer == rank)
                continue;
            facts.op = GYRE_MIN;
            note(own, &facts);
        }
        CHECK_OK(gyre_group_end());
        CHECK_OK(gyre_stream_synchronize(own->stream, test_device()));
        for (int peer = 0; peer < n_ranks; peer++)
            check(own,
                  &(struct test_call){
                      .coll = GYRE_COLL_BROADCAST, .root = peer, .count = 1, .dtype = GYRE_INT32},
                  own->recv + peer * 1024, count);
        check_plans(own, "a group");
        run(own,
            &(struct test_call){.coll = GYRE_COLL_ALL_REDUCE, .count = 64, .dtype = GYRE_INT32}, 0);
        check_plans(own, "a call after a group");
    }
    close_caller(own);
    free(own);
}

TEST_CASE("sends and receives of groups are planned once")
{
    test_on_threads(2, call_groups, NULL);
    test_on_threads(5, call_groups, NULL);
}

TEST_RANK(call_at_random)
{
    static const uint32_t counts[] = {16, 1000, 1024};
    struct caller *own = malloc(sizeof(*own));
    gyre_window window;
    unsigned dice = 12345;
    open_caller(own, comm, rank, n_ranks);
    CHECK_OK(gyre_window_register(comm, own->window, ROOM_BYTES, &window));
    for (int i = 0; i < 600; i++) {
        unsigned rolls[8];
        for (size_t k = 0; k < GYRE_ARRAY_LENGTH(rolls); k++) {
            dice = dice * 1103515245 + 12345; /* as in the C standard's example of rand() */
            rolls[k] = dice >> 16 & 0x7fff;
        }
        struct test_call asked = {
            .coll = colls[rolls[0] % GYRE_ARRAY_LENGTH(colls)],
            .count = counts[rolls[1] % GYRE_ARRAY_LENGTH(counts)],
            .dtype = rolls[2] % 2 == 0 ? GYRE_INT8 : GYRE_INT32,
            .in_place = rolls[3] % 3 == 0,
            .in_window = rolls[4] % 2 == 0,
            .send_offset_bytes = rolls[5] % 3 == 0 ? rolls[6] % MAX_OFFSET : 0,
            .recv_offset_bytes = rolls[5] % 4 == 0 ? rolls[7] % MAX_OFFSET : 0,
        };
        if (asked.dtype == GYRE_INT32) {
            asked.send_offset_bytes &= ~3U;
            asked.recv_offset_bytes &= ~3U;
        }
        if (asked.coll == GYRE_COLL_ALL_TO_ALL)
            asked.in_place = false; /* it has no such form */
        if (asked.in_place && traits_of(&asked)->in_blocks)
            asked.in_window = false; /* recv stands in the send buffer */
        run(own, &asked, 0);
    }
    check_plans(own, "calls at random");
    CHECK_OK(gyre_window_deregister(comm, window));
    close_caller(own);
    free(own);
}

TEST_CASE("calls with one key are right whatever came before")
{
    test_on_threads(1, call_at_random, NULL);
    test_on_threads(2, call_at_random, NULL);
    test_on_threads(4, call_at_random, NULL);
}
