/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/wave.h"

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

static int count_distances(const struct gyre_wave_place *place)
{
    return place->n_ranks > 1 ? place->n_ranks - 1 : 1;
}

/* So many distances have one launch: a send and a receive for each, and there is room for the
 * copy. */
static int width_of(const struct gyre_wave_place *place)
{
    const int most = ((int)place->most_calls - 1) / 2;
    return place->most_calls == 0 ? count_distances(place) : most > 0 ? most : 1;
}

/* How far a message goes: from rank r to rank r + 1 it is 0, as a copy to the own rank. */
static int distance_of(const struct gyre_call *call, const struct gyre_wave_place *place)
{
    const int ahead = call->is_send ? call->root - place->rank : place->rank - call->root;
    return ahead == 0 ? 0 : (ahead + place->n_ranks - 1) % place->n_ranks;
}

/* Does the copy run in one launch with the other calls? It does if all go by one protocol, because
 * kernels of one protocol are faster. Where there are two ranks, a send and a receive by lines are
 * faster without it. */
static bool joins(const struct gyre_wave_call *wave, int n_wave, int copy,
                  const struct gyre_wave_place *place)
{
    for (int i = 0; i < n_wave; i++)
        if (wave[i].proto != wave[copy].proto)
            return false;
    return n_wave == 1 || place->n_ranks > 2 || wave[copy].proto == GYRE_PROTO_SIMPLE;
}

/* A wave that is being divided. */
struct division {
    const struct gyre_wave_call *wave;
    int n_wave;
    const struct gyre_wave_place *place;
    int left; /* this call is a launch of its own; n_wave = none is */
    const struct gyre_call **calls;
    int n_calls; /* so far */
};

/* Appends the sends or the receives of a launch. @nearest: the shortest distance. */
static void append(struct division *division, int nearest, bool sends)
{
    for (int i = 0; i < division->n_wave; i++) {
        const struct gyre_call *call = division->wave[i].call;
        const int beyond = distance_of(call, division->place) - nearest;
        if (i != division->left && call->is_send == sends && beyond >= 0 &&
            beyond < width_of(division->place))
            division->calls[division->n_calls++] = call;
    }
}

int gyre_wave_launches(const struct gyre_wave_call *wave, int n_wave,
                       const struct gyre_wave_place *place, const struct gyre_call **calls,
                       int *ends)
{
    const int copy = find_copy(wave, n_wave, place->rank);
    const bool is_left = copy < n_wave && !joins(wave, n_wave, copy, place);
    struct division division = {wave, n_wave, place, is_left ? copy : n_wave, calls, 0};
    int n_launches = 0;
    for (int nearest = 0; nearest < count_distances(place); nearest += width_of(place)) {
        const int n_before = division.n_calls;
        append(&division, nearest, true);
        append(&division, nearest, false);
        if (division.n_calls > n_before)
            ends[n_launches++] = division.n_calls;
    }
    if (is_left) {
        calls[division.n_calls] = wave[copy].call;
        ends[n_launches++] = n_wave;
    }
    return n_launches;
}
