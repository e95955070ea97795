/* SPDX-License-Identifier: Apache-2.0
 *
 * A wrong guess would run processes alone, or mix two jobs, so what is unclear is an error.
 */
#include "bootstrap/launch.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 65536

/* A launcher of a higher value was started by one of a lower value. */
enum nearness {
    CLUSTER, /* an orchestrator's pods */
    RESOURCES,
    INSTANCE, /* tasks inside another resource manager's job */
    MPI,      /* resource managers often start these launchers */
    BY_HAND,  /* RANK and WORLD_SIZE, set last, by a script */
    AGENT
};

/* Names of variables, or NULL. A rank, or a value above 1 of the size's first name, shows the
 * launcher. */
struct launcher {
    const char *name;
    enum nearness nearness;
    const char *mark; /* required, if not NULL */
    const char *rank;
    const char *n_ranks[3];
    const char *local_rank;
    const char *n_local;
    const char *n_hosts;
    const char *hosts;  /* Slurm's list; rank 0 is on the first */
    const char *job[4]; /* identify one start of the job */
};

#define TRAINING                                                           \
    .rank = "RANK", .n_ranks = {"WORLD_SIZE"}, .local_rank = "LOCAL_RANK", \
    .n_local = "LOCAL_WORLD_SIZE"

/* Among launchers that agree, the first row counts. Sources: the launchers' manuals; for PALS and
 * jsrun, tools that read their variables. */
