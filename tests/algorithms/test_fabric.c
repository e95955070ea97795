/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/run.h"
#include "algorithms/simulate/simulate.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

#include <math.h>

#define MOST_FLOWS 16
#define MOST_LINKS 8
#define MOST_ROUTE 4

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b) + 1e-6;
}

struct scene {
    uint32_t n_links, n_flows;
    double bytes_per_ns[MOST_LINKS];
    struct gyre_fabric_route routes[MOST_FLOWS];
    uint32_t links[MOST_FLOWS][MOST_ROUTE];
    double start_ns[MOST_FLOWS], n_bytes[MOST_FLOWS], n_members[MOST_FLOWS];
    double end_ns[MOST_FLOWS]; /* as gyre_flows_* says */
};

static void add_flow(struct scene *scene, double start_ns, double n_bytes, double n_members,
                     uint32_t n_links, const uint32_t *links)
{
    const uint32_t flow = scene->n_flows++;
    scene->start_ns[flow] = start_ns;
    scene->n_bytes[flow] = n_bytes;
    scene->n_members[flow] = n_members;
    scene->routes[flow].n_links = n_links;
    for (uint32_t i = 0; i < n_links; i++)
        scene->links[flow][i] = links[i];
}

static void note_end(void *context, uint32_t flow, double at_ns)
{
    ((struct scene *)context)->end_ns[flow] = at_ns;
}

static void play(struct scene *scene)
{
    struct gyre_flows *flows = NULL;
    for (uint32_t i = 0; i < scene->n_flows; i++)
        scene->routes[i].links = scene->links[i];
    CHECK_OK(gyre_flows_open(scene->bytes_per_ns, scene->n_links, scene->routes, scene->n_flows,
                             &flows));
    if (flows == NULL)
        return;
    for (uint32_t i = 0; i < scene->n_flows; i++)
        gyre_flows_start(flows, i, scene->start_ns[i], scene->n_bytes[i], scene->n_members[i]);
    for (int i = 0; gyre_flows_next_ns(flows) < INFINITY && i < 1000; i++)
        gyre_flows_advance(flows, note_end, scene);
    CHECK(!(gyre_flows_next_ns(flows) < INFINITY));
    gyre_flows_close(flows);
}

/* By definition: again and again, the link with the least rate left for each flow decides. */
static void share_simply(const struct scene *scene, const bool *runs, double *rates_out)
{
    bool is_fixed[MOST_FLOWS] = {false};
    for (;;) {
        double least = INFINITY;
        uint32_t narrow = 0;
        for (uint32_t link = 0; link < scene->n_links; link++) {
            double left = scene->bytes_per_ns[link], n = 0;
            for (uint32_t f = 0; f < scene->n_flows; f++)
                for (uint32_t i = 0; runs[f] && i < scene->routes[f].n_links; i++) {
                    if (scene->links[f][i] != link)
                        continue;
                    left -= is_fixed[f] ? rates_out[f] * scene->n_members[f] : 0;
                    n += is_fixed[f] ? 0 : scene->n_members[f];
                }
            if (n > 0 && left / n < least) {
                least = left / n;
                narrow = link;
            }
        }
        if (!(least < INFINITY))
            return;
        for (uint32_t f = 0; f < scene->n_flows; f++)
            for (uint32_t i = 0; runs[f] && !is_fixed[f] && i < scene->routes[f].n_links; i++)
                if (scene->links[f][i] == narrow) {
                    is_fixed[f] = true;
                    rates_out[f] = least;
                }
    }
}

static void play_simply(const struct scene *scene, double *end_ns)
{
    bool runs[MOST_FLOWS] = {false}, is_over[MOST_FLOWS] = {false};
    double left[MOST_FLOWS], now_ns = 0;
    memcpy(left, scene->n_bytes, sizeof(left));
    for (;;) {
        double rates[MOST_FLOWS] = {0}, next_ns = INFINITY;
        share_simply(scene, runs, rates);
        for (uint32_t f = 0; f < scene->n_flows; f++) {
            if (runs[f])
                next_ns = fmin(next_ns, now_ns + left[f] / rates[f]);
            else if (!is_over[f])
                next_ns = fmin(next_ns, fmax(now_ns, scene->start_ns[f]));
        }
        if (!(next_ns < INFINITY))
            return;
        for (uint32_t f = 0; f < scene->n_flows; f++) {
            left[f] -= rates[f] * (next_ns - now_ns);
            if (runs[f] && left[f] <= 1e-7) {
                runs[f] = false;
                is_over[f] = true;
                end_ns[f] = next_ns;
            } else if (!runs[f] && !is_over[f] && scene->start_ns[f] <= next_ns) {
                runs[f] = true;
            }
        }
        now_ns = next_ns;
    }
}

