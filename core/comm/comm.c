/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending communicators. Ending needs nobody's help and never frees what a peer may
 * still use: destroy says goodbye and leaves the rest to a thread that waits, within a bound,
 * until the others have left too.
 */
#include "core/comm/comm.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Peers that have not left by then are left alone: their own bounds end them. */
#define LEAVE_TIMEOUT_NS 10000000000ULL
#define DRAIN_NAP_NS     50000

/* ---- the registry of live handles --------------------------------------------------------- *
 *
 * Process-wide, so that a handle that was destroyed is refused instead of followed, and so that
 * the ranks of one job in one process can end together. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gyre_comm *first;
} registry = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};

static void registry_add(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    comm->next = registry.first;
    registry.first = comm;
    pthread_mutex_unlock(&registry.lock);
}

static void registry_remove(gyre_comm *comm)
{
    pthread_mutex_lock(&registry.lock);
    for (gyre_comm **at = &registry.first; *at != NULL; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    }
    pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.lock);
}

/* Is it a handle that the user may still use? */
static bool registry_has(const gyre_comm *comm)
{
    bool found = false;
    pthread_mutex_lock(&registry.lock);
    for (const gyre_comm *at = registry.first; at != NULL && !found; at = at->next)
        found = at == comm && !at->is_ending;
    pthread_mutex_unlock(&registry.lock);
    return found;
}

static gyre_status check_handle(const gyre_comm *comm)
{
    if (comm == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the communicator is NULL");
    if (!registry_has(comm))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "communicator %p was destroyed, or never made by gyre",
                         (const void *)comm);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_check(gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    GYRE_TRY(gyre_fault_status(&comm->fault));
    if (comm->is_finalized)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "communicator %s was finalized on rank %d",
                         comm->name, comm->rank);
    return GYRE_SUCCESS;
}

/* ---- configuration ------------------------------------------------------------------------ */

static void take_param(int *field, const struct gyre_params *params, enum gyre_param_id id)
{
    if (*field == GYRE_CONFIG_UNDEFINED && gyre_param_is_set(params, id))
        *field = (int)gyre_param_number(params, id);
}

static gyre_status check_range(const char *name, int value, int low, int high)
{
    if (value == GYRE_CONFIG_UNDEFINED || (value >= low && value <= high))
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "config.%s is %d, legal is %d..%d", name, value,
                     low, high);
}

static gyre_status resolve_config(const gyre_config *given, const struct gyre_params *params,
                                  gyre_config *config_out)
{
    gyre_config config = GYRE_CONFIG_INIT;
    if (given != NULL) {
        if (given->struct_bytes < offsetof(gyre_config, device_kind) || given->struct_bytes > 4096)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "config.struct_bytes is %u: start from GYRE_CONFIG_INIT",
                             given->struct_bytes);
        /* Fields that an older caller does not know keep their defaults. */
        memcpy(&config, given, gyre_min_u64(given->struct_bytes, sizeof(config)));
    }
    take_param(&config.min_channels, params, GYRE_PARAM_MIN_NCHANNELS);
    take_param(&config.max_channels, params, GYRE_PARAM_MAX_NCHANNELS);
    take_param(&config.sm_budget, params, GYRE_PARAM_SMS);
    take_param(&config.traffic_class, params, GYRE_PARAM_IB_TC);
    take_param(&config.service_level, params, GYRE_PARAM_IB_SL);
    take_param(&config.timeout_ms, params, GYRE_PARAM_TIMEOUT);
    if (config.transport == NULL && gyre_param_is_set(params, GYRE_PARAM_TRANSPORT))
        config.transport = gyre_param_text(params, GYRE_PARAM_TRANSPORT);
    GYRE_TRY(check_range("device_kind", config.device_kind, GYRE_DEVICE_AUTO, GYRE_DEVICE_CUDA));
    GYRE_TRY(check_range("blocking", config.blocking, 1, 1));
    GYRE_TRY(check_range("min_channels", config.min_channels, 1, 64));
    GYRE_TRY(check_range("max_channels", config.max_channels, 1, 64));
    GYRE_TRY(check_range("sm_budget", config.sm_budget, 1, 1024));
    GYRE_TRY(check_range("traffic_class", config.traffic_class, 0, 255));
    GYRE_TRY(check_range("service_level", config.service_level, 0, 15));
    if (config.min_channels > 0 && config.max_channels > 0 &&
        config.min_channels > config.max_channels)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "min_channels %d is above max_channels %d",
                         config.min_channels, config.max_channels);
    bool is_known = config.transport == NULL;
    for (int i = 0; gyre_transports[i] != NULL && !is_known; i++)
        is_known = strcasecmp(gyre_transports[i]->name, config.transport) == 0;
    if (!is_known)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "config.transport \"%s\" is none of: p2p shm ib socket", config.transport);
    *config_out = config;
    return GYRE_SUCCESS;
}

