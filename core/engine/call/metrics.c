/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_METRICS_FILE: one rank's calls by collective and size, as text for Prometheus. Times come
 * from host streams only.
 */
#include "core/engine/call/batch.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to 1 KiB, 4 KiB, ... 1 GiB, and more. */
#define N_CLASSES      12
#define LEAST_BYTES    1024ULL
#define WRITE_EVERY_NS 1000000000ULL
#define LAST_WRITE_NS  2000000000ULL
#define LINE_BYTES     512
#define NAME_BYTES     64

struct cell {
    uint64_t n_calls;
    uint64_t n_bytes;
    uint64_t busy_ns;
    double last_bytes_per_s; /* 0 = none was timed */
};

struct table {
    struct cell cells[GYRE_N_COLLECTIVES][N_CLASSES];
    uint64_t n_broken;
    uint64_t n_resumed;
};

struct gyre_metrics {
    uint32_t n_holders; /* the communicator, the writer and spans; atomic */
    bool is_timed;
    int rank;
    int n_ranks;
    char name[NAME_BYTES];
    char path[PATH_MAX];
    pthread_t writer;     /* the only thread that writes the file */
    pthread_mutex_t lock; /* of the rest; not held while the file is written */
    pthread_cond_t closing;
    bool is_closing;
    bool has_ended;
    bool is_new;
    struct table table;
};

struct gyre_metrics_span {
    struct gyre_span span;
    struct gyre_metrics *metrics;
    uint64_t start_ns;
    enum gyre_collective coll;
    int size_class;
    double bus_bytes; /* that cross a rank's slowest link, as nccl-tests counts */
};

static void release_metrics(struct gyre_metrics *metrics)
{
    if (gyre_fetch_add_u32(&metrics->n_holders, UINT32_MAX) != 1)
        return;
    pthread_cond_destroy(&metrics->closing);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

static void free_span(struct gyre_span *span)
{
    release_metrics(((struct gyre_metrics_span *)span)->metrics);
    free(span);
}

static int class_of(uint64_t n_bytes)
{
    int size_class = 0;
    while (size_class < N_CLASSES - 1 && n_bytes > LEAST_BYTES << (2 * size_class))
        size_class++;
    return size_class;
}

static void note_begin(struct gyre_span *span, uint64_t now_ns)
{
    ((struct gyre_metrics_span *)span)->start_ns = now_ns;
}

static void note_end(struct gyre_span *span, uint64_t now_ns)
{
    const struct gyre_metrics_span *own = (const struct gyre_metrics_span *)span;
    const uint64_t time_ns = now_ns - own->start_ns;
    struct cell *cell = &own->metrics->table.cells[own->coll][own->size_class];
    GYRE_LOCKED(&own->metrics->lock);
    cell->busy_ns += time_ns;
    if (time_ns > 0)
        cell->last_bytes_per_s = own->bus_bytes / ((double)time_ns / 1e9);
    own->metrics->is_new = true;
}

static const struct gyre_span_ops span_ops = {note_begin, note_end, free_span};

/* Messages of one launch count singly, and their time once, in the class of the longest. */
struct gyre_metrics_span *gyre_metrics_begin(struct gyre_metrics *metrics,
                                             struct gyre_item *const *items, int n_items,
                                             gyre_stream stream)
{
    uint64_t longest_bytes = 0, all_bytes = 0;
    if (metrics == NULL)
        return NULL;
    pthread_mutex_lock(&metrics->lock);
    for (int i = 0; i < n_items; i++) {
        const struct gyre_call *call = &items[i]->call;
        /* The whole vector's, as nccl-tests counts. */
        const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
        const uint64_t block = call->count * gyre_dtype_bytes(call->dtype);
        const uint64_t n_bytes =
            traits->in_blocks || traits->out_blocks ? block * (uint64_t)metrics->n_ranks : block;
        struct cell *cell = &metrics->table.cells[call->coll][class_of(n_bytes)];
        cell->n_calls++;
        cell->n_bytes += n_bytes;
        all_bytes += n_bytes;
        longest_bytes = gyre_max_u64(longest_bytes, n_bytes);
    }
    metrics->is_new = true;
    pthread_mutex_unlock(&metrics->lock);
    struct gyre_metrics_span *span = metrics->is_timed ? calloc(1, sizeof(*span)) : NULL;
    if (span == NULL)
        return NULL;
    /* Bus bandwidth over the call's own: nccl-tests, PERFORMANCE.md. */
    const enum gyre_collective coll = items[0]->call.coll;
    const double n = metrics->n_ranks;
    const bool is_chain =
        coll == GYRE_COLL_BROADCAST || coll == GYRE_COLL_REDUCE || coll == GYRE_COLL_SEND_RECV;
    const double bus_factor = coll == GYRE_COLL_ALL_REDUCE ? 2 * (n - 1) / n
                              : is_chain                   ? 1
                                                           : (n - 1) / n;
    *span = (struct gyre_metrics_span){
        .metrics = metrics,
        .coll = coll,
        .size_class = class_of(longest_bytes),
        .bus_bytes = (double)all_bytes * bus_factor,
    };
    gyre_fetch_add_u32(&metrics->n_holders, 1);
    if (gyre_span_begin(&span->span, &span_ops, stream))
        return span;
    free_span(&span->span);
    return NULL;
}

void gyre_metrics_end(struct gyre_metrics_span *span, bool is_launched, gyre_stream stream)
{
    if (span != NULL)
        gyre_span_end(&span->span, is_launched, stream);
}

void gyre_metrics_count_connection(struct gyre_metrics *metrics, const gyre_connection_event *event)
{
    if (metrics == NULL)
        return;
    GYRE_LOCKED(&metrics->lock);
    ++*(event->kind == GYRE_CONNECTION_BROKE ? &metrics->table.n_broken
                                             : &metrics->table.n_resumed);
    metrics->is_new = true;
}

struct text {
    char *bytes;
    size_t n_bytes;
    size_t max_bytes;
};

static const struct family {
    const char *name;
    const char *type;
    const char *help;
} families[] = {
    {"gyre_calls_total", "counter", "Calls launched."},
    {"gyre_bytes_total", "counter", "Bytes of the calls' vectors."},
    {"gyre_seconds_total", "counter", "Time from a launch's turn on its stream to its end."},
    {"gyre_last_busbw_bytes_per_second", "gauge", "Bus bandwidth of the last timed launch."},
};

static const struct family connection_families[] = {
    {"gyre_connection_failures_total", "counter", "Connections of data that broke."},
    {"gyre_connection_moves_total", "counter",
     "Times that connections ran again, also over a rail that is back."},
};

/* Valid UTF-8, with backslashes, quotes and ends of lines escaped. */
static void escape(const char *name, char *out)
{
    char text[GYRE_TEXT_UTF8_BYTES(NAME_BYTES)];
    size_t n = 0;
    gyre_text_to_utf8(name, text, sizeof(text));
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' || *at == '"' || *at == '\n')
            out[n++] = '\\';
        out[n++] = *at == '\n' ? 'n' : *at == '\r' ? ' ' : *at;
    }
    out[n] = '\0';
}

