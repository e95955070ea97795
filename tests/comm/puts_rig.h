/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_TESTS_PUTS_RIG_H
#define GYRE_TESTS_PUTS_RIG_H

#include "core/engine/comm/parts.h"
#include "tests/support/ranks.h"

static inline int puts_ordinal(gyre_comm *comm)
{
    int ordinal = -1;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    return ordinal;
}

static inline gyre_stream puts_stream(gyre_comm *comm)
{
    gyre_stream stream = NULL;
    CHECK_OK(gyre_stream_create(&stream, test_device(), puts_ordinal(comm)));
    return stream;
}

/** Zeroed; can be a window of processes. */
static inline int *puts_buffer(gyre_comm *comm, size_t n_ints)
{
    int *buffer = NULL;
    CHECK_OK(gyre_mem_alloc((void **)&buffer, n_ints * sizeof(*buffer), test_device(),
                            puts_ordinal(comm)));
    CHECK_OK(comm->self.device->ops->zero(comm->self.device, buffer, n_ints * sizeof(*buffer)));
    return buffer;
}

static inline void puts_free(int *buffer)
{
    CHECK_OK(gyre_mem_free(buffer, test_device()));
}

static inline void puts_copy(gyre_comm *comm, int *to, const int *from, size_t n_ints)
{
    CHECK_OK(comm->self.device->ops->copy(comm->self.device, to, from, n_ints * sizeof(*to)));
}

static inline gyre_window puts_window(gyre_comm *comm, int *buffer, size_t n_ints)
{
    gyre_window window = 0;
    CHECK_OK(gyre_window_register(comm, buffer, n_ints * sizeof(*buffer), &window));
    return window;
}

/** All of a rank's part; NULL = it has none of them. */
static inline void puts_close(gyre_comm *comm, gyre_window window, gyre_stream stream, int *memory,
                              int *local)
{
    CHECK_OK(gyre_window_deregister(comm, window));
    if (stream != NULL)
        CHECK_OK(gyre_stream_destroy(stream, test_device()));
    CHECK_OK(gyre_mem_free(local, test_device()));
    CHECK_OK(gyre_mem_free(memory, test_device()));
}

static inline int puts_value(int rank, int round, int i)
{
    return 1000 * round + 100000 * rank + i;
}

static inline void puts_fill(gyre_comm *comm, int *buffer, int n_ints, int rank, int round)
{
    int *values = malloc((size_t)n_ints * sizeof(*values));
    for (int i = 0; i < n_ints; i++)
        values[i] = puts_value(rank, round, i);
    puts_copy(comm, buffer, values, (size_t)n_ints);
    free(values);
}

static inline void puts_check(gyre_comm *comm, const int *buffer, int n_ints, int rank, int round)
{
    int *values = malloc((size_t)n_ints * sizeof(*values));
    int n_wrong = 0;
    puts_copy(comm, values, buffer, (size_t)n_ints);
    for (int i = 0; i < n_ints; i++)
        n_wrong += values[i] != puts_value(rank, round, i);
    CHECK_MSG(n_wrong == 0, "round %d: %d of %d numbers are wrong", round, n_wrong, n_ints);
    free(values);
}

/** The stream's last operation failed with the communicator's fault, which says `words`. A GPU's
 * stream ends without an error. */
static inline void puts_expect_end(gyre_comm *comm, gyre_stream stream, gyre_status expected,
                                   const char *words)
{
    gyre_status status = GYRE_SUCCESS;
    if (test_device() == GYRE_DEVICE_HOST) {
        CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), expected, words);
        return;
    }
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_CUDA));
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK_MSG(status == expected && strstr(gyre_comm_last_error(comm), words) != NULL, "%s: %s",
              gyre_status_name(status), gyre_comm_last_error(comm));
}

#ifdef TEST_WITH_CUDA
/** One rank's part. */
void puts_in_graphs(gyre_comm *comm, int rank, int n_ranks, void *argument);
#endif

#endif
