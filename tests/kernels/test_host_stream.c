/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/device/host_stream.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/device.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <time.h>

struct job {
    struct gyre_task task;
    uint32_t n_polls; /* left until it is done */
    gyre_status status;
    const char *cause;
    const uint32_t *gate;  /* IDLE until it is 1; may be NULL */
    uint32_t *n_done;      /* may be NULL */
    uint32_t done_as;      /* which one it was, from 1 */
    uint32_t was_released; /* set by release */
};

static enum gyre_task_state poll_job(struct gyre_task *task, gyre_status *status_out)
{
    struct job *job = (struct job *)task;
    if (job->gate != NULL && gyre_load_acquire_u32(job->gate) == 0)
        return GYRE_TASK_IDLE;
    if (job->n_polls > 0) {
        job->n_polls--;
        return job->n_polls % 2 == 0 ? GYRE_TASK_IDLE : GYRE_TASK_MOVING;
    }
    if (job->n_done != NULL)
        job->done_as = gyre_fetch_add_u32(job->n_done, 1) + 1;
    if (job->status != GYRE_SUCCESS)
        *status_out = gyre_fail(job->status, "%s", job->cause);
    return GYRE_TASK_DONE;
}

static void release_job(struct gyre_task *task)
{
    gyre_store_release_u32(&((struct job *)task)->was_released, 1);
}

static struct job make_job(uint32_t n_polls, uint32_t *n_done)
{
    return (struct job){
        .task = {NULL, poll_job, release_job}, .n_polls = n_polls, .n_done = n_done};
}

static bool becomes(const uint32_t *word, uint32_t value)
{
    TEST_YIELD_UNTIL(gyre_load_acquire_u32(word) == value);
    return gyre_load_acquire_u32(word) == value;
}

TEST_CASE("tasks run one after the other in push order")
{
    enum { N_JOBS = 100 };
    static struct job jobs[N_JOBS];
    uint32_t n_done = 0;
    gyre_stream stream = NULL;
    CHECK_OK(gyre_host_stream_create(&stream));
    for (uint32_t i = 0; i < N_JOBS; i++) {
        jobs[i] = make_job(i % 5, &n_done);
        CHECK_OK(gyre_host_stream_push(stream, &jobs[i].task));
    }
    CHECK_OK(gyre_host_stream_synchronize(stream));
    for (uint32_t i = 0; i < N_JOBS; i++)
        CHECK(jobs[i].done_as == i + 1 && jobs[i].was_released == 1);
    CHECK_OK(gyre_host_stream_query(stream));
    CHECK_OK(gyre_host_stream_destroy(stream));
}

TEST_CASE("a queue that nobody synchronises makes progress")
{
    uint32_t n_done = 0;
    struct job jobs[3] = {make_job(50, &n_done), make_job(50, &n_done), make_job(1, &n_done)};
    gyre_stream stream = NULL;
    CHECK_OK(gyre_host_stream_create(&stream));
    CHECK_OK(gyre_host_stream_push(stream, &jobs[0].task));
    CHECK_OK(gyre_host_stream_push(stream, &jobs[1].task));
    CHECK(becomes(&jobs[1].was_released, 1));
    /* the helper sleeps for good */
    const struct timespec pause = {0, 60000000};
    nanosleep(&pause, NULL);
    CHECK_OK(gyre_host_stream_push(stream, &jobs[2].task));
    CHECK(becomes(&jobs[2].was_released, 1));
    CHECK_OK(gyre_host_stream_destroy(stream));
}

