/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast and reduce in two levels: between the root and the rails on the root's host, along the
 * rails in a chain or a tree, inside the other hosts.
 */
#include "algorithms/two_level.h"

/* Receive the chunk of the root's own rail from the rank before this one on the root's host, and
 * send it to the next rank. */
static void pass_along_host(const struct gyre_two_level *level, int chunk, int root_position,
                            unsigned flags)
{
    const struct gyre_hosts *hosts = level->hosts;
    const int size = gyre_hosts_size(hosts, level->host);
    const int place = (level->position - root_position + size) % size; /* 1: next to the root */
    const struct gyre_ref in = gyre_peer(gyre_hosts_rank(hosts, level->host, level->position - 1),
                                         place == 1 ? GYRE_LANE_SECOND : GYRE_LANE_FIRST);
    const struct gyre_ref outs[] = {
        gyre_out(chunk),
        gyre_peer(gyre_hosts_rank(hosts, level->host, level->position + 1), GYRE_LANE_FIRST)};
    gyre_builder_step(level->builder, chunk, &in, 1, outs, place + 1 < size ? 2 : 1, flags);
}

/* As gyre_two_level_keep_from_owners() in a broadcast, for the ranks of the root's host.
 * @root_rail: the rail that the root owns; -1 = none. */
static void keep_beside_root(const struct gyre_two_level *level, int root_rail, int root_position)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = n_others; i > 0; i--) {
        const int rail = (level->rail + i) % level->n_rails;
        const unsigned flags = i > 1 ? GYRE_STEP_WITH_NEXT : 0;
        const struct gyre_ref in =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_SECOND);
        const struct gyre_ref out = gyre_out(rail);
        if (rail == root_rail)
            pass_along_host(level, rail, root_position, flags);
        else
            gyre_builder_step(level->builder, rail, &in, 1, &out, 1, flags);
    }
}

/* Send the owners of the other rails their chunks of this rank's input, and keep these chunks. The
 * first worker does that for one half of the rails, the second worker for the other half. */
static void send_to_rails(const struct gyre_two_level *level, int worker)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = n_others - worker; i > 0; i -= 2) {
        const int rail = (level->rail + i) % level->n_rails;
        const struct gyre_ref in = gyre_in(rail);
        const struct gyre_ref outs[] = {
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_FIRST),
            gyre_out(rail)};
        gyre_builder_step(level->builder, rail, &in, 1, outs, 2, 0);
    }
}

/* The root sends every rail its chunk. The chunk goes along the rail, and from each owner to all
 * ranks of its host. The root itself gives the chunk of its own rail to the next rank of its host
 * only, and every rank there passes it on: so the root sends all data once inside its host, and not
 * nearly twice. */
void gyre_two_level_broadcast(const struct gyre_two_level *level, int root, bool is_chain, int tree)
{
    int root_host, position, root_rail = -1;
    gyre_hosts_find(level->hosts, root, &root_host, &position);
    for (int rail = 0; rail < level->n_rails; rail++)
        if (gyre_two_level_owner(level, root_host, rail) == root)
            root_rail = rail;
    if (level->rank == root)
        send_to_rails(level, 0);
    if (level->rail >= 0) {
        const struct gyre_two_level_place place =
            gyre_two_level_place_on_rail(level, is_chain, tree, root_host);
        const int chunk = level->rail;
        int n_outs = 0;
        level->outs[n_outs++] = gyre_out(chunk);
        for (int i = 0; i < place.n_children; i++)
            level->outs[n_outs++] = place.children[i];
        if (level->rank != root)
            n_outs += gyre_two_level_hand_out(level, root, GYRE_LANE_SECOND, &level->outs[n_outs]);
        else if (gyre_hosts_size(level->hosts, root_host) > 1)
            level->outs[n_outs++] =
                gyre_peer(gyre_hosts_rank(level->hosts, root_host, position + 1), GYRE_LANE_SECOND);
        const struct gyre_ref in = level->rank == root        ? gyre_in(chunk)
                                   : level->host == root_host ? gyre_peer(root, GYRE_LANE_FIRST)
                                                              : place.parent;
        gyre_two_level_move(level, chunk, &in, 1, level->outs, n_outs, 0);
    }
    gyre_builder_worker(level->builder);
    if (level->rank == root)
        send_to_rails(level, 1);
    else if (level->host == root_host)
        keep_beside_root(level, root_rail, position);
    else
        gyre_two_level_keep_from_owners(level, 0, 1);
}

/* The reverse of a broadcast: the sums of the hosts go along the rail to the root's host, and from
 * its owners to the root. As in rings, the sends to owners have a worker of their own. */
void gyre_two_level_reduce(const struct gyre_two_level *level, int root, bool is_chain, int tree)
{
    int root_host, position;
    gyre_hosts_find(level->hosts, root, &root_host, &position);
    gyre_two_level_send_to_owners(level, 0, 1);
    gyre_builder_worker(level->builder);
    if (level->rail >= 0) {
        const struct gyre_two_level_place place =
            gyre_two_level_place_on_rail(level, is_chain, tree, root_host);
        const int chunk = level->rail;
        const struct gyre_ref out = level->rank == root        ? gyre_out(chunk)
                                    : level->host == root_host ? gyre_peer(root, GYRE_LANE_SECOND)
                                                               : place.parent;
        int n_ins = gyre_two_level_collect(level, chunk, GYRE_LANE_FIRST, level->ins);
        for (int i = 0; i < place.n_children; i++)
            level->ins[n_ins++] = place.children[i];
        gyre_two_level_move(level, chunk, level->ins, n_ins, &out, 1,
                            level->host == root_host ? GYRE_STEP_FINAL : 0);
    }
    gyre_builder_worker(level->builder);
    if (level->rank == root)
        gyre_two_level_keep_from_owners(level, 0, 1);
}
