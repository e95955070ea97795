/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-level reduce-scatter and all-gather. Every rail serves some ranks of each host and carries
 * their blocks, one of every host in a *pass*.
 *
 * A host's distance from a block is the number of hosts from the block's host to it. Sums go to
 * shorter distances, and gathered blocks the same way back:
 *
 *   ring   from each distance to the next shorter one
 *   tree   from distance d to d with its lowest bit cleared: 7 -> 6 -> 4 -> 0, 5 -> 4 -> 0
 *
 * Reduce-scatter by trees over 8 hosts, where host h passes on the block of the host d before it:
 *
 *   d of the block      7 5 3 1 6 2 4 0      in this order, on all hosts
 *   goes to host h -    1 1 1 1 2 2 4 stays
 *
 * Both move as many bytes; a block crosses up to n - 1 links of a ring of n hosts, or log2(n) of a
 * tree.
 *
 * One worker moves blocks along the rail, and two inside the host, where one would be too slow;
 * with many hosts there are more.
 */
#include "algorithms/hosts.h"

int gyre_two_level_collect(const struct gyre_two_level *level, int chunk, int lane,
                           struct gyre_ref *ins_out)
{
    const int size = gyre_hosts_size(level->hosts, level->host);
    for (int i = 0; i < size; i++)
        ins_out[i] = i == level->position
                         ? gyre_in(chunk)
                         : gyre_peer(gyre_hosts_rank(level->hosts, level->host, i), lane);
    return size;
}

int gyre_two_level_hand_out(const struct gyre_two_level *level, int but, int lane,
                            struct gyre_ref *outs_out)
{
    const int size = gyre_hosts_size(level->hosts, level->host);
    int n = 0;
    for (int i = 1; i < size; i++) {
        const int peer = gyre_hosts_rank(level->hosts, level->host, level->position + i);
        if (peer != but)
            outs_out[n++] = gyre_peer(peer, lane);
    }
    return n;
}

/* Where blocks are short, several workers share a rail's blocks, because a step takes about as
 * long whatever its bytes. They need two lanes each, which leaves fewer channels: a launch has a
 * thread block for each worker of each channel, and at most one a multiprocessor (132 of an H100
 * or H200). */
#define MANY_HOSTS          256
#define MANY_RAIL_WORKERS   4
#define FEW_INSIDE_WORKERS  2
#define MANY_INSIDE_WORKERS 10

/* How much earlier than its distance says a block is handled, so that sums arrive in time: odd
 * distances are leaves, and 2, 6, 10, ... stand above some of them. At least three steps lie
 * between sending and needing a sum, a FIFO uses at most three slots, and no two distances have the
 * same turn. */
#define LEAVES_EARLY 10
#define MIDDLE_EARLY 4
#define MIN_DEPTH    4

struct path {
    int n_hosts;
    bool is_chain;
    uint16_t *order; /* distances, by turn */
    int n_workers;
    int n_inside_workers;
    int n_of_worker; /* distances; a power of two if there are several workers; the last may have
                        fewer */
};

static int turn_of(int distance)
{
    return -distance - (distance % 2 != 0 ? LEAVES_EARLY : distance % 4 != 0 ? MIDDLE_EARLY : 0);
}

/* A block and those below it in its tree share a worker, except at multiples of n_of_worker. */
static int worker_of(const struct path *path, int distance)
{
    return distance / path->n_of_worker;
}

static int end_of_worker(const struct path *path, int worker)
{
    const int end = (worker + 1) * path->n_of_worker;
    return end < path->n_hosts ? end : path->n_hosts;
}

/* At most one distance fits each turn. */
static void order_distances(struct path *path)
{
    int n_of[MANY_RAIL_WORKERS] = {0};
    for (int turn = -path->n_hosts - LEAVES_EARLY; turn <= 0; turn++) {
        const int early[] = {0, MIDDLE_EARLY, LEAVES_EARLY};
        for (int i = 0; i < 3; i++) {
            const int distance = -turn - early[i];
            if (distance < 0 || distance >= path->n_hosts || turn_of(distance) != turn)
                continue;
            const int worker = worker_of(path, distance);
            path->order[worker * path->n_of_worker + n_of[worker]++] = (uint16_t)distance;
        }
    }
}

