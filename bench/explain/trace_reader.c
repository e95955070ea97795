/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/explain/trace_reader.h"

#include <stdlib.h>
#include <string.h>

void bench_trace_free(struct bench_trace *trace)
{
    free(trace->ranks);
    free(trace->calls);
    free(trace->steps);
    free(trace->ids);
    memset(trace, 0, sizeof(*trace));
}

#ifdef GYRE_BENCH_WITH_JSON

#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)

#define GROW(trace, name)                                                                 \
    gyre_grow(&(trace)->name, &(trace)->name##_capacity, (uint64_t)(trace)->n_##name + 1, \
              sizeof(*(trace)->name))

static double number(const struct json_object *object, const char *name)
{
    struct json_object *value;
    return json_object_object_get_ex(object, name, &value) ? json_object_get_double(value) : NAN;
}

static int integer(const struct json_object *object, const char *name)
{
    struct json_object *value;
    return json_object_object_get_ex(object, name, &value) ? json_object_get_int(value) : -1;
}

static const char *text(const struct json_object *object, const char *name)
{
    struct json_object *value;
    const char *words =
        json_object_object_get_ex(object, name, &value) ? json_object_get_string(value) : NULL;
    return words != NULL ? words : "";
}

static bool add_ids(struct bench_trace *trace, const struct json_object *args, const char *name,
                    uint32_t *first_out, uint32_t *n_out)
{
    struct json_object *list;
    *first_out = trace->n_ids;
    *n_out = 0;
    if (!json_object_object_get_ex(args, name, &list) ||
        !json_object_is_type(list, json_type_array))
        return true;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        const char *id = json_object_get_string(json_object_array_get_idx(list, i));
        if (id == NULL)
            continue;
        if (!GROW(trace, ids))
            return false;
        trace->ids[trace->n_ids++] = gyre_hash(GYRE_HASH_INIT, id, strlen(id));
        (*n_out)++;
    }
    return true;
}

static bool add_step(struct bench_trace *trace, const struct json_object *event,
                     const struct json_object *args)
{
    if (!GROW(trace, steps))
        return false;
    struct bench_trace_step *step = &trace->steps[trace->n_steps];
    *step = (struct bench_trace_step){
        .pid = integer(event, "pid") + trace->pid_shift,
        .lane = integer(event, "tid"),
        .call = integer(args, "call"),
        .channel = integer(args, "channel"),
        .worker = integer(args, "worker"),
        .tile = integer(args, "tile"),
        .step = integer(args, "step"),
        .n_bytes = number(args, "bytes"),
        .reduces = strcmp(text(event, "name"), "reduce") == 0,
        .begin_us = number(args, "begin_us"),
        .data_us = number(args, "data_us"),
        .ready_us = number(event, "ts"),
        .end_us = number(event, "ts") + number(event, "dur"),
    };
    if (!add_ids(trace, args, "received", &step->first_in, &step->n_ins) ||
        !add_ids(trace, args, "sent", &step->first_out, &step->n_outs))
        return false;
    /* NAN fails every comparison, so events without a time are left out. */
    trace->n_steps += step->begin_us <= step->data_us && step->data_us <= step->ready_us &&
                      step->ready_us <= step->end_us;
    return true;
}

static bool add_event(struct bench_trace *trace, const struct json_object *event)
{
    struct json_object *args;
    const bool is_slice = strcmp(text(event, "ph"), "X") == 0;
    if (!json_object_object_get_ex(event, "args", &args))
        return true;
    if (is_slice && strcmp(text(event, "cat"), "step") == 0)
        return add_step(trace, event, args);
    if (is_slice && strcmp(text(event, "cat"), "call") == 0) {
        const bool is_launch = strcmp(text(event, "name"), "launch") == 0;
        if (!GROW(trace, calls))
            return false;
        struct bench_trace_call *call = &trace->calls[trace->n_calls];
        *call = (struct bench_trace_call){
            .pid = integer(event, "pid") + trace->pid_shift,
            .call = integer(args, "call"),
            .launch_us = is_launch ? number(event, "ts") : -1,
            .begin_us = number(event, "ts"),
            .end_us = number(event, "ts") + number(event, "dur"),
            .n_bytes = number(args, "bytes"),
        };
        snprintf(call->collective, sizeof(call->collective), "%s", text(args, "collective"));
        snprintf(call->algorithm, sizeof(call->algorithm), "%s", text(args, "algorithm"));
        trace->n_calls += call->begin_us <= call->end_us;
    }
    if (strcmp(text(event, "name"), "gyre_rank") == 0) {
        struct json_object *shares = NULL;
        if (!GROW(trace, ranks))
            return false;
        json_object_object_get_ex(args, "shares_a_thread", &shares);
        struct bench_trace_rank *rank = &trace->ranks[trace->n_ranks++];
        *rank = (struct bench_trace_rank){
            .pid = integer(event, "pid") + trace->pid_shift,
            .rank = integer(args, "rank"),
            .shares_a_thread = json_object_get_boolean(shares) != 0,
            .complete_from_us = number(args, "complete_from_us"),
            .n_lost = number(args, "lost_events"),
            .n_left_out = number(args, "left_out_launches"),
        };
        snprintf(rank->communicator, sizeof(rank->communicator), "%s", text(args, "communicator"));
    }
    return true;
}

static gyre_status add_events(const char *path, const struct json_object *root,
                              struct bench_trace *traces, bool *is_simulated_out)
{
    struct json_object *about, *events;
    if (!json_object_object_get_ex(root, "otherData", &about) ||
        strcmp(text(about, "tool"), "gyre") != 0 ||
        !json_object_object_get_ex(root, "traceEvents", &events) ||
        !json_object_is_type(events, json_type_array))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is not a trace that gyre wrote", path);
    *is_simulated_out = strcmp(text(about, "source"), "simulated") == 0;
    struct bench_trace *trace = &traces[*is_simulated_out];
    int64_t most = -1;
    bool is_taken = false;
    for (uint32_t k = 0; k < trace->n_ranks; k++)
        most = trace->ranks[k].pid > most ? trace->ranks[k].pid : most;
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        const struct json_object *event = json_object_array_get_idx(events, i);
        if (strcmp(text(event, "name"), "gyre_rank") != 0)
            continue;
        for (uint32_t k = 0; k < trace->n_ranks; k++)
            is_taken = is_taken || trace->ranks[k].pid == integer(event, "pid");
    }
    trace->pid_shift = is_taken ? most + 1 : 0;
    for (size_t i = 0; i < json_object_array_length(events); i++)
        if (!add_event(trace, json_object_array_get_idx(events, i)))
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the events of %s", path);
    return GYRE_SUCCESS;
}

gyre_status bench_trace_read(const char *path, struct bench_trace *traces, bool *is_simulated_out)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    struct json_tokener *parser = json_tokener_new();
    struct json_object *root =
        parser != NULL ? json_tokener_parse_ex(parser, bytes, (int)n_bytes) : NULL;
    const char *why =
        parser != NULL ? json_tokener_error_desc(json_tokener_get_error(parser)) : "no memory";
    const gyre_status status =
        root != NULL ? add_events(path, root, traces, is_simulated_out)
                     : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s is not JSON: %s", path, why);
    json_object_put(root);
    if (parser != NULL)
        json_tokener_free(parser);
    free(bytes);
    return status;
}

#else

gyre_status bench_trace_read(const char *path, struct bench_trace *traces, bool *is_simulated_out)
{
    (void)traces;
    (void)is_simulated_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "%s cannot be read: gyre was built without json-c (install libjson-c-dev and "
                     "build again)",
                     path);
}

#endif
