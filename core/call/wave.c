/* SPDX-License-Identifier: Apache-2.0 */
#include "core/call/wave.h"

#include <string.h>

int gyre_wave_take(const struct gyre_call **run, int *n_run, bool *is_busy, int n_ranks,
                   struct gyre_wave_call *wave)
{
    int n_wave = 0;
    int n_later = 0;
    memset(is_busy, 0, (size_t)n_ranks * 2 * sizeof(*is_busy));
    for (int i = 0; i < *n_run; i++) {
        bool *busy = &is_busy[run[i]->root * 2 + run[i]->is_send];
        if (!*busy)
            wave[n_wave++].call = run[i];
        else
            run[n_later++] = run[i];
        *busy = true;
    }
    *n_run = n_later;
    return n_wave;
}

/* The wave's copy of this rank to itself; n_wave if there is none. */
static int find_copy(const struct gyre_wave_call *wave, int n_wave, int rank)
{
    int i = 0;
    while (i < n_wave && wave[i].call->root != rank)
        i++;
    return i;
}

/* Does the copy run in one launch with the other calls? It does if all go by one protocol, because
 * kernels of one protocol are faster. Where there are two ranks, a send and a receive by lines are
 * faster without it. */
static bool joins(const struct gyre_wave_call *wave, int n_wave, int copy, int n_ranks)
{
    for (int i = 0; i < n_wave; i++)
        if (wave[i].proto != wave[copy].proto)
            return false;
    return n_wave == 1 || n_ranks > 2 || wave[copy].proto == GYRE_PROTO_SIMPLE;
}

int gyre_wave_launches(const struct gyre_wave_call *wave, int n_wave, int rank, int n_ranks,
                       const struct gyre_call **calls)
{
    const int copy = find_copy(wave, n_wave, rank);
    const bool is_left = copy < n_wave && !joins(wave, n_wave, copy, n_ranks);
    int n_calls = 0;
    for (int sends = 1; sends >= 0; sends--)
        for (int i = 0; i < n_wave; i++)
            if (wave[i].call->is_send == (sends != 0) && !(is_left && i == copy))
                calls[n_calls++] = wave[i].call;
    if (is_left)
        calls[n_calls] = wave[copy].call;
    return n_calls;
}
