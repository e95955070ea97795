/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/hosts.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

struct seen {
    bool places, scratch, ranges;
    bool sends_input_only; /* no rank passes on what it received */
    bool cuts;             /* every rank sends each its own part of the input */
    bool root_has_all;     /* it sends, or receives, the whole vector */
    bool pairs_inside;     /* all ranks of a host are connected */
    bool pairs_across;     /* all ranks of different hosts are */
};

static unsigned host_of(const struct gyre_shape *shape, unsigned rank)
{
    return shape->grouping != NULL ? shape->grouping->host_of[rank] : 0;
}

static void look_at(const struct gyre_program *p, const struct gyre_shape *shape, struct seen *seen)
{
    uint16_t part_of[64] = {0}; /* of the input, by peer, plus 1 */
    bool is_peer[64] = {false}, has_part[64] = {false};
    unsigned n_parts = 0, n_own = 0;
    seen->places = seen->places || p->is_placed != 0;
    seen->scratch = seen->scratch || p->n_scratch > 0;
    seen->ranges = seen->ranges || p->max_range > 1;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct gyre_step *step = &p->steps[i];
        const bool is_input = step->n_ins == 1 && step->ins[0].kind == GYRE_OPERAND_IN;
        bool receives = false;
        for (unsigned k = 0; k < step->n_ins; k++)
            receives = receives || step->ins[k].kind == GYRE_OPERAND_CONNECTION;
        for (unsigned k = 0; k < step->n_outs; k++) {
            if (step->outs[k].kind != GYRE_OPERAND_CONNECTION)
                continue;
            const unsigned peer = p->connections[step->outs[k].index].peer;
            if (is_input)
                part_of[peer] = (uint16_t)(step->chunk + 1);
            else
                seen->sends_input_only = false;
            receives = true;
        }
        if (receives && !has_part[step->chunk]) {
            has_part[step->chunk] = true;
            n_parts++;
        }
    }
    for (uint32_t i = 0; i < p->n_connections; i++)
        is_peer[p->connections[i].peer] = true;
    for (unsigned peer = 0; peer < shape->n_ranks; peer++) {
        bool is_new = part_of[peer] > 0;
        for (unsigned other = 0; other < peer; other++)
            is_new = is_new && part_of[other] != part_of[peer];
        n_own += is_new;
        if (peer != p->rank && !is_peer[peer])
            *(host_of(shape, peer) == host_of(shape, p->rank) ? &seen->pairs_inside
                                                              : &seen->pairs_across) = false;
    }
    seen->cuts = seen->cuts && n_own == shape->n_ranks - 1U;
    if (p->rank == shape->root)
        seen->root_has_all = n_parts == p->n_chunks;
}

static struct seen look(const struct gyre_algorithm *algorithm, struct gyre_shape shape)
{
    struct seen seen = {
        .sends_input_only = true, .cuts = true, .pairs_inside = true, .pairs_across = true};
    const int n_variants = gyre_algorithm_variants(algorithm, &shape);
    for (int v = 0; v < n_variants; v++) {
        shape.variant = (uint16_t)v;
        struct gyre_program **programs = emit_all(algorithm, &shape);
        CHECK(programs != NULL);
        for (int rank = 0; programs != NULL && rank < shape.n_ranks; rank++)
            look_at(programs[rank], &shape, &seen);
        if (programs != NULL)
            free_programs(programs, shape.n_ranks);
    }
    return seen;
}

