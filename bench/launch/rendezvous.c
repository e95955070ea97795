/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes gather their checks first, as a failed one would leave the others waiting until
 * GYRE_BOOTSTRAP_TIMEOUT.
 */
#include "bench/launch/rendezvous.h"

#include "core/gyre_model.h"

#include <stdlib.h>
#include <string.h>

struct report {
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES]; /* of a failed check */
    gyre_unique_id id;                /* only of process 0 */
};

/* This process's own failure first, else the first process's. */
static gyre_status find_failure(const struct bench_launcher *launcher, int n_local,
                                const struct report *all)
{
    const struct report *own = &all[launcher->process];
    int failed = 0;
    if (own->status != GYRE_SUCCESS)
        return gyre_fail(own->status, "rank %d: %s", launcher->process * n_local, own->cause);
    while (failed < launcher->n_processes && all[failed].status == GYRE_SUCCESS)
        failed++;
    if (failed == launcher->n_processes)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_REMOTE, "rank %d: %s: %s", failed * n_local,
                     gyre_status_name(all[failed].status), all[failed].cause);
}

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
    if (status == GYRE_SUCCESS)
        status = find_failure(launcher, n_local, all);
    if (status == GYRE_SUCCESS)
        *id_out = all[0].id;
    free(all);
    return status;
}
