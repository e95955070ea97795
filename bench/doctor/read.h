/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files of procfs, sysfs and /etc below a root folder. Every check reads through these
 * functions. A file is never trusted. Reads are bounded and do not block. They tell apart files
 * that are absent, forbidden and not understood, because only an absent file may count as "not
 * there".
 */
#ifndef GYRE_BENCH_READ_H
#define GYRE_BENCH_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_read {
    BENCH_READ_OK,
    BENCH_READ_ABSENT, /* there is no such file, or the kernel has no value for it (EINVAL) */
    BENCH_READ_DENIED, /* no permission */
    BENCH_READ_BROKEN  /* empty, binary, or not what was expected */
};

#define BENCH_NAME_BYTES 64

/** bench_read_text - the first bytes of a file, without the newline at its end.
 * @path: "/proc/..."; it is looked up below root. @text_out: "" on failure. */
enum bench_read bench_read_text(const char *root, const char *path, char *text_out,
                                size_t text_bytes);

/** bench_read_all - the whole file, at most 1 MiB. @text_out: freed by the caller; NULL on failure.
 * Reading /dev/kmsg ends at the newest message. */
enum bench_read bench_read_all(const char *root, const char *path, char **text_out);

/** bench_read_number - a decimal or 0x number that fills the whole file. */
enum bench_read bench_read_number(const char *root, const char *path, int64_t *number_out);

/** bench_read_bytes - as many bytes as the file has, at most n_max; for PCI configuration space. */
enum bench_read bench_read_bytes(const char *root, const char *path, void *bytes_out, size_t n_max,
                                 size_t *n_out);

/** bench_read_link - the last part of the path that a symbolic link leads to: the name of a driver
 * or of a PCI device. */
enum bench_read bench_read_link(const char *root, const char *path, char *name_out,
                                size_t name_bytes);

/** bench_read_names - the names in a folder, sorted with numbers by value, without dot files.
 * @names_out: freed by the caller. A folder that is absent has none. Returns their number. */
int bench_read_names(const char *root, const char *path, char (**names_out)[BENCH_NAME_BYTES]);

/** bench_exists - is there a file or folder? */
bool bench_exists(const char *root, const char *path);

/** bench_can_open - may this process open the file for reading and writing, if it is a device? */
bool bench_can_open(const char *root, const char *path);

/** bench_text_to_number - the whole text is a decimal or 0x number, with blanks around it. */
bool bench_text_to_number(const char *text, int64_t *number_out);

/** bench_next_line - split off the first line of *rest. NULL at the end. */
char *bench_next_line(char **rest);

#endif
