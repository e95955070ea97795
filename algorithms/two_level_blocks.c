/* SPDX-License-Identifier: Apache-2.0
 *
 * Two levels with a block for each rank: reduce-scatter and all-gather. Every rail serves some
 * ranks of each host and carries their blocks. It serves more than one rank of a host that has more
 * ranks than rails. The program then runs once for each of these ranks, one *pass* after the other:
 * in a pass one block of every host goes all the way. In another variant, other rails serve more
 * than one rank, so that over all channels every rail carries as much. A rank that owns no rail
 * exchanges its block inside its host itself, because owners have more to do than it has.
 *
 * Along a rail every block has a way of its own. A host's distance from a block is the number of
 * hosts from the block's host to it, counted round. Sums go from a distance to a shorter one, and
 * gathered blocks go back the same way:
 *
 *   ring   from each distance to the next shorter one
 *   tree   from distance d to d with its lowest bit cleared: 7 -> 6 -> 4 -> 0, 5 -> 4 -> 0
 *
 * All hosts handle the distances in the same order. Reduce-scatter of a tree over 8 hosts, where
 * each host h sums and passes on the block of the host that is d hosts before it:
 *
 *   d of the block      7 5 3 1 6 2 4 0      in this order
 *   goes to host h -    1 1 1 1 2 2 4 stays
 *
 * Both ways move as many bytes. A block crosses up to n - 1 links of a ring of n hosts, one after
 * the other, but only log2(n) links of a tree.
 *
 * In reduce-scatter a rank has a worker that moves sums along the rail, and two that send
 * contributions to the owners of other rails. In all-gather one worker moves blocks along the rail,
 * and two receive what other owners hand out. One worker alone would need most of the time for the
 * steps inside the host. With many hosts there are more workers of both kinds. Each worker of a
 * rail then handles the blocks of a range of distances.
 */
#include "algorithms/two_level.h"

/* With many hosts each block is short, and a step takes about as long whatever its bytes. So from
 * MANY_HOSTS on, MANY_RAIL_WORKERS at most share the blocks of a rail. They need two lanes each, so
 * a call has fewer channels than with few hosts, and each of its steps moves more bytes. The
 * numbers of workers fit a GPU: a launch has a thread block for each worker of each channel, and
 * no more thread blocks than multiprocessors (132 of an H100 or H200). */
#define MANY_HOSTS          256
#define MANY_RAIL_WORKERS   4
#define FEW_INSIDE_WORKERS  2
#define MANY_INSIDE_WORKERS 10

/* How much earlier than its distance says a block is handled. Odd distances are the leaves of the
 * trees, and distances that are 2 more than a multiple of 4 stand above some of them. Their blocks
 * are handled early, so that a sum has arrived when it is needed: between the step that sends it
 * and the step that needs it are at least three other steps. With these numbers at most three slots
 * of a FIFO are in use, and no two distances have the same turn. */
#define LEAVES_EARLY 10
#define MIDDLE_EARLY 4
#define MIN_DEPTH    4

/* ---- the way of a block along the rail ------------------------------------------------------ */

/* The links over which the blocks of one pass go along the rail. */
struct way {
    int n_hosts;
    bool is_chain;        /* a ring; else trees */
    uint16_t *order;      /* the distances, in the order in which sums are passed on */
    int n_workers;        /* that move blocks along the rail */
    int n_inside_workers; /* that exchange blocks with the owners of other rails */
    int n_of_worker; /* each worker has so many distances, one after the other: a power of two if
                      * there are several workers; the last one may have fewer */
};

/* When the block at a distance has its turn: the lowest turn comes first. */
static int turn_of(int distance)
{
    return -distance - (distance % 2 != 0 ? LEAVES_EARLY : distance % 4 != 0 ? MIDDLE_EARLY : 0);
}

/* The worker of a rail that handles the block at a distance. The blocks below a block in its tree
 * have the same worker, except those at a distance that is a multiple of n_of_worker. */
static int worker_of(const struct way *way, int distance)
{
    return distance / way->n_of_worker;
}

/* The first place in the order that is behind those of a worker. */
static int end_of_worker(const struct way *way, int worker)
{
    const int end = (worker + 1) * way->n_of_worker;
    return end < way->n_hosts ? end : way->n_hosts;
}

/* Put the distances of each worker into the order of their turns. At each turn one distance at most
 * fits. */
