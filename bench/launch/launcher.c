/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that cannot join the others must refuse to run: its output would look like a result.
 */
#include "bench/launch/launcher.h"

#include "bootstrap/launch.h"
#include "core/foundation/base/util.h"
#include "core/gyre_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_NS (3600 * 1000000000ULL) /* until the slowest process ends a size */

gyre_status bench_launcher_detect(char *const *environment, gyre_launch *launch_out,
                                  const struct bench_launcher_ops **ops_out)
{
    GYRE_TRY(gyre_launch_find(environment, launch_out));
    *ops_out = launch_out->n_ranks > 1 ? &bench_launcher_meet : &bench_launcher_alone;
#ifdef GYRE_BENCH_WITH_MPI
    if (gyre_launch_has_pmix(environment, launch_out))
        *ops_out = &bench_launcher_mpi;
#endif
    return GYRE_SUCCESS;
}

static gyre_status alone_open(struct bench_launcher *launcher)
{
    launcher->process = 0;
    launcher->n_processes = 1;
    return GYRE_SUCCESS;
}

static gyre_status alone_all_gather(struct bench_launcher *launcher, const void *mine,
                                    size_t n_bytes, void *all_out)
{
    (void)launcher;
    memcpy(all_out, mine, n_bytes);
    return GYRE_SUCCESS;
}

static void alone_close(struct bench_launcher *launcher)
{
    (void)launcher;
}

const struct bench_launcher_ops bench_launcher_alone = {
    .name = "alone",
    .open = alone_open,
    .all_gather = alone_all_gather,
    .close = alone_close,
};

static struct gyre_meet meet; /* a process opens one launcher */

static gyre_status meet_open(struct bench_launcher *launcher)
{
    struct gyre_params params;
    /* A process with wrong variables joins too and tells the others (bench_rendezvous()). */
    static char *const none[] = {NULL};
    if (gyre_params_load(&params) != GYRE_SUCCESS)
        GYRE_TRY(gyre_params_from(none, &params));
    const gyre_launch *launch = &launcher->launch;
    const struct gyre_meet_place place = {
        .rank = launch->rank,
        .n_ranks = launch->n_ranks,
        .source = "MASTER_ADDR",
        .address = launch->address,
        .port = launch->port,
        .job = launch->job,
        .timeout_ns =
            (uint64_t)gyre_param_number(&params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000ULL,
        .params = &params};
    launcher->process = launch->rank;
    launcher->n_processes = launch->n_ranks;
    return gyre_meet_open(&place, &meet);
}

static gyre_status meet_all_gather(struct bench_launcher *launcher, const void *mine,
                                   size_t n_bytes, void *all_out)
{
    (void)launcher;
    return gyre_meet_all_gather(&meet, mine, n_bytes, all_out, gyre_now_ns() + GATHER_NS);
}

static void meet_close(struct bench_launcher *launcher)
{
    (void)launcher;
    gyre_meet_close(&meet);
}

const struct bench_launcher_ops bench_launcher_meet = {
    .name = "meet",
    .open = meet_open,
    .all_gather = meet_all_gather,
    .close = meet_close,
};

gyre_status bench_launcher_open(struct bench_launcher *launcher_out)
{
    *launcher_out = (struct bench_launcher){0};
    GYRE_TRY(
        bench_launcher_detect(gyre_param_environment(), &launcher_out->launch, &launcher_out->ops));
    if (launcher_out->launch.rank == 0 && launcher_out->launch.choice[0] != '\0')
        fprintf(stderr, "%s\n", launcher_out->launch.choice);
    GYRE_TRY(launcher_out->ops->open(launcher_out));
    /* Hosts are compared by hash, as launchers' numbers are unreliable. */
    uint64_t mine = 0;
    uint64_t *all = calloc((size_t)launcher_out->n_processes, sizeof(*all));
    gyre_status status = gyre_host_hash(NULL, &mine);
    if (status == GYRE_SUCCESS && all == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d host names",
                           launcher_out->n_processes);
    if (status == GYRE_SUCCESS)
        status = launcher_out->ops->all_gather(launcher_out, &mine, sizeof(mine), all);
    for (int i = 0; status == GYRE_SUCCESS && i < launcher_out->n_processes; i++) {
        launcher_out->local_process += i < launcher_out->process && all[i] == mine;
        launcher_out->n_local_processes += all[i] == mine;
    }
    free(all);
    if (status != GYRE_SUCCESS)
        launcher_out->ops->close(launcher_out);
    return status;
}

/* Processes gather their checks first, as a failed one would leave the others waiting until
 * GYRE_BOOTSTRAP_TIMEOUT. */
struct report {
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES]; /* of a failed check */
    gyre_unique_id id;                /* only of process 0 */
};

gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out)
{
    struct report mine = {GYRE_SUCCESS, "", {{0}}};
    struct report *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d processes",
                         launcher->n_processes);
    mine.status = gyre_comm_check_local(config);
    if (mine.status == GYRE_SUCCESS && launcher->process == 0)
        mine.status = gyre_get_unique_id(&mine.id);
    if (mine.status != GYRE_SUCCESS)
        memcpy(mine.cause, gyre_cause(), sizeof(mine.cause));
    gyre_status status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    if (status == GYRE_SUCCESS && mine.status != GYRE_SUCCESS)
        status = gyre_fail(mine.status, "rank %d: %s", launcher->process * n_local, mine.cause);
    for (int i = 0; status == GYRE_SUCCESS && i < launcher->n_processes; i++)
        if (all[i].status != GYRE_SUCCESS)
            status = gyre_fail(GYRE_ERROR_REMOTE, "rank %d: %s: %s", i * n_local,
                               gyre_status_name(all[i].status), all[i].cause);
    if (status == GYRE_SUCCESS)
        *id_out = all[0].id;
    free(all);
    return status;
}

gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out)
{
    *ranks_out = (struct bench_ranks){.launcher = launcher, .n_local = n_local};
    if (n_local * launcher->n_processes > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%d processes of %d ranks each are more than %d ranks, which is the limit",
                         launcher->n_processes, n_local, GYRE_MAX_RANKS);
    ranks_out->mine = calloc((size_t)n_local, sizeof(*ranks_out->mine));
    if (ranks_out->mine == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", n_local);
    pthread_barrier_init(&ranks_out->barrier, NULL, (unsigned)n_local);
    return GYRE_SUCCESS;
}

void bench_ranks_close(struct bench_ranks *ranks)
{
    pthread_barrier_destroy(&ranks->barrier);
    free(ranks->mine);
    free(ranks->gathered);
}

static gyre_status gather_from_processes(struct bench_ranks *ranks, size_t n_bytes)
{
    const size_t n_mine_bytes = n_bytes * (size_t)ranks->n_local;
    const size_t n_all_bytes = n_mine_bytes * (size_t)ranks->launcher->n_processes;
    if (n_all_bytes + n_mine_bytes > ranks->n_gathered_bytes) {
        free(ranks->gathered);
        ranks->gathered = malloc(n_all_bytes + n_mine_bytes);
        ranks->n_gathered_bytes = ranks->gathered == NULL ? 0 : n_all_bytes + n_mine_bytes;
        if (ranks->gathered == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes to gather",
                             n_all_bytes);
    }
    unsigned char *mine = ranks->gathered + n_all_bytes;
    for (int i = 0; i < ranks->n_local; i++)
        memcpy(mine + (size_t)i * n_bytes, ranks->mine[i], n_bytes);
    return ranks->launcher->ops->all_gather(ranks->launcher, mine, n_mine_bytes, ranks->gathered);
}

gyre_status bench_ranks_all_gather(const struct bench_self *self, const void *mine, size_t n_bytes,
                                   void *all_out)
{
    struct bench_ranks *ranks = self->ranks;
    ranks->mine[self->local] = mine;
    pthread_barrier_wait(&ranks->barrier);
    if (self->local == 0) {
        ranks->status = gather_from_processes(ranks, n_bytes);
        memcpy(ranks->cause, gyre_cause(), sizeof(ranks->cause));
    }
    pthread_barrier_wait(&ranks->barrier);
    const gyre_status status = ranks->status;
    if (status == GYRE_SUCCESS && all_out != NULL)
        memcpy(all_out, ranks->gathered, n_bytes * (size_t)self->n_ranks);
    else if (status != GYRE_SUCCESS)
        gyre_set_cause(ranks->cause);
    /* no rank starts the next gather while another reads this one */
    pthread_barrier_wait(&ranks->barrier);
    return status;
}

gyre_status bench_ranks_barrier(const struct bench_self *self)
{
    const uint8_t nothing = 0;
    return bench_ranks_all_gather(self, &nothing, sizeof(nothing), NULL);
}

gyre_status bench_ranks_agree(const struct bench_self *self, gyre_status status)
{
    int failed;
    return bench_ranks_agree_on(self, status, &failed);
}

gyre_status bench_ranks_agree_on(const struct bench_self *self, gyre_status status, int *failed_out)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    memcpy(cause, gyre_cause(), sizeof(cause));
    uint8_t all[GYRE_MAX_RANKS];
    const uint8_t mine = (uint8_t)status;
    const gyre_status gathered = bench_ranks_all_gather(self, &mine, sizeof(mine), all);
    int failed = -1;
    for (int i = self->n_ranks - 1; gathered == GYRE_SUCCESS && i >= 0; i--)
        if (all[i] != GYRE_SUCCESS)
            failed = i;
    const gyre_status theirs = failed < 0 ? GYRE_SUCCESS : (gyre_status)all[failed];
    *failed_out = failed;
    if (status != GYRE_SUCCESS) {
        gyre_set_cause(cause);
        return status;
    }
    if (gathered != GYRE_SUCCESS)
        return gathered;
    if (failed >= 0)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank %d failed: %s", failed, gyre_status_name(theirs));
    return GYRE_SUCCESS;
}
