/* SPDX-License-Identifier: Apache-2.0
 *
 * Two binary trees over the same items, for halves of the data. An item that is inner in one tree
 * is a leaf of the other, so every item sends and receives all data once.
 */
#ifndef GYRE_ALGORITHMS_BINARY_TREE_H
#define GYRE_ALGORITHMS_BINARY_TREE_H

#define GYRE_N_TREES 2

/** gyre_tree_top - the item at the top of a tree over items 0..n-1. @tree: 0 or 1. */
int gyre_tree_top(int tree, int n);

/** gyre_tree_parent - the item above `item`; -1 at the top. */
int gyre_tree_parent(int tree, int n, int item);

/** gyre_tree_children - the items below `item`. @children_out: 2 entries. Returns how many. */
int gyre_tree_children(int tree, int n, int item, int *children_out);

#endif
