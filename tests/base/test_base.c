/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/support/locale.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

TEST_CASE("a cause keeps its context")
{
    CHECK(gyre_fail(GYRE_ERROR_SYSTEM, "inner %d", 7) == GYRE_ERROR_SYSTEM);
    gyre_fail_context(GYRE_ERROR_SYSTEM, "outer");
    CHECK(strcmp(gyre_cause(), "outer: inner 7") == 0);
    gyre_fail(GYRE_ERROR_SYSTEM, "of a library\n");
    CHECK(strcmp(gyre_cause(), "of a library") == 0);
    CHECK_FAILS(gyre_fail_errno(ENOMEM, "x"), GYRE_ERROR_OUT_OF_MEMORY, "errno 12");
}

TEST_CASE("a long cause loses its end, not its context")
{
    char text[2 * GYRE_CAUSE_MAX_BYTES];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    gyre_fail(GYRE_ERROR_SYSTEM, "%s", text);
    gyre_fail_context(GYRE_ERROR_SYSTEM, "who");
    CHECK(strncmp(gyre_cause(), "who: aaa", 8) == 0);
    CHECK(strlen(gyre_cause()) < GYRE_CAUSE_MAX_BYTES);
}

TEST_CASE("numbers and words do not depend on the caller's locale")
{
    char text[64], *end;
    if (!test_enter_locale())
        return;
    CHECK(gyre_text_format(text, sizeof(text), "%.2f %g %e", 0.25, 1e-9, 1.5) > 0);
    CHECK_MSG(strcmp(text, "0.25 1e-09 1.500000e+00") == 0, "%s", text);
    CHECK(gyre_text_to_double("2.5 GT/s", &end) == 2.5 && strcmp(end, " GT/s") == 0);
    CHECK(gyre_text_to_double("2,5", NULL) == 2 && gyre_text_to_double("x", NULL) == 0);
    gyre_fail(GYRE_ERROR_SYSTEM, "%.1f us", 0.5);
    gyre_fail_context(GYRE_ERROR_SYSTEM, "%.1f", 1.5);
    CHECK_MSG(strcmp(gyre_cause(), "1.5: 0.5 us") == 0, "%s", gyre_cause());
    CHECK(gyre_text_same("INFO", "info") && gyre_text_same_n("INIT.", "init,", 4));
    CHECK(!gyre_text_same("INFO", "inf") && !gyre_text_same("inf", "INFO"));
    for (int c = 0; c < 256; c++) { /* as in the locale "C" */
        const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
        CHECK(gyre_text_lower((char)c) == (char)(is_upper ? c + 32 : c));
        CHECK(gyre_text_upper((char)c) == (char)(is_lower ? c - 32 : c));
        CHECK(gyre_text_is_printable((char)c) == (c >= 32 && c < 127));
        CHECK(gyre_text_is_space((char)c) == (c != 0 && strchr(" \t\n\v\f\r", c) != NULL));
    }
    snprintf(text, sizeof(text), "%.1f", 0.5); /* the caller's locale is as it was */
    CHECK_MSG(strcmp(text, "0,5") == 0, "%s", text);
    setlocale(LC_ALL, "C");
}

/* With one U+FFFD for each part that Unicode counts as one (chapter 3.9, as Python's
 * errors="replace"). */
