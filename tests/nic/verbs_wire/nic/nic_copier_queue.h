/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory through which the NIC process gives copies to its resident kernel: pinned host memory
 * that the GPU maps. Each block of the kernel is a worker with a mailbox of its own, which holds
 * one copy. Each word has one writer, which its comment names.
 *
 * The NIC writes a copy as words whose upper half is the copy's number and whose lower half is 32
 * bits of the copy. A load or store of 8 aligned bytes is atomic, so a worker that reads the number
 * that it waits for in all words has the whole copy after one round trip over PCIe, and a mix of
 * two copies is never taken for one.
 *
 * Everything that a new kernel must know is in this memory: a worker goes on after the copy that
 * its n_done names. So the kernel may end at any time between two copies, and the NIC starts
 * another one when a copy waits and no kernel runs.
 */
#ifndef GYRE_TESTS_WIRE_NIC_COPIER_QUEUE_H
#define GYRE_TESTS_WIRE_NIC_COPIER_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define NIC_COPIER_WORKERS    8
#define NIC_COPIER_THREADS    256  /* of each worker */
#define NIC_COPIER_PART_BYTES 8192 /* what one worker copies before another one helps */
#define NIC_COPIER_MAX_BYTES  ((uint64_t)NIC_COPIER_WORKERS * NIC_COPIER_PART_BYTES)

enum nic_copier_word {
    NIC_COPIER_TO_LOW,
    NIC_COPIER_TO_HIGH,
    NIC_COPIER_FROM_LOW,
    NIC_COPIER_FROM_HIGH,
    NIC_COPIER_BYTES,
    NIC_COPIER_N_WORDS
};

struct nic_copier_mailbox {
    uint64_t words[8]; /* enum nic_copier_word; by the NIC */
};

struct nic_copier_queue {
    struct nic_copier_mailbox mailboxes[NIC_COPIER_WORKERS];
    /* The last launch that shall end; by the NIC, or by the first worker, which takes part in each
     * copy, when it has been idle for too long. A worker looks at it when it has no copy. */
    uint64_t ended;
    uint64_t unused[7]; /* the GPU reads the line before this one, the processor the next one */
    uint64_t n_done[NIC_COPIER_WORKERS]; /* last copy that is in place; by its worker */
};

#ifdef __cplusplus
static_assert(offsetof(struct nic_copier_queue, n_done) == 576, "the kernel and the NIC agree");
static_assert(sizeof(struct nic_copier_queue) == 640, "the kernel and the NIC agree");
#else
_Static_assert(offsetof(struct nic_copier_queue, n_done) == 576, "the kernel and the NIC agree");
_Static_assert(sizeof(struct nic_copier_queue) == 640, "the kernel and the NIC agree");
#endif

#endif
