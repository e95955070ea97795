/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/locale.h"
#include "tests/support/ranks.h"

#include <ctype.h>
#include <fcntl.h>

enum { N = 2, MAX_SAMPLES = 64 };

struct sample {
    char name[64];
    char rank[16];
    char collective[32];
    char up_to[32];
    double value;
};

struct file {
    struct sample samples[MAX_SAMPLES];
    int n_samples;
    int n_types;
};

static const char *take_name(const char *at, char *name_out, size_t name_bytes)
{
    size_t n = 0;
    CHECK(isalpha((unsigned char)*at) || *at == '_');
    while ((isalnum((unsigned char)*at) || *at == '_') && n + 1 < name_bytes)
        name_out[n++] = *at++;
    name_out[n] = '\0';
    return at;
}

static const char *take_label(const char *at, char *name_out, char *value_out, size_t value_bytes)
{
    size_t n = 0;
    at = take_name(at, name_out, 32);
    CHECK_MSG(at[0] == '=' && at[1] == '"', "\"%s\"", at);
    for (at += 2; *at != '"' && *at != '\0'; at++) {
        if (*at == '\\') {
            at++;
            CHECK(*at == '\\' || *at == '"' || *at == 'n');
        }
        if (n + 1 < value_bytes)
            value_out[n++] = *at;
    }
    CHECK(*at == '"');
    value_out[n] = '\0';
    return at + 1;
}

static void take_sample(const char *line, struct file *file)
{
    struct sample *sample = &file->samples[file->n_samples++];
    char *end = NULL;
    CHECK(file->n_samples < MAX_SAMPLES);
    memset(sample, 0, sizeof(*sample));
    const char *at = take_name(line, sample->name, sizeof(sample->name));
    CHECK_MSG(*at == '{', "\"%s\"", line);
    while (*at == '{' || *at == ',') {
        char name[32], value[80];
        at = take_label(at + 1, name, value, sizeof(value));
        if (strcmp(name, "rank") == 0)
            snprintf(sample->rank, sizeof(sample->rank), "%.15s", value);
        else if (strcmp(name, "collective") == 0)
            snprintf(sample->collective, sizeof(sample->collective), "%.31s", value);
        else if (strcmp(name, "up_to_bytes") == 0)
            snprintf(sample->up_to, sizeof(sample->up_to), "%.31s", value);
        else
            CHECK_MSG(strcmp(name, "comm") == 0 && strcmp(value, "a \"b\\\xef\xbf\xbd") == 0,
                      "%s=\"%s\"", name, value);
    }
    CHECK_MSG(at[0] == '}' && at[1] == ' ', "\"%s\"", line);
    sample->value = strtod(at + 2, &end);
    CHECK_MSG(end != at + 2 && *end == '\0', "\"%s\"", line);
}

static double value_of(const struct file *file, const char *name, const char *collective,
                       const char *up_to)
{
    for (int i = 0; i < file->n_samples; i++)
        if (strcmp(file->samples[i].name, name) == 0 &&
            strcmp(file->samples[i].collective, collective) == 0 &&
            strcmp(file->samples[i].up_to, up_to) == 0)
            return file->samples[i].value;
    return -1;
}

