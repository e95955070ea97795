/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that grows during a run. It keeps its contents until the first bench_table_file_put(), so
 * that a failed start destroys nothing, and is whole after each put.
 */
#ifndef GYRE_BENCH_TABLE_FILE_H
#define GYRE_BENCH_TABLE_FILE_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdio.h>

struct bench_table_file {
    FILE *file; /* flushed by bench_table_file_put() */
    const char *option;
    const char *path;
    char *text;
    size_t n_bytes;
    bool is_replaced; /* else written directly */
};

/** Does not touch the file. @option: for messages, e.g. "--csv". Errors: INVALID_ARGUMENT (a
 * device, a link to nothing, "-"), SYSTEM. */
gyre_status bench_table_file_check(const char *option, const char *path);

/** Pipes and devices, and with @appends all files, are written directly behind their contents.
 * @file_out: must not move while it is open, and is of zeros but for names after a failure. Errors:
 * as bench_table_file_check, OUT_OF_MEMORY. */
gyre_status bench_table_file_open(const char *option, const char *path, bool appends,
                                  struct bench_table_file *file_out);

/** Is it an open descriptor such as /dev/stdout or a device, and no file of /dev/shm? It may be a
 * regular file that the shell holds open, so it is not replaced. */
bool bench_table_file_is_direct(const char *path);

/** Writes behind the file's contents. Errors: SYSTEM. */
gyre_status bench_table_file_append(const char *option, const char *path, const char *text);

/** Errors: SYSTEM. */
gyre_status bench_table_file_put(struct bench_table_file *file);

/** Replaced files lose what was printed after the last put. @file: zeros do nothing. Errors:
 * SYSTEM. */
gyre_status bench_table_file_close(struct bench_table_file *file);

#endif
