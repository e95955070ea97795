/* SPDX-License-Identifier: Apache-2.0
 *
 * Small calls get fewer channels. Numbers are facts of NCCL 2.30.7, in us and GB/s.
 */
#include "algorithms/contenders/contender.h"

#include "algorithms/contenders/nccl_facts.h"
#include "algorithms/library/library.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <string.h>

#define MAX_CHANNELS      64
#define SIMPLE_SLOT       524288
#define LL_SLOT           32768
#define LL128_SLOT        576000
#define N_SLOTS           8
#define CHUNK_SLOTS       4 /* of Simple's ring; a slice has two */
#define LEAST_SLICE       32768
#define P2P_CHANNELS      32
#define P2P_PART          65536
#define P2P_LL_BYTES      16384
#define P2P_NET_CHUNK     131072
#define P2P_WARPS         20
#define P2P_WORKS         8
#define RING_WARPS        16
#define PCI_GBYTES        32 /* slower links are PCIe */
#define FIRST_NVLS        217
#define FIRST_PAT         223
#define FIRST_FAST_LL     221
#define FIRST_TRAFFIC     222 /* channels by bytes, not by threads alone */
#define FIRST_LL_CELLS    226
#define FIRST_C2C_LL128   227
#define FIRST_P2P_BY_PART 229
#define NVLS_EFFICIENCY   0.85

const char *const gyre_gpu_names[GYRE_N_GPUS] = {
#define GPU_NAME(id, name) #name,
    GYRE_GPU_TABLE(GPU_NAME)
#undef GPU_NAME
};

/* What the search of the topology finds; rates are of a channel. */
struct graph {
    unsigned n_channels;
    double intra, inter;
};

struct model {
    const struct gyre_contender_machine *machine;
    const struct gyre_contender_call *call;
    const struct gpu_facts *gpu;
    unsigned n_local;
    double link;
    struct graph ring, tree, nvls;
    unsigned n_channels; /* of a communicator */
};

/* The channels that carry most together, of equal ones the fastest; none below half of the rate
 * that was found first. */
static void search(const double *speeds, double pipe, unsigned n_pipes, struct graph *graph)
{
    double most = 0;
    for (int i = 0; i < N_SPEEDS && speeds[i] > 0 && (most <= 0 || speeds[i] > 0.49 * graph->intra);
         i++) {
        const double n = fmin(floor(pipe / speeds[i] + 1e-9) * n_pipes, MAX_CHANNELS / 2);
        if (n * speeds[i] > most * 1.0001) {
            most = n * speeds[i];
            *graph = (struct graph){(unsigned)n, speeds[i], speeds[i]};
        }
    }
    if (most <= 0) /* slower than all that it knows */
        *graph = (struct graph){n_pipes, pipe, pipe};
}

static void split_channels(const struct model *model, struct graph *graph)
{
    const bool is_new = model->machine->gpu > GYRE_GPU_AMPERE;
    if (graph->intra < 25 || (is_new && graph->intra < 50 && graph->n_channels > 4))
        return;
    const unsigned n = (unsigned)gyre_min_u64(2 * (uint64_t)graph->n_channels, MAX_CHANNELS / 2);
    const double parts = ceil((double)n / graph->n_channels);
    *graph = (struct graph){n, graph->intra / parts, graph->inter / parts};
}

/* Of a mesh's links, those to the ranks of the call. */
static double mesh_share(const struct gyre_contender_machine *machine, unsigned n_local)
{
    return machine->mesh_gpus > 1 && n_local > 1 && n_local < machine->mesh_gpus
               ? (double)(n_local - 1) / (machine->mesh_gpus - 1)
               : 1;
}

