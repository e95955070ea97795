/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"
#include "tests/nccl/profiler_plugin.h"

#include <dlfcn.h>

enum { N = 3, COUNT = 1000, ALL = 0x7fff };

static struct profiler_records records = {.lock = PTHREAD_MUTEX_INITIALIZER, .first_mask = ALL};

static void use(const char *plugin)
{
    char text[32];
    snprintf(text, sizeof(text), "%p", (void *)&records);
    setenv("TEST_PLUGIN_RECORDS", text, 1);
    setenv("NCCL_PROFILER_PLUGIN", plugin, 1);
}

static bool is_loaded(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL)
        dlclose(library);
    return library != NULL;
}

static void make_calls(ncclComm_t comm, int rank)
{
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)rank;
    for (int i = 0; i < 2; i++)
        NCCL_OK(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    CHECK(out[0] == N * (N - 1) / 2 && out[COUNT - 1] == out[0]);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(in, 10, ncclInt32, (rank + 1) % N, comm, NULL));
    NCCL_OK(ncclRecv(out, 10, ncclInt32, (rank + N - 1) % N, comm, NULL));
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclBroadcast(in, in, 5, ncclBfloat16, 1, comm, NULL));
    NCCL_OK(ncclGroupEnd());
    wait_for_stream();
}

TEST_CLIENT(run_job)
{
    make_calls(comm, client->rank);
}

static int count_of(unsigned type, int rank)
{
    int n = 0;
    for (int i = 0; i < records.n_events; i++)
        n += records.events[i].type == type && records.events[i].rank == rank;
    return n;
}

static void check_job(int n_comms)
{
    CHECK(records.n_wrong == 0 && records.n_events < MAX_EVENTS);
    CHECK_MSG(records.n_comms == n_comms, "%d", records.n_comms);
    for (int i = 0; i < records.n_comms; i++) {
        CHECK(records.comms[i].n_finalized == 1);
        CHECK(records.comms[i].n_ranks == N && records.comms[i].name[0] != '\0');
        CHECK(records.comms[i].id == records.comms[0].id);
    }
    for (int i = 0; i < records.n_events; i++) {
        const struct profiler_event *event = &records.events[i];
        const struct profiler_comm *comm = event->context;
        CHECK(event->n_stops == 1 && event->started < event->stopped);
        CHECK(comm != NULL && comm->rank == event->rank);
        if (event->parent != NULL) {
            CHECK(event->parent->started < event->started);
            CHECK(event->parent->context == event->context);
        }
        for (int state = 0; state < N_STATES; state++)
            if (event->states[state] != 0)
                CHECK(event->started < event->states[state] &&
                      event->states[state] < event->stopped);
    }
}

static void check_channels(const struct profiler_event *call)
{
    uint64_t seen = 0;
    int n = 0;
    for (int i = 0; i < records.n_events; i++) {
        const struct profiler_event *event = &records.events[i];
        if (event->type != NCCL_EVENT_KERNEL_CH || event->parent != call)
            continue;
        n++;
        seen |= 1ULL << event->channel;
        CHECK(event->states[NCCL_STATE_KERNEL_CH_STOP] != 0);
        CHECK(event->start_time > 0 && event->start_time <= event->stop_time);
    }
    CHECK_MSG(n == call->n_channels && n >= 1, "%d of %d", n, call->n_channels);
    CHECK(seen == (1ULL << n) - 1);
}

static void check_coll(const struct profiler_event *event, int *n_all_reduces)
{
    const bool is_all_reduce = strcmp(event->func, "AllReduce") == 0;
    CHECK(event->algorithm[0] != '\0' && strcmp(event->protocol, "SIMPLE") == 0);
    if (is_all_reduce) {
        CHECK(event->sequence == (uint64_t)(*n_all_reduces)++);
        CHECK(event->count == COUNT && strcmp(event->datatype, "ncclFloat32") == 0);
    } else {
        CHECK(strcmp(event->func, "Broadcast") == 0 && event->sequence == 0);
        CHECK(event->count == 5 && event->root_or_peer == 1);
        CHECK(strcmp(event->datatype, "ncclBfloat16") == 0);
    }
    check_channels(event);
}

static void check_group_api(const struct profiler_event *event)
{
    const int start = event->states[NCCL_STATE_GROUP_START_API_STOP];
    const int end = event->states[NCCL_STATE_GROUP_END_API_START];
    CHECK(start != 0 && start < end && event->count >= 1 && event->count <= 2);
    for (int i = 0; i < records.n_events; i++) {
        const struct profiler_event *child = &records.events[i];
        if (child->parent != event)
            continue;
        CHECK(child->stopped < event->stopped);
        CHECK(child->type == NCCL_EVENT_KERNEL_LAUNCH ? child->started > end
                                                      : child->stopped < end);
    }
}