#define BAD "\xef\xbf\xbd"
static const char *const utf8_texts[][2] = {
    {"", ""},
    {"plain \x7f", "plain \x7f"},
    {"mod\xe9le", "mod" BAD "le"},                      /* Latin-1 */
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", NULL},     /* 2, 3 and 4 bytes */
    {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", NULL}, /* around surrogates, and the last */
    {"\xc0\xaf", BAD BAD},                              /* overlong "/" */
    {"\xe0\x80\xaf", BAD BAD BAD},
    {"\xf0\x80\x80\xaf", BAD BAD BAD BAD},
    {"\xed\xa0\x80", BAD BAD BAD},         /* a surrogate */
    {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* U+110000 */
    {"\xf8\x88\xff\x80", BAD BAD BAD BAD}, /* no lead bytes */
    {"\xe2\x82", BAD},                     /* cut off */
    {"\xe2\x82x\xf0\x9f\x98", BAD "x" BAD},
};

TEST_CASE("a text that has no room for more ends with three dots")
{
    char text[10] = "", tiny[4] = "ab";
    gyre_text_append(text, sizeof(text), "%s %d", "ab", 12);
    CHECK(strcmp(text, "ab 12") == 0);
    gyre_text_append(text, sizeof(text), "6789");
    CHECK(strcmp(text, "ab 126789") == 0); /* just fits */
    for (int i = 0; i < 3; i++) {
        gyre_text_append(text, sizeof(text), "%d more", i);
        CHECK(strcmp(text, "ab 126...") == 0);
    }
    gyre_text_append(tiny, sizeof(tiny), "cd"); /* no room for the dots */
    CHECK(strcmp(tiny, "abc") == 0);
}

TEST_CASE("any bytes become UTF-8")
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(utf8_texts); i++) {
        const char *text = utf8_texts[i][0];
        const char *expected = utf8_texts[i][1] == NULL ? text : utf8_texts[i][1];
        char copy[64], json[96] = "", markup[64] = "";
        CHECK(gyre_text_to_utf8(text, copy, sizeof(copy)) == strlen(expected));
        CHECK_MSG(strcmp(copy, expected) == 0, "text %zu: %s", i, copy);
        FILE *file = fmemopen(json, sizeof(json), "w");
        gyre_text_put_json(file, text, SIZE_MAX);
        fclose(file);
        CHECK(strncmp(json + 1, expected, strlen(expected)) == 0 &&
              strcmp(json + 1 + strlen(expected), "\"") == 0);
        file = fmemopen(markup, sizeof(markup), "w");
        gyre_text_put_markup(file, text);
        fclose(file);
        CHECK(strcmp(markup, expected) == 0);
        /* Whole characters only. */
        for (size_t n = 1; n <= strlen(expected) + 1; n++) {
            char cut[64], again[64];
            const size_t n_cut = gyre_text_to_utf8(text, cut, n);
            CHECK(n_cut < n && strncmp(cut, expected, n_cut) == 0);
            CHECK(gyre_text_to_utf8(cut, again, sizeof(again)) == n_cut);
        }
    }
    char json[64] = "", markup[64] = "";
    FILE *file = fmemopen(json, sizeof(json), "w");
    gyre_text_put_json(file, "\"\\\n\x01</a>&", 7);
    fclose(file);
    CHECK_MSG(strcmp(json, "\"\\u0022\\u005c\\u000a\\u0001\\u003c/a\"") == 0, "%s", json);
    char csv[64] = "";
    file = fmemopen(csv, sizeof(csv), "w");
    gyre_text_put_csv(file, "plain");
    gyre_text_put_csv(file, "a,\"b\"\xe9");
    fclose(file);
    CHECK_MSG(strcmp(csv, "plain\"a,\"\"b\"\"" BAD "\"") == 0, "%s", csv);
    file = fmemopen(markup, sizeof(markup), "w");
    gyre_text_put_markup(file, "<\"&\n>");
    fclose(file);
    CHECK_MSG(strcmp(markup, "&lt;&quot;&amp; &gt;") == 0, "%s", markup);
}

TEST_CASE("the first fault wins")
{
    struct gyre_fault fault;
    gyre_fault_init(&fault);
    CHECK_OK(gyre_fault_status(&fault));
    CHECK(gyre_fault_raise(&fault, GYRE_ERROR_REMOTE, "first"));
    CHECK(!gyre_fault_raise(&fault, GYRE_ERROR_SYSTEM, "second"));
    CHECK_FAILS(gyre_fault_status(&fault), GYRE_ERROR_REMOTE, "first");
    gyre_fault_fini(&fault);
}

