/* SPDX-License-Identifier: Apache-2.0
 *
 * The child has one communicator over all devices; each of its events has a deadline.
 */
#include "bench/doctor/trial.h"

#include "core/foundation/base/util.h"
#include "core/foundation/device/device.h"
#include "bench/check/pattern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SMALL_BYTES  8
#define LARGE_BYTES  ((size_t)32 << 20)
#define N_SMALL      20
#define N_LARGE      4
#define TIMEOUT_MS   10000
#define HOST_DEVICES 3

struct copier {
    int fd;
    gyre_device_kind kind;
    int n;
    gyre_comm *comms[BENCH_MAX_PAIR_DEVICES];
    gyre_stream streams[BENCH_MAX_PAIR_DEVICES];
    void *buffers[BENCH_MAX_PAIR_DEVICES];
    struct gyre_device *devices[BENCH_MAX_PAIR_DEVICES];
};

static gyre_status synchronize(const struct copier *copier, int rank)
{
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_stream_synchronize(copier->streams[rank], copier->kind));
    GYRE_TRY(gyre_comm_async_error(copier->comms[rank], &status));
    if (status != GYRE_SUCCESS)
        gyre_set_cause(gyre_comm_last_error(copier->comms[rank]));
    return status;
}

static gyre_status enqueue(const struct copier *copier, int from, int to, size_t n_bytes)
{
    GYRE_TRY(gyre_group_start());
    gyre_status status = gyre_send(copier->buffers[from], n_bytes, GYRE_UINT8, to,
                                   copier->comms[from], copier->streams[from]);
    if (status == GYRE_SUCCESS)
        status = gyre_recv(copier->buffers[to], n_bytes, GYRE_UINT8, from, copier->comms[to],
                           copier->streams[to]);
    const gyre_status ended = gyre_group_end();
    return status != GYRE_SUCCESS ? status : ended;
}

static gyre_status copy(const struct copier *copier, int from, int to, size_t n_bytes)
{
    GYRE_TRY(enqueue(copier, from, to, n_bytes));
    GYRE_TRY(synchronize(copier, from));
    return synchronize(copier, to);
}

static gyre_status measure_pair(const struct copier *copier, int from, int to)
{
    struct bench_pair_event event = {.kind = BENCH_PAIR_START, .from = from, .to = to};
    bench_child_tell(copier->fd, &event, sizeof(event));
    struct gyre_pattern_errors errors = {0};
    const struct gyre_pattern pattern = {.dtype = GYRE_UINT8,
                                         .op = GYRE_SUM,
                                         .n_ranks = (uint32_t)copier->n,
                                         .seed = (uint32_t)(from * copier->n + to + 1)};
    const struct gyre_device_ops *ops = copier->devices[to]->ops;
    GYRE_TRY(ops->zero(copier->devices[to], copier->buffers[to], LARGE_BYTES));
    GYRE_TRY(gyre_pattern_fill(copier->devices[from], &pattern, (uint32_t)from, 0, LARGE_BYTES,
                               copier->buffers[from]));
    GYRE_TRY(copy(copier, from, to, LARGE_BYTES));
    GYRE_TRY(gyre_pattern_check_copy(copier->devices[to], &pattern, (uint32_t)from, 0, LARGE_BYTES,
                                     copier->buffers[to], &errors));
    if (errors.n_wrong > 0)
        return gyre_fail(
            GYRE_ERROR_DEVICE,
            "%llu of %zu bytes are wrong, the first one at %llu: the copy damages data",
            (unsigned long long)errors.n_wrong, LARGE_BYTES,
            (unsigned long long)errors.first_wrong);
    GYRE_TRY(copy(copier, from, to, SMALL_BYTES));
    uint64_t start_ns = gyre_now_ns();
    for (int i = 0; i < N_SMALL; i++)
        GYRE_TRY(copy(copier, from, to, SMALL_BYTES));
    event.latency_us = (double)(gyre_now_ns() - start_ns) / 1e3 / N_SMALL;
    start_ns = gyre_now_ns();
    for (int i = 0; i < N_LARGE; i++)
        GYRE_TRY(enqueue(copier, from, to, LARGE_BYTES));
    GYRE_TRY(synchronize(copier, from));
    GYRE_TRY(synchronize(copier, to));
    event.gbytes_per_s = (double)(N_LARGE * LARGE_BYTES) / (double)(gyre_now_ns() - start_ns);
    event.kind = BENCH_PAIR_DONE;
    bench_child_tell(copier->fd, &event, sizeof(event));
    return GYRE_SUCCESS;
}

