/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in an anonymous file (memfd), which other processes of the host map. Such a file has no
 * name that could collide or stay behind, the size of /dev/shm does not limit it, and the kernel
 * frees it when its last user ends, however that process ends. Peers open it through
 * /proc/<pid>/fd/<fd>. A random token in its first page proves that the process with that pid is
 * still the one that announced the file.
 */
#ifndef GYRE_DEVICE_SHARED_FILE_H
#define GYRE_DEVICE_SHARED_FILE_H

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

#endif
