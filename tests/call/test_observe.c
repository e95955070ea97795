/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"
#include "core/engine/comm.h"
#include "core/foundation/model/types.h"
#include "tests/support/ranks.h"

enum { N = 2, COUNT = 512, MAX_STAGES = 64 };

/* S submitted, L launching, M launched, B begun, E ended, F finished */
struct seen {
    pthread_mutex_t lock;
    int n_tags;
    int n_closed;
    int n_launches;
    char stages[MAX_STAGES][8]; /* by tag */
    gyre_observed_call calls[MAX_STAGES];
    char algorithm[MAX_STAGES][32];
};

static struct seen seen[N];

static void add(struct seen *own, void *tag, char stage)
{
    pthread_mutex_lock(&own->lock);
    char *stages = own->stages[(uintptr_t)tag - 1];
    const size_t n = strlen(stages);
    CHECK(n < 7);
    stages[n] = stage;
    pthread_mutex_unlock(&own->lock);
}

static void *on_submitted(void *context, const gyre_observed_call *call)
{
    struct seen *own = context;
    void *tag = (void *)(uintptr_t)++own->n_tags;
    CHECK(call->tag == NULL && call->algorithm[0] == '\0');
    add(own, tag, 'S');
    return tag;
}

static void on_launching(void *context, const gyre_observed_call *calls, int n_calls)
{
    struct seen *own = context;
    own->n_launches++;
    for (int i = 0; i < n_calls; i++) {
        const uintptr_t at = (uintptr_t)calls[i].tag - 1;
        add(own, calls[i].tag, 'L');
        own->calls[at] = calls[i];
        snprintf(own->algorithm[at], sizeof(own->algorithm[at]), "%s", calls[i].algorithm);
        CHECK_MSG(strcmp(calls[i].protocol, "simple") == 0 ||
                      (test_device() == GYRE_DEVICE_CUDA && calls[i].protocol[0] != '\0'),
                  "\"%s\"", calls[i].protocol);
        CHECK(calls[i].n_channels >= 1);
    }
}

static void on_launched(void *context, const gyre_observed_call *calls, int n_calls)
{
    for (int i = 0; i < n_calls; i++)
        add(context, calls[i].tag, 'M');
}

static void on_begun(void *context, void *tag, uint64_t now_ns)
{
    CHECK(now_ns > 0);
    add(context, tag, 'B');
}

static void on_ended(void *context, void *tag, uint64_t now_ns)
{
    CHECK(now_ns > 0);
    add(context, tag, 'E');
}

static void on_finished(void *context, void *tag)
{
    add(context, tag, 'F');
}

static void on_closed(void *context)
{
    ((struct seen *)context)->n_closed++;
}

static gyre_observer observer_of(int rank)
{
    pthread_mutex_init(&seen[rank].lock, NULL);
    return (gyre_observer){
        .struct_bytes = sizeof(gyre_observer),
        .version = GYRE_VERSION,
        .context = &seen[rank],
        .submitted = on_submitted,
        .launching = on_launching,
        .launched = on_launched,
        .begun = on_begun,
        .ended = on_ended,
        .finished = on_finished,
        .closed = on_closed,
    };
}

/* Tags 1 and 2: alone; 3 and 4: a send and a receive of one launch; 5: cancelled; 6: refused, so it
 * has no tag. */