static void open_model(const struct gyre_contender_machine *machine,
                       const struct gyre_contender_call *call, struct model *model)
{
    const struct gpu_facts *gpu = &facts_of[machine->gpu];
    const unsigned n_local = call->n_ranks / call->n_hosts;
    *model = (struct model){.machine = machine, .call = call, .gpu = gpu, .n_local = n_local};
    model->link = machine->link_gbytes > 0 ? machine->link_gbytes : gpu->link;
    model->link *= mesh_share(machine, n_local);
    const unsigned n_nics =
        machine->n_nics > 0 && machine->n_nics < n_local ? machine->n_nics : n_local;
    if (call->n_hosts == 1)
        search(gpu->intra, model->link, 1, &model->ring);
    else
        search(gpu->inter, machine->nic_gbytes, n_nics, &model->ring);
    split_channels(model, &model->ring);
    /* As many channels, faster inside hosts if the links allow it. */
    model->tree = model->ring;
    for (int i = N_SPEEDS - 1; i >= 0 && call->n_hosts > 1; i--)
        if (gpu->inter[i] > model->tree.intra && model->tree.intra < 2 * model->tree.inter &&
            gpu->inter[i] * model->tree.n_channels <= model->link)
            model->tree.intra = gpu->inter[i];
    model->n_channels = 2 * model->ring.n_channels;
    if (machine->gpu >= GYRE_GPU_HOPPER && call->n_hosts > 1 && model->ring.intra > 45 &&
        model->n_channels < 16)
        model->n_channels *= 2;
    for (int i = 0; i < N_SPEEDS && model->nvls.intra <= 0; i++) /* a channel a GPU */
        model->nvls.intra = gpu->intra[i] * n_local <= model->link ? gpu->intra[i] : 0;
    model->nvls.n_channels = n_local;
    if (call->n_hosts > 1)
        model->nvls.inter =
            fmin(model->ring.inter * model->ring.n_channels / n_local, machine->nic_gbytes);
}

static int hosts_index(const struct model *model)
{
    return (int)gyre_min_u64(model->call->n_hosts, 3) - 1;
}

static bool is_older(const struct model *model, unsigned version)
{
    return model->machine->version != 0 && model->machine->version < version;
}

static bool is_rccl(const struct model *model)
{
    return model->machine->gpu == GYRE_GPU_CDNA3;
}

static bool is_possible(const struct model *model, enum algo algo, enum proto proto)
{
    const enum gyre_collective coll = model->call->coll;
    const bool is_all_reduce = coll == GYRE_COLL_ALL_REDUCE;
    const bool is_half = coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_REDUCE_SCATTER;
    const unsigned n_hosts = model->call->n_hosts;
    const bool has_nvls = model->machine->has_nvls && model->n_local > 1 && proto == SIMPLE &&
                          model->gpu->nvls_efficiency > 0 && !is_older(model, FIRST_NVLS);
    const bool is_by_c2c =
        model->machine->cpu == GYRE_CPU_GRACE && !is_older(model, FIRST_C2C_LL128);
    if (is_rccl(model) &&
        (algo > RING || proto == LL128 || (algo == TREE && proto == SIMPLE && n_hosts == 1)))
        return false;
    if (proto == LL128 && n_hosts > 1 && model->machine->has_far_nics && !is_by_c2c)
        return false;
    switch (algo) {
    case RING:
        return coll <= GYRE_COLL_REDUCE_SCATTER;
    case TREE:
        return is_all_reduce;
    case NVLS:
        return has_nvls && n_hosts == 1 && (is_all_reduce || is_half);
    case NVLS_TREE:
        return has_nvls && n_hosts > 1 && is_all_reduce;
    default:
        return is_half && proto == SIMPLE && n_hosts == model->call->n_ranks && n_hosts > 1 &&
               !is_older(model, FIRST_PAT);
    }
}

static unsigned count_steps(const struct model *model)
{
    const unsigned n = model->call->n_ranks;
    const enum gyre_collective coll = model->call->coll;
    return coll == GYRE_COLL_ALL_REDUCE                                       ? 2 * (n - 1)
           : coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_REDUCE_SCATTER ? n - 1
                                                                              : n;
}

static double nvls_rate(const struct model *model, enum algo algo)
{
    const double n = model->n_local, n_channels = model->nvls.n_channels;
    const bool is_all_reduce = model->call->coll == GYRE_COLL_ALL_REDUCE;
    const double intra = model->nvls.intra * model->gpu->nvls_efficiency * (n_channels - 1) /
                         n_channels * (is_all_reduce ? 2 : (n - 1) / n);
    const double inter = model->nvls.inter * (model->call->n_hosts == 2 ? 2 : 1);
    return algo == NVLS ? intra
                        : fmin(fmin(intra, inter), model->gpu->nvls_tree[hosts_index(model)]);
}

