/* SPDX-License-Identifier: Apache-2.0 */
#define TEST_OWN_MAIN
#include "core/foundation/base/log.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char directory[64];

static void start_log(const char *level, const char *subsystems)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/log.%%h.%%p", directory);
    CHECK_OK(gyre_log_configure(level, subsystems, path));
}

static const char *end_log(void)
{
    static char text[8192];
    char host[65] = "";
    char path[256];
    gethostname(host, sizeof(host) - 1);
    snprintf(path, sizeof(path), "%s/log.%s.%ld", directory, host, (long)getpid());
    memset(text, 0, sizeof(text));
    CHECK_OK(gyre_log_configure("WARN", "", NULL));
    FILE *file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    if (file != NULL) {
        if (fread(text, 1, sizeof(text) - 1, file) == 0)
            text[0] = '\0';
        fclose(file);
    }
    unlink(path);
    return text;
}

static void check_words(const char *level, const char *subsystems, const char *expected)
{
    static const char *const words[] = {"a-version", "a-warning 7", "an-init", "a-tuning",
                                        "a-trace"};
    start_log(level, subsystems);
    gyre_log(GYRE_LOG_VERSION, GYRE_LOG_INIT, "a-version");
    GYRE_WARN("a-warning %d", 7);
    GYRE_INFO(INIT, "an-init");
    GYRE_INFO(TUNING, "a-tuning");
    gyre_log(GYRE_LOG_TRACE, GYRE_LOG_INIT, "a-trace");
    const char *text = end_log();
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++)
        CHECK_MSG((strstr(text, words[i]) != NULL) == (expected[i] == '1'), "%s %s: %s", level,
                  subsystems, words[i]);
}

TEST_CASE("levels and subsystems decide what is written")
{
    check_words("NONE", "ALL", "00000");
    check_words("VERSION", "ALL", "10000");
    check_words("WARN", "", "11000");
    check_words("error", "", "11000");
    check_words("INFO", "", "11100");
    check_words("ABORT", "", "11100");
    check_words("INFO", "TUNING,NVLS", "11010");
    check_words("INFO", "^tuning", "11100");
    check_words("INFO", "ALL", "11110");
    check_words("TRACE", "ALL", "11111");
    CHECK_BAD_ARGUMENT(gyre_log_configure("INFO", "TUNIN", NULL),
                       "GYRE_DEBUG_SUBSYS: the log has no part "
                       "\"TUNIN\": did you mean TUNING?");
    CHECK_BAD_ARGUMENT(gyre_log_configure("INFO", "TUNE", NULL), "did you mean TUNING?");
    CHECK_BAD_ARGUMENT(gyre_log_configure("LOUD", "", NULL), "LOUD");
    CHECK_FAILS(gyre_log_configure("INFO", "", "/nonexistent/x"), GYRE_ERROR_SYSTEM, "/nonexist");
}

TEST_CASE("a line names host, process, thread and rank")
{
    char head[128];
    char host[65] = "";
    gethostname(host, sizeof(host) - 1);
    start_log("INFO", "");
    gyre_log_set_rank(5);
    GYRE_WARN("five");
    gyre_log_set_rank(-1);
    GYRE_INFO(INIT, "none");
    const char *text = end_log();
    snprintf(head, sizeof(head), "%s:%ld:%ld [5] GYRE WARN five\n", host, (long)getpid(),
             (long)getpid());
    CHECK_MSG(strncmp(text, head, strlen(head)) == 0, "%s", text);
    snprintf(head, sizeof(head), "%s:%ld:%ld GYRE INFO none\n", host, (long)getpid(),
             (long)getpid());
    CHECK_HAS(text, head);
}

TEST_CASE("logging changes neither errno nor the cause")
{
    start_log("INFO", "");
    gyre_fail(GYRE_ERROR_SYSTEM, "the cause");
    errno = EXDEV;
    GYRE_WARN("x");
    CHECK(errno == EXDEV);
    CHECK(strcmp(gyre_cause(), "the cause") == 0);
    end_log();
}

TEST_CASE("a long line is cut and stays one line")
{
    char text[5000];
    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    start_log("WARN", "");
    GYRE_WARN("%s", text);
    GYRE_WARN("next");
    const char *log = end_log();
    const char *newline = strchr(log, '\n');
    CHECK(newline != NULL && newline[-1] == 'y' && strstr(newline, "WARN next\n") != NULL);
    CHECK(newline - log < 2048);
}

