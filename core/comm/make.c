/* SPDX-License-Identifier: Apache-2.0
 *
 * Making communicators: what needs no other rank first, in the caller's thread; then meeting the
 * others, in the caller's thread too or, for communicators that do not block and inside groups, on
 * a thread of its own.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/base/util.h"
#include "core/comm/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void gyre_comm_free(gyre_comm *comm)
{
    gyre_registry_wait_unpinned(comm);
    if (comm->health != NULL)
        gyre_health_close(comm->health);
    gyre_fault_hook(&comm->fault, NULL, NULL); /* proxies may still raise; the executor goes */
    if (comm->plans != NULL)
        gyre_plan_cache_close(comm->plans);
    if (comm->executor != NULL)
        comm->executor->ops->close(comm->executor);
    gyre_windows_fini(comm);
    gyre_disconnect(comm);
    gyre_door_close(comm->door);
    if (comm->bootstrap != NULL)
        comm->bootstrap->ops->close(comm->bootstrap);
    if (comm->device != NULL)
        comm->device->ops->close(comm->device);
    gyre_origin_release(comm->origin);
    free(comm->n_p2p);
    gyre_board_fini(&comm->board);
    gyre_registrations_fini(&comm->registrations);
    gyre_fault_fini(&comm->fault);
    free((char *)(uintptr_t)comm->config.transport);
    gyre_registry_remove(comm); /* last: whoever waits for it finds everything given back */
    free(comm);
}

void gyre_comm_end_stage(gyre_comm *comm, const char *stage)
{
    const uint64_t now_ns = gyre_now_ns();
    GYRE_INFO(INIT, "rank %d: %s took %.1f ms", comm->rank, stage,
              (double)(now_ns - comm->stage_ns) / 1e6);
    comm->stage_ns = now_ns;
}

/* Everything that needs no other rank. */
static gyre_status make_local(const gyre_config *given, gyre_comm **comm_out)
{
    gyre_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return gyre_fail_errno(ENOMEM, "communicator");
    gyre_authenticate_prepare();
    gyre_fault_init(&comm->fault);
    gyre_board_init(&comm->board);
    gyre_registrations_init(&comm->registrations);
    comm->job = (uint64_t)(uintptr_t)comm; /* until the ranks have met */
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_status status;
    GYRE_TRY_GOTO(status, gyre_params_load(&comm->params), undo);
    GYRE_TRY_GOTO(status, gyre_config_resolve(given, &comm->params, &config), undo);
    if (gyre_param_is_set(&comm->params, GYRE_PARAM_TUNING_FILE)) {
        status =
            gyre_tuning_load(gyre_param_text(&comm->params, GYRE_PARAM_TUNING_FILE), &comm->tuning);
        if (status != GYRE_SUCCESS)
            GYRE_TRY_GOTO(status, gyre_fail_context(status, "GYRE_TUNING_FILE"), undo);
    }
    comm->config = config;
    comm->config.name = NULL;
    comm->config.transport = config.transport != NULL ? strdup(config.transport) : NULL;
    if (config.transport != NULL && comm->config.transport == NULL)
        GYRE_TRY_GOTO(status, gyre_fail_errno(ENOMEM, "communicator"), undo);
    snprintf(comm->name, sizeof(comm->name), "%s", config.name != NULL ? config.name : "");
    const struct gyre_device_ops *ops;
    GYRE_TRY_GOTO(status, gyre_device_find((gyre_device_kind)config.device_kind, &ops), undo);
    GYRE_TRY_GOTO(status, ops->open(config.device_ordinal, &comm->device), undo);
    GYRE_TRY_GOTO(status, ops->info(comm->device, &comm->device_info), undo);
    comm->config.device_kind = (int)comm->device_info.kind;
    comm->config.device_ordinal = comm->device_info.ordinal;
    *comm_out = comm;
    return GYRE_SUCCESS;
undo:
    gyre_comm_free(comm);
    return status;
}

gyre_status gyre_comm_check_local(const gyre_config *config)
{
    gyre_comm *comm = NULL;
    GYRE_TRY(make_local(config, &comm));
    gyre_comm_free(comm);
    return GYRE_SUCCESS;
}

static void on_fault(void *context)
{
    gyre_comm *comm = context;
    comm->executor->ops->abort(comm->executor);
    gyre_links_wake(comm);
    /* The health thread tells the others now: this rank's program may end with the error at once.
     */
    comm->bootstrap->ops->wake(comm->bootstrap);
}

/* From now on a raised fault ends the executor's works; also one that was raised before. */
static void watch_fault(gyre_comm *comm)
{
    gyre_fault_hook(&comm->fault, on_fault, comm);
    if (gyre_fault_is_raised(&comm->fault))
        comm->executor->ops->abort(comm->executor);
}

