/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective, or messages round a ring, with inputs and results of a pattern.
 */
#ifndef GYRE_TESTS_JOBS_H
#define GYRE_TESTS_JOBS_H

#include "algorithms/algorithm.h"
#include "bench/check/pattern.h"
#include "tests/support/ranks.h"

struct test_job {
    enum gyre_collective coll; /* SEND_RECV: round the ring */
    gyre_dtype dtype;
    gyre_op op;
    size_t count;
    int root;
    bool in_place;
    uint32_t seed;
};

struct test_place {
    gyre_comm *comm;
    int rank, n_ranks;
    struct gyre_device *device;
    gyre_stream stream;
};

/** With a stream. */
static inline struct test_place test_place_open(gyre_comm *comm)
{
    struct test_place place = {.comm = comm};
    const struct gyre_device_ops *ops = NULL;
    int ordinal = -1;
    CHECK_OK(gyre_comm_rank(comm, &place.rank));
    CHECK_OK(gyre_comm_count(comm, &place.n_ranks));
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_device_find(test_device(), &ops));
    CHECK_OK(ops->open(ordinal, &place.device));
    CHECK_OK(gyre_stream_create(&place.stream, test_device(), ordinal));
    return place;
}

static inline void test_place_close(struct test_place *place)
{
    CHECK_OK(gyre_stream_destroy(place->stream, test_device()));
    place->device->ops->close(place->device);
}

static inline struct gyre_pattern test_job_pattern(const struct test_job *job, int n_ranks)
{
    return (struct gyre_pattern){job->dtype,
                                 gyre_collectives[job->coll].reduces ? job->op : GYRE_SUM,
                                 (uint32_t)n_ranks, job->seed};
}

static inline gyre_status test_job_call(const struct test_job *job, const struct test_place *own,
                                        const void *in, void *out)
{
    const int n = own->n_ranks;
    gyre_status status;
    switch (job->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return gyre_all_reduce(in, out, job->count, job->dtype, job->op, own->comm, own->stream);
    case GYRE_COLL_BROADCAST:
        return gyre_broadcast(in, out, job->count, job->dtype, job->root, own->comm, own->stream);
    case GYRE_COLL_REDUCE:
        return gyre_reduce(in, out, job->count, job->dtype, job->op, job->root, own->comm,
                           own->stream);
    case GYRE_COLL_ALL_GATHER:
        return gyre_all_gather(in, out, job->count, job->dtype, own->comm, own->stream);
    case GYRE_COLL_REDUCE_SCATTER:
        return gyre_reduce_scatter(in, out, job->count, job->dtype, job->op, own->comm,
                                   own->stream);
    case GYRE_COLL_ALL_TO_ALL:
        return gyre_all_to_all(in, out, job->count, job->dtype, own->comm, own->stream);
    case GYRE_COLL_GATHER:
        return gyre_gather(in, out, job->count, job->dtype, job->root, own->comm, own->stream);
    case GYRE_COLL_SCATTER:
        return gyre_scatter(in, out, job->count, job->dtype, job->root, own->comm, own->stream);
    default:
        GYRE_TRY(gyre_group_start());
        status = gyre_send(in, job->count, job->dtype, (own->rank + 1) % n, own->comm, own->stream);
        if (status == GYRE_SUCCESS)
            status = gyre_recv(out, job->count, job->dtype, (own->rank + n - 1) % n, own->comm,
                               own->stream);
        GYRE_TRY(gyre_group_end());
        return status;
    }
}

/** How many elements are. */
static inline uint64_t test_job_wrong(const struct test_job *job, const struct test_place *own,
                                      const char *out, struct gyre_pattern_errors *errors)
{
    const int n = own->n_ranks;
    const struct gyre_pattern pattern = test_job_pattern(job, n);
    const size_t block_bytes = job->count * gyre_dtype_bytes(job->dtype);
    const uint64_t own_first = (uint64_t)own->rank * job->count;
    uint64_t n_wrong = 0;
    if ((job->coll == GYRE_COLL_REDUCE || job->coll == GYRE_COLL_GATHER) && own->rank != job->root)
        return 0;
    if (gyre_collectives[job->coll].reduces) {
        const bool is_part = job->coll == GYRE_COLL_REDUCE_SCATTER;
        CHECK_OK(gyre_pattern_check_reduced(own->device, &pattern, is_part ? own_first : 0,
                                            job->count, out, errors));
        return errors->n_wrong;
    }
    const bool has_blocks = gyre_collectives[job->coll].out_blocks;
    const bool is_cut = job->coll == GYRE_COLL_ALL_TO_ALL || job->coll == GYRE_COLL_SCATTER;
    for (int block = 0; block < (has_blocks ? n : 1) && n_wrong == 0; block++) {
        const int from = has_blocks                         ? block
                         : job->coll == GYRE_COLL_SEND_RECV ? (own->rank + n - 1) % n
                                                            : job->root;
        CHECK_OK(gyre_pattern_check_copy(own->device, &pattern, (uint32_t)from,
                                         is_cut ? own_first : 0, job->count,
                                         out + (size_t)block * block_bytes, errors));
        n_wrong += errors->n_wrong;
    }
    return n_wrong;
}

#endif