static gyre_status open_devices(struct copier *copier)
{
    const struct gyre_device_ops *ops;
    gyre_config config = GYRE_CONFIG_INIT;
    GYRE_TRY(gyre_device_find(copier->kind, &ops));
    GYRE_TRY(ops->count(&copier->n));
    if (copier->kind == GYRE_DEVICE_HOST)
        copier->n = HOST_DEVICES;
    if (copier->n > BENCH_MAX_PAIR_DEVICES)
        copier->n = BENCH_MAX_PAIR_DEVICES;
    const struct bench_pair_event count = {.kind = BENCH_PAIR_COUNT, .from = copier->n};
    bench_child_tell(copier->fd, &count, sizeof(count));
    if (copier->n < 2)
        return GYRE_SUCCESS;
    config.device_kind = (int)copier->kind;
    config.timeout_ms = TIMEOUT_MS;
    GYRE_TRY(gyre_comm_init_all(copier->comms, copier->n, NULL, &config));
    for (int i = 0; i < copier->n; i++) {
        GYRE_TRY(ops->open(i, &copier->devices[i]));
        GYRE_TRY(gyre_stream_create(&copier->streams[i], copier->kind, i));
        GYRE_TRY(gyre_mem_alloc(&copier->buffers[i], LARGE_BYTES, copier->kind, i));
    }
    return GYRE_SUCCESS;
}

/* Nothing is released, as a broken device could hang, and the process ends. */
void bench_pairs_measure(int fd, const void *kind)
{
    struct copier copier = {.fd = fd, .kind = *(const gyre_device_kind *)kind};
    gyre_status status = open_devices(&copier);
    int from = -1, to = -1;
    for (int step = 1; status == GYRE_SUCCESS && step < copier.n; step++)
        for (int i = 0; status == GYRE_SUCCESS && i < copier.n; i++) {
            from = i;
            to = (i + step) % copier.n;
            status = measure_pair(&copier, from, to);
        }
    struct bench_pair_event last = {.kind = BENCH_PAIR_END, .from = from, .to = to};
    last.kind = status == GYRE_SUCCESS ? BENCH_PAIR_END : BENCH_PAIR_FAILED;
    snprintf(last.cause, sizeof(last.cause), "%.255s", gyre_cause());
    bench_child_tell(fd, &last, sizeof(last));
}

gyre_status bench_pairs_run(bench_pairs_function *measure, gyre_device_kind kind, int timeout_ms,
                            struct bench_pairs *pairs)
{
    struct bench_child child;
    struct bench_pair_event event;
    gyre_status status = GYRE_SUCCESS;
    memset(pairs, 0, sizeof(*pairs));
    pairs->from = pairs->to = -1;
    for (int i = 0; i < BENCH_MAX_PAIR_DEVICES; i++)
        for (int j = 0; j < BENCH_MAX_PAIR_DEVICES; j++)
            pairs->latency_us[i][j] = pairs->gbytes_per_s[i][j] = NAN;
    GYRE_TRY(bench_child_start(measure, &kind, &child));
    do {
        status = bench_child_take(&child, timeout_ms, "nothing", "copies", &event, sizeof(event));
        if (status != GYRE_SUCCESS)
            break;
        const bool is_legal =
            event.from >= 0 && event.from < pairs->n && event.to >= 0 && event.to < pairs->n;
        if (event.kind == BENCH_PAIR_COUNT) {
            pairs->n = event.from < BENCH_MAX_PAIR_DEVICES ? event.from : BENCH_MAX_PAIR_DEVICES;
        } else if (event.kind == BENCH_PAIR_START) {
            pairs->from = event.from;
            pairs->to = event.to;
        } else if (event.kind == BENCH_PAIR_DONE && is_legal) {
            pairs->latency_us[event.from][event.to] = event.latency_us;
            pairs->gbytes_per_s[event.from][event.to] = event.gbytes_per_s;
        } else if (event.kind == BENCH_PAIR_FAILED) {
            status = gyre_fail(GYRE_ERROR_DEVICE, "%.255s", event.cause);
        }
    } while (status == GYRE_SUCCESS && event.kind != BENCH_PAIR_END);
    bench_child_end(&child);
    return status;
}
