/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that say what they saw, cases named by a sentence, and a main that runs them.
 */
#ifndef GYRE_TESTS_CHECK_H
#define GYRE_TESTS_CHECK_H

#include "core/foundation/base/status.h"

#include <inttypes.h>
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

/** In a case: what the machine or build lacks. */
static inline _Noreturn void test_skip_case(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(TEST_SKIPPED);
}

/* A case is a process, so threads, memory and variables, or a crash, do not reach the next, and a
 * case that forks has no other threads. Returns 0, 1 or TEST_SKIPPED. */
static inline int test_run_case(const struct test_case *own)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        own->run();
        exit(test_n_failures == 0 ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: ended by signal %d\n", own->name, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

struct test_results {
    size_t n_run, n_failed, n_skipped;
};

static inline void test_note(struct test_results *results, const char *name, int status)
{
    printf("%s %s\n", status == 0 ? "ok  " : status == TEST_SKIPPED ? "skip" : "FAIL", name);
    results->n_run++;
    results->n_skipped += status == TEST_SKIPPED;
    results->n_failed += status != 0 && status != TEST_SKIPPED;
}

/* Returns the binary's exit status. */
static inline int test_end(const struct test_results *results)
{
    printf("%zu cases, %zu failed, %zu skipped\n", results->n_run, results->n_failed,
           results->n_skipped);
    if (results->n_failed > 0 || results->n_run == 0)
        return 1;
    if (results->n_skipped < results->n_run)
        return 0;
    printf("skipped: all cases, for the reasons above\n");
    return TEST_SKIPPED;
}

/** All cases, or those with argv[1] in their names. Returns the exit status. */
static inline int test_main(int argc, char **argv)
{
    struct test_results results = {0};
    for (size_t i = 0; i < test_n_cases; i++)
        if (argc <= 1 || strstr(test_cases[i].name, argv[1]) != NULL)
            test_note(&results, test_cases[i].name, test_run_case(&test_cases[i]));
    return test_end(&results);
}

/** For cases that mostly wait for deadlines: `most` run at once. */
static inline int test_main_together(int argc, char **argv, size_t most)
{
    struct test_results results = {0};
    for (size_t first = 0; first < test_n_cases; first += most) {
        pid_t pids[64] = {0};
        for (size_t i = first; i < test_n_cases && i < first + most; i++) {
            if (argc > 1 && strstr(test_cases[i].name, argv[1]) == NULL)
                continue;
            fflush(NULL);
            pids[i - first] = fork();
            if (pids[i - first] == 0)
                exit(test_run_case(&test_cases[i]));
        }
        for (size_t i = first; i < test_n_cases && i < first + most; i++) {
            int status = 1;
            if (pids[i - first] == 0)
                continue;
            const bool has_ended = waitpid(pids[i - first], &status, 0) == pids[i - first];
            test_note(&results, test_cases[i].name,
                      has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
    }
    return test_end(&results);
}

#ifndef TEST_OWN_MAIN /* defined by a file whose main prepares something */
__attribute__((weak)) int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
#endif

#endif
