/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and replaces whole files. No process reads half of a replaced file, and no user's name
 * makes the program wait for ever or use up its memory.
 */
#ifndef GYRE_BASE_FILE_H
#define GYRE_BASE_FILE_H

#include "core/foundation/base/status.h"

#include <limits.h>
#include <stddef.h>

/** Moves a new descriptor above 0, 1 and 2, which a program may have closed and still write to.
 * Returns it, or -1 with errno, also if fd is -1. */
int gyre_descriptor_keep(int fd);

/** Without SIGPIPE and SIGXFSZ. Returns 0 or an errno. */
int gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes);

/** Follows symbolic links. @target_out: PATH_MAX bytes. Errors: INVALID_ARGUMENT (not a regular
 * file, a link to nothing, or "-"), SYSTEM. */
gyre_status gyre_file_to_replace(const char *path, char *target_out);

/** After an error the file is unchanged: the bytes first go to a new file beside it. Errors: as
 * gyre_file_to_replace. */
gyre_status gyre_file_replace(const char *path, const void *bytes, size_t n_bytes);

/** Refuses pipes and devices, which may never end. @bytes_out: freed by the caller; a NUL that is
 * not counted follows. @n_bytes_out: may be NULL. Errors: INVALID_ARGUMENT (larger than max_bytes),
 * OUT_OF_MEMORY, SYSTEM. */
gyre_status gyre_file_read(const char *path, size_t max_bytes, char **bytes_out,
                           size_t *n_bytes_out);

/** Any kind of descriptor. @name: for messages. */
gyre_status gyre_file_read_open(int fd, const char *name, size_t max_bytes, char **bytes_out,
                                size_t *n_bytes_out);

/** Expands %h (host), %p (process), %%, and %r unless the rank is negative. False if the result is
 * too long. @names_rank_out: the name has %p or %r; may be NULL. */
bool gyre_file_expand(const char *name, int rank, char *path_out, size_t path_bytes,
                      bool *names_rank_out);

#endif
