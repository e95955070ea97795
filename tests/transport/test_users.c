/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define N_RANKS    5
#define OTHER_USER 65534
#define N_ELEMENTS 3000
#define LOG_BYTES  65536

/* Ranks 0 and 1 are root; 2 and 3 are another user; rank 4 is that user and lets no process read
 * it, as after setuid() without exec(). */
static bool may_map(int a, int b)
{
    const bool is_closed = a == 4 || b == 4;
    return !is_closed && (a < 2) == (b < 2);
}

static void rank_main(int rank, const struct test_rendezvous *shared)
{
    gyre_config config = test_host_config();
    gyre_comm *comm = NULL;
    if (rank >= 2)
        CHECK(setgroups(0, NULL) == 0 && setgid(OTHER_USER) == 0 && setuid(OTHER_USER) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, rank == 4 ? 0 : 1) == 0);
    CHECK_OK(gyre_comm_init_rank(&comm, N_RANKS, &shared->id, rank, &config));
    if (comm != NULL) {
        static float in[N_ELEMENTS], out[N_ELEMENTS];
        for (int peer = 0; peer < N_RANKS; peer++) {
            const char *name =
                peer == rank ? "" : gyre_transports[comm->links.transport_of[peer]]->name;
            const char *expected = may_map(rank, peer) ? "shm" : "socket";
            CHECK_MSG(peer == rank || strcmp(name, expected) == 0, "rank %d -> %d via %s", rank,
                      peer, name);
        }
        for (int i = 0; i < N_ELEMENTS; i++)
            in[i] = (float)(rank + i);
        CHECK_OK(gyre_all_reduce(in, out, N_ELEMENTS, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        for (int i = 0; i < N_ELEMENTS; i++)
            CHECK(out[i] == (float)(N_RANKS * i + N_RANKS * (N_RANKS - 1) / 2));
        CHECK_OK(gyre_comm_destroy(comm));
    }
    exit(test_n_failures == 0 ? 0 : 1);
}

static void check_log(const char *path)
{
    static char log[LOG_BYTES];
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    if (file == NULL)
        return;
    CHECK(fread(log, 1, sizeof(log) - 1, file) > 0);
    fclose(file);
    CHECK_HAS(log, "rank 0 runs as user 0 and rank 2, on the same host, as user 65534");
    CHECK_HAS(log, "rank 2 -> 4 not via shm: this rank may not open descriptors of rank 4");
    const char *first = strstr(log, "start all ranks as one user");
    CHECK(first != NULL && strstr(first + 1, "start all ranks as one user") == NULL);
}

TEST_CASE("ranks of other users take sockets")
{
    char path[] = "/tmp/gyre_users_XXXXXX";
    struct test_rendezvous *shared = test_share(sizeof(*shared));
    pid_t pids[N_RANKS];
    const int log = mkstemp(path);
    CHECK(shared != MAP_FAILED && log >= 0 && fchmod(log, 0666) == 0);
    setenv("GYRE_DEBUG_FILE", path, 1);
    test_set("GYRE_DEBUG=INFO", "GYRE_NET=Socket", NULL);
    /* In a process without ranks. */
    fflush(NULL);
    int ready[2];
    CHECK(pipe(ready) == 0);
    for (int rank = 0; rank < N_RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            char byte;
            close(ready[1]);
            (void)!read(ready[0], &byte, 1); /* ends when the id is there */
            rank_main(rank, shared);
        }
    }
    CHECK_OK(gyre_get_unique_id(&shared->id));
    close(ready[1]);
    for (int rank = 0; rank < N_RANKS; rank++)
        CHECK_MSG(test_wait_rank(pids[rank]), "rank %d", rank);
    check_log(path);
    close(ready[0]);
    close(log);
    unlink(path);
}

TEST_BEFORE
{
    if (geteuid() != 0)
        test_skip_case("only root can start ranks as another user");
}