TEST_CASE("the first failure is returned once")
{
    struct job jobs[4];
    gyre_stream stream = NULL;
    CHECK_OK(gyre_host_stream_create(&stream));
    for (int i = 0; i < 4; i++) {
        jobs[i] = make_job(2, NULL);
        jobs[i].status = i == 1 ? GYRE_ERROR_REMOTE : i == 2 ? GYRE_ERROR_TIMEOUT : GYRE_SUCCESS;
        jobs[i].cause = i == 1 ? "rank 5 left" : "late";
        CHECK_OK(gyre_host_stream_push(stream, &jobs[i].task));
    }
    CHECK_FAILS(gyre_host_stream_synchronize(stream), GYRE_ERROR_REMOTE, "rank 5 left");
    CHECK(jobs[3].was_released == 1);
    CHECK_OK(gyre_host_stream_synchronize(stream));
    CHECK_OK(gyre_host_stream_destroy(stream));
}

TEST_CASE("the cause survives when the helper found it")
{
    struct job job = make_job(3, NULL);
    gyre_stream stream = NULL;
    job.status = GYRE_ERROR_SYSTEM;
    job.cause = "found by another thread";
    CHECK_OK(gyre_host_stream_create(&stream));
    CHECK_OK(gyre_host_stream_push(stream, &job.task));
    CHECK(becomes(&job.was_released, 1));
    CHECK_FAILS(gyre_host_stream_synchronize(stream), GYRE_ERROR_SYSTEM, "found by another thread");
    CHECK_OK(gyre_host_stream_destroy(stream));
}

TEST_CASE("a query never blocks and drives the queue")
{
    uint32_t gate = 0;
    struct job job = make_job(10, NULL);
    gyre_stream stream = NULL;
    job.gate = &gate;
    CHECK_OK(gyre_host_stream_create(&stream));
    CHECK_OK(gyre_host_stream_push(stream, &job.task));
    for (int i = 0; i < 1000; i++)
        CHECK(gyre_host_stream_query(stream) == GYRE_IN_PROGRESS);
    gyre_store_release_u32(&gate, 1);
    TEST_YIELD_UNTIL(gyre_host_stream_query(stream) != GYRE_IN_PROGRESS);
    CHECK(job.was_released == 1);
    CHECK_OK(gyre_host_stream_destroy(stream));
}

struct thread_job {
    struct job job;
    gyre_stream other;
    uint32_t *gate;
};

static void *push_to_default(void *argument)
{
    struct thread_job *own = argument;
    CHECK_OK(gyre_host_stream_synchronize(NULL)); /* not used yet: nothing to wait for */
    CHECK_OK(gyre_host_stream_push(NULL, &own->job.task));
    return NULL;
}

TEST_CASE("a default stream ends with its thread and finishes its work")
{
    struct thread_job own = {.job = make_job(20, NULL)};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, push_to_default, &own) == 0);
    pthread_join(thread, NULL);
    CHECK(own.job.was_released == 1);
    CHECK_BAD_ARGUMENT(gyre_host_stream_destroy(NULL), "default stream");
}

static void *open_gate_through_default(void *argument)
{
    struct thread_job *own = argument;
    CHECK_OK(gyre_host_stream_push(NULL, &own->job.task));
    CHECK_OK(gyre_host_stream_synchronize(NULL));
    gyre_store_release_u32(own->gate, 1);
    return NULL;
}

TEST_CASE("each thread has its own default stream")
{
    /* Stuck until the other thread's queue, also NULL, has run. */
    uint32_t gate = 0;
    struct job stuck = make_job(0, NULL);
    struct thread_job own = {.job = make_job(5, NULL), .gate = &gate};
    pthread_t thread;
    stuck.gate = &gate;
    CHECK_OK(gyre_host_stream_push(NULL, &stuck.task));
    CHECK(pthread_create(&thread, NULL, open_gate_through_default, &own) == 0);
    CHECK_OK(gyre_host_stream_synchronize(NULL));
    CHECK(stuck.was_released == 1 && own.job.was_released == 1);
    pthread_join(thread, NULL);
}

enum { N_THREADS = 4, N_ROUNDS = 300 };