/* GB/s of the call's bytes */
static double rate(const struct model *model, enum algo algo, enum proto proto)
{
    const struct gpu_facts *gpu = model->gpu;
    const int at = hosts_index(model);
    const bool is_nvls = algo == NVLS || algo == NVLS_TREE;
    const struct graph *graph = is_nvls ? &model->nvls : algo == TREE ? &model->tree : &model->ring;
    const double n_channels = graph->n_channels;
    const bool is_amd = model->machine->cpu == GYRE_CPU_AMD;
    const enum gyre_gpu ll_row = is_amd ? GYRE_GPU_AMPERE : GYRE_GPU_VOLTA;
    const bool is_hopper = gpu == &facts_of[GYRE_GPU_HOPPER];
    const double *own_ll =
        is_hopper && is_older(model, FIRST_FAST_LL) ? facts_of[GYRE_GPU_AMPERE].ll : gpu->ll;
    const double most_ll = at == 0 ? own_ll[0] : facts_of[ll_row].ll[at];
    const enum gyre_collective coll = model->call->coll;
    const bool is_half = coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_REDUCE_SCATTER;
    double bus = n_channels * (is_nvls  ? nvls_rate(model, algo)
                               : at < 2 ? graph->intra
                                        : graph->inter);
    if (is_rccl(model)) {
        bus *= rccl_ratio[at < 2 ? 0 : 1][algo][proto];
        return algo == TREE ? bus / 2 : bus * model->call->n_ranks / count_steps(model);
    }
    if (algo == RING && proto == LL)
        bus = fmin(most_ll, bus * (!is_older(model, FIRST_FAST_LL) ? 0.5
                                   : is_half && at == 0            ? 1.0 / 3
                                                                   : 0.25));
    if (algo == RING && proto == LL128)
        bus = fmin(bus * 0.92, n_channels * gpu->ring_ll128);
    if (algo == TREE)
        bus = fmin(bus * 0.92, n_channels * gpu->tree[at]);
    if (algo == TREE && proto == LL)
        bus = fmin(bus / 3.8, most_ll);
    if (algo == TREE && proto == LL128)
        bus = fmin(bus * (at == 0 ? 7.0 / 9 : 120.0 / 128), n_channels * gpu->tree_ll128[at]);
    if (algo == PAT)
        bus *= 0.75;
    if (is_half && algo != RING)
        return bus;
    return algo == TREE ? bus / 2 : bus * model->call->n_ranks / count_steps(model);
}

static double latency_us(const struct model *model, enum algo algo, enum proto proto)
{
    const unsigned n = model->call->n_ranks, n_hosts = model->call->n_hosts;
    const bool is_all_reduce = model->call->coll == GYRE_COLL_ALL_REDUCE;
    const enum hw inside = model->link > PCI_GBYTES ? NVLINK : PCI;
    const double own = model->machine->net_latency_us * (proto == SIMPLE ? 2 : 1);
    const double base = is_rccl(model) ? rccl_base_us[proto] : base_us[algo][proto];
    const double(*hops)[N_NCCL_PROTOS] = is_rccl(model) ? rccl_hop_us[NET] : hop_us[NET];
    const double(*near)[N_NCCL_PROTOS] = is_rccl(model) ? rccl_hop_us[inside] : hop_us[inside];
    const double inter = hops[model->n_local == 1 && !is_rccl(model) ? TREE : algo][proto] + own;
    const double levels = floor(log2(n_hosts) + 1e-9);
    double intra = near[algo][proto];
    switch (algo) {
    case RING: {
        const unsigned n_steps = count_steps(model);
        if (model->call->coll == GYRE_COLL_BROADCAST || model->call->coll == GYRE_COLL_REDUCE)
            return base + (n_hosts == 1 ? near : hops)[algo][proto];
        const unsigned n_inter = n_hosts == 1 ? 0 : (is_all_reduce ? 2 : 1) * (n_hosts - 1);
        if (n_hosts > 1)
            intra = fmax(intra,
                         (model->machine->cpu == GYRE_CPU_AMD ? 2 : 1) * (proto == SIMPLE ? 3 : 1));
        return base + (n_steps - n_inter) * intra + n_inter * inter;
    }
    case TREE:
        return base + 2 * ((model->n_local - 1) * intra + levels * inter);
    case NVLS:
        return intra;
    case NVLS_TREE:
        return intra + 2 * levels * inter;
    default:
        return base + levels * inter / 3.5 + n * 2.8;
    }
}

