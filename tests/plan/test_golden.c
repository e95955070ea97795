/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans' choices, compared with an earlier version's in golden.txt: 102,400 calls on 400
 * communicators. golden.txt has a line for each communicator: a hash of all its calls, and one
 * digit for each call, so that the test can name the first call that goes another way.
 *
 *   test_golden                  compare; name the first call of each communicator that changed
 *   test_golden --print [FROM [TO]]  print calls of these communicators and how they are carried
 *                                out; `diff` of the output of two builds shows every change
 *   test_golden --write > tests/plan/golden.txt     keep the choices of this build
 */
#define TEST_OWN_MAIN
#include "core/foundation/base/param.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan_cache.h"
#include "kernels/cuda/host/kernel_rows.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

#include <stdarg.h>

enum { N_BLOCKS = 400, N_CASES = 256, MAX_GOLDEN_RANKS = 64 };
enum { P2P, SHM, IB, SOCKET }; /* as in gyre_transports */

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";

static uint64_t dice;

/* One to an expression, because compilers order them as they like. splitmix64 (Steele, Lea and
 * Flood, "Fast splittable pseudorandom number generators", 2014). */
static uint32_t roll(uint32_t n)
{
    uint64_t z = dice += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return (uint32_t)((z ^ z >> 31) >> 32) % n;
}

#define PICK(list) ((list)[roll(GYRE_ARRAY_LENGTH(list))])

struct text {
    char chars[640];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text->n +=
        (size_t)vsnprintf(text->chars + text->n, sizeof(text->chars) - text->n, format, args);
    va_end(args);
    if (text->n >= sizeof(text->chars))
        text->n = sizeof(text->chars) - 1;
}

struct machine {
    const char *name;
    uint8_t inside, between; /* transports */
    bool is_cuda, is_p2p, is_ll128_safe, is_tuned, has_hosts, has_net_lines;
    struct gyre_network network;
};

static const struct machine machines[] = {
    {.name = "host memory", .inside = SHM},
    {.name = "host memory by sockets", .inside = SOCKET},
    {.name = "GPUs with NVLink",
     .inside = P2P,
     .is_cuda = true,
     .is_p2p = true,
     .is_ll128_safe = true},
    {.name = "GPUs with P2P over PCIe", .inside = P2P, .is_cuda = true, .is_p2p = true},
    {.name = "GPUs through host memory", .inside = SHM, .is_cuda = true},
    {.name = "GPUs by sockets", .inside = SOCKET, .is_cuda = true},
    /* From here on choices are predicted. */
    {.name = "host memory, tuning file", .inside = SHM, .is_tuned = true},
    {.name = "host memory over TCP",
     .inside = SHM,
     .between = SOCKET,
     .has_hosts = true,
     .network = {.is_rdma = false, .nic_mbit_per_s = 10000, .latency_ns = 20000}},
    {.name = "host memory over RDMA",
     .inside = SHM,
     .between = IB,
     .has_hosts = true,
     .has_net_lines = true,
     .network = {.is_rdma = true, .nic_mbit_per_s = 100000, .latency_ns = 2000}},
    {.name = "NVLink and RDMA",
     .inside = P2P,
     .between = IB,
     .is_cuda = true,
     .is_ll128_safe = true,
     .has_hosts = true,
     .network = {.is_rdma = true, .nic_mbit_per_s = 400000, .latency_ns = 8000}},
    {.name = "NVLink and TCP",
     .inside = P2P,
     .between = SOCKET,
     .is_cuda = true,
     .is_ll128_safe = true,
     .has_hosts = true,
     .has_net_lines = true,
     .network = {.is_rdma = false, .nic_mbit_per_s = 10000, .latency_ns = 40000}},
};

static const uint8_t machine_of[] = {2, 0, 2, 4, 2, 6, 2, 3, 2, 6, 2, 4, 2, 5, 2, 1, 4, 6, 3, 0};

static const uint16_t one_host[] = {1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4, 5, 6, 7, 8, 8, 9, 16, 32, 64};
static const uint8_t several_hosts[][5] = {{1, 1},    {1, 1},    {2, 2}, {1, 2, 3},
                                           {1, 1, 1}, {2, 2, 2}, {3, 3}};

