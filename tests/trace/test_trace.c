/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/trace/trace.h"
#include "core/foundation/trace/trace_file.h"
#include "tests/support/host_programs.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/test_work.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

enum { MAX_LINES = 64, LEFT_OUT_BYTES = 987654321 };

static char *read_whole(const char *name, size_t *n_bytes_out)
{
    FILE *file = fopen(test_path("%s", name), "r");
    struct stat about = {0};
    CHECK_MSG(file != NULL, "%s", name);
    if (file == NULL)
        exit(1);
    CHECK(fstat(fileno(file), &about) == 0);
    char *text = calloc(1, (size_t)about.st_size + 1);
    *n_bytes_out = fread(text, 1, (size_t)about.st_size, file);
    fclose(file);
    return text;
}

static unsigned count_words(const char *text, const char *words)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words))
        n++;
    return n;
}

static unsigned read_pids(const char *name, unsigned *pids_out)
{
    size_t n_bytes;
    char *text = read_whole(name, &n_bytes);
    static const char line[] = "\"name\":\"gyre_rank\",\"pid\":";
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, line)) != NULL && n < MAX_LINES;) {
        at += sizeof(line) - 1;
        pids_out[n++] = (unsigned)strtoul(at, NULL, 10);
    }
    free(text);
    return n;
}

static void check_pids_differ(const char *name, unsigned n_expected)
{
    unsigned pids[MAX_LINES];
    const unsigned n = read_pids(name, pids);
    CHECK_MSG(n == n_expected, "%s: %u ranks", name, n);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < i; k++)
            CHECK_MSG(pids[i] != pids[k], "%s: ranks %u and %u have pid %u", name, k, i, pids[i]);
}

static uint64_t close_ns; /* 0 = the default */

static struct gyre_trace *open_trace(const char *name, int rank, uint64_t process_id, uint64_t job)
{
    struct gyre_trace *trace = NULL;
    const struct gyre_trace_config config = {.file = test_path("%s", name),
                                             .n_events = 64,
                                             .rank = rank,
                                             .n_ranks = 4,
                                             .file_rank = rank,
                                             .close_ns = close_ns};
    const struct gyre_trace_identity identity = {
        .communicator = "c", .job = job, .number = 2, .process_id = process_id};
    CHECK_OK(gyre_trace_open(&config, &trace));
    gyre_trace_identify(trace, &identity);
    return trace;
}

static void add_launches(struct gyre_trace *trace, unsigned n)
{
    struct gyre_trace_buffer *buffer = gyre_trace_use(trace, GYRE_TRACE_CALLER);
    for (unsigned i = 0; i < n; i++)
        *gyre_trace_next(buffer) = (struct gyre_trace_event){
            .kind = GYRE_TRACE_LAUNCH, .begin_ns = 1000 * (i + 1), .end_ns = 1000 * (i + 1) + 1};
}

TEST_CASE("ranks of one file have different pids")
{
    unsigned pids[MAX_LINES];
    /* Two communicators with one number, as those of one split. */
    for (int i = 0; i < 4; i++)
        gyre_trace_close(open_trace("t.json", i / 2, 1, i % 2 == 0 ? 0xa : 0xb));
    check_pids_differ("t.json", 4);
    CHECK(read_pids("t.json", pids) == 4);
    CHECK(pids[2] == pids[0] + 1 && pids[3] == pids[1] + 1); /* ranks 1 of both */
}

TEST_CASE("a failed write leaves what the file had")
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    size_t n_before, n_after;
    struct gyre_trace *trace = open_trace("t.json", 0, 1, 0xa);
    add_launches(trace, 20);
    gyre_trace_close(trace);
    char *before = read_whole("t.json", &n_before);
    trace = open_trace("t.json", 1, 1, 0xa);
    add_launches(trace, 60);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {n_before + 200, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    gyre_trace_close(trace);
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    char *after = read_whole("t.json", &n_after);
    CHECK_MSG(n_before == n_after && memcmp(before, after, n_before) == 0, "%zu, %zu bytes",
              n_before, n_after);
    gyre_trace_close(open_trace("t.json", 2, 1, 0xa)); /* the file can be continued */
    check_pids_differ("t.json", 2);
    free(before);
    free(after);
}

