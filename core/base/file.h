/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are read or replaced as a whole: nobody ever reads half of one, and no name that a
 * user gives makes the program wait or fill its memory.
 */
#ifndef GYRE_BASE_FILE_H
#define GYRE_BASE_FILE_H

#include "core/base/status.h"

#include <limits.h>
#include <stddef.h>

/** gyre_file_to_replace - the name that rename() may give to a new file so that it takes the place
 * of what `path` stands for: the file at the end of symbolic links, or `path` itself where nothing
 * is yet. A device, a pipe or a folder is never replaced, and "-" is taken for the standard output,
 * which cannot be either.
 * @target_out: PATH_MAX bytes.
 * Errors: INVALID_ARGUMENT for what is no regular file, a link that leads nowhere and "-"; SYSTEM.
 */
gyre_status gyre_file_to_replace(const char *path, char *target_out);

/** gyre_file_replace - put a new file with these bytes in the place of what `path` stands for. The
 * bytes go to a new file of a random name in the same folder first, which is never a link or a file
 * that was there before; when they cannot be written, `path` keeps what it has. An existing file
 * keeps its permissions; a new one gets those that the umask leaves.
 * Errors: as gyre_file_to_replace. */
gyre_status gyre_file_replace(const char *path, const void *bytes, size_t n_bytes);

/** gyre_file_read - all bytes of a regular file. Whatever else bears the name (a pipe, a device, a
 * folder) is refused at once, because reading it may never end.
 * @max_bytes: a larger file is refused.
 * @bytes_out: to be freed by the caller; a NUL, which is not counted, follows the last byte.
 * @n_bytes_out: may be NULL.
 * Errors: INVALID_ARGUMENT naming the path and the limit; OUT_OF_MEMORY; SYSTEM. */
gyre_status gyre_file_read(const char *path, size_t max_bytes, char **bytes_out,
                           size_t *n_bytes_out);

/** gyre_file_read_open - as gyre_file_read, from a descriptor of any kind, to its end: for the
 * standard input, which may be a pipe.
 * @name: for messages. */
gyre_status gyre_file_read_open(int fd, const char *name, size_t max_bytes, char **bytes_out,
                                size_t *n_bytes_out);

#endif