static const char *const settings[] = {
    "GYRE_ALGO=ring",
    "GYRE_ALGO=^ring",
    "GYRE_ALGO=direct,twoshot",
    "GYRE_ALGO=all_reduce:tree;broadcast:^tree",
    "GYRE_ALGO=spread,ring",
    "GYRE_ALGO=halving,doubling",
    "GYRE_ALGO=two_level_ring",
    "NCCL_ALGO=Tree",
    "NCCL_PROTO=LL,LL128",
    "GYRE_PROTO=simple",
    "GYRE_PROTO=ll",
    "GYRE_PROTO=^lamport",
    "GYRE_PROTO=^ll128",
    "GYRE_PROTO=^simple",
    "GYRE_PROTO=ll128,lamport/simple",
    "GYRE_PROTO=/ll",
    "GYRE_PATH=staged",
    "GYRE_PATH=placed",
    "GYRE_PATH=copy_engine",
    "GYRE_PATH=^copy_engine",
    "GYRE_BUFFSIZE=262144",
    "GYRE_BUFFSIZE=4194304",
};

static struct {
    const struct machine *machine;
    struct gyre_rank self;
    struct gyre_links links;
    uint8_t transport_of[MAX_GOLDEN_RANKS];
    uint8_t is_far[MAX_GOLDEN_RANKS];
    struct gyre_plan_cache *cache;
    uint32_t n_sms, most_shared_bytes;
    struct text words;
} block;

/* Of two and four ranks: built-in algorithms' own, and a ring in another order. */
static struct gyre_algo_file file;

static void write_programs(FILE *to, const struct gyre_algorithm *algorithm,
                           struct gyre_shape shape, const char *name)
{
    struct gyre_program **programs = emit_all(algorithm, &shape);
    for (int rank = 0; rank < shape.n_ranks; rank++) {
        char *text = NULL;
        snprintf(programs[rank]->algorithm, sizeof(programs[rank]->algorithm), "%s", name);
        CHECK_OK(gyre_program_to_text(programs[rank], &text));
        fputs(text, to);
        free(text);
    }
    free_programs(programs, shape.n_ranks);
}

static void load_file(void)
{
    static const struct gyre_grouping crossed = {.n_hosts = 2, .host_of = {0, 1, 0, 1}};
    char path[] = "/tmp/gyre_test_golden_XXXXXX";
    FILE *to = fdopen(mkstemp(path), "w");
    for (uint16_t n = 2; n <= 4; n += 2) {
        struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = n};
        write_programs(to, &gyre_algorithm_tree, shape, "mine");
        shape.coll = GYRE_COLL_BROADCAST;
        write_programs(to, &gyre_algorithm_ring, shape, "chained");
        shape.coll = GYRE_COLL_REDUCE_SCATTER;
        shape.grouping = n == 4 ? &crossed : NULL;
        write_programs(to, &gyre_algorithm_ring, shape, "crossed");
        shape.coll = GYRE_COLL_REDUCE;
        write_programs(to, &gyre_algorithm_tree, shape, "branched");
        shape = (struct gyre_shape){.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = n, .is_placed = true};
        write_programs(to, &gyre_algorithm_spread, shape, "laid");
    }
    fclose(to);
    CHECK_OK(gyre_algo_file_load(path, "GYRE_ALGO_FILE", &file));
    unlink(path);
    snprintf(file.name, sizeof(file.name), "GYRE_ALGO_FILE");
}

static void group_ranks(void)
{
    struct gyre_grouping *grouping = &block.links.grouping;
    int n_ranks = 0;
    if (!block.machine->has_hosts) {
        grouping->n_hosts = 1;
        n_ranks = block.machine->is_tuned ? 2 + (int)roll(7) : PICK(one_host);
    } else {
        const uint8_t *sizes = PICK(several_hosts);
        for (; sizes[grouping->n_hosts] > 0; grouping->n_hosts++)
            for (int i = 0; i < sizes[grouping->n_hosts]; i++)
                grouping->host_of[n_ranks++] = grouping->n_hosts;
    }
    block.self.n_ranks = n_ranks;
    block.self.rank = (int)roll((uint32_t)n_ranks);
    add(&block.words, "%s, rank %d of %d on %u host%s", block.machine->name, block.self.rank,
        n_ranks, grouping->n_hosts, grouping->n_hosts > 1 ? "s" : "");
}

