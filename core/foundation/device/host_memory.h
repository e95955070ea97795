/* SPDX-License-Identifier: Apache-2.0
 *
 * What gyre_mem_alloc() gives on the host. Every allocation is an anonymous file (memfd), which the
 * kernel frees when its last user ends. Peers open it through /proc/<pid>/fd/<fd>; a random token
 * in its first page proves that this pid is still the process that announced it.
 *
 * In a process an allocation is mapped once, and its users are counted, so a rank may free memory
 * that another rank still writes.
 */
#ifndef GYRE_DEVICE_HOST_MEMORY_H
#define GYRE_DEVICE_HOST_MEMORY_H

#include "core/foundation/base/status.h"

#define GYRE_SHARED_TOKEN_BYTES 16

/* at the start of the file */
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

/** @base_out: the header's address. Errors: REMOTE (the process has ended, or closed the file),
 * SYSTEM. */
gyre_status gyre_shared_file_map(const struct gyre_shared_file *file, void **base_out);

/* the header's page, before the caller's first byte */
#define GYRE_HOST_MEMORY_OFFSET_BYTES 4096

/** Page-aligned. Where the kernel refuses a file, it is memory that no other process can map: half
 * of the descriptors are in use (ulimit -n), files may not be so large (ulimit -f), or there is no
 * memfd. Errors: OUT_OF_MEMORY. */
gyre_status gyre_host_memory_alloc(size_t n_bytes, void **ptr_out);

/** @ptr: may be NULL. Errors: INVALID_ARGUMENT (another address, or freed before). */
gyre_status gyre_host_memory_free(void *ptr);

/** False if the address lies in no file. */
bool gyre_host_memory_find(const void *ptr, struct gyre_shared_file *file_out,
                           uint64_t *offset_bytes_out);

/** Become a user of memory of this process (@is_own) or of another one. @base_out: the file's first
 * byte; for gyre_host_memory_release(). Errors: REMOTE (the memory is gone), SYSTEM,
 * OUT_OF_MEMORY. */
gyre_status gyre_host_memory_acquire(const struct gyre_shared_file *file, bool is_own,
                                     void **base_out);
void gyre_host_memory_release(void *base);

#endif
