/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

#include <dirent.h>
#include <signal.h>

/* Bit n - 1 is signal n. False: the thread has ended. */
static bool find_blocked(const char *thread, uint64_t *blocked_out)
{
    char path[64], line[128];
    bool is_found = false;
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", thread);
    FILE *status = fopen(path, "r");
    while (status != NULL && !is_found && fgets(line, sizeof(line), status) != NULL)
        is_found = sscanf(line, "SigBlk: %" SCNx64, blocked_out) == 1;
    if (status != NULL)
        fclose(status);
    return is_found;
}

static bool blocks(uint64_t blocked, int number)
{
    return (blocked >> (number - 1) & 1) != 0;
}

/* All threads but the first are the library's. */
TEST_RANK(look_at_all_threads)
{
    char own[16];
    float value = (float)rank;
    uint64_t blocked = 0;
    int n_others = 0;
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    snprintf(own, sizeof(own), "%d", (int)getpid());
    CHECK(find_blocked(own, &blocked) && !blocks(blocked, SIGUSR1));
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL);
    for (struct dirent *thread; threads != NULL && (thread = readdir(threads)) != NULL;) {
        if (thread->d_name[0] == '.' || strcmp(thread->d_name, own) == 0 ||
            !find_blocked(thread->d_name, &blocked))
            continue;
        CHECK_MSG(blocks(blocked, SIGUSR1) && blocks(blocked, SIGTERM) && blocks(blocked, SIGALRM),
                  "thread %s blocks %" PRIx64 " only", thread->d_name, blocked);
        n_others++;
    }
    if (threads != NULL)
        closedir(threads);
    CHECK_MSG(n_others >= 3, "%d threads of the library", n_others);
}

TEST_CASE("the library takes no signals")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return; /* CUDA's own threads may */
    test_set("GYRE_P2P_DISABLE=1", "GYRE_SHM_DISABLE=1", "GYRE_NET=Socket", NULL);
    test_on_processes(2, look_at_all_threads, NULL);
}