static void add_line(struct text *text, const char *line)
{
    const size_t n = strlen(line);
    if (text->n_bytes + n <= text->max_bytes) {
        memcpy(text->bytes + text->n_bytes, line, n);
        text->n_bytes += n;
    }
}

static void add_cell(const struct gyre_metrics *metrics, const struct cell *cell, size_t family,
                     int coll, int size_class, struct text *text)
{
    char line[LINE_BYTES], name[GYRE_TEXT_UTF8_BYTES(NAME_BYTES)], size[32] = "+Inf";
    if (cell->n_calls == 0 || (family >= 2 && !metrics->is_timed))
        return;
    if (size_class < N_CLASSES - 1)
        snprintf(size, sizeof(size), "%llu", LEAST_BYTES << (2 * size_class));
    escape(metrics->name, name);
    const double values[] = {(double)cell->n_calls, (double)cell->n_bytes,
                             (double)cell->busy_ns / 1e9, cell->last_bytes_per_s};
    gyre_text_format(line, sizeof(line),
                     "%s{comm=\"%s\",rank=\"%d\",collective=\"%s\",up_to_bytes=\"%s\"} %.17g\n",
                     families[family].name, name, metrics->rank, gyre_collectives[coll].name, size,
                     values[family]);
    add_line(text, line);
}

static gyre_status write_file(const struct gyre_metrics *metrics, const struct table *table)
{
    const size_t n_families = GYRE_ARRAY_LENGTH(families);
    struct text text = {NULL, 0,
                        (size_t)LINE_BYTES * n_families * (2 + GYRE_N_COLLECTIVES * N_CLASSES) +
                            2 * LINE_BYTES * GYRE_ARRAY_LENGTH(connection_families)};
    const uint64_t counts[] = {table->n_broken, table->n_resumed};
    char line[LINE_BYTES], name[GYRE_TEXT_UTF8_BYTES(NAME_BYTES)];
    text.bytes = malloc(text.max_bytes);
    if (text.bytes == NULL)
        return gyre_fail_errno(ENOMEM, "metrics");
    for (size_t family = 0; family < n_families; family++) {
        snprintf(line, sizeof(line), "# HELP %s %s\n# TYPE %s %s\n", families[family].name,
                 families[family].help, families[family].name, families[family].type);
        add_line(&text, line);
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (int size_class = 0; size_class < N_CLASSES; size_class++)
                add_cell(metrics, &table->cells[coll][size_class], family, coll, size_class, &text);
    }
    escape(metrics->name, name);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(connection_families); i++) {
        const struct family *family = &connection_families[i];
        gyre_text_format(line, sizeof(line),
                         "# HELP %s %s\n# TYPE %s %s\n%s{comm=\"%s\",rank=\"%d\"} %" PRIu64 "\n",
                         family->name, family->help, family->name, family->type, family->name, name,
                         metrics->rank, counts[i]);
        add_line(&text, line);
    }
    const gyre_status status = gyre_file_replace(metrics->path, text.bytes, text.n_bytes);
    free(text.bytes);
    return status;
}