TEST_CASE("random flows share as a simple implementation says")
{
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct scene scene = {.n_links = 1 + (uint32_t)rand() % MOST_LINKS};
        double end_ns[MOST_FLOWS];
        for (uint32_t i = 0; i < scene.n_links; i++)
            scene.bytes_per_ns[i] = 1 + rand() % 20;
        for (int i = rand() % MOST_FLOWS; i >= 0; i--) {
            uint32_t links[MOST_ROUTE];
            uint32_t n = 1 + (uint32_t)rand() % MOST_ROUTE;
            n = n > scene.n_links ? scene.n_links : n;
            const uint32_t first = (uint32_t)rand();
            for (uint32_t k = 0; k < n; k++) /* no link twice */
                links[k] = (first + k) % scene.n_links;
            add_flow(&scene, rand() % 300, 1 + rand() % 5000, 1 + rand() % 3, n, links);
        }
        play(&scene);
        play_simply(&scene, end_ns);
        for (uint32_t f = 0; f < scene.n_flows; f++)
            CHECK_MSG(is_near(scene.end_ns[f], end_ns[f]), "round %d, flow %u: %g, expected %g",
                      round, f, scene.end_ns[f], end_ns[f]);
    }
}

static struct gyre_fabric *read_fabric(const char *text)
{
    struct gyre_fabric *fabric = NULL;
    CHECK_OK(gyre_fabric_from_text(text, &fabric));
    if (fabric == NULL)
        exit(1);
    return fabric;
}

/* Only the hop and the fabric take time. */
static struct gyre_cost plain_cost(double hop_ns)
{
    struct gyre_cost cost = {0};
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        cost.wire_efficiency[proto] = 1;
        cost.hop_ns[proto][GYRE_LINK_NETWORK] = hop_ns;
    }
    return cost;
}

struct ask {
    const struct gyre_algorithm *algorithm;
    enum gyre_collective coll;
    const struct gyre_fabric *fabric;
    double hop_ns;
    double rendezvous_ns;
    uint32_t n_channels;
    uint64_t n_bytes;
    uint32_t tile_bytes; /* 0 = all in one tile */
};

static struct gyre_prediction predict(const struct ask *ask)
{
    const struct gyre_fabric *fabric = ask->fabric;
    static struct gyre_grouping grouping;
    gyre_fabric_group(fabric, &grouping);
    struct gyre_cost cost = plain_cost(ask->hop_ns);
    cost.rendezvous_ns = ask->rendezvous_ns;
    const struct gyre_shape shape = {
        .coll = ask->coll, .n_ranks = (uint16_t)fabric->n_ranks, .grouping = &grouping};
    const struct gyre_machine machine = {.grouping = &grouping, .fabric = fabric};
    const struct gyre_simulation simulation = {.cost = &cost,
                                               .n_channels = ask->n_channels,
                                               .tile_bytes =
                                                   ask->tile_bytes > 0 ? ask->tile_bytes : 1U << 30,
                                               .depth = 8,
                                               .n_bytes = ask->n_bytes};
    struct gyre_prediction prediction = {.time_ns = -1};
    struct gyre_simulator *simulator = NULL;
    CHECK_OK(gyre_simulator_open(ask->algorithm, &shape, &machine, false, &simulator));
    if (simulator != NULL)
        CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    gyre_simulator_close(simulator);
    return prediction;
}