/* clang-format off */
static const struct launcher launchers[] = {
    {.name = "torchrun", .nearness = AGENT, .mark = "TORCHELASTIC_RUN_ID", TRAINING,
     .job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {.name = "RANK and WORLD_SIZE", .nearness = BY_HAND, TRAINING},
    {.name = "horovodrun", .nearness = MPI, .rank = "HOROVOD_RANK", .n_ranks = {"HOROVOD_SIZE"},
     .local_rank = "HOROVOD_LOCAL_RANK", .n_local = "HOROVOD_LOCAL_SIZE",
     .job = {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}},
    {.name = "Open MPI's mpirun", .nearness = MPI, .rank = "OMPI_COMM_WORLD_RANK",
     .n_ranks = {"OMPI_COMM_WORLD_SIZE"}, .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .n_local = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {.name = "MVAPICH's mpirun", .nearness = MPI, .rank = "MV2_COMM_WORLD_RANK",
     .n_ranks = {"MV2_COMM_WORLD_SIZE"}, .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
     .n_local = "MV2_COMM_WORLD_LOCAL_SIZE", .job = {"MPIRUN_ID", "PMI_JOBID"}},
    /* MPICH, Intel MPI */
    {.name = "Hydra's mpiexec", .nearness = MPI, .mark = "MPI_LOCALRANKID", .rank = "PMI_RANK",
     .n_ranks = {"PMI_SIZE"}, .local_rank = "MPI_LOCALRANKID", .n_local = "MPI_LOCALNRANKS",
     .job = {"PMI_JOBID"}},
    {.name = "HPE MPT's mpiexec", .nearness = MPI, .rank = "MPT_MPI_RANK",
     .n_ranks = {"MPT_MPI_SIZE", "PMI_SIZE"}, .local_rank = "MPT_LRANK"},
    {.name = "NEC MPI's mpirun", .nearness = MPI, .rank = "MPIRANK", .n_ranks = {"MPISIZE"}},
    {.name = "flux run", .nearness = INSTANCE, .rank = "FLUX_TASK_RANK",
     .n_ranks = {"FLUX_JOB_SIZE"}, .local_rank = "FLUX_TASK_LOCAL_ID",
     .n_hosts = "FLUX_JOB_NNODES", .job = {"FLUX_JOB_ID"}},
    {.name = "srun", .nearness = RESOURCES, .rank = "SLURM_PROCID",
     .n_ranks = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     .local_rank = "SLURM_LOCALID", .n_hosts = "SLURM_STEP_NUM_NODES",
     .hosts = "SLURM_STEP_NODELIST",
     .job = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID"}},
    {.name = "jsrun", .nearness = RESOURCES, .rank = "JSM_NAMESPACE_RANK",
     .n_ranks = {"JSM_NAMESPACE_SIZE"}, .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
     .n_local = "JSM_NAMESPACE_LOCAL_SIZE", .job = {"LSB_JOBID", "PMIX_NAMESPACE"}},
    /* HPE Cray */
    {.name = "PALS' mpiexec", .nearness = RESOURCES, .rank = "PALS_RANKID",
     .n_ranks = {"PALS_SIZE", "PMI_SIZE"}, .local_rank = "PALS_LOCAL_RANKID",
     .n_local = "PALS_LOCAL_SIZE", .job = {"PALS_APID"}},
    /* Cray ALPS */
    {.name = "aprun", .nearness = RESOURCES, .rank = "ALPS_APP_PE",
     .n_ranks = {"ALPS_APP_PE_COUNT", "PMI_SIZE"}, .job = {"ALPS_APP_ID"}},
    /* IBM; MP_PROCS is also a user's setting */
    {.name = "poe", .nearness = RESOURCES, .rank = "MP_CHILD", .n_ranks = {NULL, "MP_PROCS"},
     .job = {"MP_PARTITION"}},
    {.name = "a launcher with PMI", .nearness = RESOURCES, .rank = "PMI_RANK",
     .n_ranks = {"PMI_SIZE"}, .local_rank = "PMI_LOCAL_RANK", .n_local = "PMI_LOCAL_SIZE",
     .job = {"PMI_JOBID"}},
    /* Only PMIx's server tells the size. */
    {.name = "a launcher with PMIx", .nearness = RESOURCES, .rank = "PMIX_RANK",
     .job = {"PMIX_NAMESPACE"}},
    {.name = "Kubernetes' indexed job", .nearness = CLUSTER, .rank = "JOB_COMPLETION_INDEX",
     .n_ranks = {NULL, "WORLD_SIZE"}},
};
/* clang-format on */
#define N_LAUNCHERS (int)GYRE_ARRAY_LENGTH(launchers)

/* They identify jobs whose launcher does not. */
static const char *const schedulers[] = {"SLURM_JOB_ID", "PBS_JOBID",   "LSB_JOBID",
                                         "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID"};

#define REMEDY                                                                                     \
    "start with a launcher that gyre knows (torchrun, mpirun, srun; docs/install.md lists them), " \
    "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process"

struct said {
    bool has_launched;
    bool is_whole;
    int rank;
    int n_ranks; /* 0 = not said */
    const char *rank_name;
    const char *size_name;
};

/* Without blanks around it; NULL = unset or empty. */
static const char *find(char *const *environment, const char *name, char *text_out, size_t n_text)
{
    const size_t n_name = name == NULL ? 0 : strlen(name);
    for (; name != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, name, n_name) != 0 || (*environment)[n_name] != '=')
            continue;
        const char *from = *environment + n_name + 1;
        from += strspn(from, " \t\r\n\"'");
        snprintf(text_out, n_text, "%s", from);
        for (size_t n = strlen(text_out); n > 0 && strchr(" \t\r\n\"'", text_out[n - 1]) != NULL;)
            text_out[--n] = '\0';
        return text_out[0] == '\0' ? NULL : text_out;
    }
    return NULL;
}

static bool is_set(char *const *environment, const char *name)
{
    char text[8];
    return find(environment, name, text, sizeof(text)) != NULL;
}

/* An unset variable leaves value_out as it is. */
static gyre_status read_number(char *const *environment, const char *name, int low, int high,
                               int *value_out)
{
    char text[64];
    char *end = NULL;
    if (find(environment, name, text, sizeof(text)) == NULL)
        return GYRE_SUCCESS;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > high)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%s is not a number from %d to %d", name,
                         text, low, high);
    *value_out = (int)value;
    return GYRE_SUCCESS;
}

static gyre_status listen_to(char *const *environment, const struct launcher *row,
                             struct said *said_out)
{
    struct said said = {.rank = -1, .rank_name = row->rank};
    int n = 0;
    char text[8];
    *said_out = said;
    /* Slurm gives a batch script a rank and a number of tasks, too. */
    const bool is_batch_script = row->hosts != NULL && !is_set(environment, "SLURM_STEP_ID") &&
                                 !is_set(environment, "SLURM_STEP_NUM_TASKS") &&
                                 find(environment, "ENVIRONMENT", text, sizeof(text)) != NULL &&
                                 strcmp(text, "BATCH") == 0;
    if ((row->mark != NULL && !is_set(environment, row->mark)) || is_batch_script)
        return GYRE_SUCCESS;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(row->n_ranks) && n == 0; i++) {
        GYRE_TRY(read_number(environment, row->n_ranks[i], 1, MAX_RANKS, &n));
        if (n != 0)
            said.size_name = row->n_ranks[i];
    }
    said.n_ranks = n;
    GYRE_TRY(read_number(environment, row->rank, 0, n != 0 ? n - 1 : MAX_RANKS - 1, &said.rank));
    said.is_whole = said.rank >= 0;
    said.has_launched = said.is_whole || (n > 1 && said.size_name == row->n_ranks[0]);
    *said_out = said;
    return GYRE_SUCCESS;
}