TEST_CASE("edit distance counts edits")
{
    CHECK(gyre_edit_distance("IB_HCA", "IB_HCA") == 0);
    CHECK(gyre_edit_distance("IB_HCAS", "IB_HCA") == 1);
    CHECK(gyre_edit_distance("", "abc") == 3);
    CHECK(gyre_edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("a host id makes another host")
{
    uint64_t real = 0, empty = 0, a = 0, b = 0;
    CHECK_OK(gyre_host_hash(NULL, &real));
    CHECK_OK(gyre_host_hash("", &empty));
    CHECK_OK(gyre_host_hash("a", &a));
    CHECK_OK(gyre_host_hash("b", &b));
    CHECK(real == empty && a != b && a != real);
}

TEST_CASE("a rank without descriptors is no other host")
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

TEST_CASE("a name that is as long as its room is refused")
{
    char path[6] = "12345";
    CHECK(!gyre_file_expand("abcd", -1, path, 4, NULL) && path[4] == '5');
    CHECK(gyre_file_expand("a%rd", 2, path, 5, NULL) && strcmp(path, "a2d") == 0);
    CHECK(gyre_file_expand("abcd", -1, path, 5, NULL) && strcmp(path, "abcd") == 0);
}

TEST_CASE("only a regular file is replaced")
{
    char folder[] = "/tmp/gyre_base_XXXXXX", target[PATH_MAX];
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK_OK(gyre_file_to_replace("new", target));
    CHECK(strcmp(target, "new") == 0);
    CHECK(mkfifo("pipe", 0600) == 0 && symlink("pipe", "to_pipe") == 0);
    CHECK_BAD_ARGUMENT(gyre_file_to_replace("pipe", target), "not a regular");
    CHECK_BAD_ARGUMENT(gyre_file_to_replace("to_pipe", target), "not a regular");
    CHECK_BAD_ARGUMENT(gyre_file_to_replace(folder, target), "not a regular");
    CHECK(symlink("nothing", "to_nothing") == 0);
    CHECK_BAD_ARGUMENT(gyre_file_to_replace("to_nothing", target), "leads nowhere");
    CHECK_BAD_ARGUMENT(gyre_file_to_replace("-", target), "give the path");
    CHECK(mknod("file", S_IFREG | 0600, 0) == 0 && symlink("file", "to_file") == 0);
    CHECK_OK(gyre_file_to_replace("to_file", target));
    CHECK_MSG(strcmp(strrchr(target, '/'), "/file") == 0, "%s", target);
    CHECK_FAILS(gyre_file_to_replace("file/below", target), GYRE_ERROR_SYSTEM, "file/below");
    static const char *const made[] = {"pipe", "to_pipe", "to_nothing", "file", "to_file"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(made); i++)
        CHECK(unlink(made[i]) == 0);
    CHECK(rmdir(folder) == 0);
}

static bool holds(const char *path, const char *text)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    const bool is_read = gyre_file_read(path, 4096, &bytes, &n_bytes) == GYRE_SUCCESS;
    const bool is_it = is_read && n_bytes == strlen(text) && strcmp(bytes, text) == 0;
    free(bytes);
    return is_it;
}

static int count_names(const char *part)
{
    int n = 0;
    DIR *folder = opendir(".");
    CHECK(folder != NULL);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        n += strstr(entry->d_name, part) != NULL;
    if (folder != NULL)
        closedir(folder);
    return n;
}

TEST_CASE("a file is replaced as a whole or not at all")
{
    char folder[] = "/tmp/gyre_base_XXXXXX";
    struct stat there;
    struct rlimit before, small;
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    const mode_t mask = umask(027);
    CHECK_OK(gyre_file_replace("file", "one", 3));
    CHECK(holds("file", "one") && stat("file", &there) == 0 && (there.st_mode & 0777) == 0640);
    CHECK(chmod("file", 0604) == 0 && symlink("file", "link") == 0);
    CHECK_OK(gyre_file_replace("link", "three", 5));
    CHECK(holds("file", "three") && stat("file", &there) == 0 && (there.st_mode & 0777) == 0604);
    CHECK(lstat("link", &there) == 0 && S_ISLNK(there.st_mode));
    /* Past this limit SIGXFSZ ends the process. */
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 2;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const gyre_status status = gyre_file_replace("file", "four", 4);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_FAILS(status, GYRE_ERROR_SYSTEM,
                "file: File too large: needs 4 bytes, but files may have 2 (ulimit -f)");
    CHECK(holds("file", "three") && count_names(".part") == 0);
    CHECK_FAILS(gyre_file_replace("none/file", "x", 1), GYRE_ERROR_SYSTEM, "none/file");
    umask(mask);
    CHECK(unlink("link") == 0 && unlink("file") == 0 && rmdir(folder) == 0);
}

TEST_CASE("a planted link is not written through")
{
    char folder[] = "/tmp/gyre_base_XXXXXX";
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK_OK(gyre_file_replace("victim", "mine", 4));
    CHECK(symlink("victim", "file.part") == 0);
    CHECK_OK(gyre_file_replace("file", "report", 6));
    CHECK(holds("file", "report") && holds("victim", "mine") && count_names(".part") == 1);
    CHECK(unlink("file.part") == 0 && unlink("file") == 0 && unlink("victim") == 0);
    CHECK(rmdir(folder) == 0);
}

TEST_CASE("what may never end is not read")
{
    char folder[] = "/tmp/gyre_base_XXXXXX";
    char *bytes = NULL;
    size_t n_bytes = 0;
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0 && mkfifo("pipe", 0600) == 0);
    CHECK_BAD_ARGUMENT(gyre_file_read("pipe", 10, &bytes, &n_bytes), "pipe: not a regular file");
    CHECK_BAD_ARGUMENT(gyre_file_read("/dev/zero", 10, &bytes, &n_bytes), "not a regular file");
    CHECK_BAD_ARGUMENT(gyre_file_read(folder, 10, &bytes, &n_bytes), "not a regular file");
    CHECK_FAILS(gyre_file_read("none", 10, &bytes, &n_bytes), GYRE_ERROR_SYSTEM, "none: No such");
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    CHECK_BAD_ARGUMENT(gyre_file_read_open(zeros, "zeros", 200000, &bytes, &n_bytes),
                       "zeros: more than 200000 bytes");
    close(zeros);
    CHECK_OK(gyre_file_replace("file", "0123456789", 10));
    CHECK_BAD_ARGUMENT(gyre_file_read("file", 9, &bytes, &n_bytes), "file: more than 9 bytes");
    CHECK_OK(gyre_file_read("file", 10, &bytes, &n_bytes));
    CHECK(n_bytes == 10 && strcmp(bytes, "0123456789") == 0);
    free(bytes);
    CHECK(unlink("pipe") == 0 && unlink("file") == 0 && rmdir(folder) == 0);
}

