/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/fuzz/calls/calls.h"
#include "tests/fuzz/run.h"

void fuzz_rank_phase(struct fuzz_rank *rank, const char *phase)
{
    atomic_store(&rank->phase, phase);
    atomic_store(&fuzz_shared->progress_ns[rank->world_rank], fuzz_now_ns());
}

static void prepare(struct fuzz_rank *rank)
{
    fuzz_rank_phase(rank, "writing send buffers and guards");
    for (int i = 0; i < rank->n_calls; i++)
        fuzz_check_prepare(rank, &rank->calls[i]);
}

static void compare(struct fuzz_rank *rank)
{
    fuzz_rank_phase(rank, "comparing");
    for (int i = 0; i < rank->n_calls; i++)
        fuzz_check_compare(rank, &rank->calls[i]);
}

static bool makes_any(const struct fuzz_rank *rank)
{
    for (int i = 0; i < rank->n_calls; i++)
        if (rank->calls[i].fate != FUZZ_LEFT_OUT)
            return true;
    return false;
}

static void run_round(struct fuzz_rank *rank)
{
    struct fuzz_rng pace = {fuzz_mix((uint64_t)fuzz_options.seed * 131 + (uint64_t)rank->round) ^
                            (uint64_t)rank->world_rank << 32};
    if (!makes_any(rank))
        return;
    fuzz_issue_open(rank);
    if (rank->n_replays > 0) {
        /* Captured once and replayed, each time on buffers that were written anew. */
        const int n_streams = FUZZ_N_STREAMS - (rank->streams[FUZZ_N_STREAMS - 1] == NULL);
        void *graph = NULL;
        FUZZ_TRY_DEVICE(rank, rank->device->capture(rank->streams, n_streams));
        fuzz_issue_round(rank, &pace);
        FUZZ_TRY_DEVICE(rank, rank->device->end_capture(rank->streams, n_streams, &graph));
        for (int i = 0; i < rank->n_replays; i++) {
            prepare(rank);
            fuzz_rank_phase(rank, "launching a graph");
            FUZZ_TRY_DEVICE(rank, rank->device->launch(graph, rank->streams[0]));
            fuzz_issue_wait(rank, &pace);
            compare(rank);
        }
        FUZZ_TRY_DEVICE(rank, rank->device->destroy_graph(graph));
        atomic_fetch_add(&fuzz_shared->n_graphs, 1);
    } else {
        prepare(rank);
        fuzz_issue_round(rank, &pace);
        fuzz_issue_wait(rank, &pace);
        compare(rank);
    }
    fuzz_issue_close(rank);
}

void fuzz_rank_run(struct fuzz_rank *rank, gyre_comm *comm)
{
    fuzz_rank_phase(rank, "allocating memory and streams");
    rank->own.state = fuzz_mix((uint64_t)fuzz_options.seed ^
                               (uint64_t)(rank->world_rank + 1) * UINT64_C(0xabcdef123));
    FUZZ_TRY_DEVICE(rank, rank->device->use(rank->ordinal));
    fuzz_place_open(rank);
    /* Odd seeds leave the last stream NULL where no other rank has it too: on GPUs, ranks of one
     * process on one GPU share the default stream, and would wait for each other in a circle. */
    const int n_devices = rank->device->count();
    const bool is_shared = rank->device->kind == GYRE_DEVICE_CUDA &&
                           fuzz_options.mode == FUZZ_THREADS && fuzz_options.n_ranks > n_devices;
    const int n_streams = FUZZ_N_STREAMS - (fuzz_options.seed % 2 == 1 && !is_shared);
    for (int i = 0; i < n_streams; i++)
        FUZZ_TRY(rank, gyre_stream_create(&rank->streams[i], rank->device->kind, rank->ordinal));
    fuzz_comms_open(rank, comm);
    struct fuzz_rng rng = {fuzz_mix((uint64_t)fuzz_options.seed * 1000003 + 7)};
    long index = 0;
    for (int i = 1; i < FUZZ_N_SLOTS; i++)
        fuzz_comms_change(rank, &rng);
    while (index < fuzz_options.n_calls && index <= fuzz_options.stop_at) {
        if (fuzz_once_in(&rng, 12))
            fuzz_comms_change(rank, &rng);
        const struct fuzz_rng of_round = {fuzz_next(&rng)};
        fuzz_rank_phase(rank, "drawing a round");
        index = fuzz_draw_round(rank, of_round, index);
        run_round(rank);
        atomic_fetch_add(&rank->round, 1);
    }
    rank->n_groups = 0;
    fuzz_comms_close(rank);
    fuzz_rank_phase(rank, "destroying streams");
    for (int i = 0; i < FUZZ_N_STREAMS; i++)
        if (rank->streams[i] != NULL)
            FUZZ_TRY(rank, gyre_stream_destroy(rank->streams[i], rank->device->kind));
    atomic_store(&fuzz_shared->progress_ns[rank->world_rank], 0);
}

void fuzz_rank_free(struct fuzz_rank *rank)
{
    fuzz_place_close(rank);
}