/* A hop: the network's, two links' latency, and the bytes at the NIC's rate. */
TEST_CASE("a ring over one leaf takes n-1 hops")
{
    struct gyre_fabric *fabric =
        read_fabric("hosts 5 gpus 1 nics 1 rate 4\nlatency nic 30 uplink 1\n");
    const double time_ns = predict(&(struct ask){.algorithm = &gyre_algorithm_ring,
                                                 .coll = GYRE_COLL_ALL_GATHER,
                                                 .fabric = fabric,
                                                 .hop_ns = 1000,
                                                 .rendezvous_ns = 500,
                                                 .n_channels = 1,
                                                 .n_bytes = 80000})
                               .time_ns;
    CHECK_MSG(is_near(time_ns, 4 * (1000 + 500 + 60 + 80000 / 4.0)), "%g", time_ns);
    gyre_fabric_free(fabric);
}

struct arrivals {
    uint64_t n_steps;
    uint32_t n_told, n_wrong;
};

static void count_step(void *observer, const struct gyre_simulated_step *step)
{
    struct arrivals *arrivals = observer;
    arrivals->n_steps++;
    arrivals->n_wrong += step->n_sends > 0 && step->arrived_ns[0] < INFINITY;
}

/* Slots of the i-th round arrive after i hops, links and transfers. */
static void check_arrival(void *observer, uint64_t step, uint32_t send, double arrived_ns)
{
    struct arrivals *arrivals = observer;
    const double round = arrivals->n_told++ / 5 + 1;
    arrivals->n_wrong += step >= arrivals->n_steps || send != 0 ||
                         !is_near(arrived_ns, round * (1000 + 60 + 80000 / 4.0));
}

TEST_CASE("an observer is told when slots arrive through a fabric")
{
    struct gyre_fabric *fabric =
        read_fabric("hosts 5 gpus 1 nics 1 rate 4\nlatency nic 30 uplink 1\n");
    static struct gyre_grouping grouping;
    struct arrivals arrivals = {0};
    const struct gyre_cost cost = plain_cost(1000);
    struct gyre_simulator *simulator = NULL;
    struct gyre_prediction prediction;
    gyre_fabric_group(fabric, &grouping);
    const struct gyre_shape shape = {
        .coll = GYRE_COLL_ALL_GATHER, .n_ranks = 5, .grouping = &grouping};
    const struct gyre_machine machine = {.grouping = &grouping, .fabric = fabric};
    const struct gyre_simulation simulation = {.cost = &cost,
                                               .n_channels = 1,
                                               .tile_bytes = 1U << 30,
                                               .depth = 4,
                                               .n_bytes = 80000,
                                               .all_tiles = true,
                                               .observe = count_step,
                                               .arrive = check_arrival,
                                               .observer = &arrivals};
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, true, &simulator));
    if (simulator != NULL)
        CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    CHECK_MSG(arrivals.n_told == 5 * 4 && arrivals.n_wrong == 0, "%u told, %u wrong",
              arrivals.n_told, arrivals.n_wrong);
    gyre_simulator_close(simulator);
    gyre_fabric_free(fabric);
}

/* A tile's log2(n) hops follow each other, because one worker carries out its steps: recursive
 * doubling of large vectors is slow in small tiles. */
TEST_CASE("recursive doubling takes log n hops a tile")
{
    enum { TILE_BYTES = 4096, N_TILES = 32 };
    for (uint32_t n = 2; n <= 32; n *= 2) {
        char text[80];
        snprintf(text, sizeof(text), "hosts %u gpus 1 nics 1 rate 4\nlatency nic 30 uplink 1\n", n);
        struct gyre_fabric *fabric = read_fabric(text);
        const struct ask ask = {.algorithm = &gyre_algorithm_doubling,
                                .coll = GYRE_COLL_ALL_REDUCE,
                                .fabric = fabric,
                                .hop_ns = 1000,
                                .n_channels = 1,
                                .n_bytes = N_TILES * TILE_BYTES,
                                .tile_bytes = TILE_BYTES};
        const double time_ns = predict(&ask).time_ns;
        CHECK_MSG(is_near(time_ns, N_TILES * log2(n) * (1000 + 60 + TILE_BYTES / 4.0)),
                  "%u ranks: %g", n, time_ns);
        gyre_fabric_free(fabric);
    }
}

