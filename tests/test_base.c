/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base: causes, faults, small helpers.
 */
#include "core/base/fault.h"
#include "core/base/file.h"
#include "core/base/util.h"
#include "tests/check.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void a_cause_keeps_its_context(void)
{
    CHECK(gyre_fail(GYRE_ERROR_SYSTEM, "inner %d", 7) == GYRE_ERROR_SYSTEM);
    gyre_fail_context(GYRE_ERROR_SYSTEM, "outer");
    CHECK(strcmp(gyre_cause(), "outer: inner 7") == 0);
    gyre_fail(GYRE_ERROR_SYSTEM, "of a library\n");
    CHECK(strcmp(gyre_cause(), "of a library") == 0);
    CHECK_FAILS(gyre_fail_errno(ENOMEM, "x"), GYRE_ERROR_OUT_OF_MEMORY, "errno 12");
}

static void a_long_cause_loses_its_end_not_its_context(void)
{
    char text[2 * GYRE_CAUSE_MAX_BYTES];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    gyre_fail(GYRE_ERROR_SYSTEM, "%s", text);
    gyre_fail_context(GYRE_ERROR_SYSTEM, "who");
    CHECK(strncmp(gyre_cause(), "who: aaa", 8) == 0);
    CHECK(strlen(gyre_cause()) < GYRE_CAUSE_MAX_BYTES);
}

static void the_first_fault_wins(void)
{
    struct gyre_fault fault;
    gyre_fault_init(&fault);
    CHECK_OK(gyre_fault_status(&fault));
    CHECK(gyre_fault_raise(&fault, GYRE_ERROR_REMOTE, "first"));
    CHECK(!gyre_fault_raise(&fault, GYRE_ERROR_SYSTEM, "second"));
    CHECK_FAILS(gyre_fault_status(&fault), GYRE_ERROR_REMOTE, "first");
    gyre_fault_fini(&fault);
}

static void edit_distance_counts_edits(void)
{
    CHECK(gyre_edit_distance("IB_HCA", "IB_HCA") == 0);
    CHECK(gyre_edit_distance("IB_HCAS", "IB_HCA") == 1);
    CHECK(gyre_edit_distance("", "abc") == 3);
    CHECK(gyre_edit_distance("kitten", "sitting") == 3);
}

static void a_host_id_makes_another_host(void)
{
    uint64_t real = 0, empty = 0, a = 0, b = 0;
    CHECK_OK(gyre_host_hash(NULL, &real));
    CHECK_OK(gyre_host_hash("", &empty));
    CHECK_OK(gyre_host_hash("a", &a));
    CHECK_OK(gyre_host_hash("b", &b));
    CHECK(real == empty && a != b && a != real);
}

static void a_rank_without_descriptors_is_no_other_host(void)
{
    struct rlimit before, none;
    uint64_t hash = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_FAILS(gyre_host_hash(NULL, &hash), GYRE_ERROR_SYSTEM, "boot_id");
    CHECK_OK(gyre_host_hash("a", &hash));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/* In a folder of its own; a pipe stands for everything that is no file. */
static void only_a_regular_file_is_replaced(void)
{
    char folder[] = "/tmp/gyre_base_XXXXXX", target[PATH_MAX];
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK_OK(gyre_file_to_replace("new", target));
    CHECK(strcmp(target, "new") == 0);
    CHECK(mkfifo("pipe", 0600) == 0 && symlink("pipe", "to_pipe") == 0);
    CHECK_FAILS(gyre_file_to_replace("pipe", target), GYRE_ERROR_INVALID_ARGUMENT, "not a regular");
    CHECK_FAILS(gyre_file_to_replace("to_pipe", target), GYRE_ERROR_INVALID_ARGUMENT,
                "not a regular");
    CHECK_FAILS(gyre_file_to_replace(folder, target), GYRE_ERROR_INVALID_ARGUMENT, "not a regular");
    CHECK(symlink("nothing", "to_nothing") == 0);
    CHECK_FAILS(gyre_file_to_replace("to_nothing", target), GYRE_ERROR_INVALID_ARGUMENT,
                "leads nowhere");
    CHECK_FAILS(gyre_file_to_replace("-", target), GYRE_ERROR_INVALID_ARGUMENT, "give the path");
    CHECK(mknod("file", S_IFREG | 0600, 0) == 0 && symlink("file", "to_file") == 0);
    CHECK_OK(gyre_file_to_replace("to_file", target));
    CHECK_MSG(strcmp(strrchr(target, '/'), "/file") == 0, "%s", target);
    CHECK_FAILS(gyre_file_to_replace("file/below", target), GYRE_ERROR_SYSTEM, "file/below");
    static const char *const made[] = {"pipe", "to_pipe", "to_nothing", "file", "to_file"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(made); i++)
        CHECK(unlink(made[i]) == 0);
    CHECK(rmdir(folder) == 0);
}

static const struct test_case cases[] = {
    {"only a regular file is replaced", only_a_regular_file_is_replaced},
    {"a cause keeps its context", a_cause_keeps_its_context},
    {"a long cause loses its end, not its context", a_long_cause_loses_its_end_not_its_context},
    {"the first fault wins", the_first_fault_wins},
    {"edit distance counts edits", edit_distance_counts_edits},
    {"a host id makes another host", a_host_id_makes_another_host},
    {"a rank without descriptors is no other host", a_rank_without_descriptors_is_no_other_host},
};

TEST_MAIN(cases)