static double estimate_us(const struct model *model, enum algo algo, enum proto proto)
{
    const uint64_t n_bytes = model->call->n_bytes;
    double gbytes = rate(model, algo, proto), us = latency_us(model, algo, proto);
    const uint64_t log_size =
        n_bytes < 64 ? 0 : (uint64_t)floor(log2((double)(n_bytes / 64)) + 1e-9);
    if (is_rccl(model) && (algo == TREE || model->call->n_hosts > 1))
        gbytes *= rccl_percent[algo][proto][gyre_min_u64(log_size, RCCL_SIZES - 1)] / 100.0;
    else if (algo == TREE && n_bytes >= 64 && log_size < 23)
        gbytes *= tree_percent[proto][log_size] / 100.0;
    if (algo == RING && proto == SIMPLE && !is_rccl(model) && model->call->n_hosts > 1 &&
        model->call->coll == GYRE_COLL_ALL_REDUCE &&
        n_bytes / (model->n_channels * (uint64_t)model->call->n_ranks) >= 64)
        us *= model->machine->gpu < GYRE_GPU_AMPERE ? 1.9 : 1.4;
    return us + (double)n_bytes / (1000 * gbytes);
}

static uint32_t count_channels(const struct model *model, enum algo algo, enum proto proto)
{
    const uint64_t n_bytes = model->call->n_bytes;
    const uint64_t n_threads = algo == PAT || proto == LL128 ? 640 : 512;
    const uint64_t threshold = proto == SIMPLE               ? 64
                               : proto == LL && algo == RING ? 8 * (uint64_t)model->call->n_ranks
                                                             : 8;
    if (algo == NVLS || algo == NVLS_TREE)
        return 16;
    const uint64_t by_threads = gyre_max_u64(1, n_bytes / (n_threads * threshold));
    const uint64_t most = gyre_min_u64(model->n_channels, by_threads);
    if (is_older(model, FIRST_TRAFFIC))
        return (uint32_t)most;
    const uint64_t cell_bytes = is_older(model, 223) ? 512 : is_older(model, 229) ? 16384 : 32768;
    const uint64_t traffic = n_bytes * (model->call->coll == GYRE_COLL_ALL_REDUCE ? 2 : 1) *
                             (proto == LL && !is_older(model, FIRST_LL_CELLS) ? 4 : 1);
    const uint64_t n_cells = gyre_max_u64(1, gyre_div_round_up(traffic, cell_bytes));
    const uint64_t cells =
        gyre_min_u64(n_cells, gyre_div_round_up(gyre_max_u64(traffic / most, 1), cell_bytes));
    return (uint32_t)gyre_min_u64(most, gyre_div_round_up(n_cells, cells));
}

static uint32_t halve_while(uint64_t n_bytes, double least_chunks, uint32_t least_bytes,
                            uint32_t chunk_bytes)
{
    while ((double)(n_bytes / chunk_bytes) < least_chunks && chunk_bytes > least_bytes)
        chunk_bytes /= 2;
    return chunk_bytes;
}

