/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and replaces whole files, and keeps descriptors and signals of writes away from the
 * caller's. No process ever reads half of a replaced file. No file name from a user can make the
 * program wait for ever or use up its memory.
 */
#ifndef GYRE_BASE_FILE_H
#define GYRE_BASE_FILE_H

#include "core/foundation/base/status.h"

#include <limits.h>
#include <stddef.h>

/** gyre_descriptor_keep - a descriptor that was just opened, above those of stdin, stdout and
 * stderr. A program may run with some of these three closed; what it writes there must not reach a
 * file or a peer of ours. Returns the descriptor, with close-on-exec; or -1 with errno, also if fd
 * is -1. */
int gyre_descriptor_keep(int fd);

/** gyre_descriptor_write - write all bytes. Raises neither SIGPIPE nor SIGXFSZ, which would end the
 * program. Returns 0 or an errno. */
int gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes);

/** gyre_file_to_replace - the file that a replacement of `path` would replace: the file at the end
 * of symbolic links, or `path` itself if it does not exist. Devices, pipes and folders are never
 * replaced. "-" means the standard output, which cannot be replaced.
 * @target_out: PATH_MAX bytes; the name to use with rename().
 * Errors: INVALID_ARGUMENT (not a regular file, a link to nothing, or "-"), SYSTEM. */
gyre_status gyre_file_to_replace(const char *path, char *target_out);

/** gyre_file_replace - replace `path` by a file with these bytes. The bytes are first written to a
 * new file with a random name in the same folder, never to a link or an existing file. If writing
 * fails, `path` is unchanged. An existing file keeps its permissions; a new file gets those of the
 * umask. Errors: as gyre_file_to_replace. */
gyre_status gyre_file_replace(const char *path, const void *bytes, size_t n_bytes);

/** gyre_file_read - read all bytes of a regular file. Pipes, devices and folders are refused,
 * because reading them may never end.
 * @max_bytes: a larger file is refused.
 * @bytes_out: to be freed by the caller. A NUL follows the last byte and is not counted.
 * @n_bytes_out: may be NULL.
 * Errors: INVALID_ARGUMENT naming the path and the limit; OUT_OF_MEMORY; SYSTEM. */
gyre_status gyre_file_read(const char *path, size_t max_bytes, char **bytes_out,
                           size_t *n_bytes_out);

/** gyre_file_read_open - as gyre_file_read(), from any kind of descriptor until its end. It is for
 * the standard input, which may be a pipe.
 * @name: for messages. */
gyre_status gyre_file_read_open(int fd, const char *name, size_t max_bytes, char **bytes_out,
                                size_t *n_bytes_out);

#endif