/* ---- making ------------------------------------------------------------------------------- */

static void free_comm(gyre_comm *comm)
{
    if (comm->health != NULL)
        gyre_health_close(comm->health);
    gyre_fault_hook(&comm->fault, NULL, NULL); /* proxies may still raise; the executor goes */
    if (comm->plans != NULL)
        gyre_plan_cache_close(comm->plans);
    if (comm->executor != NULL)
        comm->executor->ops->close(comm->executor);
    gyre_disconnect(comm);
    if (comm->bootstrap != NULL)
        comm->bootstrap->ops->close(comm->bootstrap);
    if (comm->device != NULL)
        comm->device->ops->close(comm->device);
    free(comm->n_p2p);
    gyre_board_fini(&comm->board);
    gyre_fault_fini(&comm->fault);
    free((char *)(uintptr_t)comm->config.transport);
    free(comm);
}

/* Everything that needs no other rank. */
static gyre_status make_local(const gyre_config *given, int n_ranks, int rank, gyre_comm **comm_out)
{
    gyre_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return gyre_fail_errno(ENOMEM, "communicator");
    gyre_fault_init(&comm->fault);
    gyre_board_init(&comm->board);
    comm->rank = rank;
    comm->n_ranks = n_ranks;
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_status status;
    GYRE_TRY_GOTO(status, gyre_params_load(&comm->params), undo);
    GYRE_TRY_GOTO(status, resolve_config(given, &comm->params, &config), undo);
    if (gyre_param_is_set(&comm->params, GYRE_PARAM_TUNING_FILE)) {
        status =
            gyre_tuning_load(gyre_param_text(&comm->params, GYRE_PARAM_TUNING_FILE), &comm->tuning);
        if (status != GYRE_SUCCESS)
            GYRE_TRY_GOTO(status, gyre_fail_context(status, "GYRE_TUNING_FILE"), undo);
    }
    comm->config = config;
    comm->config.name = NULL;
    comm->config.transport = config.transport != NULL ? strdup(config.transport) : NULL;
    snprintf(comm->name, sizeof(comm->name), "%s", config.name != NULL ? config.name : "");
    comm->n_p2p = calloc((size_t)n_ranks * 2, sizeof(*comm->n_p2p));
    if (comm->n_p2p == NULL)
        GYRE_TRY_GOTO(status, gyre_fail_errno(ENOMEM, "communicator"), undo);
    const struct gyre_device_ops *ops;
    GYRE_TRY_GOTO(status, gyre_device_find((gyre_device_kind)config.device_kind, &ops), undo);
    GYRE_TRY_GOTO(status, ops->open(config.device_ordinal, &comm->device), undo);
    GYRE_TRY_GOTO(status, ops->info(comm->device, &comm->device_info), undo);
    *comm_out = comm;
    return GYRE_SUCCESS;
undo:
    free_comm(comm);
    return status;
}

static void on_fault(void *context)
{
    gyre_comm *comm = context;
    comm->executor->ops->abort(comm->executor);
    gyre_links_wake(comm);
}

/* From now on a raised fault ends the executor's works; also one that was raised before. */
static void watch_fault(gyre_comm *comm)
{
    gyre_fault_hook(&comm->fault, on_fault, comm);
    if (gyre_fault_is_raised(&comm->fault))
        comm->executor->ops->abort(comm->executor);
}

/* Everything after the ranks have met: takes over comm->bootstrap. */
static gyre_status make_together(gyre_comm *comm)
{
    GYRE_TRY(gyre_connect(comm));
    const struct gyre_executor_config config = {
        .device = comm->device,
        .rank = comm->rank,
        .n_ranks = comm->n_ranks,
        .spec = comm->links.spec,
        .connectors = comm->links.connectors,
        .fault = &comm->fault,
    };
    const struct gyre_executor_ops *ops;
    GYRE_TRY(gyre_executor_find((gyre_device_kind)comm->device_info.kind, &ops));
    GYRE_TRY(ops->open(&config, &comm->executor));
    watch_fault(comm);
    GYRE_TRY(gyre_plan_cache_open(comm, &comm->plans));
    GYRE_TRY(gyre_health_open(comm, &comm->health));
    return GYRE_SUCCESS;
}

