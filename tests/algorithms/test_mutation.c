/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/library/library.h"
#include "algorithms/verify/verify.h"
#include "tests/support/check.h"
#include "tests/support/interpret.h"
#include "tests/support/shapes.h"

#define N_INTERLEAVINGS 12

/* X(enum suffix, words) */
#define MUTATION_TABLE(X)                     \
    X(DROP, "drop a step")                    \
    X(DUPLICATE, "duplicate a step")          \
    X(SWAP, "swap two neighbouring steps")    \
    X(MOVE, "move a step")                    \
    X(RETARGET, "trade connections")          \
    X(REPEER, "connect to another rank")      \
    X(RECHUNK, "move another chunk")          \
    X(RESIZE, "move more or fewer chunks")    \
    X(RESPACE, "space chunks differently")    \
    X(REORDER, "swap two inputs")             \
    X(DROP_IN, "drop an input")               \
    X(DROP_OUT, "drop an output")             \
    X(RELOCATE, "use another kind of memory") \
    X(FLIP_FINAL, "flip the final flag")      \
    X(FLIP_NEXT, "flip the with-next flag")   \
    X(DEPTH, "claim another depth")

enum mutation {
#define MUTATION_ENUM(id, words) MUTATION_##id,
    MUTATION_TABLE(MUTATION_ENUM)
#undef MUTATION_ENUM
        N_MUTATIONS
};

static const char *const mutation_names[N_MUTATIONS] = {
#define MUTATION_NAME(id, words) words,
    MUTATION_TABLE(MUTATION_NAME)
#undef MUTATION_NAME
};

struct count {
    long n_made;
    long n_malformed; /* refused by the structural check */
    long n_harmless;  /* nothing shows */
    long n_cautious;  /* of them refused */
    long n_harmful;
    long n_refused; /* of them */
};

static struct count counts[N_MUTATIONS];
static uint64_t random_state = 2024;

static uint32_t pick(uint32_t n)
{
    return (uint32_t)(next_random(&random_state) % n);
}

static struct gyre_worker *worker_of(struct gyre_program *p, uint32_t step)
{
    struct gyre_worker *worker = p->workers;
    while (step >= worker->first_step + worker->n_steps)
        worker++;
    return worker;
}

/* And move the workers behind the step. */
static void resize(struct gyre_program *p, uint32_t at, int change)
{
    struct gyre_worker *worker = worker_of(p, at);
    struct gyre_step *steps = realloc(p->steps, (p->n_steps + 1) * sizeof(*steps));
    if (steps == NULL)
        exit(1);
    p->steps = steps;
    if (change > 0)
        memmove(&steps[at + 1], &steps[at], (p->n_steps - at) * sizeof(*steps));
    else
        memmove(&steps[at], &steps[at + 1], (p->n_steps - at - 1) * sizeof(*steps));
    p->n_steps += (uint32_t)change;
    worker->n_steps += (uint32_t)change;
    for (struct gyre_worker *later = worker + 1; later < p->workers + p->n_workers; later++)
        later->first_step += (uint32_t)change;
}

static struct gyre_operand *pick_operand(struct gyre_step *step)
{
    const uint32_t i = pick((uint32_t)step->n_ins + step->n_outs);
    return i < step->n_ins ? &step->ins[i] : &step->outs[i - step->n_ins];
}

static void drop_operand(struct gyre_operand *operands, uint8_t *n)
{
    const uint32_t i = pick(*n);
    memmove(&operands[i], &operands[i + 1], (*n - i - 1U) * sizeof(*operands));
    (*n)--;
}

static bool move_step(struct gyre_program *p, uint32_t from, bool to_neighbour)
{
    const struct gyre_worker *worker = worker_of(p, from);
    if (worker->n_steps < 2)
        return false;
    uint32_t to = worker->first_step + pick(worker->n_steps);
    if (to_neighbour)
        to = from + 1 < worker->first_step + worker->n_steps ? from + 1 : from - 1;
    if (to == from)
        return false;
    const struct gyre_step step = p->steps[from];
    if (to > from)
        memmove(&p->steps[from], &p->steps[from + 1], (to - from) * sizeof(step));
    else
        memmove(&p->steps[to + 1], &p->steps[to], (from - to) * sizeof(step));
    p->steps[to] = step;
    return true;
}

