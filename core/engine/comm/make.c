/* SPDX-License-Identifier: Apache-2.0
 *
 * First the parts that need no other rank, in the caller's thread, then the rendezvous, in a thread
 * of its own inside groups and for communicators that do not block.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

gyre_status gyre_get_unique_id(gyre_unique_id *id_out)
{
    if (id_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_unique_id: id_out is NULL");
    GYRE_FREED struct gyre_params *params = malloc(sizeof(*params));
    if (params == NULL)
        return gyre_fail_errno(ENOMEM, "get_unique_id");
    GYRE_TRY(gyre_params_load(params));
    return gyre_param_is_set(params, GYRE_PARAM_COMM_ID) ? gyre_unique_id_at_address(params, id_out)
                                                         : gyre_unique_id_create(params, id_out);
}

struct init_task {
    struct gyre_group_task group_task; /* first: a group finishes it */
    gyre_comm *comm;                   /* NULL: this rank gets no communicator */
    gyre_comm **comm_out;
    struct gyre_init_request request;
    bool is_waited; /* finish() waits for the task and owns it; else the thread does */
    bool is_done;   /* under the registry's lock */
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static gyre_status give_up_joining(const struct gyre_init_request *request, gyre_status status)
{
    const struct gyre_bootstrap_place place = {request->n_ranks, request->rank, NULL};
    gyre_bootstrap_tcp_give_up(&request->id, &place, gyre_cause());
    return status;
}

static gyre_status join_rendezvous(gyre_comm *comm, struct gyre_init_request *request)
{
    const struct gyre_bootstrap_place place = {request->n_ranks, request->rank, &comm->self.fault};
    comm->self.n_ranks = request->n_ranks;
    comm->self.rank = request->rank;
    if (request->parent == NULL)
        comm->self.file_rank = request->rank;
    /* Before the other ranks wait for this rank, so that logged times do not include CUDA's
     * start. */
    comm->self.stage_ns = gyre_now_ns();
    const gyre_status status = comm->self.device->ops->start(comm->self.device);
    if (status != GYRE_SUCCESS)
        return give_up_joining(request, status);
    gyre_rank_end_stage(&comm->self, "starting the device");
    const uint64_t start_ns = gyre_now_ns();
    const struct gyre_params *params = &comm->self.params;
    gyre_status joined = gyre_unique_id_settle(
        params, &place,
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000ULL,
        &request->id);
    if (joined == GYRE_SUCCESS)
        joined = gyre_bootstrap_tcp_open(params, &request->id, &place, &comm->self.bootstrap);
    if (joined != GYRE_SUCCESS)
        return gyre_origin_settle(&comm->self, comm->origin, joined);
    gyre_origin_set_joined(comm->origin);
    gyre_comm_set_job(comm,
                      gyre_hash(GYRE_HASH_INIT, request->id.bytes, sizeof(request->id.bytes)));
    const uint64_t joined_ns = gyre_now_ns();
    GYRE_TRY(gyre_comm_connect(comm));
    GYRE_INFO(INIT, "communicator %s: the ranks met after %.1f ms and were connected %.1f ms later",
              comm->self.name, (double)(joined_ns - start_ns) / 1e6,
              (double)(gyre_now_ns() - joined_ns) / 1e6);
    return GYRE_SUCCESS;
}

/* After an error its fault is raised. */
static gyre_status carry_out(gyre_comm *comm, struct gyre_init_request *request, bool in_background)
{
    const struct gyre_float_env callers = gyre_float_begin();
    gyre_status status = GYRE_SUCCESS;
    if (comm != NULL && request->parent != NULL)
        comm->self.file_rank = request->parent->self.file_rank;
    if (request->find != NULL) {
        status = request->find(request, comm);
        if (in_background) /* no thread waits for this one once the parent is ready */
            gyre_authenticate_release();
        gyre_comm_set_phase(request->parent, GYRE_PHASE_READY);
    }
    if (status == GYRE_SUCCESS && comm != NULL)
        status = join_rendezvous(comm, request);
    gyre_float_end(callers);
    if (in_background)
        gyre_authenticate_release();
    free(request->is_member);
    request->is_member = NULL;
    if (comm != NULL)
        gyre_origin_set_made(comm->origin);
    if (status != GYRE_SUCCESS && comm != NULL) {
        gyre_fault_raise(&comm->self.fault, status, gyre_cause());
        status = gyre_fault_status(&comm->self.fault);
    }
    return status;
}

