/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that grow while a program measures (table_file.h).
 */
#include "bench/report/table_file.h"

#include "core/base/file.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

gyre_status bench_table_file_check(const char *option, const char *path)
{
    char target[PATH_MAX];
    const gyre_status status = gyre_file_to_replace(path, target);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s", option);
    if (access(dirname(target), W_OK | X_OK) != 0)
        return gyre_fail_errno(errno, "%s %s", option, path);
    return GYRE_SUCCESS;
}

/* Is it a pipe, a device, or the name of an open descriptor such as /dev/stdout? Such a name may
 * lead to a regular file that the shell keeps open, so the file cannot be replaced. The files of
 * /dev/shm are ordinary ones. */
static bool is_special(const char *path)
{
    struct stat there;
    if (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0)
        return true;
    return stat(path, &there) == 0 && !S_ISREG(there.st_mode);
}

gyre_status bench_table_file_open(const char *option, const char *path, bool appends,
                                  struct bench_table_file *file_out)
{
    *file_out = (struct bench_table_file){.option = option, .path = path};
    if (appends || is_special(path)) {
        file_out->file = fopen(path, "a");
        return file_out->file != NULL ? GYRE_SUCCESS
                                      : gyre_fail_errno(errno, "%s %s", option, path);
    }
    GYRE_TRY(bench_table_file_check(option, path));
    file_out->is_replaced = true;
    file_out->file = open_memstream(&file_out->text, &file_out->n_bytes);
    return file_out->file != NULL
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %s %s", option, path);
}

gyre_status bench_table_file_put(struct bench_table_file *file)
{
    if (fflush(file->file) != 0 || ferror(file->file) != 0)
        return gyre_fail_errno(errno, "%s %s", file->option, file->path);
    if (!file->is_replaced)
        return GYRE_SUCCESS;
    const gyre_status status = gyre_file_replace(file->path, file->text, file->n_bytes);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", file->option);
}

gyre_status bench_table_file_close(struct bench_table_file *file)
{
    gyre_status status = GYRE_SUCCESS;
    if (file->file != NULL && fclose(file->file) != 0)
        status = gyre_fail_errno(errno, "%s %s", file->option, file->path);
    free(file->text);
    *file = (struct bench_table_file){0};
    return status;
}