static gyre_status finish(gyre_comm *comm, gyre_comm **comm_out)
{
    if (comm->name[0] == '\0')
        snprintf(comm->name, sizeof(comm->name), "%08x", (unsigned)(comm->job ^ comm->job >> 32));
    const gyre_status status = make_together(comm);
    if (status != GYRE_SUCCESS) {
        char cause[GYRE_CAUSE_MAX_BYTES];
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
        gyre_fault_raise(&comm->fault, status, cause);
        if (comm->bootstrap != NULL) /* peers may wait for this rank: tell them */
            comm->bootstrap->ops->fail(comm->bootstrap, cause);
        free_comm(comm);
        gyre_set_cause(cause);
        return status;
    }
    registry_add(comm);
    *comm_out = comm;
    return GYRE_SUCCESS;
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

gyre_status gyre_comm_init_now(gyre_comm **comm_out, int n_ranks, const gyre_unique_id *id,
                               int rank, const gyre_config *config)
{
    GYRE_TRY(check_init(comm_out, n_ranks, rank));
    gyre_comm *comm;
    GYRE_TRY(make_local(config, n_ranks, rank, &comm));
    const gyre_status status =
        gyre_bootstrap_tcp_open(&comm->params, id, n_ranks, rank, &comm->bootstrap);
    if (status != GYRE_SUCCESS) {
        free_comm(comm);
        return status;
    }
    comm->job = gyre_hash(GYRE_HASH_INIT, id->bytes, sizeof(id->bytes));
    return finish(comm, comm_out);
}

gyre_status gyre_comm_init_rank(gyre_comm **comm_out, int n_ranks, const gyre_unique_id *id,
                                int rank, const gyre_config *config)
{
    GYRE_TRY(check_init(comm_out, n_ranks, rank));
    if (id == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "init: the unique id is NULL");
    if (!gyre_group_is_open())
        return gyre_comm_init_now(comm_out, n_ranks, id, rank, config);
    struct gyre_pending_init init = {
        .comm_out = comm_out, .n_ranks = n_ranks, .id = *id, .rank = rank};
    const gyre_config defaults = GYRE_CONFIG_INIT;
    init.config = config != NULL ? *config : defaults;
    /* It is carried out on a thread of its own, which has another current device. */
    if (init.config.device_ordinal == GYRE_CONFIG_UNDEFINED &&
        init.config.device_kind != GYRE_DEVICE_HOST)
        GYRE_TRY(gyre_get_device(&init.config.device_ordinal));
    return gyre_group_defer_init(&init);
}

static void *run_init(void *argument)
{
    struct gyre_pending_init *init = argument;
    init->status =
        gyre_comm_init_now(init->comm_out, init->n_ranks, &init->id, init->rank, &init->config);
    snprintf(init->cause, sizeof(init->cause), "%s", gyre_cause());
    return NULL;
}

gyre_status gyre_run_inits(struct gyre_pending_init *inits, int n_inits)
{
    pthread_t *threads = calloc((size_t)n_inits, sizeof(*threads));
    if (threads == NULL)
        return gyre_fail_errno(ENOMEM, "%d inits", n_inits);
    int error = 0;
    int n_started = 0;
    while (n_started < n_inits && error == 0) {
        error = pthread_create(&threads[n_started], NULL, run_init, &inits[n_started]);
        n_started += error == 0;
    }
    gyre_status status = error == 0 ? GYRE_SUCCESS : gyre_fail_errno(error, "pthread_create");
    for (int i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
        if (status == GYRE_SUCCESS && inits[i].status != GYRE_SUCCESS) {
            status = inits[i].status;
            gyre_set_cause(inits[i].cause);
        }
    }
    free(threads);
    return status;
}

/* ---- all ranks in this process ------------------------------------------------------------ */

struct local_init {
    pthread_t thread;
    gyre_comm *comm;
    gyre_comm **comm_out;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *run_local_init(void *argument)
{
    struct local_init *init = argument;
    init->status = finish(init->comm, init->comm_out);
    snprintf(init->cause, sizeof(init->cause), "%s", gyre_cause());
    return NULL;
}

static gyre_status make_locals(struct local_init *inits, gyre_comm **comms_out, int n_ranks,
                               const int *device_ordinals, const gyre_config *given)
{
    uint64_t job;
    GYRE_TRY(gyre_random_bytes(&job, sizeof(job)));
    const gyre_config defaults = GYRE_CONFIG_INIT;
    gyre_config config = given != NULL ? *given : defaults;
    for (int rank = 0; rank < n_ranks; rank++) {
        config.device_ordinal = device_ordinals != NULL ? device_ordinals[rank] : rank;
        inits[rank].comm_out = &comms_out[rank];
        GYRE_TRY(make_local(&config, n_ranks, rank, &inits[rank].comm));
        inits[rank].comm->job = job;
    }
    struct gyre_bootstrap **bootstraps = calloc((size_t)n_ranks, sizeof(*bootstraps));
    if (bootstraps == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    const gyre_status status =
        gyre_bootstrap_local_open(&inits[0].comm->params, n_ranks, bootstraps);
    for (int rank = 0; rank < n_ranks && status == GYRE_SUCCESS; rank++)
        inits[rank].comm->bootstrap = bootstraps[rank];
    free(bootstraps);
    return status;
}

gyre_status gyre_comm_init_all(gyre_comm **comms_out, int n_ranks, const int *device_ordinals,
                               const gyre_config *config)
{
    GYRE_TRY(check_init(comms_out, n_ranks, 0));
    struct local_init *inits = calloc((size_t)n_ranks, sizeof(*inits));
    if (inits == NULL)
        return gyre_fail_errno(ENOMEM, "init_all");
    gyre_status status = make_locals(inits, comms_out, n_ranks, device_ordinals, config);
    if (status != GYRE_SUCCESS) {
        for (int rank = 0; rank < n_ranks; rank++)
            if (inits[rank].comm != NULL)
                free_comm(inits[rank].comm);
        free(inits);
        return status;
    }
    int error = 0;
    int n_started = 0;
    for (; n_started < n_ranks && error == 0; n_started += error == 0)
        error = pthread_create(&inits[n_started].thread, NULL, run_local_init, &inits[n_started]);
    if (error != 0)
        status = gyre_fail_errno(error, "pthread_create");
    for (int rank = n_started; rank < n_ranks; rank++) {
        inits[rank].comm->bootstrap->ops->fail(inits[rank].comm->bootstrap, "no thread for a rank");
        free_comm(inits[rank].comm);
    }
    for (int rank = 0; rank < n_started; rank++) {
        pthread_join(inits[rank].thread, NULL);
        if (status == GYRE_SUCCESS && inits[rank].status != GYRE_SUCCESS) {
            status = inits[rank].status;
            gyre_set_cause(inits[rank].cause);
        }
    }
    free(inits);
    return status;
}

/* ---- split -------------------------------------------------------------------------------- */

/* What a rank says of its place after a split. Exchanged: fixed layout. */
struct split_place {
    int32_t color;
    int32_t key;
    gyre_unique_id id; /* of a rendezvous on this rank; used if it comes first of its color */
};

/* How many ranks of my color there are, my place among them, and who is first. */
static void find_place(const struct split_place *all, int n_ranks, int rank, int *n_out,
                       int *rank_out, int *first_out)
{
    const struct split_place *mine = &all[rank];
    *n_out = 0;
    *rank_out = 0;
    *first_out = rank;
    for (int other = 0; other < n_ranks; other++) {
        if (all[other].color != mine->color)
            continue;
        (*n_out)++;
        if (all[other].key < mine->key || (all[other].key == mine->key && other < rank))
            (*rank_out)++;
        const struct split_place *first = &all[*first_out];
        if (all[other].key < first->key || (all[other].key == first->key && other < *first_out))
            *first_out = other;
    }
}

gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                            const gyre_config *config)
{
    GYRE_TRY(gyre_comm_check(comm));
    if (comm_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "split: comm_out is NULL");
    if (color < 0 && color != GYRE_SPLIT_NOCOLOR)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "split: color %d is neither >= 0 nor GYRE_SPLIT_NOCOLOR", color);
    struct split_place mine = {.color = color, .key = key};
    struct split_place *all = malloc((size_t)comm->n_ranks * sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "split");
    gyre_status status = GYRE_SUCCESS;
    if (color != GYRE_SPLIT_NOCOLOR)
        status = gyre_unique_id_create(&comm->params, &mine.id);
    gyre_health_pause(comm->health);
    if (status == GYRE_SUCCESS)
        status = comm->bootstrap->ops->all_gather(comm->bootstrap, &mine, sizeof(mine), all);
    gyre_health_resume(comm->health);
    int n_ranks = 0;
    int rank = 0;
    int first = 0;
    if (status == GYRE_SUCCESS)
        find_place(all, comm->n_ranks, comm->rank, &n_ranks, &rank, &first);
    if (status == GYRE_SUCCESS && color == GYRE_SPLIT_NOCOLOR)
        *comm_out = NULL;
    else if (status == GYRE_SUCCESS)
        status = gyre_comm_init_now(comm_out, n_ranks, &all[first].id, rank,
                                    config != NULL ? config : &comm->config);
    free(all);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "split(color %d, key %d)", color, key);
    return status;
}