static bool open_path(const struct gyre_two_level *level, bool is_chain, struct path *path)
{
    const int n = level->hosts->n_hosts;
    *path = (struct path){
        .n_hosts = n,
        .is_chain = is_chain,
        .order = gyre_builder_allocate(level->builder, (size_t)n * sizeof(*path->order)),
        .n_workers = 1,
        .n_inside_workers = FEW_INSIDE_WORKERS,
        .n_of_worker = n};
    if (path->order == NULL)
        return false;
    if (!is_chain && n >= MANY_HOSTS) {
        path->n_of_worker = 1;
        while (path->n_of_worker * MANY_RAIL_WORKERS < n)
            path->n_of_worker *= 2;
        path->n_workers = worker_of(path, n - 1) + 1;
        path->n_inside_workers = MANY_INSIDE_WORKERS;
        gyre_builder_lanes(level->builder, 2 * path->n_workers);
    }
    for (int i = 0; is_chain && i < n; i++)
        path->order[i] = (uint16_t)(n - 1 - i);
    if (!is_chain)
        order_distances(path);
    gyre_builder_min_depth(level->builder, is_chain ? 2 : MIN_DEPTH);
    return true;
}

/* @distance: at least 1. */
static int hop_of(const struct path *path, int distance)
{
    return path->is_chain ? 1 : distance & -distance;
}

/* FIFOs are per worker; sums from odd distances use two, because those to distances 2, 6, 10, ...
 * are needed early. */
static int lane_of(const struct path *path, int distance)
{
    const int lane = !path->is_chain && distance % 4 == 1 ? GYRE_LANE_SECOND : GYRE_LANE_FIRST;
    return 2 * worker_of(path, distance) + lane;
}

/* Over which a sum at this distance leaves, or a gathered block arrives. */
static struct gyre_ref link_of(const struct gyre_two_level *level, const struct path *path,
                               int other, int distance)
{
    struct gyre_ref link = gyre_two_level_at_host(level, other);
    link.lane = (uint8_t)lane_of(path, distance);
    return link;
}

/* Over which sums come to this distance, or gathered blocks go. @links_out: one for each power of
 * two below the number of hosts. */
static int children_of(const struct gyre_two_level *level, const struct path *path, int distance,
                       struct gyre_ref *links_out)
{
    int n = 0;
    for (int hop = 1; distance + hop < path->n_hosts; hop *= 2) {
        if (hop_of(path, distance + hop) != hop || (distance & (hop - 1)) != 0)
            break;
        links_out[n++] = link_of(level, path, level->host + hop, distance + hop);
        if (path->is_chain)
            break;
    }
    return n;
}

static int host_at(const struct gyre_two_level *level, int distance)
{
    const int n = level->hosts->n_hosts;
    return (level->host - distance + n) % n;
}

static int rank_without_rail(const struct gyre_two_level *level, int host, int index)
{
    const int size = gyre_hosts_size(level->hosts, host);
    for (int position = 0, rail = 0; position < size; position++) {
        if (rail < level->n_rails &&
            gyre_hosts_at_rail(level->hosts, host, rail, level->n_rails) == position)
            rail++;
        else if (index-- == 0)
            return gyre_hosts_rank(level->hosts, host, position);
    }
    return -1;
}

/* In pass 0 the owner, then ranks without a rail in turn, in each variant from another rail on. -1
 * = none. */
static int served(const struct gyre_two_level *level, int host, int rail, int pass)
{
    const int n = level->n_rails;
    return pass == 0 ? gyre_two_level_owner(level, host, rail)
                     : rank_without_rail(level, host,
                                         (rail - level->variant % n + n) % n + (pass - 1) * n);
}

static int count_passes(const struct gyre_two_level *level)
{
    int most = 0;
    for (int host = 0; host < level->hosts->n_hosts; host++) {
        const int size = gyre_hosts_size(level->hosts, host);
        most = size > most ? size : most;
    }
    return (most + level->n_rails - 1) / level->n_rails;
}

