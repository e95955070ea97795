/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI libraries over the network, one process a host: a message is one slot, with one channel. And
 * one-kernel all-reduces of inference engines.
 */
#include "algorithms/contenders/contender.h"

#include "algorithms/library/library.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <string.h>

/* The last row that fits counts. After Open MPI's fixed rules
 * (ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, 4.1 to 5.0, commutative operations). */
struct rule {
    uint32_t n_ranks; /* from */
    uint32_t n_bytes; /* from */
    const char *algorithm;
};

/* clang-format off */
static const struct rule all_reduce_rules[] = {
    {0, 0, "recursive_doubling"}, {0, 16384, "ring"}, {0, 262144, "rabenseifner"},
    {4, 0, "recursive_doubling"}, {4, 8192, "rabenseifner"},
    {16, 0, "recursive_doubling"}, {16, 4096, "rabenseifner"},
    {32, 0, "ring"}, {32, 128, "rabenseifner"},
    {64, 0, "recursive_doubling"}, {64, 262144, "rabenseifner"},
    {128, 0, "nonoverlapping"}, {128, 131072, "recursive_doubling"}, {128, 262144, "rabenseifner"},
    {256, 0, "nonoverlapping"}, {256, 4096, "rabenseifner"},
    {512, 0, "nonoverlapping"}, {512, 2048, "recursive_doubling"}, {512, 16384, "rabenseifner"},
};

/* Longer words stand first. */
static const struct {
    const char *word;
    const struct gyre_algorithm *algorithm;
} names[] = {
    {"recursive_doubling", &gyre_algorithm_doubling}, /* of all-gather: halving */
    {"recursive_halving", &gyre_algorithm_halving},
    {"rabenseifner", &gyre_algorithm_halving},
    {"butterfly", &gyre_algorithm_halving},
    {"segmented_ring", &gyre_algorithm_ring},
    {"scatter_allgather", &gyre_algorithm_twoshot},
    {"scatter_all", &gyre_algorithm_twoshot},
    {"ring", &gyre_algorithm_ring},
    {"chain", &gyre_algorithm_ring},
    {"pipeline", &gyre_algorithm_ring},
    {"modified_bruck", &gyre_algorithm_bruck},
    {"k_bruck", &gyre_algorithm_bruck},
    {"bruck", &gyre_algorithm_bruck},
    {"pairwise", &gyre_algorithm_direct},
    {"basic_linear", &gyre_algorithm_direct},
    {"linear", &gyre_algorithm_direct},
    {"nonoverlapping", &gyre_algorithm_tree},
    {"binomial", &gyre_algorithm_tree},
    {"binary_tree", &gyre_algorithm_tree},
    {"knomial", &gyre_algorithm_tree},
    {"swing", &gyre_algorithm_swing},
    {"bine", &gyre_algorithm_bine},
};
/* clang-format on */

static const struct gyre_algorithm *find(const struct gyre_contender_call *call, const char *word)
{
    const struct gyre_algorithm *found = gyre_algorithm_find(word);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(names); i++)
        if (gyre_text_same_n(word, names[i].word, strlen(names[i].word))) {
            found = names[i].algorithm;
            break;
        }
    if (found == &gyre_algorithm_doubling && call->coll != GYRE_COLL_ALL_REDUCE)
        found = &gyre_algorithm_halving;
    return found;
}

/* Of a rank. */
static uint64_t message_bytes(const struct gyre_contender_call *call,
                              const struct gyre_algorithm *algorithm)
{
    return algorithm == &gyre_algorithm_ring || algorithm == &gyre_algorithm_direct
               ? call->n_bytes / call->n_ranks
           : algorithm == &gyre_algorithm_halving || algorithm == &gyre_algorithm_bruck
               ? call->n_bytes / 2
               : call->n_bytes;
}

static bool add_way(const struct gyre_contender_machine *machine,
                    const struct gyre_contender_call *call, const char *name,
                    const struct gyre_algorithm *algorithm, struct gyre_contender_way *way_out)
{
    const struct gyre_shape shape = {.coll = call->coll, .n_ranks = (uint16_t)call->n_ranks};
    if (algorithm == NULL || gyre_algorithm_obstacle(algorithm, &shape, NULL) != NULL)
        return false;
    const bool is_eager = message_bytes(call, algorithm) <= machine->eager_bytes;
    *way_out = (struct gyre_contender_way){
        .algorithm = algorithm,
        .name = name,
        .proto = is_eager ? GYRE_PROTO_LL : GYRE_PROTO_SIMPLE,
        .n_channels = 1,
        .tile_bytes = (uint32_t)gyre_min_u64(gyre_max_u64(call->n_bytes, 64), UINT32_MAX / 2),
        .depth = 2,
        .rate_factor = 1,
        .store_factor = 1};
    return true;
}

int gyre_mpi_list(const struct gyre_contender_machine *machine,
                  const struct gyre_contender_call *call, struct gyre_contender_way *ways_out)
{
    const char *word = call->algorithm;
    int n = 0;
    if (word == NULL && call->coll == GYRE_COLL_ALL_REDUCE)
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(all_reduce_rules); i++) {
            const struct rule *rule = &all_reduce_rules[i];
            if (call->n_ranks >= rule->n_ranks && call->n_bytes >= rule->n_bytes)
                word = rule->algorithm;
        }
    if (word != NULL)
        return add_way(machine, call, word, find(call, word), ways_out) ? 1 : 0;
    static const struct gyre_algorithm *const tried[] = {
        &gyre_algorithm_ring,   &gyre_algorithm_halving, &gyre_algorithm_bruck,
        &gyre_algorithm_direct, &gyre_algorithm_tree,    &gyre_algorithm_twoshot};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(tried) && n < GYRE_MPI_MOST_WAYS; i++)
        n += add_way(machine, call, tried[i]->name, tried[i], &ways_out[n]) ? 1 : 0;
    return n;
}

/* vLLM's and SGLang's kernel (custom_all_reduce.cuh): one round for two GPUs and for small vectors,
 * else two; 36 blocks. */
#define ONE_KERNEL_BLOCKS    36
#define ONE_ROUND_OF_4_BYTES 524288
#define ONE_ROUND_BYTES      262144
#define BLOCK_BYTES          8192 /* 512 threads of 16 bytes */

int gyre_one_kernel_list(const struct gyre_contender_call *call,
                         struct gyre_contender_way *ways_out)
{
    const uint64_t most_bytes = call->n_ranks <= 4 ? ONE_ROUND_OF_4_BYTES : ONE_ROUND_BYTES;
    const bool is_one_round =
        call->coll != GYRE_COLL_ALL_REDUCE || call->n_ranks == 2 || call->n_bytes < most_bytes;
    if (call->n_hosts > 1 || !gyre_algorithm_has(&gyre_algorithm_direct, call->coll))
        return 0;
    *ways_out = (struct gyre_contender_way){
        .algorithm = is_one_round ? &gyre_algorithm_direct : &gyre_algorithm_twoshot,
        .name = is_one_round ? "one_round" : "two_rounds",
        .proto = GYRE_PROTO_LAMPORT,
        .n_channels = gyre_clamp_u32(call->n_bytes / BLOCK_BYTES, 1, ONE_KERNEL_BLOCKS),
        .tile_bytes = 1U << 30,
        .depth = 2,
        .rate_factor = 1,
        .store_factor = 1};
    return 1;
}