static void name_values(const struct said *said, char *text, size_t text_bytes)
{
    gyre_text_append(text, text_bytes, "%s", text[0] != '\0' ? ", " : "");
    if (said->is_whole)
        gyre_text_append(text, text_bytes, "%s=%d%s", said->rank_name, said->rank,
                         said->size_name != NULL ? " " : "");
    if (said->size_name != NULL)
        gyre_text_append(text, text_bytes, "%s=%d", said->size_name, said->n_ranks);
}

static bool agrees(const struct said *a, const struct said *b)
{
    return a->rank == b->rank && (a->n_ranks == b->n_ranks || a->n_ranks == 0 || b->n_ranks == 0);
}

static bool can_nest(char *const *environment, int inner, int outer, const struct said *all)
{
    const enum nearness nearness = launchers[inner].nearness;
    const bool is_step = launchers[outer].hosts == NULL || is_set(environment, "SLURM_STEP_ID") ||
                         is_set(environment, "SLURM_STEP_NUM_TASKS");
    /* One outer process may have started all inner ranks of a host, in blocks or in turns. */
    const int n_inner = all[inner].n_ranks, n_outer = all[outer].n_ranks;
    const bool is_inside = n_outer > 0 && n_inner > n_outer && n_inner % n_outer == 0 &&
                           (all[inner].rank / (n_inner / n_outer) == all[outer].rank ||
                            all[inner].rank % n_outer == all[outer].rank);
    if (nearness == launchers[outer].nearness)
        return false;
    if (all[inner].n_ranks == 1 && (all[outer].n_ranks > 1 || all[outer].rank > 0))
        return !is_step || (nearness == AGENT && launchers[outer].nearness < MPI);
    if (nearness == BY_HAND && launchers[outer].nearness == MPI)
        return is_inside;
    return true;
}

/* A size above 1 beside a rank, under unknown names. @text_out: the variables with their values. */
static bool is_unknown_size(char *const *environment, const char *name, char text_out[320])
{
    static const char *const sizes[] = {"_WORLD_SIZE", "_SIZE",          "_NRANKS",    "_NUM_RANKS",
                                        "_NPROCS",     "_NUM_PROCESSES", "_NUM_PROCS", "_NTASKS",
                                        "_NUM_WORKER", "_NUM_WORKERS",   "_COUNT"};
    static const char *const ranks[] = {"_RANK",   "_RANKID",     "_RANK_ID",
                                        "_PROCID", "_PROCESS_ID", "_WORKER_ID"};
    char size[32];
    char rank_name[112];
    char rank[32];
    for (int i = 0; i < N_LAUNCHERS; i++) {
        const struct launcher *row = &launchers[i];
        const char *const known[] = {row->n_ranks[0], row->n_ranks[1], row->n_ranks[2],
                                     row->n_local};
        for (size_t k = 0; k < GYRE_ARRAY_LENGTH(known); k++)
            if (known[k] != NULL && strcmp(known[k], name) == 0)
                return false;
    }
    if (find(environment, name, size, sizeof(size)) == NULL || atol(size) < 2)
        return false;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++) {
        const size_t n_prefix = strlen(name) - gyre_min_u64(strlen(name), strlen(sizes[i]));
        if (n_prefix == 0 || strcmp(name + n_prefix, sizes[i]) != 0)
            continue;
        for (size_t k = 0; k < GYRE_ARRAY_LENGTH(ranks); k++) {
            snprintf(rank_name, sizeof(rank_name), "%.*s%s", (int)n_prefix, name, ranks[k]);
            if (find(environment, rank_name, rank, sizeof(rank)) != NULL &&
                isdigit((unsigned char)rank[0])) {
                snprintf(text_out, 320, "%s=%s and %s=%s", name, size, rank_name, rank);
                return true;
            }
        }
        snprintf(text_out, 320, "%s=%s", name, size);
        if (i == 0)
            return true;
    }
    return false;
}