static void check(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[shape->coll];
    const bool is_vector = !traits->in_blocks && !traits->out_blocks;
    const bool has_hosts = shape->grouping != NULL;
    struct gyre_ability can;
    char where[128];
    if (shape->coll == GYRE_COLL_SEND_RECV ||
        gyre_algorithm_obstacle(algorithm, shape, &can) != NULL || (can.two_level && !has_hosts))
        return;
    const struct seen seen = look(algorithm, *shape);
    snprintf(where, sizeof(where), "%s %s of %u ranks on %u hosts%s, root %u", algorithm->name,
             traits->name, shape->n_ranks, has_hosts ? shape->grouping->n_hosts : 1U,
             shape->is_placed ? ", placed" : "", shape->root);
    CHECK_MSG(seen.places == (shape->is_placed && can.places), "%s: places", where);
    CHECK_MSG(can.ranges == seen.ranges, "%s: ranges", where);
    CHECK_MSG(can.keeps_sums || can.ranges || shape->n_ranks > 8 || !seen.scratch, "%s: sums",
              where);
    if (shape->is_placed)
        return;
    CHECK_MSG((can.flow == GYRE_FLOW_ONE_HOP) == seen.sends_input_only, "%s: one hop", where);
    if (shape->coll == GYRE_COLL_ALL_REDUCE && !can.two_level)
        CHECK_MSG((can.flow == GYRE_FLOW_CUT) == seen.cuts, "%s: cut", where);
    if (can.flow == GYRE_FLOW_CHAIN && traits->has_root)
        CHECK_MSG(is_vector && seen.root_has_all, "%s: chain", where);
    if (has_hosts && !traits->has_root)
        CHECK_MSG(can.two_level == (seen.pairs_inside && !seen.pairs_across), "%s: two levels",
                  where);
}

TEST_CASE("all programs do what their algorithm says")
{
    static struct gyre_grouping two_hosts = {.n_hosts = 2};
    for (int rank = 4; rank < 8; rank++)
        two_hosts.host_of[rank] = 1;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (uint16_t n = 5; n <= 19; n++)
                for (int is_placed = 0; is_placed < 2; is_placed++) {
                    struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                               .n_ranks = n,
                                               .root = gyre_collectives[coll].has_root ? n / 2 : 0,
                                               .is_placed = is_placed == 1};
                    check(gyre_algorithms[a], &shape);
                    shape.grouping = &two_hosts;
                    if (n == 8 && is_placed == 0)
                        check(gyre_algorithms[a], &shape);
                }
}

/* can_do knows the mask's collectives on any number of ranks. */
TEST_CASE("compiled-in algorithms can do all shapes")
{
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (unsigned n = 1; n <= 33; n++) {
                const struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                                 .n_ranks = (uint16_t)n};
                CHECK((gyre_algorithm_obstacle(gyre_algorithms[a], &shape, NULL) == NULL) ==
                      gyre_algorithm_has(gyre_algorithms[a], shape.coll));
            }
}

/* So all NICs of a host work, and a rank whose NIC sends does not receive from another host, too.
 */
TEST_CASE("a ring never leaves a host by the rail that it came by")
{
    enum { N_EACH = 4, MOST_HOSTS = 8 };
    for (int n_hosts = 2; n_hosts <= MOST_HOSTS; n_hosts++) {
        static struct gyre_grouping grouping; /* too large for a stack */
        grouping.n_hosts = (uint16_t)n_hosts;
        for (int rank = 0; rank < n_hosts * N_EACH; rank++)
            grouping.host_of[rank] = (uint16_t)(rank / N_EACH);
        struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE,
                                   .n_ranks = (uint16_t)(n_hosts * N_EACH),
                                   .grouping = &grouping};
        for (; shape.variant < N_EACH; shape.variant++) {
            int rails[MOST_HOSTS] = {0}, n = 0;
            char *text = NULL;
            CHECK_OK(gyre_ring_to_text(&shape, &text));
            for (const char *at = text; n < MOST_HOSTS && (at = strstr(at, "rail ")) != NULL; at++)
                rails[n++] = atoi(at + 5);
            CHECK_MSG(n == n_hosts, "%d hosts: %s", n_hosts, text);
            for (int i = 0; i < n; i++)
                CHECK_MSG(rails[i] != rails[(i + 1) % n], "%d hosts: %s", n_hosts, text);
            free(text);
        }
    }
}