/* A rank without a rail exchanges its block inside the host itself: owners have more to do. */
static bool is_beside_rails(int distance, int pass)
{
    return distance == 0 && pass > 0;
}

struct part {
    int after; /* rails after its own; at least 1 */
    int rail_worker;
};

/* False = the worker has fewer. */
static bool part_of(const struct gyre_two_level *level, const struct path *path, int inside_worker,
                    int index, struct part *part_out)
{
    const int n_others = gyre_two_level_others(level);
    const int number = inside_worker + index * path->n_inside_workers;
    if (number >= n_others * path->n_workers)
        return false;
    part_out->after = 1 + number % n_others;
    part_out->rail_worker = number / n_others;
    return true;
}

static int rail_after(const struct gyre_two_level *level, int after)
{
    return (level->rail + after) % level->n_rails;
}

/* -1 = the worker has fewer distances. */
static int distance_at(const struct path *path, int worker, int place)
{
    const int at = worker * path->n_of_worker + place;
    return at < end_of_worker(path, worker) ? path->order[at] : -1;
}

static void send_block(const struct gyre_two_level *level, const struct path *path, int distance,
                       int rail, int pass)
{
    const int block = served(level, host_at(level, distance), rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    const struct gyre_ref in = gyre_in(block);
    const struct gyre_ref out =
        is_beside
            ? gyre_peer(block, GYRE_LANE_FIRST)
            : gyre_peer(gyre_two_level_owner(level, level->host, rail), worker_of(path, distance));
    if (block >= 0 && !(is_beside && block == level->rank))
        gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
}

static void send_blocks(const struct gyre_two_level *level, const struct path *path, int worker)
{
    const int n_passes = count_passes(level);
    struct part part;
    for (int pass = 0; pass < n_passes; pass++)
        for (int place = 0; place < path->n_of_worker; place++)
            for (int i = 0; part_of(level, path, worker, i, &part); i++) {
                const int distance = distance_at(path, part.rail_worker, place);
                if (distance >= 0)
                    send_block(level, path, distance, rail_after(level, part.after), pass);
            }
}

static void pass_block(const struct gyre_two_level *level, const struct path *path, int distance,
                       int pass)
{
    const int block = served(level, host_at(level, distance), level->rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    if (block < 0)
        return;
    struct gyre_ref out = is_beside ? gyre_peer(block, GYRE_LANE_FIRST) : gyre_out(0);
    if (distance > 0)
        out = link_of(level, path, level->host - hop_of(path, distance), distance);
    int n_ins = 1;
    level->ins[0] = gyre_in(block);
    if (!is_beside)
        n_ins = gyre_two_level_collect(level, block, worker_of(path, distance), level->ins);
    n_ins += children_of(level, path, distance, &level->ins[n_ins]);
    gyre_two_level_move(level, block, level->ins, n_ins, &out, 1,
                        distance == 0 && !is_beside ? GYRE_STEP_FINAL : 0);
}

void gyre_two_level_reduce_scatter(const struct gyre_two_level *level, bool is_chain)
{
    const int n_passes = count_passes(level);
    struct path path;
    if (!open_path(level, is_chain, &path))
        return;
    for (int worker = 0; worker < path.n_workers && level->rail >= 0; worker++) {
        gyre_builder_worker(level->builder);
        for (int pass = 0; pass < n_passes; pass++)
            for (int place = 0; distance_at(&path, worker, place) >= 0; place++)
                pass_block(level, &path, distance_at(&path, worker, place), pass);
    }
    for (int worker = 0; worker < path.n_inside_workers; worker++) {
        gyre_builder_worker(level->builder);
        send_blocks(level, &path, worker);
    }
    if (level->rail < 0) {
        gyre_builder_worker(level->builder);
        const struct gyre_ref out = gyre_out(0);
        const int n_ins = gyre_two_level_collect(level, level->rank, GYRE_LANE_FIRST, level->ins);
        gyre_two_level_move(level, level->rank, level->ins, n_ins, &out, 1, GYRE_STEP_FINAL);
    }
}

/* Then the next tile's blocks of the own host need not wait for other hosts. With more hosts the
 * two workers would send over the same FIFO. */
static bool is_own_apart(const struct path *path)
{
    return path->n_hosts <= (path->is_chain ? 2 : 4);
}

static int lane_inside(const struct path *path, int distance)
{
    if (path->n_workers > 1)
        return worker_of(path, distance);
    return distance == 0 && is_own_apart(path) ? GYRE_LANE_FIRST : GYRE_LANE_SECOND;
}

static void spread_block(const struct gyre_two_level *level, const struct path *path, int distance,
                         int pass)
{
    const int block = served(level, host_at(level, distance), level->rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    if (block < 0)
        return;
    struct gyre_ref in = is_beside ? gyre_peer(block, GYRE_LANE_FIRST) : gyre_in(0);
    if (distance > 0)
        in = link_of(level, path, level->host - hop_of(path, distance), distance);
    int n_outs = 0;
    level->outs[n_outs++] = gyre_out(block);
    n_outs += children_of(level, path, distance, &level->outs[n_outs]);
    if (!is_beside)
        n_outs +=
            gyre_two_level_hand_out(level, -1, lane_inside(path, distance), &level->outs[n_outs]);
    gyre_two_level_move(level, block, &in, 1, level->outs, n_outs, 0);
}

static void keep_block(const struct gyre_two_level *level, const struct path *path, int distance,
                       int rail, int pass)
{
    const int block = served(level, host_at(level, distance), rail, pass);
    const struct gyre_ref in = is_beside_rails(distance, pass)
                                   ? gyre_peer(block, GYRE_LANE_FIRST)
                                   : gyre_peer(gyre_two_level_owner(level, level->host, rail),
                                               lane_inside(path, distance));
    const struct gyre_ref out = gyre_out(block);
    if (block >= 0 && block != level->rank)
        gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
}

/* Owners send to the ranks behind them first. */
static void keep_blocks(const struct gyre_two_level *level, const struct path *path, int worker)
{
    const int n_passes = count_passes(level);
    const int n_others = gyre_two_level_others(level);
    struct part part;
    for (int pass = 0; pass < n_passes; pass++)
        for (int place = path->n_of_worker - 1; place >= 0; place--)
            for (int i = 0; part_of(level, path, worker, i, &part); i++) {
                const int distance = distance_at(path, part.rail_worker, place);
                if (distance >= 0)
                    keep_block(level, path, distance, rail_after(level, n_others + 1 - part.after),
                               pass);
            }
}

static void hand_out_own_block(const struct gyre_two_level *level)
{
    const struct gyre_ref in = gyre_in(0);
    level->outs[0] = gyre_out(level->rank);
    const int n_outs = 1 + gyre_two_level_hand_out(level, -1, GYRE_LANE_FIRST, &level->outs[1]);
    gyre_two_level_move(level, level->rank, &in, 1, level->outs, n_outs, 0);
}

static void spread_blocks(const struct gyre_two_level *level, const struct path *path, int worker)
{
    const int n_passes = count_passes(level);
    const int first = worker * path->n_of_worker;
    const int last = end_of_worker(path, worker) - 1 - (is_own_apart(path) ? 1 : 0);
    gyre_builder_worker(level->builder);
    for (int pass = 0; pass < n_passes; pass++)
        for (int i = last; i >= first; i--)
            spread_block(level, path, path->order[i], pass);
}

void gyre_two_level_all_gather(const struct gyre_two_level *level, bool is_chain)
{
    const int n_passes = count_passes(level);
    struct path path;
    if (!open_path(level, is_chain, &path))
        return;
    if (level->rail < 0)
        hand_out_own_block(level);
    for (int worker = 0; worker < path.n_workers && level->rail >= 0; worker++)
        spread_blocks(level, &path, worker);
    gyre_builder_worker(level->builder);
    for (int pass = 0; pass < n_passes && level->rail >= 0 && is_own_apart(&path); pass++)
        spread_block(level, &path, 0, pass);
    for (int worker = 0; worker < path.n_inside_workers; worker++) {
        gyre_builder_worker(level->builder);
        keep_blocks(level, &path, worker);
    }
}
