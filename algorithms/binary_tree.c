/* SPDX-License-Identifier: Apache-2.0
 *
 * The in-order binary tree over positions 1..n: the height of a position is its number of trailing
 * zero bits, so odd positions are leaves, and the top is the largest power of two.
 *
 * Four items, positions in the tree from 1:
 *
 *   tree 0:    3          tree 1:    0
 *             1                       2
 *            0 2                     3 1
 */
#include "algorithms/binary_tree.h"

static int top_position(int n)
{
    int top = 1;
    while (top * 2 <= n)
        top *= 2;
    return top;
}

/* Every leaf of tree 0 is an inner node of tree 1. Tree 1 is tree 0 mirrored if n is even, else
 * shifted by one; then one node is a leaf in both. */
static int position_of(int tree, int n, int item)
{
    if (tree == 0)
        return item + 1;
    return n % 2 == 0 ? n - item : (item + 1) % n + 1;
}

static int item_at(int tree, int n, int position)
{
    if (tree == 0)
        return position - 1;
    return n % 2 == 0 ? n - position : (position - 2 + n) % n;
}

int gyre_tree_top(int tree, int n)
{
    return item_at(tree, n, top_position(n));
}

int gyre_tree_parent(int tree, int n, int item)
{
    int position = position_of(tree, n, item);
    if (position == top_position(n))
        return -1;
    do { /* if the parent is past the end, take the parent's parent */
        const int low_bit = position & -position;
        position = (position & ~low_bit) | low_bit * 2;
    } while (position > n);
    return item_at(tree, n, position);
}

int gyre_tree_children(int tree, int n, int item, int *children_out)
{
    const int position = position_of(tree, n, item);
    int n_children = 0;
    int distance = (position & -position) / 2;
    if (distance == 0)
        return 0;
    children_out[n_children++] = item_at(tree, n, position - distance);
    while (distance > 1 &&
           position + distance > n) /* the subtree is cut off: go down its left side */
        distance /= 2;
    if (position + distance <= n)
        children_out[n_children++] = item_at(tree, n, position + distance);
    return n_children;
}