static void limit_channels(void)
{
    static const uint32_t sms[] = {132, 132, 132, 132, 114, 78, 148, 124, 48, 16};
    static const int most[] = {0, 0, 0, 0, 0, 0, 0, 64, 63, 48, 47, 32, 31, 16, 15, 8, 1};
    gyre_config *config = &block.self.config;
    const uint32_t n_sharers = roll(16) == 0 ? 2 + 2 * roll(2) : 1;
    block.n_sms = PICK(sms) / n_sharers;
    block.most_shared_bytes = roll(4) == 0 ? 48 << 10 : 227 << 10;
    config->max_channels = PICK(most);
    config->min_channels = roll(6) == 0 && config->max_channels != 1 ? 2 : 0;
    config->sm_budget = n_sharers > 1 ? (int)block.n_sms / 4 : roll(16) == 0 ? 24 : 0;
    add(&block.words, ", channels %d..%d", config->min_channels, config->max_channels);
    if (block.machine->is_cuda)
        add(&block.words, ", %u multiprocessors, budget %d, %u B shared", block.n_sms,
            config->sm_budget, block.most_shared_bytes);
    else
        config->sm_budget = 0;
}

static void link_ranks(void)
{
    const struct machine *machine = block.machine;
    struct gyre_links *links = &block.links;
    const gyre_device_kind kind = machine->is_cuda ? GYRE_DEVICE_CUDA : GYRE_DEVICE_HOST;
    const uint32_t n_ranks = (uint32_t)block.self.n_ranks;
    const bool is_proxied_inside = machine->inside == SOCKET;
    const uint64_t buffer_bytes = (uint64_t)gyre_max_u64(
        0, (uint64_t)gyre_param_number(&block.self.params, GYRE_PARAM_BUFFSIZE));
    const uint32_t max_channels = gyre_rank_max_channels(&block.self);
    struct gyre_peer_counts peers;
    block.self.device_info.kind = (uint32_t)kind;
    links->transport_of = block.transport_of;
    links->is_far = block.is_far;
    for (uint32_t r = 0; r < n_ranks; r++)
        block.transport_of[r] =
            links->grouping.host_of[r] == links->grouping.host_of[block.self.rank]
                ? machine->inside
                : machine->between;
    links->is_proxied = machine->has_hosts || (is_proxied_inside && n_ranks > 1);
    links->is_proxied_inside = is_proxied_inside;
    links->uses_rdma = machine->between == IB;
    links->is_p2p = machine->is_p2p;
    links->is_ll128_safe =
        machine->is_ll128_safe && (!machine->has_hosts || links->grouping.n_hosts < n_ranks);
    links->least_sms = machine->is_cuda ? block.n_sms : 0;
    links->network = machine->network;
    CHECK_OK(gyre_near_peers_count(&links->grouping, n_ranks, &peers));
    if (!machine->has_hosts) {
        links->spec =
            gyre_tuner_fifo_spec(kind, n_ranks, links->is_proxied, buffer_bytes, max_channels);
        return;
    }
    CHECK_OK(gyre_near_peers_find(&links->grouping, n_ranks, block.self.rank, links->is_far));
    links->spec = gyre_tuner_fifo_spec_across(kind, &peers, false, links->uses_rdma, buffer_bytes,
                                              max_channels);
    if (machine->has_net_lines || (machine->is_cuda && n_ranks == 2))
        gyre_fifo_spec_add_net_lines(&links->spec, kind, &peers, false);
}