/* On one rail or leaf, one or two hosts stand for all. A NIC whose rate differs a little forbids
 * that. */
TEST_CASE("hosts that are alike stand for each other")
{
    static const char *const wirings[] = {"hosts 12 gpus 2 nics 2 rate 8\nleaves 2\nwiring rails\n",
                                          "hosts 8 gpus 4 nics 2 rate 8\n"};
    for (size_t i = 0; i < 2; i++)
        for (int a = 0; gyre_algorithms[a] != NULL; a++) {
            char text[160];
            struct ask ask = {.algorithm = gyre_algorithms[a],
                              .coll = GYRE_COLL_ALL_REDUCE,
                              .hop_ns = 1000,
                              .n_channels = 4,
                              .n_bytes = 32 * 96 * 1024};
            if (!suits_hosts(ask.algorithm, (int)ask.coll, 2) ||
                (i == 0 && ability_of(ask.algorithm, (int)ask.coll, 4).reach == GYRE_REACH_ALL))
                continue;
            struct gyre_fabric *alike = read_fabric(wirings[i]);
            snprintf(text, sizeof(text), "%slink host 5 nic 1 rate 7.99999\n", wirings[i]);
            struct gyre_fabric *unlike = read_fabric(text);
            ask.fabric = alike;
            const struct gyre_prediction few = predict(&ask);
            ask.fabric = unlike;
            const struct gyre_prediction all = predict(&ask);
            CHECK_MSG(fabs(few.time_ns / all.time_ns - 1) < 0.03, "%s: %g ns, all ranks %g",
                      ask.algorithm->name, few.time_ns, all.time_ns);
            if (ask.algorithm == &gyre_algorithm_ring)
                CHECK(4 * few.n_steps <= all.n_steps);
            gyre_fabric_free(alike);
            gyre_fabric_free(unlike);
        }
}

/* n ranks in n steps each: 21 million. */
TEST_CASE("too many steps are refused")
{
    static struct gyre_grouping grouping;
    struct gyre_fabric *fabric =
        read_fabric("hosts 4600 gpus 1 nics 1 rate 8\nleaves 2\nspines 1\n");
    gyre_fabric_group(fabric, &grouping);
    const struct gyre_shape shape = {
        .coll = GYRE_COLL_ALL_GATHER, .n_ranks = 4600, .grouping = &grouping};
    const struct gyre_machine machine = {.grouping = &grouping, .fabric = fabric};
    struct gyre_simulator *simulator = NULL;
    CHECK_FAILS(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, false, &simulator),
                GYRE_ERROR_UNSUPPORTED,
                "ring all_gather of 4600 ranks has over 20000000 steps: too many to simulate in a "
                "fabric");
    gyre_fabric_free(fabric);
}

/* Of two racks' blocks two of three take the leaf's uplink. */
TEST_CASE("an oversubscribed leaf takes its bytes over its uplink")
{
    struct gyre_fabric *fabric = read_fabric("hosts 4 gpus 1 nics 1 rate 100\n"
                                             "leaves 2\nspines 1\nuplinks oversubscription 10\n");
    for (uint32_t n_channels = 1; n_channels <= 4; n_channels *= 4) {
        const struct gyre_prediction prediction =
            predict(&(struct ask){.algorithm = &gyre_algorithm_direct,
                                  .coll = GYRE_COLL_ALL_TO_ALL,
                                  .fabric = fabric,
                                  .n_channels = n_channels,
                                  .n_bytes = 1 << 20});
        const double uplink = 2 * 100 / 10.0; /* bytes per ns */
        CHECK_MSG(is_near(prediction.time_ns, 2 * 2 * (1 << 20) / uplink), "%g",
                  prediction.time_ns);
        char name[GYRE_FABRIC_NAME_BYTES] = "";
        CHECK(prediction.bottleneck == GYRE_RESOURCE_FABRIC);
        gyre_fabric_link_name(fabric, prediction.fabric_link, name);
        CHECK_MSG(strcmp(name, "leaf 0 to spine 0") == 0, "%s", name);
    }
    gyre_fabric_free(fabric);
}