static void check_counts(bool has_api)
{
    for (int rank = 0; rank < N; rank++) {
        const int n_launches = 4; /* the group's send and receive are one */
        CHECK(count_of(NCCL_EVENT_COLL, rank) == 3 && count_of(NCCL_EVENT_P2P, rank) == 2);
        CHECK(count_of(NCCL_EVENT_GROUP, rank) == n_launches);
        CHECK(count_of(NCCL_EVENT_KERNEL_LAUNCH, rank) == (has_api ? n_launches : 0));
        CHECK(count_of(NCCL_EVENT_GROUP_API, rank) == (has_api ? 3 : 0));
        CHECK(count_of(NCCL_EVENT_COLL_API, rank) == (has_api ? 3 : 0));
        CHECK(count_of(NCCL_EVENT_P2P_API, rank) == (has_api ? 2 : 0));
    }
}

static void run_version(const char *plugin, int version)
{
    use(plugin);
    start_clients(run_job, N, 1);
    check_job(N);
    check_counts(version >= 5);
    for (int rank = 0; rank < N; rank++) {
        int n_all_reduces = 0;
        for (int i = 0; i < records.n_events; i++) {
            const struct profiler_event *event = &records.events[i];
            if (event->rank != rank)
                continue;
            if (event->type == NCCL_EVENT_COLL)
                check_coll(event, &n_all_reduces);
            if (event->type == NCCL_EVENT_P2P) {
                const bool is_send = strcmp(event->func, "Send") == 0;
                CHECK(is_send || strcmp(event->func, "Recv") == 0);
                CHECK(event->count == 10 && strcmp(event->datatype, "ncclInt32") == 0);
                CHECK(event->root_or_peer == (event->rank + (is_send ? 1 : N - 1)) % N);
                check_channels(event);
            }
            if (event->type == NCCL_EVENT_GROUP_API)
                check_group_api(event);
            if (event->type != NCCL_EVENT_COLL && event->type != NCCL_EVENT_P2P)
                continue;
            if (version >= 5) {
                const bool is_coll = event->type == NCCL_EVENT_COLL;
                CHECK(event->parent->type ==
                      (unsigned)(is_coll ? NCCL_EVENT_COLL_API : NCCL_EVENT_P2P_API));
                CHECK(strcmp(event->parent->func, event->func) == 0 &&
                      event->parent->count == event->count);
                CHECK(strcmp(event->parent->datatype, event->datatype) == 0);
                CHECK(event->parent->parent->type == NCCL_EVENT_GROUP_API);
                CHECK(event->group->type == NCCL_EVENT_GROUP && event->group->rank == event->rank);
                CHECK(event->group->started < event->started &&
                      event->stopped < event->group->stopped);
            } else
                CHECK(event->parent->type == NCCL_EVENT_GROUP);
        }
    }
    CHECK(!is_loaded(plugin));
}

TEST_RUNS("a plugin of version 5 gets the whole tree", run_version(PLUGIN_5, 5))
TEST_RUNS("a plugin of version 6 gets the same", run_version(PLUGIN_6, 6))
TEST_RUNS("a plugin of version 4 gets groups, calls and channels", run_version(PLUGIN_4, 4))

TEST_CASE("communicators that do not block are profiled too")
{
    use(PLUGIN_5);
    start_clients(run_job, N, 0);
    check_job(N);
    check_counts(true);
}

TEST_CASE("only what is asked for and its parents are told")
{
    use(PLUGIN_5);
    records.first_mask = NCCL_EVENT_COLL;
    start_clients(run_job, N, 1);
    check_job(N);
    for (int rank = 0; rank < N; rank++) {
        CHECK(count_of(NCCL_EVENT_COLL, rank) == 3 && count_of(NCCL_EVENT_COLL_API, rank) == 3);
        CHECK(count_of(NCCL_EVENT_P2P, rank) == 0 && count_of(NCCL_EVENT_P2P_API, rank) == 0);
        CHECK(count_of(NCCL_EVENT_KERNEL_CH, rank) == 0);
        CHECK(count_of(NCCL_EVENT_KERNEL_LAUNCH, rank) == 0);
    }
}

TEST_CLIENT(change_mask)
{
    make_calls(comm, client->rank);
    __atomic_store_n(records.mask, ALL, __ATOMIC_RELAXED); /* by all ranks, after their calls */
    make_calls(comm, client->rank);
}