static void change_settings(bool has_file)
{
    const uint32_t kind = roll(12);
    const struct gyre_filter_words words = {.algos = "direct,ring", .algo_source = "--algo"};
    if (kind == 0) {
        struct gyre_choice forced = {.algorithm = gyre_algorithms[roll(5)]};
        forced.proto = (enum gyre_proto)(block.machine->is_cuda ? roll(GYRE_N_PROTOS) : 0);
        forced.path = (enum gyre_path)roll(2);
        forced.n_channels = roll(3) * 8;
        forced.tile_bytes = roll(3) * 4096;
        gyre_plan_force(block.cache, &forced);
        add(&block.words, ", forced %s %s %s x%u of %u", forced.algorithm->name,
            gyre_proto_names[forced.proto], gyre_path_names[forced.path], forced.n_channels,
            forced.tile_bytes);
    } else if (kind == 1) {
        CHECK_OK(gyre_plan_restrict(block.cache, &words));
        add(&block.words, ", --algo direct,ring");
        if (has_file && roll(2) == 0) {
            gyre_plan_resume_file(block.cache);
            add(&block.words, " and the file again");
        }
    }
}

static void open_block(int number)
{
    static const struct gyre_windows no_windows;
    static const struct gyre_algo_file no_file;
    static const struct gyre_tuning no_tuning;
    static struct gyre_tuning tuning = {.is_set = true}; /* plans refer to it */
    memset(&block, 0, sizeof(block));
    tuning.cost = gyre_cost_host;
    dice = (uint64_t)number << 32;
    const uint32_t kind = machine_of[(size_t)number % sizeof(machine_of)];
    block.machine = &machines[kind < 6 ? kind : 6 + roll(5)];
    group_ranks();
    char *environment[3] = {NULL, NULL, NULL};
    for (uint32_t i = roll(5) < 2 ? 1 + roll(2) : 0, n = 0; n < i; n++) {
        environment[n] = (char *)(uintptr_t)PICK(settings);
        add(&block.words, ", %s", environment[n]);
    }
    CHECK_OK(gyre_params_from(environment, &block.self.params));
    limit_channels();
    link_ranks();
    const bool has_file = roll(5) == 0 && (block.self.n_ranks == 2 || block.self.n_ranks == 4);
    const struct gyre_plan_config config = {
        .self = &block.self,
        .links = &block.links,
        .windows = &no_windows,
        .tuning = block.machine->is_tuned ? &tuning : &no_tuning,
        .algo_file = has_file ? &file : &no_file,
    };
    if (has_file)
        add(&block.words, ", file");
    struct gyre_plan_cache *cache = calloc(1, sizeof(*cache));
    const gyre_status status = gyre_plan_cache_open(&config, cache);
    if (status == GYRE_SUCCESS)
        block.cache = cache;
    else
        free(cache);
    if (status != GYRE_SUCCESS) /* the communicator lacks the file's lanes */
        add(&block.words, ", refused: %s", gyre_status_name(status));
    else
        change_settings(has_file);
}

/* What a launch depends on besides the call. */
struct launch_facts {
    bool in_place, is_recorded;
    uint32_t misaligned_bytes;
};

static const uint64_t edges[] = {
    512,       1 << 10,  2 << 10,   4 << 10,   8 << 10,   16 << 10,  32 << 10,  64 << 10,
    80 << 10,  96 << 10, 112 << 10, 128 << 10, 160 << 10, 192 << 10, 256 << 10, 448 << 10,
    512 << 10, 1 << 20,  2 << 20,   3 << 20,   4 << 20,   5 << 20,   6 << 20,   8 << 20,
    9 << 20,   12 << 20, 13 << 20,  16 << 20,  20 << 20,  24 << 20,  32 << 20,  48 << 20,
    64 << 20,  96 << 20, 192 << 20, 384 << 20, 768 << 20, 1 << 30};

