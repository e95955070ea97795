/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/rank.h"

#include "core/foundation/base/util.h"
#include "bench/check/pattern.h"

#include <stdio.h>
#include <string.h>

gyre_config bench_config_of(const struct bench_options *options)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = options->device;
    if (options->n_channels > 0)
        config.min_channels = config.max_channels = options->n_channels;
    if (options->timeout_s > 0)
        config.timeout_ms = options->timeout_s * 1000;
    return config;
}

gyre_status bench_rank_ordinal(const struct bench_options *options, const struct bench_ranks *ranks,
                               int local, int *ordinal_out)
{
    const int index_on_host = ranks->launcher->local_process * ranks->n_local + local;
    const struct gyre_device_ops *ops;
    int n_devices = 0;
    GYRE_TRY(gyre_device_find((gyre_device_kind)options->device, &ops));
    GYRE_TRY(ops->count(&n_devices));
    *ordinal_out =
        ops->kind == GYRE_DEVICE_CUDA && n_devices > 0 ? index_on_host % n_devices : index_on_host;
    return GYRE_SUCCESS;
}

gyre_status bench_library_open_buffers(const struct bench_library *library, struct bench_rank *rank)
{
    struct bench_buffers *buffers = &rank->buffers;
    void **const both[] = {&buffers->send, &buffers->recv};
    /* one more element, for -u */
    buffers->n_bytes = gyre_round_up(rank->options->max_bytes, 16) + 16;
    for (int i = 0; i < 2; i++)
        GYRE_TRY(library->mem_alloc(both[i], buffers->n_bytes, rank->device_kind, rank->ordinal));
    if (rank->options->registration == 2)
        return library->window_register(rank->comm, buffers->recv, buffers->n_bytes, &rank->window);
    for (int i = 0; i < 2 && rank->options->registration == 1; i++)
        GYRE_TRY(library->comm_register(rank->comm, *both[i], buffers->n_bytes,
                                        &rank->registrations[i]));
    return GYRE_SUCCESS;
}

void bench_library_leave(const struct bench_library *library, struct bench_rank *rank,
                         bool is_orderly)
{
    if (rank->stream != NULL)
        (void)library->stream_destroy(rank->stream, rank->device_kind);
    for (int i = 0; i < 2; i++)
        if (rank->registrations[i] != NULL)
            (void)library->comm_deregister(rank->comm, rank->registrations[i]);
    if (rank->window != 0 && is_orderly)
        (void)library->window_deregister(rank->comm, rank->window);
    if (rank->comm != NULL)
        (void)library->comm_destroy(rank->comm);
    if (rank->buffers.send != NULL)
        (void)library->mem_free(rank->buffers.send, rank->device_kind);
    if (rank->buffers.recv != NULL)
        (void)library->mem_free(rank->buffers.recv, rank->device_kind);
}

gyre_status bench_rank_open(struct bench_rank *rank, const gyre_unique_id *id,
                            gyre_comm *const *comms_of_process)
{
    if (comms_of_process != NULL) {
        rank->comm = comms_of_process[rank->self.local];
    } else {
        gyre_config config = bench_config_of(rank->options);
        GYRE_TRY(bench_rank_ordinal(rank->options, rank->self.ranks, rank->self.local,
                                    &config.device_ordinal));
        GYRE_TRY(
            gyre_comm_init_rank(&rank->comm, rank->self.n_ranks, id, rank->self.rank, &config));
    }
    struct gyre_plan_cache *plans = gyre_comm_plans(rank->comm);
    GYRE_TRY(gyre_plan_restrict(plans, &rank->allowed));
    if (rank->options->algo_file != NULL) {
        GYRE_TRY(gyre_plan_use_file(plans, rank->options->algo_file, "--algo-file"));
        GYRE_TRY(gyre_plan_check_file(plans, rank->kind->coll, rank->options->registration == 2));
    }
    const struct gyre_device_ops *ops;
    GYRE_TRY(gyre_comm_device(rank->comm, &rank->device_kind, &rank->ordinal));
    GYRE_TRY(gyre_device_find(rank->device_kind, &ops));
    GYRE_TRY(ops->open(rank->ordinal, &rank->device));
    if (!rank->options->is_stream_null)
        GYRE_TRY(gyre_stream_create(&rank->stream, rank->device_kind, rank->ordinal));
    return bench_library_open_buffers(&bench_linked_library, rank);
}