static void *push_and_synchronise(void *argument)
{
    struct thread_job *own = argument;
    for (int i = 0; i < N_ROUNDS; i++) {
        own->job = make_job((uint32_t)i % 4, own->gate);
        CHECK_OK(gyre_host_stream_push(own->other, &own->job.task));
        if (i % 3 == 0)
            CHECK(becomes(&own->job.was_released, 1));
        CHECK_OK(gyre_host_stream_synchronize(own->other));
        CHECK(own->job.was_released == 1);
    }
    return NULL;
}

TEST_CASE("several threads may share a stream")
{
    uint32_t n_done = 0;
    gyre_stream stream = NULL;
    static struct thread_job own[N_THREADS];
    CHECK_OK(gyre_host_stream_create(&stream));
    for (int i = 0; i < N_THREADS; i++) {
        own[i].other = stream;
        own[i].gate = &n_done;
    }
    test_run_threads(push_and_synchronise, own, N_THREADS, sizeof(own[0]));
    CHECK(n_done == N_THREADS * N_ROUNDS);
    CHECK_OK(gyre_host_stream_destroy(stream));
}

TEST_CASE("the host device has memory and refuses NULL")
{
    const struct gyre_device_ops *ops = NULL;
    struct gyre_device *device = NULL;
    struct gyre_device_info info;
    void *ptr = NULL;
    CHECK_OK(gyre_device_find(GYRE_DEVICE_HOST, &ops));
    CHECK_OK(ops->open(-1, &device));
    CHECK_OK(ops->info(device, &info));
    CHECK(info.kind == GYRE_DEVICE_HOST && info.n_sms >= 1 && info.ordinal == -1);
    CHECK_OK(ops->mem_alloc(device, 100, &ptr));
    CHECK((uintptr_t)ptr % 4096 == 0);
    CHECK_OK(ops->zero(device, ptr, 100));
    CHECK_OK(ops->copy(device, ptr, "gyre", 5));
    CHECK(memcmp(ptr, "gyre\0\0", 6) == 0);
    CHECK_OK(ops->check_pointer(device, ptr));
    CHECK_BAD_ARGUMENT(ops->check_pointer(device, NULL), "NULL");
    CHECK_OK(ops->mem_free(device, ptr));
    CHECK_FAILS(ops->mem_alloc(device, SIZE_MAX - 4, &ptr), GYRE_ERROR_OUT_OF_MEMORY,
                "host memory");
    ops->close(device);
}

TEST_CASE("a stream that follows another waits for what is there")
{
    uint32_t n_done = 0;
    uint32_t gate = 0;
    struct job first = make_job(2, &n_done), later = make_job(2, &n_done);
    struct job behind = make_job(2, &n_done);
    gyre_stream streams[2];
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_host_stream_create(&streams[i]));
    first.gate = &gate;
    first.status = GYRE_ERROR_REMOTE;
    first.cause = "of the first stream alone";
    CHECK_OK(gyre_host_stream_push(streams[0], &first.task));
    CHECK_OK(gyre_host_stream_follow(streams[1], streams[0]));
    CHECK_OK(gyre_host_stream_push(streams[1], &behind.task));
    for (int i = 0; i < 1000; i++)
        CHECK(gyre_host_stream_query(streams[1]) == GYRE_IN_PROGRESS);
    CHECK(gyre_load_acquire_u32(&n_done) == 0);
    gyre_store_release_u32(&gate, 1);
    CHECK_OK(gyre_host_stream_synchronize(streams[1]));
    CHECK(first.done_as == 1 && behind.done_as == 2);
    /* Later tasks hold up no other stream. */
    gate = 0;
    later.gate = &gate;
    CHECK_OK(gyre_host_stream_push(streams[0], &later.task));
    CHECK_OK(gyre_host_stream_synchronize(streams[1]));
    gyre_store_release_u32(&gate, 1);
    CHECK_FAILS(gyre_host_stream_synchronize(streams[0]), GYRE_ERROR_REMOTE, "first stream alone");
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_host_stream_destroy(streams[i]));
}
