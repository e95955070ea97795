/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report/table_file.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

bool bench_table_file_is_direct(const char *path)
{
    return (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0) ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

/* Opened by name, a regular file would have two positions; a duplicate shares its own. */
static FILE *open_to_append(const char *path)
{
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    int fd = -1, n_bytes = 0;
    for (int i = 0; i < 3; i++)
        if (strcmp(path, names[i]) == 0)
            fd = i;
    if (fd < 0 && (sscanf(path, "/dev/fd/%d%n", &fd, &n_bytes) != 1 || path[n_bytes] != '\0') &&
        (sscanf(path, "/proc/self/fd/%d%n", &fd, &n_bytes) != 1 || path[n_bytes] != '\0'))
        return fopen(path, "ae");
    fflush(stdout);
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (file == NULL && copy >= 0)
        close(copy);
    return file;
}

gyre_status bench_table_file_append(const char *option, const char *path, const char *text)
{
    FILE *file = open_to_append(path);
    if (file == NULL)
        return gyre_fail_errno(errno, "%s %s", option, path);
    const bool is_written = fputs(text, file) >= 0;
    if (fclose(file) != 0 || !is_written)
        return gyre_fail_errno(errno, "%s %s", option, path);
    return GYRE_SUCCESS;
}

gyre_status bench_table_file_open(const char *option, const char *path, bool appends,
                                  struct bench_table_file *file_out)
{
    struct stat there;
    *file_out = (struct bench_table_file){.option = option, .path = path};
    if (appends || bench_table_file_is_direct(path) ||
        (stat(path, &there) == 0 && !S_ISREG(there.st_mode))) {
        file_out->file = open_to_append(path);
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

struct bench_tidy {
    struct bench_table_file table;
    char version[32];
    char date[32];
};

gyre_status bench_tidy_open(const char *path, bool appends, struct bench_tidy **tidy_out)
{
    const time_t now = time(NULL);
    struct tm parts;
    int library = 0;
    struct bench_tidy *tidy = calloc(1, sizeof(*tidy));
    if (tidy == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --csv %s", path);
    const gyre_status status = bench_table_file_open("--csv", path, appends, &tidy->table);
    if (status != GYRE_SUCCESS) {
        free(tidy);
        return status;
    }
    (void)gyre_get_version(&library);
    snprintf(tidy->version, sizeof(tidy->version), "%d.%d.%d", library / 10000, library / 100 % 100,
             library % 100);
    strftime(tidy->date, sizeof(tidy->date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    FILE *file = tidy->table.file;
    if (!appends || fseek(file, 0, SEEK_END) != 0 || ftell(file) <= 0) /* it may be a pipe */
        fputs("engine,version,date,machine,device,fabric,ranks,hosts,collective,dtype,algorithm,"
              "protocol,channels,bytes,time_us,busbw_gbytes_per_s,ratio,ratio_low,ratio_high\n",
              file);
    *tidy_out = tidy;
    return GYRE_SUCCESS;
}

static void put_text(FILE *file, const char *text)
{
    gyre_text_put_csv(file, text);
    fputc(',', file);
}

gyre_status bench_tidy_row(struct bench_tidy *tidy, const struct bench_tidy_row *row)
{
    if (tidy == NULL)
        return GYRE_SUCCESS;
    FILE *file = tidy->table.file;
    const double algbw = row->time_us > 0 ? (double)row->n_bytes / (row->time_us * 1e3) : 0;
    fprintf(file, "%s,%s,%s,", row->engine, tidy->version, tidy->date);
    put_text(file, row->machine);
    put_text(file, row->device);
    put_text(file, row->fabric);
    fprintf(file, "%u,%u,%s,%s,", row->n_ranks, row->n_hosts, gyre_collectives[row->coll].name,
            row->dtype);
    put_text(file, row->algorithm);
    put_text(file, row->proto);
    if (row->n_channels > 0)
        fprintf(file, "%u", row->n_channels);
    fprintf(file, ",%llu,%.3f,%.6f,", (unsigned long long)row->n_bytes, row->time_us,
            algbw * bench_bus_factor(row->coll, row->n_ranks));
    if (row->ratio > 0)
        fprintf(file, "%.4f,%.4f,%.4f\n", row->ratio, row->ratio_low, row->ratio_high);
    else
        fputs(",,\n", file);
    return bench_table_file_put(&tidy->table);
}

gyre_status bench_tidy_close(struct bench_tidy *tidy)
{
    if (tidy == NULL)
        return GYRE_SUCCESS;
    const gyre_status status = bench_table_file_close(&tidy->table);
    free(tidy);
    return status;
}
