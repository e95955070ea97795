/* SPDX-License-Identifier: Apache-2.0
 *
 * Short copies by a kernel that stays on a GPU. cuMemcpyAsync and the wait for it take several
 * microseconds, whatever the size; a kernel that polls host memory for copies takes a few.
 *
 * The kernel shares a GPU with the kernels of other processes only under NVIDIA MPS. Without MPS it
 * would hold the GPU's time slice while it waits, so it is not used there.
 */
#ifndef GYRE_TESTS_WIRE_NIC_COPIER_H
#define GYRE_TESTS_WIRE_NIC_COPIER_H

#include "tests/nic/verbs_wire/nic/nic_copier_queue.h"

#include <stdbool.h>

struct nic_copier;

struct nic_copier_config {
    void *context;     /* of the GPU */
    int device;        /* CUdevice */
    void *memory;      /* host memory that copies may name: whole pages */
    uint64_t n_bytes;  /* of it */
    uint64_t limit_ns; /* a copy that takes longer has failed; 0 = 10 s */
};

/* The compiled kernel for cuModuleLoadData; NULL where this was built without CUDA. */
extern const unsigned char *const nic_copier_image;

/** nic_copier_is_wanted - whether the kernel may stay on this GPU: MPS shares the GPU between
 * processes (by the device's attribute, or by the control pipe in CUDA_MPS_PIPE_DIRECTORY), or
 * VERBS_WIRE_KERNEL=1. VERBS_WIRE_KERNEL=0: never. */
bool nic_copier_is_wanted(int device);

/** nic_copier_open - load the kernel and start it. NULL: it cannot run here, and why was said. */
struct nic_copier *nic_copier_open(const struct nic_copier_config *config);

/** nic_copier_copy - copy, and return when the bytes are in place for every GPU and processor.
 * @to, @from: memory of the GPU, memory that its context maps, or the host memory of the
 * configuration. @n_bytes: at most NIC_COPIER_MAX_BYTES. Returns false if it failed; why was said.
 * The copy may still happen then. */
bool nic_copier_copy(struct nic_copier *copier, uint64_t to, uint64_t from, uint64_t n_bytes);

/** nic_copier_pause - end the kernel; the next copy starts it again. For calls that wait until a
 * GPU has no work. Returns false if it did not end; that was said. */
bool nic_copier_pause(struct nic_copier *copier);

/** nic_copier_close - end the kernel. A kernel that does not end keeps its memory. */
void nic_copier_close(struct nic_copier *copier);

#endif
