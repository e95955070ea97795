/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre_mem_alloc() on the host gives a memfd file, which the kernel frees with its last user. Peers
 * open it through /proc/<pid>/fd/<fd>; a random token in its first page proves that the pid is the
 * process that announced it. A process maps an allocation once and counts users, so a rank may free
 * memory that another rank still writes.
 */
#ifndef GYRE_DEVICE_HOST_MEMORY_H
#define GYRE_DEVICE_HOST_MEMORY_H

#include "core/foundation/base/status.h"

#define GYRE_SHARED_TOKEN_BYTES 16

struct gyre_shared_file_header {
    uint64_t n_bytes;
    uint8_t token[GYRE_SHARED_TOKEN_BYTES];
};

/* Ranks send it to each other: fixed layout. */
struct gyre_shared_file {
    uint64_t n_bytes;
    uint8_t token[GYRE_SHARED_TOKEN_BYTES];
    int32_t fd;
    uint32_t pid;
};

/** @base_out: the header. Errors: REMOTE (process ended, or file closed), SYSTEM. */
gyre_status gyre_shared_file_map(const struct gyre_shared_file *file, void **base_out);

#define GYRE_HOST_MEMORY_OFFSET_BYTES 4096

/** Page-aligned. No other process can map it where the kernel refuses a file: half of the
 * descriptors are in use, ulimit -f, or no memfd. Errors: OUT_OF_MEMORY. */
gyre_status gyre_host_memory_alloc(size_t n_bytes, void **ptr_out);

/** @ptr: may be NULL. Errors: INVALID_ARGUMENT (unknown, or freed before). */
gyre_status gyre_host_memory_free(void *ptr);

bool gyre_host_memory_find(const void *ptr, struct gyre_shared_file *file_out,
                           uint64_t *offset_bytes_out);

/** As a user of memory, of this process if @is_own. @base_out: for release. Errors: REMOTE (the
 * memory is gone), SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_host_memory_acquire(const struct gyre_shared_file *file, bool is_own,
                                     void **base_out);
void gyre_host_memory_release(void *base);

#endif