void bench_rank_close(struct bench_rank *rank)
{
    bench_library_leave(&bench_linked_library, rank, !rank->has_failed);
    if (rank->device != NULL)
        rank->device->ops->close(rank->device);
}

void bench_rank_print_error(const struct bench_rank *rank, gyre_status status)
{
    fprintf(stderr, "%s: rank %d: %s: %s\n", rank->kind->name, rank->self.rank,
            gyre_status_name(status), gyre_cause());
}

/* Once. Other ranks learn through the communicator. */
static void report(struct bench_rank *rank, gyre_status status)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    if (rank->has_failed)
        return;
    rank->has_failed = true;
    bench_rank_print_error(rank, status);
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (rank->comm != NULL)
        (void)gyre_comm_abort(rank->comm);
    gyre_set_cause(cause);
}

gyre_status bench_rank_agree(struct bench_rank *rank, gyre_status status)
{
    int failed = -1;
    if (status != GYRE_SUCCESS)
        report(rank, status);
    const gyre_status agreed = bench_ranks_agree_on(&rank->self, status, &failed);
    if (agreed != GYRE_SUCCESS && failed < 0) /* a lost process reported nothing */
        report(rank, agreed);
    return agreed;
}

struct bench_case bench_case_of(const struct bench_case *wanted, int n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[wanted->coll];
    const size_t element = gyre_dtype_bytes(wanted->dtype);
    struct bench_case what = *wanted;
    size_t n_blocks = 1;
    what.count = wanted->n_bytes / element;
    if (traits->in_blocks || traits->out_blocks) {
        n_blocks = (size_t)n_ranks;
        what.count = what.count / n_blocks / (16 / element) * (16 / element);
    }
    what.n_bytes = what.count * n_blocks * element;
    return what;
}

struct bench_call bench_call_of(const struct bench_rank *rank, const struct bench_buffers *buffers,
                                const struct bench_case *what, bool is_in_place)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[what->coll];
    const size_t element = gyre_dtype_bytes(what->dtype);
    const size_t block = what->count * element * (size_t)rank->self.rank;
    const size_t offset = rank->options->is_unaligned ? element : 0;
    unsigned char *send = (unsigned char *)buffers->send + offset;
    unsigned char *recv = (unsigned char *)buffers->recv + offset;
    if (what->coll == GYRE_COLL_ALL_TO_ALL)
        is_in_place = false;
    if (is_in_place && traits->in_blocks)
        recv = send + (traits->out_blocks ? 0 : block);
    else if (is_in_place)
        send = recv + (traits->out_blocks ? block : 0);
    return (struct bench_call){
        .what = *what, .buffers = buffers, .send = send, .recv = recv, .is_in_place = is_in_place};
}

int bench_next_rank(const struct bench_rank *rank)
{
    return (rank->self.rank + 1) % rank->self.n_ranks;
}

const char *bench_op_name(const struct bench_case *what)
{
    return what->is_mulsum ? bench_op_names[BENCH_MULSUM] : gyre_op_names[what->op];
}

const struct bench_library bench_linked_library = {
#define LINKED(name) .name = gyre_##name,
    BENCH_LIBRARY_TABLE(LINKED)
#undef LINKED
};

