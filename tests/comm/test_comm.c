/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"
#include "core/engine/comm/local.h"
#include "core/engine/plan/plan.h"
#include "tests/support/jobs.h"

struct buffers {
    void *send;
    void *recv;
    void *block; /* what to free */
};

static void run_job(const struct test_job *job, const struct test_place *place)
{
    /* At element alignment only; in place where the job says so. */
    struct gyre_device *device = place->device;
    const struct gyre_collective_traits *traits = &gyre_collectives[job->coll];
    const size_t element = gyre_dtype_bytes(job->dtype);
    const size_t n_in = job->count * (traits->in_blocks ? (size_t)place->n_ranks : 1);
    const size_t n_out = job->count * (traits->out_blocks ? (size_t)place->n_ranks : 1);
    struct buffers b;
    CHECK_OK(device->ops->mem_alloc(device, (n_in + n_out + 64) * element, &b.block));
    char *memory = b.block;
    b.send = memory + element;
    b.recv = memory + (n_in + 3) * element;
    CHECK_OK(device->ops->zero(device, memory, (n_in + n_out + 64) * element));
    if (job->in_place && traits->out_blocks) {
        b.recv = memory + element;
        b.send = memory + element + (size_t)place->rank * job->count * element;
    } else if (job->in_place && traits->in_blocks) {
        b.recv = memory + element + (size_t)place->rank * job->count * element;
    } else if (job->in_place) {
        b.recv = b.send;
    }
    const struct gyre_pattern pattern = test_job_pattern(job, place->n_ranks);
    CHECK_OK(gyre_pattern_fill(device, &pattern, (uint32_t)place->rank, 0, n_in, b.send));
    struct gyre_pattern_errors errors = {0};
    CHECK_OK(test_job_call(job, place, b.send, b.recv));
    CHECK_OK(gyre_stream_synchronize(place->stream, test_device()));
    const uint64_t n_wrong = test_job_wrong(job, place, b.recv, &errors);
    CHECK_MSG(n_wrong == 0,
              "%s %s %s count %zu root %d in place %d rank %d of %d: %" PRIu64
              " wrong, first at %" PRIu64 ": %" PRIx64 " not %" PRIx64,
              gyre_collectives[job->coll].name, gyre_dtype_names[job->dtype],
              gyre_op_names[job->op], job->count, job->root, job->in_place, place->rank,
              place->n_ranks, n_wrong, errors.first_wrong, errors.got, errors.expected);
    CHECK_OK(place->device->ops->mem_free(place->device, b.block));
}

static const enum gyre_collective collectives[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_BROADCAST,
                                                   GYRE_COLL_REDUCE, GYRE_COLL_ALL_GATHER,
                                                   GYRE_COLL_REDUCE_SCATTER};

TEST_RANK(every_collective)
{
    const size_t counts[] = {0, 1, 3, 4099, 262147, 1000003};
    const bool is_whole = argument == NULL && n_ranks == 3; /* the largest one takes seconds */
    const size_t n_counts = GYRE_ARRAY_LENGTH(counts) - !is_whole - (getenv("TEST_FEW") != NULL);
    struct test_place place = test_place_open(comm);
    struct test_job job = {.seed = 1};
    for (size_t c = 0; c < GYRE_ARRAY_LENGTH(collectives); c++) {
        job.coll = collectives[c];
        for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
            for (int op = 0; op < GYRE_N_OPS; op++) {
                job.dtype = (gyre_dtype)dtype;
                job.op = (gyre_op)op;
                job.root = (int)(job.seed % (unsigned)n_ranks);
                job.in_place = job.seed % 2 == 1;
                job.count = (size_t)(job.seed * 37 % 1031);
                job.seed++;
                run_job(&job, &place);
                if (!gyre_collectives[job.coll].reduces)
                    break;
            }
        }
        for (size_t i = 0; i < n_counts; i++) {
            for (job.root = 0; job.root<n_ranks; job.root += n_ranks> 4 ? 3 : 1) {
                job.dtype = GYRE_FLOAT32;
                job.op = GYRE_SUM;
                job.count = counts[i];
                job.in_place = !job.in_place;
                job.seed++;
                run_job(&job, &place);
                if (!gyre_collectives[job.coll].has_root)
                    break;
            }
        }
    }
    test_place_close(&place);
}