static gyre_status choose(char *const *environment, const struct said *all, int *chosen_out)
{
    char text[GYRE_CAUSE_MAX_BYTES / 2] = "";
    char server[64];
    int chosen = -1;
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (all[i].is_whole && all[i].n_ranks > 0 &&
            (chosen < 0 || launchers[i].nearness > launchers[chosen].nearness))
            chosen = i;
    /* mpirun's variables are left over if the PMIx server is that of an srun inside. */
    const char *name = find(environment, "PMIX_NAMESPACE", server, sizeof(server));
    for (int i = 0; i < N_LAUNCHERS && chosen >= 0 && launchers[chosen].nearness == MPI &&
                    name != NULL && strncmp(name, "slurm.pmix.", 11) == 0;
         i++)
        if (launchers[i].hosts != NULL && all[i].is_whole && all[i].n_ranks > 0)
            chosen = i;
    for (int i = 0; i < N_LAUNCHERS && chosen < 0; i++)
        if (all[i].has_launched) {
            name_values(&all[i], text, sizeof(text));
            return gyre_fail(
                GYRE_ERROR_INVALID_USAGE,
                "%s: %s started this process, but does not say %s, and it would run as "
                "a lonely copy: " REMEDY "; to run alone, unset %s",
                text, launchers[i].name,
                all[i].is_whole ? "how many ranks there are" : "which rank it is",
                all[i].is_whole ? all[i].rank_name : all[i].size_name);
        }
    for (char *const *entry = environment;
         *entry != NULL && (chosen < 0 || all[chosen].n_ranks == 1); entry++) {
        char variable[96];
        char values[320];
        snprintf(variable, sizeof(variable), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (is_unknown_size(environment, variable, values))
            return gyre_fail(
                GYRE_ERROR_INVALID_USAGE,
                "%s: a launcher that gyre does not know started several processes, and "
                "each would run as a lonely copy: " REMEDY "; to run alone, unset %s",
                values, variable);
    }
    for (int i = 0; i < N_LAUNCHERS && chosen >= 0; i++) {
        if (!all[i].is_whole || agrees(&all[chosen], &all[i]) ||
            launchers[i].nearness > launchers[chosen].nearness ||
            can_nest(environment, chosen, i, all))
            continue;
        name_values(&all[chosen], text, sizeof(text));
        name_values(&all[i], text, sizeof(text));
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "%s: %s and %s disagree, and which one started the other cannot be told: "
                         "unset the variables of the outer one",
                         text, launchers[chosen].name, launchers[i].name);
    }
    *chosen_out = chosen;
    return GYRE_SUCCESS;
}

/* Without an address the job's identity is the address on this host. */
static gyre_status find_address(char *const *environment, const struct launcher *row, bool has_job,
                                gyre_launch *launch)
{
    char text[512];
    char store[8];
    int n_hosts = 0;
    const bool has_address = is_set(environment, "MASTER_ADDR");
    const bool has_port = is_set(environment, "MASTER_PORT");
    if (has_address && has_port) {
        GYRE_TRY(read_number(environment, "MASTER_PORT", 1, 65535, &launch->port));
        find(environment, "MASTER_ADDR", launch->address, sizeof(launch->address));
        /* torchrun's agent has a store at MASTER_PORT */
        if (row->nearness >= BY_HAND &&
            find(environment, "TORCHELASTIC_USE_AGENT_STORE", store, sizeof(store)) != NULL &&
            strcmp(store, "True") == 0)
            launch->port = launch->port == 65535 ? 1024 : launch->port + 1;
        return GYRE_SUCCESS;
    }
    if (row->nearness >= BY_HAND)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "RANK=%d and WORLD_SIZE=%d are set but %s is not: " REMEDY, launch->rank,
                         launch->n_ranks, has_address ? "MASTER_PORT" : "MASTER_ADDR");
    GYRE_TRY(read_number(environment, row->n_hosts, 1, MAX_RANKS, &n_hosts));
    if (n_hosts == 1 && launch->n_local_ranks < 0)
        launch->n_local_ranks = launch->n_ranks;
    const uint64_t hash = gyre_hash(GYRE_HASH_INIT, launch->job, strlen(launch->job));
    if (!has_job)
        return GYRE_SUCCESS;
    if (n_hosts <= 1 && (launch->n_local_ranks < 0 || launch->n_local_ranks == launch->n_ranks)) {
        snprintf(launch->address, sizeof(launch->address), "@gyre-%016llx",
                 (unsigned long long)hash);
    } else if (find(environment, row->hosts, text, sizeof(text)) != NULL) {
        const char *bracket = text + strcspn(text, "[,"); /* "a[03-05,9],b" begins with a03 */
        const char *end = *bracket == '[' ? strchr(bracket, ']') : NULL;
        snprintf(launch->address, sizeof(launch->address), "%.*s", (int)(bracket - text), text);
        if (*bracket == '[')
            gyre_text_append(launch->address, sizeof(launch->address), "%.*s",
                             (int)strcspn(bracket + 1, "-,]"), bracket + 1);
        if (end != NULL)
            gyre_text_append(launch->address, sizeof(launch->address), "%.*s",
                             (int)strcspn(end + 1, ",["), end + 1);
        launch->port = 20000 + (int)(hash % 12000); /* below the kernels' ephemeral ports */
    }
    return GYRE_SUCCESS;
}

