/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that the processes of a job share: mapping it, claiming entries, telling the living from
 * the dead, and removing it when the last process ends.
 */
#include "tests/nic/verbs_wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC (0x77697265u | (uint64_t)sizeof(struct wire_file) << 32)

struct wire wire = {.event_fd = -1};
pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t wire_work = PTHREAD_COND_INITIALIZER;

uint64_t wire_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void wire_say(const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "verbs_wire %d: %s\n", (int)getpid(), text);
}

/* ---- processes ----------------------------------------------------------------------------- */

/* Reads the start time and state of a process. Returns false if there is no such process. A killed
 * process for which its parent has not waited is still listed, as Z. */
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
    /* pid (name) state ppid ...: the start time is the 22nd field; names may contain anything. */
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
    if (owner == wire.owner)
        return true;
    if (owner == 0 || !read_process(wire_pid_of(owner), &start, &state))
        return false;
    return state != 'Z' && state != 'X' && owner_of(wire_pid_of(owner), start) == owner;
}

/* ---- entries -------------------------------------------------------------------------------- */

static uint64_t *owner_at(void *entries, size_t stride, uint32_t index)
{
    return (uint64_t *)(void *)((unsigned char *)entries + stride * index);
}

static bool take_from(uint64_t *owner, uint64_t former)
{
    return __atomic_compare_exchange_n(owner, &former, wire.owner, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

int wire_claim(void *entries, size_t stride, uint32_t n, uint32_t *next)
{
    /* Round and round, so that what was given back is used again as late as possible. */
    const uint32_t first = gyre_fetch_add_u32(next, 1);
    for (uint32_t i = 0; i < n; i++)
        if (take_from(owner_at(entries, stride, (first + i) % n), 0))
            return (int)((first + i) % n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *owner = owner_at(entries, stride, i);
        const uint64_t former = gyre_load_acquire_u64(owner);
        if (!wire_is_alive(former) && take_from(owner, former))
            return (int)i;
    }
    errno = ENOMEM;
    return -1;
}

/* ---- the file ------------------------------------------------------------------------------- */

static void file_path(char *path_out, size_t path_bytes)
{
    snprintf(path_out, path_bytes, "/dev/shm/verbs_wire.%u.%s", (unsigned)geteuid(), wire.job);
}

static struct wire_file *map_file(void)
{
    char path[128];
    struct stat status;
    uint64_t none = 0;
    file_path(path, sizeof(path));
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &status) != 0 || status.st_uid != geteuid() ||
        ftruncate(fd, sizeof(struct wire_file)) != 0) {
        wire_say("%s: %s", path, fd >= 0 && errno == 0 ? "of another user" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct wire_file *file =
        mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        wire_say("mmap(%s): %s", path, strerror(errno));
        return NULL;
    }
    /* Zeros are the initial state, so the first process only writes which layout it is. */
    __atomic_compare_exchange_n(&file->magic, &none, MAGIC, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    if (gyre_load_acquire_u64(&file->magic) != MAGIC) {
        wire_say("%s has another layout: it is left over from another build, remove it", path);
        munmap(file, sizeof(*file));
        errno = EPROTO;
        return NULL;
    }
    return file;
}

bool wire_attach(void)
{
    uint64_t start = 0;
    char state;
    uint32_t first = 0;
    if (wire.file != NULL)
        return true;
    const char *job = getenv("VERBS_WIRE_JOB");
    const char *way = getenv("VERBS_WIRE_MOVE");
    if (job != NULL && job[0] != '\0' && strchr(job, '/') == NULL)
        snprintf(wire.job, sizeof(wire.job), "%s", job);
    else
        snprintf(wire.job, sizeof(wire.job), "parent-%d", (int)getppid());
    if (!read_process(getpid(), &start, &state)) {
        wire_say("/proc/%d/stat: %s", (int)getpid(), strerror(errno));
        return false;
    }
    wire.owner = owner_of(getpid(), start);
    wire.is_direct = way == NULL || strcmp(way, "ring") != 0;
    /* Lets peers write into this process. With Yama only parents may; without Yama this fails with
     * EINVAL. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    wire.event_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct wire_file *file = wire.event_fd >= 0 ? map_file() : NULL;
    if (file == NULL ||
        wire_claim(file->processes, sizeof(file->processes[0]), WIRE_MAX_PROCESSES, &first) < 0) {
        wire_say("cannot join job %s: %s", wire.job, strerror(errno));
        return false;
    }
    wire.file = file;
    return true;
}

/* The last process of a job removes its file. Ranks of one job have met before the first ends, so
 * none comes later. */
__attribute__((destructor)) static void leave(void)
{
    char path[128];
    bool is_last = true;
    if (wire.file == NULL || wire_pid_of(wire.owner) != getpid())
        return;
    /* Printed here and not when devices are closed, because a program may end without closing its
     * last device. */
    wire_print_stats();
    /* A process leaves before it looks, so that of two processes that end together at least one
     * sees no other. */
    for (int i = 0; i < WIRE_MAX_PROCESSES; i++)
        if (gyre_load_acquire_u64(&wire.file->processes[i]) == wire.owner)
            __atomic_store_n(&wire.file->processes[i], 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < WIRE_MAX_PROCESSES; i++)
        if (wire_is_alive(__atomic_load_n(&wire.file->processes[i], __ATOMIC_SEQ_CST)))
            is_last = false;
    file_path(path, sizeof(path));
    if (is_last)
        unlink(path);
}