/* It launches blocks on all multiprocessors, if only for a moment: not where their number is
 * limited. */
static bool places_blocks(const gyre_comm *comm)
{
    return gyre_param_number(&comm->params, GYRE_PARAM_BLOCK_PLACEMENT) != 0 &&
           comm->config.sm_budget <= 0;
}

/* Everything after the ranks have met. */
static gyre_status connect_ranks(gyre_comm *comm)
{
    if (comm->name[0] == '\0')
        snprintf(comm->name, sizeof(comm->name), "%08x", (unsigned)(comm->job ^ comm->job >> 32));
    comm->n_p2p = calloc((size_t)comm->n_ranks * 2, sizeof(*comm->n_p2p));
    if (comm->n_p2p == NULL)
        return gyre_fail_errno(ENOMEM, "communicator");
    comm->stage_ns = gyre_now_ns();
    GYRE_TRY(gyre_connect(comm));
    const struct gyre_executor_config config = {
        .device = comm->device,
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .spec = comm->links.spec,
        .connectors = comm->links.connectors,
        .block_placement_bytes = places_blocks(comm) ? GYRE_BLOCK_PLACEMENT_BYTES : UINT64_MAX,
        .overlaps_launches = gyre_param_number(&comm->params, GYRE_PARAM_LAUNCH_OVERLAP) != 0,
        .fault = &comm->fault,
        .help = gyre_links_help,
        .help_context = comm,
    };
    const struct gyre_executor_ops *ops;
    GYRE_TRY(gyre_executor_find((gyre_device_kind)comm->device_info.kind, &ops));
    GYRE_TRY(ops->open(&config, &comm->executor));
    watch_fault(comm);
    gyre_comm_end_stage(comm, "opening the executor");
    GYRE_TRY(gyre_plan_cache_open(comm, &comm->plans));
    GYRE_TRY(gyre_health_open(comm, &comm->health));
    gyre_comm_end_stage(comm, "opening plans and watching over the ranks");
    comm->is_made = true;
    return GYRE_SUCCESS;
}

/* As connect_ranks; a failure is the communicator's fault and is told to the other ranks. */
static gyre_status make_together(gyre_comm *comm)
{
    gyre_status status = connect_ranks(comm);
    if (status == GYRE_SUCCESS)
        return status;
    /* What was raised before (by an abort, by a proxy) is why. */
    gyre_fault_raise(&comm->fault, status, gyre_cause());
    status = gyre_fault_status(&comm->fault);
    comm->bootstrap->ops->fail(comm->bootstrap, comm->fault.cause);
    return status;
}

