/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients and NIC processes do with the shared file.
 */
#ifndef GYRE_TESTS_WIRE_FILE_H
#define GYRE_TESTS_WIRE_FILE_H

#include "tests/nic/verbs_wire/protocol.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/un.h>

struct wire_job {
    char name[64];
    struct wire_file *file; /* NULL: not joined */
    wire_owner owner;       /* this process */
    int event_fd;           /* sends events of channels */
};

/** @job: with its name. @lock_out: descriptor that holds the file's lock, for wire_job_unlock();
 * NULL: do not lock. False with errno, and says why. */
bool wire_job_map(struct wire_job *job, int *lock_out);
void wire_job_unlock(int lock);

/** -1: the file has gone. */
int wire_job_lock(const struct wire_job *job);

/** Of the file. */
void wire_job_path(const struct wire_job *job, char *path_out, size_t path_bytes);

/** Take a free entry, or one whose owner died. @next: where to begin. @stride: bytes of an entry,
 * whose first word is its owner. Returns the index; -1 = all taken. */
int wire_claim(const struct wire_job *job, void *entries, size_t stride, uint32_t n,
               uint32_t *next);

/** False also for a process that was killed and not yet waited for. */
bool wire_is_alive(wire_owner owner);
bool wire_is_running(pid_t pid);
static inline pid_t wire_pid_of(wire_owner owner)
{
    return (pid_t)(owner & 0x3fffff);
}

uint64_t wire_now_ns(void);

/** This queue pair has something to do; wakes the NIC. */
void wire_announce(struct wire_nic_entry *nic, uint32_t pair);

void wire_wake(struct wire_nic_entry *nic);

void wire_futex_wait(uint32_t *word, uint32_t value, uint64_t limit_ns);
void wire_futex_wake(uint32_t *word);

/** If this queue is armed. */
void wire_notify(const struct wire_job *job, uint32_t queue);

/** Abstract. */
socklen_t wire_channel_address(const struct wire_job *job, pid_t pid, uint32_t number,
                               struct sockaddr_un *address_out);

/** Valid, of the pair's owner and protection domain, or NULL. */
struct wire_region_entry *wire_region_of(struct wire_file *file, const struct wire_pair_entry *pair,
                                         uint32_t key);

/** Likewise by an element's local key; NULL too if the element is not inside. */
struct wire_region_entry *wire_local_region(struct wire_file *file,
                                            const struct wire_pair_entry *pair,
                                            const struct wire_sge *sge, unsigned access);

#endif
