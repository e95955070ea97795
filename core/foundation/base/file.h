/* SPDX-License-Identifier: Apache-2.0
 *
 * No process reads half of a replaced file. No user's name makes the program wait for ever or use
 * up its memory.
 */
#ifndef GYRE_BASE_FILE_H
#define GYRE_BASE_FILE_H

#include "core/foundation/base/status.h"

#include <limits.h>
#include <stddef.h>

/** Moves a descriptor above 2, because a program may have closed stdout and still write to it.
 * Returns -1 with errno, also for -1. */
int gyre_descriptor_keep(int fd);

/** Without SIGPIPE and SIGXFSZ. Returns 0 or an errno. */
int gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes);

/** Follows symbolic links. @target_out: PATH_MAX bytes. Errors: INVALID_ARGUMENT (not a regular
 * file, a link to nothing, or "-"), SYSTEM. */
gyre_status gyre_file_to_replace(const char *path, char *target_out);

/** Errors: INVALID_ARGUMENT, SYSTEM; they leave the old file, as a new one is made beside it. */
gyre_status gyre_file_replace(const char *path, const void *bytes, size_t n_bytes);

/** Refuses pipes and devices, which may never end. @bytes_out: freed by the caller; an uncounted
 * NUL follows. @n_bytes_out: may be NULL. Errors: INVALID_ARGUMENT (too large), OUT_OF_MEMORY,
 * SYSTEM. */
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