gyre_status gyre_get_unique_id(gyre_unique_id *id_out)
{
    if (id_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_unique_id: id_out is NULL");
    struct gyre_params *params = malloc(sizeof(*params));
    if (params == NULL)
        return gyre_fail_errno(ENOMEM, "get_unique_id");
    gyre_status status = gyre_params_load(params);
    if (status == GYRE_SUCCESS)
        status = gyre_unique_id_create(params, id_out);
    free(params);
    return status;
}

/* ---- making, here or in the background ---------------------------------------------------- */

struct gyre_making {
    gyre_comm *comm; /* NULL: this rank gets none */
    gyre_comm **comm_out;
    struct gyre_meeting meeting;
    bool is_waited; /* by gyre_making_finish, which then owns this; else the thread does */
    bool is_done;   /* under the registry's lock */
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

/* Among a parent's ranks: who belongs to the new communicator, and its id. */
static gyre_status find(gyre_comm *comm, struct gyre_meeting *meeting, bool in_background)
{
    if (meeting->find == NULL)
        return GYRE_SUCCESS;
    const gyre_status status = meeting->find(meeting, comm);
    if (in_background) /* nobody waits for this thread once the parent is ready */
        gyre_authenticate_release();
    gyre_comm_set_phase(meeting->parent, GYRE_PHASE_READY);
    return status;
}

/* This rank cannot join: the others are told instead of being left to wait. */
static gyre_status give_up_joining(const struct gyre_meeting *meeting, gyre_status status)
{
    const struct gyre_bootstrap_place place = {meeting->n_ranks, meeting->rank, NULL};
    gyre_bootstrap_tcp_give_up(&meeting->id, &place, gyre_cause());
    return status;
}

static gyre_status meet(gyre_comm *comm, const struct gyre_meeting *meeting)
{
    const struct gyre_bootstrap_place place = {meeting->n_ranks, meeting->rank, &comm->fault};
    comm->n_ranks = meeting->n_ranks;
    comm->rank = meeting->rank;
    /* Before the others wait for this rank, and so that the figures below are gyre's own. */
    comm->stage_ns = gyre_now_ns();
    const gyre_status status = comm->device->ops->start(comm->device);
    if (status != GYRE_SUCCESS)
        return give_up_joining(meeting, status);
    gyre_comm_end_stage(comm, "starting the device");
    const uint64_t start_ns = gyre_now_ns();
    const gyre_status met =
        gyre_bootstrap_tcp_open(&comm->params, &meeting->id, &place, &comm->bootstrap);
    if (met != GYRE_SUCCESS)
        return gyre_comm_settle(comm, met);
    gyre_origin_set_joined(comm->origin);
    gyre_comm_set_job(comm,
                      gyre_hash(GYRE_HASH_INIT, meeting->id.bytes, sizeof(meeting->id.bytes)));
    const uint64_t met_ns = gyre_now_ns();
    GYRE_TRY(make_together(comm));
    GYRE_INFO(INIT, "communicator %s: the ranks met after %.1f ms and were connected %.1f ms later",
              comm->name, (double)(met_ns - start_ns) / 1e6,
              (double)(gyre_now_ns() - met_ns) / 1e6);
    return GYRE_SUCCESS;
}

/* The communicator is made, or has failed with its fault raised. */
static gyre_status carry_out(gyre_comm *comm, struct gyre_meeting *meeting, bool in_background)
{
    gyre_status status = find(comm, meeting, in_background);
    if (status == GYRE_SUCCESS && comm != NULL)
        status = meet(comm, meeting);
    if (in_background)
        gyre_authenticate_release();
    free(meeting->is_member);
    meeting->is_member = NULL;
    if (comm != NULL)
        gyre_origin_set_made(comm->origin);
    if (status != GYRE_SUCCESS && comm != NULL) {
        gyre_fault_raise(&comm->fault, status, gyre_cause());
        status = gyre_fault_status(&comm->fault);
    }
    return status;
}

static void *run_making(void *argument)
{
    struct gyre_making *making = argument;
    const bool is_waited = making->is_waited; /* else it may end before us */
    gyre_comm_attach(making->comm);
    making->status = carry_out(making->comm, &making->meeting, true);
    snprintf(making->cause, sizeof(making->cause), "%s", gyre_cause());
    if (making->comm != NULL)
        gyre_comm_set_made(making->comm);
    if (is_waited)
        gyre_registry_set(&making->is_done);
    else
        free(making);
    return NULL;
}

static gyre_status start(struct gyre_making *making)
{
    pthread_t thread;
    gyre_comm *parent = making->meeting.parent;
    if (making->comm != NULL)
        gyre_registry_add(making->comm, GYRE_PHASE_MAKING);
    if (parent != NULL)
        gyre_comm_set_phase(parent, GYRE_PHASE_EXCHANGING);
    const gyre_status status =
        gyre_thread_start(&thread, 0, run_making, making, "making a communicator");
    if (status == GYRE_SUCCESS) {
        pthread_detach(thread);
        return GYRE_SUCCESS;
    }
    if (parent != NULL)
        gyre_comm_set_phase(parent, GYRE_PHASE_READY);
    if (making->comm != NULL)
        gyre_registry_remove(making->comm);
    return status;
}

gyre_status gyre_making_finish(struct gyre_making *making)
{
    gyre_registry_wait(&making->is_done);
    const gyre_status status = making->status;
    if (status == GYRE_SUCCESS && making->comm_out != NULL) {
        *making->comm_out = making->comm;
    } else if (making->comm != NULL) {
        gyre_registry_remove(making->comm);
        gyre_comm_free(making->comm);
    }
    if (status != GYRE_SUCCESS)
        gyre_set_cause(making->cause);
    free(making);
    return status;
}

static gyre_status make_in_background(struct gyre_making *making, bool is_waited)
{
    gyre_comm *comm = making->comm;
    gyre_comm **comm_out = making->comm_out;
    making->is_waited = is_waited;
    const gyre_status status = start(making);
    if (status != GYRE_SUCCESS) {
        if (comm != NULL)
            gyre_comm_free(comm);
        free(making->meeting.is_member);
        free(making);
        return status;
    }
    if (is_waited)
        return gyre_group_add(making);
    if (comm_out != NULL)
        *comm_out = comm;
    gyre_group_note_background();
    return GYRE_IN_PROGRESS;
}

/* This rank cannot take part in a split: it says so to the others, who wait for it. */
static void pass_failure_on(const gyre_config *config, const struct gyre_meeting *meeting,
                            gyre_status status)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    struct gyre_making *making = calloc(1, sizeof(*making));
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (making == NULL) { /* what can be done without memory: the parent ends */
        (void)gyre_comm_give_up(meeting->parent, status);
        return;
    }
    *making = (struct gyre_making){.meeting = *meeting};
    making->meeting.failure = status;
    snprintf(making->meeting.failure_text, sizeof(making->meeting.failure_text), "%.255s", cause);
    const bool in_background = config->blocking == 0 || gyre_group_is_open();
    if (!in_background)
        (void)carry_out(NULL, &making->meeting, false);
    if (!in_background || start(making) != GYRE_SUCCESS)
        free(making);
    gyre_set_cause(cause);
}

gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_meeting *meeting,
                           gyre_comm **comm_out)
{
    gyre_comm *comm = NULL;
    struct gyre_making *making = NULL;
    gyre_status status = comm_out != NULL ? make_local(config, &comm) : GYRE_SUCCESS;
    if (status == GYRE_SUCCESS && (config->blocking == 0 || gyre_group_is_open())) {
        making = calloc(1, sizeof(*making));
        if (making == NULL)
            status = gyre_fail_errno(ENOMEM, "init");
    }
    if (status != GYRE_SUCCESS) {
        if (comm != NULL)
            gyre_comm_free(comm);
        if (meeting->takes_failures)
            pass_failure_on(config, meeting, status);
        free(meeting->is_member);
        /* A split or shrink has no rendezvous yet. */
        return meeting->find == NULL ? give_up_joining(meeting, status) : status;
    }
    if (making != NULL) {
        *making = (struct gyre_making){.comm = comm, .comm_out = comm_out, .meeting = *meeting};
        return make_in_background(making, config->blocking != 0);
    }
    struct gyre_meeting own = *meeting;
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
    const struct gyre_meeting meeting = {.n_ranks = n_ranks, .rank = rank, .id = *id};
    gyre_status status = check_init(comm_out, n_ranks, rank);
    if (status == GYRE_SUCCESS)
        status = gyre_config_take(config, &taken);
    if (status != GYRE_SUCCESS)
        return give_up_joining(&meeting, status);
    return gyre_comm_make(&taken, &meeting, comm_out);
}

