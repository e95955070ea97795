/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of one connection that survives its NICs (docs/failover.md has the protocol and its
 * words). It explores every interleaving of two sides, their rails, and the health link's messages,
 * with a bounded number of failures.
 *
 *   failover_model           the protocol must hold, and each mutant must be found
 *   failover_model MUTANT    one mutant, with the steps to what it breaks
 *
 * Each slot has N_PARTS parts, one for each rail, and DEPTH places. A place holds the number of the
 * slot whose bytes were written last. A slot must be consumed with its own bytes, in order and
 * once; no state without a next step has a rail up and a slot that was not consumed; no sequence of
 * steps comes back to a state, so every sequence ends; failures and returns bound the number of
 * epochs.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SLOTS = 4, DEPTH = 2, N_PARTS = 2, N_RAILS = 2, MAX_PACKETS = 16, MAX_MESSAGES = 5 };
enum { SENDER, RECEIVER, NO_SLOT = 0xff };

/* PARKED is HALTED without a common rail. Steps in a message have this order. */
enum side_state { PARKED, HALTED, MADE, UP, RUN };

enum mutant {
    NO_MUTANT,
    NO_FENCE,
    EARLY_RELEASE,
    KEPT_PARTS,
    LATE_ARRIVALS,
    EARLY_POST,
    LATER_RETURNED,
    EVENTS_ONLY,
    NO_REPEAT,
    NO_ANSWER,
    NO_PROBE,
    N_MUTANTS
};

static const struct {
    const char *name;
    const char *words;
} mutants[N_MUTANTS] = {
    [NO_FENCE] = {"no_fence", "queue pairs of an older epoch still write"},
    [EARLY_RELEASE] = {"early_release", "a slot returns to its executor when the NIC acknowledges"},
    [KEPT_PARTS] = {"kept_parts", "parts of a slot are counted across epochs"},
    [LATE_ARRIVALS] = {"late_arrivals", "slots count as arrived after HALTED was said"},
    [EARLY_POST] = {"early_post", "slots are posted before the peer says UP"},
    [LATER_RETURNED] = {"later_returned", "`returned` is a later head than the one reported"},
    [EVENTS_ONLY] = {"events_only", "a request that fails without a port event is no alarm"},
    [NO_REPEAT] = {"no_repeat", "a STATE that was lost is not sent again"},
    [NO_ANSWER] = {"no_answer", "a repeated STATE is not answered"},
    [NO_PROBE] = {"no_probe", "a rail is taken again though nothing answers over it"},
};

struct message {
    uint8_t epoch, step;
    uint8_t seen; /* the receiver's step, as known here */
    uint8_t rails, arrived, head;
};

struct side {
    uint8_t state, epoch;
    uint8_t rails;       /* known as usable; a bit each */
    uint8_t failed;      /* with a failed request, not noticed yet */
    struct message told; /* frozen at HALTED, but for step and seen */
    uint8_t peer_step;   /* in this epoch; 0 = it has said nothing */
    uint8_t peer_rails, peer_arrived, peer_head;
    uint8_t set; /* the rails of this epoch's queue pairs */
};

struct packet {
    uint8_t epoch, slot, part, content;
};

struct state {
    struct side sides[2];
    uint8_t posted, acknowledged, credit;                   /* of the sender */
    uint8_t arrived, consumed, returned, parts_seen[DEPTH]; /* of the receiver */
    uint8_t places[DEPTH][N_PARTS];
    uint8_t rails_up;
    uint8_t failures_left, returns_left, losses_left, repeats_left;
    uint8_t credit_value, credit_epoch, credit_rail; /* the credit under way; value 0 = none */
    uint8_t n_packets[N_RAILS], n_messages[2];
    struct packet packets[N_RAILS][MAX_PACKETS];
    struct message messages[2][MAX_MESSAGES]; /* to that side */
};

struct limits {
    uint8_t failures, returns, losses, repeats;
};

/* ---- the search ------------------------------------------------------------------------------ */

/* Depth first. A popped entry stays, open, below its successors. */
struct entry {
    struct state state;
    const char *step;
    bool is_open;
};

static struct {
    enum mutant mutant;
    struct entry *stack;
    size_t n_stack, max_stack;
    int max_epoch;
    uint64_t *table; /* fingerprint << 1 | is open; 0 = free */
    size_t table_size, n_states, n_steps;
    const char *wrong; /* NULL = nothing so far */
} search;