TEST_CASE("a slow link shows")
{
    struct gyre_fabric *fabric =
        read_fabric("hosts 4 gpus 1 nics 1 rate 50\nlink host 2 nic 0 rate 5\n");
    const struct gyre_prediction prediction =
        predict(&(struct ask){.algorithm = &gyre_algorithm_direct,
                              .coll = GYRE_COLL_ALL_TO_ALL,
                              .fabric = fabric,
                              .n_channels = 1,
                              .n_bytes = 1 << 20});
    char name[GYRE_FABRIC_NAME_BYTES] = "";
    CHECK_MSG(is_near(prediction.time_ns, 3 * (1 << 20) / 5.0), "%g", prediction.time_ns);
    gyre_fabric_link_name(fabric, prediction.fabric_link, name);
    CHECK_HAS(name, "host 2 nic 0");
    gyre_fabric_free(fabric);
}

/* Where links do not limit each other, as with NICs alone. */
TEST_CASE("one wide leaf is like NICs alone")
{
    struct gyre_fabric *fabric = read_fabric("hosts 4 gpus 4 nics 4 rate 50\n");
    static struct gyre_grouping grouping;
    double times[2] = {0};
    gyre_fabric_group(fabric, &grouping);
    for (int with_fabric = 0; with_fabric < 2; with_fabric++) {
        struct gyre_cost cost = gyre_cost_h200;
        const struct gyre_shape shape = {
            .coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 16, .grouping = &grouping};
        const struct gyre_machine machine = {.grouping = &grouping,
                                             .fabric = with_fabric == 1 ? fabric : NULL};
        const struct gyre_simulation simulation = {
            .cost = &cost, .n_channels = 8, .tile_bytes = 32768, .depth = 4, .n_bytes = 64 << 20};
        struct gyre_prediction prediction = {0};
        struct gyre_simulator *simulator = NULL;
        cost.nic_bytes_per_ns = 50;
        cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
        cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
        CHECK_OK(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, false, &simulator));
        if (simulator != NULL)
            CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
        gyre_simulator_close(simulator);
        times[with_fabric] = prediction.time_ns;
    }
    CHECK_MSG(fabs(times[0] / times[1] - 1) < 0.05, "%g, with a fabric %g", times[0], times[1]);
    gyre_fabric_free(fabric);
}

static const char two_racks[] = "hosts 4 gpus 2 nics 2 rate 10 # comment\n\nleaves 2\nspines 3\n";

static void describe(const struct gyre_fabric *fabric, uint32_t from, uint32_t to, char *text)
{
    uint32_t links[64];
    struct gyre_fabric_route route = {.links = links};
    CHECK(gyre_fabric_longest_route(fabric) <= 64);
    CHECK_OK(gyre_fabric_route(fabric, from, to, &route));
    text[0] = '\0';
    for (uint32_t i = 0; i < route.n_links; i++) {
        char name[GYRE_FABRIC_NAME_BYTES];
        gyre_fabric_link_name(fabric, route.links[i], name);
        strcat(strcat(text, i > 0 ? ", " : ""), name);
    }
}

static void check_route(const struct gyre_fabric *fabric, uint32_t from, uint32_t to,
                        const char *expected)
{
    char text[512];
    describe(fabric, from, to, text);
    CHECK_MSG(strcmp(text, expected) == 0, "%s", text);
}

TEST_CASE("ranks of one leaf do not use a spine")
{
    struct gyre_fabric *fabric = read_fabric(two_racks);
    char text[256];
    check_route(fabric, 1, 2, "from host 0 nic 1, to host 1 nic 0");
    describe(fabric, 0, 7, text);
    CHECK_MSG(strstr(text, "from host 0 nic 0, leaf 0 to spine ") == text, "%s", text);
    CHECK_HAS(text, " to leaf 1, to host 3 nic 1");
    gyre_fabric_free(fabric);
}

TEST_CASE("rails have leaves of their own")
{
    struct gyre_fabric *fabric =
        read_fabric("hosts 3 gpus 2 nics 2 rate 10\nleaves 2\nwiring rails\n");
    uint32_t links[64];
    struct gyre_fabric_route route = {.links = links};
    check_route(fabric, 1, 5, "from host 0 nic 1, to host 2 nic 1");
    CHECK_FAILS(gyre_fabric_route(fabric, 0, 3, &route), GYRE_ERROR_UNSUPPORTED,
                "no way from host 0 nic 0 (leaf 0) to host 1 nic 1 (leaf 1): there is no spine");
    gyre_fabric_free(fabric);
}

