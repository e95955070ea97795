/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that other processes of the host can map: what gyre_mem_alloc() gives on the host.
 * Every allocation is a file of its own (core/foundation/device/host_memory.h). In a process an
 * allocation is mapped once, and its users are counted: the thread that allocated it, and every
 * rank that has acquired it. So a rank may free memory that another rank still writes.
 */
#ifndef GYRE_DEVICE_HOST_MEMORY_H
#define GYRE_DEVICE_HOST_MEMORY_H

#include "core/foundation/base/status.h"

#define GYRE_SHARED_TOKEN_BYTES 16

/* Lies at the start of the file. */
struct gyre_shared_file_header {
    uint64_t n_bytes; /* of the file */
    uint8_t token[GYRE_SHARED_TOKEN_BYTES];
};

/* How other processes find the file. Ranks exchange it, so its layout is fixed. */
struct gyre_shared_file {
    uint64_t n_bytes;
    uint8_t token[GYRE_SHARED_TOKEN_BYTES];
    int32_t fd;   /* in the owner's table */
    uint32_t pid; /* of the owner */
};

/** gyre_shared_file_map - map a file of another process, or of this one, for reading and writing.
 * @base_out: receives the address of the header.
 * Errors: REMOTE (the process has ended, or closed the file), SYSTEM. */
gyre_status gyre_shared_file_map(const struct gyre_shared_file *file, void **base_out);

/* The header of the file lies in the page before the caller's first byte. */
#define GYRE_HOST_MEMORY_OFFSET_BYTES 4096

/** gyre_host_memory_alloc - page-aligned memory. It is ordinary memory, which no other process can
 * map, where the kernel refuses a file: more than half of the process's descriptors are in use
 * (ulimit -n), files may not be so large (ulimit -f), or the kernel has no memfd.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_host_memory_alloc(size_t n_bytes, void **ptr_out);

/** gyre_host_memory_free - stop being a user. @ptr: from gyre_host_memory_alloc(), or NULL.
 * Errors: INVALID_ARGUMENT (another address, or freed before). */
gyre_status gyre_host_memory_free(void *ptr);

/** gyre_host_memory_find - the file that an address lies in.
 * @offset_bytes_out: of the address in the file. Returns false if it lies in none. */
bool gyre_host_memory_find(const void *ptr, struct gyre_shared_file *file_out,
                           uint64_t *offset_bytes_out);

/** gyre_host_memory_acquire - become a user of memory of this process or of another one.
 * @is_own: the memory is of this process. @base_out: receives the address of the file's first byte;
 * to be given to gyre_host_memory_release().
 * Errors: REMOTE (the memory is gone), SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_host_memory_acquire(const struct gyre_shared_file *file, bool is_own,
                                     void **base_out);
void gyre_host_memory_release(void *base);

#endif