TEST_CASE("loading the variables says what is ignored")
{
    struct gyre_params params;
    char path[128];
    snprintf(path, sizeof(path), "%s/log.%%h.%%p", directory);
    setenv("GYRE_DEBUG", "INFO", 1);
    setenv("GYRE_DEBUG_FILE", path, 1);
    setenv("GYRE_DEBUG_SUBSYS", "nonsense", 1);
    setenv("NCCL_IB_HCAS", "x", 1);
    setenv("NCCL_RAS_ENABLE", "0", 1);
    CHECK_BAD_ARGUMENT(gyre_params_load(&params), "nonsense");
    unsetenv("GYRE_DEBUG_SUBSYS");
    CHECK_OK(gyre_params_load(&params));
    CHECK_OK(gyre_params_load(&params));
    const char *text = end_log();
    const char *first = strstr(text, "unknown variable NCCL_IB_HCAS: did you mean NCCL_IB_HCA?");
    CHECK_MSG(first != NULL && strstr(first + 1, "unknown variable") == NULL, "%s", text);
    CHECK_HAS(text, "NCCL_RAS_ENABLE has no counterpart");
}

TEST_CASE("a pipe without a reader is no log file")
{
    char path[128], line[256] = "";
    snprintf(path, sizeof(path), "%s/pipe", directory);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_FAILS(gyre_log_configure("WARN", "", path), GYRE_ERROR_SYSTEM, "that no process reads");
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(reader >= 0);
    CHECK_OK(gyre_log_configure("WARN", "", path));
    GYRE_WARN("through the pipe");
    CHECK(read(reader, line, sizeof(line) - 1) > 0 && strstr(line, "through the pipe") != NULL);
    CHECK_OK(gyre_log_configure("WARN", "", NULL));
    close(reader);
    CHECK(unlink(path) == 0);
}

static int catch_stderr(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

static const char *caught(int fd)
{
    static char text[4096];
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

TEST_CASE("a full disk is said once")
{
    const int end = catch_stderr();
    CHECK_OK(gyre_log_configure("WARN", "", "/dev/full"));
    GYRE_WARN("a-lost line");
    GYRE_WARN("a-lost line");
    const char *said = strstr(caught(end), "log file /dev/full: No space left on device");
    CHECK(said != NULL && strstr(said + 1, "log file") == NULL && strstr(said, "a-lost") == NULL);
}

/* A log file past ulimit -f raises SIGXFSZ, a pipe without a reader SIGPIPE. */
TEST_CASE("writing raises no signal")
{
    const struct rlimit small = {16, 16};
    char path[128];
    sigset_t pending;
    const int end = catch_stderr();
    const int saved = dup(STDERR_FILENO);
    snprintf(path, sizeof(path), "%s/fifo", directory);
    CHECK(mkfifo(path, 0600) == 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    CHECK_OK(gyre_log_configure("WARN", "", path));
    close(reader);
    GYRE_WARN("to nobody");
    CHECK_HAS(caught(end), "Broken pipe");
    CHECK(unlink(path) == 0);
    snprintf(path, sizeof(path), "%s/short", directory);
    CHECK_OK(gyre_log_configure("WARN", "", path));
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    GYRE_WARN("more than the limit");
    GYRE_WARN("and more");
    CHECK(strstr(caught(end), "File too large") != NULL && unlink(path) == 0);
    CHECK_OK(gyre_log_configure("WARN", "", NULL));
    close(end);
    GYRE_WARN("to nobody");
    CHECK(write(saved, "", 0) == 0 && sigpending(&pending) == 0);
    CHECK(!sigismember(&pending, SIGPIPE) && !sigismember(&pending, SIGXFSZ));
}

TEST_CASE("what has got descriptor 2 is not written to")
{
    char path[128];
    struct stat about;
    const int failures = test_n_failures;
    close(STDERR_FILENO);
    CHECK_OK(gyre_log_configure("WARN", "", NULL));
    snprintf(path, sizeof(path), "%s/data", directory);
    CHECK(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) == STDERR_FILENO);
    GYRE_WARN("not into the data");
    CHECK(fstat(STDERR_FILENO, &about) == 0 && about.st_size == 0 && unlink(path) == 0);
    close(STDERR_FILENO);
    GYRE_WARN("to nobody");
    const int sock = gyre_sock_new(AF_INET);
    CHECK(sock > STDERR_FILENO && fcntl(sock, F_GETFD) == FD_CLOEXEC);
    CHECK(failures == test_n_failures);
}

int main(int argc, char **argv)
{
    snprintf(directory, sizeof(directory), "/tmp/gyre_test_log.XXXXXX");
    if (mkdtemp(directory) == NULL)
        return 1;
    const int status = test_main(argc, argv);
    rmdir(directory);
    return status;
}