static gyre_status fill(char *const *environment, const struct said *all, int chosen,
                        gyre_launch *launch)
{
    const struct launcher *row = &launchers[chosen];
    char text[200];
    launch->rank = all[chosen].rank;
    launch->n_ranks = all[chosen].n_ranks;
    snprintf(launch->name, sizeof(launch->name), "%s", row->name);
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (all[i].is_whole && agrees(&all[chosen], &all[i])) {
            if (launch->local_rank < 0)
                GYRE_TRY(read_number(environment, launchers[i].local_rank, 0, MAX_RANKS,
                                     &launch->local_rank));
            if (launch->n_local_ranks < 0)
                GYRE_TRY(read_number(environment, launchers[i].n_local, 1, launch->n_ranks,
                                     &launch->n_local_ranks));
        }
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(row->job); i++)
        if (find(environment, row->job[i], text, sizeof(text)) != NULL)
            gyre_text_append(launch->job, sizeof(launch->job), "%s%s=%s",
                             launch->job[0] != '\0' ? " " : "", row->job[i], text);
    if (launch->n_ranks > 1)
        GYRE_TRY(find_address(environment, row, launch->job[0] != '\0', launch));
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(schedulers); i++)
        if (strstr(launch->job, schedulers[i]) == NULL &&
            find(environment, schedulers[i], text, sizeof(text)) != NULL)
            gyre_text_append(launch->job, sizeof(launch->job), "%s%s=%s",
                             launch->job[0] != '\0' ? " " : "", schedulers[i], text);
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (all[i].is_whole && !agrees(&all[chosen], &all[i])) {
            if (launch->choice[0] == '\0') {
                name_values(&all[chosen], launch->choice, sizeof(launch->choice));
                gyre_text_append(launch->choice, sizeof(launch->choice),
                                 " of %s count, not those around it: ", row->name);
            } else {
                gyre_text_append(launch->choice, sizeof(launch->choice), "; ");
            }
            text[0] = '\0';
            name_values(&all[i], text, sizeof(text));
            gyre_text_append(launch->choice, sizeof(launch->choice), "%s (%s)", text,
                             launchers[i].name);
        }
    return GYRE_SUCCESS;
}

gyre_status gyre_launch_find(char *const *environment, gyre_launch *launch_out)
{
    struct said all[N_LAUNCHERS];
    gyre_launch launch = GYRE_LAUNCH_INIT;
    int chosen = -1;
    gyre_status broken = GYRE_SUCCESS;
    enum nearness broken_nearness = CLUSTER;
    char cause[GYRE_CAUSE_MAX_BYTES];
    for (int i = 0; i < N_LAUNCHERS; i++) {
        all[i] = (struct said){.rank = -1};
        const gyre_status status = listen_to(environment, &launchers[i], &all[i]);
        if (status != GYRE_SUCCESS && broken == GYRE_SUCCESS) {
            broken = status;
            broken_nearness = launchers[i].nearness;
            memcpy(cause, gyre_cause(), sizeof(cause));
        }
    }
    gyre_status status = choose(environment, all, &chosen);
    /* A value that is no number counts unless a nearer launcher speaks clearly. */
    if (broken != GYRE_SUCCESS && (chosen < 0 || broken_nearness >= launchers[chosen].nearness)) {
        gyre_set_cause(cause);
        return broken;
    }
    if (status == GYRE_SUCCESS && chosen >= 0)
        status = fill(environment, all, chosen, &launch);
    if (status == GYRE_SUCCESS)
        *launch_out = launch;
    return status;
}

bool gyre_launch_has_pmix(char *const *environment, const gyre_launch *launch)
{
    char text[32];
    return launch->name[0] != '\0' && strcmp(launch->name, launchers[0].name) != 0 &&
           strcmp(launch->name, launchers[1].name) != 0 &&
           find(environment, "PMIX_RANK", text, sizeof(text)) != NULL && atoi(text) == launch->rank;
}