static void *return_at_once(void *argument)
{
    return argument;
}

TEST_CASE("a thread that cannot start names the limits")
{
    pthread_t thread;
    CHECK_FAILS(gyre_thread_start(&thread, (size_t)1 << 50, return_at_once, NULL, "a helper"),
                GYRE_ERROR_SYSTEM, "a helper: no thread can be started: raise ulimit -u");
}

static void check_copy(size_t to, size_t from, size_t n_bytes)
{
    enum { AREA_BYTES = 1 << 15 };
    static unsigned char area[AREA_BYTES], expected[AREA_BYTES];
    CHECK(to + n_bytes <= AREA_BYTES && from + n_bytes <= AREA_BYTES);
    for (size_t i = 0; i < AREA_BYTES; i++)
        area[i] = (unsigned char)(i * 31 + i / 256);
    memcpy(expected, area, AREA_BYTES);
    memmove(expected + to, expected + from, n_bytes);
    gyre_copy(area + to, area + from, n_bytes);
    CHECK_MSG(memcmp(area, expected, AREA_BYTES) == 0, "%zu bytes from %zu to %zu", n_bytes, from,
              to);
}

TEST_CASE("a copy is right at every distance")
{
    const size_t sizes[] = {0, 1, 1023, 1024, 1025, 2048, 5000, 8191};
    for (size_t distance = 0; distance < 70; distance++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            check_copy(16384 + distance, 4096, sizes[i]);
            check_copy(4096 + distance, 16384, sizes[i]);
            check_copy(4096 + distance, 4096, sizes[i]);        /* overlaps, target behind */
            check_copy(4096, 4096 + distance, sizes[i]);        /* overlaps, target before */
            check_copy(4096, 4096 + 4096 - distance, sizes[i]); /* likewise, in pieces */
            check_copy(8192 + distance, 4096, sizes[i]);        /* overlaps by half */
        }
}