static uint64_t fingerprint(const struct state *state)
{
    const unsigned char *bytes = (const unsigned char *)state;
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (size_t i = 0; i < sizeof(*state); i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, sizeof(*state) - i < 8 ? sizeof(*state) - i : 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
        hash ^= hash >> 32;
    }
    return hash << 1 | 2;
}

static uint64_t *find(uint64_t print)
{
    size_t at = (size_t)(print * 0x9e3779b97f4a7c15ULL >> 20) % search.table_size;
    while (search.table[at] != 0 && (search.table[at] | 1) != (print | 1))
        at = (at + 1) % search.table_size;
    return &search.table[at];
}

static void grow_table(void)
{
    uint64_t *old = search.table;
    const size_t n_old = search.table_size;
    search.table_size = n_old == 0 ? 1 << 18 : 4 * n_old;
    search.table = calloc(search.table_size, sizeof(*search.table));
    if (search.table == NULL)
        abort();
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != 0)
            *find(old[i]) = old[i];
    free(old);
}

static void found(const struct state *state, const char *step)
{
    const uint64_t known = *find(fingerprint(state));
    search.n_steps++;
    if (known != 0 && (known & 1) != 0)
        search.wrong = "the steps come back to a state";
    if (known != 0)
        return;
    if (search.n_stack == search.max_stack) {
        search.max_stack = search.max_stack == 0 ? 4096 : 2 * search.max_stack;
        search.stack = realloc(search.stack, search.max_stack * sizeof(*search.stack));
        if (search.stack == NULL)
            abort();
    }
    search.stack[search.n_stack++] = (struct entry){.state = *state, .step = step};
}

/* ---- both sides: STATE ----------------------------------------------------------------------- */

static uint8_t step_of(const struct side *side)
{
    return side->state == RUN ? (uint8_t)UP : side->state == PARKED ? (uint8_t)HALTED : side->state;
}

static void send_state(struct state *s, int me)
{
    const int to = !me;
    struct message message = s->sides[me].told;
    message.step = step_of(&s->sides[me]);
    message.seen = s->sides[me].peer_step;
    /* The rendezvous drops what a rank does not read. */
    if (s->n_messages[to] < MAX_MESSAGES)
        s->messages[to][s->n_messages[to]++] = message;
}

static struct message take_message(struct state *s, int to)
{
    const struct message message = s->messages[to][0];
    memmove(s->messages[to], s->messages[to] + 1, sizeof(message) * --s->n_messages[to]);
    memset(&s->messages[to][s->n_messages[to]], 0, sizeof(message));
    return message;
}

static void remove_packet(struct state *s, int rail, int index)
{
    struct packet *packets = s->packets[rail];
    const int n = --s->n_packets[rail];
    memmove(packets + index, packets + index + 1, sizeof(*packets) * (size_t)(n - index));
    memset(&packets[n], 0, sizeof(*packets));
}

static bool lets_old_epochs_in(void)
{
    return search.mutant == NO_FENCE || search.mutant == LATE_ARRIVALS;
}

/* This side's older queue pairs are in ERR and destroyed. */
static void fence(struct state *s, int me)
{
    const uint8_t epoch = s->sides[me].epoch;
    if (me == SENDER) {
        if (s->credit_epoch < epoch)
            s->credit_value = s->credit_epoch = s->credit_rail = 0;
        return;
    }
    for (int rail = 0; rail < N_RAILS; rail++)
        for (int i = s->n_packets[rail] - 1; i >= 0; i--)
            if (s->packets[rail][i].epoch < epoch && !lets_old_epochs_in())
                remove_packet(s, rail, i);
}

static void halt(struct state *s, int me, uint8_t epoch)
{
    struct side *side = &s->sides[me];
    if (epoch > search.max_epoch)
        search.wrong = "the connection halts more often than failures explain";
    *side = (struct side){.state = HALTED, .epoch = epoch, .rails = side->rails};
    fence(s, me);
    side->told = (struct message){.epoch = epoch, .rails = side->rails};
    if (me == RECEIVER) {
        side->told.arrived = s->arrived;
        side->told.head = s->consumed;
        if (search.mutant != KEPT_PARTS)
            memset(s->parts_seen, 0, sizeof(s->parts_seen));
    }
    send_state(s, me);
}

static void rewind_fifo(struct state *s, int me)
{
    const struct side *side = &s->sides[me];
    if (me == RECEIVER) {
        s->returned = search.mutant == LATER_RETURNED ? s->consumed : side->told.head;
        return;
    }
    s->posted = side->peer_arrived;
    if (s->credit < side->peer_head)
        s->credit = side->peer_head;
    if (search.mutant != EARLY_RELEASE || s->acknowledged < s->posted)
        s->acknowledged = s->posted;
}