/* ---- ending ------------------------------------------------------------------------------- */

/* All works that this rank launched are done, or nothing more can be done. */
static void drain(gyre_comm *comm)
{
    const struct gyre_pulse *pulse = comm->executor->ops->pulse(comm->executor);
    const struct timespec nap = {0, DRAIN_NAP_NS};
    while (!gyre_fault_is_raised(&comm->fault) &&
           gyre_load_acquire_u64(&pulse->completed) < gyre_load_acquire_u64(&pulse->launched))
        nanosleep(&nap, NULL);
}

static void leave(gyre_comm *comm)
{
    if (gyre_load_relaxed_u32(&comm->has_left) != 0)
        return;
    drain(comm);
    gyre_store_release_u32(&comm->has_left, 1);
    comm->bootstrap->ops->leave(comm->bootstrap);
}

gyre_status gyre_comm_finalize(gyre_comm *comm)
{
    GYRE_TRY(gyre_comm_check(comm));
    comm->is_finalized = true;
    leave(comm);
    return gyre_fault_status(&comm->fault);
}

static void *end_comm(void *argument)
{
    gyre_comm *comm = argument;
    const uint64_t patience_ns =
        gyre_fault_is_raised(&comm->fault) ? LEAVE_TIMEOUT_NS / 10 : LEAVE_TIMEOUT_NS;
    gyre_health_wait_left(comm->health, gyre_now_ns() + patience_ns);
    registry_remove(comm);
    free_comm(comm);
    return NULL;
}

