/* SPDX-License-Identifier: Apache-2.0
 *
 * The pairs in which ranks, here called members, exchange data in recursive doubling or
 * halving. Pairing members have numbers, and two of them form a pair if their numbers are at
 * distance 1, 2, 4, ... If the number of members is no power of two, the first members are folded
 * two by two: the odd member of two gives its data to the member before it, takes no part in the
 * pairs, and gets the result from that member.
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

/** gyre_pairs_number - the number of a member among the pairing members. */
static inline int gyre_pairs_number(struct gyre_pairs pairs, int member)
{
    return gyre_pairs_is_folded(pairs, member) ? member / 2 : member - pairs.n_folded;
}

/** gyre_pairs_member - the pairing member with this number. Number v stands for member(v) to
 * member(v + 1) - 1, so member(n_pairing) is the number of members. */
static inline int gyre_pairs_member(struct gyre_pairs pairs, int number)
{
    return number < pairs.n_folded ? 2 * number : number + pairs.n_folded;
}

#endif