static void order_distances(struct way *way)
{
    int n_of[MANY_RAIL_WORKERS] = {0};
    for (int turn = -way->n_hosts - LEAVES_EARLY; turn <= 0; turn++) {
        const int early[] = {0, MIDDLE_EARLY, LEAVES_EARLY};
        for (int i = 0; i < 3; i++) {
            const int distance = -turn - early[i];
            if (distance < 0 || distance >= way->n_hosts || turn_of(distance) != turn)
                continue;
            const int worker = worker_of(way, distance);
            way->order[worker * way->n_of_worker + n_of[worker]++] = (uint16_t)distance;
        }
    }
}

static bool open_way(const struct gyre_two_level *level, bool is_chain, struct way *way)
{
    const int n = level->hosts->n_hosts;
    *way = (struct way){.n_hosts = n,
                        .is_chain = is_chain,
                        .order =
                            gyre_builder_allocate(level->builder, (size_t)n * sizeof(*way->order)),
                        .n_workers = 1,
                        .n_inside_workers = FEW_INSIDE_WORKERS,
                        .n_of_worker = n};
    if (way->order == NULL)
        return false;
    if (!is_chain && n >= MANY_HOSTS) {
        way->n_of_worker = 1;
        while (way->n_of_worker * MANY_RAIL_WORKERS < n)
            way->n_of_worker *= 2;
        way->n_workers = worker_of(way, n - 1) + 1;
        way->n_inside_workers = MANY_INSIDE_WORKERS;
        gyre_builder_lanes(level->builder, 2 * way->n_workers);
    }
    for (int i = 0; is_chain && i < n; i++)
        way->order[i] = (uint16_t)(n - 1 - i);
    if (!is_chain)
        order_distances(way);
    gyre_builder_min_depth(level->builder, is_chain ? 2 : MIN_DEPTH);
    return true;
}

/* How many hosts a sum at this distance goes in its next hop. @distance: at least 1. */
static int hop_of(const struct way *way, int distance)
{
    return way->is_chain ? 1 : distance & -distance;
}

/* Each worker has FIFOs of its own. Its sums from odd distances use two, because they are needed in
 * another order than they are sent: those that go to distances 2, 6, 10, ... are needed early. */
static int lane_of(const struct way *way, int distance)
{
    const int lane = !way->is_chain && distance % 4 == 1 ? GYRE_LANE_SECOND : GYRE_LANE_FIRST;
    return 2 * worker_of(way, distance) + lane;
}

/* The end of the link over which a sum at this distance leaves, or a gathered block arrives.
 * @other: the host at the other end. */
static struct gyre_ref link_of(const struct gyre_two_level *level, const struct way *way, int other,
                               int distance)
{
    struct gyre_ref link = gyre_two_level_at_host(level, other);
    link.lane = (uint8_t)lane_of(way, distance);
    return link;
}

/* List the links to the hosts from which sums come to this distance, or to which gathered blocks
 * go. @links_out: one for each power of two below the number of hosts. Returns how many. */
static int children_of(const struct gyre_two_level *level, const struct way *way, int distance,
                       struct gyre_ref *links_out)
{
    int n = 0;
    for (int hop = 1; distance + hop < way->n_hosts; hop *= 2) {
        if (hop_of(way, distance + hop) != hop || (distance & (hop - 1)) != 0)
            break;
        links_out[n++] = link_of(level, way, level->host + hop, distance + hop);
        if (way->is_chain)
            break;
    }
    return n;
}

/* The host whose blocks are at this distance from this host. */
static int host_at(const struct gyre_two_level *level, int distance)
{
    const int n = level->hosts->n_hosts;
    return (level->host - distance + n) % n;
}

/* ---- blocks and passes ---------------------------------------------------------------------- */

/* The number of passes: the most ranks that a rail serves on a host. */
static int count_passes(const struct gyre_two_level *level)
{
    int most = 0;
    for (int host = 0; host < level->hosts->n_hosts; host++) {
        const int size = gyre_hosts_size(level->hosts, host);
        most = size > most ? size : most;
    }
    return (most + level->n_rails - 1) / level->n_rails;
}

/* Does the block belong to a rank of this host that owns no rail? Its contributions inside this
 * host then go straight to that rank, and not to the owner of the rail, which handles more blocks
 * than that rank already. In all-gather it likewise hands out its block itself. */
static bool is_beside_rails(int distance, int pass)
{
    return distance == 0 && pass > 0;
}

/* What an inside worker exchanges: the blocks of one worker of one other rail. */
struct part {
    int after; /* the rail is so many after this rank's own rail; at least 1 */
    int rail_worker;
};

/* The number of rails that this rank does not own. */
static int count_others(const struct gyre_two_level *level)
{
    return level->n_rails - (level->rail < 0 ? 0 : 1);
}

