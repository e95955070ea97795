/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/launch.h"
#include "bootstrap/meet.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/util.h"
#include "tests/support/bootstrap_rig.h"

#include <pthread.h>

#define MAX_ROWS      32
#define MAX_VARIABLES 64

enum { BY_HAND = 4, MPI = 3 };

struct row {
    char name[32];
    int nearness, rank, n_ranks, local_rank, n_variables;
    char job[64];
    char *variables[MAX_VARIABLES];
};

static struct row rows[MAX_ROWS];
static int n_rows;

static void read_rows(void)
{
    char line[1024];
    char variables[768];
    FILE *file = fopen(LAUNCHERS_FILE, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        struct row *row = &rows[n_rows];
        if (line[0] == '#')
            continue;
        CHECK(sscanf(line, "%31[^;]; %d; %d %d %d; %63[^;]; %767[^\n]", row->name, &row->nearness,
                     &row->rank, &row->n_ranks, &row->local_rank, row->job, variables) == 7);
        for (char *word = strtok(variables, " "); word != NULL; word = strtok(NULL, " "))
            row->variables[row->n_variables++] = strdup(word);
        n_rows++;
    }
    CHECK(file != NULL && fclose(file) == 0 && n_rows > 10);
}

static gyre_launch launch;

static gyre_status nest(const struct row *inner, const struct row *outer)
{
    char *environment[2 * MAX_VARIABLES + 1] = {NULL};
    int n = 0;
    for (int i = 0; i < inner->n_variables; i++)
        environment[n++] = inner->variables[i];
    for (int i = 0; outer != NULL && i < outer->n_variables; i++)
        environment[n++] = outer->variables[i];
    return gyre_launch_find(environment, &launch);
}

TEST_CASE("each launcher gives rank and size")
{
    read_rows();
    for (int i = 0; i < n_rows; i++) {
        const struct row *row = &rows[i];
        CHECK_OK(nest(row, NULL));
        CHECK_MSG(strcmp(launch.name, row->name) == 0 && launch.rank == row->rank &&
                      launch.n_ranks == row->n_ranks && launch.local_rank == row->local_rank,
                  "%s: %s %d of %d, %d", row->name, launch.name, launch.rank, launch.n_ranks,
                  launch.local_rank);
        CHECK_MSG(row->job[0] == '-' ? launch.job[0] == '\0' : strstr(launch.job, row->job) != NULL,
                  "%s: %s", row->name, launch.job);
        CHECK_MSG(launch.choice[0] == '\0', "%s", launch.choice);
    }
}

static bool have_common_variable(const struct row *a, const struct row *b)
{
    for (int i = 0; i < a->n_variables; i++)
        for (int k = 0; k < b->n_variables; k++)
            if (strncmp(a->variables[i], b->variables[k], strcspn(a->variables[i], "=") + 1) == 0)
                return true;
    return false;
}

TEST_CASE("of two launchers the inner one counts, or both are refused")
{
    read_rows();
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < n_rows; k++) {
            const struct row *inner = &rows[i];
            const struct row *outer = &rows[k];
            if (i == k || inner->nearness < outer->nearness)
                continue;
            const gyre_status status = nest(inner, outer);
            const bool is_unclear = inner->nearness == outer->nearness ||
                                    (inner->nearness == BY_HAND && outer->nearness == MPI);
            /* The inner launcher has set the variables that they share. */
            if (status == GYRE_SUCCESS)
                CHECK_MSG(launch.rank == inner->rank && launch.n_ranks == inner->n_ranks,
                          "%s in %s: %d of %d", inner->name, outer->name, launch.rank,
                          launch.n_ranks);
            if (is_unclear && !have_common_variable(inner, outer))
                CHECK_MSG(status == GYRE_ERROR_INVALID_USAGE, "%s in %s", inner->name, outer->name);
            if (!is_unclear)
                CHECK_MSG(status == GYRE_SUCCESS, "%s in %s: %s", inner->name, outer->name,
                          gyre_cause());
            if (!is_unclear && !have_common_variable(inner, outer))
                CHECK_HAS(launch.choice, outer->name);
        }
}

/* gyre_launch_find() with the given entries. */
#define FIND(...) gyre_launch_find((char *[]){__VA_ARGS__, NULL}, &launch)