TEST_RANK(all_to_all)
{
    enum { COUNT = 50021 };
    struct test_place place = test_place_open(comm);
    struct gyre_device *device = place.device;
    const size_t n_bytes = (size_t)n_ranks * COUNT * 2 * sizeof(int32_t);
    int32_t *expected = malloc(n_bytes);
    void *memory[2];
    CHECK_OK(device->ops->mem_alloc(device, n_bytes, &memory[0]));
    CHECK_OK(device->ops->mem_alloc(device, n_bytes, &memory[1]));
    int32_t *out = memory[0];
    int32_t *in = memory[1];
    for (int i = 0; i < n_ranks * COUNT * 2; i++)
        expected[i] = rank * 1000003 + i;
    CHECK_OK(device->ops->copy(device, out, expected, n_bytes));
    CHECK_OK(gyre_group_start());
    for (int turn = 0; turn < 2; turn++) {
        for (int peer = 0; peer < n_ranks; peer++) {
            if (peer == rank && turn == 1)
                continue;
            const size_t at = ((size_t)turn * (size_t)n_ranks + (size_t)peer) * COUNT;
            CHECK_OK(gyre_send(out + at, COUNT, GYRE_INT32, peer, comm, place.stream));
            CHECK_OK(gyre_recv(in + at, COUNT, GYRE_INT32, peer, comm, place.stream));
        }
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(place.stream, test_device()));
    int32_t *got = malloc(n_bytes);
    CHECK_OK(device->ops->copy(device, got, in, n_bytes));
    int n_wrong = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int peer = 0; peer < n_ranks; peer++)
            for (int i = 0; i < COUNT && !(peer == rank && turn == 1); i++)
                n_wrong += got[(turn * n_ranks + peer) * COUNT + i] !=
                           peer * 1000003 + (turn * n_ranks + rank) * COUNT + i;
    CHECK_MSG(n_wrong == 0, "%d wrong on rank %d", n_wrong, rank);
    CHECK_OK(device->ops->mem_free(device, memory[0]));
    CHECK_OK(device->ops->mem_free(device, memory[1]));
    free(expected);
    free(got);
    test_place_close(&place);
}

TEST_CASE("all collectives are right between threads")
{
    for (int n_ranks = 1; n_ranks <= 5; n_ranks++)
        test_on_threads(n_ranks, every_collective, NULL);
}

TEST_CASE("all collectives are right between processes")
{
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        test_on_processes(n_ranks, every_collective, NULL);
    test_on_processes(3, all_to_all, NULL);
}

TEST_CASE("all collectives are right with every algorithm")
{
    static const char *const algos[] = {
        "ring", "all_reduce:tree;broadcast:tree;reduce:tree", "direct",
        "all_reduce:twoshot;broadcast:twoshot;reduce:twoshot", "all_reduce:doubling"};
    /* Their steps move ranges of chunks. */
    static const char *const on_host[] = {
        "all_reduce:halving;reduce_scatter:pat;all_gather:bruck;all_to_all:bruck",
        "all_reduce:pat;reduce_scatter:halving;all_gather:pat"};
    bool is_short = true;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(on_host) && test_device() == GYRE_DEVICE_HOST; i++) {
        setenv("GYRE_ALGO", on_host[i], 1);
        test_on_threads(3, every_collective, &is_short);
        test_on_threads(6, every_collective, &is_short);
    }
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(algos); i++) {
        setenv("GYRE_ALGO", algos[i], 1);
        test_on_threads(3, every_collective, &is_short);
        test_on_threads(6, every_collective, &is_short);
    }
}

TEST_ON_HOST_THREADS("the ring of a host follows the numbers of the ranks", 3)
{
    for (int i = 0; i < n_ranks; i++)
        CHECK(comm->links.ring_prev[i] == (i + n_ranks - 1) % n_ranks);
}

/* A step of halving moves two chunks here, and a slot of 32 bytes holds 16 of each. */
TEST_ON_HOST_THREADS("ranges that do not fit a slot go in turns", 3)
{
    struct test_place place = test_place_open(comm);
    struct gyre_choice choice = {.algorithm = &gyre_algorithm_halving};
    int32_t in[100], out[300];
    for (choice.tile_bytes = 16; choice.tile_bytes <= 64; choice.tile_bytes += 16) {
        gyre_plan_force(gyre_comm_plans(comm), &choice);
        memset(out, 0, sizeof(out));
        for (int i = 0; i < 100; i++)
            in[i] = 1000 * rank + i;
        CHECK_OK(gyre_all_gather(in, out, 100, GYRE_INT32, comm, place.stream));
        CHECK_OK(gyre_stream_synchronize(place.stream, test_device()));
        for (int i = 0; i < 300; i++)
            CHECK(out[i] == 1000 * (i / 100) + i % 100);
    }
    gyre_plan_force(gyre_comm_plans(comm), NULL);
    test_place_close(&place);
}