/* Find part number `index` of an inside worker. Returns false if it has fewer. */
static bool part_of(const struct gyre_two_level *level, const struct way *way, int inside_worker,
                    int index, struct part *part_out)
{
    const int n_others = count_others(level);
    const int number = inside_worker + index * way->n_inside_workers;
    if (number >= n_others * way->n_workers)
        return false;
    part_out->after = 1 + number % n_others;
    part_out->rail_worker = number / n_others;
    return true;
}

static int rail_after(const struct gyre_two_level *level, int after)
{
    return (level->rail + after) % level->n_rails;
}

/* The distance at a place in the order of a worker; -1 = the worker has fewer distances. */
static int distance_at(const struct way *way, int worker, int place)
{
    const int at = worker * way->n_of_worker + place;
    return at < end_of_worker(way, worker) ? way->order[at] : -1;
}

/* ---- reduce-scatter ------------------------------------------------------------------------- */

/* Send this rank's contribution to a block of another rail to the rank of its host that adds it. */
static void send_block(const struct gyre_two_level *level, const struct way *way, int distance,
                       int rail, int pass)
{
    const int block = gyre_two_level_served(level, host_at(level, distance), rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    const struct gyre_ref in = gyre_in(block);
    const struct gyre_ref out =
        is_beside
            ? gyre_peer(block, GYRE_LANE_FIRST)
            : gyre_peer(gyre_two_level_owner(level, level->host, rail), worker_of(way, distance));
    if (block >= 0 && !(is_beside && block == level->rank))
        gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
}

static void send_blocks(const struct gyre_two_level *level, const struct way *way, int worker)
{
    const int n_passes = count_passes(level);
    struct part part;
    for (int pass = 0; pass < n_passes; pass++)
        for (int place = 0; place < way->n_of_worker; place++)
            for (int i = 0; part_of(level, way, worker, i, &part); i++) {
                const int distance = distance_at(way, part.rail_worker, place);
                if (distance >= 0)
                    send_block(level, way, distance, rail_after(level, part.after), pass);
            }
}

/* Add this host's contributions to a block and the sums that came along the rail, and pass the
 * result on. */
static void pass_block(const struct gyre_two_level *level, const struct way *way, int distance,
                       int pass)
{
    const int block = gyre_two_level_served(level, host_at(level, distance), level->rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    if (block < 0)
        return;
    struct gyre_ref out = is_beside ? gyre_peer(block, GYRE_LANE_FIRST) : gyre_out(0);
    if (distance > 0)
        out = link_of(level, way, level->host - hop_of(way, distance), distance);
    int n_ins = 1;
    level->ins[0] = gyre_in(block);
    if (!is_beside)
        n_ins = gyre_two_level_collect(level, block, worker_of(way, distance), level->ins);
    n_ins += children_of(level, way, distance, &level->ins[n_ins]);
    gyre_two_level_move(level, block, level->ins, n_ins, &out, 1,
                        distance == 0 && !is_beside ? GYRE_STEP_FINAL : 0);
}

void gyre_two_level_reduce_scatter(const struct gyre_two_level *level, bool is_chain)
{
    const int n_passes = count_passes(level);
    struct way way;
    if (!open_way(level, is_chain, &way))
        return;
    for (int worker = 0; worker < way.n_workers && level->rail >= 0; worker++) {
        gyre_builder_worker(level->builder);
        for (int pass = 0; pass < n_passes; pass++)
            for (int place = 0; distance_at(&way, worker, place) >= 0; place++)
                pass_block(level, &way, distance_at(&way, worker, place), pass);
    }
    for (int worker = 0; worker < way.n_inside_workers; worker++) {
        gyre_builder_worker(level->builder);
        send_blocks(level, &way, worker);
    }
    if (level->rail < 0) {
        gyre_builder_worker(level->builder);
        const struct gyre_ref out = gyre_out(0);
        const int n_ins = gyre_two_level_collect(level, level->rank, GYRE_LANE_FIRST, level->ins);
        gyre_two_level_move(level, level->rank, level->ins, n_ins, &out, 1, GYRE_STEP_FINAL);
    }
}

/* ---- all-gather ----------------------------------------------------------------------------- */

/* Do blocks of the rank's own host have a worker of their own? It need not wait for blocks from
 * other hosts, so the next tile is on its way early. That matters if there are few hosts. With more
 * hosts the two workers would send over the same FIFO. */
static bool is_own_apart(const struct way *way)
{
    return way->n_hosts <= (way->is_chain ? 2 : 4);
}

/* The FIFO of a pair inside a host that carries blocks of a host at this distance. */
static int lane_inside(const struct way *way, int distance)
{
    if (way->n_workers > 1)
        return worker_of(way, distance);
    return distance == 0 && is_own_apart(way) ? GYRE_LANE_FIRST : GYRE_LANE_SECOND;
}

/* Keep a block that came along the rail, pass it on, and hand it out inside this host. */
static void spread_block(const struct gyre_two_level *level, const struct way *way, int distance,
                         int pass)
{
    const int block = gyre_two_level_served(level, host_at(level, distance), level->rail, pass);
    const bool is_beside = is_beside_rails(distance, pass);
    if (block < 0)
        return;
    struct gyre_ref in = is_beside ? gyre_peer(block, GYRE_LANE_FIRST) : gyre_in(0);
    if (distance > 0)
        in = link_of(level, way, level->host - hop_of(way, distance), distance);
    int n_outs = 0;
    level->outs[n_outs++] = gyre_out(block);
    n_outs += children_of(level, way, distance, &level->outs[n_outs]);
    if (!is_beside)
        n_outs +=
            gyre_two_level_hand_out(level, -1, lane_inside(way, distance), &level->outs[n_outs]);
    gyre_two_level_move(level, block, &in, 1, level->outs, n_outs, 0);
}

/* Receive a block of another rail from the rank of this host that hands it out. */
static void keep_block(const struct gyre_two_level *level, const struct way *way, int distance,
                       int rail, int pass)
{
    const int block = gyre_two_level_served(level, host_at(level, distance), rail, pass);
    const struct gyre_ref in =
        is_beside_rails(distance, pass)
            ? gyre_peer(block, GYRE_LANE_FIRST)
            : gyre_peer(gyre_two_level_owner(level, level->host, rail), lane_inside(way, distance));
    const struct gyre_ref out = gyre_out(block);
    if (block >= 0 && block != level->rank)
        gyre_builder_step(level->builder, block, &in, 1, &out, 1, 0);
}

/* Owners send to the ranks behind them first, so a rank receives from the rail before its own
 * first. */
static void keep_blocks(const struct gyre_two_level *level, const struct way *way, int worker)
{
    const int n_passes = count_passes(level);
    const int n_others = count_others(level);
    struct part part;
    for (int pass = 0; pass < n_passes; pass++)
        for (int place = way->n_of_worker - 1; place >= 0; place--)
            for (int i = 0; part_of(level, way, worker, i, &part); i++) {
                const int distance = distance_at(way, part.rail_worker, place);
                if (distance >= 0)
                    keep_block(level, way, distance, rail_after(level, n_others + 1 - part.after),
                               pass);
            }
}

/* Hand out the block of this rank, which owns no rail, to all ranks of its host. */
static void hand_out_own_block(const struct gyre_two_level *level)
{
    const struct gyre_ref in = gyre_in(0);
    level->outs[0] = gyre_out(level->rank);
    const int n_outs = 1 + gyre_two_level_hand_out(level, -1, GYRE_LANE_FIRST, &level->outs[1]);
    gyre_two_level_move(level, level->rank, &in, 1, level->outs, n_outs, 0);
}

/* Spread the blocks of one worker of this rank's rail. */
static void spread_blocks(const struct gyre_two_level *level, const struct way *way, int worker)
{
    const int n_passes = count_passes(level);
    const int first = worker * way->n_of_worker;
    /* Distance 0 is the last one of the order. */
    const int last = end_of_worker(way, worker) - 1 - (is_own_apart(way) ? 1 : 0);
    gyre_builder_worker(level->builder);
    for (int pass = 0; pass < n_passes; pass++)
        for (int i = last; i >= first; i--)
            spread_block(level, way, way->order[i], pass);
}

void gyre_two_level_all_gather(const struct gyre_two_level *level, bool is_chain)
{
    const int n_passes = count_passes(level);
    struct way way;
    if (!open_way(level, is_chain, &way))
        return;
    if (level->rail < 0)
        hand_out_own_block(level);
    for (int worker = 0; worker < way.n_workers && level->rail >= 0; worker++)
        spread_blocks(level, &way, worker);
    gyre_builder_worker(level->builder);
    for (int pass = 0; pass < n_passes && level->rail >= 0 && is_own_apart(&way); pass++)
        spread_block(level, &way, 0, pass);
    for (int worker = 0; worker < way.n_inside_workers; worker++) {
        gyre_builder_worker(level->builder);
        keep_blocks(level, &way, worker);
    }
}