gyre_status bench_library_call(const struct bench_library *library, const struct bench_rank *rank,
                               const struct bench_call *call)
{
    const struct bench_case *what = &call->what;
    gyre_comm *comm = rank->comm;
    const gyre_stream stream = rank->stream;
    const void *send = call->send;
    void *recv = call->recv;
    const gyre_op op = what->is_mulsum ? rank->mulsum : what->op;
    const int previous = (rank->self.rank + rank->self.n_ranks - 1) % rank->self.n_ranks;
    switch (what->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return library->all_reduce(send, recv, what->count, what->dtype, op, comm, stream);
    case GYRE_COLL_BROADCAST:
        return library->broadcast(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_REDUCE:
        return library->reduce(send, recv, what->count, what->dtype, op, what->root, comm, stream);
    case GYRE_COLL_ALL_GATHER:
        return library->all_gather(send, recv, what->count, what->dtype, comm, stream);
    case GYRE_COLL_REDUCE_SCATTER:
        return library->reduce_scatter(send, recv, what->count, what->dtype, op, comm, stream);
    case GYRE_COLL_ALL_TO_ALL:
        return library->all_to_all(send, recv, what->count, what->dtype, comm, stream);
    case GYRE_COLL_GATHER:
        return library->gather(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_SCATTER:
        return library->scatter(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_SEND_RECV:
        GYRE_TRY(library->group_start());
        gyre_status status =
            library->send(send, what->count, what->dtype, bench_next_rank(rank), comm, stream);
        if (status == GYRE_SUCCESS)
            status = library->recv(recv, what->count, what->dtype, previous, comm, stream);
        const gyre_status ended = library->group_end();
        return status != GYRE_SUCCESS ? status : ended;
    default:
        return gyre_fail(GYRE_ERROR_INTERNAL, "no bench measures collective %d", (int)what->coll);
    }
}

gyre_status bench_library_wait(const struct bench_library *library, const struct bench_rank *rank)
{
    GYRE_TRY(library->stream_synchronize(rank->stream, rank->device_kind));
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(library->comm_async_error(rank->comm, &status));
    if (status != GYRE_SUCCESS)
        gyre_set_cause(library->comm_last_error(rank->comm));
    return status;
}

gyre_status bench_enqueue(const struct bench_rank *rank, const struct bench_call *call)
{
    return bench_library_call(&bench_linked_library, rank, call);
}

gyre_status bench_wait(const struct bench_rank *rank)
{
    return bench_library_wait(&bench_linked_library, rank);
}

static struct gyre_pattern pattern_of(const struct bench_rank *rank, const struct bench_case *what)
{
    const bool reduces = gyre_collectives[what->coll].reduces;
    return (struct gyre_pattern){.dtype = what->dtype,
                                 .op = reduces ? what->op : GYRE_SUM,
                                 .n_ranks = (uint32_t)rank->self.n_ranks,
                                 .seed = rank->seed};
}

gyre_status bench_fill(struct bench_rank *rank, const struct bench_call *call)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[call->what.coll];
    const size_t n_blocks = traits->in_blocks ? (size_t)rank->self.n_ranks : 1;
    rank->seed++;
    const struct gyre_pattern pattern = pattern_of(rank, &call->what);
    GYRE_TRY(rank->device->ops->zero(rank->device, call->buffers->recv, call->buffers->n_bytes));
    /* in place, the input was just zeroed */
    return gyre_pattern_fill(rank->device, &pattern, (uint32_t)rank->self.rank, 0,
                             call->what.count * n_blocks, (void *)(uintptr_t)call->send);
}

gyre_status bench_check(const struct bench_rank *rank, const struct bench_call *call,
                        uint64_t *n_wrong_out)
{
    const struct bench_case *what = &call->what;
    const struct gyre_collective_traits *traits = &gyre_collectives[what->coll];
    const struct gyre_pattern pattern = pattern_of(rank, what);
    const uint32_t me = (uint32_t)rank->self.rank;
    const uint32_t n_ranks = (uint32_t)rank->self.n_ranks;
    struct gyre_pattern_errors errors = {0};
    const bool is_only_on_root = what->coll == GYRE_COLL_REDUCE || what->coll == GYRE_COLL_GATHER;
    *n_wrong_out = 0;
    if (what->count == 0 || (is_only_on_root && rank->self.rank != what->root))
        return GYRE_SUCCESS;
    if (traits->reduces) {
        const uint64_t first = traits->in_blocks ? me * (uint64_t)what->count : 0;
        GYRE_TRY(gyre_pattern_check_reduced(rank->device, &pattern, first, what->count, call->recv,
                                            &errors));
        *n_wrong_out = errors.n_wrong;
        return GYRE_SUCCESS;
    }
    const size_t block_bytes = what->count * gyre_dtype_bytes(what->dtype);
    const uint32_t n_blocks = traits->out_blocks ? n_ranks : 1;
    for (uint32_t block = 0; block < n_blocks; block++) {
        uint32_t source = block;
        if (what->coll == GYRE_COLL_BROADCAST || what->coll == GYRE_COLL_SCATTER)
            source = (uint32_t)what->root;
        else if (what->coll == GYRE_COLL_SEND_RECV)
            source = (me + n_ranks - 1) % n_ranks;
        const uint64_t first = traits->in_blocks ? me * (uint64_t)what->count : 0;
        GYRE_TRY(gyre_pattern_check_copy(rank->device, &pattern, source, first, what->count,
                                         (const char *)call->recv + block * block_bytes, &errors));
        *n_wrong_out += errors.n_wrong;
    }
    return GYRE_SUCCESS;
}