/* With one spine after the other cut off. */
TEST_CASE("dead links are avoided or named")
{
    char text[512], names[256];
    for (int n_dead = 0; n_dead <= 3; n_dead++) {
        snprintf(text, sizeof(text), "%s", two_racks);
        for (int i = 0; i < n_dead; i++)
            snprintf(&text[strlen(text)], 64, "link leaf %d spine %d dead\n", i % 2, i);
        struct gyre_fabric *fabric = read_fabric(text);
        for (uint32_t from = 0; from < 4; from++)
            for (uint32_t to = 4; to < 8; to++) {
                uint32_t links[64];
                struct gyre_fabric_route route = {.links = links};
                if (n_dead == 3) {
                    CHECK_FAILS(gyre_fabric_route(fabric, from, to, &route), GYRE_ERROR_UNSUPPORTED,
                                "leaf 0 to spine 0 is dead");
                    continue;
                }
                describe(fabric, from, to, names);
                for (int i = 0; i < n_dead; i++) {
                    char spine[32];
                    snprintf(spine, sizeof(spine), "spine %d", i);
                    CHECK_MSG(strstr(names, spine) == NULL, "%d dead: %s", n_dead, names);
                }
            }
        gyre_fabric_free(fabric);
    }
}

TEST_CASE("a rank whose NIC is dead uses another")
{
    struct gyre_fabric *fabric =
        read_fabric("hosts 2 gpus 4 nics 4 rate 10\nlink host 1 nic 2-3 dead\n");
    static struct gyre_grouping grouping;
    gyre_fabric_group(fabric, &grouping);
    CHECK(grouping.n_hosts == 2 && grouping.n_nics == 2 && grouping.host_of[3] == 0);
    CHECK(is_near(gyre_fabric_host_rate(fabric), 20));
    check_route(fabric, 2, 6, "from host 0 nic 2, to host 1 nic 0");
    gyre_fabric_free(fabric);
}

TEST_CASE("GPUs share NICs and the rail picks the spine")
{
    struct gyre_fabric *fabric = read_fabric("hosts 1 gpus 4 nics 2 rate 10\n"
                                             "hosts 1 gpus 2 nics 2 rate 20\n"
                                             "leaves 3\nspines 2\nroute rail\n"
                                             "attach hosts 0-1 nics 0 leaf 0\n"
                                             "attach hosts 0 nics 1 leaf 1\n"
                                             "attach hosts 1 nics 1 leaf 2\n");
    check_route(fabric, 3, 5,
                "from host 0 nic 1, leaf 1 to spine 1, spine 1 to leaf 2, "
                "to host 1 nic 1");
    check_route(fabric, 1, 4, "from host 0 nic 0, to host 1 nic 0");
    CHECK(is_near(fabric->bytes_per_ns[gyre_fabric_uplink(fabric, 0, 1, true)], (10 + 20) / 2.0));
    gyre_fabric_free(fabric);
}

TEST_CASE("in a torus a slot takes the shortest way, the first dimension first")
{
    struct gyre_fabric *fabric = read_fabric("hosts 24 gpus 1 nics 1 rate 7\n"
                                             "torus 5 5 rate 9\ntorus 2 3 4 rate 6\n"
                                             "latency nic 10 uplink 100\n");
    uint32_t links[64];
    struct gyre_fabric_route route = {.links = links};
    CHECK(gyre_fabric_longest_route(fabric) >= 2 + 1 + 1 + 2);
    check_route(fabric, 0, 23,
                "from host 0 nic 0, host 0 to host 12, host 12 to host 20, "
                "host 20 to host 23, to host 23 nic 0"); /* 0 0 0 to 1 2 3 */
    check_route(fabric, 1, 3,
                "from host 1 nic 0, host 1 to host 0, host 0 to host 3, "
                "to host 3 nic 0"); /* half of a ring of four, from an odd place */
    CHECK_OK(gyre_fabric_route(fabric, 0, 23, &route));
    CHECK(is_near(route.latency_ns, 2 * 10 + 3 * 100) &&
          is_near(fabric->bytes_per_ns[links[1]], 6));
    for (uint32_t from = 0; from < 24; from++)
        for (uint32_t to = 0; to < 24; to++) {
            const uint32_t d[] = {(to / 12 + 2 - from / 12) % 2,
                                  (to / 4 % 3 + 3 - from / 4 % 3) % 3, (to % 4 + 4 - from % 4) % 4};
            const uint32_t hops = d[0] + (d[1] == 2 ? 1 : d[1]) + (d[2] == 3 ? 1 : d[2]);
            CHECK_OK(gyre_fabric_route(fabric, from, to, &route));
            CHECK(route.n_links == 2 + hops);
        }
    gyre_fabric_free(fabric);
}

