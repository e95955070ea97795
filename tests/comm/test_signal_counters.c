/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

/* The linker sends calls to the functions with "wrap". */
gyre_status __real_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle);
gyre_status __wrap_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle);
void __real_gyre_signals_fini(struct gyre_comm *comm);
void __wrap_gyre_signals_fini(struct gyre_comm *comm);

static struct {
    uint32_t is_wanted;
    uint32_t has_paused; /* rank 1 */
    uint32_t is_freed;   /* rank 0 has given its counters up */
} pause_of_rank_1;

gyre_status __wrap_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle)
{
    const bool pauses =
        gyre_load_acquire_u32(&pause_of_rank_1.is_wanted) != 0 && comm->self.rank == 1;
    if (!pauses)
        return __real_gyre_signals_import(comm, rank, handle);
    gyre_store_release_u32(&pause_of_rank_1.has_paused, 1);
    test_await(&pause_of_rank_1.is_freed, 1);
    CHECK(rank == 0 && handle->allocation_bytes > 0);
    CHECK_FAILS(__real_gyre_signals_import(comm, rank, handle), GYRE_ERROR_REMOTE,
                "rank 0 has ended the communicator");
    return GYRE_ERROR_REMOTE;
}

void __wrap_gyre_signals_fini(struct gyre_comm *comm)
{
    const int rank = comm->self.rank;
    __real_gyre_signals_fini(comm);
    if (gyre_load_acquire_u32(&pause_of_rank_1.is_wanted) != 0 && rank == 0)
        gyre_store_release_u32(&pause_of_rank_1.is_freed, 1);
}

static void *register_in_vain(void *argument)
{
    int value = 0;
    gyre_window window = 0;
    CHECK(gyre_window_register(argument, &value, sizeof(value), &window) != GYRE_SUCCESS);
    CHECK_OK(gyre_comm_destroy(argument));
    return NULL;
}

TEST_CASE("a rank that pauses does not use counters of a rank that has gone")
{
    gyre_comm *comms[2];
    pthread_t threads[2];
    gyre_config config = test_config(0);
    config.device_kind = GYRE_DEVICE_HOST;
    gyre_store_release_u32(&pause_of_rank_1.is_wanted, 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    for (int rank = 0; rank < 2; rank++)
        pthread_create(&threads[rank], NULL, register_in_vain, comms[rank]);
    test_await(&pause_of_rank_1.has_paused, 1);
    CHECK_OK(gyre_comm_abort(comms[0]));
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
    gyre_store_release_u32(&pause_of_rank_1.is_wanted, 0);
}