TEST_CASE("all collectives are right over sockets")
{
    setenv("GYRE_TRANSPORT", "socket", 1);
    test_on_threads(3, every_collective, NULL);
}

TEST_CASE("messages of a group do not wait for each other")
{
    test_on_threads(1, all_to_all, NULL);
    test_on_threads(2, all_to_all, NULL);
    test_on_threads(4, all_to_all, NULL);
}

static gyre_status reduce_one(gyre_comm *comm, void *value, gyre_dtype dtype, gyre_op op)
{
    struct test_place place = test_place_open(comm);
    struct gyre_device *device = place.device;
    void *memory = NULL;
    CHECK_OK(device->ops->mem_alloc(device, 64, &memory));
    CHECK_OK(device->ops->copy(device, memory, value, gyre_dtype_bytes(dtype)));
    gyre_status status = gyre_all_reduce(memory, memory, 1, dtype, op, comm, place.stream);
    if (status == GYRE_SUCCESS)
        status = gyre_stream_synchronize(place.stream, test_device());
    char cause[512];
    snprintf(cause, sizeof(cause), "%s", gyre_last_error());
    CHECK_OK(device->ops->copy(device, value, memory, gyre_dtype_bytes(dtype)));
    CHECK_OK(device->ops->mem_free(device, memory));
    test_place_close(&place);
    gyre_set_cause(cause);
    return status;
}

TEST_ON_THREADS("a split makes smaller communicators", 5)
{
    gyre_comm *half = NULL;
    const int color = rank == n_ranks - 1 ? GYRE_SPLIT_NOCOLOR : rank % 2;
    CHECK_OK(gyre_comm_split(comm, color, -rank, &half, NULL));
    if (color == GYRE_SPLIT_NOCOLOR) {
        CHECK(half == NULL);
        return;
    }
    int n_half = 0;
    int half_rank = -1;
    CHECK_OK(gyre_comm_count(half, &n_half));
    CHECK_OK(gyre_comm_rank(half, &half_rank));
    CHECK(n_half == (n_ranks - color) / 2);
    CHECK(half_rank == n_half - 1 - rank / 2); /* the key reverses the order */
    int32_t sum = rank;
    int32_t expected = 0;
    for (int other = color; other < n_ranks - 1; other += 2)
        expected += other;
    CHECK_OK(reduce_one(half, &sum, GYRE_INT32, GYRE_SUM));
    CHECK(sum == expected);
    CHECK_OK(gyre_comm_destroy(half));
}

static int count_threads(void)
{
    char line[128];
    int n = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Threads: %d", &n) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return n;
}

TEST_ON_THREADS("a split leaves no rendezvous behind", 3)
{
    enum { N_SPLITS = 20 };
    const int n_before = count_threads();
    for (int i = 0; i < N_SPLITS; i++) {
        gyre_comm *child = NULL;
        CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
        CHECK_OK(gyre_comm_destroy(child));
    }
    /* A rendezvous ends a moment after its communicator, or much later if no rank joined it. */
    TEST_YIELD_UNTIL(count_threads() < n_before + N_SPLITS);
    CHECK_MSG(count_threads() < n_before + N_SPLITS, "%d threads, %d before", count_threads(),
              n_before);
}

TEST_ON_THREADS("a user scalar multiplies before the sum", 3)
{
    const float scalar = (float)(rank + 1);
    gyre_op op;
    CHECK_OK(gyre_op_create_premul_sum(&op, &scalar, GYRE_FLOAT32, comm));
    float value = 2.0F;
    double wide[1] = {0.0};
    float expected = 0.0F;
    for (int r = 0; r < n_ranks; r++)
        expected += 2.0F * (float)(r + 1);
    CHECK_OK(reduce_one(comm, &value, GYRE_FLOAT32, op));
    CHECK(value == expected);
    CHECK_BAD_ARGUMENT(reduce_one(comm, wide, GYRE_FLOAT64, op), "was made for float");
    CHECK_OK(gyre_op_destroy(op, comm));
    CHECK_BAD_ARGUMENT(reduce_one(comm, &value, GYRE_FLOAT32, op), "op_create_premul_sum");
}

