/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices that are kept so that they are predicted once.
 */
#include "core/engine/plan/kept_choices.h"
#include "tests/support/check.h"

static struct gyre_kept_choices choices;

static struct gyre_choice_key key_of(uint32_t protos)
{
    return (struct gyre_choice_key){
        .coll = GYRE_COLL_ALL_REDUCE, .terms = {.protos = protos}, .class_bytes = 1024};
}

/* The channels of a choice say for which key it was made. */
static void keep(uint32_t protos)
{
    const struct gyre_choice_key key = key_of(protos);
    const struct gyre_choice choice = {.n_channels = protos};
    CHECK(gyre_kept_choices_find(&choices, &key) == NULL);
    gyre_kept_choices_keep(&choices, &key, &choice);
}

static bool is_kept(uint32_t protos)
{
    const struct gyre_choice_key key = key_of(protos);
    const struct gyre_choice *choice = gyre_kept_choices_find(&choices, &key);
    CHECK(choice == NULL || choice->n_channels == protos);
    return choice != NULL;
}

static void a_choice_is_found_by_its_whole_key(void)
{
    static const struct gyre_algorithm given = {.name = "given"};
    enum { COLL, GIVEN, TERMS, WINDOW, LAMPORT, BYTES, N_FIELDS };
    gyre_kept_choices_forget(&choices);
    keep(7);
    CHECK(is_kept(7));
    for (int field = 0; field < N_FIELDS; field++) {
        struct gyre_choice_key other = key_of(7);
        other.coll = field == COLL ? GYRE_COLL_REDUCE : other.coll;
        other.given = field == GIVEN ? &given : NULL;
        other.terms.max_channels = field == TERMS;
        other.in_window = field == WINDOW;
        other.has_lamport = field == LAMPORT;
        other.class_bytes += field == BYTES;
        CHECK_MSG(gyre_kept_choices_find(&choices, &other) == NULL, "field %d", field);
    }
    gyre_kept_choices_forget(&choices);
    CHECK(!is_kept(7));
}

/* Ten times as many kinds of terms as there is room for. The choice that is used after each new one
 * is never the one of its row that was not used for the longest time. */
static void many_kinds_of_terms_push_out_what_was_not_used_longest(void)
{
    const uint32_t n_places = GYRE_KEPT_ROWS * GYRE_KEPT_PER_ROW, n_kinds = 10 * n_places;
    uint32_t n_kept = 0;
    gyre_kept_choices_forget(&choices);
    for (uint32_t kind = 1; kind <= n_kinds; kind++) {
        keep(kind);
        CHECK_MSG(is_kept(1), "after kind %u", kind);
    }
    CHECK(is_kept(n_kinds) && is_kept(n_kinds - 1));
    for (uint32_t kind = 1; kind <= n_kinds; kind++)
        n_kept += is_kept(kind);
    CHECK_MSG(n_kept == n_places, "%u are kept, of %u places", n_kept, n_places);
}

static const struct test_case cases[] = {
    {"a choice is found by its whole key", a_choice_is_found_by_its_whole_key},
    {"many kinds of terms push out what was not used for the longest time",
     many_kinds_of_terms_push_out_what_was_not_used_longest},
};

TEST_MAIN(cases)