/* How many handles of the job are in use here, or still ending. */
static int count_job(uint64_t job, bool is_ending)
{
    int n = 0;
    for (const gyre_comm *at = registry.first; at != NULL; at = at->next)
        n += at->job == job && at->is_ending == is_ending;
    return n;
}

gyre_status gyre_comm_destroy(gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    leave(comm);
    const uint64_t job = comm->job;
    pthread_mutex_lock(&registry.lock);
    comm->is_ending = true;
    pthread_mutex_unlock(&registry.lock);
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, end_comm, comm);
    if (error != 0)
        end_comm(comm);
    else
        pthread_detach(thread);
    /* One thread may destroy several ranks one after the other; only the last can wait. */
    pthread_mutex_lock(&registry.lock);
    while (count_job(job, false) == 0 && count_job(job, true) > 0)
        pthread_cond_wait(&registry.changed, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_abort(gyre_comm *comm)
{
    GYRE_TRY(check_handle(comm));
    char text[160];
    snprintf(text, sizeof(text), "rank %d (pid %d) aborted communicator %s", comm->rank,
             (int)comm->links.infos[comm->rank].pid, comm->name);
    if (gyre_fault_raise(&comm->fault, GYRE_ERROR_ABORTED, text))
        gyre_health_tell(comm->health, text);
    return GYRE_SUCCESS;
}

/* ---- queries ------------------------------------------------------------------------------ */

gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out)
{
    GYRE_TRY(check_handle(comm));
    if (n_ranks_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_count: n_ranks_out is NULL");
    *n_ranks_out = comm->n_ranks;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out)
{
    GYRE_TRY(check_handle(comm));
    if (rank_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "comm_rank: rank_out is NULL");
    *rank_out = comm->rank;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out, int *ordinal_out)
{
    GYRE_TRY(check_handle(comm));
    if (kind_out != NULL)
        *kind_out = (gyre_device_kind)comm->device_info.kind;
    if (ordinal_out != NULL)
        *ordinal_out = comm->device_info.ordinal;
    return GYRE_SUCCESS;
}

const char *gyre_comm_last_error(gyre_comm *comm)
{
    if (check_handle(comm) != GYRE_SUCCESS || !gyre_fault_is_raised(&comm->fault))
        return "";
    return comm->fault.cause; /* never changes once raised */
}

gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out)
{
    GYRE_TRY(check_handle(comm));
    if (status_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "async_error: status_out is NULL");
    *status_out = gyre_fault_is_raised(&comm->fault) ? comm->fault.status : GYRE_SUCCESS;
    return GYRE_SUCCESS;
}

gyre_status gyre_get_version(int *version_out)
{
    if (version_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_version: version_out is NULL");
    *version_out = GYRE_VERSION;
    return GYRE_SUCCESS;
}