TEST_CASE("what cannot be told is refused with names and values")
{
    CHECK_BAD_USAGE(FIND("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1",
                         "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"),
                    "RANK=0 WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4");
    /* mpirun on each host starts four ranks there. */
    CHECK_OK(FIND("RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=a", "MASTER_PORT=1",
                  "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"));
    CHECK(launch.rank == 5 && launch.n_ranks == 8);
    /* A shell's leftovers of one rank. */
    CHECK_BAD_USAGE(FIND("RANK=0", "WORLD_SIZE=1", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4"),
                    "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4");
    CHECK_BAD_USAGE(FIND("RANK=0", "WORLD_SIZE=1", "PMIX_RANK=1"),
                    "RANK=0 WORLD_SIZE=1, PMIX_RANK=1");
    /* mpirun in a batch script, and variables that mpirun left to srun's tasks. */
    CHECK_OK(FIND("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=0",
                  "SLURM_NTASKS=4"));
    CHECK(launch.n_ranks == 1);
    CHECK_OK(FIND("ENVIRONMENT=BATCH", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7"));
    CHECK(launch.n_ranks == 1 && launch.name[0] == '\0');
    CHECK_OK(FIND("ENVIRONMENT=BATCH", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0"));
    CHECK(launch.n_ranks == 4);
    CHECK_OK(FIND("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=2",
                  "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_ID=1", "PMIX_RANK=2",
                  "PMIX_NAMESPACE=slurm.pmix.7.1"));
    CHECK(launch.rank == 2 && launch.n_ranks == 4);
    CHECK_OK(FIND("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=1",
                  "TORCHELASTIC_RUN_ID=none", "PMIX_RANK=0", "PMIX_NAMESPACE=slurm.pmix.7.1"));
    CHECK(launch.rank == 3 && strcmp(launch.name, "torchrun") == 0);
    CHECK_BAD_USAGE(FIND("PMIX_RANK=0"), "unset PMIX_RANK");
    CHECK_BAD_USAGE(FIND("JOB_COMPLETION_INDEX=1"), "how many ranks");
    CHECK_BAD_USAGE(FIND("RANK=1"), "RANK=1");
    CHECK_BAD_USAGE(FIND("PMI_SIZE=4"), "PMI_SIZE=4");
    CHECK_BAD_USAGE(FIND("SLURM_STEP_NUM_TASKS=2"), "lonely copy");
    CHECK_BAD_USAGE(FIND("GLOO_RANK=1", "GLOO_SIZE=4"), "GLOO_SIZE=4 and GLOO_RANK=1");
    CHECK_BAD_USAGE(FIND("XYZ_WORLD_SIZE=2"), "XYZ_WORLD_SIZE=2");
    CHECK_BAD_USAGE(FIND("JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=0"),
                    "JAX_NUM_PROCESSES=2 and JAX_PROCESS_ID=0");
    CHECK_BAD_USAGE(FIND("GLOO_RANK=1", "GLOO_SIZE=4", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"),
                    "GLOO_SIZE=4");
    /* A shell inside an allocation, sizes without ranks, and look-alikes. */
    CHECK_OK(FIND("SLURM_NTASKS=4", "SLURM_JOB_ID=7", "WORLD_SIZE=1", "MP_PROCS=4", "HISTSIZE=9",
                  "PAGE_SIZE=4096", "X_RANK=best", "X_SIZE=4", "LOCAL_RANK=1"));
    CHECK(launch.name[0] == '\0' && launch.n_ranks == 1);
}

TEST_CASE("values are numbers in range, and blanks do not matter")
{
    char *const more[] = {"MASTER_ADDR= [fe80::1%eth0] ", "MASTER_PORT= 29500\n"};
    CHECK_OK(FIND("RANK= 1", "WORLD_SIZE=2 ", more[0], more[1]));
    CHECK(launch.rank == 1 && launch.n_ranks == 2 && launch.port == 29500);
    CHECK(strcmp(launch.address, "[fe80::1%eth0]") == 0);
    static char *const bad[][2] = {
        {"RANK=2", "WORLD_SIZE=2"},  {"RANK=-1", "WORLD_SIZE=2"},
        {"RANK=x", "WORLD_SIZE=2"},  {"RANK=0", "WORLD_SIZE=0"},
        {"RANK=0", "WORLD_SIZE=2x"}, {"RANK=0", "WORLD_SIZE=99999999999"}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(bad); i++)
        CHECK_BAD_ARGUMENT(FIND(bad[i][0], bad[i][1], more[0], more[1]), "is not a number from");
    static char *const ports[] = {"MASTER_PORT=0", "MASTER_PORT=65536", "MASTER_PORT=ssh"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(ports); i++)
        CHECK_BAD_ARGUMENT(FIND("RANK=0", "WORLD_SIZE=2", more[0], ports[i]),
                           "is not a number from 1 to 65535");
    CHECK_BAD_ARGUMENT(FIND("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT= "),
                       "MASTER_PORT");
}

TEST_CASE("steps of one job have identities and places of their own")
{
    gyre_launch first;
    char *const job = "SLURM_JOB_ID=7";
    CHECK_OK(FIND("SLURM_PROCID=0", "SLURM_NTASKS=2", job, "SLURM_STEP_ID=0"));
    first = launch;
    CHECK_OK(FIND("SLURM_PROCID=0", "SLURM_NTASKS=2", job, "SLURM_STEP_ID=1"));
    CHECK(strcmp(first.job, launch.job) != 0 && strcmp(first.address, launch.address) != 0);
    CHECK(launch.address[0] == '@');
    /* Rank 0 is on the step's first host. */
    CHECK_OK(FIND("SLURM_PROCID=0", "SLURM_NTASKS=2", job, "SLURM_STEP_ID=1",
                  "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=gpu[007-009,12]-ib,b"));
    CHECK_MSG(strcmp(launch.address, "gpu007-ib") == 0, "%s", launch.address);
    CHECK(launch.port >= 20000 && launch.port < 32000);
    /* Without an identity there is no place to meet. */
    CHECK_OK(FIND("PMI_RANK=0", "PMI_SIZE=2"));
    CHECK(launch.address[0] == '\0');
    /* The scheduler's job tells these jobs apart. */
    CHECK_OK(FIND("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=9", "PBS_JOBID=3.x"));
    CHECK_MSG(strcmp(launch.job, "PBS_JOBID=3.x") == 0, "%s", launch.job);
}

/* A rank on a thread. */
struct guest {
    struct gyre_meet_place place;
    pthread_t thread;
    gyre_status status;
    int sum;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *run_guest(void *argument)
{
    struct guest *guest = argument;
    struct gyre_meet meet;
    guest->status = gyre_meet_open(&guest->place, &meet);
    if (guest->status == GYRE_SUCCESS) {
        int all[8] = {0};
        const int mine = 1 << guest->place.rank;
        guest->status =
            gyre_meet_all_gather(&meet, &mine, sizeof(mine), all, gyre_now_ns() + 20000000000ULL);
        for (int i = 0; i < 8; i++)
            guest->sum += all[i];
        gyre_meet_close(&meet);
    }
    memcpy(guest->cause, gyre_cause(), sizeof(guest->cause));
    return NULL;
}

static void start(struct guest *guest, int rank, int n_ranks, const char *address, int port,
                  const char *job, uint64_t timeout_ms)
{
    *guest = (struct guest){.place = {.rank = rank,
                                      .n_ranks = n_ranks,
                                      .source = "MASTER_ADDR",
                                      .address = address,
                                      .port = port,
                                      .job = job,
                                      .timeout_ns = timeout_ms * 1000000}};
    CHECK(pthread_create(&guest->thread, NULL, run_guest, guest) == 0);
}

static void finish(struct guest *guest, gyre_status status, const char *words)
{
    CHECK(pthread_join(guest->thread, NULL) == 0);
    CHECK_MSG(guest->status == status, "rank %d: %s: %s", guest->place.rank,
              gyre_status_name(guest->status), guest->cause);
    if (status == GYRE_SUCCESS)
        CHECK(guest->sum == (1 << guest->place.n_ranks) - 1);
    else
        CHECK_HAS(guest->cause, words);
}

TEST_CASE("ranks meet at every kind of address")
{
    static const char *const addresses[][2] = {{"127.0.0.1", "localhost"},
                                               {"127.0.1.1", "127.0.0.1"},
                                               {"192.0.2.77", "127.0.0.1"},
                                               {"no-such.invalid", "[::1]"},
                                               {"::1", "::1"},
                                               {"@name", "@name"}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(addresses); i++) {
        struct guest guests[3];
        const int port = free_port();
        for (int rank = 2; rank >= 0; rank--)
            start(&guests[rank], rank, 3, addresses[i][rank > 0], port, "A=1", 20000);
        for (int rank = 0; rank < 3; rank++)
            finish(&guests[rank], GYRE_SUCCESS, "");
    }
}

TEST_CASE("a rank that hung up before it was answered may come again")
{
    struct guest guests[2];
    struct gyre_meet_hello hello = {.rank = 1, .n_ranks = 2, .pid = 1, .job = "A=1"};
    struct gyre_sock_address address = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    const int port = free_port();
    int fd = -1;
    memcpy(hello.magic, GYRE_MEET_MAGIC, sizeof(GYRE_MEET_MAGIC));
    address.port = (uint16_t)port;
    start(&guests[0], 0, 2, "127.0.0.1", port, "A=1", 20000);
    TEST_YIELD_UNTIL(gyre_sock_connect(&address, gyre_now_ns() + GYRE_SECOND_NS, &fd) ==
                     GYRE_SUCCESS);
    CHECK(send(fd, &hello, sizeof(hello), MSG_MORE) == sizeof(hello)); /* arrives with the end */
    gyre_sock_close(fd);
    start(&guests[1], 1, 2, "127.0.0.1", port, "A=1", 20000);
    finish(&guests[0], GYRE_SUCCESS, "");
    finish(&guests[1], GYRE_SUCCESS, "");
}

/* At SOCKET_IFNAME, at loopback, and where the place's name leads. */
TEST_CASE("rank 0 listens where it is told")
{
    struct gyre_params params;
    char *const only_loopback[] = {"GYRE_SOCKET_IFNAME==lo", NULL};
    char *const nonsense[] = {"GYRE_SOCKET_IFNAME==nosuch", NULL};
    static const char *const targets[] = {"127.0.0.1", "::1", "127.0.7.1", "127.0.7.2"};
    for (int i = 0; i < 8; i++) {
        struct guest guests[2];
        const int port = free_port();
        const bool is_told = i % 2 == 0;
        CHECK_OK(gyre_params_from(is_told ? only_loopback : nonsense, &params));
        start(&guests[1], 1, 2, targets[i / 2], port, "", is_told && i == 6 ? 600 : 20000);
        struct guest *guest = &guests[0];
        const uint64_t timeout_ms = is_told && i == 6 ? 400 : 20000;
        *guest = (struct guest){.place = {.n_ranks = 2,
                                          .source = "MASTER_ADDR",
                                          .address = "127.0.7.1",
                                          .port = port,
                                          .job = "",
                                          .timeout_ns = timeout_ms * 1000000,
                                          .params = &params}};
        CHECK(pthread_create(&guest->thread, NULL, run_guest, guest) == 0);
        for (int rank = 0; rank < 2; rank++)
            finish(&guests[rank], is_told && i == 6 ? GYRE_ERROR_TIMEOUT : GYRE_SUCCESS,
                   rank == 0 ? "rank 0 listens on 127.0.0.1:" : "refused");
    }
}

TEST_CASE("ranks of another job are told, and the first job goes on")
{
    struct guest own[2];
    struct guest other[2];
    const int port = free_port();
    start(&own[0], 0, 2, "localhost", port, "SLURM_JOB_ID=7 SLURM_STEP_ID=0", 20000);
    start(&other[1], 1, 2, "localhost", port, "SLURM_JOB_ID=7 SLURM_STEP_ID=1", 20000);
    finish(
        &other[1], GYRE_ERROR_INVALID_USAGE,
        "that job is SLURM_JOB_ID=7 SLURM_STEP_ID=0, this one is SLURM_JOB_ID=7 SLURM_STEP_ID=1");
    start(&other[0], 0, 2, "localhost", port, "SLURM_JOB_ID=7 SLURM_STEP_ID=1", 20000);
    finish(&other[0], GYRE_ERROR_INVALID_USAGE, "another job listens");
    start(&own[1], 1, 2, "localhost", port, "SLURM_STEP_ID=0", 20000);
    for (int rank = 0; rank < 2; rank++)
        finish(&own[rank], GYRE_SUCCESS, "");
}

TEST_CASE("a program at the port is named")
{
    for (int is_any = 0; is_any < 2; is_any++) {
        struct sockaddr_in name = {.sin_family = AF_INET,
                                   .sin_addr = {is_any ? INADDR_ANY : htonl(INADDR_LOOPBACK)}};
        struct guest guest;
        const int on = 1;
        const int port = free_port();
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        name.sin_port = htons((uint16_t)port);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
        CHECK(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0);
        start(&guest, 0, 2, "localhost", port, "", 100);
        finish(&guest, GYRE_ERROR_SYSTEM, "another job or program listens there");
        close(fd);
    }
}

TEST_CASE("ranks that cannot meet are told why")
{
    struct guest guests[3];
    int port = free_port();
    start(&guests[0], 0, 2, "localhost", port, "", 20000);
    start(&guests[1], 1, 3, "localhost", port, "", 20000);
    for (int rank = 0; rank < 2; rank++)
        finish(&guests[rank], GYRE_ERROR_INVALID_USAGE, "rank 0 has WORLD_SIZE=2, rank 1 (pid ");
    port = free_port();
    start(&guests[0], 0, 3, "localhost", port, "", 300);
    start(&guests[1], 1, 3, "localhost", port, "", 20000);
    finish(&guests[0], GYRE_ERROR_TIMEOUT, "ranks 2 never came");
    CHECK_HAS(guests[0].cause, "loopback");
    finish(&guests[1], GYRE_ERROR_TIMEOUT, "ranks 2 never came");
    start(&guests[2], 2, 3, "localhost", port, "", 100);
    finish(&guests[2], GYRE_ERROR_TIMEOUT, "which is loopback");
    static const char *const with_port[] = {"host:80", "[::1]:80", "[::1"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(with_port); i++) {
        start(&guests[2], 2, 3, with_port[i], port, "", 100);
        finish(&guests[2], GYRE_ERROR_INVALID_ARGUMENT, "without a port");
    }
}
