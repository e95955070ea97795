/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided calls: a rank writes into the window of another one, which waits for a signal.
 */
#include "docs/tutorials/ranks.h"

enum { COUNT = 4, FULL = 0 };

void run_rank(int rank, gyre_comm *comm)
{
    gyre_window window;
    int32_t *box;
    must(gyre_mem_alloc((void **)&box, COUNT * sizeof(*box), GYRE_DEVICE_HOST, -1));
    must(gyre_window_register(comm, box, COUNT * sizeof(*box), &window));
    if (rank == 0) {
        const int32_t letter[COUNT] = {1, 2, 3, 5};
        const gyre_put_target target = {
            .peer = 1, .window = window, .offset_bytes = 0, .signal = FULL};
        must(gyre_put(letter, COUNT, GYRE_INT32, &target, comm,
                      NULL)); /* data first, then the signal */
        wait_for_stream();
        printf("rank 0 has put %d numbers\n", COUNT);
    } else {
        const gyre_signal_wait wait = {.peer = 0, .signal = FULL, .count = 1};
        must(gyre_wait_signal(&wait, 1, comm, NULL)); /* the stream waits, not the caller */
        wait_for_stream();
        printf("rank 1 reads %d %d %d %d\n", (int)box[0], (int)box[1], (int)box[2], (int)box[3]);
    }
    must(gyre_window_deregister(comm, window));
    must(gyre_mem_free(box, GYRE_DEVICE_HOST));
}

int main(void)
{
    run_ranks(2);
    return 0;
}