static bool rechunk(const struct gyre_program *p, struct gyre_step *step)
{
    const uint32_t n_in = gyre_program_n_parts(p, GYRE_OPERAND_IN);
    const uint32_t n_out = gyre_program_n_parts(p, GYRE_OPERAND_OUT);
    const uint16_t chunk = (uint16_t)pick(n_in > n_out ? n_in : n_out);
    if (chunk == step->chunk)
        return false;
    for (unsigned i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_IN ? chunk < n_in
                                                 : step->ins[i].kind == GYRE_OPERAND_OUT)
            step->ins[i].index = chunk;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_OUT && chunk < n_out)
            step->outs[i].index = chunk;
    step->chunk = chunk;
    return true;
}

static bool exchange(struct gyre_program *p, struct gyre_operand *operand)
{
    struct gyre_operand *other = pick_operand(&p->steps[pick(p->n_steps)]);
    if (operand->kind != GYRE_OPERAND_CONNECTION || other->kind != GYRE_OPERAND_CONNECTION)
        return false;
    const uint16_t index = operand->index;
    operand->index = other->index;
    other->index = index;
    return true;
}

/* False: this kind does not fit. */
static bool mutate(struct gyre_program *p, enum mutation mutation)
{
    if (p->n_steps == 0)
        return false;
    const uint32_t at = pick(p->n_steps);
    struct gyre_step *step = &p->steps[at];
    struct gyre_operand *operand = pick_operand(step);
    switch (mutation) {
    case MUTATION_DROP:
        if (worker_of(p, at)->n_steps < 2)
            return false;
        resize(p, at, -1);
        return true;
    case MUTATION_DUPLICATE: {
        const struct gyre_step copy = *step;
        resize(p, at, 1);
        p->steps[at] = copy;
        return true;
    }
    case MUTATION_SWAP:
    case MUTATION_MOVE:
        return move_step(p, at, mutation == MUTATION_SWAP);
    case MUTATION_RETARGET:
        return exchange(p, operand);
    case MUTATION_REPEER:
        if (p->n_connections == 0)
            return false;
        p->connections[pick(p->n_connections)].peer = (uint16_t)pick(p->n_ranks);
        return true;
    case MUTATION_RECHUNK:
        return rechunk(p, step);
    case MUTATION_RESIZE:
        step->n_chunks = (uint16_t)(1 + pick(p->max_range));
        if (step->n_chunks == 1)
            step->run = step->stride = 0;
        return p->max_range > 1;
    case MUTATION_RESPACE:
        step->stride = (uint16_t)pick(9);
        step->run = step->stride == 0 ? 0 : (uint16_t)(1 + pick(4));
        return step->n_chunks > 1;
    case MUTATION_REORDER: {
        if (step->n_ins < 2)
            return false;
        const uint32_t i = pick(step->n_ins - 1U);
        const struct gyre_operand first = step->ins[i];
        step->ins[i] = step->ins[i + 1];
        step->ins[i + 1] = first;
        return true;
    }
    case MUTATION_DROP_IN:
        drop_operand(step->ins, &step->n_ins);
        return true;
    case MUTATION_DROP_OUT:
        if (step->n_outs == 0)
            return false;
        drop_operand(step->outs, &step->n_outs);
        return true;
    case MUTATION_RELOCATE:
        if (operand->kind == GYRE_OPERAND_CONNECTION)
            return false;
        operand->kind = (uint8_t)pick(GYRE_OPERAND_CONNECTION);
        return true;
    case MUTATION_FLIP_FINAL:
        step->flags ^= GYRE_STEP_FINAL;
        return true;
    case MUTATION_FLIP_NEXT:
        step->flags ^= GYRE_STEP_WITH_NEXT;
        return true;
    default:
        p->min_depth = (uint16_t)(1 + pick(3));
        return true;
    }
}