/* On its own thread, because neither calls nor the health thread may wait for a slow file
 * system. */
static void *write_news(void *argument)
{
    struct gyre_metrics *metrics = argument;
    struct table table;
    bool has_warned = false, is_open = true, is_new = false;
    gyre_log_set_rank(metrics->rank);
    while (is_open) {
        const uint64_t due_ns = gyre_now_ns() + WRITE_EVERY_NS;
        pthread_mutex_lock(&metrics->lock);
        while (!metrics->is_closing && gyre_now_ns() < due_ns)
            gyre_cond_wait_until(&metrics->closing, &metrics->lock, due_ns);
        is_open = !metrics->is_closing;
        is_new = metrics->is_new;
        if (metrics->is_new)
            table = metrics->table;
        metrics->is_new = false;
        pthread_mutex_unlock(&metrics->lock);
        if (is_new && write_file(metrics, &table) != GYRE_SUCCESS && !has_warned) {
            has_warned = true;
            GYRE_WARN("GYRE_METRICS_FILE: %s", gyre_cause());
        }
    }
    pthread_mutex_lock(&metrics->lock);
    metrics->has_ended = true;
    pthread_cond_broadcast(&metrics->closing);
    pthread_mutex_unlock(&metrics->lock);
    release_metrics(metrics);
    return NULL;
}

void gyre_metrics_close(struct gyre_metrics *metrics)
{
    if (metrics == NULL)
        return;
    const uint64_t deadline_ns = gyre_now_ns() + LAST_WRITE_NS;
    pthread_mutex_lock(&metrics->lock);
    metrics->is_closing = true;
    pthread_cond_broadcast(&metrics->closing);
    while (!metrics->has_ended && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&metrics->closing, &metrics->lock, deadline_ns);
    const bool has_ended = metrics->has_ended;
    pthread_mutex_unlock(&metrics->lock);
    if (has_ended) {
        pthread_join(metrics->writer, NULL);
    } else {
        GYRE_WARN("GYRE_METRICS_FILE: %s is not written after 2 s; the end of the communicator "
                  "does not wait for it",
                  metrics->path);
        pthread_detach(metrics->writer);
    }
    release_metrics(metrics);
}

gyre_status gyre_metrics_open(const gyre_comm *comm, struct gyre_metrics **metrics_out)
{
    *metrics_out = NULL;
    if (!gyre_param_is_set(&comm->self.params, GYRE_PARAM_METRICS_FILE))
        return GYRE_SUCCESS;
    struct gyre_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL)
        return gyre_fail_errno(ENOMEM, "metrics");
    /* Expands %n and %c; the rest is every file name's. */
    const char *pattern = gyre_param_text(&comm->self.params, GYRE_PARAM_METRICS_FILE);
    char name[PATH_MAX] = "";
    size_t n = 0;
    for (const char *at = pattern; *at != '\0' && n < sizeof(name); at++) {
        const char letter = at[0] == '%' ? at[1] : '\0';
        char piece[24] = {at[0], letter, '\0'};
        if (letter == 'n')
            snprintf(piece, sizeof(piece), "%" PRIu64, comm->self.number);
        else if (letter == 'c')
            snprintf(piece, sizeof(piece), "%08x",
                     (unsigned)(comm->self.job ^ comm->self.job >> 32));
        at += letter != '\0';
        n += (size_t)snprintf(name + n, sizeof(name) - n, "%s", piece);
    }
    gyre_status status =
        n >= sizeof(name) || !gyre_file_expand(name, comm->self.rank, metrics->path, PATH_MAX, NULL)
            ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "GYRE_METRICS_FILE is too long")
            : GYRE_SUCCESS;
    metrics->n_holders = 2;
    metrics->is_timed = comm->self.device_info.kind == GYRE_DEVICE_HOST;
    metrics->rank = comm->self.rank;
    metrics->n_ranks = comm->self.n_ranks;
    snprintf(metrics->name, sizeof(metrics->name), "%s", comm->self.name);
    pthread_mutex_init(&metrics->lock, NULL);
    gyre_cond_init(&metrics->closing);
    if (status == GYRE_SUCCESS)
        status = gyre_thread_start(&metrics->writer, 0, write_news, metrics, "metrics");
    if (status != GYRE_SUCCESS) {
        release_metrics(metrics); /* the writer's part */
        release_metrics(metrics);
        return status;
    }
    *metrics_out = metrics;
    return GYRE_SUCCESS;
}