static uint64_t roll_count(const struct gyre_call *call)
{
    const uint32_t element = gyre_dtype_bytes(call->dtype);
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    const uint64_t n_blocks =
        traits->in_blocks || traits->out_blocks ? (uint64_t)block.self.n_ranks : 1;
    const uint32_t change = roll(4), zero = roll(64);
    uint64_t n_bytes = PICK(edges) / n_blocks;
    if (block.cache->facts.cost != NULL && call->coll != GYRE_COLL_SEND_RECV)
        n_bytes = (uint64_t)1 << (6 + (block.self.n_ranks == 2 ? roll(21) : roll(6) * 4));
    else if (roll(2) == 0) {
        const uint32_t n_eighths = 8 + roll(8), shift = 3 + roll(28);
        n_bytes = ((uint64_t)1 << shift) * n_eighths / 8;
    }
    return zero == 0 ? 0 : n_bytes / element + (change == 0) - (change == 1 && n_bytes > 64);
}

static struct gyre_call roll_call(struct launch_facts *launch)
{
    static const struct gyre_window_entry small_pages, large_pages = {.has_large_pages = true};
    static const gyre_op ops[] = {GYRE_SUM, GYRE_SUM, GYRE_SUM, GYRE_SUM,
                                  GYRE_SUM, GYRE_AVG, GYRE_MAX, (gyre_op)GYRE_FIRST_USER_OP};
    static const gyre_dtype dtypes[] = {GYRE_FLOAT32, GYRE_FLOAT32, GYRE_FLOAT32, GYRE_BFLOAT16,
                                        GYRE_INT8,    GYRE_INT32,   GYRE_FLOAT64, GYRE_FLOAT8_E4M3};
    const bool is_predicted = block.cache->facts.cost != NULL;
    const uint32_t coll = roll(GYRE_N_COLLECTIVES + 2);
    struct gyre_call call = {.root = -1};
    call.coll = coll < GYRE_N_COLLECTIVES ? (enum gyre_collective)coll : GYRE_COLL_ALL_REDUCE;
    call.op = PICK(ops);
    call.dtype = is_predicted ? GYRE_FLOAT32 : PICK(dtypes);
    call.count = roll_count(&call);
    if (gyre_collectives[call.coll].has_root)
        call.root = (int)roll((uint32_t)block.self.n_ranks);
    call.is_send = call.coll == GYRE_COLL_SEND_RECV && roll(2) == 0;
    const bool may_lie_in_window =
        call.coll == GYRE_COLL_ALL_REDUCE || call.coll == GYRE_COLL_ALL_GATHER ||
        call.coll == GYRE_COLL_ALL_TO_ALL || call.coll == GYRE_COLL_BROADCAST;
    if (may_lie_in_window && !block.links.is_proxied && roll(2) == 0)
        call.window = roll(4) == 0 ? &small_pages : &large_pages;
    if (roll(is_predicted ? 32 : 6) == 0) {
        const uint32_t n_algorithms = roll(2), first = roll(13), second = roll(4);
        const uint32_t n_protos = roll(2), first_proto = roll(4), second_proto = roll(4);
        const uint32_t n_least = roll(2), least = roll(3), n_most = roll(2), most = 16 + roll(49);
        call.options.algorithms = n_algorithms * (1U << first | 1U << second);
        call.options.protos = n_protos * (1U << first_proto | 1U << second_proto);
        call.options.min_channels = (uint8_t)(n_least * least);
        call.options.max_channels = (uint8_t)(n_most * most);
    }
    *launch = (struct launch_facts){.in_place = roll(4) == 0};
    launch->is_recorded = roll(8) == 0;
    launch->misaligned_bytes = roll(3) == 0 ? 1 + roll(15) : 0;
    return call;
}

static void describe_call(const struct gyre_call *call, const struct launch_facts *launch,
                          struct text *text)
{
    const struct gyre_call_options *options = &call->options;
    add(text, "%s of %" PRIu64 " %s", gyre_collectives[call->coll].name, call->count,
        gyre_dtype_names[call->dtype]);
    if (gyre_collectives[call->coll].reduces)
        add(text, ", %s", call->op < GYRE_N_OPS ? gyre_op_names[call->op] : "own operator");
    if (call->coll == GYRE_COLL_SEND_RECV)
        add(text, call->is_send ? " to %d" : " from %d", call->root);
    else if (call->root >= 0)
        add(text, ", root %d", call->root);
    if (call->window != NULL)
        add(text, ", window%s", call->window->has_large_pages ? "" : " of small pages");
    if (gyre_call_options_any(options))
        add(text, ", own terms %x %x %u..%u", options->algorithms, options->protos,
            options->min_channels, options->max_channels);
    if (block.machine->is_cuda)
        add(text, "%s%s, addresses + %u", launch->in_place ? ", in place" : "",
            launch->is_recorded ? ", recorded" : "", launch->misaligned_bytes);
}

