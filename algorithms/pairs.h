/* SPDX-License-Identifier: Apache-2.0
 *
 * Who exchanges with whom in steps of recursive doubling or halving. The members, which are ranks,
 * form pairs at distance 1, 2, 4, ... of their numbers among the pairing members. If there are not
 * a power of two of them, the first members are folded two by two: the odd one of two gives its
 * data to the one before it, takes no part in the pairs, and gets the result from there.
 */
#ifndef GYRE_ALGORITHMS_PAIRS_H
#define GYRE_ALGORITHMS_PAIRS_H

#include <stdbool.h>

struct gyre_pairs {
    int n_pairing; /* the largest power of two that is not above the number of members */
    int n_folded;  /* members that take no part in the pairs */
};

static inline struct gyre_pairs gyre_pairs_of(int n_members)
{
    struct gyre_pairs pairs = {.n_pairing = 1};
    while (pairs.n_pairing * 2 <= n_members)
        pairs.n_pairing *= 2;
    pairs.n_folded = n_members - pairs.n_pairing;
    return pairs;
}

/** gyre_pairs_is_folded - is this member one of two that are folded into one? */
static inline bool gyre_pairs_is_folded(struct gyre_pairs pairs, int member)
{
    return member < 2 * pairs.n_folded;
}

/** gyre_pairs_number - the number of a pairing member among those. */
static inline int gyre_pairs_number(struct gyre_pairs pairs, int member)
{
    return gyre_pairs_is_folded(pairs, member) ? member / 2 : member - pairs.n_folded;
}

/** gyre_pairs_member - the pairing member with this number. For number n_pairing it is the number
 * of members: member(v) to member(v + 1) - 1 are those that number v stands for. */
static inline int gyre_pairs_member(struct gyre_pairs pairs, int number)
{
    return number < pairs.n_folded ? 2 * number : number + pairs.n_folded;
}

#endif