/* All flows go the same way round, so no link has two. */
TEST_CASE("a ring over a torus of one dimension has links of its own, a far partner shares them")
{
    struct gyre_fabric *fabric = read_fabric("hosts 8 gpus 1 nics 1 rate 100\ntorus 8 rate 4\n");
    struct ask ask = {.algorithm = &gyre_algorithm_ring,
                      .coll = GYRE_COLL_ALL_GATHER,
                      .fabric = fabric,
                      .hop_ns = 1000,
                      .n_channels = 1,
                      .n_bytes = 80000};
    CHECK(is_near(predict(&ask).time_ns, 7 * (1000 + 80000 / 4.0)));
    ask.algorithm = &gyre_algorithm_doubling; /* partners 1, 2 and 4 away: 1, 2 and 2 on a link */
    ask.coll = GYRE_COLL_ALL_REDUCE;
    const double time_ns = predict(&ask).time_ns;
    CHECK_MSG(is_near(time_ns, 3 * 1000 + (1 + 2 + 2) * 80000 / 4.0), "%g", time_ns);
    gyre_fabric_free(fabric);
}

/* Three groups, the last one of one host; a group's two NICs of 10 reach two others by 10 each. */
TEST_CASE("groups of a dragonfly are linked to each other")
{
    struct gyre_fabric *fabric = read_fabric(
        "hosts 5 gpus 1 nics 1 rate 10\ndragonfly groups of 2 hosts\nuplinks oversubscription 2\n");
    check_route(fabric, 0, 1, "from host 0 nic 0, to host 1 nic 0");
    check_route(fabric, 3, 4, "from host 3 nic 0, group 1 to group 2, to host 4 nic 0");
    CHECK(is_near(fabric->bytes_per_ns[2 * 5 + 0 * 3 + 1], 20.0 / 2 / 2));
    CHECK(is_near(fabric->bytes_per_ns[2 * 5 + 1 * 3 + 2], 10.0 / 2 / 2)); /* the smaller group */
    gyre_fabric_free(fabric);
    fabric = read_fabric("hosts 5 gpus 1 nics 1 rate 10\nleaves of 2 hosts\nspines 1\n");
    CHECK(fabric->n_leaves == 3 && fabric->leaf_of_nic[3] == 1 && fabric->leaf_of_nic[4] == 2);
    gyre_fabric_free(fabric);
}

#define HOSTS "hosts 2 gpus 2 nics 2 rate 10\n"