static void advance(struct state *s, int me)
{
    struct side *side = &s->sides[me];
    if (side->state == HALTED && side->peer_step >= HALTED) {
        side->set = side->told.rails & side->peer_rails;
        side->state = side->set == 0 ? PARKED : MADE;
        if (side->state == MADE)
            send_state(s, me);
    }
    if (side->state == MADE && side->peer_step >= MADE) {
        side->state = UP;
        send_state(s, me);
    }
    if (side->state == UP && (side->peer_step >= UP || search.mutant == EARLY_POST)) {
        rewind_fifo(s, me);
        side->state = RUN;
    }
}

static void receive_state(struct state *s, int me)
{
    struct side *side = &s->sides[me];
    const struct message message = take_message(s, me);
    if (message.epoch > side->epoch)
        halt(s, me, message.epoch);
    if (message.epoch < side->epoch)
        return; /* the peer gets STATE when it is repeated */
    if (message.step > side->peer_step) {
        side->peer_step = message.step;
        side->peer_rails = message.rails;
        side->peer_arrived = message.arrived;
        side->peer_head = message.head;
        advance(s, me);
    } else if (message.seen < step_of(side) && search.mutant != NO_ANSWER) {
        send_state(s, me);
    }
}

/* ---- the data path --------------------------------------------------------------------------- */

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

/* A place is filled again once its slot was released. */
static int count_filled(const struct state *s)
{
    const int released =
        search.mutant == EARLY_RELEASE ? s->acknowledged : min_of(s->acknowledged, s->credit);
    return min_of(released + DEPTH, N_SLOTS);
}

static void post(struct state *s)
{
    const struct side *side = &s->sides[SENDER];
    int content = s->posted;
    while (content + DEPTH < count_filled(s))
        content += DEPTH;
    /* A peer of a later epoch has no queue pairs for it. */
    const bool is_dropped = side->epoch < s->sides[RECEIVER].epoch && !lets_old_epochs_in();
    for (int part = 0; part < N_PARTS && !is_dropped; part++) {
        const int rail = side->set == 3 ? part % N_RAILS : side->set - 1;
        if (s->n_packets[rail] == MAX_PACKETS)
            abort();
        s->packets[rail][s->n_packets[rail]++] =
            (struct packet){side->epoch, s->posted, (uint8_t)part, (uint8_t)content};
    }
    /* At worst the peer's NIC acknowledges before its memory has the bytes. */
    s->acknowledged = ++s->posted;
}

static bool takes_packets(const struct side *side, uint8_t epoch)
{
    return epoch == side->epoch && (side->state == UP || side->state == RUN);
}

/* False: of an epoch still to come. */
static bool land(struct state *s, int rail, int index)
{
    const struct side *side = &s->sides[RECEIVER];
    const struct packet packet = s->packets[rail][index];
    const int place = packet.slot % DEPTH;
    const bool is_late = packet.epoch < side->epoch;
    const bool is_counted =
        takes_packets(side, packet.epoch) ||
        (search.mutant == LATE_ARRIVALS && packet.epoch + 1 == side->epoch && side->state != RUN);
    if (packet.epoch > side->epoch)
        return false;
    remove_packet(s, rail, index);
    if (is_counted || (is_late && search.mutant == NO_FENCE))
        s->places[place][packet.part] = packet.content;
    if (is_counted)
        s->parts_seen[place]++;
    while (s->arrived < N_SLOTS && s->parts_seen[s->arrived % DEPTH] == N_PARTS)
        s->parts_seen[s->arrived++ % DEPTH] = 0;
    return true;
}

static bool consume(struct state *s)
{
    for (int part = 0; part < N_PARTS; part++)
        if (s->places[s->consumed % DEPTH][part] != s->consumed)
            return false;
    s->consumed++;
    return true;
}

