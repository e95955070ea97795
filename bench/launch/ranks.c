/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering: threads through memory, then local rank 0 (the main thread, the only one that may use
 * MPI) through the world.
 */
#include "bench/launch/ranks.h"

#include "core/model/schedule.h"

#include <stdlib.h>
#include <string.h>

gyre_status bench_team_open(struct bench_world *world, int n_local, struct bench_team *team_out)
{
    *team_out = (struct bench_team){.world = world, .n_local = n_local};
    if (n_local * world->n_processes > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d processes of %d ranks are over %d ranks",
                         world->n_processes, n_local, GYRE_MAX_RANKS);
    team_out->mine = calloc((size_t)n_local, sizeof(*team_out->mine));
    if (team_out->mine == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%d ranks", n_local);
    pthread_barrier_init(&team_out->barrier, NULL, (unsigned)n_local);
    return GYRE_SUCCESS;
}

void bench_team_close(struct bench_team *team)
{
    pthread_barrier_destroy(&team->barrier);
    free(team->mine);
    free(team->gathered);
}

/* Local rank 0: collect this process's parts and exchange them. */
static gyre_status exchange(struct bench_team *team, size_t n_bytes)
{
    const size_t n_mine_bytes = n_bytes * (size_t)team->n_local;
    const size_t n_all_bytes = n_mine_bytes * (size_t)team->world->n_processes;
    if (n_all_bytes + n_mine_bytes > team->n_gathered_bytes) {
        free(team->gathered);
        team->gathered = malloc(n_all_bytes + n_mine_bytes);
        team->n_gathered_bytes = team->gathered == NULL ? 0 : n_all_bytes + n_mine_bytes;
        if (team->gathered == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu bytes to gather", n_all_bytes);
    }
    unsigned char *mine = team->gathered + n_all_bytes;
    for (int i = 0; i < team->n_local; i++)
        memcpy(mine + (size_t)i * n_bytes, team->mine[i], n_bytes);
    return team->world->ops->all_gather(team->world, mine, n_mine_bytes, team->gathered);
}

gyre_status bench_team_all_gather(const struct bench_member *member, const void *mine,
                                  size_t n_bytes, void *all_out)
{
    struct bench_team *team = member->team;
    team->mine[member->local] = mine;
    pthread_barrier_wait(&team->barrier);
    if (member->local == 0) {
        team->status = exchange(team, n_bytes);
        memcpy(team->cause, gyre_cause(), sizeof(team->cause));
    }
    pthread_barrier_wait(&team->barrier);
    const gyre_status status = team->status;
    if (status == GYRE_SUCCESS && all_out != NULL)
        memcpy(all_out, team->gathered, n_bytes * (size_t)member->n_ranks);
    else if (status != GYRE_SUCCESS)
        gyre_set_cause(team->cause);
    /* nobody starts the next gather while another still reads this one */
    pthread_barrier_wait(&team->barrier);
    return status;
}

gyre_status bench_team_barrier(const struct bench_member *member)
{
    const uint8_t nothing = 0;
    return bench_team_all_gather(member, &nothing, sizeof(nothing), NULL);
}

gyre_status bench_team_agree(const struct bench_member *member, gyre_status status)
{
    int failed;
    return bench_team_agree_on(member, status, &failed);
}

gyre_status bench_team_agree_on(const struct bench_member *member, gyre_status status,
                                int *failed_out)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    memcpy(cause, gyre_cause(), sizeof(cause));
    uint8_t all[GYRE_MAX_RANKS];
    const uint8_t mine = (uint8_t)status;
    const gyre_status gathered = bench_team_all_gather(member, &mine, sizeof(mine), all);
    int failed = -1;
    for (int i = member->n_ranks - 1; gathered == GYRE_SUCCESS && i >= 0; i--)
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