static void *run_init_task(void *argument)
{
    struct init_task *task = argument;
    const bool is_waited = task->is_waited; /* else the communicator may end before this thread */
    gyre_comm_attach(task->comm);
    task->status = carry_out(task->comm, &task->request, true);
    snprintf(task->cause, sizeof(task->cause), "%s", gyre_cause());
    if (task->comm != NULL)
        gyre_comm_set_made(task->comm);
    if (is_waited)
        gyre_registry_set(&task->is_done);
    else
        free(task);
    return NULL;
}

static gyre_status start(struct init_task *task)
{
    pthread_t thread;
    gyre_comm *parent = task->request.parent;
    if (task->comm != NULL)
        gyre_registry_add(task->comm, GYRE_PHASE_INIT);
    if (parent != NULL)
        gyre_comm_set_phase(parent, GYRE_PHASE_REGROUPING);
    const gyre_status status =
        gyre_thread_start(&thread, 0, run_init_task, task, "making a communicator");
    if (status == GYRE_SUCCESS) {
        pthread_detach(thread);
        return GYRE_SUCCESS;
    }
    if (parent != NULL)
        gyre_comm_set_phase(parent, GYRE_PHASE_READY);
    if (task->comm != NULL)
        gyre_registry_remove(task->comm);
    return status;
}

static gyre_status finish(struct gyre_group_task *group_task)
{
    struct init_task *task = (struct init_task *)group_task;
    gyre_registry_wait(&task->is_done);
    const gyre_status status = task->status;
    if (status == GYRE_SUCCESS && task->comm_out != NULL) {
        *task->comm_out = task->comm;
    } else if (task->comm != NULL) {
        gyre_registry_remove(task->comm);
        gyre_comm_free(task->comm);
    }
    if (status != GYRE_SUCCESS)
        gyre_set_cause(task->cause);
    free(task);
    return status;
}

gyre_status gyre_comm_refuse(const gyre_config *config, const struct gyre_init_request *request,
                             gyre_status status)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    struct init_task *task = calloc(1, sizeof(*task));
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (task == NULL) { /* without memory the only way is to end the parent */
        (void)gyre_comm_give_up(request->parent, status);
        free(request->is_member);
        return status;
    }
    *task = (struct init_task){.request = *request};
    task->request.failure = status;
    snprintf(task->request.failure_text, sizeof(task->request.failure_text), "%.255s", cause);
    const bool in_background = config->blocking == 0 || gyre_group_is_open();
    if (!in_background)
        (void)carry_out(NULL, &task->request, false);
    if (!in_background || start(task) != GYRE_SUCCESS) {
        free(task->request.is_member);
        free(task);
    }
    gyre_set_cause(cause);
    return status;
}

gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_init_request *request,
                           gyre_comm **comm_out)
{
    gyre_comm *comm = NULL;
    struct init_task *task = NULL;
    gyre_status status = comm_out != NULL ? gyre_comm_make_local(config, &comm) : GYRE_SUCCESS;
    if (status == GYRE_SUCCESS && (config->blocking == 0 || gyre_group_is_open())) {
        task = calloc(1, sizeof(*task));
        if (task == NULL)
            status = gyre_fail_errno(ENOMEM, "init");
    }
    if (status != GYRE_SUCCESS) {
        if (comm != NULL)
            gyre_comm_free(comm);
        if (request->takes_failures)
            (void)gyre_comm_refuse(config, request, status);
        /* a split or shrink has no rendezvous yet */
        return request->find == NULL ? give_up_joining(request, status) : status;
    }
    if (task != NULL) {
        const bool is_waited = config->blocking != 0;
        *task = (struct init_task){.group_task = {finish},
                                   .comm = comm,
                                   .comm_out = comm_out,
                                   .request = *request,
                                   .is_waited = is_waited};
        status = start(task);
        if (status != GYRE_SUCCESS) {
            if (comm != NULL)
                gyre_comm_free(comm);
            free(task->request.is_member);
            free(task);
            return status;
        }
        if (is_waited)
            return gyre_group_add(&task->group_task);
        if (comm_out != NULL)
            *comm_out = comm;
        gyre_group_note_background();
        return GYRE_IN_PROGRESS;
    }
    struct gyre_init_request own = *request;
    status = carry_out(comm, &own, false);
    if (status == GYRE_SUCCESS && comm != NULL) {
        gyre_registry_add(comm, GYRE_PHASE_READY);
        *comm_out = comm;
    } else if (comm != NULL) {
        char cause[GYRE_CAUSE_MAX_BYTES];
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
        gyre_comm_free(comm);
        gyre_set_cause(cause);
    }
    return status;
}

