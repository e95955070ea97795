/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are replaced as a whole, so that nobody ever reads half of one.
 */
#ifndef GYRE_BASE_FILE_H
#define GYRE_BASE_FILE_H

#include "core/base/status.h"

#include <limits.h>

/** gyre_file_to_replace - the name that rename() may give to a new file so that it takes the place
 * of what `path` stands for: the file at the end of symbolic links, or `path` itself where nothing
 * is yet. A device, a pipe or a folder is never replaced, and "-" is taken for the standard output,
 * which cannot be either.
 * @target_out: PATH_MAX bytes.
 * Errors: INVALID_ARGUMENT for what is no regular file, a link that leads nowhere and "-"; SYSTEM.
 */
gyre_status gyre_file_to_replace(const char *path, char *target_out);

#endif
