/* SPDX-License-Identifier: Apache-2.0
 *
 * The position of a rank in two levels, its neighbours on its rail, and the steps inside a host.
 * All two-level algorithms use them.
 */
#include "algorithms/two_level.h"

#include "algorithms/binary_tree.h"

#define MAX_OUT_OF_HOST 16 /* inputs or outputs of a step besides those of the own host */

int gyre_two_level_owner(const struct gyre_two_level *level, int host, int rail)
{
    return gyre_hosts_rank(level->hosts, host,
                           gyre_hosts_at_rail(level->hosts, host, rail, level->n_rails));
}

struct gyre_ref gyre_two_level_at_host(const struct gyre_two_level *level, int host)
{
    const int n = level->hosts->n_hosts;
    return gyre_peer(gyre_two_level_owner(level, (host + n) % n, level->rail), GYRE_LANE_FIRST);
}

/* The rank on a host that is number `index` of those that own no rail; -1 = there are fewer. */
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

int gyre_two_level_served(const struct gyre_two_level *level, int host, int rail, int pass)
{
    const int n = level->n_rails;
    return pass == 0 ? gyre_two_level_owner(level, host, rail)
                     : rank_without_rail(level, host,
                                         (rail - level->variant % n + n) % n + (pass - 1) * n);
}

bool gyre_two_level_open(const struct gyre_shape *shape, int rank, struct gyre_builder *builder,
                         struct gyre_two_level *level_out)
{
    struct gyre_two_level level = {.hosts = gyre_hosts_open(shape, false, builder),
                                   .builder = builder,
                                   .n_rails = gyre_hosts_rails(shape),
                                   .variant = shape->variant,
                                   .rank = rank,
                                   .rail = -1};
    if (level.hosts == NULL)
        return false;
    gyre_hosts_find(level.hosts, rank, &level.host, &level.position);
    for (int rail = 0; rail < level.n_rails; rail++)
        if (gyre_two_level_owner(&level, level.host, rail) == rank)
            level.rail = rail;
    const size_t n_refs = (size_t)gyre_hosts_size(level.hosts, level.host) + MAX_OUT_OF_HOST;
    level.ins = gyre_builder_allocate(builder, n_refs * sizeof(*level.ins));
    level.outs = gyre_builder_allocate(builder, n_refs * sizeof(*level.outs));
    gyre_builder_lanes(builder, 2);
    gyre_builder_min_depth(builder, 2);
    *level_out = level;
    return level.ins != NULL && level.outs != NULL;
}

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

static bool is_inside_host(const struct gyre_two_level *level, struct gyre_ref ref)
{
    const int size = gyre_hosts_size(level->hosts, level->host);
    for (int i = 0; i < size && ref.kind == GYRE_OPERAND_CONNECTION; i++)
        if (gyre_hosts_rank(level->hosts, level->host, i) == ref.index)
            return true;
    return false;
}

/* How many outputs the first step has if there are too many for one step. It has no outputs to this
 * host that another step can have: so data leave for other hosts as early as possible, and the
 * number of steps is still the least. */
static int count_first_outs(const struct gyre_two_level *level, const struct gyre_ref *outs,
                            int n_outs)
{
    int n_first = (n_outs - GYRE_STEP_MAX_OUTS) % GYRE_STEP_MAX_SENDS;
    n_first += n_first == 0 ? GYRE_STEP_MAX_OUTS : 1;
    while (n_first < GYRE_STEP_MAX_OUTS && !is_inside_host(level, outs[n_first]))
        n_first++;
    return n_first;
}

void gyre_two_level_move(const struct gyre_two_level *level, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags)
{
    struct gyre_builder *builder = level->builder;
    const int n_first =
        n_outs <= GYRE_STEP_MAX_OUTS ? n_outs : count_first_outs(level, outs, n_outs);
    int n_recvs = 0;
    for (int i = 0; i < n_ins; i++)
        n_recvs += ins[i].kind == GYRE_OPERAND_CONNECTION;
    if (n_recvs <= GYRE_STEP_MAX_RECVS)
        gyre_builder_step(builder, chunk, ins, n_ins, outs, n_first, flags);
    else
        gyre_builder_reduce(builder, chunk, ins, n_ins, outs, n_first, flags);
    if (n_outs > n_first)
        gyre_builder_scatter(builder, chunk, outs[0], &outs[n_first], n_outs - n_first);
}

void gyre_two_level_send_to_owners(const struct gyre_two_level *level, int piece, int n_pieces)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = 1; i <= n_others; i++) {
        const int rail = (level->rail + i) % level->n_rails;
        const int chunk = rail * n_pieces + piece;
        const struct gyre_ref in = gyre_in(chunk);
        const struct gyre_ref out =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_FIRST);
        gyre_builder_step(level->builder, chunk, &in, 1, &out, 1, 0);
    }
}

void gyre_two_level_keep_from_owners(const struct gyre_two_level *level, int piece, int n_pieces)
{
    const int n_others = level->n_rails - (level->rail < 0 ? 0 : 1);
    for (int i = n_others; i > 0; i--) {
        const int rail = (level->rail + i) % level->n_rails;
        const int chunk = rail * n_pieces + piece;
        const struct gyre_ref in =
            gyre_peer(gyre_two_level_owner(level, level->host, rail), GYRE_LANE_SECOND);
        const struct gyre_ref out = gyre_out(chunk);
        gyre_builder_step(level->builder, chunk, &in, 1, &out, 1, i > 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

struct gyre_two_level_place gyre_two_level_place_on_rail(const struct gyre_two_level *level,
                                                         bool is_chain, int tree, int root_host)
{
    const int n_hosts = level->hosts->n_hosts;
    const int above = is_chain || root_host < 0 ? 0 : 1;
    const int base =
        root_host < 0 ? 0 : root_host; /* the host that is item 0, or above all items */
    const int item = (level->host - base + n_hosts) % n_hosts - above;
    struct gyre_two_level_place place = {.is_top = false};
    int parent, children[2];
    if (item < 0) {
        parent = -1;
        children[0] = n_hosts > 1 ? gyre_tree_top(tree, n_hosts - 1) : 0;
        place.n_children = n_hosts > 1 ? 1 : 0;
    } else if (is_chain) {
        parent = item - 1;
        children[0] = item + 1;
        place.n_children = item + 1 < n_hosts ? 1 : 0;
    } else {
        parent = gyre_tree_parent(tree, n_hosts - above, item);
        place.n_children = gyre_tree_children(tree, n_hosts - above, item, children);
    }
    place.is_top = parent < 0 && (above == 0 || item < 0);
    if (!place.is_top)
        place.parent = gyre_two_level_at_host(level, base + above + parent);
    for (int i = 0; i < place.n_children; i++)
        place.children[i] = gyre_two_level_at_host(level, base + above + children[i]);
    return place;
}
