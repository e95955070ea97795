/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launcher started this process, and the launcher of a process that was started alone. A
 * process that was started as one of many but cannot join the others must refuse to run. Otherwise
 * every process would measure itself alone, and its output would look like a result.
 */
#include "bench/launch/launcher.h"

#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>

static long number_of(char *(*lookup)(const char *), const char *name)
{
    const char *text = lookup(name);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

/* Torchrun's variables must be set all or not at all. */
static gyre_status detect_environment(char *(*lookup)(const char *), bool *is_found_out)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    const char *absent = NULL;
    *is_found_out = false;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(names); i++)
        if (lookup(names[i]) == NULL)
            absent = names[i];
    if (absent != NULL && lookup("RANK") != NULL && number_of(lookup, "WORLD_SIZE") > 1)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "RANK and WORLD_SIZE=%s are set but %s is not: start with torchrun, or set "
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            lookup("WORLD_SIZE"), absent);
    *is_found_out = absent == NULL;
    return GYRE_SUCCESS;
}

gyre_status bench_launcher_detect(char *(*lookup)(const char *name),
                                  const struct bench_launcher_ops **ops_out)
{
    /* Only these variables show that mpirun (or srun --mpi=pmix) started this process. */
    const bool is_mpi = lookup("OMPI_COMM_WORLD_SIZE") != NULL || lookup("PMIX_RANK") != NULL;
#ifdef GYRE_BENCH_WITH_MPI
    if (is_mpi) {
        *ops_out = &bench_launcher_mpi;
        return GYRE_SUCCESS;
    }
#else
    if (is_mpi && number_of(lookup, "OMPI_COMM_WORLD_SIZE") != 1)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "mpirun started this process, but it was built without MPI: install "
                         "libopenmpi-dev and build again (bench/run does both)");
#endif
    bool is_found;
    GYRE_TRY(detect_environment(lookup, &is_found));
    if (is_found) {
        *ops_out = &bench_launcher_torchrun;
        return GYRE_SUCCESS;
    }
    static const char *const sizes[] = {
        "PMI_SIZE",           "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
        "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE",       "ALPS_APP_PE_COUNT"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++)
        if (number_of(lookup, sizes[i]) > 1)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "a launcher started %s processes (%s), but this bench cannot join "
                             "them, and they would run as lonely copies: start with OpenMPI's "
                             "mpirun, with srun --mpi=pmix, or with RANK, WORLD_SIZE, MASTER_ADDR "
                             "and MASTER_PORT set",
                             lookup(sizes[i]), sizes[i]);
    *ops_out = &bench_launcher_alone;
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

/* Counts the processes on this host and those of them before this process. It compares hosts by
 * their hash and does not rely on the launcher's numbers. */
static gyre_status find_local_process(struct bench_launcher *launcher)
{
    uint64_t mine = 0;
    GYRE_TRY(gyre_host_hash(NULL, &mine));
    uint64_t *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d host names",
                         launcher->n_processes);
    const gyre_status status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    for (int i = 0; status == GYRE_SUCCESS && i < launcher->n_processes; i++) {
        launcher->local_process += i < launcher->process && all[i] == mine;
        launcher->n_local_processes += all[i] == mine;
    }
    free(all);
    return status;
}

gyre_status bench_launcher_open(struct bench_launcher *launcher_out)
{
    *launcher_out = (struct bench_launcher){0};
    GYRE_TRY(bench_launcher_detect(getenv, &launcher_out->ops));
    GYRE_TRY(launcher_out->ops->open(launcher_out));
    const gyre_status status = find_local_process(launcher_out);
    if (status != GYRE_SUCCESS)
        launcher_out->ops->close(launcher_out);
    return status;
}