/* Does any interleaving show a difference? */
static bool is_harmful(struct gyre_program *const *programs, bool in_place)
{
    for (int i = 0; i < N_INTERLEAVINGS; i++) {
        uint32_t depth = programs[0]->min_depth;
        for (int rank = 1; rank < programs[0]->n_ranks; rank++)
            if (programs[rank]->min_depth < depth)
                depth = programs[rank]->min_depth;
        const struct interpret_options options = {in_place, depth, 4, next_random(&random_state)};
        if (interpret(programs, &options) != INTERPRET_RIGHT)
            return true;
    }
    return false;
}

static void judge(struct gyre_program *const *programs, enum mutation mutation, int victim,
                  const struct gyre_program *original)
{
    struct count *count = &counts[mutation];
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        const bool refused = gyre_verify((const struct gyre_program *const *)programs,
                                         programs[0]->n_ranks, &options, &report) != GYRE_SUCCESS;
        if (!is_harmful(programs, in_place == 1)) {
            count->n_harmless++;
            count->n_cautious += refused;
            continue;
        }
        count->n_harmful++;
        count->n_refused += refused;
        if (refused)
            continue;
        char *before = NULL, *after = NULL;
        printf("survivor: %s in rank %d, %s\n", mutation_names[mutation], victim,
               in_place == 1 ? "in place" : "out of place");
        if (gyre_program_to_text(original, &before) == GYRE_SUCCESS &&
            gyre_program_to_text(programs[victim], &after) == GYRE_SUCCESS)
            printf("%s became %s", before, after);
        free(before);
        free(after);
    }
}

static void mutate_shape(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                         int n_each)
{
    struct gyre_program **programs = emit_all(algorithm, shape);
    CHECK_MSG(programs != NULL, "%s", gyre_cause());
    if (programs == NULL)
        return;
    CHECK_MSG(!is_harmful(programs, false) && !is_harmful(programs, true),
              "%s %s of %u ranks: the interpreter finds the program itself wrong", algorithm->name,
              gyre_collectives[shape->coll].name, shape->n_ranks);
    for (int i = 0; i < n_each * N_MUTATIONS; i++) {
        const enum mutation mutation = (enum mutation)(i % N_MUTATIONS);
        const int victim = (int)pick(shape->n_ranks);
        struct gyre_program *original = programs[victim], *mutant = NULL;
        CHECK_OK(gyre_program_clone(original, &mutant));
        if (mutant == NULL)
            break;
        if (mutate(mutant, mutation) && gyre_program_hash(mutant) != gyre_program_hash(original)) {
            counts[mutation].n_made++;
            programs[victim] = mutant;
            if (gyre_program_check(mutant) != GYRE_SUCCESS)
                counts[mutation].n_malformed++;
            else
                judge(programs, mutation, victim, original);
            programs[victim] = original;
        }
        gyre_program_free(mutant);
    }
    free_programs(programs, shape->n_ranks);
}

static void mutate_all_shapes(int n_each)
{
    static const int n_ranks_of[] = {2, 3, 4, 5, 10};
    struct gyre_grouping storage;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
            const enum gyre_collective coll = (enum gyre_collective)c;
            if (!gyre_algorithm_has(gyre_algorithms[a], coll))
                continue;
            /* Each piece takes time to judge. */
            const struct gyre_ability can = ability_of(gyre_algorithms[a], c, 2);
            const int n_here = can.ranges ? (n_each + 3) / 4 : n_each;
            for (size_t i = 0; i < sizeof(n_ranks_of) / sizeof(n_ranks_of[0]); i++) {
                const int n = n_ranks_of[i];
                if (coll == GYRE_COLL_SEND_RECV && n > 2)
                    continue;
                struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)n};
                shape.root = (uint16_t)(gyre_collectives[coll].has_root ? n / 2 : 0);
                mutate_shape(gyre_algorithms[a], &shape, n_here);
                shape.is_placed = can.places;
                if (shape.is_placed)
                    mutate_shape(gyre_algorithms[a], &shape, n_here);
                shape.is_placed = false;
                if (gyre_algorithms[a]->n_variants == NULL || n < 5)
                    continue;
                shape.grouping = make_grouping(4, shape.n_ranks, &storage);
                shape.variant = (uint16_t)(gyre_algorithm_variants(gyre_algorithms[a], &shape) - 1);
                mutate_shape(gyre_algorithms[a], &shape, n_here);
            }
        }
}

