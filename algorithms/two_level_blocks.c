/* SPDX-License-Identifier: Apache-2.0
 *
 * Two levels with a block for each rank: reduce-scatter and all-gather. Every rail serves some
 * ranks of each host and carries their blocks. It serves more than one rank of a host that has more
 * ranks than rails. The program then runs once for each of these ranks, one *pass* after the other:
 * in a pass one block of every host goes all the way. So two slots of a FIFO are enough.
 */
#include "algorithms/two_level.h"

/* The owner on this rank's host of the rail that serves this rank. */
static int own_owner(const struct gyre_two_level *level)
{
    int first = 0, end = 0;
    for (int rail = 0; end <= level->position; rail++)
        gyre_two_level_served(level, level->host, rail, &first, &end);
    return gyre_hosts_rank(level->hosts, level->host, first);
}

/* ---- reduce-scatter ------------------------------------------------------------------------- */

/* The block that a rail carries for a host in a pass; -1 if the rail serves fewer ranks there. */
static int block_of_pass(const struct gyre_two_level *level, int host, int rail, int pass)
{
    int first, end;
    gyre_two_level_served(level, host, rail, &first, &end);
    return first + pass < end ? gyre_hosts_rank(level->hosts, host, first + pass) : -1;
}

/* The number of passes: the most ranks that a rail serves on a host. */
static int count_passes(const struct gyre_two_level *level)
{
    int most = 0;
    for (int host = 0; host < level->hosts->n_hosts; host++)
        for (int rail = 0; rail < level->n_rails; rail++) {
            int first, end;
            gyre_two_level_served(level, host, rail, &first, &end);
            most = end - first > most ? end - first : most;
        }
    return most;
}

/* Send this rank's contributions to the blocks of one host in a pass to the owners of other
 * rails. */
static void send_blocks_of(const struct gyre_two_level *level, int host, int pass)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = 1; i <= n_others; i++) {
        const int rail = (level->rail + i) % level->n_rails;
        const int block = block_of_pass(level, host, rail, pass);
        const struct gyre_ref in = gyre_in(block);
        const struct gyre_ref out =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_FIRST);
        if (block >= 0)
            gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
    }
}

/* Sum this host's contributions to a block of `host` and the sum that came along the rail, and pass
 * the result on. */
static void pass_block(const struct gyre_two_level *level, int host, int block, bool is_first)
{
    const bool is_last = host == level->host;
    const struct gyre_ref out = !is_last ? gyre_two_level_at_host(level, level->host + 1)
                                : block == level->rank ? gyre_out(0)
                                                       : gyre_peer(block, GYRE_LANE_SECOND);
    int n_ins = gyre_two_level_collect(level, block, level->ins);
    if (!is_first)
        level->ins[n_ins++] = gyre_two_level_at_host(level, level->host - 1);
    gyre_two_level_move(level, block, level->ins, n_ins, &out, 1, is_last ? GYRE_STEP_FINAL : 0);
}

void gyre_two_level_reduce_scatter(const struct gyre_two_level *level)
{
    const int n = level->hosts->n_hosts;
    const int n_passes = count_passes(level);
    for (int pass = 0; pass < n_passes; pass++)
        for (int round = 0; round < n; round++) {
            const int host = (level->host - 1 - round + 2 * n) % n;
            const int block = level->rail < 0 ? -1 : block_of_pass(level, host, level->rail, pass);
            send_blocks_of(level, host, pass);
            if (block >= 0)
                pass_block(level, host, block, round == 0);
        }
    gyre_builder_worker(level->builder);
    if (level->rail < 0) {
        const struct gyre_ref in = gyre_peer(own_owner(level), GYRE_LANE_SECOND);
        const struct gyre_ref out = gyre_out(0);
        gyre_builder_step(level->builder, level->rank, &in, 1, &out, 1, 0);
    }
}

/* ---- all-gather ----------------------------------------------------------------------------- */

/* Keep a block of `host` that came along the rail, pass it on, and hand it out inside this host. */
static void spread_block(const struct gyre_two_level *level, int host, int block)
{
    const int n = level->hosts->n_hosts;
    const bool is_own = host == level->host;
    const struct gyre_ref in = block == level->rank ? gyre_in(0)
                               : is_own             ? gyre_peer(block, GYRE_LANE_FIRST)
                                        : gyre_two_level_at_host(level, level->host - 1);
    int n_outs = 0;
    level->outs[n_outs++] = gyre_out(block);
    if (n > 1 && host != (level->host + 1) % n)
        level->outs[n_outs++] = gyre_two_level_at_host(level, level->host + 1);
    n_outs += gyre_two_level_hand_out(level, is_own ? block : -1, &level->outs[n_outs]);
    gyre_two_level_move(level, block, &in, 1, level->outs, n_outs, 0);
}

/* Receive the blocks that the owners of the other rails hand out. */
static void keep_blocks_of(const struct gyre_two_level *level, int host, int pass)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = n_others; i > 0; i--) {
        const int rail = (level->rail + i) % level->n_rails;
        const int block = block_of_pass(level, host, rail, pass);
        const struct gyre_ref in =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_SECOND);
        const struct gyre_ref out = gyre_out(block);
        if (block >= 0 && block != level->rank)
            gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
    }
}

void gyre_two_level_all_gather(const struct gyre_two_level *level)
{
    const int n = level->hosts->n_hosts;
    const int n_passes = count_passes(level);
    if (level->rail < 0) {
        const struct gyre_ref in = gyre_in(0);
        const struct gyre_ref outs[] = {gyre_out(level->rank),
                                        gyre_peer(own_owner(level), GYRE_LANE_FIRST)};
        gyre_builder_step(level->builder, level->rank, &in, 1, outs, 2, 0);
    }
    for (int pass = 0; pass < n_passes && level->rail >= 0; pass++)
        for (int round = 0; round < n; round++) {
            const int host = (level->host - round + n) % n;
            const int block = block_of_pass(level, host, level->rail, pass);
            if (block >= 0)
                spread_block(level, host, block);
        }
    gyre_builder_worker(level->builder);
    for (int pass = 0; pass < n_passes; pass++)
        for (int round = 0; round < n; round++)
            keep_blocks_of(level, (level->host - round + n) % n, pass);
}