TEST_RANK(make_calls)
{
    static float in[N][2048], out[N][4096];
    for (int i = 0; i < 3; i++)
        CHECK_OK(gyre_all_reduce(in[rank], in[rank], 256, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_all_reduce(in[rank], in[rank], 257, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_all_gather(in[rank], out[rank], 2048, GYRE_FLOAT32, comm, NULL));
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(in[rank], 1, GYRE_FLOAT32, 1 - rank, comm, NULL));
    CHECK_OK(gyre_recv(out[rank], 1, GYRE_FLOAT32, 1 - rank, comm, NULL));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
}

static void *run_rank(void *argument)
{
    struct test_thread *own = argument;
    make_calls(own->comm, own->rank, N, NULL);
    CHECK_OK(gyre_comm_destroy(own->comm));
    return NULL;
}

static void run_ranks(void)
{
    struct test_thread threads[N];
    gyre_comm *comms[N];
    gyre_config config = test_config(0);
    config.name = "a \"b\\\xe9"; /* the last byte is no UTF-8 */
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    for (int rank = 0; rank < N; rank++)
        threads[rank] = (struct test_thread){.comm = comms[rank], .rank = rank};
    test_run_threads(run_rank, threads, N, sizeof(threads[0]));
}

TEST_CASE("the file counts calls and bytes by collective and size")
{
    char folder[] = "/tmp/gyre_metrics_XXXXXX", pattern[80], path[120];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pattern, sizeof(pattern), "%s/%%p-%%r%%%%n.prom", folder);
    setenv("GYRE_METRICS_FILE", pattern, 1);
    (void)test_enter_locale(); /* without it, a plain test */
    run_ranks();
    setlocale(LC_ALL, "C");
    for (int rank = 0; rank < N; rank++) {
        snprintf(path, sizeof(path), "%s/%ld-%d%%n.prom", folder, (long)getpid(), rank);
        struct file file = {.n_samples = 0};
        char line[600], name[64] = "";
        FILE *stream = fopen(path, "r");
        CHECK_MSG(stream != NULL, "%s", path);
        while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
            char *end = strchr(line, '\n');
            CHECK(end != NULL);
            if (end != NULL)
                *end = '\0';
            if (strncmp(line, "# TYPE ", 7) ==
                0) { /* every family is declared before its samples */
                const char *at = take_name(line + 7, name, sizeof(name));
                CHECK(strcmp(at, " counter") == 0 || strcmp(at, " gauge") == 0);
                file.n_types++;
            } else if (strncmp(line, "# HELP ", 7) != 0) {
                take_sample(line, &file);
                CHECK(strcmp(file.samples[file.n_samples - 1].name, name) == 0);
            }
        }
        if (stream != NULL)
            fclose(stream);
        CHECK(file.n_types == 6);
        CHECK(file.n_samples == 18 && atoi(file.samples[0].rank) == rank);
        CHECK(value_of(&file, "gyre_connection_failures_total", "", "") == 0);
        CHECK(value_of(&file, "gyre_connection_moves_total", "", "") == 0);
        CHECK(value_of(&file, "gyre_calls_total", "all_reduce", "1024") == 3);
        CHECK(value_of(&file, "gyre_bytes_total", "all_reduce", "1024") == 3 * 1024);
        CHECK(value_of(&file, "gyre_calls_total", "all_reduce", "4096") == 1);
        CHECK(value_of(&file, "gyre_bytes_total", "all_reduce", "4096") == 257 * 4);
        CHECK(value_of(&file, "gyre_calls_total", "all_gather", "16384") == 1);
        CHECK(value_of(&file, "gyre_bytes_total", "all_gather", "16384") == 2 * 2048 * 4);
        CHECK(value_of(&file, "gyre_calls_total", "send_recv", "1024") == 2);
        /* Times fit each other on every machine. */
        const double time_s = value_of(&file, "gyre_seconds_total", "all_gather", "16384");
        const double busbw =
            value_of(&file, "gyre_last_busbw_bytes_per_second", "all_gather", "16384");
        CHECK(time_s > 0 && busbw > 0);
        const double expected = 2 * 2048 * 4 * 0.5 / time_s; /* one call; factor (n - 1) / n */
        CHECK_MSG(busbw > 0.999 * expected && busbw < 1.001 * expected, "%g, %g", busbw, expected);
        CHECK(unlink(path) == 0);
    }
    CHECK(rmdir(folder) == 0); /* nothing else was left there */
}

TEST_CASE("a file that cannot be written does not fail the calls")
{
    setenv("GYRE_METRICS_FILE", "/nowhere/at/all", 1);
    run_ranks();
}

enum { HOLD_S = 20 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool holds;     /* renames wait */
    int n_held;     /* that wait or have waited */
    int n_given_up; /* whose wait ended without being released */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool wait_on_disk(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += HOLD_S;
    return pthread_cond_timedwait(&disk.changed, &disk.lock, &end) == 0;
}

/* In front of the C library's function. */
int rename(const char *from, const char *to)
{
    pthread_mutex_lock(&disk.lock);
    disk.n_held += disk.holds;
    pthread_cond_broadcast(&disk.changed);
    while (disk.holds)
        if (!wait_on_disk()) {
            disk.n_given_up++;
            break;
        }
    pthread_mutex_unlock(&disk.lock);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static void *run_rank_on_held_disk(void *argument)
{
    struct test_thread *own = argument;
    bool is_waiting = true;
    make_calls(own->comm, own->rank, N, NULL);
    pthread_mutex_lock(&disk.lock);
    while (disk.n_held < N && is_waiting) /* both ranks' files are being written */
        is_waiting = wait_on_disk();
    pthread_mutex_unlock(&disk.lock);
    CHECK(is_waiting);
    make_calls(own->comm, own->rank, N, NULL);
    pthread_mutex_lock(&disk.lock);
    own->argument = (void *)(uintptr_t)(disk.n_given_up == 0); /* the calls came first */
    pthread_mutex_unlock(&disk.lock);
    return NULL;
}

TEST_CASE("calls go on while the file cannot be written")
{
    struct test_thread threads[N];
    gyre_comm *comms[N];
    char folder[] = "/tmp/gyre_metrics_XXXXXX", pattern[80], path[120];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pattern, sizeof(pattern), "%s/%%r", folder);
    setenv("GYRE_METRICS_FILE", pattern, 1);
    disk.holds = true;
    const gyre_config host = test_config(0);
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &host));
    for (int rank = 0; rank < N; rank++)
        threads[rank] = (struct test_thread){.comm = comms[rank], .rank = rank};
    test_run_threads(run_rank_on_held_disk, threads, N, sizeof(threads[0]));
    for (int rank = 0; rank < N; rank++)
        CHECK(threads[rank].argument != NULL);
    pthread_mutex_lock(&disk.lock);
    disk.holds = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
    test_destroy_all(comms, N);
    for (int rank = 0; rank < N; rank++) {
        snprintf(path, sizeof(path), "%s/%d", folder, rank);
        CHECK(unlink(path) == 0);
    }
    CHECK(rmdir(folder) == 0);
}
