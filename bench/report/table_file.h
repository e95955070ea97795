/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that grows while a program measures. Until the first bench_table_file_put() it keeps what
 * it had, so a failed start does not destroy earlier results. After each put the file is whole.
 */
#ifndef GYRE_BENCH_TABLE_FILE_H
#define GYRE_BENCH_TABLE_FILE_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdio.h>

struct bench_table_file {
    FILE *file; /* bench_table_file_put() brings it into the file */
    const char *option;
    const char *path;
    char *text;
    size_t n_bytes;
    bool is_replaced; /* false: written directly */
};

/** bench_table_file_check - does not touch the file. @option: for messages, e.g. "--csv". Errors:
 * INVALID_ARGUMENT (a device, a link to nothing, "-"), SYSTEM. */
gyre_status bench_table_file_check(const char *option, const char *path);

/** bench_table_file_open - pipes and devices are written directly. @appends: write directly behind
 * what the file has. @file_out: must stay where it is until it is closed. After a failure it is of
 * zeros but for the names. Errors: as bench_table_file_check, OUT_OF_MEMORY. */
gyre_status bench_table_file_open(const char *option, const char *path, bool appends,
                                  struct bench_table_file *file_out);

/** bench_table_file_is_direct - does it name an open descriptor such as /dev/stdout, or a device?
 * It may lead to a regular file that the shell keeps open, so it is written directly and not
 * replaced. The files of /dev/shm are ordinary ones. */
bool bench_table_file_is_direct(const char *path);

/** bench_table_file_append - behind what such a name has. Errors: SYSTEM. */
gyre_status bench_table_file_append(const char *option, const char *path, const char *text);

/** bench_table_file_put - errors: SYSTEM. */
gyre_status bench_table_file_put(struct bench_table_file *file);

/** bench_table_file_close - what was printed after the last put is lost, unless the file is written
 * directly. A file of zeros does nothing. Errors: SYSTEM. */
gyre_status bench_table_file_close(struct bench_table_file *file);

#endif