TEST_CASE("texts that are wrong are refused")
{
    static const char *const wrong[][2] = {
        {"", "no line says \"hosts"},
        {HOSTS "torus 2 2 rate 5\n", "no torus has 2 hosts"},
        {HOSTS "torus 2\n", "line 2: \"torus"},
        {HOSTS "torus 2 0 rate 1\n", "line 2: \"torus"},
        {HOSTS "torus 2 rate 0\n", "line 2: 0: expected a rate"},
        {HOSTS "torus 2 rate 1\nspines 1\n", "neither leaves nor spines"},
        {HOSTS "dragonfly groups of 1 hosts\nwiring rails\n", "line 3: wiring: a torus"},
        {HOSTS "dragonfly groups of 0 hosts\n", "line 2: \"dragonfly"},
        {"leaves 2\n", "no line says \"hosts"},
        {HOSTS "dragonfly groups of 2 hosts\nspines 3\n", "a dragonfly has no spines"},
        {HOSTS "towers 3\n", "line 2: \"towers\" is none of: hosts leaves"},
        {"# one\n\nhosts 2 gpus 2\n", "line 3: \"hosts ...\": expected hosts N gpus N nics N"},
        {"hosts 0 gpus 2 nics 2 rate 10\n", "line 1: 0 hosts"},
        {"hosts 2 gpus 2 nics 65 rate 10\n", "65 NICs"},
        {"hosts 16384 gpus 2 nics 1 rate 10\n", "at most 16384 GPUs"},
        {"hosts 99999999999999999999 gpus 1 nics 1 rate 1\n", "line 1: \"hosts ...\""},
        {"hosts 2 gpus 2 nics 2 rate 0\n", "line 1: 0: expected a rate"},
        {"hosts 2 gpus 2 nics 2 rate -1\n", "line 1: \"hosts ...\""},
        {"hosts 2 gpus 2 nics 2 rate nan\n", "line 1: \"hosts ...\""},
        {HOSTS "leaves 0\n", "line 2: 0 leaves"},
        {HOSTS "leaves 1025\n", "line 2: 1025 leaves"},
        {HOSTS "leaves 2\nleaves 2\n", "line 3: leaves is given twice"},
        {HOSTS "leaves 1000\nspines 1000\n", "over 65536 links"},
        {HOSTS "wiring wool\n", "line 2: \"wiring ...\": expected \"wiring hosts\""},
        {HOSTS "attach hosts 0-2 nics 0 leaf 0\n", "line 2: there is no host 2: there are 2"},
        {HOSTS "attach hosts 0 nics 2 leaf 0\n", "line 2: there is no nic 2"},
        {HOSTS "attach hosts 0 nics 0 leaf 1\n", "line 2: there is no leaf 1"},
        {HOSTS "attach hosts 1-0 nics 0 leaf 0\n", "line 2: \"attach ...\""},
        {HOSTS "uplinks oversubscription 0\n", "line 2: \"uplinks ...\""},
        {HOSTS "uplinks rate 0\n", "line 2: 0: expected a rate"},
        {HOSTS "route scenic\n", "line 2: \"route ...\""},
        {HOSTS "latency nic 2000000000 uplink 1\n", "line 2: latency needs both"},
        {HOSTS "latency nic 1000000.5 uplink 1\n", "line 2: latencies are in ns, at most 1000000"},
        {HOSTS "latency nic 5\n",
         "line 2: latency needs both: latency nic X uplink X, in ns, 0 or"},
        {HOSTS "latency nic 5 uplink 1\nlatency nic 5 uplink 1\n",
         "line 3: latency is given twice"},
        {HOSTS "route hash\nroute rail\n", "line 3: route is given twice"},
        {HOSTS "wiring hosts\nwiring rails\n", "line 3: wiring is given twice"},
        {HOSTS "uplinks rate 1\nuplinks oversubscription 2\n", "line 3: uplinks is given twice"},
        {HOSTS "link host 0 nic 0\n", "line 2: \"link ...\""},
        {HOSTS "link leaf 0 spine 0 dead\n", "line 2: there is no spine 0: there are 0"},
        {HOSTS "link host 0 nic 0-1 dead\n", "every NIC of host 0 is dead"},
        {HOSTS "a b c d e f g h i j k l m n o p q\n", "line 2: more than 16 words"},
    };
    struct gyre_fabric *fabric = NULL;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_FAILS(gyre_fabric_from_text(wrong[i][0], &fabric), GYRE_ERROR_INVALID_ARGUMENT,
                    wrong[i][1]);
    static char text[GYRE_FABRIC_MAX_TEXT + 2];
    memset(text, 'x', 300);
    CHECK_FAILS(gyre_fabric_from_text(text, &fabric), GYRE_ERROR_INVALID_ARGUMENT,
                "line 1: longer than");
    memset(text, '\n', sizeof(text) - 1);
    CHECK_FAILS(gyre_fabric_from_text(text, &fabric), GYRE_ERROR_INVALID_ARGUMENT, "longer than");
    CHECK(fabric == NULL);
}
