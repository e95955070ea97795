/* SPDX-License-Identifier: Apache-2.0
 *
 * What a new file may take the place of.
 */
#include "core/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Nothing is found at the end of `path`: a new name, or a link that leads nowhere. */
static gyre_status take_new_name(const char *path, char *target_out)
{
    struct stat link;
    if (lstat(path, &link) == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: a symbolic link that leads nowhere",
                         path);
    if (strlen(path) >= PATH_MAX)
        return gyre_fail_errno(ENAMETOOLONG, "%.64s...", path);
    memcpy(target_out, path, strlen(path) + 1);
    return GYRE_SUCCESS;
}

gyre_status gyre_file_to_replace(const char *path, char *target_out)
{
    struct stat there;
    if (strcmp(path, "-") == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "-: give the path of a file");
    if (stat(path, &there) != 0 && errno == ENOENT)
        return take_new_name(path, target_out);
    if (realpath(path, target_out) == NULL || stat(target_out, &there) != 0)
        return gyre_fail_errno(errno, "%s", path);
    if (!S_ISREG(there.st_mode))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s: not a regular file, and a new file would replace it", path);
    return GYRE_SUCCESS;
}