static void explore_rails(const struct state *from)
{
    for (int rail = 0; rail < N_RAILS; rail++) {
        const uint8_t bit = (uint8_t)(1 << rail);
        struct state s = *from;
        const bool is_up = (from->rails_up & bit) != 0;
        s.rails_up ^= bit;
        if (is_up && s.failures_left > 0) {
            s.failures_left--;
            found(&s, "a rail goes down");
        } else if (!is_up && s.returns_left > 0) {
            s.returns_left--;
            found(&s, "a rail comes back");
        }
        for (int me = 0; me < 2; me++) {
            s = *from;
            struct side *side = &s.sides[me];
            const bool is_known = (side->rails & bit) != 0, runs = side->state == RUN;
            if (is_known && is_up && runs && (side->set & bit) == 0 &&
                (s.sides[!me].rails & bit) != 0) {
                halt(&s, me, (uint8_t)(side->epoch + 1));
                found(&s, "a rail that answers both sides is taken again");
            }
            if (is_known == is_up && (is_known || search.mutant != NO_PROBE))
                continue;
            side->rails ^= bit;
            /* While data move, a probe does not halt them. */
            if (is_known || !runs || search.mutant == NO_PROBE)
                halt(&s, me, (uint8_t)(side->epoch + 1));
            found(&s, me == SENDER ? "the sender notices a rail" : "the receiver notices a rail");
        }
    }
    for (int me = 0; me < 2 && search.mutant != EVENTS_ONLY; me++) {
        struct state s = *from;
        if (s.sides[me].failed == 0)
            continue;
        s.sides[me].rails &= (uint8_t)~s.sides[me].failed;
        halt(&s, me, (uint8_t)(s.sides[me].epoch + 1));
        found(&s, me == SENDER ? "a slot of the sender fails" : "a credit of the receiver fails");
    }
}

static bool is_waiting(const struct side *side)
{
    return side->state == HALTED || side->state == MADE || side->state == UP;
}

static void explore_messages(const struct state *from)
{
    for (int me = 0; me < 2; me++) {
        const struct side *side = &from->sides[me];
        struct state s = *from;
        if (s.n_messages[me] > 0) {
            receive_state(&s, me);
            found(&s, me == SENDER ? "the sender takes STATE" : "the receiver takes STATE");
        }
        s = *from;
        if (s.n_messages[me] > 0 && s.losses_left > 0) {
            s.losses_left--;
            (void)take_message(&s, me);
            found(&s,
                  me == SENDER ? "STATE to the sender is lost" : "STATE to the receiver is lost");
        }
        s = *from;
        if (is_waiting(side) && s.repeats_left > 0) {
            s.repeats_left--;
            send_state(&s, me);
            found(&s, me == SENDER ? "the sender repeats early" : "the receiver repeats early");
        }
    }
    struct state s = *from;
    const bool is_quiet = s.n_messages[SENDER] + s.n_messages[RECEIVER] == 0;
    for (int me = 0; me < 2 && is_quiet; me++)
        if (is_waiting(&s.sides[me]) && search.mutant != NO_REPEAT)
            send_state(&s, me);
    if (s.n_messages[SENDER] + s.n_messages[RECEIVER] > 0 && is_quiet)
        found(&s, "the sides that wait repeat STATE");
}

static void explore_packets(const struct state *from)
{
    for (int rail = 0; rail < N_RAILS; rail++) {
        struct state s = *from;
        if ((s.rails_up >> rail & 1) == 0 && s.n_packets[rail] > 0) {
            while (s.n_packets[rail] > 0) {
                if (s.packets[rail][0].epoch == s.sides[SENDER].epoch)
                    s.sides[SENDER].failed |= (uint8_t)(1 << rail);
                remove_packet(&s, rail, 0);
            }
            found(&s, "packets are lost");
        }
        /* Only a queue pair keeps the order. */
        for (int i = 0; i < from->n_packets[rail]; i++) {
            s = *from;
            if (i > 0 && s.packets[rail][i].epoch == s.packets[rail][i - 1].epoch)
                continue;
            if (land(&s, rail, i))
                found(&s, "a part lands");
        }
    }
}

static void explore_slots(const struct state *from)
{
    const struct side *sender = &from->sides[SENDER], *receiver = &from->sides[RECEIVER];
    struct state s = *from;
    if (sender->state == RUN && s.posted < count_filled(&s) && s.posted - s.credit < DEPTH) {
        post(&s);
        found(&s, "the sender posts a slot");
    }
    s = *from;
    if (s.consumed < s.arrived) {
        if (consume(&s))
            found(&s, "a slot is consumed");
        else
            search.wrong = "a slot is consumed with other bytes than its own";
    }
    s = *from;
    if (receiver->state == RUN && s.consumed > s.returned && s.credit_value == 0) {
        s.credit_value = s.returned = s.consumed;
        s.credit_epoch = receiver->epoch;
        s.credit_rail = receiver->set == 2;
        found(&s, "the receiver returns credit");
    }
    s = *from;
    if (s.credit_value == 0)
        return;
    const bool is_lost = (s.rails_up >> s.credit_rail & 1) == 0 || s.credit_epoch < sender->epoch;
    const uint8_t credit = s.credit_value, epoch = s.credit_epoch, rail = s.credit_rail;
    s.credit_value = s.credit_epoch = s.credit_rail = 0;
    if (takes_packets(sender, epoch)) {
        struct state t = s;
        t.credit = credit > t.credit ? credit : t.credit;
        found(&t, "credit lands");
    }
    if (is_lost) {
        if (epoch == receiver->epoch)
            s.sides[RECEIVER].failed |= (uint8_t)(1 << rail);
        found(&s, "credit is lost");
    }
}