/* ---- all ranks in this process ------------------------------------------------------------ */

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
    init->status = make_together(init->comm);
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
        GYRE_TRY(make_local(&config, &inits[rank].comm));
        inits[rank].comm->job = job;
        inits[rank].comm->n_ranks = n_ranks;
        inits[rank].comm->rank = rank;
    }
    struct gyre_bootstrap **bootstraps = calloc((size_t)n_ranks, sizeof(*bootstraps));
    if (bootstraps == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    const gyre_status status =
        gyre_bootstrap_local_open(&inits[0].comm->params, n_ranks, bootstraps);
    for (int rank = 0; rank < n_ranks && status == GYRE_SUCCESS; rank++) {
        inits[rank].comm->bootstrap = bootstraps[rank];
        bootstraps[rank]->fault = &inits[rank].comm->fault;
    }
    free(bootstraps);
    return status;
}

/* All communicators to the caller, or, with NULL, away with them. */
static void hand_out(struct local_init *inits, int n_ranks, gyre_comm **comms_out)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    for (int rank = 0; rank < n_ranks; rank++) {
        if (comms_out != NULL) {
            gyre_registry_add(inits[rank].comm, GYRE_PHASE_READY);
            comms_out[rank] = inits[rank].comm;
        } else if (inits[rank].comm != NULL) {
            gyre_comm_free(inits[rank].comm);
        }
    }
    gyre_set_cause(cause);
}

gyre_status gyre_comm_init_all(gyre_comm **comms_out, int n_ranks, const int *device_ordinals,
                               const gyre_config *config)
{
    GYRE_TRY(check_init(comms_out, n_ranks, 0));
    struct local_init *inits = calloc((size_t)n_ranks, sizeof(*inits));
    if (inits == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    gyre_status status = make_locals(inits, n_ranks, device_ordinals, config);
    if (status != GYRE_SUCCESS) {
        hand_out(inits, n_ranks, NULL);
        free(inits);
        return status;
    }
    int n_started = 0;
    for (; n_started < n_ranks && status == GYRE_SUCCESS; n_started += status == GYRE_SUCCESS)
        status = gyre_thread_start(&inits[n_started].thread, 0, run_local_init, &inits[n_started],
                                   "a rank's init");
    for (int rank = n_started; rank < n_ranks; rank++) {
        inits[rank].comm->bootstrap->ops->fail(inits[rank].comm->bootstrap, "no thread for a rank");
        inits[rank].status = status;
    }
    for (int rank = 0; rank < n_started; rank++) {
        pthread_join(inits[rank].thread, NULL);
        if (status == GYRE_SUCCESS && inits[rank].status != GYRE_SUCCESS) {
            status = inits[rank].status;
            gyre_set_cause(inits[rank].cause);
        }
    }
    hand_out(inits, n_ranks, status == GYRE_SUCCESS ? comms_out : NULL);
    free(inits);
    return status;
}