TEST_RANK(make_calls)
{
    const gyre_device_kind kind = test_device();
    gyre_stream stream = NULL;
    void *in = NULL, *out = NULL;
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    const gyre_observer observer = observer_of(rank);
    CHECK_OK(gyre_mem_alloc(&in, COUNT * sizeof(float), kind, rank));
    CHECK_OK(gyre_mem_alloc(&out, N * COUNT * sizeof(float), kind, rank));
    CHECK_OK(gyre_stream_create(&stream, kind, rank));
    CHECK_OK(gyre_comm_observe(comm, &observer));
    CHECK_BAD_USAGE(gyre_comm_observe(comm, &observer), "already");
    args.send = in;
    args.recv = in;
    args.count = COUNT;
    args.dtype = GYRE_FLOAT32;
    args.algorithm = "ring";
    CHECK_OK(gyre_collective(&args, comm, stream));
    CHECK_OK(gyre_all_gather(in, out, COUNT, GYRE_FLOAT32, comm, stream));
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(in, 3, GYRE_FLOAT32, 1 - rank, comm, stream));
    CHECK_OK(gyre_recv(out, 3, GYRE_FLOAT32, 1 - rank, comm, stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_all_gather(in, out, COUNT, GYRE_FLOAT32, comm, stream));
    CHECK_OK(gyre_group_cancel());
    CHECK(gyre_all_gather(NULL, out, COUNT, GYRE_FLOAT32, comm, stream) ==
          GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_OK(gyre_stream_synchronize(stream, kind));
    CHECK_OK(gyre_stream_destroy(stream, kind));
    CHECK_OK(gyre_mem_free(in, kind));
    CHECK_OK(gyre_mem_free(out, kind));
}

/* `begun` may come before `launched`. */
static bool are_all_stages(const char *stages)
{
    return strcmp(stages, "SLMBEF") == 0 || strcmp(stages, "SLBMEF") == 0;
}

TEST_CASE("every call goes through its stages")
{
    gyre_comm *comms[N];
    const gyre_config config = test_config(0);
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    test_on_comms(comms, N, make_calls, NULL);
    for (int rank = 0; rank < N; rank++) {
        const struct seen *own = &seen[rank];
        CHECK(own->n_tags == 5 && own->n_launches == 3 && own->n_closed == 1);
        for (int i = 0; i < 4; i++)
            CHECK_MSG(are_all_stages(own->stages[i]), "%s", own->stages[i]);
        CHECK_MSG(strcmp(own->stages[4], "SF") == 0, "%s", own->stages[4]);
        CHECK(own->calls[0].kind == GYRE_CALL_ALL_REDUCE && own->calls[0].root == -1);
        CHECK(strcmp(own->algorithm[0], "ring") == 0 && own->calls[0].count == COUNT);
        CHECK(own->calls[1].kind == GYRE_CALL_ALL_GATHER && own->calls[1].dtype == GYRE_FLOAT32);
        CHECK(own->calls[2].kind == GYRE_OBSERVED_SEND && own->calls[2].root == 1 - rank);
        CHECK(own->calls[3].kind == GYRE_OBSERVED_RECV && own->calls[3].count == 3);
    }
}

TEST_CASE("an observer that lacks a function is refused")
{
    gyre_comm *comm = NULL;
    const gyre_config config = test_config(0);
    gyre_observer observer = observer_of(0);
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    CHECK_BAD_ARGUMENT(gyre_comm_observe(comm, NULL), "observe");
    observer.ended = NULL;
    CHECK_BAD_ARGUMENT(gyre_comm_observe(comm, &observer), "lacks");
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK(seen[0].n_closed == 0);
}

/* Times as of a GPU: the launch that begins with work w ran from 1000 w + 1 to 1000 w + 9. */
static struct gyre_executor_ops timing_ops;
static bool refuses_times; /* as during a capture */

static gyre_status time_works(struct gyre_executor *executor)
{
    (void)executor;
    return GYRE_SUCCESS;
}

static bool time_next(struct gyre_executor *executor, gyre_stream stream)
{
    (void)executor;
    (void)stream;
    return !refuses_times;
}

static bool span_of(struct gyre_executor *executor, uint64_t work,
                    struct gyre_launch_span *span_out)
{
    (void)executor;
    *span_out = (struct gyre_launch_span){1000 * work + 1, 1000 * work + 9};
    return true;
}

static uint64_t told_ns[MAX_STAGES][2]; /* begin and end by tag */

static void keep_begin(void *context, void *tag, uint64_t now_ns)
{
    told_ns[(uintptr_t)tag - 1][0] = now_ns;
    add(context, tag, 'B');
}

static void keep_end(void *context, void *tag, uint64_t now_ns)
{
    told_ns[(uintptr_t)tag - 1][1] = now_ns;
    add(context, tag, 'E');
}

static void make_one_call(gyre_comm *comm)
{
    float in[COUNT] = {0};
    CHECK_OK(gyre_all_reduce(in, in, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
}

TEST_CASE("times that an executor knows are told after the end")
{
    gyre_comm *comm = NULL;
    gyre_config config = GYRE_CONFIG_INIT; /* on the host */
    struct seen *own = &seen[0];
    gyre_observer observer = observer_of(0);
    memset(own->stages, 0, sizeof(own->stages));
    own->n_tags = own->n_closed = 0;
    observer.begun = keep_begin;
    observer.ended = keep_end;
    config.device_kind = GYRE_DEVICE_HOST;
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    timing_ops = *comm->executor->ops;
    timing_ops.time_works = time_works;
    timing_ops.time_next = time_next;
    timing_ops.span_of = span_of;
    comm->executor->ops = &timing_ops;
    CHECK_OK(gyre_observing_open(&observer, comm->executor, &comm->observing));
    make_one_call(comm);
    CHECK_MSG(strcmp(own->stages[0], "SLM") == 0, "%s", own->stages[0]);
    make_one_call(comm); /* finds that the first call has ended */
    CHECK_MSG(strcmp(own->stages[0], "SLMBEF") == 0, "%s", own->stages[0]);
    refuses_times = true;
    make_one_call(comm);
    CHECK_MSG(strcmp(own->stages[2], "SLMF") == 0, "%s", own->stages[2]);
    refuses_times = false;
    make_one_call(comm);
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK(own->calls[0].is_timed == 1 && own->calls[2].is_timed == 0);
    for (uint64_t i = 0; i < 4; i++)
        CHECK_MSG(i == 2 || (strcmp(own->stages[i], "SLMBEF") == 0 &&
                             told_ns[i][0] == 1000 * i + 1 && told_ns[i][1] == 1000 * i + 9),
                  "%s %llu", own->stages[i], (unsigned long long)told_ns[i][0]);
    CHECK(own->n_closed == 1);
}