TEST_ON_HOST_THREADS("a user scalar may go before its group ends", 3)
{
    static const float scalars[2] = {2.0F, 10.0F};
    float values[2] = {1.0F, 1.0F};
    CHECK_OK(gyre_group_start());
    for (int i = 0; i < 2; i++) {
        gyre_op op;
        CHECK_OK(gyre_op_create_premul_sum(&op, &scalars[i], GYRE_FLOAT32, comm));
        CHECK_OK(gyre_all_reduce(&values[i], &values[i], 1, GYRE_FLOAT32, op, comm, NULL));
        CHECK_OK(gyre_op_destroy(op, comm));
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    for (int i = 0; i < 2; i++)
        CHECK(values[i] == scalars[i] * (float)n_ranks);
}

TEST_ON_HOST_THREADS("an operation's number may mean another scalar later", 3)
{
    static const float scalars[2] = {2.0F, 10.0F};
    float value;
    for (int i = 0; i < 2; i++) {
        gyre_op op;
        value = 1.0F;
        CHECK_OK(gyre_op_create_premul_sum(&op, &scalars[i], GYRE_FLOAT32, comm));
        CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, op, comm, NULL));
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        CHECK(value == scalars[i] * (float)n_ranks);
        CHECK_OK(gyre_op_destroy(op, comm));
    }
}

TEST_ON_THREADS("a group can be simulated", 3)
{
    enum { N = 65536 };
    struct test_place place = test_place_open(comm);
    struct gyre_device *device = place.device;
    float value = (float)rank, sum = 0;
    double few_us = 0, many_us = 0, unset_us = -1;
    void *memory = NULL;
    CHECK_OK(device->ops->mem_alloc(device, N * sizeof(float), &memory));
    CHECK_OK(device->ops->copy(device, memory, &value, sizeof(value)));
    CHECK_BAD_USAGE(gyre_group_simulate_end(&few_us), "without group_start");
    CHECK_OK(gyre_group_start());
    CHECK_BAD_ARGUMENT(gyre_group_simulate_end(NULL), "NULL");
    CHECK_OK(gyre_all_reduce(memory, memory, 16, GYRE_FLOAT32, GYRE_SUM, comm, place.stream));
    CHECK_OK(gyre_group_simulate_end(&few_us));
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_all_reduce(memory, memory, N, GYRE_FLOAT32, GYRE_SUM, comm, place.stream));
    CHECK_OK(gyre_group_start());
    CHECK_BAD_USAGE(gyre_group_simulate_end(&unset_us), "inside another");
    CHECK_OK(gyre_broadcast(memory, memory, N, GYRE_FLOAT32, 0, comm, place.stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_group_simulate_end(&many_us));
    CHECK(few_us > 0 && many_us > 2 * few_us);
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(memory, 1, GYRE_FLOAT32, (rank + 1) % n_ranks, comm, place.stream));
    CHECK_FAILS(gyre_group_simulate_end(&unset_us), GYRE_ERROR_UNSUPPORTED, "sends or receives");
    CHECK(unset_us == -1);
    CHECK_OK(gyre_all_reduce(memory, memory, 1, GYRE_FLOAT32, GYRE_SUM, comm, place.stream));
    CHECK_OK(gyre_stream_synchronize(place.stream, test_device()));
    CHECK_OK(device->ops->copy(device, &sum, memory, sizeof(sum)));
    CHECK(sum == (float)(n_ranks * (n_ranks - 1) / 2));
    CHECK_OK(device->ops->mem_free(device, memory));
    test_place_close(&place);
}

TEST_ON_HOST_THREADS("a group can be cancelled", 3)
{
    gyre_comm *child = NULL;
    float value = (float)rank;
    int count = 0;
    CHECK_BAD_USAGE(gyre_group_cancel(), "without group_start");
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_group_start());
    CHECK_BAD_USAGE(gyre_group_cancel(), "inside another");
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
    CHECK_OK(gyre_group_cancel());
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK(value == (float)rank);
    CHECK_OK(gyre_comm_count(child, &count));
    CHECK(count == n_ranks);
    CHECK_OK(gyre_comm_destroy(child));
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK(value == (float)(n_ranks * (n_ranks - 1) / 2));
}