static void fill_way(const struct model *model, enum algo algo, enum proto proto,
                     struct gyre_contender_way *way)
{
    const uint32_t slots[N_NCCL_PROTOS] = {LL_SLOT, LL128_SLOT, SIMPLE_SLOT};
    const enum gyre_collective coll = model->call->coll;
    const uint32_t n_channels = count_channels(model, algo, proto);
    const uint64_t of_channel = model->call->n_bytes / n_channels;
    const double n_local = model->n_local;
    *way = (struct gyre_contender_way){.algorithm = &gyre_algorithm_ring,
                                       .name = algo_names[algo],
                                       .proto = proto_of[proto],
                                       .n_channels = n_channels,
                                       .tile_bytes = slots[proto],
                                       .depth = N_SLOTS,
                                       .rate_factor = 1,
                                       .store_factor = 1,
                                       .estimated_us = estimate_us(model, algo, proto)};
    if (algo == RING && proto == SIMPLE && coll != GYRE_COLL_BROADCAST &&
        coll != GYRE_COLL_REDUCE) {
        way->depth = N_SLOTS / 2;
        way->tile_bytes = CHUNK_SLOTS / 2 * SIMPLE_SLOT;
        if (of_channel / model->call->n_ranks >= 2 * LEAST_SLICE)
            way->algorithm = &gyre_algorithm_nccl_ring;
    } else if (algo == TREE) {
        way->algorithm = &gyre_algorithm_nccl_tree;
        way->n_channels = (n_channels + 1) / 2; /* a channel of ours has both trees */
        if (proto == LL128) {
            const double n_steps = 1 + floor(log2(model->call->n_hosts) + 1e-9) + 0.1 * n_local;
            way->tile_bytes =
                halve_while(of_channel, n_steps * 64 / n_local, 131072, way->tile_bytes);
            way->tile_bytes =
                halve_while(of_channel, n_steps * 16 / n_local, 32768, way->tile_bytes);
        }
    } else if (algo == NVLS) {
        way->algorithm = &gyre_algorithm_nccl_nvls;
        way->rate_factor = 2 * (n_local - 1) / (n_local + 1) * NVLS_EFFICIENCY;
        way->store_factor = n_local - 1;
        way->tile_bytes = of_channel < 2 * (uint64_t)n_local * 32768     ? 16384
                          : of_channel < 8 * (uint64_t)n_local * 65536   ? 32768
                          : of_channel < 64 * (uint64_t)n_local * 131072 ? 65536
                                                                         : 131072;
    } else if (algo == NVLS_TREE) {
        way->algorithm = &gyre_algorithm_two_level_tree;
        way->rate_factor = 2 * (n_local - 1) / (n_local + 1) * NVLS_EFFICIENCY;
        way->store_factor = n_local - 1;
        way->tile_bytes = of_channel < (uint64_t)n_local * 65536        ? 32768
                          : of_channel < 4 * (uint64_t)n_local * 131072 ? 65536
                                                                        : 131072;
    } else if (algo == PAT) {
        way->algorithm = &gyre_algorithm_pat;
        way->tile_bytes = SIMPLE_SLOT;
    }
    way->rate_factor *= mesh_share(model->machine, model->n_local);
    if (algo == RING && model->machine->mesh_gpus > 1 && model->machine->n_rings > 0)
        way->rate_factor *= fmin(1, (double)model->machine->n_rings / (n_local - 1));
}

/* Channels of a peer in one host: all are used, but none for two peers. */
static unsigned p2p_channels(unsigned n_ranks)
{
    unsigned n = P2P_CHANNELS;
    while (n * n_ranks > P2P_CHANNELS && n > 1)
        n /= 2;
    return n;
}

/* Slots of their own protocol, no comparison. Versions 2.22 to 2.28 chose LL as if each peer had
 * all channels, and cut it into parts of an eighth of a slot. */
static struct gyre_contender_way p2p_way(const struct gyre_contender_machine *machine,
                                         const struct gyre_contender_call *call)
{
    const uint64_t of_peer = call->n_bytes / call->n_ranks;
    const bool is_one_host = call->n_hosts == 1;
    const bool is_generous =
        is_one_host && machine->version >= FIRST_TRAFFIC && machine->version < FIRST_P2P_BY_PART;
    const bool is_small = of_peer <= P2P_LL_BYTES * (is_generous ? P2P_CHANNELS : 1);
    const uint64_t part = is_small && is_generous ? 2 * LL_SLOT / N_SLOTS : P2P_PART;
    unsigned n_channels = gyre_clamp_u32(gyre_div_round_up(of_peer, part), 1,
                                         is_one_host ? p2p_channels(call->n_ranks) : P2P_CHANNELS);
    while (is_one_host && of_peer / n_channels > 32 * SIMPLE_SLOT && n_channels < P2P_CHANNELS)
        n_channels *= 2;
    return (struct gyre_contender_way){.algorithm = &gyre_algorithm_nccl_p2p,
                                       .name = "p2p",
                                       .proto = is_small ? GYRE_PROTO_LL : GYRE_PROTO_SIMPLE,
                                       .n_channels = n_channels,
                                       .tile_bytes = is_small      ? LL_SLOT
                                                     : is_one_host ? SIMPLE_SLOT
                                                                   : P2P_NET_CHUNK,
                                       .depth = N_SLOTS,
                                       .rate_factor =
                                           mesh_share(machine, call->n_ranks / call->n_hosts),
                                       .store_factor = 1};
}

