/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients and NIC processes both do with the shared file: map it, claim entries, tell the
 * living from the dead, wake each other, and look keys up.
 */
#ifndef GYRE_TESTS_WIRE_FILE_H
#define GYRE_TESTS_WIRE_FILE_H

#include "tests/nic/verbs_wire/protocol.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A job's file as this process sees it. */
struct wire_job {
    char name[64];
    struct wire_file *file; /* NULL: not joined */
    wire_owner owner;       /* this process */
    int event_fd;           /* sends events of channels */
};

/** wire_job_map - open and map the file. @job: with its name.
 * @lock_out: descriptor that holds the lock of the file; wire_job_unlock() gives it back. NULL: do
 * not lock. False with errno, and says why. */
bool wire_job_map(struct wire_job *job, int *lock_out);
void wire_job_unlock(int lock);

/** wire_job_lock - lock the mapped file again. -1: the file has gone. */
int wire_job_lock(const struct wire_job *job);

/** wire_job_path - of the file. */
void wire_job_path(const struct wire_job *job, char *path_out, size_t path_bytes);

/** wire_claim - take a free entry, or one whose owner died. @next: where to begin.
 * @stride: bytes of an entry, whose first word is its owner. Returns the index; -1 = all taken. */
int wire_claim(const struct wire_job *job, void *entries, size_t stride, uint32_t n,
               uint32_t *next);

/** wire_is_alive - false also for a process that was killed and not yet waited for. */
bool wire_is_alive(wire_owner owner);
bool wire_is_running(pid_t pid);
static inline pid_t wire_pid_of(wire_owner owner)
{
    return (pid_t)(owner & 0x3fffff);
}

uint64_t wire_now_ns(void);

/** wire_announce - tell a NIC that this queue pair has something to do; wakes the NIC. */
void wire_announce(struct wire_nic_entry *nic, uint32_t pair);

/** wire_wake - end the sleep of a NIC. */
void wire_wake(struct wire_nic_entry *nic);

/** wire_futex_wait - sleep while *word is `value`, at most this long. */
void wire_futex_wait(uint32_t *word, uint32_t value, uint64_t limit_ns);
void wire_futex_wake(uint32_t *word);

/** wire_notify - send the completion event if this queue is armed. */
void wire_notify(const struct wire_job *job, uint32_t queue);

/** wire_channel_address - abstract socket name of a completion channel. */
socklen_t wire_channel_address(const struct wire_job *job, pid_t pid, uint32_t number,
                               struct sockaddr_un *address_out);

/** wire_region_of - a valid region of the pair's owner and protection domain by its key, or NULL.
 */
struct wire_region_entry *wire_region_of(struct wire_file *file, const struct wire_pair_entry *pair,
                                         uint32_t key);

/** wire_local_region - likewise by the local key of an element; NULL too if the element is not
 * inside. */
struct wire_region_entry *wire_local_region(struct wire_file *file,
                                            const struct wire_pair_entry *pair,
                                            const struct wire_sge *sge, unsigned access);

#endif
