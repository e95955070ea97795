/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the host: limits of the process, shared memory, containers, names and clocks.
 */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB              ((int64_t)1 << 20)
#define CAP_IPC_LOCK_BIT 14 /* linux/capability.h */

/* A rank registers all its slots. They take up to 64 MiB, and with GPUs behind a network 256 MiB
 * (docs/architecture.md). */
#define MEMLOCK_LEAST (256 * MIB)
#define NOFILE_BASE   64 /* files of the process besides its connections */
#define SHM_LEAST     (1024 * MIB)

/* Finds a limit of /proc/self/limits by its name. INT64_MAX = unlimited. */
static enum bench_read read_limit(const char *root, const char *name, int64_t *soft_out)
{
    char text[4096], word[32];
    const enum bench_read result = bench_read_text(root, "/proc/self/limits", text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    const char *line = strstr(text, name);
    if (line == NULL || sscanf(line + strlen(name), "%31s", word) != 1)
        return BENCH_READ_BROKEN;
    *soft_out = INT64_MAX;
    if (strcmp(word, "unlimited") == 0 || (bench_text_to_number(word, soft_out) && *soft_out >= 0))
        return BENCH_READ_OK;
    return BENCH_READ_BROKEN;
}

/* May this process lock memory beyond its limit? The capability counts only in the first user
 * namespace, whose map holds every id. */
static bool may_lock_all(const char *root)
{
    char *text = NULL;
    char map[128];
    unsigned long long capabilities = 0;
    unsigned long long inside = 1, outside = 1, n_ids = 0;
    if (bench_read_all(root, "/proc/self/status", &text) != BENCH_READ_OK)
        return false;
    const char *line = strstr(text, "CapEff:");
    if (line != NULL)
        capabilities = strtoull(line + strlen("CapEff:"), NULL, 16);
    free(text);
    return (capabilities >> CAP_IPC_LOCK_BIT & 1) != 0 &&
           bench_read_text(root, "/proc/self/uid_map", map, sizeof(map)) == BENCH_READ_OK &&
           sscanf(map, "%llu %llu %llu", &inside, &outside, &n_ids) == 3 && outside == 0 &&
           n_ids == 4294967295ULL;
}

static bool has_rdma(const char *root)
{
    char(*names)[BENCH_NAME_BYTES];
    const int n = bench_read_names(root, "/sys/class/infiniband", &names);
    free(names);
    return n > 0;
}

void bench_check_host_memlock(struct bench_doctor *doctor)
{
    static const char fix[] =
        "echo '* - memlock unlimited' > /etc/security/limits.d/99-memlock.conf, then log in and "
        "start the launcher's daemon again (slurmd, sshd: LimitMEMLOCK=infinity); containers: "
        "docker run --ulimit memlock=-1";
    int64_t soft = 0;
    const enum bench_read result = read_limit(doctor->root, "Max locked memory", &soft);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, "/proc/self/limits (Max locked memory)", result);
    else if (soft == INT64_MAX)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/proc/self/limits: Max locked memory unlimited");
    else if (!has_rdma(doctor->root))
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "/proc/self/limits: Max locked memory %" PRId64
                  " bytes; no RDMA device is here that would need more",
                  soft);
    else if (may_lock_all(doctor->root))
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "/proc/self/limits: Max locked memory %" PRId64
                  " bytes, but CAP_IPC_LOCK in /proc/self/status lifts the limit",
                  soft);
    else
        bench_say(doctor, soft < MEMLOCK_LEAST ? BENCH_FAIL : BENCH_WARN, NULL, fix,
                  "/proc/self/limits: Max locked memory %" PRId64
                  " bytes, and RDMA devices are here: registering up to %" PRId64
                  " MiB a communicator fails with ENOMEM",
                  soft, MEMLOCK_LEAST / MIB);
}

