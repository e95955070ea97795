/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a rank while connections fail. Every element of every result is compared.
 */
#ifndef GYRE_TESTS_CALLS_H
#define GYRE_TESTS_CALLS_H

#include "tests/fuzz/random.h"
#include "tests/support/ranks.h"

enum { CALLS_MAX_COUNT = 100000 };

struct calls {
    gyre_comm *comm, *half; /* half: with the ranks of the same parity, or NULL */
    gyre_stream stream;
    int rank, n_ranks;
    uint64_t round;
    uint32_t *in, *out;
};

static inline struct calls calls_open(gyre_comm *comm, int rank, int n_ranks)
{
    struct calls calls = {.comm = comm, .rank = rank, .n_ranks = n_ranks};
    calls.in = calloc(CALLS_MAX_COUNT, sizeof(*calls.in));
    calls.out = calloc(2 * CALLS_MAX_COUNT, sizeof(*calls.out));
    CHECK_OK(gyre_stream_create(&calls.stream, test_device(), -1));
    return calls;
}

static inline void calls_close(struct calls *calls)
{
    CHECK_OK(gyre_stream_destroy(calls->stream, test_device()));
    if (calls->half != NULL)
        CHECK_OK(gyre_comm_destroy(calls->half));
    free(calls->in);
    free(calls->out);
}

static inline uint32_t calls_value(int rank, uint64_t round, size_t i)
{
    return (uint32_t)((uint64_t)(rank + 1) * 2654435761u + round * 40503u + i * 97u);
}

/** The number of elements that differ from the round's values of a rank. */
static inline uint32_t calls_differ(const struct calls *calls, const uint32_t *got, int from,
                                    size_t count)
{
    uint32_t n_wrong = 0;
    for (size_t i = 0; i < count; i++)
        n_wrong += got[i] != calls_value(from, calls->round, i);
    return n_wrong;
}

/** Likewise from the sums over the ranks first, first + step, ... */
static inline uint32_t calls_differ_from_sums(const struct calls *calls, const uint32_t *got,
                                              size_t count, int first, int step)
{
    uint32_t n_wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int rank = first; rank < calls->n_ranks; rank += step)
            sum += calls_value(rank, calls->round, i);
        n_wrong += got[i] != sum;
    }
    return n_wrong;
}

/* Each of the following returns the number of wrong elements. */

static inline uint32_t calls_all_reduce(const struct calls *calls, gyre_comm *comm, size_t count)
{
    CHECK_OK(
        gyre_all_reduce(calls->in, calls->out, count, GYRE_UINT32, GYRE_SUM, comm, calls->stream));
    CHECK_OK(gyre_stream_synchronize(calls->stream, test_device()));
    return calls_differ_from_sums(calls, calls->out, count, 0, 1);
}

/** Sums over the half and over all, in one group. */
static inline uint32_t calls_halves(const struct calls *calls, size_t count)
{
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_all_reduce(calls->in, calls->out, count, GYRE_UINT32, GYRE_SUM, calls->half,
                             calls->stream));
    CHECK_OK(gyre_all_reduce(calls->in, calls->out + count, count, GYRE_UINT32, GYRE_SUM,
                             calls->comm, calls->stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(calls->stream, test_device()));
    return calls_differ_from_sums(calls, calls->out, count, calls->rank % 2, 2) +
           calls_differ_from_sums(calls, calls->out + count, count, 0, 1);
}

/** To the next rank and from the one before. */
static inline uint32_t calls_send_around(const struct calls *calls, size_t count)
{
    const int next = (calls->rank + 1) % calls->n_ranks;
    const int previous = (calls->rank + calls->n_ranks - 1) % calls->n_ranks;
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(calls->in, count, GYRE_UINT32, next, calls->comm, calls->stream));
    CHECK_OK(gyre_recv(calls->out, count, GYRE_UINT32, previous, calls->comm, calls->stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(calls->stream, test_device()));
    return calls_differ(calls, calls->out, previous, count);
}

/** The round's input and its size, which is the same on all ranks. */
static inline size_t calls_fill(const struct calls *calls, uint64_t number)
{
    static const size_t counts[] = {2, 100, 3000, CALLS_MAX_COUNT};
    const size_t count = counts[number % GYRE_ARRAY_LENGTH(counts)];
    for (size_t i = 0; i < count; i++)
        calls->in[i] = calls_value(calls->rank, calls->round, i);
    return count;
}

#endif
