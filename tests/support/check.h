/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that say what they saw, cases named by a sentence, and a main that runs them.
 */
#ifndef GYRE_TESTS_CHECK_H
#define GYRE_TESTS_CHECK_H

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SKIPPED 77

/* Weak: a binary's files count together. */
__attribute__((weak)) int test_n_failures;

/** Goes on after a failure. */
#define CHECK_MSG(condition, ...)                                                     \
    do {                                                                              \
        if (!(condition)) {                                                           \
            __atomic_fetch_add(&test_n_failures, 1, __ATOMIC_RELAXED);                \
            fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                             \
            fprintf(stderr, "\n");                                                    \
        }                                                                             \
    } while (0)

#define CHECK(condition) CHECK_MSG(condition, "%s", "")

/** Else prints the text. */
#define CHECK_HAS(text, words) CHECK_MSG(strstr((text), (words)) != NULL, "%s", (text))

#define CHECK_OK(expr)                                                                      \
    do {                                                                                    \
        const gyre_status check_status_ = (expr);                                           \
        CHECK_MSG(check_status_ == GYRE_SUCCESS, "%s: %s", gyre_status_name(check_status_), \
                  gyre_cause());                                                            \
    } while (0)

/** With this status and `words` in the cause. */
#define CHECK_FAILS(expr, expected, words)                                                    \
    do {                                                                                      \
        const gyre_status check_status_ = (expr);                                             \
        CHECK_MSG(check_status_ == (expected), "got %s: %s", gyre_status_name(check_status_), \
                  gyre_cause());                                                              \
        CHECK_HAS(gyre_cause(), words);                                                       \
    } while (0)

/** The same for the two commonest refusals. */
#define CHECK_BAD_ARGUMENT(expr, words) CHECK_FAILS(expr, GYRE_ERROR_INVALID_ARGUMENT, words)
#define CHECK_BAD_USAGE(expr, words)    CHECK_FAILS(expr, GYRE_ERROR_INVALID_USAGE, words)

/** Lets other threads run until the condition holds, for a minute at most. That is less than a
 * test's time limit, so the test itself says what did not come. */
#define TEST_YIELD_UNTIL(condition)                           \
    for (uint64_t until_ns_ = gyre_now_ns() + 60000000000ULL; \
         !(condition) && gyre_now_ns() < until_ns_;)          \
    sched_yield()

/** A thread for each of n elements, run(element); until all have ended. @stride: an element's
 * bytes; 0 = they share one. */
static inline void test_run_threads(void *(*run)(void *), void *first, int n, size_t stride)
{
    pthread_t threads[64];
    CHECK(n <= 64);
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (char *)first + (size_t)i * stride) == 0);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Weak, as test_n_failures. In the order of definition. */
__attribute__((weak)) struct test_case test_cases[64];
__attribute__((weak)) size_t test_n_cases;

static inline void test_add(const char *name, void (*run)(void))
{
    if (test_n_cases == sizeof(test_cases) / sizeof(test_cases[0]))
        abort();
    test_cases[test_n_cases++] = (struct test_case){name, run};
}

/** A case with its body: TEST_CASE("a sentence that is true when it passes") { ... } */
#define TEST_CASE(sentence)        TEST_CASE_AT(sentence, __LINE__)
#define TEST_CASE_AT(sentence, at) TEST_CASE_OF(sentence, at)
#define TEST_CASE_OF(sentence, at)                                      \
    static void test_case_##at(void);                                   \
    __attribute__((constructor)) static void test_case_##at##_add(void) \
    {                                                                   \
        test_add(sentence, test_case_##at);                             \
    }                                                                   \
    static void test_case_##at(void)

/** A case of one statement. */
#define TEST_RUNS(sentence, ...) \
    TEST_CASE(sentence)          \
    {                            \
        __VA_ARGS__;             \
    }

/** In a case, or before all: what the machine or build lacks. */
static inline _Noreturn void test_skip_case(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(TEST_SKIPPED);
}

/** In a file: runs before its cases, for example to set variables or to skip them all. */
#define TEST_BEFORE __attribute__((constructor)) static void test_before(void)

/* How many cases run at once. */
__attribute__((weak)) size_t test_n_together = 1;

/** In a file whose cases mostly wait for deadlines. */
#define TEST_TOGETHER(n)       \
    TEST_BEFORE                \
    {                          \
        test_n_together = (n); \
    }

/* A case is a process, so threads, memory and variables, or a crash, do not reach the next, and a
 * case that forks has no other threads. */
static inline pid_t test_start_case(const struct test_case *own)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        own->run();
        exit(test_n_failures == 0 ? 0 : 1);
    }
    return pid;
}

/* Returns 0, 1 or TEST_SKIPPED. */
static inline int test_end_case(const struct test_case *own, pid_t pid)
{
    int how = 0;
    const bool has_ended = waitpid(pid, &how, 0) == pid;
    const int status = has_ended && WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    if (has_ended && WIFSIGNALED(how))
        fprintf(stderr, "%s: ended by signal %d\n", own->name, WTERMSIG(how));
    printf("%s %s\n", status == 0 ? "ok  " : status == TEST_SKIPPED ? "skip" : "FAIL", own->name);
    return status;
}

/** All cases, or those with argv[1] in their names. Returns the binary's exit status. */
static inline int test_main(int argc, char **argv)
{
    size_t n_run = 0, n_failed = 0, n_skipped = 0;
    for (size_t first = 0; first < test_n_cases; first += test_n_together) {
        pid_t pids[sizeof(test_cases) / sizeof(test_cases[0])] = {0};
        const size_t end = first + test_n_together;
        for (size_t i = first; i < test_n_cases && i < end; i++)
            if (argc <= 1 || strstr(test_cases[i].name, argv[1]) != NULL)
                pids[i] = test_start_case(&test_cases[i]);
        for (size_t i = first; i < test_n_cases && i < end; i++) {
            if (pids[i] == 0)
                continue;
            const int status = test_end_case(&test_cases[i], pids[i]);
            n_run++;
            n_skipped += status == TEST_SKIPPED;
            n_failed += status != 0 && status != TEST_SKIPPED;
        }
    }
    printf("%zu cases, %zu failed, %zu skipped\n", n_run, n_failed, n_skipped);
    if (n_failed > 0 || n_run == 0)
        return 1;
    if (n_skipped < n_run)
        return 0;
    printf("skipped: all cases, for the reasons above\n");
    return TEST_SKIPPED;
}

#ifndef TEST_OWN_MAIN /* defined by a file whose main prepares something */
__attribute__((weak)) int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
#endif

#endif