TEST_CASE("another process of this run adds to the file")
{
    struct gyre_trace *second = open_trace("t.json", 1, 2, 0xb);
    gyre_trace_close(open_trace("t.json", 0, 1, 0xa));
    gyre_trace_close(second); /* within one second */
    check_pids_differ("t.json", 2);
    gyre_trace_close(open_trace("t.json", 0, 3, 0xc)); /* that file is of an earlier run */
    check_pids_differ("t.json", 1);
}

static pthread_mutex_t file_system = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t writer_is_done = PTHREAD_COND_INITIALIZER;
static unsigned n_written; /* guarded by file_system */

gyre_status __real_gyre_trace_file_add(const struct gyre_trace_part *part);
gyre_status __wrap_gyre_trace_file_add(const struct gyre_trace_part *part);

gyre_status __wrap_gyre_trace_file_add(const struct gyre_trace_part *part)
{
    pthread_mutex_lock(&file_system);
    const gyre_status status = __real_gyre_trace_file_add(part);
    n_written++;
    pthread_cond_broadcast(&writer_is_done);
    pthread_mutex_unlock(&file_system);
    return status;
}

TEST_CASE("a file system that hangs does not hang the end of a trace")
{
    close_ns = 50000000;
    struct gyre_trace *trace = open_trace("t.json", 0, 1, 0xa);
    close_ns = 0;
    pthread_mutex_lock(&file_system);
    const unsigned n_before = n_written;
    gyre_trace_close(trace);
    CHECK(n_written == n_before && access(test_path("t.json"), F_OK) != 0);
    while (n_written == n_before) /* the server is back */
        pthread_cond_wait(&writer_is_done, &file_system);
    pthread_mutex_unlock(&file_system);
    check_pids_differ("t.json", 1);
}

TEST_CASE("clocks do not say which run a file is of")
{
    const struct timespec times[][2] = {{{1000, 0}, {1000, 0}}, {{1LL << 33, 0}, {1LL << 33, 0}}};
    for (int i = 0; i < 2; i++) {
        test_remove_files();
        struct gyre_trace *second = open_trace("t.json", 1, 2, 0xb);
        gyre_trace_close(open_trace("t.json", 0, 1, 0xa));
        CHECK(utimensat(AT_FDCWD, test_path("t.json"), times[i], 0) == 0);
        gyre_trace_close(second);
        check_pids_differ("t.json", 2);
        CHECK(utimensat(AT_FDCWD, test_path("t.json"), times[i], 0) == 0);
        gyre_trace_close(open_trace("t.json", 0, 3, 0xc));
        check_pids_differ("t.json", 1);
    }
}

TEST_CASE("an event that is not kept replaces no kept event")
{
    size_t n_bytes;
    struct gyre_trace *trace = open_trace("t.json", 0, 1, 0xa);
    struct gyre_trace_buffer *buffer = gyre_trace_use(trace, GYRE_TRACE_CALLER);
    add_launches(trace, 200);
    gyre_trace_begin(buffer)->n_bytes = LEFT_OUT_BYTES;
    gyre_trace_close(trace);
    char *text = read_whole("t.json", &n_bytes);
    CHECK(count_words(text, "\"name\":\"launch\",\"pid\"") == 63);
    CHECK(count_words(text, "987654321") == 0);
    CHECK_HAS(text, "\"lost_events\":137,");         /* 200 - 63 */
    CHECK_HAS(text, "\"complete_from_us\":138.001"); /* the end of the oldest one */
    free(text);
}

