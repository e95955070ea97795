/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a case, in a folder that goes with the case's process.
 */
#ifndef GYRE_TESTS_FILES_H
#define GYRE_TESTS_FILES_H

#include "tests/support/check.h"

#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

static struct {
    char root[32];
    pid_t owner;
} test_folder;

static inline int test_remove_one(const char *path, const struct stat *status, int kind,
                                  struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/** The next file is in a new folder. */
static inline void test_remove_files(void)
{
    if (test_folder.owner == getpid()) /* not a rank's process */
        CHECK(nftw(test_folder.root, test_remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
    test_folder.owner = 0;
}

/** Made by the first call. */
static inline const char *test_root(void)
{
    if (test_folder.owner == 0) {
        strcpy(test_folder.root, "/tmp/gyre_test_XXXXXX");
        CHECK(mkdtemp(test_folder.root) != NULL && atexit(test_remove_files) == 0);
        test_folder.owner = getpid();
    }
    return test_folder.root;
}

/** Below the root, in folders that are made; good for three more calls. */
__attribute__((format(printf, 1, 0))) static inline const char *test_path_with(const char *format,
                                                                               va_list args)
{
    static char paths[4][PATH_MAX];
    static unsigned n;
    char *path = paths[n++ % 4];
    const int n_root = snprintf(path, PATH_MAX, "%s/", test_root());
    vsnprintf(path + n_root, (size_t)(PATH_MAX - n_root), format, args);
    for (char *slash = path + n_root; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    return path;
}

__attribute__((format(printf, 1, 2))) static inline const char *test_path(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *path = test_path_with(format, args);
    va_end(args);
    return path;
}

/** The path of a file with this text. */
__attribute__((format(printf, 2, 3))) static inline const char *test_put(const char *text,
                                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *path = test_path_with(format, args);
    va_end(args);
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

#endif