static void mutate_library(int n_each)
{
    static const int n_ranks_of[] = {2, 3, 4, 6, 8};
    for (int a = 0; gyre_library[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++)
            for (size_t i = 0; i < sizeof(n_ranks_of) / sizeof(n_ranks_of[0]); i++) {
                struct gyre_shape shape = {.coll = (enum gyre_collective)c,
                                           .n_ranks = (uint16_t)n_ranks_of[i]};
                struct gyre_ability can;
                if (gyre_algorithm_obstacle(gyre_library[a], &shape, &can) != NULL)
                    continue;
                shape.root = (uint16_t)(gyre_collectives[c].has_root ? shape.n_ranks / 2 : 0);
                mutate_shape(gyre_library[a], &shape, n_each);
                for (int most = 1; can.ranges && most < 3; most++) { /* cut */
                    shape.most_range = (uint16_t)most;
                    mutate_shape(gyre_library[a], &shape, (n_each + 1) / 2);
                }
            }
}

static void mutate_cuts(int n_each)
{
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++)
            for (int n = 4; n <= 7; n++) {
                struct gyre_shape shape = {.coll = (enum gyre_collective)c, .n_ranks = (uint16_t)n};
                if (!ability_of(gyre_algorithms[a], c, shape.n_ranks).ranges)
                    continue;
                for (int most = 1; most < 3; most++) {
                    shape.most_range = (uint16_t)most;
                    mutate_shape(gyre_algorithms[a], &shape, n_each);
                }
            }
}

static void check_counts(void)
{
    struct count all = {0};
    printf("%-28s %7s %9s %8s %8s %9s %8s\n", "mutation", "made", "malformed", "harmful", "refused",
           "harmless", "refused");
    for (int i = 0; i < N_MUTATIONS; i++) {
        const struct count *count = &counts[i];
        printf("%-28s %7ld %9ld %8ld %8ld %9ld %8ld\n", mutation_names[i], count->n_made,
               count->n_malformed, count->n_harmful, count->n_refused, count->n_harmless,
               count->n_cautious);
        all.n_made += count->n_made;
        all.n_malformed += count->n_malformed;
        all.n_harmful += count->n_harmful;
        all.n_refused += count->n_refused;
        all.n_harmless += count->n_harmless;
        all.n_cautious += count->n_cautious;
    }
    printf("mutants: %ld, malformed %ld; runs in and out of place: harmful %ld, refused %ld "
           "(%.2f%%); harmless %ld, refused all the same %ld\n",
           all.n_made, all.n_malformed, all.n_harmful, all.n_refused,
           100.0 * (double)all.n_refused / (double)all.n_harmful, all.n_harmless, all.n_cautious);
    CHECK(all.n_harmful > 0);
    CHECK(all.n_refused * 100 >= all.n_harmful * 99);
}

TEST_CASE("the verifier refuses at least 99% of the mutants that show")
{
    mutate_all_shapes(getenv("TEST_FEW") != NULL ? 16 : 64);
    check_counts();
}

TEST_CASE("so it does with the library's programs, and with ranges that were cut")
{
    const char *n_each = getenv("TEST_MUTANTS"); /* of each kind and shape */
    const int n = n_each != NULL ? atoi(n_each) : getenv("TEST_FEW") != NULL ? 1 : 4;
    mutate_library(n);
    mutate_cuts(n);
    check_counts();
}