static void add_fused(struct text *text, const struct gyre_fused_call *call)
{
    struct gyre_run run;
    gyre_kernel_choose(call, &run);
    if (run.kernel == NULL)
        add(text, "; steps in blocks of %u",
            gyre_cuda_block_threads(call->proto, call->step_bytes, call->n_threads));
    else
        add(text, "; %s%s of %u, %ux%u blocks of %u, %u a peer, unroll %u, %u B", run.kernel,
            run.is_exact ? " exact" : "", gyre_cuda_peers_class(call->n_peers),
            run.places_blocks ? block.n_sms : run.n_blocks, run.n_rows, run.n_threads,
            run.threads_per_peer, run.unroll, run.shared_bytes);
}

static void add_launch(struct text *text, const struct gyre_call *call,
                       const struct launch_facts *launch, const struct gyre_choice *choice,
                       const struct gyre_variants *variants)
{
    const struct gyre_program *program = variants->programs[0];
    const struct gyre_reduction reduction = gyre_call_reduction(call, (uint32_t)block.self.n_ranks);
    const uint32_t element = gyre_dtype_bytes(call->dtype);
    const struct gyre_split split = {
        .count = call->count,
        .n_channels = choice->n_channels,
        .n_chunks = program->n_chunks,
        .tile_elems = gyre_piece_bytes(choice->tile_bytes, program->max_range) / element,
        .unit_elems = 16 / element};
    struct gyre_fused_program found;
    gyre_fused_find(program, &found);
    const uint64_t chunk_elems =
        gyre_div_round_up(split.count, (uint64_t)split.n_channels * split.n_chunks) +
        split.unit_elems;
    const uint64_t step_bytes = gyre_min_u64(chunk_elems, split.tile_elems) * element;
    const uint64_t transferred =
        gyre_div_round_up(split.count, split.n_chunks) * gyre_program_transfers(program) * element;
    struct gyre_fused_call fused = {
        .proto = choice->proto,
        .pattern = found.pattern,
        .is_placed = found.is_placed,
        .in_host_memory = block.cache->facts.in_host_memory,
        .n_peers = found.n_peers,
        .depth = block.links.spec.depth,
        .n_threads = GYRE_CUDA_LINE_THREADS,
        .most_shared_bytes = block.most_shared_bytes,
        .arithmetic = !gyre_fused_patterns[found.pattern].reduces    ? GYRE_FUSED_COPY
                      : gyre_lamport_adds(call->dtype, reduction.op) ? GYRE_FUSED_FLOAT_SUM
                                                                     : GYRE_FUSED_OTHER,
        .is_aligned = launch->misaligned_bytes == 0 && split.count * element % 16 == 0,
        .is_unscaled = reduction.premultiply == 0 && reduction.divisor <= 1,
        .places_blocks = choice->proto == GYRE_PROTO_SIMPLE &&
                         transferred >= gyre_kernel_limits[GYRE_LIMIT_PLACEMENT_BYTES].number,
        .n_channels = choice->n_channels,
        .step_bytes = step_bytes,
        .n_tiles = (uint32_t)gyre_min_u64(gyre_tile_count(&split), UINT32_MAX),
        .fits_two_rows =
            !launch->is_recorded && !launch->in_place && 2 * choice->n_channels <= block.n_sms,
    };
    add(text, ", %u variants of %u workers", variants->n_variants, variants->most_workers);
    if (choice->path == GYRE_PATH_COPY_ENGINE || variants->n_variants > 1 ||
        found.pattern == GYRE_FUSED_NONE || block.links.is_proxied ||
        (gyre_fused_is_message(found.pattern) && launch->is_recorded))
        fused.pattern = GYRE_FUSED_NONE;
    add_fused(text, &fused);
    if (found.pattern == GYRE_FUSED_SEND && fused.pattern != GYRE_FUSED_NONE) {
        fused.pattern = GYRE_FUSED_SEND_RECEIVE;
        add_fused(text, &fused);
    }
}

