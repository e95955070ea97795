/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that a NIC has written, but that are not in memory yet.
 */
#ifndef GYRE_TESTS_VERBS_HIDDEN_H
#define GYRE_TESTS_VERBS_HIDDEN_H

#include <stddef.h>

struct vm_hidden;

/** *first begins as NULL. */
void vm_hidden_add(struct vm_hidden **first, const void *nic, unsigned char *to, const void *from,
                   size_t n_bytes);

/** In order. */
void vm_hidden_show(struct vm_hidden **first, const void *nic);

/** Nothing of it ever comes. */
void vm_hidden_drop(struct vm_hidden **first);

#endif
