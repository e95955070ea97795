/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/file.h"

#include "tests/nic/verbs_wire/say.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAGIC (0x77697266u | (uint64_t)sizeof(struct wire_file) << 32)

uint64_t wire_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* False: no such process. A killed process that its parent did not wait for is listed as Z. */
static bool read_process(pid_t pid, uint64_t *start_out, char *state_out)
{
    char path[40];
    char text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    /* pid (name) state ppid ...: the 22nd field; names may contain anything. */
    char *field = strrchr(text, ')');
    if (field == NULL || field[1] == '\0')
        return false;
    *state_out = field[2];
    for (int i = 2; i < 22 && field != NULL; i++)
        field = strchr(field + 1, ' ');
    *start_out = field != NULL ? strtoull(field, NULL, 10) : 0;
    return true;
}

static wire_owner owner_of(pid_t pid, uint64_t start)
{
    return start << 22 | (uint64_t)pid;
}

bool wire_is_running(pid_t pid)
{
    uint64_t start;
    char state;
    return read_process(pid, &start, &state) && state != 'Z' && state != 'X';
}

bool wire_is_alive(wire_owner owner)
{
    uint64_t start;
    char state;
    if (owner == 0 || !read_process(wire_pid_of(owner), &start, &state))
        return false;
    return state != 'Z' && state != 'X' && owner_of(wire_pid_of(owner), start) == owner;
}

static uint64_t *owner_at(void *entries, size_t stride, uint32_t index)
{
    return (uint64_t *)(void *)((unsigned char *)entries + stride * index);
}

static bool take_from(uint64_t *owner, uint64_t former, uint64_t new_owner)
{
    return __atomic_compare_exchange_n(owner, &former, new_owner, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

int wire_claim(const struct wire_job *job, void *entries, size_t stride, uint32_t n, uint32_t *next)
{
    /* In a circle, so that what was given back is used again late. */
    const uint32_t first = gyre_fetch_add_u32(next, 1);
    for (uint32_t i = 0; i < n; i++)
        if (take_from(owner_at(entries, stride, (first + i) % n), 0, job->owner))
            return (int)((first + i) % n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *owner = owner_at(entries, stride, i);
        const uint64_t former = gyre_load_acquire_u64(owner);
        if (!wire_is_alive(former) && take_from(owner, former, job->owner))
            return (int)i;
    }
    errno = ENOMEM;
    return -1;
}

struct wire_region_entry *wire_region_of(struct wire_file *file, const struct wire_pair_entry *pair,
                                         uint32_t key)
{
    const uint32_t index = key & WIRE_INDEX_MASK;
    if (index >= WIRE_MAX_REGIONS || key == 0)
        return NULL;
    struct wire_region_entry *region = &file->regions[index];
    if (wire_load(&region->key) != key ||
        gyre_load_acquire_u64(&region->owner) != gyre_load_acquire_u64(&pair->owner) ||
        region->pd != pair->pd)
        return NULL;
    return region;
}

struct wire_region_entry *wire_local_region(struct wire_file *file,
                                            const struct wire_pair_entry *pair,
                                            const struct wire_sge *sge, unsigned access)
{
    if ((sge->lkey & WIRE_LOCAL_KEY) == 0)
        return NULL;
    struct wire_region_entry *region = wire_region_of(file, pair, sge->lkey & ~WIRE_LOCAL_KEY);
    return region != NULL && vm_range_allows(&region->range, sge->address, sge->n_bytes, access)
               ? region
               : NULL;
}

void wire_futex_wait(uint32_t *word, uint32_t value, uint64_t limit_ns)
{
    const struct timespec limit = {(time_t)(limit_ns / 1000000000), (long)(limit_ns % 1000000000)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void wire_futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wire_wake(struct wire_nic_entry *nic)
{
    if (wire_load(&nic->is_asleep) != 0 && wire_exchange(&nic->is_asleep, 0) != 0)
        wire_futex_wake(&nic->is_asleep);
}

void wire_announce(struct wire_nic_entry *nic, uint32_t pair)
{
    (void)__atomic_fetch_or(&nic->bits[pair / 64], UINT64_C(1) << pair % 64, __ATOMIC_SEQ_CST);
    wire_wake(nic);
}

socklen_t wire_channel_address(const struct wire_job *job, pid_t pid, uint32_t number,
                               struct sockaddr_un *address_out)
{
    memset(address_out, 0, sizeof(*address_out));
    address_out->sun_family = AF_UNIX;
    const int n = snprintf(address_out->sun_path + 1, sizeof(address_out->sun_path) - 1,
                           "verbs_wire/%s/%d/%u", job->name, (int)pid, number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void wire_notify(const struct wire_job *job, uint32_t index)
{
    struct sockaddr_un address;
    struct wire_queue_entry *entry = &job->file->queues[index];
    if (wire_load(&entry->is_armed) == 0 || wire_exchange(&entry->is_armed, 0) == 0)
        return;
    const socklen_t n_bytes = wire_channel_address(
        job, wire_pid_of(gyre_load_acquire_u64(&entry->owner)), entry->channel, &address);
    /* Fails only if the owner is gone, or awake with many events. */
    (void)sendto(job->event_fd, &index, sizeof(index), MSG_DONTWAIT,
                 (const struct sockaddr *)&address, n_bytes);
}

void wire_job_path(const struct wire_job *job, char *path_out, size_t path_bytes)
{
    snprintf(path_out, path_bytes, "/dev/shm/verbs_wire.%u.%s", (unsigned)geteuid(), job->name);
}

/* Of the path's present file. The last NIC of a job removes the file under the lock. */
static int open_file(const char *path, bool is_locked)
{
    for (;;) {
        struct stat status;
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -1;
        if ((!is_locked || flock(fd, LOCK_EX) == 0) && fstat(fd, &status) == 0 &&
            status.st_nlink > 0) {
            if (status.st_uid == geteuid() && ftruncate(fd, sizeof(struct wire_file)) == 0)
                return fd;
            errno = status.st_uid != geteuid() ? EPERM : errno;
            close(fd);
            return -1;
        }
        close(fd);
    }
}

bool wire_job_map(struct wire_job *job, int *lock_out)
{
    char path[128];
    uint64_t start = 0;
    char state;
    wire_job_path(job, path, sizeof(path));
    job->event_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int fd = read_process(getpid(), &start, &state) && job->event_fd >= 0
                       ? open_file(path, lock_out != NULL)
                       : -1;
    if (fd < 0) {
        wire_say("%s: %s", path, strerror(errno));
        return false;
    }
    struct wire_file *file =
        mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (file == MAP_FAILED) {
        wire_say("mmap(%s): %s", path, strerror(errno));
        close(fd);
        return false;
    }
    if (file->magic != 0 && file->magic != MAGIC) {
        wire_say("%s has another layout: it is left over from another build, remove it", path);
        munmap(file, sizeof(*file));
        close(fd);
        errno = EPROTO;
        return false;
    }
    file->magic = MAGIC;
    job->owner = owner_of(getpid(), start);
    job->file = file;
    if (lock_out != NULL)
        *lock_out = fd;
    else
        close(fd);
    return true;
}

int wire_job_lock(const struct wire_job *job)
{
    char path[128];
    wire_job_path(job, path, sizeof(path));
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void wire_job_unlock(int lock)
{
    /* The mapping keeps the open file, and that keeps the lock. */
    (void)flock(lock, LOCK_UN);
    close(lock);
}