TEST_CASE("a plugin may ask for events later")
{
    use(PLUGIN_5);
    records.first_mask = 0;
    start_clients(change_mask, N, 1);
    check_job(N);
    for (int rank = 0; rank < N; rank++) /* another rank may have set it earlier */
        CHECK(count_of(NCCL_EVENT_COLL, rank) >= 3 && count_of(NCCL_EVENT_COLL, rank) <= 6);
}

TEST_CASE("without a mask nothing is told")
{
    use(PLUGIN_5);
    records.first_mask = 0;
    start_clients(run_job, N, 1);
    check_job(N);
    CHECK(records.n_events == 0);
}

TEST_CLIENT(cancel_group)
{
    float data[4] = {0};
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL));
    CHECK(ncclAllReduce(NULL, data, 4, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    NCCL_FAILS(ncclAllReduce(NULL, data, 4, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument,
               "send buffer is NULL");
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL));
    NCCL_OK(ncclGroupSimulateEnd(&info));
}

TEST_CASE("calls that are never launched end too")
{
    use(PLUGIN_5);
    start_clients(cancel_group, N, 1);
    check_job(N);
    for (int rank = 0; rank < N; rank++) {
        CHECK(count_of(NCCL_EVENT_COLL_API, rank) == 2);
        CHECK(count_of(NCCL_EVENT_GROUP_API, rank) == 2);
        CHECK(count_of(NCCL_EVENT_COLL, rank) == 0 && count_of(NCCL_EVENT_GROUP, rank) == 0);
    }
}

static pthread_barrier_t has_called;

TEST_CLIENT(abort_job)
{
    static float data[COUNT];
    if (client->rank == 0) {
        NCCL_OK(ncclAllReduce(data, data, COUNT, ncclFloat, ncclSum, comm, NULL));
        pthread_barrier_wait(&has_called);
        CHECK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST) != GYRE_SUCCESS);
    } else {
        pthread_barrier_wait(&has_called);
    }
    NCCL_OK(ncclCommAbort(comm));
    client->has_ended = true;
}

TEST_CASE("the events of an aborted call end")
{
    use(PLUGIN_5);
    pthread_barrier_init(&has_called, NULL, N);
    start_clients(abort_job, N, 1);
    pthread_barrier_destroy(&has_called);
    check_job(N);
    CHECK(count_of(NCCL_EVENT_COLL, 0) == 1 && count_of(NCCL_EVENT_KERNEL_CH, 0) >= 1);
    CHECK(!is_loaded(PLUGIN_5));
}

static int count_lines(const char *path, const char *words)
{
    char line[1200];
    int n = 0;
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL)
        n += strstr(line, words) != NULL;
    if (log != NULL)
        fclose(log);
    return n;
}

static void expect_warning(const char *plugin, const char *words)
{
    char path[] = "/tmp/gyre_profiler_XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    setenv("GYRE_DEBUG_FILE", path, 1);
    use(plugin);
    start_clients(run_job, N, 1);
    CHECK(count_lines(path, "NCCL_PROFILER_PLUGIN") == 1);
    CHECK_MSG(count_lines(path, words) == 1, "%s", words);
    CHECK(records.n_events == 0);
    CHECK(strchr(plugin, '/') == NULL || !is_loaded(plugin));
    unlink(path);
}

TEST_RUNS("a file that is not there is one warning",
          expect_warning("/nowhere/libnccl-profiler-x.so", "/nowhere/libnccl-profiler-x.so"))
TEST_RUNS("a short name is tried as a library",
          expect_warning("no_such_thing", "libnccl-profiler-no_such_thing.so"))
TEST_RUNS("a library without a table is one warning",
          expect_warning(PLUGIN_0, "none of ncclProfiler_v6, _v5 and _v4"))
TEST_RUNS("a table without a function is one warning", expect_warning(PLUGIN_1, "is NULL"))

TEST_CASE("an init that fails is one warning")
{
    records.fails = 1;
    expect_warning(PLUGIN_5, "returned 2");
}

TEST_RUNS("a static plugin is refused",
          expect_warning("STATIC_PLUGIN", "STATIC_PLUGIN is not supported"))

TEST_CASE("no plugin is loaded unless one is named")
{
    use("none");
    start_clients(run_job, N, 1);
    unsetenv("NCCL_PROFILER_PLUGIN");
    start_clients(run_job, N, 1);
    CHECK(records.n_comms == 0 && records.n_events == 0);
}