void bench_check_host_nofile(struct bench_doctor *doctor)
{
    static const char fix[] = "ulimit -n 65536 in the shell of the launcher, or "
                              "echo '* - nofile 65536' > /etc/security/limits.d/99-nofile.conf";
    int64_t soft = 0;
    /* A rank has a few connections to each other rank, and one more to the rendezvous. */
    const int64_t needed = NOFILE_BASE + 4 * (int64_t)doctor->launcher.n_processes;
    const enum bench_read result = read_limit(doctor->root, "Max open files", &soft);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, "/proc/self/limits (Max open files)", result);
    else if (soft < needed)
        bench_say(doctor, BENCH_FAIL, NULL, fix,
                  "/proc/self/limits: Max open files %" PRId64 ", %d ranks need about %" PRId64,
                  soft, doctor->launcher.n_processes, needed);
    else if (soft < 1024)
        bench_say(doctor, BENCH_WARN, NULL, fix,
                  "/proc/self/limits: Max open files %" PRId64 "; 1024 is usual", soft);
    else if (soft == INT64_MAX)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/proc/self/limits: Max open files unlimited");
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "/proc/self/limits: Max open files %" PRId64, soft);
}

/* ---- /dev/shm ------------------------------------------------------------------------------ */

/* A size as mount options write it: 65536k, 2g, 50%. */
static bool parse_size(const char *text, int64_t memory_bytes, int64_t *bytes_out)
{
    char *end = NULL;
    const long long number = strtoll(text, &end, 10);
    if (end == text || number < 0 || number > INT64_MAX >> 31)
        return false;
    switch (*end) {
    case 'k':
        *bytes_out = number << 10;
        return true;
    case 'm':
        *bytes_out = number << 20;
        return true;
    case 'g':
        *bytes_out = number << 30;
        return true;
    case '%':
        *bytes_out = memory_bytes / 100 * number;
        return memory_bytes > 0;
    default:
        *bytes_out = number;
        return *end == '\0' || *end == ',' || *end == ' ';
    }
}

static int64_t memory_bytes(const char *root)
{
    char text[256];
    long long kib = 0;
    if (bench_read_text(root, "/proc/meminfo", text, sizeof(text)) != BENCH_READ_OK ||
        sscanf(text, "MemTotal: %lld kB", &kib) != 1 || kib <= 0 || kib > INT64_MAX >> 10)
        return 0;
    return (int64_t)kib << 10;
}

/* The line of /proc/mounts for /dev/shm, or NULL; the last one is in force. */
static const char *find_shm(char *mounts)
{
    const char *found = NULL;
    for (char *line; (line = bench_next_line(&mounts)) != NULL;)
        if (strstr(line, " /dev/shm ") != NULL)
            found = line;
    return found;
}

void bench_check_host_shm(struct bench_doctor *doctor)
{
    static const char fix[] = "mount -o remount,size=50% /dev/shm; containers: docker run "
                              "--shm-size=8g, or --ipc=host; Kubernetes: an emptyDir with medium "
                              "Memory at /dev/shm";
    static const char needs[] = "gyre needs none of it, but NCCL and PyTorch's data loaders do";
    char *mounts = NULL;
    int64_t bytes = 0;
    const enum bench_read result = bench_read_all(doctor->root, "/proc/mounts", &mounts);
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/proc/mounts", result);
        return;
    }
    const int64_t total = memory_bytes(doctor->root);
    const char *line = find_shm(mounts);
    const char *option = line == NULL ? NULL : strstr(line, "size=");
    if (line == NULL)
        bench_say(doctor, BENCH_WARN, NULL, "mount -t tmpfs tmpfs /dev/shm",
                  "/proc/mounts: nothing is mounted at /dev/shm; %s", needs);
    else if (option != NULL && !parse_size(option + strlen("size="), total, &bytes))
        bench_say(doctor, BENCH_UNKNOWN, NULL, NULL,
                  "/proc/mounts: the size of /dev/shm is not understood: %.200s", line);
    else if (option == NULL && total == 0)
        bench_say_unreadable(doctor, NULL, "/proc/meminfo (MemTotal)", BENCH_READ_BROKEN);
    else {
        if (option == NULL)
            bytes = total / 2; /* the default of tmpfs */
        /* A machine with little memory has a small /dev/shm by default, so that is no finding. */
        const bool is_small = bytes < SHM_LEAST && (total == 0 || bytes < total / 4);
        bench_say(doctor, is_small ? BENCH_WARN : BENCH_OK, NULL, is_small ? fix : NULL,
                  "/proc/mounts: /dev/shm has %" PRId64 " MiB%s%s", bytes / MIB,
                  is_small ? "; " : "", is_small ? needs : "");
    }
    free(mounts);
}