/* The 20 warps of a block are divided among its peers, at most eight, those of a peer between
 * sending and receiving (src/device/sendrecv.h). A ring's channel has 16. */
double gyre_nccl_p2p_rate(unsigned n_local, double worker_gbytes)
{
    const unsigned n_channels = p2p_channels(n_local) * n_local;
    const unsigned n_works = gyre_clamp_u32(n_channels / P2P_CHANNELS, 1, P2P_WORKS);
    const unsigned n_warps = P2P_WARPS / n_works;
    const unsigned n_receiving = n_warps <= 4 ? n_warps / 2 : (n_warps - 1) / 2;
    const unsigned n_busy = gyre_min_u32(n_channels, P2P_CHANNELS);
    return n_busy * worker_gbytes * n_receiving * n_works / RING_WARPS * (n_local - 1) / n_local;
}

/* MSCCL in RCCL. */
static struct gyre_contender_way all_pairs_way(const struct gyre_contender_machine *machine,
                                               const struct gyre_contender_call *call)
{
    struct gyre_contender_way way = p2p_way(machine, call);
    way.name = "allpair";
    if (call->coll != GYRE_COLL_ALL_TO_ALL)
        way.algorithm =
            call->coll == GYRE_COLL_ALL_REDUCE ? &gyre_algorithm_twoshot : &gyre_algorithm_direct;
    for (int i = 0; i < N_NCCL_PROTOS; i++)
        if (call->proto != NULL && gyre_text_same(call->proto, gyre_proto_names[proto_of[i]]))
            way.proto = proto_of[i];
    way.tile_bytes = way.proto == GYRE_PROTO_SIMPLE ? SIMPLE_SLOT : LL_SLOT;
    return way;
}

static bool is_asked(const char *asked, const char *name)
{
    return asked == NULL || gyre_text_same(asked, name);
}

int gyre_nccl_list(const struct gyre_contender_machine *machine,
                   const struct gyre_contender_call *call, struct gyre_contender_way *ways_out)
{
    struct model model;
    int n = 0;
    open_model(machine, call, &model);
    for (enum algo algo = TREE; algo < N_ALGOS; algo++)
        for (enum proto proto = LL; proto < N_NCCL_PROTOS; proto++)
            if (is_possible(&model, algo, proto) && is_asked(call->algorithm, algo_names[algo]) &&
                is_asked(call->proto, gyre_proto_names[proto_of[proto]]))
                fill_way(&model, algo, proto, &ways_out[n++]);
    return n;
}

gyre_status gyre_nccl_choose(const struct gyre_contender_machine *machine,
                             const struct gyre_contender_call *call,
                             struct gyre_contender_way *way_out)
{
    struct gyre_contender_way ways[GYRE_NCCL_MOST_WAYS];
    if (call->coll == GYRE_COLL_ALL_TO_ALL) {
        *way_out = p2p_way(machine, call);
        return GYRE_SUCCESS;
    }
    if (call->algorithm != NULL && gyre_text_same(call->algorithm, "allpair")) {
        *way_out = all_pairs_way(machine, call);
        return GYRE_SUCCESS;
    }
    const int n = gyre_nccl_list(machine, call, ways);
    if (n == 0)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "NCCL has no %s by %s with %s on %u hosts",
                         gyre_collectives[call->coll].name,
                         call->algorithm == NULL ? "any algorithm" : call->algorithm,
                         call->proto == NULL ? "any protocol" : call->proto, call->n_hosts);
    *way_out = ways[0];
    for (int i = 1; i < n; i++)
        if (ways[i].estimated_us < way_out->estimated_us)
            *way_out = ways[i];
    return GYRE_SUCCESS;
}