static void explore(const struct state *from)
{
    const size_t n_steps = search.n_steps;
    explore_rails(from);
    explore_messages(from);
    explore_packets(from);
    explore_slots(from);
    if (search.n_steps == n_steps && from->consumed < N_SLOTS && from->rails_up != 0)
        search.wrong = "stuck while a rail is up";
}

static void print_path(void)
{
    for (size_t i = 0; i < search.n_stack; i++)
        if (search.stack[i].is_open)
            printf("    %s\n", search.stack[i].step);
}

static const char *run(enum mutant mutant, const struct limits *limits, bool prints_path)
{
    const struct side side = {.state = RUN, .rails = 3, .peer_step = UP, .peer_rails = 3, .set = 3};
    struct state first = {.sides = {side, side},
                          .rails_up = 3,
                          .failures_left = limits->failures,
                          .returns_left = limits->returns,
                          .losses_left = limits->losses,
                          .repeats_left = limits->repeats};
    memset(first.places, NO_SLOT, sizeof(first.places));
    memset(&search, 0, sizeof(search));
    search.mutant = mutant;
    /* A credit may also fail because the sender has halted. */
    search.max_epoch = 4 * (limits->failures + limits->returns + N_SLOTS);
    grow_table();
    found(&first, "the start");
    while (search.n_stack > 0 && search.wrong == NULL) {
        struct entry *entry = &search.stack[search.n_stack - 1];
        const uint64_t print = fingerprint(&entry->state);
        uint64_t *known = find(print);
        if (entry->is_open || *known != 0) {
            if (entry->is_open)
                *known = print;
            search.n_stack--;
            continue;
        }
        entry->is_open = true;
        *known = print | 1;
        if (2 * ++search.n_states > search.table_size)
            grow_table();
        const struct state state = entry->state;
        explore(&state);
    }
    if (prints_path && search.wrong != NULL)
        print_path();
    free(search.stack);
    free(search.table);
    return search.wrong;
}

int main(int argc, char **argv)
{
    static const struct limits all_limits[] = {
        {.failures = 2, .returns = 0, .losses = 0, .repeats = 0},
        {.failures = 1, .returns = 1, .losses = 0, .repeats = 0},
        {.failures = 1, .returns = 0, .losses = 2, .repeats = 1},
        {.failures = 2, .returns = 0, .losses = 1, .repeats = 0},
        {.failures = 1, .returns = 1, .losses = 1, .repeats = 0},
    };
    const size_t n_limits = sizeof(all_limits) / sizeof(all_limits[0]);
    int n_failed = 0, n_run = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < n_limits && argc == 1; i++, n_run++) {
        const struct limits *limits = &all_limits[i];
        const char *wrong = run(NO_MUTANT, limits, true);
        printf("%s failures %d, returns %d, STATEs lost %d, repeated early %d: %zu states%s%s\n",
               wrong == NULL ? "ok  " : "FAIL", limits->failures, limits->returns, limits->losses,
               limits->repeats, search.n_states, wrong == NULL ? "" : ": ",
               wrong == NULL ? "" : wrong);
        n_failed += wrong != NULL;
    }
    for (enum mutant mutant = NO_MUTANT + 1; mutant < N_MUTANTS; mutant++) {
        const char *wrong = NULL;
        if (argc > 1 && strcmp(argv[1], mutants[mutant].name) != 0)
            continue;
        for (size_t i = 0; i < n_limits && wrong == NULL; i++)
            wrong = run(mutant, &all_limits[i], argc > 1);
        printf("%s mutant %s (%s): %s\n", wrong != NULL ? "ok  " : "FAIL", mutants[mutant].name,
               mutants[mutant].words, wrong != NULL ? wrong : "not found");
        n_failed += wrong == NULL;
        n_run++;
    }
    if (n_run == 0)
        printf("no such mutant\n");
    return n_failed > 0 || n_run == 0;
}