TEST_CASE("calls of programs that a trace has no room for run")
{
    enum { COUNT = 1000, N_PROGRAMS = 4096 };
    static unsigned char in[COUNT], out[COUNT];
    const struct gyre_trace_program empty = {.algorithm = "a"};
    struct host_rig rig;
    size_t n_bytes;
    struct gyre_trace *trace = open_trace("t.json", 0, 1, 0xa);
    host_rig_open_traced(&rig, 1, N_LANES, 2, 64, trace);
    struct gyre_loaded *first = load(&rig, 0, &send_recv_kind, 0, 1);
    for (uint32_t i = 1; i < N_PROGRAMS; i++)
        CHECK(gyre_trace_add_programs(trace, &empty, 1) == i);
    struct gyre_loaded *last = load(&rig, 0, &send_recv_kind, 0, 1);
    for (int i = 0; i < 3; i++) {
        const struct test_work work = {.loaded = i == 0 ? first : last,
                                       .in = in,
                                       .out = out,
                                       .split = {COUNT, 1, 1, 64, 1},
                                       .reduction = {.dtype = GYRE_UINT8, .op = GYRE_SUM}};
        memset(in, i + 1, COUNT);
        CHECK_OK(test_enqueue(rig.executors[0], &work, 1, rig.streams[0]));
        CHECK_OK(gyre_host_stream_synchronize(rig.streams[0]));
        CHECK(memcmp(in, out, COUNT) == 0);
    }
    gyre_executor_host.unload(rig.executors[0], first);
    gyre_executor_host.unload(rig.executors[0], last);
    host_rig_close(&rig);
    gyre_trace_close(trace);
    char *text = read_whole("t.json", &n_bytes);
    CHECK_HAS(text, "\"left_out_launches\":2,");
    CHECK(count_words(text, "\"cat\":\"call\"") == 1);
    free(text);
}

TEST_RANK(split_by_parity)
{
    gyre_comm *half = NULL;
    CHECK_OK(gyre_comm_split(comm, rank % 2, rank, &half, NULL));
    if (half != NULL)
        CHECK_OK(gyre_comm_destroy(half));
}

TEST_CASE("ranks of a split write the files of their parent's ranks")
{
    setenv("GYRE_TRACE_FILE", test_path("%%r.json"), 1);
    test_on_threads(4, split_by_parity, NULL);
    for (int rank = 0; rank < 4; rank++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.json", rank);
        check_pids_differ(name, 2); /* this rank of the parent, and its rank of the half */
    }
    setenv("GYRE_TRACE_FILE", test_path("all.json"), 1);
    test_on_threads(4, split_by_parity, NULL);
    check_pids_differ("all.json", 8);
}

/* The communicator has not ended yet. @argument: how many warnings there are by now. */
TEST_RANK(count_folder_warnings)
{
    const unsigned *n_expected = argument;
    size_t n_bytes;
    char *log = read_whole("log", &n_bytes);
    CHECK_MSG(count_words(log, "GYRE_TRACE_FILE: ") == *n_expected, "%s", log);
    CHECK_MSG(count_words(log, "/missing cannot be used: No such file or directory") == *n_expected,
              "%s", log);
    free(log);
}

TEST_CASE("a folder that does not exist is a warning at init")
{
    unsigned n_expected = 0;
    char missing[64];
    snprintf(missing, sizeof(missing), "%s/missing/t.json", test_root());
    setenv("GYRE_DEBUG_FILE", test_path("log"), 1);
    setenv("GYRE_TRACE_FILE", test_path("t.json"), 1);
    test_on_threads(1, count_folder_warnings, &n_expected);
    setenv("GYRE_TRACE_FILE", missing, 1);
    n_expected = 1;
    test_on_threads(1, count_folder_warnings, &n_expected);
    CHECK(access(test_path("t.json"), F_OK) == 0);
    CHECK(access(test_path("missing"), F_OK) != 0);
}