static void describe_case(int number, int n, struct text *text)
{
    struct launch_facts launch;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    uint16_t rank_of[2];
    dice = (uint64_t)number << 32 | (uint64_t)(n + 1) << 8;
    text->n = 0;
    if (block.cache == NULL) {
        add(text, "none");
        return;
    }
    const struct gyre_call call = roll_call(&launch);
    describe_call(&call, &launch, text);
    const gyre_status status = gyre_plan_choose(block.cache, &call, &choice, &variants, rank_of);
    if (status != GYRE_SUCCESS) {
        add(text, ": %s", gyre_status_name(status));
        return;
    }
    add(text, ": %s %s", choice.algorithm->name, gyre_proto_names[choice.proto]);
    if (block.links.is_proxied)
        add(text, "/%s", gyre_proto_names[choice.net_proto]);
    add(text, " %s, %u channels, tiles of %u B", gyre_path_names[choice.path], choice.n_channels,
        choice.tile_bytes);
    if (block.machine->is_cuda)
        add_launch(text, &call, &launch, &choice, variants);
}

struct line {
    uint64_t hash;
    char digits[N_CASES + 1];
};

static struct line line_of(int number)
{
    struct line line = {.hash = gyre_hash(GYRE_HASH_INIT, block.words.chars, block.words.n)};
    struct text text;
    for (int n = 0; n < N_CASES; n++) {
        describe_case(number, n, &text);
        const uint64_t hash = gyre_hash(GYRE_HASH_INIT, text.chars, text.n);
        line.hash = gyre_hash(line.hash, &hash, sizeof(hash));
        line.digits[n] = digits[(hash ^ hash >> 32) % 64];
    }
    return line;
}

static void close_block(void)
{
    if (block.cache != NULL)
        gyre_plan_cache_close(block.cache);
    free(block.cache);
}

static void explain(int number, const struct line *line, const char *expected)
{
    struct text text;
    int n = 0, n_changed = 0;
    for (int i = N_CASES - 1; i >= 0; i--)
        if (line->digits[i] != expected[i]) {
            n = i;
            n_changed++;
        }
    describe_case(number, n, &text);
    CHECK_MSG(false,
              "communicator %d (%s): %d or more of its %d calls changed; call %d is now %s - see "
              "test_golden --print %d",
              number, block.words.chars, n_changed, N_CASES, n, text.chars, number);
}

TEST_CASE("calls are carried out as golden.txt says")
{
    FILE *golden = fopen(GOLDEN_FILE, "r");
    char expected[N_CASES + 1];
    uint64_t hash;
    CHECK(golden != NULL);
    load_file();
    for (int number = 0; number < N_BLOCKS; number++) {
        CHECK(fscanf(golden, "%" SCNx64 " %256s", &hash, expected) == 2);
        open_block(number);
        const struct line line = line_of(number);
        if (line.hash != hash)
            explain(number, &line, expected);
        close_block();
    }
    fclose(golden);
}

int main(int argc, char **argv)
{
    const bool writes = argc > 1 && strcmp(argv[1], "--write") == 0;
    if (!writes && (argc < 2 || strcmp(argv[1], "--print") != 0))
        return test_main(argc, argv);
    const int first = argc > 2 ? atoi(argv[2]) : 0;
    const int last = argc > 3 ? atoi(argv[3]) : argc > 2 ? first : N_BLOCKS - 1;
    load_file();
    for (int number = first; number <= last; number++) {
        struct text text;
        open_block(number);
        const struct line line = line_of(number);
        if (writes)
            printf("%016" PRIx64 " %s\n", line.hash, line.digits);
        for (int n = 0; n < N_CASES && !writes; n++) {
            describe_case(number, n, &text);
            printf("%d.%d %s: %s\n", number, n, block.words.chars, text.chars);
        }
        close_block();
    }
    return 0;
}