static gyre_status check_init(gyre_comm **comm_out, int n_ranks, int rank)
{
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "init: comm_out is NULL");
    if (n_ranks < 1 || n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "init: n_ranks is %d, legal is 1..%d",
                         n_ranks, GYRE_MAX_RANKS);
    if (rank < 0 || rank >= n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "init: rank %d is not in 0..%d", rank,
                         n_ranks - 1);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_init_rank(gyre_comm **comm_out, int n_ranks, const gyre_unique_id *id,
                                int rank, const gyre_config *config)
{
    gyre_config taken;
    if (id == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "init: the unique id is NULL");
    const struct gyre_init_request request = {.n_ranks = n_ranks, .rank = rank, .id = *id};
    gyre_status status = check_init(comm_out, n_ranks, rank);
    if (status == GYRE_SUCCESS)
        status = gyre_config_take(config, &taken);
    if (status != GYRE_SUCCESS)
        return give_up_joining(&request, status);
    return gyre_comm_make(&taken, &request, comm_out);
}

struct local_init {
    pthread_t thread;
    gyre_comm *comm;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *run_local_init(void *argument)
{
    struct local_init *init = argument;
    gyre_comm_attach(init->comm);
    init->status = gyre_comm_connect(init->comm);
    snprintf(init->cause, sizeof(init->cause), "%s", gyre_cause());
    return NULL;
}

static gyre_status make_locals(struct local_init *inits, int n_ranks, const int *device_ordinals,
                               const gyre_config *given)
{
    uint64_t job;
    GYRE_TRY(gyre_random_bytes(&job, sizeof(job)));
    gyre_config config;
    GYRE_TRY(gyre_config_take(given, &config));
    for (int rank = 0; rank < n_ranks; rank++) {
        config.device_ordinal = device_ordinals != NULL ? device_ordinals[rank] : rank;
        GYRE_TRY(gyre_comm_make_local(&config, &inits[rank].comm));
        inits[rank].comm->self.job = job;
        inits[rank].comm->self.n_ranks = n_ranks;
        inits[rank].comm->self.rank = rank;
        inits[rank].comm->self.file_rank = rank;
    }
    GYRE_FREED struct gyre_bootstrap **bootstraps = calloc((size_t)n_ranks, sizeof(*bootstraps));
    if (bootstraps == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    GYRE_TRY(gyre_bootstrap_local_open(&inits[0].comm->self.params, n_ranks, bootstraps));
    for (int rank = 0; rank < n_ranks; rank++) {
        inits[rank].comm->self.bootstrap = bootstraps[rank];
        bootstraps[rank]->fault = &inits[rank].comm->self.fault;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_init_all(gyre_comm **comms_out, int n_ranks, const int *device_ordinals,
                               const gyre_config *config)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    GYRE_TRY(check_init(comms_out, n_ranks, 0));
    GYRE_FREED struct local_init *inits = calloc((size_t)n_ranks, sizeof(*inits));
    if (inits == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    gyre_status status = make_locals(inits, n_ranks, device_ordinals, config);
    if (status == GYRE_SUCCESS) {
        int n_started = 0;
        for (; n_started < n_ranks && status == GYRE_SUCCESS; n_started += status == GYRE_SUCCESS)
            status = gyre_thread_start(&inits[n_started].thread, 0, run_local_init,
                                       &inits[n_started], "a rank's init");
        for (int rank = n_started; rank < n_ranks; rank++)
            inits[rank].comm->self.bootstrap->ops->fail(inits[rank].comm->self.bootstrap,
                                                        "no thread for a rank");
        for (int rank = 0; rank < n_started; rank++) {
            pthread_join(inits[rank].thread, NULL);
            if (status == GYRE_SUCCESS && inits[rank].status != GYRE_SUCCESS) {
                status = inits[rank].status;
                gyre_set_cause(inits[rank].cause);
            }
        }
    }
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    for (int rank = 0; rank < n_ranks; rank++) {
        if (status == GYRE_SUCCESS) {
            gyre_registry_add(inits[rank].comm, GYRE_PHASE_READY);
            comms_out[rank] = inits[rank].comm;
        } else if (inits[rank].comm != NULL) {
            gyre_comm_free(inits[rank].comm);
        }
    }
    gyre_set_cause(cause);
    return status;
}
